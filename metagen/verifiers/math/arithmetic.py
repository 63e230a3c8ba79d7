"""The arithmetic of answers: exact while numbers are rational, else complex numbers of many digits, by mpmath.

All work is counted, and ends at a limit that does not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import mpmath

from metagen.verifiers.math.tree import BINDERS, INFINITY, Node, names

#: Of a numerator and denominator together; a longer fraction becomes a number of many digits.
MAX_BITS: Final = 32_768
#: Operations of one answer, in additions (about 2 µs each): half a second.
WORK: Final = 250_000
#: Of exponents and arguments whose size decides how much work there is.
_LARGE: Final = 100_000
_MAX_FACTORIAL: Final = 1_500
#: Additions that one of these takes.
_COSTLY: Final = 30
_VERY_COSTLY: Final = 1_000
_DIFFERENT: Final = {
    "ln": "ln", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "abs": "fabs", "Re": "re", "Im": "im", "arg": "arg",
}  # fmt: skip
_SAME: Final = names("exp sin cos tan cot sec csc sinh cosh tanh coth sign")
_ANY_SIZE: Final = names("ln log lg abs max min sign gcd lcm Re Im arg arctan arccot")

_MOST_TERMS: Final = 10_000
_INFINITE: Final = {INFINITY: "inf", Node("neg", (INFINITY,)): "-inf"}

#: A Fraction, or a real or complex number of mpmath's.
Number = Any


class TooLarge(ArithmeticError):
    """A value, or the work for it, is beyond the limits."""


class Undefined(ArithmeticError):
    """There is no value: a division by zero, the logarithm of zero, a function of the wrong arguments."""


class Beyond(ArithmeticError):
    """This arithmetic has no such operation."""


class Work:
    """The work that one answer may still cost."""

    def __init__(self, left: int = WORK) -> None:
        self.left = left

    def spend(self, additions: int) -> None:
        self.left -= additions
        if self.left < 0:
            raise TooLarge("work")


@lru_cache(8)
def context(digits: int) -> Any:
    """Mpmath's functions for so many digits. Not for two threads at once."""
    result = mpmath.MPContext()
    result.dps = digits
    return result


@lru_cache(8)
def _near(digits: int) -> Any:
    """Closer to a whole number than this is that number, where rounding functions ask."""
    return context(digits).mpf(10) ** -60


