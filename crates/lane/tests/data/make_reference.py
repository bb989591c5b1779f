"""Writes the tiny reference models beside this file, with the logits transformers gives for them.

For each case: a random model of one family is built in Hugging Face transformers, saved as
`<case>.gguf` with the names, metadata, permutations and shifts of llama.cpp's converter, and run over
one fixed sequence of 768 tokens; tokens, kept positions and their logits go to `<case>.logits.gguf`.
Positions 0 to 31 and every 64th one are kept, so that windows of 16 fill, slide and are far behind.
A second run rounds keys and values to f16 as the lane's cache does; what that changes is saved too, so
that the rest of the lane can be held to far less than the effect of the cache. Seeds are such that no
key or value of some early rows lies so close to the border of two f16 values that the order of a sum
decides ("border" below is how close a run in single precision comes at its best position).

    pip install torch transformers gguf numpy
    python crates/lane/tests/data/make_reference.py

The same package versions (recorded in every file) give the same bytes.
Invariant: transformers sees the values the file holds; matrices are rounded to the file's type first.
Not here: the comparison (`tests/reference.rs`).
"""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

HERE = Path(__file__).resolve().parent
SEQUENCE = 768
KEPT = sorted({*range(32), *range(63, SEQUENCE, 64)})
VOCAB = 160
N_HEADS, N_KV_HEADS, HEAD_DIM = 4, 2, 16
CONTEXT = 1024


@dataclass
class Case:
    name: str
    arch: gguf.MODEL_ARCH
    seed: int
    hidden: int
    ffn: int
    layers: int
    tied: bool
    theta: float = 10_000.0
    half: bool = True  # matrices as F16, else F32
    scaling: dict = field(default_factory=dict)
    window: int | None = None


CASES = [
    Case("llama", gguf.MODEL_ARCH.LLAMA, 1, 64, 64, 2, tied=False, half=False),
    # Wavelengths of the eight frequencies: two are kept, one is blended, the rest are stretched.
    Case("llama-3-rope", gguf.MODEL_ARCH.LLAMA, 2, 64, 96, 3, tied=True, theta=20_000.0, scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512}),
    Case("qwen2-tied", gguf.MODEL_ARCH.QWEN2, 3, 64, 96, 2, tied=True),
    Case("qwen2-untied", gguf.MODEL_ARCH.QWEN2, 4, 64, 96, 2, tied=False, theta=1e6),
    # Heads wider than the hidden state, as in the smaller Qwen3 and Gemma 3 models.
    Case("qwen3", gguf.MODEL_ARCH.QWEN3, 5, 48, 96, 2, tied=False, theta=1e6),
    Case("qwen3-yarn", gguf.MODEL_ARCH.QWEN3, 6, 48, 96, 2, tied=True, scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}),
    # Seven layers: five with a window, a global one, and one more with a window.
    Case("gemma3", gguf.MODEL_ARCH.GEMMA3, 7, 48, 64, 7, tied=True, theta=1e6, window=16),
    Case("gemma3-linear-rope", gguf.MODEL_ARCH.GEMMA3, 24, 48, 64, 7, tied=True, theta=1e6, window=16,
         scaling={"rope_type": "linear", "factor": 8.0}),
]


def build(case: Case) -> torch.nn.Module:
    """The transformers model, its weights still arbitrary."""
    rope = {"rope_type": "default", "rope_theta": case.theta, **case.scaling}
    shared = dict(
        vocab_size=VOCAB, hidden_size=case.hidden, intermediate_size=case.ffn, num_hidden_layers=case.layers,
        num_attention_heads=N_HEADS, num_key_value_heads=N_KV_HEADS, max_position_embeddings=CONTEXT,
        tie_word_embeddings=case.tied, attn_implementation="eager", bos_token_id=0, eos_token_id=0, pad_token_id=0)
    match case.arch:
        case gguf.MODEL_ARCH.LLAMA:
            config = transformers.LlamaConfig(**shared, rope_parameters=rope, rms_norm_eps=1e-5)
            model = transformers.LlamaForCausalLM(config)
        case gguf.MODEL_ARCH.QWEN2:
            config = transformers.Qwen2Config(**shared, rope_parameters=rope, rms_norm_eps=1e-6)
            model = transformers.Qwen2ForCausalLM(config)
        case gguf.MODEL_ARCH.QWEN3:
            config = transformers.Qwen3Config(**shared, rope_parameters=rope, rms_norm_eps=1e-6, head_dim=HEAD_DIM)
            model = transformers.Qwen3ForCausalLM(config)
        case gguf.MODEL_ARCH.GEMMA3:
            local = {"rope_type": "default", "rope_theta": 10_000.0}
            config = transformers.Gemma3TextConfig(
                **shared, rope_parameters={"full_attention": rope, "sliding_attention": local}, rms_norm_eps=1e-6,
                head_dim=HEAD_DIM, query_pre_attn_scalar=HEAD_DIM, sliding_window=case.window)
            model = transformers.Gemma3ForCausalLM(config)
        case other:
            raise ValueError(other)
    return model.eval()


