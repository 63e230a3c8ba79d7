"""Problems: numbers with which the target can be reached, at four levels. Everything follows from a seed.

How hard a problem is: how many numbers there are, and how few of the first moves leave the target in reach.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from metagen.tasks.countdown.game import COUNTDOWN, Move, Table, after, good_moves, moves, table
from metagen.tasks.countdown.notation import prompt, step
from metagen.tasks.split import Split

LEVELS: Final = (1, 2, 3, 4)
#: Of each level: how many numbers, and the share of first moves that are good: from, below.
DIFFICULTY: Final = {
    1: (3, 0.0, 1.01),
    2: (4, 0.25, 1.01),
    3: (4, 0.0, 0.25),
    4: (5, 0.0, 0.4),
}
NUMBERS: Final = range(1, 26)
TARGETS: Final = range(10, 100)
#: Draws without a new problem after which a level counts as exhausted.
_IN_VAIN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Problem:
    """numbers: in the order in which the prompt shows them."""

    numbers: tuple[int, ...]
    target: int
    level: int = 0

    @property
    def prompt(self) -> str:
        """The text a generator continues with steps."""
        return prompt(self.numbers, self.target)

    @property
    def table(self) -> Table:
        """The numbers at the beginning of the game."""
        return table(self.numbers)


def split_of(problem: Problem) -> Split:
    """The one split that a problem belongs to, by a hash of numbers and target, whatever the order of the numbers."""
    name = f"{sorted(problem.numbers)}={problem.target}"
    share = hashlib.blake2b(name.encode(), digest_size=1).digest()[0]
    return Split.TEST if share < 32 else Split.VALIDATION if share < 64 else Split.TRAIN


def level_of(problem: Problem) -> int | None:
    """The level that a problem has by `DIFFICULTY`; None for none, or if it cannot be solved."""
    good, every = good_moves(problem.table, problem.target)
    share = len(good) / max(1, len(every))
    fits = (
        k for k, (n, low, below) in DIFFICULTY.items() if len(problem.numbers) == n and low <= share < below
    )
    return next(fits, None) if good else None


def problems(split: Split, level: int, count: int, seed: int = 0) -> list[Problem]:
    """`count` different problems of a level. ValueError if the space has not so many."""
    found: dict[Problem, None] = {}
    for problem in _draw(split, level, seed):
        found.setdefault(problem)
        if len(found) == count:
            return list(found)
    raise ValueError(
        f"level {level} has fewer than {count} problems in the {split} space (found {len(found)})"
    )


def _draw(split: Split, level: int, seed: int) -> Iterator[Problem]:
    """Problems of a level as they come, until too many draws in a row bring none that is new."""
    draw = random.Random(f"countdown {split} {level} {seed}")
    seen, in_vain = set[tuple[tuple[int, ...], int]](), 0
    while in_vain < _IN_VAIN:
        in_vain += 1
        problem = random_problem(draw, DIFFICULTY[level][0])
        if problem is None or split_of(problem) is not split:
            continue
        name = (tuple(sorted(problem.numbers)), problem.target)
        if name not in seen and _level(*name) == level:
            seen.add(name)
            in_vain = 0
            yield Problem(problem.numbers, problem.target, level)


@cache
def _level(numbers: tuple[int, ...], target: int) -> int | None:
    return level_of(Problem(numbers, target))


def random_problem(draw: random.Random, count: int) -> Problem | None:
    """Numbers, and a target that random moves have reached; None if they reached none of `TARGETS`."""
    numbers = tuple(draw.choice(NUMBERS) for _ in range(count))
    left = table(numbers)
    while len(left) > 1:
        possible = moves(left)
        if not possible:
            return None
        left = after(left, draw.choice(possible)) or left
    target = left[0]
    return Problem(numbers, int(target)) if target in TARGETS else None


def solution(problem: Problem, draw: random.Random) -> str:
    """A random solution: at each step any of the good moves. Raises ValueError if there is none."""
    left, lines = problem.table, list[str]()
    while len(left) > 1:
        good, _ = good_moves(left, problem.target)
        if not good:
            raise ValueError(f"{problem.numbers} cannot make {problem.target}")
        move: Move = draw.choice(good)
        left = after(left, move, COUNTDOWN) or left
        lines.append(step(move, left))
    return "".join(lines)
