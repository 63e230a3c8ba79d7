"""Keys and values of running rows: a dense tail per row, behind a prefix that rows share.

Rows write into *tails*. Tails lie in *regions*, one for each capacity, and a row moves to the next region when it has
outgrown its own: all tails of a region are attended to by one batched product that pads only to the longest of them.
Before its tail a row may have a *chain* of segments. Short leading segments are copied into a *slot* once for all
rows that begin with them, and all slots are attended to by one batched product, the rows of a slot side by side. Long
segments stay where they are and are attended to one by one, once for all rows that share them, so that a long prompt is
read once however many samples continue it. The parts are joined by their log-sum-exps. A tail that has outgrown the
last region is frozen into one more segment of the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.language_model import Ints

#: Segments at least so long are attended to in place by the rows opened over them.
IN_PLACE = 128
#: Times the queries that reading slots side by side may take, padding included.
PADDED = 4
#: Scores computed at once when many queries meet a long segment; bounds temporary memory.
SCORES = 1 << 26


class KVSegment:
    """Frozen keys and values: [layers, 2, kv_heads, tokens, head_dim]."""

    __slots__ = ("kv",)

    def __init__(self, kv: Tensor) -> None:
        self.kv = kv

    def __len__(self) -> int:
        return self.kv.shape[3]

    def split(self, at: int) -> tuple[KVSegment, KVSegment]:
        return KVSegment(self.kv[:, :, :, :at].clone()), KVSegment(self.kv[:, :, :, at:].clone())

    @staticmethod
    def join(parts: Sequence[KVSegment]) -> KVSegment:
        """Consecutive segments as one."""
        return parts[0] if len(parts) == 1 else KVSegment(torch.cat([p.kv for p in parts], dim=3))


class Region:
    """Tails of one capacity [layers, 2, places, kv_heads, capacity, head_dim]; places 0 … count-1 are `owner`'s."""

    def __init__(self, flat: Tensor, start: int, places: int, kv_heads: int, capacity: int) -> None:
        self.start, self.capacity, self.count = start, capacity, 0
        stop = start + places * kv_heads * capacity
        self.kv = flat[:, :, start:stop].view(*flat.shape[:2], places, kv_heads, capacity, flat.shape[-1])
        self.owner = np.zeros(places, np.int64)

    def take(self, rows: Ints) -> Ints:
        """Places for more rows."""
        places = np.arange(self.count, self.count + len(rows))
        self.owner[places] = rows
        self.count += len(rows)
        return places


class Slots:
    """Short prefixes [layers, 2, slots, kv_heads, capacity, head_dim], each kept once for all rows that share it."""

    def __init__(self, kv: Tensor) -> None:
        self.kv, self.capacity = kv, kv.shape[4]
        self.length = np.zeros(kv.shape[2], np.int64)
        self.users = np.zeros(kv.shape[2], np.int64)
        self._free = list(range(kv.shape[2]))
        self._parts: dict[int, tuple[KVSegment, ...]] = {}
        self._slot_of: dict[tuple[int, ...], int] = {}

    def take(self, parts: Sequence[KVSegment], users: int) -> int:
        """The slot that holds `parts`, one after another, for so many more rows."""
        key = tuple(map(id, parts))  # the parts are held, so their ids stay theirs
        slot = self._slot_of.get(key)
        if slot is None:
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
class Part:
    """The rows of a batch that lie in one region: R rows, at most T tokens each, tails up to S long.

    start, stop: their flat tokens. places: [R], or None for places 0 … R-1. mask: [R * kv_heads, T, S]
    additive, 0 or -inf. pad: places of the flat tokens among R x T, or None where they are the same.
    """

    region: Region
    start: int
    stop: int
    r: int
    t: int
    s: int
    places: Tensor | None
    mask: Tensor
    pad: Tensor | None


