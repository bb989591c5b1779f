"""The exported file, loaded by the `speculators` library, computes what our head computes."""

from functools import partial

import pytest
import torch

from pilotfish_training.export import export, load
from pilotfish_training.fixture import CASES, tiny

pytest.importorskip("speculators")


def theirs(folder, embed, output, d2t):
    """`speculators`' own model of the exported files, with the verifier's matrices bound."""
    from speculators import SpeculatorModel
    from speculators.config import SpeculatorModelConfig

    config = SpeculatorModelConfig.from_pretrained(str(folder))
    config.transformer_layer_config._attn_implementation = "eager"
    model = SpeculatorModel.from_pretrained(str(folder), config=config, attn_implementation="eager").float().eval()
    model.embed_tokens.weight.data = embed.clone()
    model.lm_head.weight.data = output[d2t].clone()
    model.verifier_lm_head.weight.data = output[d2t].clone()
    return model


@pytest.mark.parametrize("case", CASES)
def test_numbers_equal(case, tmp_path, monkeypatch):
    head, embed, output, d2t = tiny(**CASES[case], seed=11)
    export(tmp_path, head, d2t, None, "LlamaForCausalLM", dtype=torch.float32)
    from speculators.models.attention import create_float_mask

    length, g = 14, head.config.block_size
    tokens = torch.randint(head.config.vocab_size, (1, length))
    taps = torch.randn(1, length, len(head.config.taps) * head.config.hidden_size)
    model = theirs(tmp_path, embed, output, d2t)

    # Its anchors are drawn at random; ours are handed in, so that both see the same.
    anchors = torch.tensor([2, 5, 8])
    monkeypatch.setattr("speculators.models.dflash.core.select_anchors", lambda *_: (anchors, torch.ones(3).bool()))
    model._create_mask_fn = partial(create_float_mask, dtype=torch.float32)
    with torch.no_grad():
        hidden, logits, *_ = model._backbone_forward(
            taps, tokens, torch.ones(1, length), torch.zeros(1, length, head.config.hidden_size),
            torch.zeros(1, length, dtype=torch.long), max_anchors=3)
        ours = head.blocks(taps, embed, tokens, anchors[None])
    torch.testing.assert_close(hidden.view(3, g, -1), ours[0], rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(logits.view(3, g, -1), ours[0] @ output[d2t].T, rtol=5e-4, atol=5e-4)

    previous = torch.stack([tokens[0, a:a + g] for a in anchors])
    with torch.no_grad():
        bias = model.markov_head.block_bias(prev_token_ids=previous, hidden_states=hidden.view(3, g, -1))
        ours_bias = head.markov_head.markov_w2(head.markov_head.codes(previous, ours[0]))
        features = torch.cat([hidden.view(3, g, -1), model.markov_head.prev_embeddings(previous)], -1)
        confidence = model.confidence_head(features)
        ours_confidence = head.confidence_head(ours[0], head.markov_head.markov_w1(previous))
    torch.testing.assert_close(bias, ours_bias, rtol=5e-4, atol=5e-4)
    torch.testing.assert_close(confidence, ours_confidence, rtol=5e-4, atol=5e-4)
    if head.config.draft_vocab_size < head.config.vocab_size:
        torch.testing.assert_close(torch.arange(len(d2t)) + model.d2t, d2t)
        assert model.t2d.nonzero()[:, 0].tolist() == d2t.tolist()


def test_read_back(tmp_path):
    head, _, _, d2t = tiny(**CASES["reduced"])
    export(tmp_path, head, d2t, None, "LlamaForCausalLM", dtype=torch.float32)
    again, ids = load(tmp_path)
    assert again.config == head.config and torch.equal(ids, d2t)
    for name, value in head.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
