"""The game: numbers on the table, moves that put two of them together, and whether a target can still be reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

OPS: Final = "+-*/"
#: States that are remembered, over all targets.
REMEMBERED: Final = 1 << 18

#: A whole number is an `int`, always.
Number = int | Fraction
#: Numbers on the table, in order of size.
Table = tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """integers: results are positive, and divisions come out even; else they are any number. largest: of results."""

    integers: bool = True
    largest: int | None = 999

    def allow(self, result: Number) -> bool:
        """Whether a move may have this result."""
        even = isinstance(result, int) and result > 0
        small = self.largest is None or -self.largest <= result <= self.largest
        return small and (even or not self.integers)


#: Positive integers up to 999.
COUNTDOWN: Final = Rules()
#: Any rational number, as in the Game of 24.
RATIONALS: Final = Rules(integers=False, largest=None)


@dataclass(frozen=True, slots=True)
class Move:
    """Two numbers of the table become one: `left op right = result`."""

    left: Number
    op: str
    right: Number

    @property
    def result(self) -> Number | None:
        """None for a division by zero."""
        a, b = self.left, self.right
        if self.op == "/":
            return quotient(a, b)
        return whole(a + b if self.op == "+" else a - b if self.op == "-" else a * b)

    def __str__(self) -> str:
        return f"{self.left}{self.op}{self.right}={self.result}"


def whole(number: Number) -> Number:
    """The number as an `int`, if it is one."""
    return number if isinstance(number, int) or number.denominator != 1 else int(number)


def quotient(a: Number, b: Number) -> Number | None:
    """A / b; None for b = 0."""
    if not b:
        return None
    return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else whole(Fraction(a) / b)


def table(numbers: Iterable[Number]) -> Table:
    """Numbers as a table."""
    return tuple(sorted(whole(n) for n in numbers))


def after(numbers: Table, move: Move, rules: Rules = COUNTDOWN) -> Table | None:
    """The table after a move; None for a move that is not allowed: a number that is not there, or such a result."""
    left = list(numbers)
    for used in (move.left, move.right):
        if used not in left:
            return None
        left.remove(used)
    result = move.result
    if result is None or not rules.allow(result):
        return None
    return tuple(sorted((*left, result)))


def moves(numbers: Table, rules: Rules = COUNTDOWN) -> list[Move]:
    """All different moves; of a sum and a product only the one with the larger number first."""
    found: dict[Move, None] = {}
    for i, small in enumerate(numbers):
        for large in numbers[i + 1 :]:
            ordered = [(large, op, small) for op in OPS] + [(small, "-", large), (small, "/", large)]
            for parts in ordered:
                move = Move(*parts)
                if move.result is not None and rules.allow(move.result):
                    found.setdefault(move)
    return list(found)


def reachable(numbers: Table, target: Number, rules: Rules = COUNTDOWN) -> bool:
    """Whether some moves leave the target, and nothing else, on the table: all numbers are used."""
    return _reachable(numbers, whole(target), rules)


@lru_cache(REMEMBERED)
def _reachable(numbers: Table, target: Number, rules: Rules) -> bool:
    if len(numbers) == 1:
        return numbers[0] == target
    if len(numbers) == 2:
        return target in _results(*numbers) and rules.allow(target)
    nexts = set[Table]()
    for i, small in enumerate(numbers):
        for j in range(i + 1, len(numbers)):
            rest = numbers[:i] + numbers[i + 1 : j] + numbers[j + 1 :]
            results = _results(small, numbers[j])
            nexts.update(tuple(sorted((*rest, one))) for one in results if rules.allow(one))
    return any(_reachable(one, target, rules) for one in sorted(nexts))


def _results(small: Number, large: Number) -> list[Number]:
    """The results that two numbers may have."""
    divided = [q for q in (quotient(large, small), quotient(small, large)) if q is not None]
    return [whole(small + large), whole(large - small), whole(small - large), whole(small * large), *divided]


def good_moves(numbers: Table, target: Number, rules: Rules = COUNTDOWN) -> tuple[list[Move], list[Move]]:
    """The moves after which the target can still be reached, and all moves."""
    every = moves(numbers, rules)
    good = [m for m in every if (t := after(numbers, m, rules)) is not None and reachable(t, target, rules)]
    return good, every
