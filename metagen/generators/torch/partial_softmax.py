"""Attention in parts: what queries read from each part of their keys, joined in proportion to its mass.

With scores s over the keys of one part, its mass is Σ exp(s), kept as a log, and what is found there is the softmax
over these keys alone. Two parts join to the softmax over both: the sum of what was found in each, weighted by its share
of the mass. The order of parts plays no role, since the keys carry their positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weigh(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What is found [B, n, d] in `values` [B, s, d] under `scores` [B, n, s], and the log of the mass [B, n, 1].

    Every query sees something. Writes into `scores`.
    """
    share = scores.float()
    top = share.amax(-1, keepdim=True)
    total = share.sub_(top).exp_().sum(-1, keepdim=True)
    return torch.bmm(share.to(values.dtype), values) / total.to(values.dtype), total.log_().add_(top)


def merge(
    out: Tensor, weight: Tensor, found: Tensor, mass: Tensor, tokens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Add what `tokens` (None: all) found in another part to `out` [n, heads, d] of log masses `weight` [n, heads, 1].

    May write into `out` and `weight`.
    """
    mine = weight if tokens is None else weight[tokens]
    both = torch.logaddexp(mine, mass)
    old, new = torch.exp(mine - both), torch.exp(mass - both)
    if tokens is None:
        return out * old + found * new, both
    out.index_copy_(0, tokens, out[tokens] * old + found * new)
    weight.index_copy_(0, tokens, both)
    return out, weight
