"""Keys of numbers and of expressions in variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from metagen.verifiers.math.arithmetic import Arithmetic, Beyond, TooLarge, Undefined, Work, draw
from metagen.verifiers.math.pieces import ANCHORS, MP, WHOLE, Line, lines, may_break
from metagen.verifiers.math.reals import MINUS_INFINITY, PLUS_INFINITY, End
from metagen.verifiers.math.settle import (
    WIDE,
    Complex,
    digest,
    exact_key,
    numeric_key,
    real,
    rounded,
    settle,
)
from metagen.verifiers.math.tree import INFINITY, ONE, ZERO, Node, minus, names, substitute, symbols
from metagen.verifiers.math.words import quoted

SCALARS: Final = names("number symbol constant add mul neg div pow root call ratio")
POINTS: Final = 4

Place = Mapping[str, Any]


class Scalars:
    """Keys of scalar trees: exact where all is rational, else by values of many digits.

    A tree in variables is known by its values at four points, which depend on the names of the variables only, and
    where it changes its formula by these kinks and its values between them: equal functions have equal keys however
    they are written, and different ones differ at a random point.
    """

    def __init__(self, work: Work) -> None:
        self.work = work

    def key(self, node: Node) -> str:
        """The key; TooLarge, Undefined or Beyond where there is none."""
        if node == INFINITY:
            return PLUS_INFINITY.key
        if node.op == "neg" and node.args[0] == INFINITY:
            return MINUS_INFINITY.key
        if node.op == "symbol":
            return name_key(str(node.value))
        if symbols(node):
            return self._function(node)
        exact = self.exact(node)
        return exact_key(exact) if exact is not None else numeric_key(self.value(node, {}))

    def exact(self, node: Node) -> Fraction | None:
        """The value, if only rational numbers occur on the way to it."""
        value = node.value if node.op == "number" else Arithmetic(110, self.work).value(node, {})
        return value if isinstance(value, Fraction) else None

    def value(self, node: Node, values: Place) -> Complex:
        """At least 60 digits."""
        return settle(lambda digits: self._parts(node, digits, values))

    def _parts(self, node: Node, digits: int, values: Place) -> Complex:
        arithmetic = Arithmetic(digits, self.work)
        return arithmetic.parts(arithmetic.value(node, values))

    def end(self, node: Node) -> End:
        """A real number or ±∞ as the end of an interval; Beyond if it is none."""
        key = self.key(node)
        if key in ("oo", "-oo"):
            return PLUS_INFINITY if key == "oo" else MINUS_INFINITY
        if symbols(node):
            raise Beyond("an end that varies")
        exact = self.exact(node)
        if exact is not None:
            return End(key, WIDE.mpf(exact.numerator) / exact.denominator)
        return End(key, real(self.value(node, {})))

    # -- expressions in variables --------------------------------------------------------------------

    def _function(self, node: Node) -> str:
        places, kinks = self.places(node)
        values = [self._at(node, place) for place in places]
        entries = list(map(_entry, values))
        if not kinks and len(set(entries)) == 1:
            if not isinstance(values[0], tuple):
                raise Undefined("nowhere defined")
            return numeric_key(values[0])
        if not kinks:
            for name in sorted(symbols(node)):
                if entries == [rounded((_wide(place[name]), WIDE.zero)) for place in places]:
                    return name_key(name)
        return f"function {digest(' '.join([*entries, *kinks]))}"

    def _at(self, node: Node, place: Place) -> Complex | str:
        try:
            return self.value(node, place)
        except Undefined:
            return "undefined"
        except TooLarge:
            if self.work.left < 0 or all(isinstance(v, Fraction) for v in place.values()):
                raise
            return "large"  # far out on a line

    def places(self, node: Node) -> tuple[list[Place], list[str]]:
        """Where a function is looked at, and its kinks: both hang on the function, not on how it is written."""
        names = sorted(symbols(node))
        places: list[Place] = [{name: point(name, i) for name in names} for i in range(POINTS)]
        if not may_break(node):
            return places, []
        broken, kinks = self._broken(node, names, places)
        if len(names) > 1 and kinks:
            moving = [n for n in names if self._moves(node, n, broken)]
            if len(moving) < len(names):
                broken, kinks = self._broken(node, moving, places)
        return broken, kinks

    def _broken(self, node: Node, moving: list[str], places: list[Place]) -> tuple[list[Place], list[str]]:
        """The same places and those between kinks along lines through some of the variables."""
        places, kinks = list(places), []
        for line in lines(moving, places[0], self.work):
            kinks += self._pieces(node, line, places)
        return places, [*moving, *kinks] if kinks else []

    def _moves(self, node: Node, name: str, places: list[Place]) -> bool:
        """Whether a function depends on a variable that occurs in it."""
        return any(
            _entry(self._at(node, place))
            != _entry(self._at(node, {**place, name: place[name] + point(name, 9)}))
            for place in places
        )

    def _pieces(self, node: Node, line: Line, places: list[Place]) -> list[str]:
        """Add places between the kinks on a line; the kinks as texts."""
        found = line.kinks(node)
        if not found:
            return []
        if line.complete and not line.endless:
            first, last = found[0], found[-1]
            inner = [a + (b - a) * MP.mpf(part) for a, b in pairwise(found) for part in ("0.3819", "0.7213")]
            outer = [t for k in ("0.731", "2.371") for t in (
                first - max(1, abs(first)) * MP.mpf(k), last + max(1, abs(last)) * MP.mpf(k)
            )]  # fmt: skip
            places += [line.place(t) for t in inner + outer]
            return [rounded((WIDE.convert(t), WIDE.zero)) for t in found]
        places += [line.place(t) for t in (*ANCHORS, *WHOLE)]
        if not line.complete:
            return ["somewhere"]
        nearest = line.nearest(found)
        return [rounded((WIDE.convert(t), WIDE.zero)) for t in nearest]

    def proportional(self, node: Node, *, positive: bool) -> str:
        """The key of a function up to a constant factor (a positive one)."""
        places, kinks = self.places(node)
        values = [self._at(node, place) for place in places]
        pivot = next((i for i, v in enumerate(values) if isinstance(v, tuple) and any(v)), None)
        if pivot is None:
            return "0"
        entries = []
        for place, value in zip(places, values, strict=True):
            if not isinstance(value, tuple):
                entries.append(value)
                continue
            entries.append(rounded(settle(self._quotient(node, place, places[pivot], positive=positive))))
        return digest(" ".join([*entries, *kinks]))

    def _quotient(
        self, node: Node, place: Place, pivot: Place, *, positive: bool
    ) -> Callable[[int], Complex]:
        def value(digits: int) -> Complex:
            arithmetic = Arithmetic(digits, self.work)
            one, other = (arithmetic.wide(arithmetic.value(node, p)) for p in (place, pivot))
            return arithmetic.parts(one / (abs(other) if positive else other))

        return value

    def linear(self, node: Node, name: str) -> tuple[Node, Node] | None:
        """(a, b), if the tree is a·name + b with a constant a ≠ 0 and a b without the name."""
        at_zero = substitute(node, name, ZERO)
        slope = minus(substitute(node, name, ONE), at_zero)
        try:
            factor = self.key(slope)
            if factor == "0" or factor.startswith(("function", '"')):
                return None
            line = Node("add", (Node("mul", (slope, Node("symbol", (), name))), at_zero))
            same = self.key(minus(node, line)) == "0"
        except (Undefined, TooLarge):
            return None
        return (slope, at_zero) if same else None


def point(name: str, number: int) -> Fraction:
    """Value number 0 … 3 of a variable: all positive, all negative, then of mixed signs.

    Two of the four are just above 1, so that high powers neither vanish nor grow out of bounds; two are below.
    """
    low, width = (
        (Fraction(105, 100), Fraction(10, 100))
        if number in (0, 1)
        else (Fraction(40, 100), Fraction(55, 100))
    )
    magnitude = low + width * Fraction(draw(name, str(number)) % 10**5, 10**5)
    negative = number == 1 or (number > 1 and draw("sign", name, str(number)) % 2)
    return -magnitude if negative else magnitude


def name_key(name: str) -> str:
    """A variable by itself is a text: `C` is the choice, the class and the constant alike."""
    return quoted(name.removeprefix("text "))


def _entry(value: Complex | str) -> str:
    return rounded(value) if isinstance(value, tuple) else value


def _wide(value: Fraction) -> Any:
    return WIDE.mpf(value.numerator) / value.denominator
