"""One of several drafts: SpecTr's sequential selection (Sun et al. 2023, K-SEQ, algorithms 2 and 3).

Of k tokens drawn independently from q, the first that passes is kept, each with min(1, p / (ρ q)). With
β(ρ) = Σ_x min(q, p/ρ), none passes with (1 − β)^k, and ρ is the least number for which what was kept is no more than p
anywhere: 1 − (1 − β)^k = ρ β. If none passes, the token comes from p − min(q, p/ρ) (1 − (1 − β)^k) / β, normalised.
Drafts that begin with the tokens kept so far take part at the next place. One draft is token verification (ρ = 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from metagen.generators.torch.speculation.verify import Drafted, Kept

#: Halvings of the interval that ρ lies in.
HALVINGS = 60


def select(p: Tensor, drafted: Drafted, u: Tensor, *, near: float = 0.0) -> Kept:
    """Rows with k drafts each: p [N, k, G + 1, V], u [N, k, G]; of `drafted` all have k behind N as well.

    A draft's p and q follow its own tokens; drafts that begin alike have equal ones there. Otherwise as `verify`.
    """
    tokens, counts, q = drafted.tokens, drafted.counts, drafted.q
    assert q is not None
    n, k, most = tokens.shape
    rows = torch.arange(n, device=p.device)
    agree = torch.ones(n, k, dtype=torch.bool, device=p.device)
    going = torch.ones(n, dtype=torch.bool, device=p.device)
    done, tested, close = torch.zeros_like(rows), torch.zeros_like(rows), torch.zeros_like(going)
    overlap = torch.zeros(n, dtype=torch.float64, device=p.device)
    rest = torch.zeros(n, p.shape[-1], dtype=torch.float64, device=p.device)
    for i in range(most + 1):
        lead = agree.long().argmax(-1)
        here = p[rows, lead, i].double()
        full = going & (counts[rows, lead] == i)
        rest = torch.where(full[:, None], here, rest)
        going = going & ~full
        if i == most:
            break
        there = q[rows, lead, i].double()
        token, left, edge = select_one(here, there, tokens[:, :, i], agree, u[:, :, i], near=near)
        tested += going
        overlap += torch.where(going, torch.minimum(here, there).sum(-1), 0.0)
        close |= going & edge
        none = going & (token < 0)
        rest = torch.where(none[:, None], left, rest)
        going = going & ~none
        done += going
        # Rows that have stopped keep the drafts that agree with what was kept.
        agree = agree & (~going[:, None] | (tokens[:, :, i] == token[:, None]))
    return Kept(done, rest, tested, overlap, close, agree.long().argmax(-1))


def select_one(
    p: Tensor, q: Tensor, tokens: Tensor, taking: Tensor, u: Tensor, *, near: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """One place: p, q [N, V] float64, tokens [N, k] of which those `taking` part [N, k] are i.i.d. from q, u [N, k].

    Returns the token kept [N], or -1; the weights [N, V] of the one to draw where none is; and whether a decision was
    within `near` of its threshold [N].
    """
    k = taking.sum(-1).double()
    rho = balance(p, q, k)
    low = torch.minimum(q, p / rho[:, None])
    beta = low.sum(-1)
    some = -torch.expm1(k * torch.log1p(-beta.clamp(max=1.0)))
    ours, theirs = p.gather(1, tokens), q.gather(1, tokens)
    chances = torch.where(theirs > 0, ours / (rho[:, None] * theirs), 0.0).clamp(max=1.0)
    passed = taking & (u < chances)
    first = passed.long().argmax(-1, keepdim=True)
    token = torch.where(passed.any(-1), tokens.gather(1, first)[:, 0], -1)
    share = torch.where(beta > 0, some / beta, 0.0)
    left = (p - low * share[:, None]).clamp(min=0.0)
    close = taking & ((u - chances).abs() < near) & (chances > 0) & (chances < 1)
    return token, torch.where((left.sum(-1) > 0)[:, None], left, p), close.any(-1)


def balance(p: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """ρ* [N] in [1, k] with 1 − (1 − β(ρ))^k = ρ β(ρ), from above, by halving; p, q [N, V] and k [N] float64."""
    low, high = torch.ones_like(k), k.clamp(min=1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beta = torch.minimum(q, p / middle[:, None]).sum(-1)
        over = -torch.expm1(k * torch.log1p(-beta.clamp(max=1.0))) > middle * beta
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        if bool((high - low < 1e-14).all()):
            break
    return high
