"""Many games at once: tables as rows of an array, random games on them, and all targets that each can still reach.

The rules are those of `metagen.tasks.countdown.game.COUNTDOWN`, whose solver takes one table and one target at a time.
What two numbers can reach is tabulated; what more of them can is the union over all that one move may leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from metagen.tasks.countdown.game import COUNTDOWN, OPS
from metagen.tasks.countdown.problems import TARGETS

Ints = NDArray[np.int64]
#: Sets of targets: target t is bit t % 64 of word t // 64.
Sets = NDArray[np.uint64]

LARGEST = COUNTDOWN.largest or 0
SIZE = LARGEST + 1
#: Rows that are solved at a time, so that what is looked up together stays in the cache.
CHUNK = 1 << 15


@cache
def results() -> Ints:
    """What two numbers become by + − × ÷, shape [SIZE, SIZE, 4]; 0 is no number, and comes of what is not allowed."""
    a, b = np.indices((SIZE, SIZE))
    large, small = np.maximum(a, b), np.minimum(a, b)
    divisor = np.maximum(small, 1)
    every = np.stack((a + b, large - small, a * b, np.where(large % divisor, 0, large // divisor)), -1)
    allowed = (every > 0) & (every <= LARGEST) & (small > 0)[..., None]
    return np.where(allowed, every, 0)


def one(numbers: Ints) -> Sets:
    """The sets of single targets, shape [..., 2]; empty for what is no target."""
    is_target = (numbers >= TARGETS.start) & (numbers < TARGETS.stop)
    bit = np.where(is_target, np.uint64(1) << (numbers % 64).astype(np.uint64), np.uint64(0))
    return np.stack([np.where(numbers // 64 == word, bit, np.uint64(0)) for word in (0, 1)], -1)


@cache
def _pairs() -> Sets:
    """What two numbers can reach, shape [SIZE², 2]."""
    found: Sets = np.bitwise_or.reduce([one(results()[..., op]) for op in range(len(OPS))])
    return found.reshape(-1, 2)


def reach(tables: Ints) -> Sets:
    """All targets that each table can still reach; tables of shape [rows, numbers], sets of shape [rows, 2]."""
    if len(tables) > CHUNK:
        return np.concatenate([reach(tables[i : i + CHUNK]) for i in range(0, len(tables), CHUNK)])
    count = tables.shape[1]
    if count == 1:
        return one(tables[:, 0])
    if count == 2:
        return _pairs()[tables[:, 0] * SIZE + tables[:, 1]]
    found = np.zeros((len(tables), 2), np.uint64)
    for pair, rest in _choices(count):
        made = results()[tables[:, pair[0]], tables[:, pair[1]]]
        for op in range(len(OPS)):
            found |= reach(np.column_stack((tables[:, rest], made[:, op])))
    return found


def has(sets: Sets, targets: Ints) -> NDArray[np.bool_]:
    """Whether each set has its target."""
    words = np.take_along_axis(sets, (targets // 64)[:, None], 1)[:, 0]
    return (words >> (targets % 64).astype(np.uint64) & np.uint64(1)).astype(bool)


def members(sets: Sets) -> NDArray[np.bool_]:
    """Of each set which of `TARGETS` it has, shape [rows, targets]."""
    octets = np.ascontiguousarray(sets).astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, bitorder="little")[:, TARGETS.start : TARGETS.stop].astype(bool)


@dataclass(frozen=True)
class Step:
    """One move of many games: the larger number first, as `game.moves` has it; tables in order of size."""

    left: Ints
    op: Ints
    right: Ints
    result: Ints
    table: Ints

    def lines(self) -> list[str]:
        """As `notation.step` writes them."""
        moves = zip(
            self.left.tolist(), self.op.tolist(), self.right.tolist(), self.result.tolist(), strict=True
        )
        rows = self.table.tolist()
        return [
            f"{a}{OPS[op]}{b}={c};{' '.join(map(str, row))}\n"
            for (a, op, b, c), row in zip(moves, rows, strict=True)
        ]


def step(tables: Ints, rng: np.random.Generator) -> Step:
    """A random one of all allowed moves of each table; a table without one loses its numbers, and is all 0."""
    count, rows = tables.shape[1], np.arange(len(tables))
    choices = _choices(count)
    made = np.stack([results()[tables[:, i], tables[:, j]] for (i, j), _ in choices], 1)
    chance = rng.random(made.shape) * (made > 0)
    place, op = np.divmod(chance.reshape(len(tables), -1).argmax(1), len(OPS))
    result = made[rows, place, op]
    # The pair first, then the rest.
    order = np.array([(*pair, *rest) for pair, rest in choices])[place]
    ordered = np.take_along_axis(tables, order, 1)
    left = np.sort(np.column_stack((ordered[:, 2:], result)), 1) * (result > 0)[:, None]
    return Step(ordered[:, :2].max(1), op, ordered[:, :2].min(1), result, left)


def play(tables: Ints, rng: np.random.Generator) -> list[Step]:
    """Random games, to the last number."""
    played: list[Step] = []
    for _ in range(tables.shape[1] - 1):
        tables = (found := step(tables, rng)).table
        played.append(found)
    return played


def _choices(count: int) -> list[tuple[tuple[int, int], list[int]]]:
    """The places of two numbers out of so many, and those of the others."""
    return [((i, j), [k for k in range(count) if k not in (i, j)]) for i, j in combinations(range(count), 2)]
