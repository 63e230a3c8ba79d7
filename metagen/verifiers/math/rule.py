"""The answer rule for mathematics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Sequence as Ordered

from metagen.errors import InputError
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.math.canonical import Percent, Verdict, narrow
from metagen.verifiers.math.extract import SOURCES, Source, check, find
from metagen.verifiers.math.pool import Pool, shared
from metagen.verifiers.numeric import one_group

#: Changes whenever a key does, so that what was recorded under other keys is not mixed with it.
EDITION = "1"
#: Answers judged in one go, before other coroutines may run.
_STRETCH = 32


class MathRule(AnswerRule):
    r"""Reads mathematical answers: `\frac{1}{2}`, `0.5` and `50\%` have the same key, and so have `2(k+1)` and `2k+2`.

    Keys are functions of the answer alone, so that having the same key is an equivalence relation; what counts as the
    same is said in docs/explanation/answers.md. Nothing is executed, and no answer takes longer than its deadline:
    what bounded arithmetic cannot do is done in worker processes, which are killed when they are late.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last match is
    looked at first. sources: where an answer is looked for, in which order. percent: `50%` is one half
    (`hundredths`), or 50, for data whose references leave the sign out (`dropped`). deadline: seconds of an answer,
    from when a worker takes it up. pool: its workers; by default those that all rules of the process share.
    Verdicts: `missing`, `unparsable`, and `timeout` for what could not be judged in time.
    """

    def __init__(
        self,
        pattern: str | None = None,
        *,
        sources: Ordered[Source] = SOURCES,
        percent: Percent = "hundredths",
        deadline: float = 5.0,
        pool: Pool | None = None,
    ) -> None:
        if percent not in ("hundredths", "dropped"):
            raise InputError(f"percent={percent!r} is unknown; expected 'hundredths' or 'dropped'")
        if not 0 < deadline < float("inf"):
            raise InputError(f"deadline={deadline!r}: expected seconds, more than 0 and not without end")
        self._pattern = one_group("pattern", pattern) if pattern is not None else None
        self._sources, self._percent, self._deadline = check(tuple(sources)), percent, deadline
        self._pool = pool

    @property
    def fingerprint(self) -> str:
        pattern = self._pattern.pattern if self._pattern else ""
        options = (pattern, " ".join(self._sources), self._percent, str(self._deadline))
        return digest("math rule", EDITION, *options).hex()

    async def read(self, sequences: Ordered[Sequence]) -> list[Answer]:
        texts = [self.find(sequence) for sequence in sequences]
        verdicts = await self._judge(text for text in texts if text is not None)
        return [
            Answer(verdict="missing") if text is None else Answer(text, *verdicts[text]) for text in texts
        ]

    async def key(self, answer: str) -> str | None:
        return (await self._judge([answer]))[answer].key

    async def judge(self, answers: Ordered[str]) -> list[Answer]:
        """One verdict per answer that stands by itself, in order."""
        verdicts = await self._judge(answers)
        return [Answer(answer, *verdicts[answer]) for answer in answers]

    def find(self, sequence: Sequence) -> str | None:
        """The answer as written in a sequence, None if there is none."""
        ended = sequence.finish in ("eos", "stop")
        return find(sequence.text, pattern=self._pattern, sources=self._sources, ended=ended)

    async def _judge(self, answers: Iterable[str]) -> dict[str, Verdict]:
        verdicts: dict[str, Verdict] = {}
        waiting: dict[str, asyncio.Future[Verdict]] = {}
        for i, answer in enumerate(answers):
            if answer in verdicts or answer in waiting:
                continue
            if i % _STRETCH == _STRETCH - 1:
                await asyncio.sleep(0)
            verdict = narrow(answer, self._percent)
            if verdict is not None:
                verdicts[answer] = verdict
            else:
                pool = self._pool or shared()
                waiting[answer] = asyncio.wrap_future(pool.submit(answer, self._percent, self._deadline))
        if waiting:
            verdicts.update(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
        return verdicts
