"""The chunked loss has the value and the gradients that autograd finds for the plain formula."""

import pytest
import torch

from pilotfish_training import loss as module
from pilotfish_training.loss import SlotLoss


@pytest.mark.parametrize("mix", [(0.1, 0.9, 0.0), (1.0, 0.3, 0.5)])
def test_value_and_gradients(mix, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)
    torch.manual_seed(0)
    n, d, r, draft, full = 20, 6, 3, 11, 17
    head_full = torch.randn(full, d)
    kept = torch.randperm(full)[:draft].sort().values
    head, teacher = head_full[kept], torch.randn(n, d)
    features, w2 = torch.randn(n, d + r, requires_grad=True), torch.randn(draft, r, requires_grad=True)
    labels, weights = torch.randint(-1, draft, (n,)), torch.rand(n)
    p = torch.softmax(teacher @ head_full.T, -1)[:, kept]

    log_q = torch.log_softmax(features[:, :d] @ head.T + features[:, d:] @ w2.T, -1)
    distance = (log_q.exp() - p).abs().sum(-1) + 1 - p.sum(-1)
    ce = torch.nn.functional.cross_entropy(log_q, labels.clamp(min=0), reduction="none") * (labels >= 0)
    kl = (p * (p.log() - log_q)).sum(-1)
    wanted = (weights * (mix[0] * ce + mix[1] * distance + mix[2] * kl)).sum()
    gradients = torch.autograd.grad(wanted, (features, w2))

    lse = (teacher @ head_full.T).logsumexp(-1)
    total, distances, hits = SlotLoss.apply(features, w2, head, teacher, lse, labels, weights, mix)
    torch.testing.assert_close(total, wanted)
    torch.testing.assert_close(distances, distance.detach())
    assert torch.equal(hits, log_q.argmax(-1) == labels)
    for ours, theirs in zip(torch.autograd.grad(total, (features, w2)), gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
