"""Short segments, copied into slots: each slot once for all rows whose chains share it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np

from metagen.generators.torch.layout import KVLayout
from metagen.generators.torch.segments import KVSegment

#: Segments at least so long are attended to in place; shorter ones go to slots, which hold so many tokens.
IN_PLACE = 128


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
