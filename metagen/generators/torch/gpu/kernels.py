"""What torch has no operation for: attention to pieces and tails, and a block's small operations, each in one kernel.

They compute in float32 and round at the end, as torch's operations do. A *table* [N, 9] says of each token:

- its id, and its place in the text;
- how many tokens of its row's tail come before it; -1 where there is no token;
- where the tail begins, and how far its heads lie apart;
- from and to in the *pieces* [P, 6] that it reads before the tail (`Chains.located`), for itself;
- from and to in what is `listed` of the rows that `_share` finds for it, in pieces that it reads with others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Columns of a table, and of the pieces.
COLUMNS, PIECE = 9, 6
#: Tokens of keys and values that a program reads at once.
BLOCK = 64
#: Programs that a multiprocessor should have at least before rows are cut no further, and parts of a row at most.
BUSY, MOST = 2, 32
#: Queries of all heads that read the same keys, at most, which a program reads a shared piece for.
QUERIES = 64


@triton.jit
def _normalise(x, more, weight, out, width, eps, JOINS: tl.constexpr, SIZE: tl.constexpr):
    """Let x [N, width] += more, and out = its root mean square normalisation; one program a token."""
    at = tl.arange(0, SIZE)
    inside = at < width
    place = tl.program_id(0).to(tl.int64) * width + at
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if JOINS:
        wide += tl.load(more + place, mask=inside, other=0.0).to(tl.float32)
        # The sum is rounded before it is normalised, as that of two tensors is.
        value = wide.to(x.dtype.element_ty)
        tl.store(x + place, value, mask=inside)
        wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / width + eps)
    found = wide * scale * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rotate(
    qkv, table, turns, norms, keys, values, eps,
    HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, NORMS: tl.constexpr,
):  # fmt: skip
    """Rotate queries where they are; keys, rotated, and values go to the tails. One program a token and head."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position, old = tl.load(table + token * 9 + 1), tl.load(table + token * 9 + 2)
    tail, apart = tl.load(table + token * 9 + 3), tl.load(table + token * 9 + 4)
    pair = tl.arange(0, HALF)
    inside = pair < DIM // 2
    here = qkv + (token * (HEADS + 2 * KV) + head) * DIM + 2 * pair
    even = tl.load(here, mask=inside, other=0.0).to(tl.float32)
    odd = tl.load(here + 1, mask=inside, other=0.0).to(tl.float32)
    if head < HEADS + KV:
        if NORMS:
            scale = 1.0 / tl.sqrt(tl.sum(even * even + odd * odd, 0) / DIM + eps)
            even *= scale * tl.load(norms + head * DIM + 2 * pair, mask=inside, other=0.0).to(tl.float32)
            odd *= scale * tl.load(norms + head * DIM + 2 * pair + 1, mask=inside, other=0.0).to(tl.float32)
        cos = tl.load(turns + position * DIM + 2 * pair, mask=inside, other=0.0)
        sin = tl.load(turns + position * DIM + 2 * pair + 1, mask=inside, other=0.0)
        first = even * cos - odd * sin
        odd = even * sin + odd * cos
        even = first
    if head < HEADS:
        tl.store(here, even.to(qkv.dtype.element_ty), mask=inside)
        tl.store(here + 1, odd.to(qkv.dtype.element_ty), mask=inside)
    else:
        writes = inside & (0 * pair + old >= 0)
        number = (head - HEADS) % KV
        place = (tail + number * apart + tl.maximum(old, 0)) * DIM + 2 * pair
        if head < HEADS + KV:
            tl.store(keys + place, even.to(qkv.dtype.element_ty), mask=writes)
            tl.store(keys + place + 1, odd.to(qkv.dtype.element_ty), mask=writes)
        else:
            tl.store(values + place, even.to(qkv.dtype.element_ty), mask=writes)
            tl.store(values + place + 1, odd.to(qkv.dtype.element_ty), mask=writes)


