"""Complex arithmetic to many digits and the elementary functions, by mpmath: for worker processes only."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import mpmath

from metagen.verifiers.math.decimals import context
from metagen.verifiers.math.field import Beyond, TooLarge, Undefined
from metagen.verifiers.math.tree import names

#: Of exponents and arguments whose size decides how much work there is.
_LARGE: Final = 100_000
_SAME: Final = names("sin cos tan cot sec csc sinh cosh tanh coth")
_NAMES: Final = {
    "ln": "ln", "exp": "exp", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "abs": "fabs", "sign": "sign", "Re": "re", "Im": "im",
    "arg": "arg",
} | {name: name for name in sorted(_SAME)}  # fmt: skip


@lru_cache(4)
def _context(precision: int) -> Any:
    result = mpmath.MPContext()
    result.dps = precision
    return result


class Wide:
    """Complex numbers of `precision` digits, principal branches."""

    def __init__(self, precision: int) -> None:
        self.precision, self._mp = precision, _context(precision)
        self._near = self._mp.mpf(10) ** -60

    def rational(self, value: Fraction) -> Any:
        return self._mp.mpf(value.numerator) / value.denominator

    def constant(self, name: str) -> Any:
        match name:
            case "pi":
                return +self._mp.pi
            case "e":
                return +self._mp.e
            case "i":
                return self._mp.j
        raise Beyond(name)

    def add(self, left: Any, right: Any) -> Any:
        return self._real(left + right)

    def multiply(self, left: Any, right: Any) -> Any:
        return self._sized(self._real(left * right))

    def divide(self, left: Any, right: Any) -> Any:
        if not right:
            raise Undefined("division by zero")
        return self._sized(self._real(left / right))

    def power(self, base: Any, exponent: Any) -> Any:
        mp = self._mp
        if not base:
            if mp.re(exponent) <= 0:
                raise Undefined("a power of zero")
            return base
        if abs(exponent * mp.log(base)) > _LARGE:
            raise TooLarge("a power")
        if not mp.im(base) and base < 0 and (sign := self._odd(exponent)):
            # A power with an odd denominator has a real value, as in school: (−8)^(1/3) is −2.
            return sign * mp.power(-base, exponent)
        return self._real(mp.power(base, exponent))

    def _odd(self, exponent: Any) -> int:
        """(−1)^exponent, if the exponent is a fraction with a small odd denominator; else 0."""
        mp = self._mp
        if mp.im(exponent):
            return 0
        for under in range(3, 64, 2):
            over = mp.nint(exponent * under)
            if abs(exponent * under - over) < self._near and not mp.isint(exponent):
                return -1 if int(over) % 2 else 1
        return 0

    def root(self, degree: Any, radicand: Any) -> Any:
        if not degree:
            raise Undefined("a root of degree 0")
        if not radicand:
            return radicand
        odd = self._mp.isint(degree) and int(degree) % 2
        if odd and not self._mp.im(radicand) and radicand < 0:
            # The real root, as in school.
            return -self.root(degree, -radicand)
        return self.power(radicand, 1 / degree)

    def call(self, name: str, arguments: list[Any]) -> Any:
        mp = self._mp
        if any(abs(x) > _LARGE for x in arguments) and name not in (
            "ln",
            "log",
            "lg",
            "abs",
            "max",
            "min",
            "sign",
        ):
            raise TooLarge(name)
        try:
            match name, arguments:
                case (("ln" | "log" | "lg"), [x, *base]) if len(base) < 2:
                    below = mp.ln(base[0]) if base else 1 if name == "ln" else mp.ln(10)
                    return self._real(mp.ln(x) / below)
                case (("floor" | "ceil"), [x]):
                    near = mp.nint(x)
                    return near if abs(x - near) < self._near else getattr(mp, name)(x)
                case (("max" | "min"), [_, *_]) if not any(mp.im(x) for x in arguments):
                    return max(arguments) if name == "max" else min(arguments)
                case "factorial", [x]:
                    return mp.factorial(x)
                case "binomial", [n, k]:
                    return mp.binomial(n, k)
                case _, [x] if name in _NAMES:
                    return self._real(getattr(mp, _NAMES[name])(x))
        except (ValueError, ZeroDivisionError) as error:
            raise Undefined(name) from error
        except OverflowError as error:
            raise TooLarge(name) from error
        raise Beyond(name)

    def digits(self, value: Any) -> str:
        return " ".join(
            str(context(25).plus(part).normalize(context(25)) if abs(part) > Decimal("1e-60") else Decimal(0))
            for part in self.parts(value)
            if part == self.parts(value)[0] or abs(part) > Decimal("1e-60")
        )

    def parts(self, value: Any) -> tuple[Decimal, Decimal]:
        """Real and imaginary part."""
        return self._decimal(self._mp.re(value)), self._decimal(self._mp.im(value))

    def _decimal(self, value: Any) -> Decimal:
        if not self._mp.isfinite(value):
            raise Undefined("no finite value")
        return Decimal(self._mp.nstr(value, self.precision, strip_zeros=False))

    def _real(self, value: Any) -> Any:
        """Without an imaginary part that is zero or rounding noise."""
        if not isinstance(value, self._mp.mpc):
            return value
        noise = abs(value) * self._mp.mpf(10) ** (10 - self.precision)
        return self._mp.re(value) if abs(self._mp.im(value)) <= noise else value

    def _sized(self, value: Any) -> Any:
        if value and self._mp.isfinite(value) and abs(self._mp.mag(value)) > 4 * _LARGE:
            raise TooLarge("a product")
        return value
