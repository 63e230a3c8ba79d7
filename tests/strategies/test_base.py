"""Strategies are generators, nest, and are anytime algorithms."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, MetagenError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step, Until
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample, WeightedVote
from metagen.testing import numbers
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier

T = TypeVar("T")
PREFIX = Sequence(Prompt("p", text="?"))
ANSWER = FunctionRule(lambda text: text or None)


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return asyncio.run(main())


def writer(tokens: int = 4) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: f"{s % 10}" * tokens, count=len, max_tokens=tokens)


class Improve(Strategy):
    """Draws one sample after the other, and offers each with its place as value."""

    def __init__(self, generator: Generator, rounds: int) -> None:
        self.generator, self.rounds = generator, rounds

    @property
    def fingerprint(self) -> str:
        return f"improve {self.rounds} {self.generator.fingerprint}"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        last = prefix
        for i in range(self.rounds):
            (last,) = await self.generator.generate(prefix, scope=scope.child(f"revise/{i}"))
            scope.offer(last, value=float(i))
            scope.emit(last)
        return last


def test_samples_of_a_strategy_run_under_paths_of_their_own() -> None:
    scope = Scope.root("p")
    results = run(Improve(writer(), 2).generate(PREFIX, n=3, start=2, scope=scope))
    assert {row.path for row in scope.trace.rows} == {f"{i}/revise/{k}" for i in (2, 3, 4) for k in (0, 1)}
    assert [r.exhausted for r in results] == [False] * 3
    later = run(Improve(writer(), 2).generate(PREFIX, n=1, start=3, scope=Scope.root("p")))
    assert later == results[1:2]


def test_when_the_budget_ends_the_best_offer_is_returned() -> None:
    # Prompts are one token each; 4 + 4 fit 9, the third revision does not.
    result = Improve(writer(), 5).solve(PREFIX.prompt, budget=9)
    assert result.exhausted and result.sequence == result.candidates[-1].sequence.__class__(
        PREFIX.prompt, result.text, logprob=None, finish="eos", exhausted=True
    )
    assert len(result.candidates) == 2 and result.usage.generated == 8
    assert result.text == result.candidates[1].sequence.text


def test_with_nothing_offered_the_prefix_is_returned() -> None:
    result = Improve(writer(), 5).solve(PREFIX.prompt, budget=3)
    assert (result.text, result.exhausted, result.candidates) == ("", True, ())
    assert result.usage.generated == 0


def test_an_inner_limit_exhausts_the_inner_strategy_only() -> None:
    class Outer(Improve):
        async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
            inner = scope.child("inner", budget=Budget(generated=5))
            (found,) = await self.generator.generate(prefix, scope=inner)
            assert found.exhausted
            return prefix.extend(found.text, finish="eos")

    result = Outer(Improve(writer(), 3), 1).solve(PREFIX.prompt, budget=100)
    assert result.text and not result.exhausted


def test_what_does_not_extend_the_prefix_is_a_fault_of_the_strategy() -> None:
    class Wrong(Improve):
        async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
            return Sequence(Prompt("another", text="!"), "text")

    with pytest.raises(MetagenError, match=r"Wrong.run \(.*returned .* does not extend its prefix"):
        run(Wrong(writer(), 1).generate(PREFIX, scope=Scope.root("p")))


def test_an_oracle_is_seen_from_outside() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    class Uses(Improve):
        def __init__(self, verifier: object) -> None:
            super().__init__(writer(), 1)
            self.verifier = verifier

    class Wraps(Improve):
        pass

    assert not Uses(FunctionVerifier(lambda s: 0.0)).oracle
    assert Uses(OracleVerifier(grade)).oracle and Wraps(Uses(OracleVerifier(grade)), 1).oracle
    assert Wraps(Uses(OracleVerifier(grade)), 1).solve("?").oracle


def test_solve_works_in_a_script_in_a_running_loop_and_on_threads() -> None:
    strategy = Sample(writer(), answer=ANSWER)
    there = strategy.solve("2 + 2", seed=3)
    assert there.answer is not None and there.answer.key == there.text

    async def notebook() -> str:
        return strategy.solve("2 + 2", seed=3).text

    assert run(notebook()) == there.text
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(strategy.solve("2 + 2", seed=3).text)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [there.text] * 4
    assert (
        strategy.solve("2 + 2", seed=4).text != there.text
        or strategy.solve("2 + 3", seed=3).text != there.text
    )


def test_solve_again_is_answered_by_the_journal(tmp_path: object) -> None:
    calls = 0

    def function(prefix: Sequence, seed: int, index: int) -> str:
        nonlocal calls
        calls += 1
        return str(seed % 3)

    strategy = MajorityVote(FunctionGenerator(function, count=len, max_tokens=1), 8, answer=ANSWER)
    with SQLiteJournal(f"{tmp_path}/journal.sqlite", seed=0) as journal:
        first = strategy.solve("2 + 2", budget=5, journal=journal)
    with SQLiteJournal(f"{tmp_path}/journal.sqlite", seed=0) as journal:
        again = strategy.solve("2 + 2", budget=5, journal=journal)
        assert calls == 5
        more = strategy.solve("2 + 2", budget=7, journal=journal)
    assert first == again and first.exhausted and calls == 7
    assert more.usage.generated == 7


def test_emitted_prefixes_are_streamed() -> None:
    heard: list[str] = []
    result = Improve(writer(), 3).solve("?", emit=lambda s: heard.append(s.text))
    assert len(heard) == 3 and heard[-1] == result.text


def test_what_a_strategy_cannot_do_is_refused_before_anything_is_paid_for() -> None:
    scope = Scope.root("p", journal=MemoryJournal())
    with pytest.raises(UnsupportedError, match="Improve generates to the end only"):
        run(Improve(writer(), 1).generate(PREFIX, until=Step(), scope=scope))
    assert scope.trace.rows == ()


def test_a_refusal_inside_one_of_several_samples_does_not_lose_the_others() -> None:
    scope = Scope.root("p", budget=Budget(generated=8))
    results = run(Sample(writer()).generate(PREFIX, n=4, scope=scope))
    # The first that fit; what the limit left nothing for is no result.
    assert [len(r.text) for r in results] == [4, 4] and scope.exhausted
    assert not any(r.exhausted for r in results)
    with pytest.raises(BudgetExhausted):
        run(writer().generate(PREFIX, scope=scope.child("direct")))


def test_solve_from_inside_a_strategy_says_so_and_does_not_hang() -> None:
    inner = Sample(numbers())

    async def asks(sequence: Sequence) -> float:
        return float(bool(inner.solve("q").text))

    with pytest.raises(MetagenError, match="await generate"):
        BestOfN(numbers(), 2, verifier=FunctionVerifier(asks)).solve("q")


def test_solve_from_inside_a_plain_function_works_and_says_that_no_limit_counts_it() -> None:
    inner = Sample(numbers())
    alone = BestOfN(numbers(), 2, verifier=FunctionVerifier(lambda s: 1.0)).solve("q", budget=100)
    judge = FunctionVerifier(lambda s: float(bool(inner.solve("q").text)))
    with pytest.warns(UserWarning, match="counts toward no limit and no usage of the solve around it"):
        result = BestOfN(numbers(), 2, verifier=judge).solve("q", budget=100)
    assert result.usage.generated == alone.usage.generated


def test_shares_of_a_vote_count_candidates_or_their_values() -> None:
    texts = ["2", "1", "2", "", "2", "3"]
    drawn = FunctionGenerator(lambda prefix, seed, index: texts[index], name="texts")
    plain = MajorityVote(drawn, 6, answer=ANSWER).solve("?")
    assert list(plain.shares.items()) == [("2", 0.6), ("1", 0.2), ("3", 0.2)]
    worth = {"1": 0.9, "2": 0.1, "3": 0.0}
    judge = FunctionVerifier(lambda s: worth.get(s.text, 1.0), name="worth")
    weighted = WeightedVote(drawn, 6, verifier=judge, answer=ANSWER).solve("?")
    assert weighted.answer is not None and weighted.answer.key == "1"
    assert weighted.shares == pytest.approx({"1": 0.75, "2": 0.25, "3": 0.0})


def test_shares_are_empty_without_votes_and_refuse_values_below_0() -> None:
    assert Sample(writer()).solve("?").shares == {}
    zero = FunctionVerifier(lambda s: 0.0, name="zero")
    assert WeightedVote(writer(), 4, verifier=zero, answer=ANSWER).solve("?").shares == {}

    class Below(Improve):
        async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
            (last,) = await self.generator.generate(prefix, scope=scope.child("sample"))
            scope.offer(last, value=-1.0, key="1")
            return last

    with pytest.raises(InputError, match="values of 0 or more"):
        _ = Below(writer(), 1).solve("?").shares
