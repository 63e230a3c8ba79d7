"""Keys of numbers and of expressions in variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

from metagen.verifiers.math.arithmetic import Arithmetic, TooLarge, Undefined, Work, context, draw
from metagen.verifiers.math.pieces import ANCHORS, MP, WHOLE, Line, lines, may_break
from metagen.verifiers.math.tree import INFINITY, ONE, ZERO, Node, minus, names, substitute, symbols
from metagen.verifiers.math.words import quote

#: Digits that values are computed to, until two agree.
PRECISIONS: Final = (110, 220, 440)
#: Digits of a key.
DIGITS: Final = 30
_LARGEST: Final = 160
_SMALLEST: Final = -10_000
#: A value this close (relative to itself) to a fraction with a denominator up to 10^20 is that fraction.
_RATIONAL: Final = Fraction(1, 10**60)
_DENOMINATOR: Final = 10**20
_LONG: Final = 2_048
WIDE: Final = context(460)
_TIE: Final = WIDE.mpf(10) ** -12
_PRINTED: Final = Context(prec=460)

#: Real and imaginary part, numbers of `WIDE`.
Complex = tuple[Any, Any]


def settle(value: Callable[[int], Complex]) -> Complex:
    """The value, real and imaginary part, to 60 places and 60 digits: computed to more digits until two runs agree.

    A value that stays below half of the digits twice is zero. TooLarge beyond 10^160, where 60 places cannot be had.
    """
    before = _convert(value(PRECISIONS[0]))
    for precision in PRECISIONS[1:]:
        after = _convert(value(precision))
        size = _size(after)
        if size and not _SMALLEST < magnitude(size) <= _LARGEST:
            raise TooLarge("a number")
        slack = min(size, WIDE.one) * _ten(-60)
        if size and all(abs(a - b) <= slack for a, b in zip(before, after, strict=True)):
            re, im = (part if abs(part) > slack else WIDE.zero for part in after)
            return re, im
        small = _size(before)
        if not size or (
            magnitude(size) < -precision // 2 and (not small or magnitude(small) < -precision // 4)
        ):
            return WIDE.zero, WIDE.zero
        before = after
    raise TooLarge("digits cancel")


def magnitude(value: Any) -> int:
    """Of a number that is not 0, the power of ten that it is about."""
    return int(WIDE.mag(value) * 0.30103)


def _convert(value: Complex) -> Complex:
    re, im = value
    return WIDE.convert(re), WIDE.convert(im)


def _size(value: Complex) -> Any:
    return max(abs(value[0]), abs(value[1]))


def exact_key(value: Fraction) -> str:
    """`3/2`, `-7`; a digest where numbers are very long."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONG:
        return f"rational {digest(f'{value.numerator:x}/{value.denominator:x}')}"
    return str(value)


def numeric_key(value: Complex) -> str:
    """The exact key of a fraction beyond doubt, `6-5i` where both parts are fractions; otherwise `~` and 30 digits."""
    re, im = (_fraction(part) for part in value)
    if re is None or im is None:
        return f"~{round_off(value)}"
    if not im:
        return exact_key(re)
    return f"{exact_key(re) if re else ''}{'+' if re and im > 0 else ''}{exact_key(im)}i"


def _fraction(value: Any) -> Fraction | None:
    sign, mantissa, exponent, _ = value._mpf_
    if abs(exponent) > 40_000:
        return None
    exact = Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** exponent
    near = exact.limit_denominator(_DENOMINATOR)
    return near if abs(near - exact) <= abs(exact) * _RATIONAL else None


def round_off(value: Complex) -> str:
    """30 digits after the point; of a number below 1, 30 significant digits."""
    size = _size(value)
    places = DIGITS
    if size and size < 1:
        # The exact place of the first digit: a number of about 10^-5 may begin at the fifth place or at the sixth.
        first = magnitude(size) - 1
        while size >= _ten(first + 1):
            first += 1
        places -= 1 + first
    re, im = (_digits(part, places) for part in value)
    return re if im == "0" else f"{re},{im}"


@lru_cache(512)
def _ten(power: int) -> Any:
    return WIDE.mpf(10) ** power


def _digits(value: Any, places: int) -> str:
    # Decimals that end with a 5 lie between two: noise must not decide which it is.
    whole = int(WIDE.nint(value * _ten(places) + _TIE))
    return str(Decimal(whole).scaleb(-places, _PRINTED).normalize(_PRINTED)) if whole else "0"


def digest(text: str) -> str:
    """16 bytes that name a text, in hexadecimal."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


SCALARS: Final = names(
    "number symbol constant add mul neg div pow root call ratio sum product integral limit"
)
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
            return "oo"
        if node.op == "neg" and node.args[0] == INFINITY:
            return "-oo"
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
                if entries == [round_off((_wide(place[name]), WIDE.zero)) for place in places]:
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
        """The places at which a function is evaluated, and its kinks: both depend on the function, not on its form."""
        names = sorted(symbols(node))
        places: list[Place] = [{name: point(name, i) for name in names} for i in range(POINTS)]
        if not may_break(node):
            return places, []
        broken, kinks = self._break(node, names, places)
        if len(names) > 1 and kinks:
            moving = [n for n in names if self._moves(node, n, broken)]
            if len(moving) < len(names):
                broken, kinks = self._break(node, moving, places)
        return broken, kinks

    def _break(self, node: Node, moving: list[str], places: list[Place]) -> tuple[list[Place], list[str]]:
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
            return [round_off((WIDE.convert(t), WIDE.zero)) for t in found]
        places += [line.place(t) for t in (*ANCHORS, *WHOLE)]
        if not line.complete:
            return ["somewhere"]
        nearest = line.nearest(found)
        return [round_off((WIDE.convert(t), WIDE.zero)) for t in nearest]

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
            entries.append(round_off(settle(self._quotient(node, place, places[pivot], positive=positive))))
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
    return quote(name.removeprefix("text "))


def _entry(value: Complex | str) -> str:
    return round_off(value) if isinstance(value, tuple) else value


def _wide(value: Fraction) -> Any:
    return WIDE.mpf(value.numerator) / value.denominator
