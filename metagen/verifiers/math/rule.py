"""The answer rule for mathematics."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from importlib.metadata import version
from typing import Any

from metagen.parts import part
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.math.extract import SOURCES, Source, check, find
from metagen.verifiers.math.keys import Percent, Verdict, attempt, verdict
from metagen.verifiers.pattern import one_group

#: Changes whenever a key does, so that what was recorded under other keys is not mixed with it.
EDITION = "8"
#: Answers judged in one go, before other coroutines may run.
_STRETCH = 32
#: Additions (some 10 ms) that an answer may take in the thread of the event loop; the few that take more do elsewhere.
_SHORT = 3_000


@cache
def _mpmath() -> str:
    """Its version: the keys depend on how it rounds."""
    return version("mpmath")


@part
class MathRule(AnswerRule):
    r"""Reads mathematical answers: `\frac{1}{2}`, `0.5` and `50\%` have the same key, and so have `2(k+1)` and `2k+2`.

    Keys are functions of the answer alone, so having the same key is an equivalence relation;
    docs/explanation/answers.md says which answers are the same. Nothing is executed. The work of an answer is counted
    and ends at a limit, so no verdict depends on the load of the machine.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last match is
    looked at first. sources: the places of an answer, in the order of the search. percent: `50%` is one half
    (`hundredths`), or 50, for data whose references leave the sign out (`dropped`). Verdicts: `missing` and
    `unparsable`. Raises InputError for a pattern without one group, an unknown source, no source, and a pattern that no
    source looks for.
    """

    pattern: str | None = field(default=None, kw_only=False)
    sources: abc.Sequence[Source] = SOURCES
    percent: Percent = "hundredths"

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        """What its fields cannot be to each other: see `Strategy.conflict`."""
        pattern, sources = given["pattern"], tuple(given["sources"])
        if not sources:
            return "sources=(): no place is looked at, and every answer would be missing; name at least one"
        if pattern is not None and "pattern" not in sources:
            return (
                f"pattern={pattern!r}: sources={sources!r} does not look at it; add 'pattern' to sources, or leave "
                "pattern out"
            )
        if pattern is None and "pattern" in sources and sources != SOURCES:
            why = "there is no pattern to look for; give pattern, or leave 'pattern' out of sources"
            return f"sources={sources!r}: {why}"
        return None

    def __post_init__(self) -> None:
        self._pattern = one_group("pattern", self.pattern) if self.pattern is not None else None
        self._sources = check(tuple(self.sources))

    @property
    def fingerprint(self) -> str:
        pattern = self._pattern.pattern if self._pattern else ""
        return digest("math rule", EDITION, pattern, " ".join(self._sources), self.percent, _mpmath()).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        texts = [self.find(sequence) for sequence in sequences]
        verdicts = await self._judge(text for text in texts if text is not None)
        return [
            Answer(verdict="missing") if text is None else Answer(text, *verdicts[text]) for text in texts
        ]

    async def key(self, answer: str) -> str | None:
        return (await self._judge([answer]))[answer].key

    async def judge(self, answers: abc.Sequence[str]) -> list[Answer]:
        """One verdict per answer that stands by itself, in order."""
        verdicts = await self._judge(answers)
        return [Answer(answer, *verdicts[answer]) for answer in answers]

    def find(self, sequence: Sequence) -> str | None:
        """The answer as written in a sequence, None if there is none."""
        ended = sequence.finish in ("eos", "stop")
        return find(sequence.text, pattern=self._pattern, sources=self._sources, ended=ended)

    async def _judge(self, answers: Iterable[str]) -> dict[str, Verdict]:
        verdicts: dict[str, Verdict] = {}
        for i, answer in enumerate(answers):
            if answer in verdicts:
                continue
            if i % _STRETCH == _STRETCH - 1:
                await asyncio.sleep(0)
            found = attempt(answer, self.percent, _SHORT)
            if found is None:
                found = await asyncio.to_thread(verdict, answer, self.percent)
            verdicts[answer] = found
        return verdicts
