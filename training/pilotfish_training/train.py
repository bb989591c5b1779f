"""Trains one or more heads on the same batches; the target's pass is shared.

    python -m pilotfish_training.train TARGET DATA.pt... --out FOLDER --seconds 500 --total 500 \
        --head 'name=a,layers=2,slots=8' --head 'name=b,layers=1'

A run stops after --seconds and can be called again: it goes on from FOLDER/NAME.pt. The learning rate follows the share
of --total seconds that is spent, so a run of 900 s can be two calls of 450. At the end heads are evaluated on held-out
rows and exported to FOLDER/NAME/.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from .evaluate import evaluate_rows
from .export import export
from .head import Head, HeadConfig
from .loss import SlotLoss, teacher_rows
from .target import Target
from .text import Text

DEFAULTS = dict(name="head", layers=2, inner=0, slots=8, vocab=16384, rank=64, markov="vanilla", taps=5, ce=0.1, l1=0.9,
                kl=0.0, lr=1e-3, optimizer="adamw", warm=0, any_slots=1, decay=4.0)


def parse_head(words: str) -> dict:
    """'key=value,…' over the defaults; values take the type of the default."""
    options = dict(DEFAULTS)
    for word in filter(None, words.split(",")):
        key, value = word.split("=")
        if key not in options:
            raise SystemExit(f"--head: {key} is none of {', '.join(options)}")
        options[key] = type(options[key])(value)
    return options


def spread_taps(n_layers: int, count: int) -> list[int]:
    """`count` layers from 1 to the last but one, evenly; the last layer is not offered by Hugging Face's states."""
    last = n_layers - 2
    return sorted({round(1 + i * (last - 1) / (count - 1)) for i in range(count)}) if count > 1 else [last]


def draft_vocabulary(tokens, answer, size: int, target: Target, text: Text) -> torch.Tensor:
    """Target ids of the draft vocabulary, ascending: the end of a turn, single bytes, then the most frequent."""
    vocab = target.config.vocab_size
    counts = torch.bincount(tokens[answer].long(), minlength=vocab).double()
    must = [i for i in range(min(vocab, text.tokenizer.get_vocab_size())) if len(text.tokenizer.id_to_token(i)) == 1]
    counts[must] += 1e12
    counts[text.to_assistant[0]] += 1e12
    return counts.topk(min(size, vocab)).indices.sort().values


def mask_token(target: Target, text: Text, seen) -> int:
    """A special token that no conversation holds, else the id seen least."""
    special = sorted(text.tokenizer.get_added_tokens_decoder())
    unused = [i for i in special if i < target.config.vocab_size and seen[i] == 0]
    return unused[0] if unused else int(seen.argmin())


@torch.no_grad()
def start(head: Head, target: Target, tokens, warm: bool):
    """First weights: `fc` averages the taps, each scaled to one; `warm` copies the layers from the target's last."""
    config = head.config
    for name, weight in head.named_parameters():
        if weight.dim() == 2 and "markov" not in name:
            torch.nn.init.normal_(weight, std=0.02)
    torch.nn.init.zeros_(head.markov_head.markov_w2.weight)
    torch.nn.init.zeros_(head.confidence_head.proj.bias)
    _, taps = target.forward(tokens.to(target.device).long(), config.taps)
    taps = taps[:, 4:].float().reshape(-1, len(config.taps), config.hidden_size)
    scale = taps.pow(2).mean((0, 2)).rsqrt().tolist()
    eye = torch.eye(config.hidden_size)
    noise = torch.randn(len(config.taps), config.hidden_size, config.hidden_size) * 0.01
    blocks = [(eye / len(config.taps) + n) * s for n, s in zip(noise, scale)]
    head.fc.weight.copy_(torch.cat(blocks, 1))
    if warm:
        c = target.config
        sizes = [c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.num_kv_heads * c.head_dim]
        for layer, source in zip(head.layers, target.layers[-len(head.layers):]):
            attention, mlp = layer.self_attn, layer.mlp
            for part, weight in zip((attention.q_proj, attention.k_proj, attention.v_proj), source["qkv"].split(sizes)):
                part.weight.copy_(weight)
            attention.o_proj.weight.copy_(source["o"])
            gate, up = source["gate_up"].chunk(2)
            mlp.gate_proj.weight.copy_(gate)
            mlp.up_proj.weight.copy_(up)
            mlp.down_proj.weight.copy_(source["down"])
            layer.input_layernorm.weight.copy_(source["norm1"])
            layer.post_attention_layernorm.weight.copy_(source["norm2"])
        head.norm.weight.copy_(target.norm)


