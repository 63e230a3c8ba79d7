"""The answer rule for tasks whose answers are numbers: equal by value, however they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence as Ordered

from metagen.errors import InputError
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.numbers import canonical

#: A line that begins with `A:`; the last such line counts.
ANSWER_LINE = r"^A:(.*)$"
_CURRENCY = re.compile(r"^([+-]?)[$€£]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def one_group(name: str, pattern: str) -> re.Pattern[str]:
    """A regular expression with one group, in which `^` and `$` stand for the ends of lines; else InputError."""
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise InputError(f"{name}={pattern!r} is not a regular expression: {error}") from error
    if compiled.groups != 1:
        raise InputError(f"{name}={pattern!r} has {compiled.groups} groups; expected one, around the answer")
    return compiled


class NumberRule(AnswerRule):
    """Reads a number: `6/4`, `1.5` and `150%` have the same key.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last
    match is the answer. A match that reaches the end of a text that was cut off does not count: more might
    have followed. prose: `$1,200.` is 1200.
    Verdicts: `missing` without a match (or an empty one), `unparsable` if what stands there is no number.
    """

    def __init__(self, pattern: str = ANSWER_LINE, *, prose: bool = False) -> None:
        self._pattern = one_group("pattern", pattern)
        self._prose = prose

    @property
    def fingerprint(self) -> str:
        return digest("number rule", self._pattern.pattern, str(self._prose)).hex()

    async def read(self, sequences: Ordered[Sequence]) -> list[Answer]:
        return [self._answer(sequence) for sequence in sequences]

    async def key(self, answer: str) -> str | None:
        return self.canonical(answer)

    def canonical(self, answer: str) -> str | None:
        """The key of an answer that stands by itself; None if it is no number."""
        if self._prose:
            answer = _CURRENCY.sub(r"\1", answer.strip().removesuffix("."))
            answer = _THOUSANDS.sub("", answer)
        return canonical(answer)

    def _answer(self, sequence: Sequence) -> Answer:
        whole = sequence.finish in ("eos", "stop")
        text = None
        for match in self._pattern.finditer(sequence.text):
            if whole or match.end() < len(sequence.text):
                text = match[1].strip() if match[1] is not None else None
        if not text:
            return Answer(verdict="missing")
        key = self.canonical(text)
        return Answer(text, key, None if key is not None else "unparsable")
