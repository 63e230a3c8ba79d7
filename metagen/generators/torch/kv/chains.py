"""The chains of segments before the tails: part of each is read in place, part of it in slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.kv import segments as in_place
from metagen.generators.torch.kv import slots as in_slots
from metagen.generators.torch.kv.segments import KVLayout, KVSegment, merge
from metagen.generators.torch.kv.slots import Grouped, Slots
from metagen.generators.torch.models.language_model import Ints

#: Segments that are read in place, one after another, where many of them would take long.
FEW = 8


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What the flat tokens of a batch read before the tails of their rows.

    grouped: slots. shared: segments in place, with the flat tokens that attend to them (None: all).
    """

    grouped: list[Grouped]
    shared: list[tuple[KVSegment, Tensor | None]]

    @property
    def whole(self) -> bool:
        """False once a segment has been split."""
        return all(segment.whole for segment, _ in self.shared)

    def __bool__(self) -> bool:
        return bool(self.grouped or self.shared)


class Chains:
    """The chains of all rows. `length`: [rows] tokens in each."""

    def __init__(self, layout: KVLayout, rows: int, decoding: int, slots: Slots) -> None:
        self._layout, self._decoding, self.slots = layout, decoding, slots
        self.length = np.zeros(rows, np.int64)
        # Of each row: its chain in order, what of it is read in place, and its slots, -1 where there is none.
        self._chain: list[tuple[KVSegment, ...]] = [()] * rows
        self.in_place: list[tuple[KVSegment, ...]] = [()] * rows
        self._slot = np.full((rows, 1), -1)

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        """Let `rows` [n], which have no chain, get this one."""
        self.length[rows] = sum(map(len, chain))
        self._place(rows, chain)

    def fork(self, sources: Ints, targets: Ints) -> None:
        """Let `targets` [n], which have no chain before, share those of `sources` [n]."""
        for source in sources.tolist():
            self.slots.users[self.slots_of(source)] += 1
        self._copy(sources, targets)

    def move(self, sources: Ints, targets: Ints) -> None:
        """Let `targets` [n], which have no chain before, take those of `sources` [n]."""
        self._copy(sources, targets)
        self._forget(sources)

    def leave(self, rows: Ints) -> None:
        self._release(rows)
        self._forget(rows)

    def append(self, row: int, segment: KVSegment) -> None:
        """One more segment, read in place."""
        self._chain[row] = (*self._chain[row], segment)
        self.in_place[row] = (*self.in_place[row], segment)
        self.length[row] += len(segment)

    def first(self, row: int, tokens: int) -> list[KVSegment]:
        """The first segments, as many as lie in the first `tokens` with their whole length."""
        ends = np.cumsum([len(segment) for segment in self._chain[row]])
        return list(self._chain[row][: int((ends <= tokens).sum())])

    def readers(self, rows: Ints) -> Counter[int]:
        """How many of all rows read each segment in place, by its id; those of `rows` [n] are in one piece."""
        for row in rows.tolist():
            self._renew(row)
        return Counter(id(segment) for chain in self.in_place for segment in chain)

    def alone(self, row: int, most: int) -> tuple[KVSegment, ...]:
        """The chain of a row that no other row reads, if it is in slots and at most so long; () if not."""
        if not 0 < self.length[row] <= most or self.in_place[row]:
            return ()
        if (self.slots.users[self.slots_of(row)] > 1).any():
            return ()
        return tuple(piece for segment in self._chain[row] for piece in segment.pieces())

    def own_end(
        self, row: int, most: int, readers: Counter[int]
    ) -> tuple[tuple[KVSegment, ...], tuple[KVSegment, ...]]:
        """A row's chain in two: what others read in place too, and the rest, with some that it alone reads there.

        The second is () if it is longer than `most`, or if few segments are read in place at all.
        """
        if len(readers) <= FEW or not self.in_place[row]:
            return self._chain[row], ()
        chain, own = self._chain[row], set(map(id, self.in_place[row]))
        cut = max(
            (i + 1 for i, one in enumerate(chain) if id(one) in own and readers[id(one)] > 1), default=0
        )
        end = chain[cut:]
        if sum(map(len, end)) > most or own.isdisjoint(map(id, end)):
            return chain, ()
        return chain[:cut], tuple(piece for segment in end for piece in segment.pieces())

    def _renew(self, row: int) -> None:
        """Place the pieces of segments that were split: they may be short enough for slots."""
        if not all(segment.whole for segment in self.in_place[row]):
            self._release(np.array([row]))
            self._place(np.array([row]), self._chain[row])

    def of(self, row: int) -> tuple[KVSegment, ...]:
        """The chain of a row."""
        return self._chain[row]

    def views(self, row: int, start: int, stop: int) -> list[Tensor]:
        """Keys and values of the chain's tokens start … stop-1 in order: [layers, 2, kv_heads, n, head_dim]."""
        found, at = [], 0
        for segment in self._chain[row] if start < self.length[row] else ():
            for piece in segment.pieces():
                a, b = max(start - at, 0), min(stop - at, len(piece))
                if a < b:
                    found.append(piece.kv[:, :, :, a:b])
                at += len(piece)
        return found

    def slots_of(self, row: int) -> Ints:
        slots: Ints = self._slot[row]
        return slots[slots >= 0]

    def _place(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        """Say what rows without slots read in place and what in slots."""
        pieces = tuple(piece for segment in chain for piece in segment.pieces())
        long, groups = self.slots.pack(pieces)
        taken = []
        for group in groups:
            slot = self.slots.take(group, len(rows))
            if slot is None:
                long += group
            else:
                taken.append(slot)
        if (more := len(taken) - self._slot.shape[1]) > 0:
            self._slot = np.pad(self._slot, ((0, 0), (0, more)), constant_values=-1)
        self._slot[rows, : len(taken)] = taken
        read = tuple(long)
        for row in rows.tolist():
            self._chain[row], self.in_place[row] = pieces, read

    def _copy(self, sources: Ints, targets: Ints) -> None:
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._chain[target], self.in_place[target] = self._chain[source], self.in_place[source]
        for column in (self.length, self._slot):
            column[targets] = column[sources]

    def _release(self, rows: Ints) -> None:
        for row in rows.tolist():
            for slot in self.slots_of(row).tolist():
                self.slots.release(slot)
        self._slot[rows] = -1

    def _forget(self, rows: Ints) -> None:
        for row in rows.tolist():
            self._chain[row], self.in_place[row] = (), ()
        self.length[rows], self._slot[rows] = 0, -1

    # -- reading ---------------------------------------------------------------------------------

    def prefixes(self, rows: Ints, owner: Ints) -> Prefixes:
        """What the flat tokens of `rows` read; `owner`: [N] which of the rows each belongs to."""
        for row in rows.tolist():
            self._renew(row)
        found: list[Grouped] = []
        shared: list[tuple[KVSegment, Tensor | None]] = []

        def read_by(segment: KVSegment, readers: Ints) -> None:
            shared.append((segment, None if len(readers) == len(owner) else self._layout.index(readers)))

        for slot in self._slot[rows].T:
            if (slot < 0).all():
                continue
            group = in_slots.group_by_slot(self._layout, self.slots, slot[owner], self._decoding)
            if group is not None:
                found.append(group)
                continue
            for one in np.unique(slot[slot >= 0]).tolist():
                read_by(self.slots.segment(one), np.flatnonzero(slot[owner] == one))
        readers: dict[int, tuple[KVSegment, list[int]]] = {}
        for i, row in enumerate(rows.tolist()):
            for segment in self.in_place[row]:
                readers.setdefault(id(segment), (segment, []))[1].append(i)
        for segment, members in readers.values():
            reads = np.zeros(len(rows), np.bool_)
            reads[members] = True
            read_by(segment, np.flatnonzero(reads[owner]))
        return Prefixes(found, shared)

    def located(self, rows: Ints) -> tuple[Tensor, Tensor, Tensor, list[KVSegment]]:
        """What `rows` [R] read: `order`, `groups`, `pieces` and `segments` of a `Located`.

        A piece: the address of its keys; the numbers from one layer to the next, from keys to values, from one head to
        the next, and from one token to the next; and how many tokens it has.
        """
        alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for i, row in enumerate(rows.tolist()):
            self._renew(row)
            key = tuple(map(id, self.in_place[row])), tuple(self.slots_of(row).tolist())
            alike.setdefault(key, []).append(i)
        groups: list[tuple[int, int, int, int]] = []
        segments: list[KVSegment] = []
        order: list[int] = []
        for (_, slots), members in alike.items():
            read = [*map(self.slots.segment, slots), *self.in_place[int(rows[members[0]])]]
            groups.append((len(order), len(order) + len(members), len(segments), len(segments) + len(read)))
            order += members
            segments += read
        pieces = np.zeros((len(segments), 6), np.int64)
        for piece, segment in zip(pieces, segments, strict=True):
            piece[:] = segment.kv.data_ptr(), *segment.kv.stride()[:4], len(segment)
        return (
            torch.from_numpy(np.array(order, np.int64)),
            torch.from_numpy(np.array(groups, np.int64).reshape(-1, 4)),
            torch.from_numpy(pieces),
            segments,
        )

    def read(
        self, prefixes: Prefixes, layer: int, q: Tensor, out: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add what q [N, heads, d] finds there to `out` [N, heads, d] of log masses `weight` [N, heads, 1]."""
        for group in prefixes.grouped:
            found, mass = in_slots.read(group, self.slots, layer, q)
            out, weight = merge(out, weight, found, mass, group.tokens)
        for segment, tokens in prefixes.shared:
            found, mass = in_place.read(segment.kv[layer], q if tokens is None else q[tokens])
            out, weight = merge(out, weight, found, mass, tokens)
        return out, weight