@triton.jit
def _read(
    q, top, total, found, keys, values, step, begin, length, first, parts, scale,
    DIM: tl.constexpr, SIZE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Go on with a softmax over every `parts`-th block of the tokens from `begin` to `length`, from block `first`."""
    at, dim = tl.arange(0, TOKENS), tl.arange(0, SIZE)
    for block in range(first, tl.cdiv(length - begin, TOKENS), parts):
        token = begin + block * TOKENS + at
        place = token[:, None] * step + dim[None, :]
        seen = (token < length)[:, None] & (dim < DIM)[None, :]
        key = tl.load(keys + place, mask=seen, other=0.0)
        scores = tl.dot(q, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where((token < length)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        share = tl.exp(scores - higher[:, None])
        kept = tl.exp(top - higher)
        value = tl.load(values + place, mask=seen, other=0.0)
        total = total * kept + tl.sum(share, 1)
        found = found * kept[:, None] + tl.dot(share.to(value.dtype), value, input_precision="ieee")
        top = higher
    return top, total, found


@triton.jit(do_not_specialize=["layer", "parts"])
def _attend(
    qkv, table, pieces, keys, values, out, sums, layer, parts, scale,
    HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
    TOKENS: tl.constexpr, EVEN: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """What the queries of a token find: one program a token, head of keys, and part of what is read.

    EVEN: a number that divides all distances in the pieces, and the addresses. WHOLE: there is one part, and `out`
    [N, HEADS * DIM] takes it. Else `out` [N, HEADS, parts, DIM] takes the sum of values of each part, in float32, and
    `sums` [N, HEADS, parts, 2] its best score and the sum of weights.
    """
    EACH: tl.constexpr = HEADS // KV
    token, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    old = tl.load(table + token * 9 + 2)
    tail, apart = tl.load(table + token * 9 + 3), tl.load(table + token * 9 + 4)
    begin, end = tl.load(table + token * 9 + 5), tl.load(table + token * 9 + 6)
    query, dim = tl.arange(0, GROUP), tl.arange(0, SIZE)
    real = (query < EACH)[:, None] & (dim < DIM)[None, :]
    number = head * EACH + query
    q = tl.load(qkv + (token * (HEADS + 2 * KV) + number[:, None]) * DIM + dim[None, :], mask=real, other=0.0)
    # A number, since the difference of two infinities is none.
    top = tl.full((GROUP,), -1e30, tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    found = tl.zeros((GROUP, SIZE), tl.float32)
    for piece in range(begin, end):
        record = pieces + piece * 6
        kv = tl.load(record).to(tl.pointer_type(keys.dtype.element_ty))
        step = tl.multiple_of(tl.load(record + 4), EVEN)
        kv += tl.multiple_of(layer * tl.load(record + 1) + head * tl.load(record + 3), EVEN)
        kv = tl.multiple_of(kv, EVEN)
        other = kv + tl.multiple_of(tl.load(record + 2), EVEN)
        first = (part + piece) % parts
        top, total, found = _read(
            q,
            top,
            total,
            found,
            kv,
            other,
            step,
            0,
            tl.load(record + 5),
            first,
            parts,
            scale,
            DIM,
            SIZE,
            TOKENS,
        )
    own = (tail + head * apart) * DIM
    top, total, found = _read(
        q, top, total, found, keys + own, values + own, DIM, 0, old + 1, part, parts, scale, DIM, SIZE, TOKENS
    )
    if WHOLE:
        found = found / tl.where(total > 0, total, 1.0)[:, None]
        place = (token * HEADS + number[:, None]) * DIM + dim[None, :]
        tl.store(out + place, found.to(out.dtype.element_ty), mask=real)
    else:
        place = (token * HEADS + number) * parts + part
        tl.store(out + place[:, None] * DIM + dim[None, :], found, mask=real)
        tl.store(sums + 2 * place, top, mask=query < EACH)
        tl.store(sums + 2 * place + 1, total, mask=query < EACH)


@triton.jit(do_not_specialize=["layer"])
def _share(
    qkv, members, jobs, pieces, out, sums, layer, scale,
    HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
    TILE: tl.constexpr, TOKENS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """What the queries of several tokens find in a part of a piece: one program a job (`shared`) and head of keys.

    `out` [rows, HEADS, DIM] takes the sums of values, in float32, and `sums` [rows, HEADS, 2] the best score and the
    sum of weights.
    """
    EACH: tl.constexpr = HEADS // KV
    job, head = jobs + tl.program_id(0) * 6, tl.program_id(1)
    count = tl.load(job + 1)
    if count > 0:
        query, dim = tl.arange(0, TILE * GROUP), tl.arange(0, SIZE)
        slot, number = query // GROUP, head * EACH + query % GROUP
        real = (slot < count) & (query % GROUP < EACH)
        token = tl.load(members + tl.load(job) + slot, mask=real, other=0)
        wide = real[:, None] & (dim < DIM)[None, :]
        place = (token * (HEADS + 2 * KV) + number)[:, None] * DIM + dim[None, :]
        q = tl.load(qkv + place, mask=wide, other=0.0)
        top = tl.full((TILE * GROUP,), -1e30, tl.float32)
        total = tl.zeros((TILE * GROUP,), tl.float32)
        found = tl.zeros((TILE * GROUP, SIZE), tl.float32)
        record = pieces + tl.load(job + 2) * 6
        kv = tl.load(record).to(tl.pointer_type(qkv.dtype.element_ty))
        step = tl.multiple_of(tl.load(record + 4), EVEN)
        kv += tl.multiple_of(layer * tl.load(record + 1) + head * tl.load(record + 3), EVEN)
        kv = tl.multiple_of(kv, EVEN)
        other = kv + tl.multiple_of(tl.load(record + 2), EVEN)
        begin, end = tl.load(job + 3), tl.load(job + 4)
        top, total, found = _read(
            q, top, total, found, kv, other, step, begin, end, 0, 1, scale, DIM, SIZE, TOKENS
        )
        row = (tl.load(job + 5) + slot) * HEADS + number
        tl.store(out + row[:, None] * DIM + dim[None, :], found, mask=wide)
        tl.store(sums + 2 * row, top, mask=real)
        tl.store(sums + 2 * row + 1, total, mask=real)


@triton.jit(do_not_specialize=["parts"])
def _join(
    out, parted, sums, parts, table, listed, more, masses,
    HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, MOST: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """Join what the parts of a row have found, and with SHARES what `_share` has; one program a token and head."""
    row = tl.program_id(0).to(tl.int64)
    part, dim = tl.arange(0, MOST), tl.arange(0, SIZE)
    inside = dim < DIM
    there = part < parts
    top = tl.load(sums + 2 * (row * parts + part), mask=there, other=-1e30)
    total = tl.load(sums + 2 * (row * parts + part) + 1, mask=there, other=0.0)
    best = tl.max(top, 0)
    share = tl.where(there, tl.exp(top - best), 0.0)
    sum = tl.sum(total * share, 0)
    place = (row * parts + part[:, None]) * DIM + dim[None, :]
    found = tl.load(parted + place, mask=there[:, None] & inside[None, :], other=0.0)
    joined = tl.sum(found * share[:, None], 0)
    if SHARES:
        token = row // HEADS
        end = tl.load(table + token * 9 + 8)
        for first in range(tl.load(table + token * 9 + 7), end, MOST):
            there = first + part < end
            other = tl.load(listed + first + part, mask=there, other=0) * HEADS + row % HEADS
            top = tl.load(masses + 2 * other, mask=there, other=-1e30)
            total = tl.load(masses + 2 * other + 1, mask=there, other=0.0)
            higher = tl.maximum(best, tl.max(top, 0))
            share = tl.where(there, tl.exp(top - higher), 0.0)
            place = other[:, None] * DIM + dim[None, :]
            found = tl.load(more + place, mask=there[:, None] & inside[None, :], other=0.0)
            kept = tl.exp(best - higher)
            sum = sum * kept + tl.sum(total * share, 0)
            joined = joined * kept + tl.sum(found * share[:, None], 0)
            best = higher
    joined = joined / tl.maximum(sum, 1e-30)
    tl.store(out + row * DIM + dim, joined.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate(both, out, width, SIZE: tl.constexpr):
    """Let out [N, width] = SiLU of the first half of `both` [N, 2 * width], times the second."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = at < width
    gate = tl.load(both + token * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + token * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    found = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + token * width + at, found.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True)
class Heads:
    """heads: of the queries. kv: of the keys."""

    heads: int
    kv: int
    dim: int

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.dim)


