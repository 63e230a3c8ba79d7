"""Short segments, copied into slots: each slot once for all rows whose chains share it.

All slots are attended to by one batched product, with the rows that share a slot side by side.

Without slots, short segments would be copied to the beginning of each row's tail. That was tried: 256 rows behind a
prompt of 90 tokens took 1.4 times as long on `tiny-2m` (one CPU thread, three runs each by turns).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.kv.segments import KVLayout, KVSegment, weigh
from metagen.generators.torch.models.language_model import Ints

#: Segments at least so long are attended to in place; shorter ones go to slots, which hold so many tokens.
IN_PLACE = 128
#: Times the queries that reading slots side by side may take, padding included.
PADDED = 4


def slot_tokens(capacity: int) -> int:
    """Tokens of a slot beside tails of at most `capacity`."""
    return min(IN_PLACE, capacity)


class Slots:
    """[layers, 2, slots, kv_heads, capacity, head_dim]. length, users: [slots] tokens in it, rows that read it."""

    def __init__(self, layout: KVLayout, slots: int, capacity: int) -> None:
        self.capacity = capacity
        self.kv = layout.zeros(layout.layers, 2, slots, layout.kv_heads, capacity, layout.head_dim)
        self.length = np.zeros(slots, np.int64)
        self.users = np.zeros(slots, np.int64)
        self._free = list(range(slots))
        self._parts: dict[int, tuple[KVSegment, ...]] = {}
        self._slot_of: dict[tuple[int, ...], int] = {}

    def pack(self, chain: Sequence[KVSegment]) -> tuple[list[KVSegment], list[list[KVSegment]]]:
        """The long segments of a chain, and its short ones in groups that fill a slot each.

        Groups fill from the beginning of the chain, so that chains that begin alike have their first groups in common.
        """
        long: list[KVSegment] = []
        groups: list[list[KVSegment]] = []
        room = 0
        for segment in chain:
            if len(segment) >= self.capacity:
                long.append(segment)
                continue
            if len(segment) > room:
                groups.append([])
                room = self.capacity
            groups[-1].append(segment)
            room -= len(segment)
        return long, groups

    def take(self, parts: Sequence[KVSegment], users: int) -> int | None:
        """The slot that holds `parts`, one after another, for so many more rows; None if all slots are in use."""
        key = tuple(map(id, parts))  # the parts are held, so their ids stay theirs
        slot = self._slot_of.get(key)
        if slot is None:
            if not self._free:
                return None
            slot = heappop(self._free)
            self._parts[slot], self._slot_of[key] = tuple(parts), slot
            ends = list(accumulate(map(len, parts), initial=0))
            for part, (a, b) in zip(parts, pairwise(ends), strict=True):
                self.kv[:, :, slot, :, a:b] = part.kv
            self.length[slot] = ends[-1]
        self.users[slot] += users
        return slot

    def release(self, slot: int) -> None:
        """One row less; a slot that nobody uses is free."""
        self.users[slot] -= 1
        if not self.users[slot]:
            del self._slot_of[tuple(map(id, self._parts.pop(slot)))]
            heappush(self._free, slot)

    def segment(self, slot: int) -> KVSegment:
        """What a slot holds, in place."""
        return KVSegment(self.kv[:, :, slot, :, : self.length[slot]])


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


def group_by_slot(layout: KVLayout, slots: Slots, slot: Ints, usual: int) -> Grouped | None:
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
    """Attention of the tokens concerned to their slots [n, heads, d], and the log of its mass [n, heads, 1].

    q: [N, heads, d], of all flat tokens.
    """
    heads, d = q.shape[1:]
    kv = slots.kv[layer][:, :, :, : of.length]
    kv = kv[:, : of.g] if of.slots is None else kv[:, of.slots]
    keys, values = kv.flatten(1, 2).unbind()
    queries = q.reshape(-1, d)[of.into].view(len(keys), -1, d)
    scores = torch.baddbmm(of.mask, queries, keys.transpose(1, 2), alpha=d**-0.5)
    found, mass = weigh(scores, values)
    return found.view(-1, d)[of.back].float().view(-1, heads, d), mass.view(-1)[of.back].view(-1, heads, 1)
