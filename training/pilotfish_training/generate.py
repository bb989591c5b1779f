"""The target talks: it answers prompts of ours, asks itself more and answers those, many conversations at once.

    python -m pilotfish_training.generate TARGET OUT.pt --rows 8192 --length 768 --bench bench/prompts

All rows stand at the same position, so a step is one unmasked pass. What is not drawn is *forced*: the prompt, and the
words between turns. A row is greedy or sampled in its answers; questions it asks itself are drawn at temperature 1.
Saves `tokens` [N, T] i32, `answer` [N, T] bool (drawn by the target as an answer, its end token included) and `greedy`
[N] bool.
"""

import argparse
import json
import random
import time

import torch

from .overlap import bench_grams, sharing_rows
from .prompts import draw, material_prompts
from .target import Target
from .text import Text

USER, ANSWER = 0, 1


@torch.no_grad()
def converse(target: Target, text: Text, prompts: list[list[int] | None], temperatures, length: int, seed: int):
    """prompts holds ids up to the answer, or None for a row that asks itself first. temperatures [B]: 0 is greedy.

    Returns (tokens [B, T], answer [B, T]) on the CPU.
    """
    device, batch = target.device, len(prompts)
    generator = torch.Generator(device=device).manual_seed(seed)
    forced = torch.full((batch, length), -1, dtype=torch.long)
    role = torch.full((batch,), ANSWER, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids = prompt if prompt is not None else text.opening
        role[row] = ANSWER if prompt is not None else USER
        ids = ids[:length]
        forced[row, :len(ids)] = torch.tensor(ids)
    margin = max(len(text.to_assistant), len(text.to_user))
    forced = torch.nn.functional.pad(forced, (0, margin), value=-1).to(device)
    role, temperatures = role.to(device), temperatures.to(device)
    # The end token is drawn, the rest of what stands between two turns is forced after it.
    end = text.to_assistant[0]
    between = torch.full((2, margin), -1, dtype=torch.long)
    between[USER, :len(text.to_assistant) - 1] = torch.tensor(text.to_assistant[1:])
    between[ANSWER, :len(text.to_user) - 1] = torch.tensor(text.to_user[1:])
    between = between.to(device)
    offsets = torch.arange(1, margin + 1, device=device)

    tokens = torch.zeros(batch, length, dtype=torch.int32, device=device)
    answer = torch.zeros(batch, length, dtype=torch.bool, device=device)
    cache = target.cache(batch, length)
    logits = None
    for position in range(length):
        now = forced[:, position]
        if logits is None:
            token = now
        else:
            heat = torch.where(role == USER, 1.0, temperatures)[:, None]
            noise = torch.empty_like(logits).exponential_(generator=generator).log_()
            drawn = logits.addcmul_(noise, heat, value=-1).argmax(-1)  # Gumbel noise, scaled: heat 0 is greedy
            free = now < 0
            token = torch.where(free, drawn, now)
            answer[:, position] = free & (role == ANSWER)
            ended = free & (token == end)
            spread = (position + offsets).clamp(max=forced.shape[1] - 1).expand(batch, -1)
            forced.scatter_(1, spread, torch.where(ended[:, None], between[role], forced.gather(1, spread)))
            role = torch.where(ended, 1 - role, role)
        tokens[:, position] = token
        if position + 1 < length:
            logits = target.step(token, position, cache)
    return tokens.cpu(), answer.cpu()


def gather_material(target, text, rows: int, length: int, seed: int):
    """Paragraphs and programs the target wrote: {"paragraph": [...], "program": [...]}."""
    rng = random.Random(seed)
    asked = [material_prompts(rng) for _ in range(rows)]
    tokens, answer = converse(target, text, [text.prompt(prompt) for _, prompt in asked], torch.full((rows,), 0.8),
                              length, seed)
    material = {"paragraph": [], "program": []}
    for (kind, _), ids, drawn in zip(asked, tokens, answer):
        start = drawn.nonzero()[:1]
        if len(start) == 0:
            continue
        own = ids[start.item():].tolist()
        end = text.to_assistant[0]
        if end in own:  # unfinished texts are no material
            written = text.decode(own[:own.index(end)]).strip()
            if kind == "program" and "```" in written:
                written = written.split("```")[1].removeprefix("python").strip()
            if 60 <= len(written) <= 900:
                material[kind].append(written)
    return material


def make_batch(text, rows, material, rng, own_share, greedy_share):
    """Prompts and temperatures of one batch: (prompts, temperatures [B], kinds)."""
    prompts, kinds = [], []
    for _ in range(rows):
        if rng.random() < own_share:
            prompts.append(None)
            kinds.append("own")
        else:
            kind, prompt = draw(rng, material)
            kinds.append(kind)
            prompts.append(text.prompt(prompt))
    heats = [0.0 if rng.random() < greedy_share else rng.choice([0.5, 0.7, 0.8, 1.0]) for _ in range(rows)]
    return prompts, torch.tensor(heats), kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target")
    parser.add_argument("out")
    parser.add_argument("--rows", type=int, default=4096, help="conversations in one batch")
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no batch begins that would end after this")
    parser.add_argument("--length", type=int, default=768)
    parser.add_argument("--own", type=float, default=0.25, help="share of rows that ask themselves first")
    parser.add_argument("--greedy", type=float, default=0.7, help="share of greedy rows")
    parser.add_argument("--bench", help="folder of prompts whose 13-grams must not occur")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    start = time.monotonic()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    target, text = Target.load(args.target, args.device, dtype), Text.load(args.target)
    material = gather_material(target, text, max(16, args.rows // 4), min(args.length, 320), args.seed)
    print(f"{time.monotonic() - start:.0f} s: {len(material['paragraph'])} paragraphs, "
          f"{len(material['program'])} programs", flush=True)
    rng = random.Random(args.seed + 1)
    parts, counts, took = [], {}, 0.0
    for batch in range(args.batches):
        before = time.monotonic()
        if batch and before - start + took > args.seconds:
            break
        prompts, heats, kinds = make_batch(text, args.rows, material, rng, args.own, args.greedy)
        tokens, answer = converse(target, text, prompts, heats, args.length, args.seed + batch)
        parts.append((tokens, answer, heats == 0))
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
        took = time.monotonic() - before
        print(f"{time.monotonic() - start:.0f} s: batch {batch} took {took:.1f} s, {answer.sum().item()} answer tokens",
              flush=True)
    tokens, answer, greedy = (torch.cat(part) for part in zip(*parts))
    banned = bench_grams(text, args.bench) if args.bench else set()
    shares = sharing_rows(tokens, banned)
    report = {"rows": len(tokens), "rows_dropped_for_bench_13_grams": shares.sum().item(), "kinds": counts,
              "tokens": tokens[~shares].numel(), "answer_tokens": answer[~shares].sum().item(),
              "greedy_answer_tokens": answer[~shares & greedy].sum().item(), "seed": args.seed}
    print(json.dumps(report), flush=True)
    torch.save({"tokens": tokens[~shares], "answer": answer[~shares], "greedy": greedy[~shares], "report": report},
               args.out)
    for row in range(0, min(len(tokens), 3)):
        print(repr(text.tokenizer.decode(tokens[row].tolist(), skip_special_tokens=False)[:600]), flush=True)


if __name__ == "__main__":
    main()
