"""Real arithmetic to many digits, by the `decimal` module: bounded work for each operation, in C."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from metagen.verifiers.math.field import Beyond, TooLarge, Undefined

#: Larger exponents are too large; smaller ones too small.
_EXPONENT: Final = 100_000
COSTLY: Final = 6
#: Closer to an integer than this is that integer, where rounding functions ask.
_NEAR: Final = Decimal("1e-60")


@lru_cache(4)
def context(precision: int) -> decimal.Context:
    """Of so many digits; what has no value there traps."""
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Underflow]
    return decimal.Context(precision, Emax=_EXPONENT, Emin=-_EXPONENT, traps=traps)


@lru_cache(4)
def pi(precision: int) -> Decimal:
    """π by Machin's formula, in integers."""

    def arctan(n: int, one: int) -> int:
        total = term = one // n
        divisor, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // divisor)
            divisor, sign = divisor + 2, -sign
        return total

    one = 10 ** (precision + 10)
    scaled = 4 * (4 * arctan(5, one) - arctan(239, one))
    return context(precision).divide(Decimal(scaled), Decimal(one))


class Decimals:
    """Real numbers of `precision` digits. Beyond: complex values, trigonometry, and more than `costly` operations
    that take a millisecond (exp, log, powers that are not whole).
    """

    def __init__(self, precision: int, costly: int = COSTLY) -> None:
        self.precision, self._do, self._costly = precision, context(precision), costly

    def rational(self, value: Fraction) -> Decimal:
        if value.numerator.bit_length() > 4096 or value.denominator.bit_length() > 4096:
            raise TooLarge("a rational number")
        return self._do.divide(Decimal(value.numerator), Decimal(value.denominator))

    def constant(self, name: str) -> Decimal:
        if name == "pi":
            return pi(self.precision)
        if name == "e":
            return self._do.exp(Decimal(1))
        raise Beyond(name)

    def add(self, left: Decimal, right: Decimal) -> Decimal:
        return self._trapped("add", left, right)

    def multiply(self, left: Decimal, right: Decimal) -> Decimal:
        return self._trapped("multiply", left, right)

    def divide(self, left: Decimal, right: Decimal) -> Decimal:
        if not right:
            raise Undefined("division by zero")
        return self._trapped("divide", left, right)

    def power(self, base: Decimal, exponent: Decimal) -> Decimal:
        if base == 0:
            if exponent <= 0:
                raise Undefined("a power of zero")
            return base
        if exponent != exponent.to_integral_value():
            if base < 0:
                raise Beyond("a power of a negative number")
            self._spend()
        return self._trapped("power", base, exponent)

    def root(self, degree: Decimal, radicand: Decimal) -> Decimal:
        if not degree:
            raise Undefined("a root of degree 0")
        if radicand < 0:
            if degree % 2 == 1:
                return self.root(degree, radicand.copy_negate()).copy_negate()
            raise Beyond("a root of a negative number")
        if degree == 2:
            return self._do.sqrt(radicand)
        return self.power(radicand, self.divide(Decimal(1), degree)) if radicand else radicand

    def call(self, name: str, arguments: list[Decimal]) -> Decimal:
        match name, arguments:
            case "exp", [x]:
                self._spend()
                return self._trapped("exp", x)
            case (("ln" | "log" | "lg"), [x, *base]) if len(base) < 2:
                if x <= 0 or (base and (base[0] <= 0 or base[0] == 1)):
                    raise Beyond("a logarithm") if x else Undefined("the logarithm of zero")
                self._spend()
                if base:
                    return self._do.divide(self._do.ln(x), self._do.ln(base[0]))
                return self._do.ln(x) if name == "ln" else self._do.log10(x)
            case "abs", [x]:
                return x.copy_abs()  # abs() would round to the thread's own context
            case (("floor" | "ceil"), [x]):
                near = self._do.to_integral_value(x)
                if abs(self._do.subtract(x, near)) < _NEAR:
                    return near
                rounding = decimal.ROUND_FLOOR if name == "floor" else decimal.ROUND_CEILING
                return x.to_integral_value(rounding=rounding)
            case (("max" | "min"), [_, *_]):
                return max(arguments) if name == "max" else min(arguments)
        raise Beyond(name)

    def digits(self, value: Decimal) -> str:
        return str(context(25).plus(value).normalize(context(25)) if abs(value) > _NEAR else Decimal(0))

    def _spend(self) -> None:
        self._costly -= 1
        if self._costly < 0:
            raise Beyond("costly")

    def _trapped(self, name: str, *arguments: Decimal) -> Decimal:
        try:
            result: Decimal = getattr(self._do, name)(*arguments)
        except (decimal.Overflow, decimal.Underflow) as error:
            raise TooLarge(name) from error
        return result
