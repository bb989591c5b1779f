"""Writes f32_reference.json: what the golden cases give when the same files' weights are run in f32.

Usage: python f32_reference.py FOLDER, with the four catalog models as FOLDER/NAME.gguf; needs torch, transformers,
accelerate and gguf. For each case of llamacpp_greedy.json: the f32 log-probabilities of llama.cpp's five best tokens
at the first position, and for each generated token the f32 choice and its margin over the runner-up.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

here = pathlib.Path(__file__).parent
golden = json.loads((here / "llamacpp_greedy.json").read_text())
out = {"about": "transformers in f32 on the dequantized weights of the same files; see f32_reference.py."}
for name, cases in golden.items():
    if name == "about":
        continue
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=f"{name}.gguf", dtype=torch.float32).eval()
    out[name] = []
    for case in cases:
        prompt, generated = case["prompt_ids"], case["gen_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + generated])).logits[0]
        rows = logits[len(prompt) - 1 : -1]
        logprobs = torch.log_softmax(rows[0].double(), -1)
        best = rows.topk(2, -1)
        out[name].append(
            {
                "name": case["name"],
                "top5_first": [round(logprobs[top["id"]].item(), 4) for top in case["top5_first"]],
                "choices": best.indices[:, 0].tolist(),
                "margins": [round(m, 4) for m in (best.values[:, 0] - best.values[:, 1]).tolist()],
            }
        )
text = json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"')
(here / "f32_reference.json").write_text(text + "\n")
