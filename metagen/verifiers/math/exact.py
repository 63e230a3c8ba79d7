"""Exact arithmetic on rational and Gaussian numbers, under a limit of work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metagen.verifiers.math.field import Beyond, TooLarge, Undefined

#: Of a numerator or denominator.
MAX_BITS: Final = 16_384
#: Bits of all results of one answer together.
FUEL: Final = 1 << 18
MAX_FACTORIAL: Final = 1_500


@dataclass(frozen=True, slots=True)
class Gauss:
    """re + im·i, im ≠ 0."""

    re: Fraction
    im: Fraction


Number = Fraction | Gauss


class Exact:
    """Fractions and Gaussian rationals. Beyond: anything irrational."""

    def __init__(self) -> None:
        self._fuel = FUEL

    def rational(self, value: Fraction) -> Number:
        return self._spend(value)

    def constant(self, name: str) -> Number:
        if name == "i":
            return Gauss(Fraction(0), Fraction(1))
        raise Beyond(name)

    def add(self, left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._spend(left + right)
        a, b = _gauss(left), _gauss(right)
        return self._simple(a.re + b.re, a.im + b.im)

    def multiply(self, left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._spend(left * right)
        a, b = _gauss(left), _gauss(right)
        return self._simple(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)

    def divide(self, left: Number, right: Number) -> Number:
        if isinstance(right, Fraction):
            if right == 0:
                raise Undefined("division by zero")
            if isinstance(left, Fraction):
                return self._spend(left / right)
        a, b = _gauss(left), _gauss(right)
        norm = b.re**2 + b.im**2
        return self.multiply(a, self._simple(b.re / norm, -b.im / norm))

    def power(self, base: Number, exponent: Number) -> Number:
        if not isinstance(exponent, Fraction):
            raise Beyond("a complex exponent")
        if exponent.denominator != 1:
            odd = exponent.denominator % 2
            if isinstance(base, Fraction) and (base >= 0 or odd) and exponent.denominator < 64:
                return self.power(
                    self.root(Fraction(exponent.denominator), base), Fraction(exponent.numerator)
                )
            raise Beyond("a root")
        n = exponent.numerator
        if isinstance(base, Fraction):
            return self._power(base, n)
        if abs(n) > 256:
            raise Beyond("a high power of a complex number")
        result: Number = Fraction(1)
        for _ in range(abs(n)):
            result = self.multiply(result, base)
        return result if n >= 0 else self.divide(Fraction(1), result)

    def _power(self, base: Fraction, n: int) -> Number:
        if base == 0:
            if n <= 0:
                raise Undefined("division by zero, or 0^0")
            return Fraction(0)
        if abs(base) == 1:
            return base if n % 2 else Fraction(1)
        if abs(n) * max(base.numerator.bit_length(), base.denominator.bit_length()) > 2 * MAX_BITS:
            raise TooLarge("a power")
        return self._spend(base**n)

    def root(self, degree: Number, radicand: Number) -> Number:
        if not (isinstance(degree, Fraction) and isinstance(radicand, Fraction) and degree.denominator == 1):
            raise Beyond("a root")
        n = degree.numerator
        if not 0 < n < 64:
            raise Beyond("a root")
        if radicand < 0:
            if n % 2:
                return self.multiply(Fraction(-1), self.root(degree, -radicand))  # the real root
            if n == 2 and isinstance(positive := self.root(degree, -radicand), Fraction):
                return self._simple(Fraction(0), positive)
            raise Beyond("a root of a negative number")
        over, under = _perfect(radicand.numerator, n), _perfect(radicand.denominator, n)
        if over is None or under is None:
            raise Beyond("an irrational root")
        return Fraction(over, under)

    def call(self, name: str, arguments: list[Number]) -> Number:
        reals = [a for a in arguments if isinstance(a, Fraction)]
        if len(reals) < len(arguments):
            raise Beyond(name)
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
            case (("max" | "min"), [_, *_]):
                return max(reals) if name == "max" else min(reals)
            case (("gcd" | "lcm"), [_, *_]) if len(whole) == len(reals):
                return self._spend(Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole)))
            case "factorial", [x] if whole and x >= 0:
                return self._factorial(whole[0])
            case "binomial", [n, k] if len(whole) == 2 and n >= 0:
                if n > MAX_FACTORIAL and min(k, n - k) * whole[0].bit_length() > MAX_BITS:
                    raise TooLarge("a binomial coefficient")
                return self._spend(Fraction(math.comb(whole[0], whole[1]) if k >= 0 else 0))
        raise Beyond(name)

    def _factorial(self, n: int) -> Number:
        if n > MAX_FACTORIAL:
            raise TooLarge("a factorial")
        return self._spend(Fraction(math.factorial(n)))

    def digits(self, value: Number) -> str:
        raise Beyond("digits")

    def _simple(self, re: Fraction, im: Fraction) -> Number:
        self._spend(re)
        return Gauss(re, self._spend(im)) if im else re

    def _spend(self, value: Fraction) -> Fraction:
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        self._fuel -= bits
        if bits > 2 * MAX_BITS or self._fuel < 0:
            raise TooLarge(f"{bits} bits")
        return value


def _gauss(value: Number) -> Gauss:
    return value if isinstance(value, Gauss) else Gauss(value, Fraction(0))


def _perfect(value: int, n: int) -> int | None:
    """The n-th root of a natural number, if it is whole."""
    if n == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value < 2:
        return value
    low, high = 1, 1 << (value.bit_length() // n + 1)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**n <= value else (low, middle)
    return low if low**n == value else None