@dataclass(frozen=True, slots=True)
class Grouped:
    """The flat tokens of a batch that read slots, beside one another by slot: G slots, at most M tokens each.

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


@dataclass(frozen=True, slots=True)
class Batch:
    """One extension, as attention sees it: N flat tokens, in the order of the regions and places of their rows.

    order: [N] which of the caller's tokens each is, or None where the orders agree. position: [N] in their rows.
    target: [N * kv_heads] places of the new keys in a layer's tails. shared: long segments with the flat tokens that
    attend to them (None: all).
    """

    n: int
    order: Ints | None
    position: Tensor
    target: Tensor
    parts: list[Part]
    grouped: Grouped | None
    shared: list[tuple[KVSegment, Tensor | None]]


class KVStore:
    """Tails, slots, and each row's chain.

    `decoding`: rows 0 … decoding-1 take tails of all `capacities` (ascending), the others of the largest. `base` and
    `tail` count the tokens of each row that lie in its chain and in its tail.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rows: int,
        decoding: int,
        capacities: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.heads, self.kv_heads, self.head_dim, self.device = heads, kv_heads, head_dim, device
        self.capacity, self._decoding = capacities[-1], decoding
        places = [decoding] * len(capacities) + [rows - decoding]
        self._capacities = np.array([*capacities, self.capacity])
        starts = np.concatenate([[0], np.cumsum(places * self._capacities * kv_heads)]).tolist()
        # Zeros, because masked places are multiplied by 0 and memory that was never written may hold NaN.
        flat = _zeros((layers, 2, starts[-1], head_dim), dtype, device)
        self._layers = [(flat[i, 0], flat[i, 1]) for i in range(layers)]
        self._regions = [
            Region(flat, start, n, kv_heads, int(c))
            for start, n, c in zip(starts[:-1], places, self._capacities, strict=True)
        ]
        self._slots = Slots(
            _zeros((layers, 2, rows, kv_heads, slot_tokens(self.capacity), head_dim), dtype, device)
        )
        self.base = np.zeros(rows, np.int64)
        self.tail = np.zeros(rows, np.int64)
        self._region = np.full(rows, -1)
        self._place = np.zeros(rows, np.int64)
        self._slot = np.full(rows, -1)
        self._chains: list[list[KVSegment]] = [[] for _ in range(rows)]
        self._long: list[list[KVSegment]] = [[] for _ in range(rows)]
        self._changes = 0
        self._remembered: tuple[tuple[int, int], Grouped | None, list[tuple[KVSegment, Tensor | None]]] = (
            (-1, 0),
            None,
            [],
        )

    # -- rows ------------------------------------------------------------------------------------

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        """Long leading segments stay in place, and so does the rest, as one, if it is too long for a slot."""
        self._changes += 1
        lead = 0
        while lead < len(chain) and len(chain[lead]) >= IN_PLACE:
            lead += 1
        long, rest = list(chain[:lead]), list(chain[lead:])
        slot = -1
        if sum(map(len, rest)) > self._slots.capacity:
            long.append(KVSegment.join(rest))
            whole = long
        elif rest:
            slot = self._slots.take(rest, len(rows))
            whole = [*long, self._slots.segment(slot)]
        else:
            whole = long
        self.base[rows], self.tail[rows], self._slot[rows] = sum(map(len, whole)), 0, slot
        for row in rows.tolist():
            self._chains[row], self._long[row] = list(whole), list(long)

    def fork(self, sources: Ints, targets: Ints) -> None:
        self.close(targets)
        for column in (self.base, self.tail, self._slot):
            column[targets] = column[sources]
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._chains[target], self._long[target] = list(self._chains[source]), list(self._long[source])
            if self._slot[source] >= 0:
                self._slots.users[self._slot[source]] += 1
        self._settle(targets, self.tail[targets])
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            used = int(self.tail[source])
            if used:
                self._tail_of(target)[:, :, :, :used] = self._tail_of(source)[:, :, :, :used]

    def move(self, sources: Ints, targets: Ints) -> None:
        self._changes += 1
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._chains[target], self._chains[source] = self._chains[source], []
            self._long[target], self._long[source] = self._long[source], []
            if self._region[source] >= 0:
                self._regions[self._region[source]].owner[self._place[source]] = target
        for column in (self.base, self.tail, self._slot, self._region, self._place):
            column[targets] = column[sources]
        self._forget(sources)
        placed = targets[self._region[targets] >= 0]
        self._settle(placed, self.tail[placed])

    def truncate(self, row: int, length: int) -> None:
        if length >= self.base[row]:
            self.tail[row] = length - self.base[row]
            return
        kept = [self.save(row, 0, length)] if length else []
        self.close(np.array([row]))
        self.open(np.array([row]), kept)

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        self._changes += 1
        for row in rows.tolist():
            if poisoned and self._region[row] >= 0:
                self._tail_of(row).zero_()
            if self._slot[row] >= 0:
                self._slots.release(int(self._slot[row]))
            self._chains[row], self._long[row] = [], []
        for region in np.unique(self._region[rows]).tolist():
            if region >= 0:
                self._vacate(self._regions[region], self._place[rows[self._region[rows] == region]])
        self._forget(rows)

    def save(self, row: int, start: int, stop: int) -> KVSegment:
        """A copy of the row's tokens start … stop-1."""
        base = int(self.base[row])
        parts, at = [], 0
        for segment in self._chains[row] if start < base else ():
            a, b = max(start - at, 0), min(stop - at, len(segment))
            if a < b:
                parts.append(segment.kv[:, :, :, a:b])
            at += len(segment)
        if stop > base:
            parts.append(self._tail_of(row)[:, :, :, max(start - base, 0) : stop - base])
        return KVSegment(parts[0].clone() if len(parts) == 1 else torch.cat(parts, dim=3))

    def spill(self, tokens: int) -> int:
        """A tail is frozen when it has outgrown the last region."""
        return tokens // self.capacity * self.capacity

    def _forget(self, rows: Ints) -> None:
        self.base[rows] = self.tail[rows] = 0
        self._region[rows] = self._slot[rows] = -1

    def _tail_of(self, row: int) -> Tensor:
        """[layers, 2, kv_heads, capacity, head_dim]"""
        return self._regions[int(self._region[row])].kv[:, :, int(self._place[row])]

    def _freeze(self, row: int) -> None:
        self._changes += 1
        segment = self.save(row, int(self.base[row]), int(self.base[row] + self.tail[row]))
        self._chains[row].append(segment)
        self._long[row].append(segment)
        self.base[row] += len(segment)
        self.tail[row] = 0

    # -- places ----------------------------------------------------------------------------------

    def _settle(self, rows: Ints, need: Ints) -> None:
        """Move rows to where their tails have room for `need` tokens."""
        region, last = self._region[rows], len(self._regions) - 1
        decodes = rows < self._decoding
        tight = (region < 0) | (need > self._capacities[region]) | (decodes == (region == last))
        if not tight.any():
            return
        self._changes += 1
        rows, need = rows[tight], need[tight]
        targets = np.where(decodes[tight], np.searchsorted(self._capacities[:-1], need), last)
        for target in np.unique(targets).tolist():
            self._transfer(rows[targets == target], target)

    def _transfer(self, rows: Ints, target: int) -> None:
        region, sources = self._regions[target], self._region[rows]
        new = region.take(rows)
        for source in np.unique(sources).tolist():
            if source < 0:
                continue
            ours = sources == source
            old, used = self._place[rows[ours]], int(self.tail[rows[ours]].max())
            here = self._regions[source]
            if used:
                moved = here.kv[:, :, self._index(old), :, :used]
                region.kv[:, :, self._index(new[ours]), :, :used] = moved
            self._vacate(here, old)
        self._region[rows], self._place[rows] = target, new

    def _vacate(self, region: Region, places: Ints) -> None:
        """Close the gaps with the last rows of the region, and leave zeros where nobody is: NaN would stay NaN."""
        left = region.count - len(places)
        written = int(self.tail[region.owner[left : region.count]].max(initial=0))
        holes = places[places < left]
        movers = np.setdiff1d(np.arange(left, region.count), places)
        if len(holes):
            owners = region.owner[movers]
            used = int(self.tail[owners].max())
            if used:
                moved = region.kv[:, :, self._index(movers), :, :used]
                region.kv[:, :, self._index(holes), :, :used] = moved
            region.owner[holes], self._place[owners] = owners, holes
        region.kv[:, :, left : region.count, :, :written] = 0
        region.count = left

    # -- a batch ---------------------------------------------------------------------------------

    def begin(self, rows: Ints, counts: Ints | None) -> Batch:
        """Make room for the new tokens, and say where everything is."""
        steady = counts is None and bool((rows == np.arange(len(rows))).all())
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        for row in rows[self.tail[rows] + counts > self.capacity].tolist():
            self._freeze(row)
        self._settle(rows, self.tail[rows] + counts)
        order = np.lexsort((self._place[rows], self._region[rows]))
        same = bool((order == np.arange(len(rows))).all())
        rows, counts, begins = rows[order], counts[order], (np.cumsum(counts) - counts)[order]
        old = self.tail[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        within = old[owner] + offset
        self.tail[rows] += counts
        heads = np.arange(self.kv_heads)
        region, place = self._region[rows][owner], self._place[rows][owner]
        capacity = self._capacities[region]
        starts = np.array([r.start for r in self._regions])[region]
        target = (starts + within)[:, None] + (place[:, None] * self.kv_heads + heads) * capacity[:, None]
        parts = self._parts(rows, counts, old, offset)
        # While no row comes, goes or moves, a step of all decoding rows reads what the step before read.
        key = (self._changes, len(rows)) if steady else (-1, 0)
        if not steady or self._remembered[0] != key:
            self._remembered = (key, *self._prefixes(rows, owner))
        return Batch(
            n=len(owner),
            order=None if same else begins[owner] + offset,
            position=self._index(self.base[rows][owner] + within),
            target=self._index(target.ravel()),
            parts=parts,
            grouped=self._remembered[1],
            shared=self._remembered[2],
        )

    def _parts(self, rows: Ints, counts: Ints, old: Ints, offset: Ints) -> list[Part]:
        region = self._region[rows]
        cuts = np.flatnonzero(np.diff(region)) + 1
        ends = np.cumsum(counts)
        parts = []
        for a, b in pairwise([0, *cuts.tolist(), len(rows)]):
            start, stop, t = int(ends[a] - counts[a]), int(ends[b - 1]), int(counts[a:b].max())
            s = int(self.tail[rows[a:b]].max())
            places = self._place[rows[a:b]]
            full = stop - start == (b - a) * t
            where = np.repeat(np.arange(b - a), counts[a:b]) * t + offset[start:stop]
            parts.append(
                Part(
                    region=self._regions[int(region[a])],
                    start=start,
                    stop=stop,
                    r=b - a,
                    t=t,
                    s=s,
                    places=None if int(places[-1]) == b - a - 1 else self._index(places),
                    mask=self._mask(old[a:b], t, s),
                    pad=None if full else self._index(where),
                )
            )
        return parts

    def _prefixes(
        self, rows: Ints, owner: Ints
    ) -> tuple[Grouped | None, list[tuple[KVSegment, Tensor | None]]]:
        """What rows read before their tails: slots all at once, and long segments one by one."""
        slot = self._slot[rows][owner]
        tokens = np.flatnonzero(slot >= 0)
        segments: dict[int, tuple[KVSegment, list[Ints]]] = {}
        grouped = None
        if len(tokens):
            grouped = self._grouped(slot[tokens], tokens, len(owner))
            if grouped is None:
                for one in np.unique(slot[tokens]).tolist():
                    segments[-1 - one] = self._slots.segment(one), [np.flatnonzero(slot == one)]
        begins = np.searchsorted(owner, np.arange(len(rows) + 1))
        for i, row in enumerate(rows.tolist()):
            for segment in self._long[row]:
                readers = np.arange(begins[i], begins[i + 1])
                segments.setdefault(id(segment), (segment, []))[1].append(readers)
        shared: list[tuple[KVSegment, Tensor | None]] = []
        for segment, members in segments.values():
            readers = np.concatenate(members)
            shared.append((segment, None if len(readers) == len(owner) else self._index(readers)))
        return grouped, shared

    def _grouped(self, slot: Ints, tokens: Ints, n: int) -> Grouped | None:
        """None where slots are shared so unevenly that room beside one another would be mostly empty."""
        used, group = np.unique(slot, return_inverse=True)
        dense = 2 * len(used) > int(used[-1])  # to read a few idle slots is cheaper than to gather the others
        if dense:
            used, group = np.arange(int(used[-1]) + 1), slot
        sizes = np.bincount(group, minlength=len(used))
        g, m, h = len(used), int(sizes.max()), self.kv_heads
        if g * m > PADDED * max(len(tokens), self._decoding):
            return None
        by_group = np.argsort(group, kind="stable")
        column = np.empty(len(tokens), np.int64)
        column[by_group] = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members = np.zeros((g, 1, m, 1), np.int64)
        members[group, 0, column, 0] = tokens
        head = np.arange(self.heads).reshape(h, 1, -1)
        each = self.heads // h
        places = (group[:, None, None] * h + np.arange(h)[:, None]) * m + column[:, None, None]
        # Idle slots hide nothing, so that what is read from them, and never used, is a number.
        length = self._slots.length[used]
        longest = int(length[sizes > 0].max())
        seen = np.where(sizes > 0, length, longest)
        return Grouped(
            g=g,
            slots=None if dense else self._index(used),
            length=longest,
            mask=self._mask(seen - 1, 1, longest),
            into=self._index((members * self.heads + head).ravel()),
            back=self._index((places * each + np.arange(each)).ravel()),
            tokens=None if len(tokens) == n else self._index(tokens),
        )

    def _index(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, non_blocking=True)

    def _mask(self, old: Ints, t: int, s: int) -> Tensor:
        """[rows * kv_heads, t, s]: token i of a row with `old` tokens before it sees the places up to old + i."""
        last = self._index(old)[:, None, None] + torch.arange(t, device=self.device)[:, None]
        hidden = torch.arange(s, device=self.device) > last
        mask = torch.zeros(hidden.shape, dtype=self._slots.kv.dtype, device=self.device).masked_fill_(
            hidden, -torch.inf
        )
        return mask[:, None].expand(-1, self.kv_heads, -1, -1).reshape(-1, t, s)

    # -- attention -------------------------------------------------------------------------------

    def attend(self, batch: Batch, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append k, v [N, kv_heads, d] and return what q [N, heads, d] reads, [N, heads * d]."""
        keys, values = self._layers[layer]
        keys.index_copy_(0, batch.target, k.reshape(-1, self.head_dim))
        values.index_copy_(0, batch.target, v.reshape(-1, self.head_dim))
        if batch.grouped is None and not batch.shared:
            alone = [self._tails_alone(part, layer, q[part.start : part.stop]) for part in batch.parts]
            return _joined(alone).reshape(batch.n, -1)
        reads = [self._tails(part, layer, q[part.start : part.stop]) for part in batch.parts]
        out, weight = _joined([r[0] for r in reads]), _joined([r[1] for r in reads])
        if batch.grouped is not None:
            found, mass = self._read_slots(batch.grouped, layer, q)
            out, weight = _merge(out, weight, found, mass, batch.grouped.tokens)
        for segment, tokens in batch.shared:
            found, mass = self._read(segment.kv[layer], q if tokens is None else q[tokens])
            out, weight = _merge(out, weight, found, mass, tokens)
        return out.to(q.dtype).reshape(batch.n, -1)

    def _tails_alone(self, part: Part, layer: int, q: Tensor) -> Tensor:
        """What rows without a chain read, [n, heads, d]."""
        scores, values = self._scores(part, layer, q)
        share = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
        return self._flat(part, torch.bmm(share, values))

    def _tails(self, part: Part, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
        """What rows read from their tails [n, heads, d], and the log of its mass [n, heads, 1]."""
        scores, values = self._scores(part, layer, q)
        mass = torch.logsumexp(scores.float(), -1, keepdim=True)
        found = torch.bmm(torch.exp(scores - mass).to(q.dtype), values)
        return self._flat(part, found.float()), self._flat(part, mass)

    def _scores(self, part: Part, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [R * kv_heads, g * T, S] and the values [R * kv_heads, S, d] that they weigh."""
        kv = part.region.kv[layer]
        kv = kv[:, : part.r] if part.places is None else kv[:, part.places]
        keys, values = kv[:, :, :, : part.s].flatten(1, 2).unbind()
        padded = self._padded(part, q)
        mask = _repeat(part.mask, padded.shape[1] // part.t)
        return torch.baddbmm(mask, padded, keys.transpose(1, 2), alpha=self.head_dim**-0.5), values

    def _padded(self, part: Part, q: Tensor) -> Tensor:
        """[n, heads, d] -> [R * kv_heads, g * T, d], rows of queries beside their keys."""
        h, d = self.kv_heads, self.head_dim
        g = q.shape[1] // h
        if part.t == 1:
            return q.reshape(part.r * h, g, d)
        if part.pad is not None:
            full = q.new_zeros(part.r * part.t, *q.shape[1:])
            q = full.index_copy_(0, part.pad, q)
        return q.reshape(part.r, part.t, h, g, d).permute(0, 2, 3, 1, 4).reshape(part.r * h, g * part.t, d)

    def _flat(self, part: Part, x: Tensor) -> Tensor:
        """[R * kv_heads, g * T, c] -> [n, heads, c]."""
        h = self.kv_heads
        g = x.shape[1] // part.t
        if part.t == 1:
            return x.view(part.r, h * g, -1)
        x = x.view(part.r, h, g, part.t, -1).permute(0, 3, 1, 2, 4).reshape(part.r * part.t, h * g, -1)
        return x if part.pad is None else x[part.pad]

    def _read_slots(self, grouped: Grouped, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
        """What the tokens concerned read from their slots [n, heads, d], and the log of its mass [n, heads, 1]."""
        heads, d = q.shape[1:]
        kv = self._slots.kv[layer]
        kv = kv[:, : grouped.g] if grouped.slots is None else kv[:, grouped.slots]
        keys, values = kv[:, :, :, : grouped.length].flatten(1, 2).unbind()
        queries = q.reshape(-1, d)[grouped.into].view(len(keys), -1, d)
        scores = torch.baddbmm(grouped.mask, queries, keys.transpose(1, 2), alpha=d**-0.5)
        mass = torch.logsumexp(scores.float(), -1, keepdim=True)
        found = torch.bmm(torch.exp(scores - mass).to(q.dtype), values)
        back = grouped.back
        return found.view(-1, d)[back].float().view(-1, heads, d), mass.view(-1)[back].view(-1, heads, 1)

    def _read(self, kv: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of q [n, heads, d] over a segment: what is read, and the log of the mass."""
        h, d = self.kv_heads, self.head_dim
        n, heads = q.shape[:2]
        most = max(1, SCORES // (heads * kv.shape[2]))
        if n > most:
            pieces = [self._read(kv, q[i : i + most]) for i in range(0, n, most)]
            return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
        flat = q.reshape(n, h, heads // h, d).transpose(0, 1).reshape(h, -1, d)
        scores = torch.bmm(flat, kv[0].transpose(1, 2)).float().mul_(d**-0.5)
        mass = torch.logsumexp(scores, -1, keepdim=True)
        found = torch.bmm(torch.exp(scores - mass).to(q.dtype), kv[1]).float()

        def back(x: Tensor) -> Tensor:
            return x.view(h, n, heads // h, -1).transpose(0, 1).reshape(n, heads, -1)

        return back(found), back(mass)


def slot_tokens(capacity: int) -> int:
    """Tokens of a slot beside tails of at most `capacity`."""
    return min(IN_PLACE, capacity)


def store_tokens(rows: int, decoding: int, capacities: Sequence[int]) -> int:
    """Tokens that a store has room for."""
    last = capacities[-1]
    return decoding * sum(capacities) + (rows - decoding) * last + rows * slot_tokens(last)


def _joined(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _merge(
    out: Tensor, weight: Tensor, found: Tensor, mass: Tensor, tokens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Add what `tokens` (None: all) read elsewhere to what they read so far; both are in proportion to their mass."""
    mine = weight if tokens is None else weight[tokens]
    both = torch.logaddexp(mine, mass)
    old, new = torch.exp(mine - both), torch.exp(mass - both)
    if tokens is None:
        return out * old + found * new, both
    out.index_copy_(0, tokens, out[tokens] * old + found * new)
    weight.index_copy_(0, tokens, both)
    return out, weight


def _repeat(mask: Tensor, g: int) -> Tensor:
    """[B, T, S] -> [B, g * T, S]: the query heads of a group see the same."""
    if g == 1:
        return mask
    b, t, s = mask.shape
    if t == 1:
        return mask.expand(b, g, s)
    return mask[:, None].expand(b, g, t, s).reshape(b, g * t, s)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU, memory that is never written is never touched, so that room kept in reserve costs nothing."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(max(size, 1), np.uint8))[:size].view(dtype).view(shape)
