"""Keeps the bench prompts out of the training data: texts that share 13 tokens in a row with one are dropped."""

from pathlib import Path

import torch

N = 13


def grams(ids) -> set[tuple[int, ...]]:
    """Every run of 13 ids."""
    return {tuple(ids[i:i + N]) for i in range(len(ids) - N + 1)}


def bench_grams(text, folder, pattern="*.txt") -> set[tuple[int, ...]]:
    """The runs in the bench prompts themselves, without the words of the chat template."""
    found = set()
    for path in sorted(Path(folder).glob(pattern)):
        found |= grams(text.ids(path.read_text().strip()))
    return found


def sharing_rows(tokens, banned: set[tuple[int, ...]]) -> torch.Tensor:
    """True for each row of tokens [N, T] (CPU) that holds a banned run."""
    if not banned:
        return torch.zeros(len(tokens), dtype=torch.bool)
    # Rows are screened by a rolling product of ids, then compared exactly: few rows reach the second test.
    hashes = torch.tensor([_hash(torch.tensor(gram)) for gram in banned])
    windows = tokens.long().unfold(1, N, 1)
    rows = []
    for chunk in windows.split(1024):
        suspects = torch.isin(_hash(chunk), hashes)
        rows.append(torch.tensor([
            any(tuple(chunk[i, j].tolist()) in banned for j in suspects[i].nonzero()[:, 0].tolist())
            for i in range(len(chunk))], dtype=torch.bool))
    return torch.cat(rows)


def _hash(ids):
    weights = torch.tensor([pow(1_000_003, i, 1 << 61) for i in range(N)], device=ids.device)
    return (ids.long() * weights).sum(-1)
