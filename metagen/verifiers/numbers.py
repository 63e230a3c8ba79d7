"""Numbers as people write them, read exactly, and the answer rule for tasks whose answers are such numbers.

`parse` understands integers, fractions (reduced or not), decimals and percentages, and nothing else: no
expressions, no evaluation, no locale. Work is bounded before any arithmetic happens, so that a hostile answer
costs no more than a short one. Answers of any other kind are for `metagen.verifiers.math`.
"""

from __future__ import annotations

import re
from dataclasses import field
from fractions import Fraction
from typing import Final

from metagen.parts import part
from metagen.sequence import digest
from metagen.verifiers.base import Answer
from metagen.verifiers.pattern import PatternRule

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
#: A line that begins with `A:`; the last such line counts.
ANSWER_LINE: Final = r"^A:(.*)$"
_CURRENCY: Final = re.compile(r"^([+-]?)[$€£]")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


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


@part
class NumberRule(PatternRule):
    """Reads a number: `6/4`, `1.5` and `150%` have the same key.

    pattern: as of `PatternRule`. prose: `$1,200.` is 1200, and a whole text that is one number needs no match.
    Verdicts: `missing` without a match (or an empty one), `unparsable` if what stands there is no number.
    """

    pattern: str = field(default=ANSWER_LINE, kw_only=False)
    prose: bool = False

    @property
    def fingerprint(self) -> str:
        return digest("number rule", self.pattern, str(self.prose)).hex()

    def canonical(self, answer: str) -> str | None:
        if self.prose:
            answer = _CURRENCY.sub(r"\1", answer.strip().removesuffix("."))
            answer = _THOUSANDS.sub("", answer)
        return canonical(answer)

    def answer(self, text: str, ended: bool) -> Answer:
        found = self.match(text, ended)
        if found is None and ended and self.prose and self.canonical(text) is not None:
            found = text
        return self.to_answer(found)
