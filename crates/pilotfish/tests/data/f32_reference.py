"""Writes f32_reference.json: what the golden cases give when the same files' weights are run in f32.

Usage: python f32_reference.py FOLDER, with the four catalog models as FOLDER/NAME.gguf; needs torch, transformers,
accelerate and gguf. For each case of llamacpp_greedy.json: the f32 log-probabilities of llama.cpp's five best tokens
at the first position, and for each generated token the f32 choice and its margin over the runner-up.

For the model whose activations have the loudest outliers also what rounding them to 8 bits does: every input of a
matrix is rounded in blocks of 32, with a little noise before rounding, in 16 runs. Kept are the least margin of
llama.cpp's token over all others (negative where some run chose another), and the root mean square distance of the
log-probabilities from f32's.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

ROUNDED, RUNS, NOISE = "smollm2-135m", 16, 0.05


def round_inputs(_module, inputs):
    blocks = inputs[0].reshape(-1, 32)
    scales = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    noise = NOISE * (torch.rand_like(blocks) - 0.5)
    return (((blocks / scales + noise).round() * scales).reshape(inputs[0].shape),)


def rows_of(model, case):
    with torch.no_grad():
        logits = model(torch.tensor([case["prompt_ids"] + case["gen_ids"]])).logits[0]
    return logits[len(case["prompt_ids"]) - 1 : -1]


def top5(rows, case):
    logprobs = torch.log_softmax(rows[0].double(), -1)
    return torch.stack([logprobs[top["id"]] for top in case["top5_first"]])


def margins_of(rows, tokens):
    chosen = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    others = rows.scatter(1, torch.tensor(tokens)[:, None], -torch.inf)
    return chosen - others.amax(-1)


def rounded(model, case):
    """Least margins and spreads over runs with rounded activations."""
    exact = top5(rows_of(model, case), case)
    hooks = [m.register_forward_pre_hook(round_inputs) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    margins, squares = [], []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        rows = rows_of(model, case)
        margins.append(margins_of(rows, case["gen_ids"]))
        squares.append((top5(rows, case) - exact) ** 2)
    for hook in hooks:
        hook.remove()
    return {
        "int8_margins": numbers(torch.stack(margins).amin(0)),
        "int8_spread": numbers(torch.stack(squares).mean(0).sqrt()),
    }


def numbers(tensor):
    return [round(x, 4) for x in tensor.tolist()]


here = pathlib.Path(__file__).parent
golden = json.loads((here / "llamacpp_greedy.json").read_text())
out = {"about": "transformers in f32 on the dequantized weights of the same files; see f32_reference.py."}
for name, cases in golden.items():
    if name == "about":
        continue
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=f"{name}.gguf", dtype=torch.float32).eval()
    out[name] = []
    for case in cases:
        rows = rows_of(model, case)
        best = rows.topk(2, -1)
        entry = {
            "name": case["name"],
            "top5_first": numbers(top5(rows, case)),
            "choices": best.indices[:, 0].tolist(),
            "margins": numbers(best.values[:, 0] - best.values[:, 1]),
        }
        if name == ROUNDED:
            entry |= rounded(model, case)
        out[name].append(entry)
text = json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"')
(here / "f32_reference.json").write_text(text + "\n")
