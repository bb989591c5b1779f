"""The DSpark block head: its configuration, its modules and its two forward passes.

A head reads *taps* (residual streams of the target, concatenated) and guesses a block of tokens in one pass, then
corrects the guesses from left to right with a low-rank table of token pairs (the Markov head).

Shapes: B sequences, T context rows, A anchors a sequence, g slots a block, d width, r Markov rank, V target
vocabulary, DV draft vocabulary. Layer names and arithmetic are those of `speculators` (Qwen3-like layers).
"""

from dataclasses import asdict, dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class HeadConfig:
    """Everything that decides the shapes and the arithmetic of a head."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    block_size: int
    taps: list[int] = field(default_factory=list)  # 0-based: the residual stream after layer i
    mask_token_id: int = 0
    markov_rank: int = 64
    markov_type: str = "vanilla"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0

    def to_dict(self):
        return asdict(self)


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in f32 whatever the input."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps).to(x.dtype)


def rope_tables(positions, head_dim: int, theta: float, dtype):
    """Cosines and sines of half-split (NeoX) rope for absolute `positions`; both [..., head_dim]."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim)
    angles = positions.float()[..., None] * inverse
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cos, sin):
    """Turns x [B, heads, rows, head_dim]; pairs are (i, i + head_dim / 2)."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Attention(nn.Module):
    """Queries come from block rows; keys and values from context rows and block rows alike."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        d, hd = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, hd
        self.q_proj = nn.Linear(d, self.heads * hd, bias=False)
        self.k_proj = nn.Linear(d, self.kv_heads * hd, bias=False)
        self.v_proj = nn.Linear(d, self.kv_heads * hd, bias=False)
        self.o_proj = nn.Linear(self.heads * hd, d, bias=False)
        self.q_norm = RmsNorm(hd, config.rms_norm_eps)
        self.k_norm = RmsNorm(hd, config.rms_norm_eps)

    def forward(self, x, context, rope, mask):
        """x [B, Q, d], context [B, T, d], rope of the T + Q rows, mask [B, 1, Q, T + Q] added to the scores."""
        batch, rows, _ = x.shape
        both = torch.cat([context, x], 1)
        split = lambda y, heads: y.view(batch, -1, heads, self.head_dim)
        q = self.q_norm(split(self.q_proj(x), self.heads)).transpose(1, 2)
        k = self.k_norm(split(self.k_proj(both), self.kv_heads)).transpose(1, 2)
        v = split(self.v_proj(both), self.kv_heads).transpose(1, 2)
        cos, sin = rope
        q = rotate(q, cos[:, None, -rows:], sin[:, None, -rows:])
        k = rotate(k, cos[:, None], sin[:, None])
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, rows, -1))


class Mlp(nn.Module):
    """The SiLU-gated feed-forward part."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        d, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(d, inner, bias=False)
        self.up_proj = nn.Linear(d, inner, bias=False)
        self.down_proj = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One block of the head. The context is neither normed here nor changed: it only gives keys and values."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config)
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, context, rope, mask):
        x = x + self.self_attn(self.input_layernorm(x), context, rope, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class MarkovHead(nn.Module):
    """A bias on the logits of a slot that depends on the token before it, through `rank` numbers."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        rank, d = config.markov_rank, config.hidden_size
        self.kind = config.markov_type
        self.markov_w1 = nn.Embedding(config.vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, config.draft_vocab_size, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.01)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(d + rank, rank)
        elif self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + d, 3 * rank)
        elif self.kind != "vanilla":
            raise ValueError(f"markov_type {self.kind!r} is none of vanilla, gated, rnn")

    def start(self, hidden):
        """The recurrent state before the first slot; only `rnn` reads it. hidden [..., d]."""
        return hidden.new_zeros(*hidden.shape[:-1], self.markov_w1.embedding_dim)

    def code(self, previous, hidden, state):
        """What W2 is multiplied with in one slot: (code [..., r], next state). previous: target ids [...]."""
        e = self.markov_w1(previous).to(hidden.dtype)
        if self.kind == "vanilla":
            return e, state
        if self.kind == "gated":
            return torch.sigmoid(self.gate_proj(torch.cat([hidden, e], -1))) * e, state
        # The code of this slot is read from the state before it.
        gate, candidate, out = self.joint_proj(torch.cat([state, e, hidden], -1)).chunk(3, -1)
        gate = torch.sigmoid(gate)
        return torch.tanh(out), gate * state + (1 - gate) * torch.tanh(candidate)

    def codes(self, previous, hidden):
        """The codes of whole blocks whose previous tokens are known: previous [..., g], hidden [..., g, d]."""
        if self.kind != "rnn":
            return self.code(previous, hidden, None)[0]
        state, codes = self.start(hidden[..., 0, :]), []
        for slot in range(previous.shape[-1]):
            code, state = self.code(previous[..., slot], hidden[..., slot, :], state)
            codes.append(code)
        return torch.stack(codes, -2)


