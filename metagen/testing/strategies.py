"""The laws of strategies, as tests: subclass `StrategyLaws` in a test module and give `make`.

A strategy is a generator, so the laws of generators hold as well.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from contextvars import ContextVar

import pytest

from metagen.budget import Budget
from metagen.generators.base import Generator
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import MajorityVote
from metagen.testing.generators import GeneratorLaws, run
from metagen.verifiers.function import FunctionRule, FunctionVerifier

#: Seconds that a jittered sample takes at most.
JITTER = 0.002
_JITTER: ContextVar[random.Random | None] = ContextVar("jitter", default=None)


def numbers(*, tokens: int = 5) -> FunctionGenerator:
    """A generator for laws: five words, of which the last is an answer from 0 to 3."""

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        if (jitter := _JITTER.get()) is not None:
            await asyncio.sleep(jitter.random() * JITTER)
        draw = random.Random(seed)
        return f"{draw.random():.6f} so it is {draw.choice('0112')}"

    return FunctionGenerator(
        write, name="law numbers", count=lambda text: len(text.split()), max_tokens=tokens
    )


#: Reads the last word as the answer.
last_word = FunctionRule(lambda text: text.split()[-1] if text.split() else None)
#: A verifier without insight: any fixed function of the text will do.
first_word = FunctionVerifier(lambda s: float(s.text.split()[0]) if s.text else 0.0, name="law first word")


class StrategyLaws(GeneratorLaws):
    """What every Strategy promises. `make` gives the strategy over any generator, such as `numbers()`."""

    @abstractmethod
    def make(self) -> Strategy:
        """The strategy under test."""

    @pytest.mark.parametrize("tokens", [0, 1, 4, 5, 12, 25, 40, 1000])
    def test_a_token_budget_is_never_overshot_and_something_is_always_returned(self, tokens: int) -> None:
        strategy = self.make()
        result = strategy.solve(self.prompt, budget=Budget(generated=tokens))
        assert result.usage.generated is not None
        assert result.usage.generated <= tokens
        assert result.sequence.extends(Sequence.of(self.prompt))
        assert result.exhausted or result.text

    def _over(self) -> Strategy:
        """A vote over three runs of it, which share one limit."""
        return MajorityVote(self.make(), 3, answer=last_word)

    @pytest.mark.parametrize("budget", [Budget(generated=27), Budget(calls=7), Budget(calls=13)])
    def test_a_limit_ends_it_alike_whoever_is_faster(self, budget: Budget) -> None:
        over = self._over()

        async def main() -> set[tuple[str, bool, int]]:
            found = set()
            for turn in range(6):
                _JITTER.set(random.Random(turn))
                result = await over.asolve(self.prompt, budget=budget)
                found.add((result.text, result.exhausted, result.usage.calls))
            return found

        assert len(asyncio.run(main())) == 1

    @pytest.mark.parametrize("budget", [None, Budget(generated=27), Budget(calls=7)])
    def test_whatever_is_recorded_already_it_comes_to_the_same_end(self, budget: Budget | None) -> None:
        over, whole = self._over(), MemoryJournal()
        first = over.solve(self.prompt, budget=budget, journal=whole)
        rows = whole.of_problem(self.prompt.problem_id)
        for kept in sorted({0, 1, len(rows) // 3, len(rows) // 2, len(rows) - 1, len(rows)}):
            part = MemoryJournal()
            asyncio.run(part.record(rows[: max(0, kept)]))
            again = over.solve(self.prompt, budget=budget, journal=part)
            assert (again.text, again.exhausted, again.usage.calls) == (
                first.text, first.exhausted, first.usage.calls,
            ), f"{kept} of {len(rows)} records were there"  # fmt: skip

    def test_it_is_cancelled_cleanly(self) -> None:
        strategy = self._over()

        async def main() -> None:
            _JITTER.set(random.Random(0))
            task = asyncio.create_task(strategy.asolve(self.prompt))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    @pytest.mark.parametrize("budget", [Budget(calls=3), Budget(prefilled=7), Budget(calls=0)])
    def test_other_limits_bind_alike(self, budget: Budget) -> None:
        usage = self.make().solve(self.prompt, budget=budget).usage
        assert budget.calls is None or usage.calls <= budget.calls
        assert budget.prefilled is None or usage.prefilled is None or usage.prefilled <= budget.prefilled

    @pytest.mark.parametrize(
        "budget",
        [Budget(generated=10**9), Budget(calls=10**9), Budget(prefilled=10**9), Budget(seconds=10**6)],
    )
    def test_a_budget_that_does_not_bind_changes_nothing(self, budget: Budget) -> None:
        strategy = self.make()
        free, rich = strategy.solve(self.prompt), strategy.solve(self.prompt, budget=budget)
        assert (free.text, free.exhausted) == (rich.text, rich.exhausted)
        assert not free.exhausted

    def test_it_is_usable_as_the_generator_of_another(self) -> None:
        inner: Generator = self.make()
        prefix = Sequence.of(self.prompt)
        drawn, rows = run(lambda s: inner.generate(prefix, n=2, scope=s.child("sample")))
        assert len(drawn) == 2
        assert len({row.path for row in rows}) >= 2, "two runs must not share a place"

    def test_it_holds_no_state(self) -> None:
        strategy = self.make()
        before = {k: id(v) for k, v in vars(strategy).items()}
        first = strategy.solve(self.prompt, seed=3).text

        async def twice() -> list[str]:
            results = await asyncio.gather(*(strategy.asolve(self.prompt, seed=3) for _ in range(2)))
            return [r.text for r in results]

        assert asyncio.run(twice()) == [first, first]
        assert {k: id(v) for k, v in vars(strategy).items()} == before
