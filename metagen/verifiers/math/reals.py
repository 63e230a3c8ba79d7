"""Sets of real numbers as finite unions of intervals, in a normal form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from metagen.verifiers.math.settle import WIDE

_INFINITE: Final = WIDE.inf


@dataclass(frozen=True, slots=True)
class End:
    """A real number or ±∞: its key decides equality, its value the order."""

    key: str
    value: Any


MINUS_INFINITY: Final = End("-oo", -_INFINITE)
PLUS_INFINITY: Final = End("oo", _INFINITE)


@dataclass(frozen=True, slots=True)
class Piece:
    """The interval from `low` to `high`; closed says which ends belong to it."""

    low: End
    high: End
    closed: tuple[bool, bool] = (False, False)

    @property
    def empty(self) -> bool:
        same = self.low.key == self.high.key
        return (same and self.closed != (True, True)) or (not same and self.low.value > self.high.value)

    def __str__(self) -> str:
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{left}{self.low.key}, {self.high.key}{right}"


Reals = tuple[Piece, ...]
LINE: Final[Reals] = (Piece(MINUS_INFINITY, PLUS_INFINITY),)


def point(end: End) -> Piece:
    """The set of one number."""
    return Piece(end, end, (True, True))


def normal(pieces: Reals) -> Reals:
    """Disjoint pieces in order that do not touch: one form for each set."""
    ordered = sorted((p for p in pieces if not p.empty), key=lambda p: (p.low.value, not p.closed[0]))
    result: list[Piece] = []
    for piece in ordered:
        if not result or not _touch(result[-1], piece):
            result.append(piece)
            continue
        last = result[-1]
        if last.high.key == piece.high.key:
            high, closed = last.high, last.closed[1] or piece.closed[1]
        else:
            further = last if last.high.value > piece.high.value else piece
            high, closed = further.high, further.closed[1]
        same = last.low.key == piece.low.key
        result[-1] = Piece(last.low, high, (last.closed[0] or (same and piece.closed[0]), closed))
    return tuple(result)


def _touch(left: Piece, right: Piece) -> bool:
    if left.high.key == right.low.key:
        return left.closed[1] or right.closed[0]
    return left.high.value > right.low.value


def complement(pieces: Reals) -> Reals:
    """All other real numbers."""
    low, closed = MINUS_INFINITY, False
    result = []
    for piece in normal(pieces):
        result.append(Piece(low, piece.low, (closed, not piece.closed[0])))
        low, closed = piece.high, not piece.closed[1]
    result.append(Piece(low, PLUS_INFINITY, (closed, False)))
    # An end at infinity never belongs to a set.
    return normal(tuple(p for p in result if p.low.key != "oo" and p.high.key != "-oo"))


def meet(left: Reals, right: Reals) -> Reals:
    """What both hold."""
    return complement((*complement(left), *complement(right)))


def key(pieces: Reals) -> str:
    """One text for each set; a set of one number has the number's key."""
    ordered = normal(pieces)
    if all(p.low.key == p.high.key for p in ordered):
        return collection(p.low.key for p in ordered)
    return " ∪ ".join(f"{{{p.low.key}}}" if p.low.key == p.high.key else str(p) for p in ordered)


def collection(keys: Iterable[str]) -> str:
    """The key of a finite set."""
    distinct = sorted(set(keys))
    return distinct[0] if len(distinct) == 1 else f"{{{', '.join(distinct)}}}"