class Run:
    """One head in training: weights, optimizers, seconds and steps spent."""

    def __init__(self, options: dict, target: Target, text: Text, data: dict, folder: Path):
        self.options, self.folder = options, folder
        c, device = target.config, target.device
        d2t = draft_vocabulary(data["tokens"], data["answer"], options["vocab"], target, text)
        seen = torch.bincount(data["tokens"].flatten().long(), minlength=c.vocab_size)
        config = HeadConfig(
            hidden_size=c.hidden_size, intermediate_size=options["inner"] or c.intermediate_size,
            num_layers=options["layers"], num_heads=c.num_heads, num_kv_heads=c.num_kv_heads, head_dim=c.head_dim,
            vocab_size=c.vocab_size, draft_vocab_size=len(d2t), block_size=options["slots"],
            taps=spread_taps(c.num_layers, options["taps"]), mask_token_id=mask_token(target, text, seen),
            markov_rank=options["rank"], markov_type=options["markov"], rms_norm_eps=c.rms_norm_eps,
            rope_theta=c.rope_theta)
        torch.manual_seed(0)
        self.head = Head(config)
        self.steps, self.spent, self.log = 0, 0.0, []
        saved = folder / f"{options['name']}.pt"
        if not saved.exists():
            start(self.head, target, data["tokens"][:16], bool(options["warm"]))
        self.head.to(device)
        matrices = [w for n, w in self.head.named_parameters() if w.dim() == 2 and ("layers." in n or n == "fc.weight")]
        if options["optimizer"] == "muon":
            rest = [w for w in self.head.parameters() if not any(w is m for m in matrices)]
            self.optimizers = [
                torch.optim.Muon(matrices, lr=options["lr"], weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW(rest, lr=options["lr"], betas=(0.9, 0.95), weight_decay=0.0)]
        else:
            self.optimizers = [torch.optim.AdamW(self.head.parameters(), lr=options["lr"], betas=(0.9, 0.95),
                                                 weight_decay=0.0)]
        if saved.exists():
            state = torch.load(saved, map_location=device)
            self.head.load_state_dict(state["head"])
            for optimizer, values in zip(self.optimizers, state["optimizers"]):
                optimizer.load_state_dict(values)
            self.steps, self.spent, self.log, d2t = state["steps"], state["spent"], state["log"], state["d2t"]
        self.d2t = d2t.to(device)
        self.t2d = torch.full((c.vocab_size,), -1, device=device).index_copy(
            0, self.d2t, torch.arange(len(d2t), device=device))
        self.output = target.output[self.d2t].contiguous()

    def save(self):
        torch.save({"head": self.head.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
                    "steps": self.steps, "spent": self.spent, "log": self.log, "d2t": self.d2t.cpu()},
                   self.folder / f"{self.options['name']}.pt")

    def step(self, batch: dict, progress: float, slots: int):
        """One update; returns (loss, share of slots whose best guess is the target's, by depth)."""
        options, head, target = self.options, self.head, batch["target"]
        slots = min(slots, options["slots"]) if options["any_slots"] else options["slots"]
        rate = options["lr"] * min(1.0, progress / 0.04, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        tokens, anchors, answer = batch["tokens"], batch["anchors"], batch["answer"]
        rows, length = tokens.shape
        steps = torch.arange(slots, device=tokens.device)
        here = anchors[:, :, None] + steps  # [B, A, g]: where the token before each guess stands
        ahead = (here + 1).clamp(max=length - 1)
        pick = lambda values, at: values.gather(1, at.flatten(1)).view(at.shape)
        valid = (pick(answer, ahead) & (here + 1 < length)).cumprod(-1).bool() & batch["kept"][..., None]
        here = here.clamp(max=length - 1)
        weights = torch.exp(-steps / options["decay"]) * valid
        weights = (weights / weights.sum().clamp(min=1e-6)).flatten()
        flat = (here + length * torch.arange(rows, device=tokens.device)[:, None, None]).flatten()
        previous = pick(tokens, here)
        taps = batch["taps"][tuple(head.config.taps)]
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=target.dtype == torch.bfloat16):
            hidden = head.blocks(taps, target.embed, tokens, anchors, slots=slots)
            codes = head.markov_head.codes(previous, hidden)
        features = torch.cat([hidden, codes], -1).flatten(0, 2)
        labels = self.t2d[batch["best"].flatten()[flat]]
        loss, _, hits = SlotLoss.apply(features, head.markov_head.markov_w2.weight, self.output,
                                       batch["hidden"].flatten(0, 1)[flat], batch["lse"][flat], labels, weights,
                                       (options["ce"], options["l1"], options["kl"]))
        embedding = head.markov_head.markov_w1(previous).flatten(0, 2).float()
        guess = head.confidence_head(hidden.flatten(0, 2).float().detach(), embedding.detach())
        sure = F.binary_cross_entropy_with_logits(guess, hits.float(), reduction="none")
        (loss + (weights * sure).sum()).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        right = (hits.view(-1, slots) & valid.view(-1, slots)).sum(0) / valid.view(-1, slots).sum(0).clamp(min=1)
        return loss.detach(), right


def make_batch(target: Target, data: dict, rows, tap_sets, n_anchors: int, generator) -> dict:
    """Tokens, taps and the target's view of them for the rows at these indices."""
    device = target.device
    tokens, answer = data["tokens"][rows].to(device).long(), data["answer"][rows].to(device)
    union = sorted(set().union(*tap_sets))
    hidden, taps = target.forward(tokens, union)
    width = target.config.hidden_size
    part = lambda tap: taps[..., union.index(tap) * width:(union.index(tap) + 1) * width]
    lse, best = teacher_rows(target, hidden.flatten(0, 1))
    # An anchor is any position whose next token is an answer's.
    chance = torch.rand(tokens.shape, device=device, generator=generator) * F.pad(answer[:, 1:], (0, 1))
    chosen = chance.topk(min(n_anchors, tokens.shape[1] - 1), dim=1)
    return {"target": target, "tokens": tokens, "answer": answer, "hidden": hidden, "lse": lse,
            "best": best.view(tokens.shape), "anchors": chosen.indices, "kept": chosen.values > 0,
            "taps": {tuple(s): taps if list(s) == union else torch.cat([part(t) for t in s], -1) for s in tap_sets}}


def train(target: Target, text: Text, data: dict, heads: list[dict], folder: Path, seconds: float, total: float,
          batch_rows: int = 64, n_anchors: int = 96, eval_rows: int = 64, verifier=None, max_steps=None) -> dict:
    """Trains, saves, evaluates and exports; returns the report that is also written to FOLDER/report.json."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    held = data["tokens"].shape[0] - eval_rows
    training = {key: data[key][:held] for key in ("tokens", "answer", "greedy")}
    runs = [Run(options, target, text, training, folder) for options in heads]
    tap_sets = [run.head.config.taps for run in runs]
    device = target.device
    generator = torch.Generator(device=device).manual_seed(runs[0].steps + 1)
    rng = random.Random(runs[0].steps)
    before, last_line = runs[0].spent, began
    n_steps, losses = 0, {}
    while (spent := time.monotonic() - began) < seconds and (max_steps is None or n_steps < max_steps):
        rows = torch.randint(held, (batch_rows,), generator=torch.Generator().manual_seed(rng.getrandbits(60)))
        batch = make_batch(target, training, rows, tap_sets, n_anchors, generator)
        slots = rng.choices([3, 4, 5, 6, 8], [1, 2, 2, 2, 3])[0]
        progress = n_steps / max_steps if max_steps else min((before + spent) / total, 1.0)
        for run in runs:
            losses[run.options["name"]] = run.step(batch, progress, slots)
        n_steps += 1
        if time.monotonic() - last_line > 20 or n_steps in (1, 10):
            last_line = time.monotonic()
            for name, (loss, right) in losses.items():
                shares = " ".join(f"{share:.2f}" for share in right.tolist())
                print(f"{spent:6.0f} s  step {n_steps:5d}  {name}: loss {loss.item():.3f}  right {shares}", flush=True)
    report = {}
    greedy = data["greedy"][held:]
    tokens, answer = data["tokens"][held:][greedy], data["answer"][held:][greedy]
    for run in runs:
        run.spent = before + time.monotonic() - began
        run.save()
        run.head.eval()
        name, options = run.options["name"], run.options
        result = evaluate_rows(run.head, target, run.d2t, tokens, answer)
        covered = (run.t2d[tokens.to(device).long()] >= 0)[answer.to(device)].float().mean().item()
        record = {"options": options, "steps": run.steps, "seconds": round(run.spent), "rows_a_step": batch_rows,
                  "anchors_a_row": n_anchors, "vocabulary_covers": round(covered, 5), "held_out": result,
                  "data": data.get("report")}
        run.log.append(record)
        sizes = export(folder / name, run.head, run.d2t, verifier, target.config.architecture, record=record)
        report[name] = {**record, "bf16_bytes": sizes}
        print(name, json.dumps({"steps": run.steps, "covers": round(covered, 4), **result}), flush=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


def read_data(paths) -> dict:
    """Several files of `generate` as one; the rows of the last file come last, so held-out rows are its."""
    parts = [torch.load(path) for path in paths]
    joined = {key: torch.cat([part[key] for part in parts]) for key in ("tokens", "answer", "greedy")}
    return joined | {"report": [part["report"] for part in parts]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", action="append", default=[], help=f"key=value,… over {DEFAULTS}")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--total", type=float, help="seconds of the whole schedule (default: --seconds)")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--anchors", type=int, default=96)
    parser.add_argument("--eval-rows", type=int, default=64)
    parser.add_argument("--steps", type=int, help="a schedule of so many steps instead of --total seconds")
    parser.add_argument("--verifier", help="name of the target for the exported configuration")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    target, text = Target.load(args.target, args.device, dtype), Text.load(args.target)
    heads = [parse_head(words) for words in args.head or [""]]
    train(target, text, read_data(args.data), heads, args.out, args.seconds, args.total or args.seconds, args.rows,
          args.anchors, args.eval_rows, args.verifier, args.steps)


if __name__ == "__main__":
    main()
