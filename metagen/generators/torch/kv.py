"""Keys and values of running rows: a dense tail per row, behind a chain of shared segments.

Rows write into *tails*, one block of memory in which all rows are attended to by one batched product.
Before its tail a row may have a *chain* of segments, which stay where they are: a segment is attended to
once for all rows that share it, so a long prompt is read once however many samples continue it. The parts
are joined by their log-sum-exps. A tail that is full is frozen into one more segment of the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metagen.generators.torch.language_model import Ints

#: Segments at least so long are attended to in place by the rows opened over them; shorter ones are copied.
IN_PLACE = 128
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


@dataclass(frozen=True, slots=True)
class Batch:
    """One extension, as attention sees it. N flat tokens of R rows, at most T per row, tails up to S long.

    rows: [R] tensor, or None for rows 0 … R-1. slots: [N * kv_heads] places of the new keys in a
    layer's tail. mask: [R * kv_heads, T, S] additive, 0 or -inf. pad: [N] places of the flat tokens among R x T, or
    None where they are the same. shared: segments with the flat tokens that attend to them (None: all).
    """

    n: int
    r: int
    t: int
    s: int
    rows: Tensor | None
    slots: Tensor
    mask: Tensor
    pad: Tensor | None
    shared: list[tuple[KVSegment, Tensor | None]]


class KVStore:
    """Tails [layers, 2, rows, kv_heads, capacity, head_dim], and each row's chain.

    `base` and `tail` count the tokens of each row that lie in its chain and in its tail.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        rows: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.kv_heads, self.head_dim, self.capacity = kv_heads, head_dim, capacity
        # Zeros, because masked places are multiplied by 0 and memory that was never written may hold NaN.
        self.tails = torch.zeros(layers, 2, rows, kv_heads, capacity, head_dim, dtype=dtype, device=device)
        self.layers = [(self.tails[i, 0], self.tails[i, 1]) for i in range(layers)]
        self.base = np.zeros(rows, np.int64)
        self.tail = np.zeros(rows, np.int64)
        self.chains: list[list[KVSegment]] = [[] for _ in range(rows)]
        self.device = device
        self._changes = 0
        self._last_shared: tuple[tuple[int, int], list[tuple[KVSegment, Tensor | None]]] = ((-1, 0), [])

    # -- rows ------------------------------------------------------------------------------------

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        """Long leading segments stay in place; the rest is copied into the tails, or joined if too long."""
        self._changes += 1
        lead = 0
        while lead < len(chain) and len(chain[lead]) >= IN_PLACE:
            lead += 1
        held, rest = list(chain[:lead]), list(chain[lead:])
        copied = sum(map(len, rest))
        if copied > self.capacity // 2:
            held, rest, copied = [*held, KVSegment.join(rest)], [], 0
        self.base[rows] = sum(map(len, held))
        self.tail[rows] = copied
        for row in rows.tolist():
            self.chains[row] = list(held)
        if rest:
            first, last = int(rows[0]), int(rows[-1])
            dense = last - first + 1 == len(rows) and (np.diff(rows) == 1).all()
            kv = KVSegment.join(rest).kv[:, :, None]
            where = slice(first, last + 1) if dense else self._index(rows)
            self.tails[:, :, where, :, :copied] = kv

    def fork(self, sources: Ints, targets: Ints) -> None:
        self._changes += 1
        used = int(self.tail[sources].max())
        if len(sources) == 1:
            src, dst = int(sources[0]), int(targets[0])
            self.tails[:, :, dst, :, :used] = self.tails[:, :, src, :, :used]
        else:
            block = self.tails[:, :, self._index(sources), :, :used]
            self.tails[:, :, self._index(targets), :, :used] = block
        self.base[targets], self.tail[targets] = self.base[sources], self.tail[sources]
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.chains[target] = list(self.chains[source])

    def truncate(self, row: int, length: int) -> None:
        if length >= self.base[row]:
            self.tail[row] = length - self.base[row]
            return
        kept = self.save(row, 0, length) if length else None
        self.open(np.array([row]), [kept] if kept is not None else [])

    def close(self, rows: Ints, *, poisoned: bool) -> None:
        self._changes += 1
        self.base[rows] = self.tail[rows] = 0
        for row in rows.tolist():
            self.chains[row] = []
        if poisoned:
            self.tails[:, :, self._index(rows)] = 0

    def save(self, row: int, start: int, stop: int) -> KVSegment:
        """A copy of the row's tokens start … stop-1."""
        base = int(self.base[row])
        if start >= base:
            return KVSegment(self.tails[:, :, row, :, start - base : stop - base].clone())
        parts, at = [], 0
        for segment in self.chains[row]:
            a, b = max(start - at, 0), min(stop - at, len(segment))
            if a < b:
                parts.append(segment.kv[:, :, :, a:b])
            at += len(segment)
        if stop > base:
            parts.append(self.tails[:, :, row, :, : stop - base])
        return KVSegment(torch.cat(parts, dim=3))

    def spill(self, tokens: int) -> int:
        """A tail is frozen when it is full; what was copied on opening is at most half of one."""
        return (tokens + self.capacity // 2) // self.capacity * self.capacity

    def _freeze(self, row: int) -> None:
        self._changes += 1
        used = int(self.tail[row])
        self.chains[row].append(KVSegment(self.tails[:, :, row, :, :used].clone()))
        self.base[row] += used
        self.tail[row] = 0

    # -- attention -------------------------------------------------------------------------------

    def begin(self, rows: Ints, counts: Ints | None) -> tuple[Batch, Tensor]:
        """Make room for the new tokens; returns the batch and the tokens' positions [N]."""
        most = 1 if counts is None else int(counts.max())
        if (full := self.tail[rows] + (1 if counts is None else counts) > self.capacity).any():
            for row in rows[full].tolist():
                self._freeze(row)
        r = len(rows)
        old = self.tail[rows]
        if counts is None:
            owner, offset = np.arange(r), np.zeros(r, np.int64)
        else:
            owner = np.repeat(np.arange(r), counts)
            offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = old[owner] + offset
        self.tail[rows] += 1 if counts is None else counts
        s = int(self.tail[rows].max())
        heads = np.arange(self.kv_heads)
        slots = ((rows[owner, None] * self.kv_heads + heads) * self.capacity + place[:, None]).ravel()
        dense = bool(rows[0] == 0 and rows[-1] == r - 1 and (np.diff(rows) == 1).all())
        batch = Batch(
            n=len(owner),
            r=r,
            t=most,
            s=s,
            rows=None if dense else self._index(rows),
            slots=self._index(slots),
            mask=self._mask(old, most, s),
            pad=None if len(owner) == r * most else self._index(owner * most + offset),
            shared=self._decode_shared(rows, owner) if dense and most == 1 else self._shared(rows, owner),
        )
        return batch, self._index(self.base[rows][owner] + place)

    def _index(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, non_blocking=True)

    def _mask(self, old: Ints, t: int, s: int) -> Tensor:
        """Token i of a row with `old` tokens in its tail sees the places up to old + i."""
        last = self._index(old)[:, None, None] + torch.arange(t, device=self.device)[:, None]
        hidden = torch.arange(s, device=self.device) > last
        mask = torch.zeros(hidden.shape, dtype=self.tails.dtype, device=self.device).masked_fill_(
            hidden, -torch.inf
        )
        return mask[:, None].expand(-1, self.kv_heads, -1, -1).reshape(-1, t, s)

    def _decode_shared(self, rows: Ints, owner: Ints) -> list[tuple[KVSegment, Tensor | None]]:
        """`_shared`, remembered from step to step while no row changes."""
        key = (self._changes, len(rows))
        if self._last_shared[0] != key:
            self._last_shared = (key, self._shared(rows, owner))
        return self._last_shared[1]

    def _shared(self, rows: Ints, owner: Ints) -> list[tuple[KVSegment, Tensor | None]]:
        if not self.base[rows].any():
            return []
        groups: dict[int, tuple[KVSegment, list[int]]] = {}
        for i, row in enumerate(rows.tolist()):
            for segment in self.chains[row]:
                groups.setdefault(id(segment), (segment, []))[1].append(i)
        shared: list[tuple[KVSegment, Tensor | None]] = []
        for segment, members in groups.values():
            everyone = len(members) == len(rows)
            tokens = None if everyone else self._index(np.flatnonzero(np.isin(owner, members)))
            shared.append((segment, tokens))
        return shared

    def attend(self, batch: Batch, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append k, v [N, kv_heads, d] and return what q [N, heads, d] reads, [N, heads * d]."""
        h, d = self.kv_heads, self.head_dim
        g = q.shape[1] // h
        keys, values = self.layers[layer]
        keys.view(-1, d).index_copy_(0, batch.slots, k.reshape(-1, d))
        values.view(-1, d).index_copy_(0, batch.slots, v.reshape(-1, d))
        keys, values = self._tails(batch, keys), self._tails(batch, values)
        scores = torch.baddbmm(
            _repeat(batch.mask, g), self._padded(batch, q, g), keys.transpose(1, 2), alpha=d**-0.5
        )
        if not batch.shared:
            share = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
            return self._flat(batch, torch.bmm(share, values), g).reshape(batch.n, -1)
        weight = torch.logsumexp(scores.float(), -1, keepdim=True)
        found = torch.bmm(torch.exp(scores - weight).to(q.dtype), values)
        out, weight = self._flat(batch, found.float(), g), self._flat(batch, weight, g)
        for segment, tokens in batch.shared:
            out, weight = self._join(out, weight, segment.kv[layer], q, tokens)
        return out.to(q.dtype).reshape(batch.n, -1)

    def _tails(self, batch: Batch, part: Tensor) -> Tensor:
        """[R * kv_heads, S, d]: a view where the rows are dense, else a copy."""
        if batch.rows is None:
            return part[: batch.r].view(-1, self.capacity, self.head_dim)[:, : batch.s]
        return part[batch.rows, :, : batch.s].view(-1, batch.s, self.head_dim)

    def _padded(self, batch: Batch, q: Tensor, g: int) -> Tensor:
        """[N, heads, d] -> [R * kv_heads, g * T, d], rows of queries beside their keys."""
        h, d = self.kv_heads, self.head_dim
        if batch.t == 1:
            return q.reshape(batch.r * h, g, d)
        if batch.pad is not None:
            full = q.new_zeros(batch.r * batch.t, *q.shape[1:])
            q = full.index_copy_(0, batch.pad, q)
        return q.view(batch.r, batch.t, h, g, d).permute(0, 2, 3, 1, 4).reshape(batch.r * h, g * batch.t, d)

    def _flat(self, batch: Batch, x: Tensor, g: int) -> Tensor:
        """[R * kv_heads, g * T, c] -> [N, heads, c]."""
        h = self.kv_heads
        if batch.t == 1:
            return x.view(batch.r, h * g, -1)
        x = x.view(batch.r, h, g, batch.t, -1).permute(0, 3, 1, 2, 4).reshape(batch.r * batch.t, h * g, -1)
        return x if batch.pad is None else x[batch.pad]

    def _join(
        self, out: Tensor, weight: Tensor, kv: Tensor, q: Tensor, tokens: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Add what `tokens` read from a segment that all of them see in full."""
        if tokens is not None:
            q = q[tokens]
        found, mass = self._read(kv, q)
        mine = weight if tokens is None else weight[tokens]
        both = torch.logaddexp(mine, mass)
        old, new = torch.exp(mine - both), torch.exp(mass - both)
        if tokens is None:
            return out * old + found * new, both
        out.index_copy_(0, tokens, out[tokens] * old + found * new)
        weight.index_copy_(0, tokens, both)
        return out, weight

    def _read(self, kv: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of q [n, heads, d] over a segment: what is read, and the log of the mass."""
        h, d = self.kv_heads, self.head_dim
        n, heads = q.shape[:2]
        most = max(1, SCORES // (heads * kv.shape[2]))
        if n > most:
            pieces = [self._read(kv, q[i : i + most]) for i in range(0, n, most)]
            return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
        flat = q.view(n, h, heads // h, d).transpose(0, 1).reshape(h, -1, d)
        scores = torch.bmm(flat, kv[0].transpose(1, 2)).float().mul_(d**-0.5)
        mass = torch.logsumexp(scores, -1, keepdim=True)
        found = torch.bmm(torch.exp(scores - mass).to(q.dtype), kv[1]).float()

        def back(x: Tensor) -> Tensor:
            return x.view(h, n, heads // h, -1).transpose(0, 1).reshape(n, heads, -1)

        return back(found), back(mass)


def _repeat(mask: Tensor, g: int) -> Tensor:
    """[B, T, S] -> [B, g * T, S]: the query heads of a group see the same."""
    if g == 1:
        return mask
    b, t, s = mask.shape
    if t == 1:
        return mask.expand(b, g, s)
    return mask[:, None].expand(b, g, t, s).reshape(b, g * t, s)
