"""Where the tails of rows lie: in regions, one for each capacity, side by side without gaps.

A row moves to the next region when it has outgrown its own, so that one batched product over a region pads only to the
longest of its tails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from metagen.generators.torch.kv.segments import KVLayout
from metagen.generators.torch.models.language_model import Ints


class Region:
    """Tails of one capacity [layers, 2, places, kv_heads, capacity, head_dim]; places 0 … count-1 are `owner`'s."""

    def __init__(self, flat: Tensor, start: int, places: int, kv_heads: int, capacity: int) -> None:
        self.start, self.capacity, self.count = start, capacity, 0
        stop = start + places * kv_heads * capacity
        self.kv = flat[:, :, start:stop].view(*flat.shape[:2], places, kv_heads, capacity, flat.shape[-1])
        self.owner = np.zeros(places, np.int64)

    def take(self, rows: Ints) -> Ints:
        """[n]: places for `rows` [n] more."""
        places = np.arange(self.count, self.count + len(rows))
        self.owner[places] = rows
        self.count += len(rows)
        return places


class Regions:
    """The tails of all rows: rows 0 … decoding-1 take tails of all `capacities` (ascending), the others the largest.

    length: [rows] tokens in each tail. region, place: [rows] where each tail lies; region -1 where there is none yet.
    """

    def __init__(self, layout: KVLayout, rows: int, decoding: int, capacities: Sequence[int]) -> None:
        self._layout, self._decoding, self.capacity = layout, decoding, capacities[-1]
        places = [decoding] * len(capacities) + [rows - decoding]
        self._capacities = np.array([*capacities, self.capacity])
        sizes = places * self._capacities * layout.kv_heads
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.flat = flat = layout.zeros(layout.layers, 2, int(self._starts[-1]), layout.head_dim)
        self._layers = [(flat[i, 0], flat[i, 1]) for i in range(layout.layers)]
        self.all = [
            Region(flat, int(start), n, layout.kv_heads, int(c))
            for start, n, c in zip(self._starts[:-1], places, self._capacities, strict=True)
        ]
        self.length = np.zeros(rows, np.int64)
        self.region = np.full(rows, -1)
        self.place = np.zeros(rows, np.int64)

    def tail(self, row: int) -> Tensor:
        """[layers, 2, kv_heads, capacity, head_dim]"""
        return self.all[int(self.region[row])].kv[:, :, int(self.place[row])]

    def target(self, rows: Ints, at: Ints) -> Ints:
        """Places in a layer's tails of the tokens `at` of `rows`, [N * kv_heads]."""
        region, heads = self.region[rows], self._layout.kv_heads
        first = self.place[rows][:, None] * heads + np.arange(heads)
        target: Ints = (self._starts[region] + at)[:, None] + first * self._capacities[region][:, None]
        return target.ravel()

    def tails(self, rows: Ints) -> tuple[Ints, Ints]:
        """Where the tails of `rows` [n] begin among the places of a layer, and the places of each of their heads."""
        region = self.region[rows]
        capacity = self._capacities[region]
        return self._starts[region] + self.place[rows] * self._layout.kv_heads * capacity, capacity

    def write(self, layer: int, target: Tensor, k: Tensor, v: Tensor) -> None:
        """Put k, v [N, kv_heads, d] there."""
        keys, values = self._layers[layer]
        keys.index_copy_(0, target, k.reshape(-1, self._layout.head_dim))
        values.index_copy_(0, target, v.reshape(-1, self._layout.head_dim))

    def fit(self, rows: Ints, counts: Ints) -> bool:
        """Whether tails of `rows` [n], which have begun, have room for counts [n] more tokens where they lie."""
        held, region = self.length[rows], self.region[rows]
        return bool(((held > 0) & (region >= 0) & (held + counts <= self._capacities[region])).all())

    def full(self, rows: int) -> bool:
        """Whether one of the first so many rows has no room for one token more where it lies."""
        return bool((self.length[:rows] >= self._capacities[self.region[:rows]]).any())

    def prepend(self, row: int, parts: Sequence[Tensor]) -> None:
        """Begin an empty tail, which has the room, with these [layers, 2, kv_heads, tokens, head_dim]."""
        for part in parts:
            start, stop = int(self.length[row]), int(self.length[row]) + part.shape[3]
            self.tail(row)[:, :, :, start:stop] = part
            self.length[row] = stop

    def shorten(self, row: int, first: int) -> None:
        """Let go of the first so many tokens of a tail."""
        rest = self.tail(row)[:, :, :, first : int(self.length[row])].clone()
        self.length[row] -= first
        self.tail(row)[:, :, :, : int(self.length[row])] = rest

    # -- rows that come, go and grow -------------------------------------------------------------

    def settle(self, rows: Ints, need: Ints) -> bool:
        """Move `rows` [n] to where their tails have room for `need` [n] tokens; whether any moved."""
        region, last = self.region[rows], len(self.all) - 1
        decodes = rows < self._decoding
        tight = (region < 0) | (need > self._capacities[region]) | (decodes == (region == last))
        if not tight.any():
            return False
        rows, need = rows[tight], need[tight]
        targets = np.where(decodes[tight], np.searchsorted(self._capacities[:-1], need), last)
        for target in np.unique(targets).tolist():
            self._transfer(rows[targets == target], target)
        return True

    def fork(self, sources: Ints, targets: Ints) -> None:
        """Let `targets` [n], which have no tail before, copy the tails of `sources` [n]."""
        self.length[targets] = self.length[sources]
        self.settle(targets, self.length[targets])
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            used = int(self.length[source])
            if used:
                self.tail(target)[:, :, :, :used] = self.tail(source)[:, :, :, :used]

    def move(self, sources: Ints, targets: Ints) -> None:
        """Let `targets` [n], which have no tail before, take those of `sources` [n]."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if self.region[source] >= 0:
                self.all[self.region[source]].owner[self.place[source]] = target
        for column in (self.length, self.region, self.place):
            column[targets] = column[sources]
        self.length[sources], self.region[sources] = 0, -1
        placed = targets[self.region[targets] >= 0]
        self.settle(placed, self.length[placed])

    def leave(self, rows: Ints, *, poisoned: bool) -> None:
        """Forget the tails of `rows` [n]; poisoned ones hold NaN also where no token is."""
        if poisoned:
            for row in rows[self.region[rows] >= 0].tolist():
                self.tail(row).zero_()
        for region in np.unique(self.region[rows]).tolist():
            if region >= 0:
                self._vacate(self.all[region], self.place[rows[self.region[rows] == region]])
        self.length[rows], self.region[rows] = 0, -1

    def _transfer(self, rows: Ints, target: int) -> None:
        region, sources = self.all[target], self.region[rows]
        new = region.take(rows)
        index = self._layout.index
        for source in np.unique(sources).tolist():
            if source < 0:
                continue
            ours = sources == source
            old, used = self.place[rows[ours]], int(self.length[rows[ours]].max())
            here = self.all[source]
            if used:
                region.kv[:, :, index(new[ours]), :, :used] = here.kv[:, :, index(old), :, :used]
            self._vacate(here, old)
        self.region[rows], self.place[rows] = target, new

    def _vacate(self, region: Region, places: Ints) -> None:
        """Close the gaps with the last rows of the region, and leave zeros where nobody is: NaN would stay NaN."""
        left = region.count - len(places)
        written = int(self.length[region.owner[left : region.count]].max(initial=0))
        holes = places[places < left]
        movers = np.setdiff1d(np.arange(left, region.count), places)
        index = self._layout.index
        if len(holes):
            owners = region.owner[movers]
            used = int(self.length[owners].max())
            if used:
                region.kv[:, :, index(holes), :, :used] = region.kv[:, :, index(movers), :, :used]
            region.owner[holes], self.place[owners] = owners, holes
        region.kv[:, :, left : region.count, :, :written] = 0
        region.count = left