def fill(case: Case, model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Draws every weight, sets it in the model and returns it by its transformers name.

    Scales keep the residual stream near unit size, attention scores near a spread of 2 and logits
    near 2.5, so attention is far from uniform and the best token is mostly clear.
    """
    rng = np.random.default_rng(case.seed)
    gemma = case.arch == gguf.MODEL_ARCH.GEMMA3
    weights = {}
    for name, parameter in sorted(dict(model.named_parameters()).items()):
        noise = rng.standard_normal(tuple(parameter.shape))
        module = name.split(".")[-2]
        if name.endswith(".bias"):
            value = 0.5 * noise
        elif parameter.ndim == 1:
            centre = 1.4 if module in ("q_norm", "k_norm") else 1.0
            if gemma and module.startswith("post_"):
                centre = 2.0
            # Gemma's norms multiply by one plus the weight.
            value = centre + 0.2 * noise - (1.0 if gemma else 0.0)
        else:
            per_norm = {"embed_tokens": 2.5 if case.tied else 8.0, "lm_head": 2.5, "q_proj": 1.4, "k_proj": 1.4,
                        "v_proj": 1.0, "o_proj": 2.0, "gate_proj": 1.2, "up_proj": 1.0, "down_proj": 2.0}
            value = per_norm[module] / math.sqrt(parameter.shape[1]) * noise
            if case.half:
                value = value.astype(np.float16)
        weights[name] = value.astype(np.float32)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(weights[name]))
    return weights


def interleave(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Reorders each head's rows so that rows i and i + dim / 2 become neighbours."""
    rows, k = weight.shape
    halves = weight.reshape(n_heads, 2, rows // n_heads // 2, k)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, k)


def llama3_factors(case: Case) -> np.ndarray:
    """What each frequency is divided by, one per pair."""
    s = case.scaling
    trained, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    factors = []
    for i in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * case.theta ** (i / HEAD_DIM)
        # The share of the unscaled frequency: 1 for short waves, 0 for long ones.
        keep = min(max((trained / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / ((1.0 - keep) / s["factor"] + keep))
    return np.array(factors, dtype=np.float32)


def write_tokenizer(out: gguf.GGUFWriter) -> None:
    """A byte-level vocabulary: one end token, printable ASCII, space, line feed, and pairs of letters."""
    tokens = ["<|endoftext|>"] + [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
    merges = []
    for left in "Ġetaoinshr":
        for right in "etaoinshr":
            if len(tokens) < VOCAB:
                merges.append(f"{left} {right}")
                tokens.append(left + right)
    types = [gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (VOCAB - 1)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_add_bos_token(False)


def write_model(case: Case, weights: dict[str, np.ndarray]) -> None:
    arch = case.arch
    llama, gemma = arch == gguf.MODEL_ARCH.LLAMA, arch == gguf.MODEL_ARCH.GEMMA3
    out = gguf.GGUFWriter(HERE / f"{case.name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
    out.add_type("model")
    out.add_name(f"Pilotfish test model {case.name}")
    out.add_string("reference.made_with", versions())
    out.add_context_length(CONTEXT)
    out.add_embedding_length(case.hidden)
    out.add_block_count(case.layers)
    out.add_feed_forward_length(case.ffn)
    out.add_head_count(N_HEADS)
    out.add_head_count_kv(N_KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5 if llama else 1e-6)
    out.add_rope_freq_base(case.theta)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if case.half else gguf.LlamaFileType.ALL_F32)
    if arch in (gguf.MODEL_ARCH.QWEN3, gguf.MODEL_ARCH.GEMMA3):
        out.add_key_length(HEAD_DIM)
        out.add_value_length(HEAD_DIM)
    if llama:
        out.add_vocab_size(VOCAB)
        out.add_rope_dimension_count(HEAD_DIM)
    if gemma:
        out.add_sliding_window(case.window)
    match case.scaling.get("rope_type"):
        case "linear":
            out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            out.add_rope_scaling_factor(case.scaling["factor"])
        case "yarn":
            out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            out.add_rope_scaling_factor(case.scaling["factor"])
            out.add_rope_scaling_orig_ctx_len(case.scaling["original_max_position_embeddings"])
        case "llama3":
            out.add_tensor("rope_freqs.weight", llama3_factors(case))
    write_tokenizer(out)

    names = gguf.get_tensor_name_map(arch, case.layers)
    for name, value in weights.items():
        if llama and name.endswith("q_proj.weight"):
            value = interleave(value, N_HEADS)
        if llama and name.endswith("k_proj.weight"):
            value = interleave(value, N_KV_HEADS)
        if gemma and name.endswith("norm.weight"):
            value = value + np.float32(1.0)
        if case.half and value.ndim == 2:
            value = value.astype(np.float16)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), value)
    finish(out)


def write_logits(case: Case, tokens: np.ndarray, logits: np.ndarray, cached: np.ndarray) -> None:
    out = gguf.GGUFWriter(HERE / f"{case.name}.logits.gguf", gguf.MODEL_ARCH_NAMES[case.arch])
    out.add_string("reference.made_with", versions())
    out.add_array("reference.tokens", tokens.tolist())
    out.add_array("reference.positions", KEPT)
    out.add_tensor("reference.logits", logits.astype(np.float32))
    # A thousandth of a logit in size, so f16 keeps it to better than a millionth.
    out.add_tensor("reference.cache_effect", (cached - logits).astype(np.float16))
    finish(out)


def finish(out: gguf.GGUFWriter) -> None:
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def versions() -> str:
    # Local build tags such as "+cpu" say nothing about the numbers.
    return f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"


def run(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    return logits[KEPT].numpy()


def run_with_f16_cache(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    modeling = sys.modules[type(model).__module__]
    attend = modeling.eager_attention_forward

    def rounded(module, query, key, value, *rest, **options):
        return attend(module, query, key.half().to(key.dtype), value.half().to(value.dtype), *rest, **options)

    modeling.eager_attention_forward = rounded
    try:
        return run(model, tokens)
    finally:
        modeling.eager_attention_forward = attend


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for case in CASES:
        model = build(case)
        weights = fill(case, model)
        tokens = np.random.default_rng(100 + case.seed).integers(0, VOCAB, SEQUENCE)
        single = run(model.float(), tokens)
        # Double where transformers allows it; it rounds norms, softmax and angles to single anyway.
        logits = run(model.double(), tokens)
        cached = run_with_f16_cache(model, tokens)
        border = np.abs(run_with_f16_cache(model.float(), tokens) - cached).mean(axis=1)
        write_model(case, weights)
        write_logits(case, tokens, logits, cached)

        top = np.sort(logits, axis=1)
        margins = top[:, -1] - top[:, -2]
        print(f"{case.name:18} spread {logits.std():.2f}  margins < 0.05: {np.mean(margins < 0.05):.0%}  "
              f"mean effect of single precision {np.abs(single - logits).mean():.1e}, "
              f"of the cache {np.abs(cached - logits).mean():.1e} (most {np.abs(cached - logits).max():.0e}), "
              f"of borders {border.mean():.1e} (least {border.min():.0e})  "
              f"top is the input {np.mean(logits.argmax(1) == tokens[KEPT]):.0%}  "
              f"distinct tops {len(set(logits.argmax(1)))}  "
              f"{(HERE / f'{case.name}.gguf').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
