"""Attention of rows to their own tails: one batched product for each region."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.kv.regions import Region, Regions
from metagen.generators.torch.kv.segments import KVLayout, weigh
from metagen.generators.torch.models.language_model import Ints


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a batch that lie in one region: R rows, at most T tokens each, tails of which S places are read.

    start, stop: their flat tokens. places: [R], or None for places 0 … R-1. old: [R] tokens that were there before.
    mask: [R * kv_heads, T, S] additive, 0 or -inf; None where all is seen. pad: places of the flat tokens among R x T,
    or None where they are the same.
    """

    region: Region
    start: int
    stop: int
    r: int
    t: int
    s: int
    places: Tensor | None
    old: Ints
    mask: Tensor | None
    pad: Tensor | None


def length_class(counts: Ints) -> Ints:
    """[n] of `counts` [n]: rows of one class differ in their new tokens by less than a factor of 2."""
    classes: Ints = np.ceil(np.log2(counts)).astype(np.int64)
    return classes


def parts(layout: KVLayout, regions: Regions, rows: Ints, counts: Ints, offset: Ints) -> list[Part]:
    """`rows` by region and place, whose newest `counts` tokens are to read; `offset`: [N] of each in its row."""
    region = regions.region[rows]
    cuts = np.flatnonzero(np.diff(region) | np.diff(length_class(counts))) + 1
    ends = np.cumsum(counts)
    old = regions.length[rows] - counts
    found = []
    for a, b in pairwise([0, *cuts.tolist(), len(rows)]):
        start, stop, t = int(ends[a] - counts[a]), int(ends[b - 1]), int(counts[a:b].max())
        capacity = regions.all[int(region[a])].capacity
        s = layout.width(int(regions.length[rows[a:b]].max()), capacity)
        places = regions.place[rows[a:b]]
        full = stop - start == (b - a) * t
        where = np.repeat(np.arange(b - a), counts[a:b]) * t + offset[start:stop]
        found.append(
            Part(
                region=regions.all[int(region[a])],
                start=start,
                stop=stop,
                r=b - a,
                t=t,
                s=s,
                places=None if (places == np.arange(b - a)).all() else layout.index(places),
                old=old[a:b],
                mask=_mask(layout, old[a:b], t, s),
                pad=None if full else layout.index(where),
            )
        )
    return found


def next_part(layout: KVLayout, part: Part) -> Part:
    """Of rows that go on by one token each, the part behind this one."""
    old = part.old + 1
    s = layout.width(int(old.max()) + 1, part.region.capacity)
    mask = _mask(layout, old, 1, s)
    return Part(part.region, part.start, part.stop, part.r, 1, s, part.places, old, mask, None)


def _mask(layout: KVLayout, old: Ints, t: int, s: int) -> Tensor | None:
    return None if t == 1 and bool((old == s - 1).all()) else layout.mask(old, t, s)


def read_alone(part: Part, layer: int, q: Tensor) -> Tensor:
    """Attention of q [n, heads, d] to the tails of rows that read nothing else: [n, heads, d]."""
    scores, values = _scores(part, layer, q)
    share = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return _flatten(part, torch.bmm(share, values))


def read(part: Part, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of q [n, heads, d] to the tails of its rows [n, heads, d], and the log of its mass [n, heads, 1]."""
    found, mass = weigh(*_scores(part, layer, q))
    return _flatten(part, found.float()), _flatten(part, mass)


def _scores(part: Part, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [R * kv_heads, g * T, S] and the values [R * kv_heads, S, d] that they weigh."""
    kv = part.region.kv[layer][:, :, :, : part.s]
    kv = kv[:, : part.r] if part.places is None else kv[:, part.places]
    h, d = kv.shape[2], kv.shape[4]
    keys, values = kv.flatten(1, 2).unbind()
    padded = _pad(part, q, h)
    if part.mask is None:
        return torch.bmm(padded, keys.transpose(1, 2)).mul_(d**-0.5), values
    mask = _repeat(part.mask, padded.shape[1] // part.t)
    return torch.baddbmm(mask, padded, keys.transpose(1, 2), alpha=d**-0.5), values


def _pad(part: Part, q: Tensor, h: int) -> Tensor:
    """[n, heads, d] -> [R * kv_heads, g * T, d], rows of queries beside their keys."""
    g, d = q.shape[1] // h, q.shape[2]
    if part.t == 1:
        return q.reshape(part.r * h, g, d)
    if part.pad is not None:
        full = q.new_zeros(part.r * part.t, *q.shape[1:])
        q = full.index_copy_(0, part.pad, q)
    return q.reshape(part.r, part.t, h, g, d).permute(0, 2, 3, 1, 4).reshape(part.r * h, g * part.t, d)


def _flatten(part: Part, x: Tensor) -> Tensor:
    """[R * kv_heads, g * T, c] -> [n, heads, c]."""
    h, g = len(x) // part.r, x.shape[1] // part.t
    if part.t == 1:
        return x.view(part.r, h * g, -1)
    x = x.view(part.r, h, g, part.t, -1).permute(0, 3, 1, 2, 4).reshape(part.r * part.t, h * g, -1)
    return x if part.pad is None else x[part.pad]


def _repeat(mask: Tensor, g: int) -> Tensor:
    """[B, T, S] -> [B, g * T, S]: the query heads of a group see the same."""
    if g == 1:
        return mask
    b, t, s = mask.shape
    if t == 1:
        return mask.expand(b, g, s)
    return mask[:, None].expand(b, g, t, s).reshape(b, g * t, s)
