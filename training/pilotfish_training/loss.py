"""The loss of draft slots, with its gradients, a few thousand slots at a time, so that no logits are kept.

For a slot with corrected draft distribution q and the target's distribution p (both at temperature 1, p without
the mass it has outside the draft vocabulary, not renormalised):

    w * (ce * CE(best token of p) + l1 * |q - p|_1 + kl * KL(p | q))

CE counts only where the target's best token is in the draft vocabulary.
"""

import torch

from .target import matmul_f32

CHUNK = 8192


class SlotLoss(torch.autograd.Function):
    """Differentiable in `features` [N, d + r] and `w2` [DV, r]; `head` [DV, d] is frozen.

    teacher [N, d] and lse [N] give p = exp(head . teacher - lse); labels [N] are draft ids or -1; weights [N] sum to
    what the caller wants. Returns (loss, |q - p|_1 [N], whether q's best token is the label [N]).
    """

    @staticmethod
    def forward(ctx, features, w2, head, teacher, lse, labels, weights, mix):
        ce, l1, kl = mix
        matrix = torch.cat([head, w2.to(head.dtype)], 1)
        width = head.shape[1]
        d_features = torch.empty_like(features)
        d_w2 = torch.zeros_like(w2, dtype=torch.float32)
        total = torch.zeros((), device=features.device)
        distances, hits = [], []
        for at in range(0, len(features), CHUNK):
            here = slice(at, at + CHUNK)
            x = features[here].to(head.dtype)
            log_q = torch.log_softmax(matmul_f32(x, matrix), -1)
            log_p = matmul_f32(teacher[here], head).sub_(lse[here, None])
            q, p = log_q.exp(), log_p.exp()
            mass = p.sum(-1, keepdim=True)
            difference = q - p
            distance = difference.abs().sum(-1) + (1 - mass[:, 0]).clamp(min=0)
            label = labels[here].clamp(min=0)[:, None]
            known = (labels[here] >= 0).float()
            w = weights[here]
            loss = ce * known * -log_q.gather(1, label)[:, 0] + l1 * distance
            if kl:
                loss = loss + kl * (p * (log_p - log_q)).sum(-1)
            total += (w * loss).sum()
            distances.append(distance)
            hits.append((log_q.argmax(-1) == label[:, 0]) & (known > 0))
            sign = difference.sign_()
            gradient = q * (l1 * (sign - (q * sign).sum(-1, keepdim=True)) + ce * known[:, None] + kl * mass)
            if kl:
                gradient.sub_(p, alpha=kl)
            gradient.scatter_add_(1, label, -(ce * known)[:, None])
            gradient = gradient.mul_(w[:, None]).to(head.dtype)
            d_features[here] = (gradient @ matrix).to(features.dtype)
            d_w2 += (gradient.T @ x[:, width:]).float()
        ctx.save_for_backward(d_features, d_w2.to(w2.dtype))
        distances, hits = torch.cat(distances), torch.cat(hits)
        ctx.mark_non_differentiable(distances, hits)
        return total, distances, hits

    @staticmethod
    def backward(ctx, d_total, *_):
        d_features, d_w2 = ctx.saved_tensors
        return d_features * d_total, d_w2 * d_total, None, None, None, None, None, None


@torch.no_grad()
def teacher_rows(target, hidden):
    """Of final hidden states [N, d]: the log of the softmax's denominator [N] and the best token [N]."""
    lse, best = [], []
    for rows in hidden.split(CHUNK):
        logits = target.logits(rows)
        lse.append(logits.logsumexp(-1))
        best.append(logits.argmax(-1))
    return torch.cat(lse), torch.cat(best)
