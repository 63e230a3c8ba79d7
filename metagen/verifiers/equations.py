"""Whether the equations that a solution writes hold: a calculator as a verifier of worked arithmetic."""

from __future__ import annotations

import re
from collections import abc
from fractions import Fraction
from typing import ClassVar, Final

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.values import Share
from metagen.verifiers.base import Verifier

#: Goes up when a text would be judged otherwise than before.
EDITION: Final = "3"
_NUMBER: Final = r"\$?\d{1,30}(?:,\d{3})*(?:\.\d{1,30})?"
_SIGNED: Final = rf"(?:-(?=[\d$(])|\(\s*){{0,20}}{_NUMBER}(?:\s*\)){{0,20}}"
_SIDE: Final = rf"{_SIGNED}(?:\s*[-+*/x×÷·−]\s*{_SIGNED}){{0,50}}"
#: Sides that are joined by signs of equality. What stands before a number belongs to it: no word, no other number.
#: They are taken whole: what goes on behind them, as a power or a percentage, is no end of a number.
_CHAIN: Final = re.compile(rf"(?<![\w.,)])(?>{_SIDE}(?:\s*=\s*{_SIDE})+)(?!\s*\\?%|\s*per\s?cent|[\d^])")
_TOKEN: Final = re.compile(rf"{_NUMBER}|[-+*/()]")
#: In front of a line: the mark of a list.
_MARK: Final = re.compile(r"\s*(?:[-*•–]|\d+[.)])\s+")
#: In front of a side: it goes on to the left, as a power, or with words that are no number.
_GOES_ON: Final = re.compile(r"(?:[-+*/×÷·−^]|\b(?:x|of|by|times|plus|minus))\s*$")
#: In front of a bracket: what it is multiplied by.
_TIMES: Final = re.compile(r"[\d)]\s+$")
_SIGNS: Final = str.maketrans({"x": "*", "×": "*", "·": "*", "÷": "/", "−": "-"})


@part
class EquationVerifier(Verifier):
    r"""1 if all equations between numbers in a text hold, such as `12 * 3 = 36` or `(4 + 5) / 2 = 4.5`; else `wrong`.

    steps: the same for each line; a line without an equation has none that is false. A text without any has the verdict
    `no equation`. The side behind a sign of equality may be rounded to the places that it has, if it has any: `7/3 =
    2.33` holds, and `7/2 = 3` does not. Whether it was the right thing to compute, this does not see. Costs nothing.
    Calculators for worked solutions are from Cobbe et al. 2021 (arXiv:2110.14168). wrong: the value where an equation
    is false; above 0, texts with false equations keep some vote.

    Examples:
        >>> import asyncio, metagen as mg
        >>> text = mg.Sequence(mg.Prompt("1", text="?"), "2 + 3 = 5\n5 * 2 = 11", finish="eos")
        >>> (score,) = asyncio.run(mg.EquationVerifier().score([text], scope=mg.Scope.root("1")))
        >>> score.value, score.steps
        (0.0, (1.0, 0.0))
    """

    spends: ClassVar[bool] = False

    name: str = "equations"
    wrong: Share = 0.0

    @property
    def fingerprint(self) -> str:
        return digest("equations", EDITION, repr(self.wrong)).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        found = {text: self._judge(text) for text in dict.fromkeys(s.text for s in sequences)}
        return [found[s.text] for s in sequences]

    def _judge(self, text: str) -> Score:
        lines = [check_equations(line) for line in text.splitlines() if line.strip()]
        if not any(lines):
            return Score(None, verdict="no equation")
        steps = tuple(1.0 if all(line) else self.wrong for line in lines)
        return Score(min(steps), steps=steps)


def check_equations(text: str) -> list[bool]:
    """For each equation between numbers in a line, in order, whether it holds.

    Where words are among the numbers (`3 boxes + 4 = 7`), or percentages, nothing is said of it.
    """
    mark = _MARK.match(text)
    text = text[mark.end() :] if mark else text
    verdicts = []
    for chain in _CHAIN.finditer(text):
        before = text, 0, chain.start()
        if _GOES_ON.search(*before) or (chain[0][0] == "(" and _TIMES.search(*before)):
            continue
        left, *rest = re.split(r"\s*=\s*", chain[0])
        # It began further to the left, as what a function is given.
        part = left.count(")") > left.count("(")
        for right in rest:
            if not part and (_has_operator(left) or _has_operator(right)):
                verdicts.append(_holds(left, right))
            left, part = right, False
    return verdicts


def _has_operator(side: str) -> bool:
    return len(_TOKEN.findall(side.translate(_SIGNS))) > 1


def _holds(left: str, right: str) -> bool:
    try:
        difference = abs(_evaluate(left) - _evaluate(right))
    except (ValueError, ZeroDivisionError):
        return False
    places = 0 if _has_operator(right) else len(right.partition(".")[2].rstrip(")"))
    return difference == 0 or (places > 0 and 2 * difference * 10**places <= 1)


def _evaluate(side: str) -> Fraction:
    """The value of a side. ValueError for brackets that do not match; ZeroDivisionError."""
    tokens = _TOKEN.findall(side.translate(_SIGNS))
    value, rest = _sum(tokens)
    if rest:
        raise ValueError(f"{side!r} has a bracket too many")
    return value


def _sum(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign, (more, tokens) = tokens[0], _product(tokens[1:])
        value = value + more if sign == "+" else value - more
    return value, tokens


def _product(tokens: list[str]) -> tuple[Fraction, list[str]]:
    value, tokens = _factor(tokens)
    while tokens and tokens[0] in "*/":
        sign, (more, tokens) = tokens[0], _factor(tokens[1:])
        value = value * more if sign == "*" else value / more
    return value, tokens


def _factor(tokens: list[str]) -> tuple[Fraction, list[str]]:
    if not tokens:
        raise ValueError("a side ends where a number is wanted")
    first, rest = tokens[0], tokens[1:]
    if first == "-":
        value, rest = _factor(rest)
        return -value, rest
    if first == "(":
        value, rest = _sum(rest)
        if rest[:1] != [")"]:
            raise ValueError("a bracket is not closed")
        return value, rest[1:]
    return Fraction(first.strip("$").replace(",", "")), rest
