"""Sets of real numbers: intervals, solutions of inequalities, and one form for each set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from metagen.verifiers.math.arithmetic import Beyond
from metagen.verifiers.math.pieces import MP, lines
from metagen.verifiers.math.scalars import SCALARS, WIDE, Scalars, numeric_key
from metagen.verifiers.math.tree import Node, Unreadable, minus, symbols

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
    return bool(left.high.value > right.low.value)


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
    """The numbers in both."""
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


#: The same comparison from the other side.
MIRROR: Final = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}


class Regions:
    """Sets of real numbers from trees; Unreadable for what is no such set."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars

    def of(self, node: Node) -> Reals:
        """The set that a tree describes."""
        match node.op:
            case "interval" | "tuple" if len(node.args) == 2:
                closed = str(node.value or "()")
                low, high = (self.end(a) for a in node.args)
                if low.value > high.value:
                    raise Unreadable("an interval that ends before it begins")
                ends = closed[0] == "[" and low.key != "-oo", closed[1] == "]" and high.key != "oo"
                return normal((Piece(low, high, ends),))
            case "reals":
                return LINE
            case "empty":
                return ()
            case "set" | "list":
                return normal(tuple(point(self.end(a)) for a in node.args))
            case "union":
                return normal(tuple(p for a in node.args for p in self.of(a)))
            case "meet":
                return meet(self.of(node.args[0]), self.of(node.args[1]))
            case "without":
                return meet(self.of(node.args[0]), complement(self.of(node.args[1])))
            case "relation":
                return self.inequality(node)
        raise Unreadable("no set of real numbers")

    def end(self, node: Node) -> End:
        """A real number or ±∞ as the end of an interval."""
        if node.op not in SCALARS or symbols(node):
            raise Unreadable("no real number")
        key = self.scalars.key(node)
        if key in ("oo", "-oo"):
            return PLUS_INFINITY if key == "oo" else MINUS_INFINITY
        exact = self.scalars.exact(node)
        if exact is not None:
            return End(key, WIDE.mpf(exact.numerator) / exact.denominator)
        re, im = self.scalars.value(node, {})
        if im:
            raise Beyond("a complex number has no place on the line")
        return End(key, re)

    def inequality(self, node: Node) -> Reals:
        """The real numbers that satisfy a chain of comparisons in one unknown."""
        if node.op != "relation":
            raise Unreadable("no comparison")
        node, unknown = _unknown(node)
        result = LINE
        for left, sign, right in zip(node.args, str(node.value).split(), node.args[1:], strict=False):
            if sign not in MIRROR:
                raise Unreadable(sign)
            difference = minus(left, right)
            if not symbols(difference):
                raise Unreadable("a comparison of numbers")
            line = self.scalars.linear(difference, unknown)
            result = meet(result, self._half(*line, sign) if line else self._solve(difference, sign, unknown))
        return result

    def _solve(self, difference: Node, sign: str, unknown: str) -> Reals:
        """The set where a function is positive, negative or not zero, from its signs between zeros, poles and kinks."""
        if sign == "=":
            raise Unreadable("an equation that is not linear")
        (line,) = lines([unknown], {}, self.scalars.work)
        bounds = sorted({*line.zeros(difference), *line.breaks(difference)})
        if line.searched or line.endless:
            raise Unreadable("a comparison that cannot be solved")
        ends = [
            MINUS_INFINITY,
            *(End(numeric_key((b, WIDE.zero)), b) for b in map(WIDE.convert, bounds)),
            PLUS_INFINITY,
        ]
        pieces = [Piece(a, b) for a, b in pairwise(ends) if _holds(line.at(difference, _between(a, b)), sign)]
        for end in ends[1:-1]:
            if _holds(line.at(difference, MP.convert(end.value)), sign, at_end=True):
                pieces.append(point(end))
        return normal(tuple(pieces))

    def _half(self, slope: Node, at_zero: Node, sign: str) -> Reals:
        bound = self.end(Node("neg", (Node("div", (at_zero, slope)),)))
        if sign in "=≠":
            only = (point(bound),)
            return only if sign == "=" else complement(only)
        sign = MIRROR[sign] if self.end(slope).value < 0 else sign
        if sign in "<≤":
            return (Piece(MINUS_INFINITY, bound, (False, sign == "≤")),)
        return (Piece(bound, PLUS_INFINITY, (sign == "≥", False)),)


def _holds(value: Any, sign: str, *, at_end: bool = False) -> bool:
    """Whether a difference satisfies a comparison with 0. At an end, known to 100 digits, 0 and poles are near ones."""
    near = MP.mpf(10) ** -40 if at_end else 0
    if value is None or abs(MP.im(value)) > near or (at_end and abs(value) > 1 / near):
        return False
    value = MP.re(value)
    if abs(value) <= near:
        return sign in "≤≥"
    return bool(sign == "≠" or (value > 0) == (sign in ">≥"))


def _between(low: End, high: End) -> Any:
    if low.key == "-oo":
        return MP.convert(high.value) - 1 if high.key != "oo" else MP.mpf("0.7137")
    if high.key == "oo":
        return MP.convert(low.value) + 1
    return (MP.convert(low.value) + MP.convert(high.value)) / 2


def _unknown(node: Node) -> tuple[Node, str]:
    """The chain with one variable for its unknown, which may also be written f(x)."""
    calls = {a for a in node.args if a.op == "call" and str(a.value).startswith("given ")}
    if len(calls) == 1 and not any(symbols(a) for a in node.args if a not in calls):
        (call,) = calls
        args = tuple(Node("symbol", (), "f(x)") if a == call else a for a in node.args)
        return node._replace(args=args), "f(x)"
    variables = symbols(node)
    if len(variables) != 1 or any(a.op not in SCALARS for a in node.args):
        raise Unreadable("not one unknown")
    return node, next(iter(variables))
