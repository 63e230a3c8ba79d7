"""Adapters of logits z [N, V] after temperature: each cuts tokens off, row by row with its own parameter.

They take and return [N, V]. A token that is cut off has the logit −inf. All of them keep the best token whatever their
thresholds, but for typical sampling, which keeps the most typical one. Probabilities are those that the adapters before
have left.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from metagen.generators.decoding.parameters import CUTS
from metagen.generators.torch.parameters import RowParams, columns

#: Tokens that top_h looks at.
HEAD = 100
#: Size from which top_p looks at the head of a vocabulary first, on a CPU, and the share of it that a head may be.
LARGE, SPARSE = 8192, 16
#: Difference between two orders of summation, as a share of the sum, that is taken to be possible.
CLOSE = 5e-5
Row = NDArray[np.float32]
_FUNCTIONS: dict[str, Callable[[Tensor, RowParams], Tensor]] = {}


def adapter(
    function: Callable[[Tensor, RowParams], Tensor],
) -> Callable[[Tensor, RowParams], Tensor]:
    """What the parameter of the function's name does to logits [N, V]."""
    _FUNCTIONS[function.__name__] = function
    return function


def truncate(z: Tensor, params: RowParams) -> Tensor:
    """[N, V]: logits after the adapters that cut by themselves, in the order of `parameters.ORDER`.

    Greedy rows are left as they are.
    """
    for name, adapter in _ADAPTERS:
        if name in params.used:
            rows, own = params.part(name)
            if rows is None:
                z = _least(name, z, adapter(z, own), own)
            elif len(rows):
                some = z[rows]
                z = z.index_copy(0, rows, _least(name, some, adapter(some, own), own))
    return z


def _least(name: str, before: Tensor, after: Tensor, params: RowParams) -> Tensor:
    """What an adapter left, and the best tokens that a row keeps in any case; of typical_p the most typical."""
    if "min_tokens_to_keep" not in params.used or name == "xtc":
        return after
    count = params.column("min_tokens_to_keep", before).long().clamp(max=before.shape[-1])
    score = before
    if name == "typical_p":
        logp = torch.log_softmax(before, -1)
        score = torch.where(before.isneginf(), -torch.inf, -(-logp - _entropy(logp)).abs())
    most = min(int(params.own("min_tokens_to_keep").max()), before.shape[-1])
    best = torch.topk(score, most, -1).values
    return torch.where(_first(score, best, count).isneginf(), after, before)


@adapter
def top_n_sigma(z: Tensor, params: RowParams) -> Tensor:
    """Cut logits below max − n·σ, σ over those that can come (Tang et al. 2024); temperature changes no such mask."""
    there = ~z.isneginf()
    total = there.sum(-1, keepdim=True)
    mean = torch.where(there, z, 0.0).sum(-1, keepdim=True) / total
    sigma = torch.sqrt(torch.where(there, (z - mean) ** 2, 0.0).sum(-1, keepdim=True) / total)
    return _cut(z, z < z.amax(-1, keepdim=True) - params.column("top_n_sigma", z) * sigma)


@adapter
def top_h(z: Tensor, params: RowParams) -> Tensor:
    """Of the 100 best, renormalised, keep the first while Σ −p log p ≤ h·H (Baghaei Potraghloo et al. 2025)."""
    best = torch.topk(z, min(HEAD, z.shape[-1]), -1).values
    p = torch.softmax(best, -1)
    terms = torch.nan_to_num(-p * torch.log(p), nan=0.0)
    keep = (terms.cumsum(-1) <= params.column("top_h", z) * terms.sum(-1, keepdim=True)) & (p > 0)
    return _first(z, best, keep.sum(-1, keepdim=True).clamp_(min=1))


@adapter
def top_k(z: Tensor, params: RowParams) -> Tensor:
    """Keep the k best, and all that tie with the k-th."""
    k = params.column("top_k", z).long().clamp(max=z.shape[-1])
    best = torch.topk(z, min(int(params.own("top_k").max()), z.shape[-1]), -1).values
    return _cut(z, z < best.gather(1, k - 1))


