"""What every search has to survive: any budget, an end in the middle, a verifier that fails, a cancellation."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, abc
from collections.abc import Callable, Iterable, Mapping

import pytest
from scipy import stats

from metagen.budget import Budget
from metagen.call import Ended, Outcome
from metagen.errors import EngineError
from metagen.generators.function import FunctionGenerator
from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import Result, Strategy
from metagen.testing import CountingJournal
from metagen.verifiers.function import FunctionVerifier

PROMPT = Prompt("p", text="?")


def survives_every_budget(strategy: Strategy, prompt: Prompt = PROMPT) -> list[Result]:
    """Under every number of calls: never overshot, marked where it binds, the same twice. All results, by calls."""
    free = strategy.solve(prompt)
    assert not free.exhausted
    results = []
    for calls in range(free.usage.calls + 1):
        result = strategy.solve(prompt, budget=Budget(calls=calls))
        assert result.usage.calls <= calls
        assert result.exhausted == (calls < free.usage.calls)
        assert result.sequence.extends(Sequence.of(prompt))
        assert strategy.solve(prompt, budget=Budget(calls=calls)).sequence == result.sequence
        results.append(result)
    assert results[-1].sequence == free.sequence
    return results


def resumes(strategy: Strategy, prompt: Prompt = PROMPT, *, every: int = 1) -> None:
    """Whatever part of its records is there, it asks for the rest alone and comes to the same end."""
    journal = CountingJournal()
    whole = strategy.solve(prompt, journal=journal)
    rows = journal.of_problem(prompt.problem_id)
    for kept in range(0, len(rows) + 1, every):
        shorter = journal_of(rows[:kept])
        again = strategy.solve(prompt, journal=shorter)
        assert (again.sequence, again.candidates) == (whole.sequence, whole.candidates)
        assert again.usage.calls == whole.usage.calls
        assert shorter.recorded == len(rows) - kept


def journal_of(rows: Iterable[Row]) -> CountingJournal:
    journal = CountingJournal()
    asyncio.run(journal.record(list(rows)))
    journal.recorded = 0
    return journal


class Breaks(FunctionVerifier):
    """Fails when it is asked for the `when`-th time; never if it is None."""

    when: int | None = None
    asked = 0

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        self.asked += 1
        if self.asked == self.when:
            raise EngineError("the judge is gone")
        return await super().evaluate(sequences, scope, ended)


class Relative(FunctionVerifier):
    """Says that its scores mean something among those asked for together only."""

    relative = True  # type: ignore[assignment]  # a property of other verifiers


def survives_a_failing_verifier(
    make: Callable[[FunctionVerifier], Strategy], function: Callable[[Sequence], float]
) -> None:
    """Wherever the verifier fails: its error is raised, and what was paid for is not paid for again."""
    sound = Breaks(function)
    whole = make(sound).solve(PROMPT)
    for when in range(1, sound.asked + 1):
        journal, verifier = CountingJournal(), Breaks(function)
        verifier.when = when
        with pytest.raises(EngineError, match="the judge is gone"):
            make(verifier).solve(PROMPT, journal=journal)
        again = make(Breaks(function)).solve(PROMPT, journal=journal)
        assert (again.sequence, again.candidates) == (whole.sequence, whole.candidates)
        assert journal.recorded == len(whole.trace.rows)


def is_cancelled_cleanly(strategy: Strategy, *, after: float = 0.03) -> None:
    """Nothing goes on after the call that was cancelled. The strategy's generator has to be a slow one."""

    async def main() -> None:
        task = asyncio.create_task(strategy.asolve(PROMPT))
        await asyncio.sleep(after)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def slow(generator: FunctionGenerator, seconds: float = 0.02) -> FunctionGenerator:
    """The same texts, later."""
    function = generator._function

    async def write(prefix: Sequence, seed: int, index: int) -> object:
        await asyncio.sleep(seconds)
        written = function(prefix, seed, index)
        return await written if inspect.isawaitable(written) else written

    return FunctionGenerator(write, name="slow")  # type: ignore[arg-type]  # what the other wrote


def has_distribution(seen: Counter[str], exact: Mapping[str, float], alarm: float = 1e-4) -> None:
    """Chi-square at a false-alarm rate of 1e-4, over fixed seeds; rare outcomes are pooled."""
    assert set(seen) <= {text for text, p in exact.items() if p > 0}
    n = sum(seen.values())
    common = [text for text, p in exact.items() if n * p >= 5]
    counts, expected = [seen[t] for t in common], [n * exact[t] for t in common]
    rest = n - sum(expected)
    if rest > 1e-9 * n:
        counts, expected = [*counts, n - sum(counts)], [*expected, rest]
    assert stats.chisquare(counts, expected).pvalue > alarm
