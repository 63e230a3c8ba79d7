"""Numbers as people write them, read exactly.

`parse` understands integers, fractions (reduced or not), decimals and percentages, and nothing else: no
expressions, no evaluation, no locale. Work is bounded before any arithmetic happens, so that a hostile answer
costs no more than a short one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

MAX_CHARACTERS: Final = 256
"""Longer texts are no number; the bound keeps the integers, and so the work, small."""

_NUMBER: Final = re.compile(
    r"""(?P<sign>[+-]?)
        (?: (?P<numerator>[0-9]+) / (?P<denominator>[0-9]+)
          | (?P<whole>[0-9]+) (?: \. (?P<decimals>[0-9]*) )?
          | \. (?P<bare>[0-9]+)
        )
        (?P<percent>%?)""",
    re.VERBOSE | re.ASCII,
)


def parse(text: str) -> Fraction | None:
    """The exact value of `text`, or `None` when it is not one number.

    Accepts an optional sign, then an integer (`12`), a fraction of integers (`6/4`) or a decimal (`1.5`, `2.`,
    `.5`), then an optional percent sign; ASCII only; blanks around it don't matter. A zero denominator is no number.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    match = _NUMBER.fullmatch(text.strip(" \t\r\n"))
    if match is None:
        return None
    if match["numerator"] is not None:
        denominator = int(match["denominator"])
        if denominator == 0:
            return None
        value = Fraction(int(match["numerator"]), denominator)
    else:
        decimals = match["bare"] or match["decimals"] or ""
        value = Fraction(int((match["whole"] or "") + decimals), 10 ** len(decimals))
    if match["percent"]:
        value /= 100
    return -value if match["sign"] == "-" else value


def canonical(text: str) -> str | None:
    """One key for all the ways to write a number (`6/4`, `1.5` and `150%` are all `"3/2"`), or `None`."""
    value = parse(text)
    return None if value is None else str(value)


def equivalent(left: str, right: str) -> bool:
    """Whether both are numbers and the same one."""
    value = parse(left)
    return value is not None and value == parse(right)
