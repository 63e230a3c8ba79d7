"""Numerals: what the digits of an answer stand for."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

#: Decimals from this many places on may be a rounded fraction.
PLACES: Final = 6
#: A double has about 16 significant digits; the last two of a printed one are rounding noise.
DOUBLE: Final = range(16, 18)
KEPT: Final = 14
_REPEATING: Final = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}", re.ASCII)


def decimal(text: str) -> Fraction:
    """The value of digits with at most one point, such as `12`, `.5` or `0.333333`.

    Exact, but for long decimals: with d ≥ 6 places they are read as the simplest fraction that rounds to them, if
    its denominator is at most 10^(d/2 − 1): `0.333333` is 1/3, `3.141593` is itself. A random decimal meets such a
    fraction with a chance of about 0.3 %. Others that look like a printed double (16 or 17
    significant digits, at least 6 places) are rounded to 14 digits first: `0.30000000000000004` is 3/10.
    """
    whole, _, places = text.partition(".")
    places = places.rstrip("0")
    exact = Fraction(int((whole or "0") + places), 10 ** len(places))
    if len(places) < PLACES:
        return exact
    simple = exact.limit_denominator(10 ** (len(places) // 2 - 1))
    if abs(simple - exact) * 2 <= Fraction(1, 10 ** len(places)):
        return simple
    significant = len((whole + places).lstrip("0"))
    if significant not in DOUBLE:
        return exact
    cut = significant - KEPT
    kept = (int(whole + places) + 10**cut // 2) // 10**cut
    digits = f"{kept:0{len(places) - cut + 1}d}"
    return decimal(f"{digits[: cut - len(places)]}.{digits[cut - len(places) :]}")


def repeating(text: str) -> Fraction:
    r"""The value of `0.1\overline{6}`."""
    match = _REPEATING.fullmatch(text)
    assert match is not None
    whole, places, period = match[1] or "0", match[2], match[3]
    scale = 10 ** len(places)
    return Fraction(int(whole + places), scale) + Fraction(int(period), (10 ** len(period) - 1) * scale)


def scientific(text: str) -> Fraction:
    """The value of `1.5e-3`; the exponent has at most three digits."""
    mantissa, _, exponent = text.lower().partition("e")
    return decimal(mantissa) * Fraction(10) ** int(exponent)
