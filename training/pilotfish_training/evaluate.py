"""How well a head guesses: acceptance by depth at every position of greedy texts, and tau for each number of guesses.

    python -m pilotfish_training.evaluate TARGET HEAD_FOLDER --prompts bench/prompts [--tokens 256] [--texts OUT.pt]

Greedy answers are fixed texts, so what a round starting at any position would accept is known without running rounds;
tau is then counted by walking from the first answer token, accepted guesses and a bonus at a time.
"""

import argparse
import json
from pathlib import Path

import torch

from .export import load
from .head import Head
from .target import Target
from .text import Text


@torch.no_grad()
def accepted(head: Head, target: Target, d2t, tokens, first: int, last: int, slots=None, group: int = 96):
    """Right guesses in a row for anchors first..last-1 of one text (tokens [T]): (counts [n], confidences [n, g]).

    Position `last` is the last token that counts: guesses beyond it are neither right nor wrong, so anchors nearer
    to it than a block have smaller counts than they might.
    """
    g = slots or head.config.block_size
    compute = target.dtype
    _, taps = target.forward(tokens[None], head.config.taps)
    output = target.output[d2t].to(compute)
    counts, confidences = [], []
    for anchors in torch.arange(first, last, device=tokens.device).split(group):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=compute == torch.bfloat16):
            hidden = head.blocks(taps, target.embed, tokens[None], anchors[None], slots=slots)[0]
            guesses, _, confidence = head.chain(hidden, tokens[anchors], output.to(hidden.dtype), d2t)
        ahead = anchors[:, None] + torch.arange(1, g + 1, device=tokens.device)
        right = (guesses == tokens[ahead.clamp(max=len(tokens) - 1)]) & (ahead <= last)
        counts.append(right.cumprod(-1).sum(-1))
        confidences.append(confidence.float())
    return torch.cat(counts).cpu(), torch.cat(confidences).cpu()


def tau(counts, n: int) -> tuple[int, int]:
    """Walks a text whose round at offset i would accept counts[i] guesses of many: (tokens, rounds) at n guesses."""
    at = rounds = 0
    while at < len(counts):
        at += min(int(counts[at]), n) + 1
        rounds += 1
    return min(at, len(counts)), rounds


def summary(texts, g: int) -> dict:
    """Of counts of several texts: survival and conditional acceptance by depth, and tau for 1..g guesses."""
    whole = torch.cat([counts[:max(len(counts) - g + 1, 0)] for counts in texts])  # anchors with a whole block ahead
    survival = [(whole >= k).float().mean().item() for k in range(1, g + 1)]
    taus = []
    for n in range(1, g + 1):
        walked = [tau(counts, n) for counts in texts]
        taus.append(sum(t for t, _ in walked) / sum(r for _, r in walked))
    conditional = [s / max(before, 1e-9) for s, before in zip(survival, [1.0] + survival)]
    tidy = lambda values: [round(value, 4) for value in values]
    return {"anchors": len(whole), "survival": tidy(survival), "conditional": tidy(conditional), "tau": tidy(taus)}


def evaluate_rows(head, target, d2t, tokens, answer, slots=None) -> dict:
    """Held-out rows: tokens [N, T], answer [N, T]. Every answer of at least 16 tokens is a text."""
    g = slots or head.config.block_size
    texts = []
    for ids, drawn in zip(tokens, answer):
        for first, last in spans(drawn.tolist()):
            if last - first >= 16:
                texts.append(accepted(head, target, d2t, ids.to(target.device).long(), first, last, slots)[0])
    return summary(texts, g)


def spans(flags):
    """Runs of True: (first, last) indices, both inside."""
    runs, start = [], None
    for i, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            runs.append((start, i - 1))
            start = None
    return runs


@torch.no_grad()
def greedy_answers(target: Target, text: Text, prompts: list[str], n: int):
    """The target's greedy answers: a list of (tokens [T], first answer position)."""
    answers = []
    for prompt in prompts:
        ids = text.prompt(prompt)
        cache, drawn = target.cache(1, len(ids) + n), []
        for position in range(len(ids) + n):
            if position >= len(ids):
                drawn.append(logits.argmax(-1).item())
                if drawn[-1] == text.to_assistant[0]:
                    break
            token = ids[position] if position < len(ids) else drawn[-1]
            logits = target.step(torch.tensor([token], device=target.device), position, cache)
        answers.append((torch.tensor(ids + drawn), len(ids)))
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target")
    parser.add_argument("head")
    parser.add_argument("--prompts", required=True, help="folder of .txt prompts")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--slots", type=int, help="rows in a block, if fewer than the head's block size")
    parser.add_argument("--texts", help="where greedy answers are kept; read if it is there, else written")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    target, text = Target.load(args.target, args.device), Text.load(args.target)
    files = sorted(Path(args.prompts).glob("*.txt"))
    if args.texts and Path(args.texts).exists():
        answers = torch.load(args.texts)
    else:
        answers = greedy_answers(target, text, [file.read_text().rstrip() for file in files], args.tokens)
        if args.texts:
            torch.save(answers, args.texts)
    head, d2t = load(args.head)
    head, d2t = head.to(args.device), d2t.to(args.device)
    g = args.slots or head.config.block_size
    counted = [accepted(head, target, d2t, ids.to(args.device), first, len(ids) - 1, args.slots)[0]
               for ids, first in answers]
    report = {file.stem: summary([counts], g) for file, counts in zip(files, counted)}
    report["all"] = summary(counted, g)
    report["mean tau"] = [round(sum(report[file.stem]["tau"][n] for file in files) / len(files), 4) for n in range(g)]
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