@adapter
def top_p(z: Tensor, params: RowParams) -> Tensor:
    """Cut, from the least probable up, while the cumulative probability is at most 1 − p (Holtzman et al. 2020)."""
    drop = params.column("drop", z)
    if z.device.type != "cpu" or z.dtype != torch.float32 or z.shape[-1] < LARGE:
        return _nucleus(z, drop)
    kept = z.clone()
    for i, (row, bound) in enumerate(zip(z.numpy(), drop.numpy()[:, 0].tolist(), strict=True)):
        shares = torch.softmax(z[i], -1).numpy()
        edge, count = _find_in_head(row, shares, bound) or _find_in_all(row, bound)
        _keep_first(kept[i], edge, count)
    return kept


@adapter
def min_p(z: Tensor, params: RowParams) -> Tensor:
    """Cut p < min_p · max p (Nguyen et al. 2024)."""
    p = torch.softmax(z, -1)
    return _cut(z, p < params.column("min_p", z) * p.amax(-1, keepdim=True))


@adapter
def typical_p(z: Tensor, params: RowParams) -> Tensor:
    """Keep those whose surprise is nearest to the entropy, until their mass reaches typical_p (Meister et al. 2023).

    All that tie with the last one are kept.
    """
    logp = torch.log_softmax(z, -1)
    off = (-logp - _entropy(logp)).abs()
    order = _order(off)
    cumulative = torch.softmax(z.gather(1, order), -1).cumsum(-1)
    last = (cumulative < params.column("typical_p", z)).sum(-1, keepdim=True).clamp_(max=z.shape[-1] - 1)
    return _cut(z, off > off.gather(1, order.gather(1, last)))


@adapter
def epsilon_cutoff(z: Tensor, params: RowParams) -> Tensor:
    """Cut p < ε (Hewitt et al. 2022)."""
    return _below(z, torch.softmax(z, -1), params.column("epsilon_cutoff", z))


@adapter
def eta_cutoff(z: Tensor, params: RowParams) -> Tensor:
    """Cut p < min(ε, √ε · exp(−H)) (Hewitt et al. 2022)."""
    epsilon, p = params.column("eta_cutoff", z), torch.softmax(z, -1)
    least = torch.minimum(epsilon, torch.sqrt(epsilon) * torch.exp(-_entropy(torch.log_softmax(z, -1))))
    return _below(z, p, least)


@adapter
def xtc(z: Tensor, params: RowParams) -> Tensor:
    """Mixed with what is left without the best, of those with p ≥ threshold all but the least (p-e-w 2024).

    Tokens that tie with the least stay.
    """
    p = torch.softmax(z, -1)
    over = p >= params.column("xtc_threshold", z)
    least = torch.where(over, p, torch.inf).amin(-1, keepdim=True)
    left = torch.where(over & (p > least), 0.0, p)
    share = params.column("xtc", z)
    return torch.log((1 - share) * p + share * left / left.sum(-1, keepdim=True))


def surprise(z: Tensor) -> Tensor:
    """[N, V]: −log₂ p, in bits."""
    return torch.log_softmax(z, -1) / -math.log(2)


def mirostat(z: Tensor, bits: Tensor, params: RowParams) -> Tensor:
    """Cut what surprises by more than μ bits, of the surprises `bits` of z (Basu et al. 2021, mirostat 2.0)."""
    used = (params.column("tau", z) > 0) & (params.column("temperature", z) > 0)
    return _cut(z, (bits > params.column("mu", z)) & (z < z.amax(-1, keepdim=True)) & used)


#: Functions of the adapters, in their order, each with the column that is on with it.
_ADAPTERS = [(next(iter(columns(name))), _FUNCTIONS[name]) for name in CUTS if name in _FUNCTIONS]


def _nucleus(z: Tensor, drop: Tensor) -> Tensor:
    """What top_p leaves, by a sort of all; drop [N, 1]."""
    ascending = _sort(z)
    cumulative = torch.softmax(ascending, -1).cumsum(-1)
    cut = (cumulative <= drop).sum(-1, keepdim=True)
    return _first(z, ascending.flip(-1), (z.shape[-1] - cut).clamp_(min=1))


