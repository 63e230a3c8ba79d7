"""Attention to many slots by one batched product, the rows that share a slot side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.language_model import Ints
from metagen.generators.torch.layout import KVLayout
from metagen.generators.torch.partial_softmax import weigh
from metagen.generators.torch.slots import Slots

#: Times the queries that reading slots side by side may take, padding included.
PADDED = 4


@dataclass(frozen=True, slots=True)
class Grouped:
    """The flat tokens of a batch that read one slot each, beside one another by slot: G slots, at most M tokens each.

    slots: [G], or None for slots 0 … G-1. length: P, the longest prefix. mask: [G * kv_heads, 1, P] additive.
    into: [G * kv_heads * M * g] which of the N * heads queries stands there. back: [n * heads] where each query went.
    tokens: [n] the flat tokens, or None for all.
    """

    g: int
    slots: Tensor | None
    length: int
    mask: Tensor
    into: Tensor
    back: Tensor
    tokens: Tensor | None


def grouped(layout: KVLayout, slots: Slots, slot: Ints, usual: int) -> Grouped | None:
    """`slot`: [N] what each flat token reads, or -1. `usual`: tokens of a step in which all rows decode.

    None where slots are shared so unevenly that the room beside one another would be mostly empty.
    """
    n, tokens = len(slot), np.flatnonzero(slot >= 0)
    slot = slot[tokens]
    used, group = np.unique(slot, return_inverse=True)
    dense = 2 * len(used) > int(used[-1])  # to read a few idle slots is cheaper than to gather the others
    if dense:
        used, group = np.arange(int(used[-1]) + 1), slot
    sizes = np.bincount(group, minlength=len(used))
    g, m, h = len(used), int(sizes.max()), layout.kv_heads
    if g * m > PADDED * max(len(tokens) // 3, usual):
        return None
    by_group = np.argsort(group, kind="stable")
    column = np.empty(len(tokens), np.int64)
    column[by_group] = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = np.zeros((g, 1, m, 1), np.int64)
    members[group, 0, column, 0] = tokens
    head = np.arange(layout.heads).reshape(h, 1, -1)
    each = layout.heads // h
    places = (group[:, None, None] * h + np.arange(h)[:, None]) * m + column[:, None, None]
    # Idle slots hide nothing, so that what is read from them, and never used, is a number.
    length = slots.length[used]
    longest = int(length[sizes > 0].max())
    seen = np.where(sizes > 0, length, longest)
    return Grouped(
        g=g,
        slots=None if dense else layout.index(used),
        length=longest,
        mask=layout.mask(seen - 1, 1, longest),
        into=layout.index((members * layout.heads + head).ravel()),
        back=layout.index((places * each + np.arange(each)).ravel()),
        tokens=None if len(tokens) == n else layout.index(tokens),
    )


def read(of: Grouped, slots: Slots, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
    """What the tokens concerned find in their slots [n, heads, d], and the log of its mass [n, heads, 1]."""
    heads, d = q.shape[1:]
    kv = slots.kv[layer][:, :, :, : of.length]
    kv = kv[:, : of.g] if of.slots is None else kv[:, of.slots]
    keys, values = kv.flatten(1, 2).unbind()
    queries = q.reshape(-1, d)[of.into].view(len(keys), -1, d)
    scores = torch.baddbmm(of.mask, queries, keys.transpose(1, 2), alpha=d**-0.5)
    found, mass = weigh(scores, values)
    return found.view(-1, d)[of.back].float().view(-1, heads, d), mass.view(-1)[of.back].view(-1, heads, 1)
