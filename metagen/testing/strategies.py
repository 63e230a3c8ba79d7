"""The laws of strategies, as tests: subclass `StrategyLaws` in a test module and give `make`.

A strategy is a generator, so the laws of generators hold as well.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.generators.base import Generator
from metagen.journal import MemoryJournal, Row
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import Result, Strategy
from metagen.strategies.parallel import MajorityVote
from metagen.testing.generators import GeneratorLaws, UnsteadyJournal, run
from metagen.testing.words import last_word

#: Seeds of who is faster.
MOODS = 6
#: Parts of what it spends freely at which a limit ends it.
SHARES = (0.3, 0.6, 0.9)
#: Fields that may change without becoming another object.
_GROWING = (list, dict, set, bytearray)


class StrategyLaws(GeneratorLaws):
    """What every Strategy promises. `make` gives the strategy over any generator, such as `numbers()`.

    A generator of yours should write several steps, and less than its worst case: over one that does not, the laws of
    limits hold by themselves. Override `limits` where those that bind yours are known.
    another: a second prompt that it can continue; None: the first one as another problem's.
    """

    another: Prompt | None = None

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
        """A vote over two runs of it, which share one limit."""
        return MajorityVote(self.make(), 2, answer=last_word)

    def limits(self, strategy: Strategy) -> Iterator[Budget | None]:
        """None, and limits that end it on its way."""
        usage = strategy.solve(self.prompt).usage
        yield None
        for share in SHARES:
            yield Budget(calls=int(share * usage.calls))
            if usage.generated:
                yield Budget(generated=int(share * usage.generated))

    @pytest.mark.parametrize("runs", [1, 2])
    def test_it_ends_alike_whoever_is_faster(self, runs: int) -> None:
        strategy = self.make() if runs == 1 else self._over()
        for budget in self.limits(strategy):
            ends = {
                _end_of(strategy.solve(self.prompt, budget=budget, journal=UnsteadyJournal(seed)))
                for seed in range(MOODS)
            }
            assert len(ends) == 1, f"{budget}: {ends}"

    def test_whatever_is_recorded_already_it_comes_to_the_same_end(self) -> None:
        over = self._over()
        for budget in self.limits(over):
            whole = MemoryJournal()
            first = over.solve(self.prompt, budget=budget, journal=whole)
            rows = whole.of_problem(self.prompt.problem_id)
            for kept in sorted({1, len(rows) // 2, len(rows) - 1}):
                part = UnsteadyJournal(kept)
                asyncio.run(part.record(rows[: max(0, kept)]))
                again = over.solve(self.prompt, budget=budget, journal=part)
                assert _end_of(again) == _end_of(first), f"{budget}: {kept} of {len(rows)} records were there"

    @pytest.mark.parametrize("runs", [1, 2])
    def test_it_is_cancelled_cleanly_and_goes_on_from_its_records(self, runs: int) -> None:
        strategy = self.make() if runs == 1 else self._over()
        whole = strategy.solve(self.prompt)

        async def cancel(turns: int, journal: MemoryJournal) -> None:
            task = asyncio.create_task(strategy.asolve(self.prompt, journal=journal))
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                return
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}

        for turns in (1, 2, 5, 12, 30, 70):
            journal = UnsteadyJournal(turns)
            asyncio.run(cancel(turns, journal))
            assert _end_of(strategy.solve(self.prompt, journal=journal)) == _end_of(whole)

    def test_alone_it_spends_and_ends_as_it_does_in_a_scope(self) -> None:
        """`solve` opens a root scope of its own: all that is spent stands there, and keeps the budget."""
        strategy, prefix = self.make(), Sequence.of(self.prompt)
        for budget in self.limits(strategy):
            with crossings() as crossed:
                alone = strategy.solve(self.prompt, budget=budget, seed=5)
            spent = Usage.sum(row.usage for row in crossed)
            for limit in budget.divisible if budget else ():
                amount = getattr(spent, limit)
                assert amount is None or amount <= getattr(budget, limit), f"{budget}: {limit} {amount}"
            assert (spent.calls, spent.generated) == (alone.usage.calls, alone.usage.generated), (
                "spent elsewhere"
            )
            (within,), rows = run(
                lambda scope: strategy.generate(prefix, scope=scope),
                seed=5,
                budget=budget,
                problem=self.prompt.problem_id,
            )
            assert _ends(within, rows) == _end_of(alone), budget

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
        collections = {k: repr(v) for k, v in vars(strategy).items() if isinstance(v, _GROWING)}
        first = strategy.solve(self.prompt, seed=3).text

        async def twice() -> list[str]:
            results = await asyncio.gather(*(strategy.asolve(self.prompt, seed=3) for _ in range(2)))
            return [r.text for r in results]

        assert asyncio.run(twice()) == [first, first]
        # What it met meanwhile does not count: neither another seed nor another prompt.
        other = self.another or dataclasses.replace(
            self.prompt, problem_id=f"{self.prompt.problem_id}/another"
        )
        for seed in (4, 5):
            strategy.solve(other, seed=seed)
        assert strategy.solve(self.prompt, seed=3).text == first
        assert {k: id(v) for k, v in vars(strategy).items()} == before
        assert {k: repr(vars(strategy)[k]) for k in collections} == collections, "a collection has grown"


@contextmanager
def crossings() -> Iterator[list[Row]]:
    """The rows of all leaf calls made meanwhile, under whatever scope."""
    rows: list[Row] = []
    whole = Scope.call

    async def call(scope: Scope, *request: Any, **options: Any) -> list[Row]:
        served = await whole(scope, *request, **options)
        rows.extend(served)
        return served

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scope, "call", call)
        yield rows


def _end_of(result: Result) -> tuple[object, ...]:
    return _ends(result.sequence, result.trace.rows)


def _ends(sequence: Sequence, rows: Iterable[Row]) -> tuple[object, ...]:
    """What has to be the same of two runs: the result, and what was asked, answered and refused on the way."""
    asked = sorted((row.path, row.index, row.status, row.usage.generated or 0) for row in rows)
    return sequence.text, sequence.exhausted, tuple(asked)
