"""The next token of each row where nothing but a temperature shapes what is drawn: `sampling.draw` in three kernels.

Weights are summed in float32 within blocks, and over blocks and within the chosen one in float64.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.torch.send import send

#: Tokens whose weights are summed in float32, and blocks of a program.
BLOCK, BLOCKS = 256, 16
#: By how much the sums of blocks and those of tokens may differ, as a share.
ROUNDING = 1e-7
#: 1 / temperature at most, which float32 holds.
HOT = 3e38


@triton.jit
def _best(logits, tops, places, vocab, parts, SIZE: tl.constexpr):
    """The two best logits of each part, tops [N, parts, 2], and the first place of the best, places [N, parts]."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * SIZE + tl.arange(0, SIZE)
    z = tl.load(logits + row * vocab + at, mask=at < vocab, other=float("-inf"))
    top = tl.max(z, 0)
    place = tl.min(tl.where(z == top, at, vocab), 0)
    second = tl.max(tl.where(at == place, float("-inf"), z), 0)
    to = row * parts + part
    tl.store(tops + 2 * to, top)
    tl.store(tops + 2 * to + 1, second)
    tl.store(places + to, place)


@triton.jit
def _weigh(
    logits, tops, rules, sums, vocab, parts, blocks, out, PARTS: tl.constexpr, BLOCK: tl.constexpr, EACH: tl.constexpr
):  # fmt: skip
    """The sums of blocks under the raw model and under the temperature: sums [N, 2, blocks].

    rules: [N, 2] u and 1 / temperature, 0 where that is 0.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    each = tl.arange(0, PARTS)
    best = tl.max(tl.load(tops + 2 * (row * parts + each), mask=each < parts, other=float("-inf")), 0)
    by = tl.load(rules + 2 * row + 1).to(tl.float32)
    block = part * EACH + tl.arange(0, EACH)
    at = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    z = tl.load(logits + row * vocab + at, mask=at < vocab, other=float("-inf"))
    raw = tl.sum(tl.exp(z - best), 1)
    tl.store(sums + 2 * row * blocks + block, raw, mask=block < blocks)
    if (by != 0) & (by != 1):
        shaped = tl.where(z < best - out, 0.0, tl.exp((z - best) * by))
        raw = tl.sum(shaped, 1)
    tl.store(sums + (2 * row + 1) * blocks + block, raw, mask=block < blocks)


@triton.jit
def _below(x):
    """The number just below a positive x, in float64."""
    return (x.to(tl.int64, bitcast=True) - 1).to(tl.float64, bitcast=True)


@triton.jit
def _choose(
    logits, tops, places, rules, sums, found, vocab, parts, blocks, near, out, rounding,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Put into found [N, 4], in float64, the token, its log-probability, whether it is near an edge, and is none."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    there = part < parts
    first = tl.load(tops + 2 * (row * parts + part), mask=there, other=float("-inf"))
    second = tl.load(tops + 2 * (row * parts + part) + 1, mask=there, other=float("-inf"))
    place = tl.load(places + row * parts + part, mask=there, other=vocab)
    best = tl.max(first, 0)
    token = tl.min(tl.where(first == best, place, vocab), 0)
    next_best = tl.max(tl.where(place == token, second, first), 0)
    u = tl.load(rules + 2 * row)
    by = tl.load(rules + 2 * row + 1)
    block = tl.arange(0, SIZE)
    mass = tl.sum(tl.load(sums + 2 * row * blocks + block, mask=block < blocks, other=0.0).to(tl.float64), 0)
    edge = (best - next_best) < near
    if by != 0:
        weights = tl.load(sums + (2 * row + 1) * blocks + block, mask=block < blocks, other=0.0).to(
            tl.float64
        )
        total = tl.sum(weights, 0)
        goal = tl.minimum(u * total, _below(total))
        which = tl.sum((tl.cumsum(weights, 0) <= goal).to(tl.int32), 0)
        # Rounding may lead beyond the last that has any weight, here and below.
        which = tl.minimum(which, tl.max(tl.where(weights > 0, block, 0), 0))
        before = tl.sum(tl.where(block < which, weights, 0.0), 0)
        lane = tl.arange(0, BLOCK)
        at = which * BLOCK + lane
        z = tl.load(logits + row * vocab + at, mask=at < vocab, other=float("-inf"))
        own = tl.exp((z - best) * by.to(tl.float32))
        if by != 1:
            own = tl.where(z < best - out, 0.0, own)
        own = own.to(tl.float64)
        inside = tl.minimum(goal - before, _below(tl.sum(own, 0)))
        chosen = tl.sum((tl.cumsum(own, 0) <= inside).to(tl.int32), 0)
        chosen = tl.minimum(chosen, tl.max(tl.where(own > 0, lane, 0), 0))
        lower = before + tl.sum(tl.where(lane < chosen, own, 0.0), 0)
        upper = lower + tl.sum(tl.where(lane == chosen, own, 0.0), 0)
        reach = near * total
        edge = ((goal - lower < reach) & (lower > 0)) | (
            (upper - goal < reach) & (upper < total - total * rounding)
        )
        token = which * BLOCK + chosen
    token = tl.minimum(token, vocab - 1)
    logprob = (tl.load(logits + row * vocab + token) - best).to(tl.float64) - tl.log(mass)
    tl.store(found + 4 * row, token.to(tl.float64))
    tl.store(found + 4 * row + 1, logprob)
    tl.store(found + 4 * row + 2, edge.to(tl.float64))
    tl.store(found + 4 * row + 3, ((mass != mass) | (logprob != logprob)).to(tl.float64))


def draw(
    logits: Tensor, u: NDArray[np.float64], temperatures: NDArray[np.float64], near: float, out: float
) -> NDArray[np.float64]:
    """As `compiled.draw` without cuts, on the device of `logits` [R, V] (float32)."""
    n, vocab = logits.shape
    size = BLOCK * BLOCKS
    parts, blocks = triton.cdiv(vocab, size), triton.cdiv(vocab, BLOCK)
    with np.errstate(divide="ignore"):
        by = np.where(temperatures == 0, 0.0, np.minimum(1 / temperatures, HOT))
    rules = send(np.stack([u, by], 1), logits.device)
    logits = logits.contiguous()
    tops = logits.new_empty(n, parts, 2)
    places = torch.empty(n, parts, dtype=torch.int32, device=logits.device)
    sums = logits.new_empty(n, 2, blocks)
    found = torch.empty(n, 4, dtype=torch.float64, device=logits.device)
    wide, most = triton.next_power_of_2(parts), triton.next_power_of_2(blocks)
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _best[(n, parts)](logits, tops, places, vocab, parts, size)
        _weigh[(n, parts)](logits, tops, rules, sums, vocab, parts, blocks, out, wide, BLOCK, BLOCKS)
        _choose[(n,)](
            logits, tops, places, rules, sums, found, vocab, parts, blocks, near, out, ROUNDING, wide, BLOCK, most
        )  # fmt: skip
    return found.cpu().numpy().T
