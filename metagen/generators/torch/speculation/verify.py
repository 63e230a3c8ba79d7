"""How many drafted tokens of each row are kept, and what the token behind them is drawn from.

Both rules leave the target's distribution as it is. With drafted tokens x_1 … x_γ, the draft's distributions q and the
target's p after x_1 … x_i (both after adapters):

- token verification (Leviathan et al. 2023, algorithm 1) keeps x_i with min(1, p(x_i)/q(x_i)) and stops at the first
  that it does not keep;
- block verification (Sun et al. 2024, algorithm 2) keeps up to the *last* i that passes its test. With p_0 = 1,
  p_i = min(p_{i−1} p(x_i)/q(x_i), 1) and R_i = Σ_x max(p_i p(x) − q(x), 0), the tests are
  h_i = R_i / (R_i + 1 − p_i) and h_γ = p_γ. No rule keeps more on average.

The token behind comes from p if all were kept, else from max(p_τ p − q, 0), normalised; p_τ is 1 for the first rule.

A drafted row may stop whenever what it has drafted so far says so: both rules hold at every length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Rule = Literal["token", "block"]


@dataclass(frozen=True, slots=True)
class Drafted:
    """Tokens that a draft proposes, by row.

    tokens: [N, G] int64; beyond a row's count, any ids. counts: [N] int64, at most G. q: [N, G, V] float32, what each
    was drawn from; None if the draft was sure of each.
    """

    tokens: Tensor
    counts: Tensor
    q: Tensor | None

    def at(self, index: Tensor) -> Tensor:
        """[N, V] float64: the distribution of token `index` [N] of each row, counted from 0; a one-hot q needs V."""
        assert self.q is not None
        return self.q[torch.arange(len(index), device=index.device), index].double()

    def by_row(self, n: int) -> Drafted:
        """Of n rows with k drafts each, given as k · n lines: tokens [n, k, G] and so on."""
        q = None if self.q is None else self.q.view(-1, n, *self.q.shape[1:]).transpose(0, 1)
        tokens = self.tokens.view(-1, n, self.tokens.shape[1]).transpose(0, 1)
        return Drafted(tokens, self.counts.view(-1, n).T, q)


@dataclass(frozen=True, slots=True)
class Kept:
    """Of each row: how many drafted tokens are kept [N], and the weights [N, V] float64 of the token behind them.

    tested: [N] tokens whose acceptance was decided one by one, for token verification: the kept ones and the first
    that was not. overlap: [N] Σ_x min(p, q) summed over those. near: [N] rounding could have decided otherwise.
    draft: [N] which of several drafts it is whose tokens are kept.
    """

    counts: Tensor
    rest: Tensor
    tested: Tensor
    overlap: Tensor
    near: Tensor
    draft: Tensor


def verify(p: Tensor, drafted: Drafted, u: Tensor, rule: Rule, *, near: float = 0.0) -> Kept:
    """Of rows with the target's distributions p [N, G + 1, V] and the random numbers u [N, G] float64.

    p[:, i] follows the first i drafted tokens; beyond a row's count it is not looked at. near: decisions by a random
    number so close to its threshold are told.
    """
    chances, reach = acceptance(p, drafted, rule)
    counts = count_accepted(chances, drafted.counts, u, rule)
    tested = (counts + 1).minimum(drafted.counts)
    steps = torch.arange(chances.shape[1], device=p.device)
    asked = steps < (tested if rule == "token" else drafted.counts)[:, None]
    close = asked & ((u - chances).abs() < near) & (chances > 0) & (chances < 1)
    # Behind a token that is not kept there may be none left to draw, which makes p NaN.
    overlap = torch.where(steps < tested[:, None], _overlap(p, drafted), 0.0).sum(-1)
    return Kept(
        counts, rest(p, drafted, counts, reach), tested, overlap, close.any(-1), torch.zeros_like(counts)
    )


def acceptance(p: Tensor, drafted: Drafted, rule: Rule) -> tuple[Tensor, Tensor]:
    """The chances [N, G] float64 of each drafted token to pass its test, and p_0 … p_γ [N, G + 1] (1 by token)."""
    n, most = drafted.tokens.shape
    ratios = _ratios(p, drafted)
    if rule == "token":
        return ratios.clamp(max=1.0), ratios.new_ones(n, most + 1)
    reach = [ratios.new_ones(n)]
    for i in range(most):
        reach.append((reach[-1] * ratios[:, i]).clamp(max=1.0))
    tests = [
        torch.where(drafted.counts == i, reach[i], _test(p, drafted, i, reach[i])) for i in range(1, most)
    ]
    chances = torch.stack([*tests, reach[most]], 1) if most else ratios
    return chances, torch.stack(reach, 1)


def count_accepted(chances: Tensor, counts: Tensor, u: Tensor, rule: Rule) -> Tensor:
    """[N]: tokens before the first that fails, or up to the last that passes."""
    steps = torch.arange(chances.shape[1], device=u.device)
    passed = (u < chances) & (steps < counts[:, None])
    if rule == "token":
        return passed.long().cumprod(-1).sum(-1)
    return ((steps + 1) * passed).amax(-1) if chances.shape[1] else counts


def rest(p: Tensor, drafted: Drafted, kept: Tensor, reach: Tensor) -> Tensor:
    """[N, V] float64 weights of the token behind the first `kept` [N] drafted ones."""
    rows = torch.arange(len(kept), device=p.device)
    target = p[rows, kept].double()
    stopped = kept < drafted.counts
    if not drafted.tokens.shape[1]:
        return target
    index = kept.clamp(max=drafted.tokens.shape[1] - 1)
    scaled = reach[rows, kept][:, None] * target
    if drafted.q is None:
        left = scaled.scatter(1, drafted.tokens[rows, index][:, None], 0.0)
    else:
        left = (scaled - drafted.at(index)).clamp(min=0.0)
    # Where nothing is left, p and q differ by rounding only.
    use = stopped & (left.sum(-1) > 0)
    return torch.where(use[:, None], left, target)


def _ratios(p: Tensor, drafted: Drafted) -> Tensor:
    """p(x_i) / q(x_i), [N, G] float64."""
    index = drafted.tokens[:, :, None]
    ours = p[:, :-1].gather(2, index)[:, :, 0].double()
    if drafted.q is None:
        return ours
    theirs = drafted.q.gather(2, index)[:, :, 0].double()
    return torch.where(theirs > 0, ours / theirs, 0.0)


def _test(p: Tensor, drafted: Drafted, i: int, reach: Tensor) -> Tensor:
    """h_i [N] of a token that others follow."""
    scaled = reach[:, None] * p[:, i].double()
    if drafted.q is None:
        left = scaled.sum(-1) - scaled.gather(1, drafted.tokens[:, i : i + 1])[:, 0]
    else:
        left = (scaled - drafted.q[:, i].double()).clamp(min=0.0).sum(-1)
    total = left + 1.0 - reach
    return torch.where(total > 0, left / total, 1.0)


def _overlap(p: Tensor, drafted: Drafted) -> Tensor:
    """Σ_x min(p(x), q(x)), [N, G] float64."""
    if drafted.q is None:
        return p[:, :-1].gather(2, drafted.tokens[:, :, None])[:, :, 0].double()
    return torch.minimum(p[:, :-1], drafted.q).sum(-1, dtype=torch.float64)
