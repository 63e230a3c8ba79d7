"""The answer rule for mathematics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from metagen.errors import InputError
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.math.canonical import TIMEOUT, Percent, Verdict, narrow
from metagen.verifiers.math.extract import SOURCES, Source, check, find
from metagen.verifiers.math.pool import Pool, shared
from metagen.verifiers.pattern import one_group

#: Changes whenever a key does, so that what was recorded under other keys is not mixed with it.
EDITION = "3"
#: Answers judged in one go, before other coroutines may run.
_STRETCH = 32
#: Seconds.
_STEP = 1.0


@cache
def versions() -> tuple[str, ...]:
    """Of the libraries that workers ask: what they read and how they round is theirs."""
    found = []
    for name in ("math-verify", "latex2sympy2_extended", "sympy", "mpmath"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("none")
    return tuple(found)


class MathRule(AnswerRule):
    r"""Reads mathematical answers: `\frac{1}{2}`, `0.5` and `50\%` have the same key, and so have `2(k+1)` and `2k+2`.

    Keys are functions of the answer alone, so that having the same key is an equivalence relation; what counts as the
    same is said in docs/explanation/answers.md. Nothing is executed, and no answer takes longer than its deadline:
    what bounded arithmetic cannot do is done in worker processes, which are killed when they are late.

    pattern: a regular expression with one group, in which `^` and `$` stand for the ends of lines; its last match is
    looked at first. sources: where an answer is looked for, in which order. percent: `50%` is one half
    (`hundredths`), or 50, for data whose references leave the sign out (`dropped`). deadline: seconds of an answer,
    from when a worker takes it up; within: seconds of all answers of one call, from when it is made, after which those
    that are still open are `timeout`. pool: its workers; by default those that all rules of the process share.
    Verdicts: `missing`, `unparsable`, and `timeout` for what could not be judged in time. Raises InputError for a
    pattern without one group, an unknown source or percent, and seconds that are not positive and finite.
    """

    def __init__(
        self,
        pattern: str | None = None,
        *,
        sources: Ordered[Source] = SOURCES,
        percent: Percent = "hundredths",
        deadline: float = 5.0,
        within: float = 60.0,
        pool: Pool | None = None,
    ) -> None:
        if percent not in ("hundredths", "dropped"):
            raise InputError(f"percent={percent!r} is unknown; expected 'hundredths' or 'dropped'")
        for name, seconds in (("deadline", deadline), ("within", within)):
            if not 0 < seconds < float("inf"):
                raise InputError(f"{name}={seconds!r}: expected seconds, more than 0 and not without end")
        self._pattern = one_group("pattern", pattern) if pattern is not None else None
        self._sources, self._percent, self._deadline = check(tuple(sources)), percent, deadline
        self._pool, self._within = pool, within

    @property
    def fingerprint(self) -> str:
        pattern = self._pattern.pattern if self._pattern else ""
        options = (pattern, " ".join(self._sources), self._percent, str(self._deadline), str(self._within))
        return digest("math rule", EDITION, *options, *versions()).hex()

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
        waiting_as = object()
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
                job = pool.submit(answer, self._percent, self._deadline, waiting_as)
                waiting[answer] = asyncio.wrap_future(job)
        if waiting:
            await self._wait(waiting.values())
            verdicts.update((a, TIMEOUT if f.cancelled() else f.result()) for a, f in waiting.items())
        return verdicts

    async def _wait(self, futures: Iterable[asyncio.Future[Verdict]]) -> None:
        """Until all are there, or the time of this call is over: what is left then is cancelled."""
        pending, left = set(futures), self._within
        try:
            while pending and left > 0:
                # In steps, which count for no more than they are: the whole process may be paused.
                step = min(left, _STEP)
                _, pending = await asyncio.wait(pending, timeout=step)
                left -= step
        finally:
            for future in pending:
                future.cancel()