@dataclass(frozen=True, slots=True)
class Reads:
    """What tokens read before their tails. Where it lies does not change, so that graphs can read it.

    pieces: [P, PIECE]. jobs: [J, 6], members: [M] and listed: [L] (`shared.Plan`). rows: that jobs may find.
    """

    pieces: Tensor
    jobs: Tensor
    members: Tensor
    listed: Tensor
    rows: int


def normalise(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """[N, width]: x + more, which x [N, width] becomes, by its root mean square and times weight [width]."""
    out = torch.empty_like(x)
    width = x.shape[1]
    size = triton.next_power_of_2(width)
    joined = x if more is None else more
    _normalise[(len(x),)](x, joined, weight, out, width, eps, more is not None, size, num_warps=_warps(size))
    return out


def rotate(
    qkv: Tensor, table: Tensor, turns: Tensor, norms: Tensor | None, keys: Tensor, values: Tensor, of: Heads, eps: float
) -> None:  # fmt: skip
    """Rotate the queries in qkv [N, (heads + 2 kv) * dim]; put keys and values into the tails of a layer [places, dim].

    turns: [context, dim] cosine and sine of each pair. norms: [heads + kv, dim], where queries and keys are normed.
    """
    half = triton.next_power_of_2(of.dim // 2)
    _rotate[(len(qkv), of.heads + 2 * of.kv)](
        qkv, table, turns, qkv if norms is None else norms, keys, values, eps, of.heads, of.kv, of.dim, half,
        norms is not None, num_warps=1,
    )  # fmt: skip


def tile(of: Heads) -> int:
    """Tokens that a program of `_share` reads for, at most."""
    return max(1, QUERIES // int(triton.next_power_of_2(of.heads // of.kv)))


def attend(
    qkv: Tensor, table: Tensor, reads: Reads, keys: Tensor, values: Tensor, layer: int, of: Heads, processors: int,
    shares: bool,
) -> Tensor:  # fmt: skip
    """What each token's queries read in its pieces and its tail: [N, heads * dim]. shares: there are jobs."""
    n, size = len(qkv), triton.next_power_of_2(max(of.dim, 16))
    group = max(16, triton.next_power_of_2(of.heads // of.kv))
    parts = min(MOST, max(1, BUSY * processors // (n * of.kv)))
    out = torch.empty(n, of.heads * of.dim, dtype=qkv.dtype, device=qkv.device)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": qkv.device}
    whole, even = parts == 1 and not shares, math.gcd(of.dim, 16)
    parted = out if whole else torch.empty(n, of.heads, parts, of.dim, **wide)
    sums = out if whole else torch.empty(n, of.heads, parts, 2, **wide)
    _attend[(n, of.kv, parts)](
        qkv, table, reads.pieces, keys, values, parted, sums, layer, parts, of.scale, of.heads, of.kv, of.dim, size,
        group, BLOCK, even, whole, num_warps=4,
    )  # fmt: skip
    more, masses = parted, sums
    if shares:
        more = torch.empty(reads.rows, of.heads, of.dim, **wide)
        masses = torch.empty(reads.rows, of.heads, 2, **wide)
        _share[(len(reads.jobs), of.kv)](
            qkv, reads.members, reads.jobs, reads.pieces, more, masses, layer, of.scale, of.heads, of.kv, of.dim,
            size, triton.next_power_of_2(of.heads // of.kv), tile(of), BLOCK, even, num_warps=4,
        )  # fmt: skip
    if not whole:
        _join[(n * of.heads,)](
            out, parted, sums, parts, table, reads.listed, more, masses, of.heads, of.dim, size, MOST, shares,
            num_warps=1,
        )  # fmt: skip
    return out


def gate(both: Tensor) -> Tensor:
    """[N, width]: SiLU of the first half of both [N, 2 * width], times the second."""
    width = both.shape[1] // 2
    out = torch.empty(len(both), width, dtype=both.dtype, device=both.device)
    size = 1024
    _gate[(len(both), triton.cdiv(width, size))](both, out, width, size, num_warps=4)
    return out


def _warps(size: int) -> int:
    return max(1, min(8, size // 512))
