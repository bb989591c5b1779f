"""The target's passes compute what `transformers` computes, from a folder and from a GGUF file."""

import pytest
import torch
from conftest import model

from pilotfish_training.target import Target
from pilotfish_training.text import Text


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_forward_and_taps(family, tmp_path):
    hf = model(family)
    hf.save_pretrained(tmp_path)
    tokens = torch.randint(400, (2, 21))
    with torch.no_grad():
        wanted = hf(tokens, output_hidden_states=True)
    target = Target.load(tmp_path)
    hidden, taps = target.forward(tokens, [0, 1, 3])
    torch.testing.assert_close(target.logits(hidden.flatten(0, 1)).view(2, 21, -1), wanted.logits, rtol=1e-4, atol=1e-4)
    # hidden_states[0] is the embedding, so the stream after layer i is entry i + 1.
    states = torch.cat([wanted.hidden_states[i + 1] for i in (0, 1, 3)], -1)
    torch.testing.assert_close(taps, states, rtol=1e-4, atol=1e-4)


def test_steps_equal_the_whole_pass(folder):
    target = Target.load(folder)
    tokens = torch.randint(400, (3, 17))
    hidden, _ = target.forward(tokens)
    cache = target.cache(3, 17)
    for position in range(17):
        logits = target.step(tokens[:, position], position, cache)
        torch.testing.assert_close(logits, target.logits(hidden[:, position]), rtol=1e-4, atol=1e-4)


def test_gguf_equals_folder(folder, gguf_path):
    tokens = torch.randint(400, (2, 13))
    one, _ = Target.load(folder).forward(tokens)
    other, _ = Target.load(gguf_path).forward(tokens)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_text_from_both(folder, gguf_path):
    one, other = Text.load(folder), Text.load(gguf_path)
    prompt = "Write the code, 123 times: é!"
    assert one.prompt(prompt) == other.prompt(prompt)
    assert one.decode(one.prompt(prompt)) == f"user\n{prompt}\nassistant\n"
    whole = one.opening + one.ids("hi") + one.to_assistant + one.ids("oh") + one.to_user
    assert one.tokenizer.decode(whole, skip_special_tokens=False) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\noh<|im_end|>\n<|im_start|>user\n")
