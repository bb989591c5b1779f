"""The target: a llama or qwen2 model from a GGUF file (dequantized) or a Hugging Face folder, run by PyTorch.

Two passes: `forward` over whole sequences, which also returns taps, and `step`, one token of many sequences of equal
length, with a key-value cache. The residual stream is f32; matrices are of the dtype asked for.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from .gguf_file import GgufFile
from .head import rope_tables, rotate


@dataclass
class TargetConfig:
    """Shapes and constants of the target."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    architecture: str  # as Hugging Face names it: LlamaForCausalLM or Qwen2ForCausalLM


_GGUF_NAMES = {
    "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight", "o": "attn_output.weight",
    "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
    "norm1": "attn_norm.weight", "norm2": "ffn_norm.weight", "bq": "attn_q.bias", "bk": "attn_k.bias",
    "bv": "attn_v.bias"}
_HF_NAMES = {
    "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight", "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight", "norm1": "input_layernorm.weight", "norm2": "post_attention_layernorm.weight",
    "bq": "self_attn.q_proj.bias", "bk": "self_attn.k_proj.bias", "bv": "self_attn.v_proj.bias"}
_FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


class Target:
    """Weights and passes. `embed` [V, d] and `output` [V, d] are what a head binds."""

    def __init__(self, config: TargetConfig, layers, embed, norm, output, device="cpu", dtype=torch.float32):
        place = lambda x: x.to(device, dtype)
        self.config, self.device, self.dtype = config, torch.device(device), dtype
        self.embed = place(embed)
        self.output = self.embed if output is None else place(output)
        self.norm = norm.to(device).float()
        self.layers = []
        for layer in layers:
            fused = {
                "qkv": place(torch.cat([layer["q"], layer["k"], layer["v"]])), "o": place(layer["o"]),
                "gate_up": place(torch.cat([layer["gate"], layer["up"]])), "down": place(layer["down"]),
                "norm1": layer["norm1"].to(device).float(), "norm2": layer["norm2"].to(device).float()}
            if "bq" in layer:
                fused["bias"] = place(torch.cat([layer["bq"], layer["bk"], layer["bv"]]))
            self.layers.append(fused)

    @classmethod
    def load(cls, path, device="cpu", dtype=torch.float32):
        """From a `.gguf` file or a Hugging Face folder."""
        return (cls._from_folder if Path(path).is_dir() else cls._from_gguf)(path, device, dtype)

    @classmethod
    def _from_gguf(cls, path, device, dtype):
        file = GgufFile(path)
        family = file.fields["general.architecture"]
        if family not in _FAMILIES:
            raise ValueError(f"{path}: the family {family} is none of {', '.join(_FAMILIES)}")
        field = lambda name: file.fields[f"{family}.{name}"]
        heads, d = field("attention.head_count"), field("embedding_length")
        config = TargetConfig(
            hidden_size=d, intermediate_size=field("feed_forward_length"), num_layers=field("block_count"),
            num_heads=heads, num_kv_heads=field("attention.head_count_kv"), head_dim=d // heads,
            vocab_size=file.tensors["token_embd.weight"][0][0], rope_theta=field("rope.freq_base"),
            rms_norm_eps=field("attention.layer_norm_rms_epsilon"), architecture=_FAMILIES[family])
        get = lambda name: torch.from_numpy(file.tensor(name))
        layers = []
        for i in range(config.num_layers):
            layer = {key: get(f"blk.{i}.{name}") for key, name in _GGUF_NAMES.items()
                     if f"blk.{i}.{name}" in file.tensors}
            if family == "llama":  # GGUF keeps llama's rope pairs side by side; ours are half a head apart.
                layer["q"] = _half_split(layer["q"], config.num_heads)
                layer["k"] = _half_split(layer["k"], config.num_kv_heads)
            layers.append(layer)
        output = get("output.weight") if "output.weight" in file.tensors else None
        return cls(config, layers, get("token_embd.weight"), get("output_norm.weight"), output, device, dtype)

    @classmethod
    def _from_folder(cls, path, device, dtype):
        from safetensors import safe_open

        path = Path(path)
        fields = json.loads((path / "config.json").read_text())
        family = fields["model_type"]
        if family not in _FAMILIES:
            raise ValueError(f"{path}: the family {family} is none of {', '.join(_FAMILIES)}")
        heads, d = fields["num_attention_heads"], fields["hidden_size"]
        rope = fields.get("rope_parameters") or {}
        config = TargetConfig(
            hidden_size=d, intermediate_size=fields["intermediate_size"], num_layers=fields["num_hidden_layers"],
            num_heads=heads, num_kv_heads=fields["num_key_value_heads"], head_dim=fields.get("head_dim") or d // heads,
            vocab_size=fields["vocab_size"], rope_theta=fields.get("rope_theta") or rope["rope_theta"],
            rms_norm_eps=fields["rms_norm_eps"], architecture=_FAMILIES[family])
        tensors = {}
        for file in sorted(path.glob("*.safetensors")):
            with safe_open(file, "pt") as opened:
                tensors |= {name: opened.get_tensor(name).float() for name in opened.keys()}
        layers = [{key: tensors[f"model.layers.{i}.{name}"] for key, name in _HF_NAMES.items()
                   if f"model.layers.{i}.{name}" in tensors} for i in range(config.num_layers)]
        output = tensors.get("lm_head.weight")
        return cls(config, layers, tensors["model.embed_tokens.weight"], tensors["model.norm.weight"], output, device,
                   dtype)

    def _norm(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    def _qkv(self, layer, x):
        """x [B, T, d] to q [B, H, T, D], k and v [B, K, T, D], before rope."""
        c = self.config
        y = F.linear(self._norm(x, layer["norm1"]).to(self.dtype), layer["qkv"], layer.get("bias"))
        y = y.view(*x.shape[:2], -1, c.head_dim).transpose(1, 2)
        return y.split([c.num_heads, c.num_kv_heads, c.num_kv_heads], 1)

    def _finish(self, layer, x, attention):
        x = x + F.linear(attention, layer["o"])
        gate, up = F.linear(self._norm(x, layer["norm2"]).to(self.dtype), layer["gate_up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer["down"])

    @torch.no_grad()
    def forward(self, tokens, taps=()):
        """tokens [B, T] to (final hidden after the norm [B, T, d], taps [B, T, m * d] or None), causal."""
        c = self.config
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        cos, sin = rope_tables(positions, c.head_dim, c.rope_theta, self.dtype)
        x = F.embedding(tokens, self.embed).float()
        kept = {}
        for i, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = self._finish(layer, x, y.transpose(1, 2).flatten(2))
            if i in taps:
                kept[i] = x.to(self.dtype)
        joined = torch.cat([kept[i] for i in taps], -1) if taps else None
        return self._norm(x, self.norm).to(self.dtype), joined

    def cache(self, batch: int, length: int):
        """An empty key-value cache for `step`."""
        c = self.config
        shape = (c.num_layers, 2, batch, c.num_kv_heads, length, c.head_dim)
        return torch.empty(shape, device=self.device, dtype=self.dtype)

    @torch.no_grad()
    def step(self, tokens, position: int, cache):
        """The next token of each sequence [B], all at one position, to f32 logits [B, V]."""
        c = self.config
        batch, group = tokens.shape[0], c.num_heads // c.num_kv_heads
        at = torch.tensor([position], device=tokens.device)
        cos, sin = rope_tables(at, c.head_dim, c.rope_theta, self.dtype)
        x = F.embedding(tokens[:, None], self.embed).float()
        for i, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x)
            cache[i, 0, :, :, position] = rotate(k, cos, sin)[:, :, 0]
            cache[i, 1, :, :, position] = v[:, :, 0]
            # The query heads of one key-value head become rows of one query: no mask, no copies of keys.
            q = rotate(q, cos, sin).view(batch, c.num_kv_heads, group, c.head_dim)
            y = F.scaled_dot_product_attention(q, cache[i, 0, :, :, :position + 1], cache[i, 1, :, :, :position + 1])
            x = self._finish(layer, x, y.reshape(batch, 1, -1))
        return self.logits(self._norm(x[:, 0], self.norm).to(self.dtype))

    def logits(self, hidden):
        """Final hidden [N, d] to f32 logits [N, V], rounded once."""
        return matmul_f32(hidden, self.output)


def matmul_f32(rows, matrix):
    """rows [N, d] times matrix [M, d] transposed, as f32; on a GPU without rounding to the inputs' dtype."""
    if rows.is_cuda and rows.dtype != torch.float32:
        return torch.mm(rows, matrix.T, out_dtype=torch.float32)
    return (rows @ matrix.T).float()


def _half_split(weight, heads):
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
