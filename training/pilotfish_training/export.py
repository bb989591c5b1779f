"""Writes a head as `speculators` reads it (a DSpark head: `config.json` + `model.safetensors`), and reads it back.

    python -m pilotfish_training.export HEAD_FOLDER OUT [--dtype float16] [--lm-head TARGET] [--verifier NAME]
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .head import Head, HeadConfig
from .target import Target


def speculators_config(config: HeadConfig, verifier: str | None, verifier_architecture: str) -> dict:
    """The fields of `config.json`. Tap ids there count hidden states: id i is the stream after layer i - 1."""
    return {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": "dspark",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "dspark",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": config.block_size}],
            "verifier": {"name_or_path": verifier, "architectures": [verifier_architecture]},
        },
        "transformer_layer_config": {
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "head_dim": config.head_dim,
            "hidden_act": "silu",
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "layer_types": ["full_attention"] * config.num_layers,
            "max_position_embeddings": 8192,
            "num_attention_heads": config.num_heads,
            "num_hidden_layers": config.num_layers,
            "num_key_value_heads": config.num_kv_heads,
            "rms_norm_eps": config.rms_norm_eps,
            "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
            "rope_theta": config.rope_theta,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "vocab_size": config.vocab_size,
        },
        "aux_hidden_state_layer_ids": [tap + 1 for tap in config.taps],
        "block_size": config.block_size,
        "confidence_head_with_markov": True,
        "draft_vocab_size": config.draft_vocab_size,
        "enable_confidence_head": True,
        "markov_head_type": config.markov_type,
        "markov_rank": config.markov_rank,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": True,
        "tie_word_embeddings": False,
    }


def config_from_speculators(fields: dict) -> HeadConfig:
    """The inverse of `speculators_config`."""
    layer = fields["transformer_layer_config"]
    return HeadConfig(
        hidden_size=layer["hidden_size"], intermediate_size=layer["intermediate_size"],
        num_layers=layer["num_hidden_layers"], num_heads=layer["num_attention_heads"],
        num_kv_heads=layer["num_key_value_heads"], head_dim=layer["head_dim"], vocab_size=layer["vocab_size"],
        draft_vocab_size=fields["draft_vocab_size"], block_size=fields["block_size"],
        taps=[i - 1 for i in fields["aux_hidden_state_layer_ids"]], mask_token_id=fields["mask_token_id"],
        markov_rank=fields["markov_rank"], markov_type=fields["markov_head_type"],
        rms_norm_eps=layer["rms_norm_eps"], rope_theta=layer["rope_theta"])


def export(folder, head: Head, d2t, verifier, architecture, dtype=torch.bfloat16, lm_head=None, record=None):
    """Writes the head. d2t [DV] holds target ids, ascending. `lm_head` [DV, d] is written where given.

    `record` (how the head was trained) becomes `training.json`. Returns the bytes of the tensors by top-level name.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = head.config
    tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in head.state_dict().items()}
    if config.draft_vocab_size < config.vocab_size:
        d2t = d2t.cpu().long()
        tensors["d2t"] = d2t - torch.arange(len(d2t))
        tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, d2t, True)
    if lm_head is not None:
        tensors["lm_head.weight"] = lm_head.detach().to("cpu", dtype).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    fields = speculators_config(config, verifier, architecture)
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    if record is not None:
        (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    sizes = {}
    for name, value in tensors.items():
        top = name.split(".")[0]
        sizes[top] = sizes.get(top, 0) + value.numel() * value.element_size()
    return sizes


def load(folder):
    """Reads an exported head: (head in f32, d2t as target ids [DV])."""
    folder = Path(folder)
    config = config_from_speculators(json.loads((folder / "config.json").read_text()))
    tensors = load_file(folder / "model.safetensors")
    if config.draft_vocab_size < config.vocab_size:
        d2t = tensors.pop("d2t") + torch.arange(config.draft_vocab_size)
        tensors.pop("t2d")
    else:
        d2t = torch.arange(config.vocab_size)
    tensors.pop("lm_head.weight", None)
    head = Head(config)
    head.load_state_dict({name: value.float() for name, value in tensors.items()})
    return head, d2t


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("head")
    parser.add_argument("out")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--lm-head", metavar="TARGET", help="write the target's output rows too, for readers that ask")
    parser.add_argument("--verifier", help="name of the target for the configuration (default: as it is)")
    args = parser.parse_args()
    head, d2t = load(args.head)
    verifier = json.loads((Path(args.head) / "config.json").read_text())["speculators_config"]["verifier"]
    rows = Target.load(args.lm_head).output[d2t] if args.lm_head else None
    record = Path(args.head) / "training.json"
    record = json.loads(record.read_text()) if record.exists() else None
    sizes = export(args.out, head, d2t, args.verifier or verifier["name_or_path"], verifier["architectures"][0],
                   getattr(torch, args.dtype), rows, record)
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
