"""From values to keys: one key for each number, one for each function."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Final

from metagen.verifiers.math.decimals import context
from metagen.verifiers.math.exact import Gauss
from metagen.verifiers.math.field import Beyond, TooLarge

#: Digits that values are computed to, until two agree.
PRECISIONS: Final = (110, 220, 440)
#: Digits of a key.
DIGITS: Final = 30
_AGREE: Final = Decimal("1e-60")
_LARGEST: Final = Decimal("1e160")
_SMALLEST: Final = -10_000
#: A value this close (relative to itself) to a fraction with a denominator up to 10^20 is that fraction.
_RATIONAL: Final = Fraction(1, 10**60)
_DENOMINATOR: Final = 10**20
_LONG: Final = 2_048
_WORK: Final = context(460)

Complex = tuple[Decimal, Decimal]


def settle(value: Callable[[int], Complex]) -> Complex:
    """The value, real and imaginary part, to 60 places and 60 digits: computed to more digits until two runs agree.

    What stays below half of the digits twice is zero. TooLarge beyond 10^160, where 60 places are not to be had.
    """
    before = value(PRECISIONS[0])
    for precision in PRECISIONS[1:]:
        after = value(precision)
        size = max(after[0].copy_abs(), after[1].copy_abs())
        if size > _LARGEST or (size and size.adjusted() < _SMALLEST):
            raise TooLarge("a number")
        slack = _WORK.multiply(min(size, Decimal(1)), _AGREE)
        if size and all(_WORK.subtract(a, b).copy_abs() <= slack for a, b in zip(before, after, strict=True)):
            re, im = (part if part.copy_abs() > slack else Decimal(0) for part in after)
            return re, im
        if not size or (size.adjusted() < -precision // 2 and _size(before).adjusted() < -precision // 4):
            return Decimal(0), Decimal(0)
        before = after
    raise TooLarge("digits cancel")


def _size(value: Complex) -> Decimal:
    return max(value[0].copy_abs(), value[1].copy_abs())


def exact_key(value: Fraction | Gauss) -> str:
    """`3/2`, `-7`, `6-5i`; a digest where numbers are very long."""
    if isinstance(value, Gauss):
        re, im = exact_key(value.re), exact_key(value.im)
        return f"{im}i" if not value.re else f"{re}{im}i" if value.im < 0 else f"{re}+{im}i"
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONG:
        return f"rational {digest(f'{value.numerator:x}/{value.denominator:x}')}"
    return str(value)


def numeric_key(value: Complex) -> str:
    """The exact key of what is a fraction beyond doubt; otherwise `~` and 30 digits."""
    re, im = (_fraction(part) for part in value)
    if re is not None and im is not None:
        return exact_key(Gauss(re, im) if im else re)
    return f"~{rounded(value)}"


def _fraction(value: Decimal) -> Fraction | None:
    exact = Fraction(value)
    near = exact.limit_denominator(_DENOMINATOR)
    return near if abs(near - exact) <= abs(exact) * _RATIONAL else None


def rounded(value: Complex) -> str:
    """30 digits after the point; of what is smaller than 1, 30 digits that count."""
    size = _size(value)
    places = DIGITS if size >= 1 or not size else DIGITS - 1 - size.adjusted()
    re, im = (_digits(part, places) for part in value)
    return re if im == "0" else f"{re},{im}"


def _digits(value: Decimal, places: int) -> str:
    result = value.quantize(Decimal(1).scaleb(-places), context=_WORK)
    return str(_WORK.normalize(result)) if result else "0"


def real(value: Complex) -> Decimal:
    """The value if it is real; Beyond if not."""
    if value[1]:
        raise Beyond("a complex number has no place on the line")
    return value[0]


def digest(text: str) -> str:
    """16 bytes that name a text, in hexadecimal."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