class Arithmetic:
    """Numbers of `digits` digits, on principal branches; odd roots of negative numbers are real, as in school.

    Operations raise TooLarge, Undefined or Beyond. least: powers that are too small are 0, for sums of many.
    """

    def __init__(self, digits: int, work: Work, *, least: bool = False) -> None:
        self.digits, self.work, self.mp, self._least = digits, work, context(digits), least

    def value(self, node: Node, values: Mapping[str, Number]) -> Number:
        """The value of a tree, with `values` for its variables."""
        self.work.spend(1)
        match node.op:
            case "number":
                return node.value
            case "symbol":
                given = values[str(node.value)]
                # Of a function, places are no exact numbers: high powers of them would have too many digits.
                return (
                    given
                    if str(node.value).startswith("bound ") and isinstance(given, Fraction)
                    else self.wide(given)
                )
            case "constant":
                return self._constant(str(node.value))
        if node.op in BINDERS:
            return self._bind(node, values)
        inner = [self.value(a, values) for a in node.args]
        match node.op:
            case "add":
                return reduce(self.add, inner)
            case "mul":
                return reduce(self.multiply, inner)
            case "neg":
                return -inner[0]
            case "div":
                return self.divide(*inner)
            case "pow":
                return self.power(*inner)
            case "root":
                return self.root(*inner)
            case "ratio" if len(inner) == 2:
                return self.divide(*inner)
            case "call" if str(node.value).startswith("given "):
                return self._unknown(str(node.value), inner)
            case "call":
                return self.call(str(node.value), inner)
        raise Beyond(node.op)

    def _bind(self, node: Node, values: Mapping[str, Number]) -> Number:
        """Sums, products, integrals and limits of one variable; an unknown number where there is no value in time."""
        body, *ends = node.args
        name = str(node.value)

        def at(value: Number) -> Number:
            return self.value(body, {**values, name: value})

        limits: list[Any] = [_INFINITE.get(e) or self.value(e, values) for e in ends]
        try:
            found = None
            if node.op == "sum" and limits[1] == "inf" and isinstance(limits[0], Fraction):
                found = self._series(at, limits[0])
            elif node.op in ("sum", "product") and all(isinstance(e, Fraction) for e in limits):
                low, high = limits
                if low.denominator * high.denominator == 1 and high - low <= _MOST_TERMS:
                    terms = (at(low + k) for k in range(int(high - low) + 1))
                    start = Fraction(node.op == "product")
                    found = reduce(self.add if node.op == "sum" else self.multiply, terms, start)
            elif node.op == "integral" and len(limits) == 2:
                found = self._integral(body, values, name, limits)
            elif node.op == "limit":
                found = self._limit(body, values, name, limits[0])
        except (ValueError, ZeroDivisionError) as error:
            raise Undefined(node.op) from error
        if found is None:
            samples = [at(self.mp.mpf(x)) for x in ("0.9137", "1.2713", "3.1771")]
            found = self._unknown(
                node.op, [*samples, *(self.mp.mpf(7) if isinstance(e, str) else e for e in limits)]
            )
        return found

    def _series(self, at: Callable[[Number], Number], low: Fraction) -> Number | None:
        """An endless sum whose terms vanish at least as fast as those of a geometric one; None for others."""
        total: Number = Fraction(0)
        small = 0
        for k in range(20 * self.digits):
            term = self.wide(at(low + k))
            total = self.add(total, term)
            small = small + 1 if abs(term) < self.mp.mpf(10) ** -self.digits * max(1, abs(total)) else 0
            if small == 4:
                return total
            if k == 2 * self.digits and abs(term) > self.mp.mpf(10) ** -20:
                break
        return None

    def _integral(
        self, body: Node, values: Mapping[str, Number], name: str, limits: list[Number]
    ) -> Number | None:
        """By double exponentials, to 70 digits; None where these do not converge."""
        field = Arithmetic(80, self.work, least=True)
        low, high = (
            field.mp.mpf(e) if isinstance(e, str) else field.mp.convert(field.wide(e)) for e in limits
        )

        def at(x: Any) -> Any:
            self._costs(_COSTLY)
            return field.wide(field.value(body, {**values, name: x}))

        found, error = field.mp.quad(at, [low, high], error=True, maxdegree=7)
        return found if error < field.mp.mpf(10) ** -65 * max(1, abs(found)) else None

    def _limit(self, body: Node, values: Mapping[str, Number], name: str, where: Number) -> Number | None:
        """From values beside the place, extrapolated; None where these disagree, or the sides do."""
        field = Arithmetic(300, self.work)
        mp = field.mp
        sides = []
        for side in (1, -1):
            if isinstance(where, str) and (where == "inf") != (side > 0):
                continue
            steps = [side * mp.mpf(10) ** -12 / 2**k for k in range(12)]
            places = [1 / h if isinstance(where, str) else field.wide(where) + h for h in steps]
            column = [field.wide(field.value(body, {**values, name: t})) for t in places]
            last = column[-1]
            for width in range(1, len(steps)):
                last = column[-1]
                column = [
                    (steps[k] * b - steps[k + width] * a) / (steps[k] - steps[k + width])
                    for k, (a, b) in enumerate(pairwise(column))
                ]
            if abs(last - column[0]) > mp.mpf(10) ** -70 * max(1, abs(column[0])):
                return None
            sides.append(column[0])
        if any(abs(s - sides[0]) > mp.mpf(10) ** -70 * max(1, abs(s)) for s in sides):
            return None
        return sides[0] if abs(sides[0]) > mp.mpf(10) ** -70 else Fraction(0)

    def wide(self, value: Number) -> Any:
        """The value as a number of mpmath's."""
        if isinstance(value, Fraction):
            wide = self.mp.mpf(value.numerator)
            return wide if value.denominator == 1 else wide / value.denominator
        return self.mp.convert(value)

    def _costs(self, additions: int) -> None:
        """Spend the work of an operation that takes the longer the more digits there are."""
        self.work.spend(additions * max(1, self.digits // 100))

    def _constant(self, name: str) -> Number:
        match name:
            case "pi":
                return +self.mp.pi
            case "e":
                return +self.mp.e
            case "i":
                return self.mp.j
        raise Beyond(name)

    def add(self, left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._exact(left + right)
        return self._tidy(self.wide(left) + self.wide(right))

    def multiply(self, left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._exact(left * right)
        return self._tidy(self.wide(left) * self.wide(right))

    def divide(self, left: Number, right: Number) -> Number:
        if not right:
            raise Undefined("division by zero")
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._exact(left / right)
        return self._tidy(self.wide(left) / self.wide(right))

    def power(self, base: Number, exponent: Number) -> Number:
        mp = self.mp
        if not base:
            if mp.re(self.wide(exponent)) <= 0:
                raise Undefined("a power of zero")
            return base
        if isinstance(exponent, Fraction):
            over, under = exponent.numerator, exponent.denominator
            if isinstance(base, Fraction):
                if abs(base) == 1 and under == 1:
                    return base if over % 2 else Fraction(1)
                if under < 64 and (root := _perfect_root(base, under)) is not None:
                    bits = max(root.numerator.bit_length(), root.denominator.bit_length())
                    if abs(over) * bits <= MAX_BITS:
                        return self._exact(root**over)
            if under > 1 and under % 2 and under < 64 and not mp.im(self.wide(base)) and base < 0:
                result = self.power(-base, exponent)
                return -result if over % 2 else result
        whole = isinstance(exponent, Fraction) and exponent.denominator == 1
        self._costs(1 if whole else _COSTLY)
        wide, exponent = self.wide(base), exponent.numerator if whole else self.wide(exponent)
        # By the size of the base first: logarithms take time.
        if abs(exponent) * (abs(mp.mag(wide)) + 1) > _LARGE and abs(size := exponent * mp.log(wide)) > _LARGE:
            if self._least and mp.re(size) < 0:
                return mp.zero
            raise TooLarge("a power")
        if exponent == 0.5:
            return mp.sqrt(wide)
        return self._tidy(wide**exponent)

    def root(self, degree: Number, radicand: Number) -> Number:
        if not degree:
            raise Undefined("a root of degree 0")
        return self.power(radicand, self.divide(Fraction(1), degree)) if radicand else radicand

    def call(self, name: str, arguments: list[Number]) -> Number:
        wide = [self.wide(a) for a in arguments]
        limit = self.mp.mpf(10) ** 40 if name in ("floor", "ceil", "mod") else _LARGE
        if name not in _ANY_SIZE and any(abs(x) > limit for x in wide):
            raise TooLarge(name)
        if (
            all(isinstance(a, Fraction) for a in arguments)
            and (exact := self._whole(name, arguments)) is not None
        ):
            return exact
        self._costs(_COSTLY)
        try:
            return self._tidy(self._call(name, arguments, wide))
        except (ValueError, ZeroDivisionError) as error:
            raise Undefined(name) from error
        except OverflowError as error:
            raise TooLarge(name) from error

    def _whole(self, name: str, reals: list[Fraction]) -> Fraction | None:
        """Functions whose values are exact."""
        whole = [a.numerator for a in reals if a.denominator == 1]
        match name, reals:
            case "abs", [x]:
                return abs(x)
            case "floor", [x]:
                return Fraction(math.floor(x))
            case "ceil", [x]:
                return Fraction(math.ceil(x))
            case "sign", [x]:
                return Fraction((x > 0) - (x < 0))
            case "mod", [x, y] if y:
                return x - y * math.floor(x / y)
            case (("max" | "min"), [_, *_]):
                return max(reals) if name == "max" else min(reals)
            case (("gcd" | "lcm"), [_, *_]) if len(whole) == len(reals):
                self._costs(_VERY_COSTLY)
                return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
            case "factorial", [x] if whole and x >= 0:
                if x > _MAX_FACTORIAL:
                    raise TooLarge("a factorial")
                return Fraction(math.factorial(whole[0]))
            case "binomial", [n, k] if len(whole) == 2 and n >= 0:
                if n > _MAX_FACTORIAL and min(k, n - k) * whole[0].bit_length() > MAX_BITS // 2:
                    raise TooLarge("a binomial coefficient")
                return Fraction(math.comb(whole[0], whole[1]) if k >= 0 else 0)
        return None

    def _call(self, name: str, arguments: list[Number], wide: list[Any]) -> Any:
        mp = self.mp
        match name, wide:
            case (("ln" | "log" | "lg"), [x, *base]) if len(base) < 2:
                below = mp.ln(base[0]) if base else 1 if name == "ln" else mp.ln(10)
                return mp.ln(x) / below
            case (("floor" | "ceil"), [x]) if not mp.im(x):
                near = mp.nint(x)
                return near if abs(x - near) < _near(self.digits) else getattr(mp, name)(x)
            case "mod", [x, y] if not mp.im(x) and not mp.im(y):
                return x - y * self._call("floor", [], [x / y])
            case (("max" | "min"), [_, *_]) if not any(mp.im(x) for x in wide):
                return max(wide) if name == "max" else min(wide)
            case (("gcd" | "lcm"), [_, *_]):
                # Of what is no whole number, or a variable: known by what it is applied to.
                return self._unknown(
                    name, [arguments[i] for i in sorted(range(len(wide)), key=lambda i: repr(wide[i]))]
                )
            case "factorial", [x]:
                self._costs(_VERY_COSTLY)
                return mp.factorial(x)
            case "binomial", [n, k]:
                self._costs(3 * _VERY_COSTLY)
                return mp.binomial(n, k)
            case (("floor" | "ceil" | "mod" | "max" | "min"), [_, *_]):
                raise Undefined("of a complex number")
            case _, [x] if name in _SAME or name in _DIFFERENT:
                return getattr(mp, _DIFFERENT.get(name, name))(x)
        raise Beyond(name)

    def _unknown(self, name: str, arguments: list[Number]) -> Number:
        """Some number: the same wherever the arguments are the same, and like none that is written."""
        texts = [" ".join(self._text(part) for part in self.parts(a)) for a in arguments]
        return self.mp.mpf(draw(name, *texts)) / 2**256

    def _text(self, value: Any) -> str:
        # A little more than the value: digits that end with a 5 lie between two, and noise must not decide.
        near = _near(self.digits)
        return str(self.mp.nstr(value + value * near, 25)) if abs(value) > near else "0"

    def parts(self, value: Number) -> tuple[Any, Any]:
        """Real and imaginary part."""
        wide = self.wide(value)
        if not self.mp.isfinite(wide):
            raise Undefined("no finite value")
        return self.mp.re(wide), self.mp.im(wide)

    def _exact(self, value: Fraction) -> Number:
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        self.work.spend(bits >> 10)
        return value if bits <= MAX_BITS else self.wide(value)

    def _tidy(self, value: Any) -> Any:
        """Without an imaginary part that is rounding noise; TooLarge beyond 10^±100000 or so."""
        mp = self.mp
        if value and mp.isfinite(value) and abs(mp.mag(value)) > 4 * _LARGE:
            raise TooLarge("a number")
        if not isinstance(value, mp.mpc):
            return value
        noise = abs(value) * mp.mpf(10) ** (10 - self.digits)
        return mp.re(value) if abs(mp.im(value)) <= noise else value


def draw(*parts: str) -> int:
    """A number of 256 bits that `parts` name."""
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=32).digest())


def _perfect_root(value: Fraction, n: int) -> Fraction | None:
    """The n-th root of a rational number, if it is rational, and real."""
    if n == 1:
        return value
    if value < 0:
        root = _perfect_root(-value, n) if n % 2 else None
        return -root if root is not None else None
    over, under = _whole_root(value.numerator, n), _whole_root(value.denominator, n)
    return None if over is None or under is None else Fraction(over, under)


def _whole_root(value: int, n: int) -> int | None:
    """The n-th root of a natural number, if it is whole."""
    if n == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    low, high = 0, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**n < value else (low, middle)
    return low if low**n == value else None
