"""Writes tiny heads with random weights and what this reference computes with them, for tests of other loaders.

    python -m pilotfish_training.fixture FOLDER [--seed 7]

One folder for each case: `config.json` and `model.safetensors` (the head), `target.safetensors` (embedding table and
output matrix of its target) and `expected.safetensors` (inputs and outputs).
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from .export import export
from .head import Head, HeadConfig

CASES = {
    "reduced": dict(draft_vocab_size=96, markov_type="vanilla", num_layers=2),
    "full": dict(draft_vocab_size=160, markov_type="vanilla", num_layers=1),
    "gated": dict(draft_vocab_size=96, markov_type="gated", num_layers=1),
    "rnn": dict(draft_vocab_size=96, markov_type="rnn", num_layers=1),
}


def tiny(draft_vocab_size=96, markov_type="vanilla", num_layers=2, seed=7):
    """A head, its target's embedding table and output matrix, and its d2t, all random; widths that differ pairwise."""
    torch.manual_seed(seed)
    config = HeadConfig(
        hidden_size=64, intermediate_size=96, num_layers=num_layers, num_heads=6, num_kv_heads=2, head_dim=16,
        vocab_size=160, draft_vocab_size=draft_vocab_size, block_size=5, taps=[0, 2, 3], mask_token_id=3,
        markov_rank=32, markov_type=markov_type, rms_norm_eps=1e-5, rope_theta=10000.0)
    head = Head(config)
    for name, value in head.named_parameters():
        if name.endswith("norm.weight"):
            torch.nn.init.uniform_(value, 0.5, 1.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(value, std=0.3)
        else:
            torch.nn.init.normal_(value, std=0.3 if "markov" in name else value.shape[-1] ** -0.5)
    embed = torch.randn(config.vocab_size, config.hidden_size)
    output = torch.randn(config.vocab_size, config.hidden_size) * 0.3
    d2t = torch.randperm(config.vocab_size)[:draft_vocab_size].sort().values
    return head, embed, output, d2t


def write(folder, case: str, seed: int):
    """Writes one case."""
    head, embed, output, d2t = tiny(**CASES[case], seed=seed)
    config, folder = head.config, Path(folder)
    length, anchors = 12, torch.tensor([[0, 1, 5, 11]])
    tokens = torch.randint(config.vocab_size, (1, length))
    taps = torch.randn(1, length, len(config.taps) * config.hidden_size)
    with torch.no_grad():
        context = head.context(taps)
        hidden = head.blocks(taps, embed, tokens, anchors)
        windowed = head.blocks(taps, embed, tokens, anchors, window=4)
        base = hidden @ output[d2t].T
        guesses, logits, confidences = head.chain(hidden, tokens.gather(1, anchors), output[d2t], d2t)
    export(folder, head, d2t, None, "LlamaForCausalLM", dtype=torch.float32)
    save_file({"embed": embed, "output": output}, folder / "target.safetensors")
    expected = dict(tokens=tokens[0], taps=taps[0], anchors=anchors[0], context=context[0], hidden=hidden[0],
                    hidden_window_4=windowed[0], base_logits=base[0], logits=logits[0], chain=guesses[0],
                    confidences=confidences[0])
    save_file({name: value.contiguous() for name, value in expected.items()}, folder / "expected.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    for case in CASES:
        write(args.folder / case, case, args.seed)


if __name__ == "__main__":
    main()
