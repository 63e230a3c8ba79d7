"""Keys of numbers and of expressions in variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, Protocol

from metagen.verifiers.math.decimals import Decimals
from metagen.verifiers.math.exact import Exact, Gauss
from metagen.verifiers.math.field import Beyond, TooLarge, Undefined, evaluate, point
from metagen.verifiers.math.reals import MINUS_INFINITY, PLUS_INFINITY, End
from metagen.verifiers.math.settle import Complex, digest, exact_key, numeric_key, real, rounded, settle
from metagen.verifiers.math.tree import INFINITY, ONE, ZERO, Node, minus, names, substitute, symbols
from metagen.verifiers.math.words import quoted

SCALARS: Final = names("number symbol constant add mul neg div pow root call ratio")
POINTS: Final = 4


class Numeric(Protocol):
    """Evaluates a tree to so many digits."""

    def __call__(self, node: Node, precision: int, values: Mapping[str, Fraction]) -> Complex: ...


def by_decimals(node: Node, precision: int, values: Mapping[str, Fraction]) -> Complex:
    """Real values; Beyond where they are complex, need other functions than exp and log, or take long."""
    field = Decimals(precision, 0) if values else Decimals(precision)
    return evaluate(node, field, values), Decimal(0)


class Scalars:
    """Keys of scalar trees: exact where all is rational, else by `numeric` values.

    A tree in variables is known by its values at four points, which depend on the names of the variables only: equal
    functions have equal keys however they are written, and different ones differ at a random point.
    """

    def __init__(self, numeric: Numeric = by_decimals) -> None:
        self._numeric = numeric

    def key(self, node: Node) -> str:
        """The key; TooLarge, Undefined or Beyond where there is none."""
        if node == INFINITY:
            return PLUS_INFINITY.key
        if node.op == "neg" and node.args[0] == INFINITY:
            return MINUS_INFINITY.key
        if node.op == "symbol":
            return name_key(str(node.value))
        variables = symbols(node)
        if variables:
            return self._function(node, variables)
        exact = self.exact(node)
        return exact_key(exact) if exact is not None else numeric_key(self.value(node, {}))

    def exact(self, node: Node) -> Fraction | Gauss | None:
        """The value, if only rational and Gaussian numbers occur on the way to it."""
        try:
            value: Fraction | Gauss = evaluate(node, Exact(), {})
        except (Beyond, TooLarge):
            return None
        return value

    def value(self, node: Node, values: Mapping[str, Fraction]) -> Complex:
        """At least 60 digits."""
        return settle(lambda precision: self._numeric(node, precision, values))

    def end(self, node: Node) -> End:
        """A real number or ±∞ as the end of an interval; Beyond if it is none."""
        key = self.key(node)
        if key in ("oo", "-oo"):
            return PLUS_INFINITY if key == "oo" else MINUS_INFINITY
        if symbols(node):
            raise Beyond("an end that varies")
        exact = self.exact(node)
        if isinstance(exact, Fraction) and abs(exact) < 10**160:
            return End(key, by_decimals(Node("number", (), exact), 110, {})[0])
        return End(key, real(self.value(node, {})))

    # -- expressions in variables --------------------------------------------------------------------

    def _function(self, node: Node, variables: frozenset[str]) -> str:
        places = [{name: point(name, i) for name in variables} for i in range(POINTS)]
        values = [self._at(node, place) for place in places]
        entries = [rounded(v) if v is not None else "undefined" for v in values]
        if len(set(entries)) == 1:
            if values[0] is None:
                raise Undefined("nowhere defined")
            return numeric_key(values[0])
        for name in sorted(variables):
            if entries == [rounded((_decimal(place[name]), Decimal(0))) for place in places]:
                return name_key(name)
        return f"function {digest(' '.join(entries))}"

    def _at(self, node: Node, place: Mapping[str, Fraction]) -> Complex | None:
        try:
            return self.value(node, place)
        except Undefined:
            return None

    def proportional(self, node: Node, *, positive: bool) -> str:
        """The key of a function up to a constant factor (a positive one)."""
        places = [{name: point(name, i) for name in symbols(node)} for i in range(POINTS)]
        values = [self._at(node, place) for place in places]
        pivot = next((i for i, v in enumerate(values) if v is not None and any(v)), None)
        if pivot is None:
            return "0"
        entries = []
        for place, value in zip(places, values, strict=True):
            if value is None:
                entries.append("undefined")
                continue
            entries.append(rounded(settle(self._quotient(node, place, places[pivot], positive=positive))))
        return digest(" ".join(entries))

    def _quotient(
        self, node: Node, place: Mapping[str, Fraction], pivot: Mapping[str, Fraction], *, positive: bool
    ) -> Callable[[int], Complex]:
        def value(precision: int) -> Complex:
            work = Decimals(precision)
            (a, b), (c, d) = (self._numeric(node, precision, p) for p in (place, pivot))
            norm = work.add(work.multiply(c, c), work.multiply(d, d))
            if positive:
                size = work.root(Decimal(2), norm)
                return work.divide(a, size), work.divide(b, size)
            re = work.add(work.multiply(a, c), work.multiply(b, d))
            im = work.add(work.multiply(b, c), work.multiply(a, d).copy_negate())
            return work.divide(re, norm), work.divide(im, norm)

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


def name_key(name: str) -> str:
    """A variable by itself is a text: `C` is the choice, the class and the constant alike."""
    return quoted(name.removeprefix("text "))


def _decimal(value: Fraction) -> Decimal:
    return by_decimals(Node("number", (), value), 110, {})[0]