class ConfidenceHead(nn.Module):
    """Guesses whether the token of a slot will be accepted; a logit."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.proj = nn.Linear(config.hidden_size + config.markov_rank, 1)

    def forward(self, hidden, embedding):
        return self.proj(torch.cat([hidden, embedding], -1)).squeeze(-1)


class Head(nn.Module):
    """The trained part. The target's embedding table and output matrix are handed in, never owned."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.taps) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_layers)])
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.markov_head = MarkovHead(config)
        self.confidence_head = ConfidenceHead(config)

    def context(self, taps):
        """One vector a committed token: taps [B, T, m * d] to [B, T, d]."""
        return self.hidden_norm(self.fc(taps))

    def blocks(self, taps, embed, tokens, anchors, window: int | None = None, slots: int | None = None):
        """The hidden states of all slots: [B, A, g, d], or of blocks of only `slots` rows.

        taps [B, T, m * d]; embed [V, d]; tokens [B, T]; anchors [B, A] are positions whose token is known but whose
        taps are not: a block sees context rows before its anchor (the last `window` of them) and its own rows.
        """
        g, dtype = slots or self.config.block_size, self.fc.weight.dtype
        batch, length = tokens.shape
        count = anchors.shape[1]
        ids = torch.full((batch, count, g), self.config.mask_token_id, device=tokens.device, dtype=torch.long)
        ids[:, :, 0] = tokens.gather(1, anchors)
        steps = torch.arange(g, device=tokens.device)
        here = torch.arange(length, device=tokens.device)
        positions = torch.cat([here.expand(batch, -1), (anchors[:, :, None] + steps).flatten(1)], 1)
        cos, sin = rope_tables(positions, self.config.head_dim, self.config.rope_theta, torch.float32)
        mask = block_mask(anchors, length, g, window)
        x = embed[ids.flatten(1)].to(dtype)
        context = self.context(taps)
        if torch.is_autocast_enabled(x.device.type):
            compute = torch.get_autocast_dtype(x.device.type)
        else:
            compute = dtype
        rope = cos.to(compute), sin.to(compute)
        mask = torch.zeros(mask.shape, device=mask.device, dtype=compute).masked_fill_(~mask, float("-inf"))
        for layer in self.layers:
            x = layer(x, context, rope, mask)
        return self.norm(x).view(batch, count, g, -1)

    @torch.no_grad()
    def chain(self, hidden, first, head, d2t):
        """Greedy guesses for blocks: (target ids [..., g], corrected logits [..., g, DV], confidences [..., g]).

        hidden [..., g, d]; first [...] the anchors' tokens; head [DV, d]; d2t [DV] the target id of each draft id.
        """
        state = self.markov_head.start(hidden[..., 0, :])
        previous, guesses, logits, confidences = first, [], [], []
        for slot in range(hidden.shape[-2]):
            h = hidden[..., slot, :]
            code, state = self.markov_head.code(previous, h, state)
            row = h @ head.T + self.markov_head.markov_w2(code)
            confidences.append(torch.sigmoid(self.confidence_head(h, self.markov_head.markov_w1(previous).to(h.dtype))))
            previous = d2t[row.argmax(-1)]
            guesses.append(previous)
            logits.append(row)
        return torch.stack(guesses, -1), torch.stack(logits, -2), torch.stack(confidences, -1)


def block_mask(anchors, length: int, g: int, window: int | None):
    """Which keys each block row sees, True for seen: [B, 1, A * g, T + A * g]."""
    batch, count = anchors.shape
    here = torch.arange(length, device=anchors.device)
    before = here < anchors[..., None]  # [B, A, T]
    if window is not None:
        before &= here >= anchors[..., None] - window
    before = before.repeat_interleave(g, 1)
    block = torch.arange(count, device=anchors.device).repeat_interleave(g)
    own = (block[:, None] == block[None, :]).expand(batch, -1, -1)
    return torch.cat([before, own], -1)[:, None]
