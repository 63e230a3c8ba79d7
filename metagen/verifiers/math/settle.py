"""From values to keys: one key for each number."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final

from metagen.verifiers.math.arithmetic import Beyond, TooLarge, context

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
_PRINTED: Final = Context(prec=460)

#: Real and imaginary part, numbers of `WIDE`.
Complex = tuple[Any, Any]


def settle(value: Callable[[int], Complex]) -> Complex:
    """The value, real and imaginary part, to 60 places and 60 digits: computed to more digits until two runs agree.

    What stays below half of the digits twice is zero. TooLarge beyond 10^160, where 60 places are not to be had.
    """
    before = _converted(value(PRECISIONS[0]))
    for precision in PRECISIONS[1:]:
        after = _converted(value(precision))
        size = _size(after)
        if size and not _SMALLEST < magnitude(size) <= _LARGEST:
            raise TooLarge("a number")
        slack = min(size, WIDE.one) * WIDE.mpf(10) ** -60
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


def _converted(value: Complex) -> Complex:
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
    """The exact key of what is a fraction beyond doubt, `6-5i` with one of both parts; otherwise `~` and 30 digits."""
    re, im = (_fraction(part) for part in value)
    if re is None or im is None:
        return f"~{rounded(value)}"
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


def rounded(value: Complex) -> str:
    """30 digits after the point; of what is smaller than 1, 30 digits that count."""
    size = _size(value)
    places = DIGITS
    if size and size < 1:
        # The exact place of the first digit: what is about 10^-5 may begin at the fifth place or at the sixth.
        places -= 1 + int(WIDE.floor(WIDE.log10(size)))
    re, im = (_digits(part, places) for part in value)
    return re if im == "0" else f"{re},{im}"


def _digits(value: Any, places: int) -> str:
    whole = int(WIDE.nint(value * WIDE.mpf(10) ** places))
    return str(Decimal(whole).scaleb(-places, _PRINTED).normalize(_PRINTED)) if whole else "0"


def real(value: Complex) -> Any:
    """The value if it is real; Beyond if not."""
    if value[1]:
        raise Beyond("a complex number has no place on the line")
    return value[0]


def digest(text: str) -> str:
    """16 bytes that name a text, in hexadecimal."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
