"""A tiny random target with a tokenizer and a chat template, as a Hugging Face folder and as a GGUF file."""

import json

import gguf
import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<spare>"]


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(["user assistant write the summary of a text about the code and the answer"] * 3, trainer)
    return made


def model(family: str):
    kind = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM)}[family]
    torch.manual_seed(1)
    config = kind[0](hidden_size=48, intermediate_size=80, num_hidden_layers=5, num_attention_heads=6,
                     num_key_value_heads=2, vocab_size=400, rope_theta=5000.0, rms_norm_eps=1e-5,
                     tie_word_embeddings=family == "llama", max_position_embeddings=512, initializer_range=0.15)
    return kind[1](config).float().eval()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A llama target as a folder."""
    path = tmp_path_factory.mktemp("tiny")
    model("llama").save_pretrained(path)
    tokenizer().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}))
    return path


@pytest.fixture(scope="session")
def gguf_path(folder, tmp_path_factory):
    """The same target as a GGUF file in f32, with rope pairs laid out as GGUF lays out llama's."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    hf = model("llama")
    c, weights = hf.config, {name: value.numpy() for name, value in hf.state_dict().items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    made = json.loads(tokenizer().to_str())["model"]
    names = sorted(made["vocab"], key=made["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(names)
    writer.add_token_types([3 if name in SPECIAL else 1 for name in names])
    writer.add_token_merges([" ".join(pair) for pair in made["merges"]])
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def interleaved(weight, heads):
        rows, columns = weight.shape
        return np.ascontiguousarray(
            weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns))

    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}
    for i in range(c.num_hidden_layers):
        for theirs, ours in parts.items():
            weight = weights[f"model.layers.{i}.{theirs}.weight"]
            weight = interleaved(weight, heads[ours]) if ours in heads else weight
            writer.add_tensor(f"blk.{i}.{ours}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
