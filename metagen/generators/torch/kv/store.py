"""Keys and values of running rows: a dense tail per row, behind a prefix that rows share.

Rows write into *tails* (`regions`, `tails`). Before its tail a row may have a *chain* of segments, wherever they come
from (`chains`). Long segments stay where they are and are attended to one by one, once for all rows that share them, so
that a long prompt is read once however many samples continue it (`segments`). Short ones, in which a product of their
own finds little to do, are copied into *slots*, once for all rows whose chains share them, and all slots are attended
to side by side (`slots`); when no slot is free they stay in place as well. The parts are joined by their
log-sum-exps (`segments.merge`). A row that alone reads a short chain takes it into its tail, and reads one part, until
the tail is too long for both. A tail that has outgrown the last region is frozen into one more segment of the chain.

Memory: tails and slots are taken at the beginning (`store_tokens`). Segments of a chain are the caller's, and rows hold
no copy of them. What else rows hold are frozen tails, at most `spill` of their tokens, and what `truncate` copied. Only
in passing is there more: a second copy of what `save` returns, and of a segment while it is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.kv import tails
from metagen.generators.torch.kv.chains import Chains, Prefixes
from metagen.generators.torch.kv.regions import Regions
from metagen.generators.torch.kv.segments import KVLayout, KVSegment
from metagen.generators.torch.kv.slots import Slots, slot_tokens
from metagen.generators.torch.models.language_model import Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """One extension, as attention sees it: N flat tokens, in the order of the regions and places of their rows.

    order: [N] which of the caller's tokens each is, or None where the orders agree. position: [N] in their rows.
    target: [N * kv_heads] places of the new keys in a layer's tails.
    """

    n: int
    order: Ints | None
    position: Tensor
    target: Tensor
    parts: list[tails.Part]
    prefixes: Prefixes


@dataclass(frozen=True, slots=True)
class Located:
    """One extension, as `compiled` sees it: where each row of it writes, and what it reads.

    table: [R, 6]: of each row its first flat token, the number of its tokens, the place of the first in the row, the
    tokens in its tail before, and where its tail begins and how long it may be, in tokens. order: [R], rows of the
    same prefix side by side. groups: [G, 4]: from and to in `order`, and from and to in `pieces` [P, 6]
    (`Chains.located`). segments: what the pieces lie in.
    """

    table: Tensor
    order: Tensor
    groups: Tensor
    pieces: Tensor
    segments: list[KVSegment]


class KVStore:
    """Each row's chain and tail.

    `decoding`: rows 0 … decoding-1 take tails of all `capacities` (ascending), the others of the largest.
    """

    def __init__(self, layout: KVLayout, rows: int, decoding: int, capacities: Sequence[int]) -> None:
        self._layout = layout
        self._regions = Regions(layout, rows, decoding, capacities)
        self._chains = Chains(layout, rows, decoding, Slots(layout, rows, slot_tokens(capacities[-1])))
        self._decoding = decoding
        self._remembered: tuple[int, Prefixes] | None = None
        self._newest: Batch | None = None
        self._located: Located | None = None
        self._reads: tuple[bytes, tuple[Tensor, Tensor, Tensor, list[KVSegment]]] | None = None
        #: Of each row: the end of its chain, which its tail begins with instead.
        self._taken: list[tuple[KVSegment, ...]] = [()] * rows

    # -- rows ------------------------------------------------------------------------------------

    def held(self, rows: Ints) -> Ints:
        """[n]: tokens that each of `rows` [n] holds."""
        held: Ints = self._chains.length[rows] + self._regions.length[rows]
        return held

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        self._forget()
        self._chains.open(rows, chain)

    def fork(self, sources: Ints, targets: Ints) -> None:
        self.close(targets)
        self._chains.fork(sources, targets)
        self._regions.fork(sources, targets)
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._taken[target] = self._taken[source]

    def move(self, sources: Ints, targets: Ints) -> None:
        self._forget()
        self._chains.move(sources, targets)
        self._regions.move(sources, targets)
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._taken[target], self._taken[source] = self._taken[source], ()

    def truncate(self, row: int, length: int) -> None:
        """Segments before the cut stay in place; what is left of the one that it goes through is copied."""
        self._newest = self._located = None
        base = int(self._chains.length[row])
        if self._taken[row] and length < base + sum(map(len, self._taken[row])):
            self._put_back(row)
            base = int(self._chains.length[row])
        if length >= base:
            self._regions.length[row] = length - base
            return
        kept = self._chains.first(row, length)
        at = sum(map(len, kept))
        if at < length:
            kept.append(self.save(row, at, length))
        self.close(np.array([row]))
        self.open(np.array([row]), kept)

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        self._forget()
        self._chains.leave(rows)
        self._regions.leave(rows, poisoned=poisoned)
        for row in rows.tolist():
            self._taken[row] = ()

    def save(self, row: int, start: int, stop: int) -> KVSegment:
        """A copy of the row's tokens start … stop-1."""
        base = int(self._chains.length[row])
        parts = self._chains.views(row, start, stop)
        if stop > base:
            parts.append(self._regions.tail(row)[:, :, :, max(start - base, 0) : stop - base])
        return KVSegment(parts[0].clone() if len(parts) == 1 else torch.cat(parts, dim=3))

    def spill(self, tokens: int) -> int:
        """A tail is frozen when it has outgrown the last region."""
        return tokens // self._regions.capacity * self._regions.capacity

    def _take(self, rows: Ints, counts: Ints) -> None:
        """Let rows with nothing in their tails take their chains there, where they alone read them.

        A tail that takes a chain has room for `counts` [n] more tokens too: those that come now. Elsewhere than on a
        CPU, rows take long chains too, once there are many: each would be read by a product of its own.
        """
        chains, capacity = self._chains, self._regions.capacity
        on_cpu = self._layout.device.type == "cpu"
        readers = None if on_cpu or not len(rows) else chains.readers(rows)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            kept: tuple[KVSegment, ...] = ()
            most = min(capacity // 2, capacity - count)
            taken = chains.alone(row, most)
            if not taken and readers is not None:
                kept, taken = chains.own_end(row, most, readers)
                for segment in taken:
                    readers.pop(id(segment), None)
            if taken:
                self._forget()
                length = sum(map(len, taken))
                chains.leave(np.array([row]))
                chains.open(np.array([row]), kept)
                self._regions.settle(np.array([row]), np.array([length + count]))
                self._regions.prepend(row, [segment.kv for segment in taken])
                self._taken[row] = taken

    def _put_back(self, row: int) -> None:
        """Undo what `_take` did."""
        self._forget()
        self._regions.shorten(row, sum(map(len, self._taken[row])))
        chain = (*self._chains.of(row), *self._taken[row])
        self._chains.leave(np.array([row]))
        self._chains.open(np.array([row]), chain)
        self._taken[row] = ()

    def _freeze(self, row: int) -> None:
        self._forget()
        base = int(self._chains.length[row])
        self._chains.append(row, self.save(row, base, base + int(self._regions.length[row])))
        self._regions.length[row] = 0

    def _forget(self) -> None:
        """What the newest batch found is no longer so."""
        self._remembered = self._newest = self._located = self._reads = None

    # -- a batch ---------------------------------------------------------------------------------

    def begin(self, rows: Ints, counts: Ints | None) -> Batch:
        """Make room for `counts` [n] new tokens of `rows` [n] (None: one each), and say where everything is."""
        self._located = None
        steady = counts is None and bool((rows == np.arange(len(rows))).all())
        if steady and (batch := self._next(len(rows))) is not None:
            return batch
        regions, index = self._regions, self._layout.index
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        self._make_room(rows, counts)
        order = np.lexsort((regions.place[rows], tails.length_class(counts), regions.region[rows]))
        same = bool((order == np.arange(len(rows))).all())
        rows, counts, begins = rows[order], counts[order], (np.cumsum(counts) - counts)[order]
        owner = np.repeat(np.arange(len(rows)), counts)
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        within = regions.length[rows][owner] + offset
        regions.length[rows] += counts
        batch = Batch(
            n=len(owner),
            order=None if same else begins[owner] + offset,
            position=index(self._chains.length[rows][owner] + within),
            target=index(regions.target(rows[owner], within)),
            parts=tails.parts(self._layout, regions, rows, counts, offset),
            prefixes=self._steady(rows, owner) if steady else self._chains.prefixes(rows, owner),
        )
        self._newest = batch if steady else None
        return batch

    def locate(self, rows: Ints, counts: Ints | None, ahead: Ints | None = None) -> Located:
        """As `begin`, for the compiled blocks, which read the flat tokens in the order of the caller.

        ahead: [n] for so many tokens more there is to be room (`advance`).
        """
        self._newest = None
        steady = counts is None and bool((rows == np.arange(len(rows))).all())
        if steady and (located := self._go_on(len(rows))) is not None:
            return located
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        self._make_room(rows, counts if ahead is None else counts + ahead)
        old = self._regions.length[rows]
        table = np.empty((len(rows), 6), np.int64)
        table[:, 0] = counts.cumsum() - counts
        table[:, 1] = counts
        table[:, 2] = self._chains.length[rows] + old
        table[:, 3] = old
        table[:, 4], table[:, 5] = self._regions.tails(rows)
        self._regions.length[rows] = old + counts
        located = Located(torch.from_numpy(table), *self._reads_of(rows))
        self._located = located if steady else None
        return located

    def _reads_of(self, rows: Ints) -> tuple[Tensor, Tensor, Tensor, list[KVSegment]]:
        """What `rows` [n] read before their tails: what it was in the newest batch of them, while no row changes."""
        key = rows.tobytes()
        if self._reads is not None and self._reads[0] == key and _whole(self._reads[1][3]):
            return self._reads[1]
        found = self._chains.located(rows)
        self._reads = key, found
        return found

    def advance(self, rows: Ints, tokens: Ints) -> None:
        """So many tokens of `rows` [n] were written into the room ahead of a batch that was located."""
        self._regions.length[rows] += tokens

    def _go_on(self, n: int) -> Located | None:
        """As `_next`."""
        newest, regions = self._located, self._regions
        if newest is None or len(newest.table) != n or regions.full(n):
            return None
        if not _whole(newest.segments):
            return None
        regions.length[:n] += 1
        newest.table[:, 2:4] += 1
        return newest

    def _next(self, n: int) -> Batch | None:
        """The batch behind the newest, where n rows go on as they did: everything is one place further."""
        newest, regions = self._newest, self._regions
        if newest is None or newest.n != n or not newest.prefixes.whole or regions.full(n):
            return None
        regions.length[:n] += 1
        self._newest = Batch(
            n=n,
            order=newest.order,
            position=newest.position + 1,
            target=newest.target + 1,
            parts=[tails.next_part(self._layout, part) for part in newest.parts],
            prefixes=newest.prefixes,
        )
        return self._newest

    def _make_room(self, rows: Ints, counts: Ints) -> None:
        regions = self._regions
        if regions.fit(rows, counts):
            return
        for i in np.flatnonzero(regions.length[rows] + counts > regions.capacity).tolist():
            row = int(rows[i])
            if self._taken[row]:
                self._put_back(row)
            if regions.length[row] + counts[i] > regions.capacity:
                self._freeze(row)
        empty = (rows < self._decoding) & (regions.length[rows] == 0)
        self._take(rows[empty], counts[empty])
        if regions.settle(rows, regions.length[rows] + counts):
            self._forget()

    def _steady(self, rows: Ints, owner: Ints) -> Prefixes:
        """While no row comes, goes or moves, a step of all decoding rows reads what the step before read."""
        if self._remembered is not None:
            n, found = self._remembered
            if n == len(rows) and found.whole:
                return found
        found = self._chains.prefixes(rows, owner)
        self._remembered = len(rows), found
        return found

    # -- attention -------------------------------------------------------------------------------

    @property
    def tails(self) -> Tensor:
        """[layers, 2, places, head_dim]: all tails."""
        return self._regions.flat

    def attend(self, batch: Batch, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append k, v [N, kv_heads, d] and return what q [N, heads, d] reads, [N, heads * d]."""
        self._regions.write(layer, batch.target, k, v)
        if not batch.prefixes:
            alone = [tails.read_alone(part, layer, q[part.start : part.stop]) for part in batch.parts]
            return _join(alone).reshape(batch.n, -1)
        reads = [tails.read(part, layer, q[part.start : part.stop]) for part in batch.parts]
        out, weight = _join([r[0] for r in reads]), _join([r[1] for r in reads])
        out, _ = self._chains.read(batch.prefixes, layer, q, out, weight)
        return out.to(q.dtype).reshape(batch.n, -1)


def store_tokens(rows: int, decoding: int, capacities: Sequence[int]) -> int:
    """Tokens that a store has room for."""
    last = capacities[-1]
    return decoding * sum(capacities) + (rows - decoding) * last + rows * slot_tokens(last)


def _join(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _whole(segments: list[KVSegment]) -> bool:
    return all(segment.whole for segment in segments)