def _find_in_all(z: Row, drop: float) -> tuple[np.float32, int]:
    """The least logit that top_p keeps of one row z [V], and how many tokens it keeps."""
    ascending = np.sort(z)
    cumulative = torch.softmax(torch.from_numpy(ascending), -1).cumsum(-1).numpy()
    cut = min(int(np.count_nonzero(cumulative <= drop)), len(z) - 1)
    return ascending[cut], len(z) - cut


def _find_in_head(z: Row, p: Row, drop: float) -> tuple[np.float32, int] | None:
    """The same, with the probabilities p; None where only a sort of all can tell.

    Tokens with p < drop / V are cut, because all of them together have less than `drop`. The others are few, as a rule.
    The sort of all adds in another order: where that could matter, it decides.
    """
    size = len(z)
    chosen = p >= drop / size
    if not 0 < np.count_nonzero(chosen) <= size // SPARSE:
        return None
    head = np.sort(p[chosen])
    below = np.cumsum(head, dtype=np.float64)
    below += p.sum(dtype=np.float64) - below[-1]
    cut = int(np.searchsorted(below, drop, side="right"))
    last = below[cut - 1] if cut else below[0] - head[0]
    if cut == len(head) or min(drop - last, below[cut] - drop) <= CLOSE * drop:
        return None
    return np.partition(z[chosen], cut)[cut], len(head) - cut


def _keep_first(z: Tensor, edge: np.float32, count: int) -> None:
    """Keep the first `count` logits of a row from `edge` upwards, lower ids first among equals, in place."""
    row = z.numpy()
    more = np.count_nonzero(row >= edge) - count
    left_out = np.flatnonzero(row == edge)[-more:] if more > 0 else None
    F.threshold(z, float(np.nextafter(edge, np.float32(-np.inf))), -torch.inf, inplace=True)
    if left_out is not None:
        row[left_out] = -np.inf


def _cut(z: Tensor, remove: Tensor) -> Tensor:
    if z.device.type != "cpu":
        return z.masked_fill(remove, -torch.inf)
    out = np.full_like(z, -np.inf)  # on a CPU a third of the time
    np.copyto(out, z.numpy(), where=~remove.numpy())
    return torch.from_numpy(out)


def _below(z: Tensor, p: Tensor, least: Tensor) -> Tensor:
    return _cut(z, (p < least) & (z < z.amax(-1, keepdim=True)))


def _entropy(logp: Tensor) -> Tensor:
    """[N, 1], in nats; what cannot come adds nothing."""
    return -(logp * torch.exp(logp)).nansum(-1, keepdim=True)


def _first(z: Tensor, best: Tensor, count: Tensor) -> Tensor:
    """Keep the first `count` [N, 1] in the order `best` [N, k] of logits, lower ids first among equals."""
    edge = best.gather(1, count - 1)
    above, equal = z > edge, z == edge
    left = count - above.sum(-1, keepdim=True)
    # To look first is cheaper on a CPU; elsewhere it would wait for all that is under way.
    if z.device.type != "cpu" or bool((equal.sum(-1, keepdim=True) > left).any()):
        equal &= equal.cumsum(-1) <= left
    return _cut(z, ~(above | equal))


# On a CPU numpy sorts by vector instructions, and torch does not: it takes ten times as long.


def _sort(z: Tensor) -> Tensor:
    """Ascending, by row."""
    return torch.from_numpy(np.sort(z.numpy(), -1)) if z.device.type == "cpu" else torch.sort(z, -1).values


def _order(z: Tensor) -> Tensor:
    """What sorts rows of numbers that are not negative, in whatever order equals come."""
    if z.device.type != "cpu":
        return torch.argsort(z, -1)
    if z.dtype != torch.float32 or sys.byteorder != "little":
        return torch.from_numpy(np.argsort(z.numpy(), -1))
    # Such numbers are in the order of their bits: with the place below them, a key. It takes a third of the time.
    keys = np.empty((*z.shape, 2), np.uint32)
    keys[..., 0], keys[..., 1] = np.arange(z.shape[-1]), z.numpy().view(np.uint32)
    keys.view(np.uint64)[..., 0].sort(-1)
    return torch.from_numpy(keys[..., 0].astype(np.int64))
