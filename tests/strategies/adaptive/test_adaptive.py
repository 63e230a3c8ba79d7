"""Adaptive sampling: where it stops, what it draws, and what budgets do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from metagen.analysis.stopping import stopping_points
from metagen.budget import Budget
from metagen.errors import EngineError, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal, Row
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.adaptive.adaptive import Adaptive
from metagen.strategies.adaptive.consistency import (
    AdaptiveConsistency,
    Beta,
    Dirichlet,
)
from metagen.strategies.adaptive.stopping import Decided, Predictive, StoppingRule
from metagen.strategies.adaptive.sure import Share, Sure, WeightedUntilSure
from metagen.strategies.adaptive.window import EarlyStopping, Unanimous
from metagen.strategies.aggregate import Selection, best_of
from metagen.strategies.aggregators import Aggregator, Best, Majority, Weighted
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import BestOfN, MajorityVote, Parallel
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.adaptive.toys import ANSWER, PROMPT, drawn, writes

# ---------------------------------------------------------------------------------------------- strategy


def test_it_stops_where_the_rule_says() -> None:
    agree, split = writes("1111222222"), writes("1212121211")
    assert drawn(AdaptiveConsistency(agree, 10, answer=ANSWER)) == "1111"
    assert drawn(AdaptiveConsistency(split, 10, answer=ANSWER)) == "1212121211", "never sure: all n"
    assert drawn(AdaptiveConsistency(agree, 3, answer=ANSWER)) == "111"
    # Asked after 3, 6, 9 and 10 samples: (3, 0), (4, 2), (5, 4) and (6, 4) are not enough.
    assert drawn(AdaptiveConsistency(agree, 10, answer=ANSWER, batch=3)) == "1111222222"
    assert drawn(AdaptiveConsistency(agree, 10, answer=ANSWER, batch=4)) == "1111"
    assert drawn(EarlyStopping(writes("1211122222"), 10, answer=ANSWER, window=3)) == "121112222"
    assert drawn(EarlyStopping(agree, 10, answer=ANSWER, window=2)) == "11"


def test_more_answers_ask_for_more_samples_under_dirichlet() -> None:
    answers = "123" + "1" * 20
    beta = drawn(AdaptiveConsistency(writes(answers), 23, answer=ANSWER))
    exact = drawn(AdaptiveConsistency(writes(answers), 23, answer=ANSWER, posterior="dirichlet"))
    assert len(beta) < len(exact) < 23 and exact.startswith(beta)


def test_samples_are_the_first_of_the_full_vote_and_are_never_paid_for_twice() -> None:
    journal, generator = CountingJournal(), numbers()
    full = MajorityVote(generator, 16, answer=last_word).solve(PROMPT, journal=journal)
    few = AdaptiveConsistency(generator, 16, answer=last_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 16 and 4 <= len(few.candidates) <= 16
    texts = [c.sequence.text for c in full.candidates]
    assert [c.sequence.text for c in few.candidates] == texts[: len(few.candidates)]


def test_a_rule_that_never_stops_is_the_full_vote_and_one_sample_is_a_sample() -> None:
    generator = numbers()
    for n in (1, 2, 7):
        full = MajorityVote(generator, n, answer=last_word).solve(PROMPT)
        for batch in (1, 3, 50):
            never = Adaptive(generator, n, Majority(last_word), Unanimous(99), batch=batch).solve(PROMPT)
            assert (never.text, never.usage.generated) == (full.text, full.usage.generated)


@pytest.mark.parametrize(
    ("rule", "batch"),
    [
        (Beta(0.75), 1), (Dirichlet(0.6), 3), (Unanimous(2), 2), (Predictive(12, 0.9), 1), (Share(0.5, 1.2), 1),
        (Sure(0.9), 2),
    ],
)  # fmt: skip
def test_a_replay_of_the_full_pool_stops_where_the_strategy_does(rule: StoppingRule, batch: int) -> None:
    aggregator = Weighted(first_word, last_word)
    stopped = []
    for seed in range(25):
        full = Parallel(numbers(), 12, aggregator).solve(PROMPT, seed=seed)
        few = Adaptive(numbers(), 12, aggregator, rule, batch=batch).solve(PROMPT, seed=seed)
        classes = np.array([[int(c.key) if c.key else -1 for c in full.candidates]])
        weights = np.array([[c.value if c.value is not None else np.nan for c in full.candidates]])
        (drawn_,) = stopping_points(rule, classes, weights, batch=batch)
        assert len(few.candidates) == drawn_
        stopped.append(drawn_ < 12)
    assert any(stopped)


def test_decided_chooses_what_the_full_vote_chooses() -> None:
    saved = 0
    for seed in range(30):
        full = MajorityVote(numbers(), 15, answer=last_word).solve(PROMPT, seed=seed)
        few = Adaptive(numbers(), 15, Majority(last_word), Decided(15)).solve(PROMPT, seed=seed)
        assert few.answer is not None and full.answer is not None and few.answer.key == full.answer.key
        saved += 15 - len(few.candidates)
    assert saved > 0


def test_weighted_votes_stop_by_their_weights() -> None:
    generator = writes("1122222222")
    verifier = FunctionVerifier(lambda s: 0.9 if s.text.endswith("1") else 0.2, name="one")
    assert drawn(WeightedUntilSure(generator, 10, verifier=verifier, answer=ANSWER, mass=1.5)) == "11"
    # 1.8 of 1.8 + 0.2 k: the share of 1 sinks, and the mass of 2 never suffices.
    assert len(drawn(WeightedUntilSure(generator, 10, verifier=verifier, answer=ANSWER))) == 10
    assert drawn(Adaptive(generator, 10, Best(verifier, answer=ANSWER), Sure(0.9))) == "1"
    beta = Adaptive(generator, 10, Weighted(verifier, ANSWER), Beta(0.85))
    # P(1.8, 0) = 1 − 2^−2.8 = 0.856: fractions of votes are fractions of evidence.
    assert drawn(beta) == "11"


def test_a_text_that_comes_again_is_scored_and_charged_once() -> None:
    seen: list[str] = []

    def look(sequence: Sequence) -> float:
        seen.append(sequence.text)
        return 0.25

    texts = ["a=1", "b=2", "a=1", "a=1", "b=2"]
    generator = FunctionGenerator(lambda p, s, i: texts[i], name="again")
    result = Adaptive(generator, 5, Best(FunctionVerifier(look), answer=ANSWER), Sure(0.9)).solve(PROMPT)
    assert seen == ["a=1", "b=2"] and result.usage.calls == 7
    assert [c.value for c in result.candidates] == [0.25] * 5
    assert [c.sequence.text for c in result.candidates] == texts


def test_cut_samples_neither_vote_nor_make_sure() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> str | Drawn:
        return Drawn(f"{index}=1", None, 3, finish="length") if index < 4 else f"{index}=2"

    strategy = AdaptiveConsistency(FunctionGenerator(write, name="cut"), 12, answer=ANSWER)
    result = strategy.solve(PROMPT)
    assert len(result.candidates) == 8 and result.answer is not None and result.answer.key == "2"


@pytest.mark.parametrize("calls", range(14))
def test_calls_that_run_out_leave_a_vote_over_what_there_is(calls: int) -> None:
    generator = writes("21112122")
    verifier = FunctionVerifier(lambda s: int(s.text[0]) / 10, name="place")
    for strategy in (
        Adaptive(generator, 6, Best(verifier, answer=ANSWER), Sure(1.0), batch=2),
        AdaptiveConsistency(generator, 6, answer=ANSWER, batch=2),
    ):
        result = strategy.solve(PROMPT, budget={"calls": calls})
        needs = 12 if strategy.verifier else 6
        assert result.usage.calls == min(calls, needs) and result.exhausted == (calls < needs)
        assert bool(result.text) == (calls > 0)
        if not strategy.verifier and calls >= 4:
            assert result.answer is not None and result.answer.key == "1"
        values = [c.value for c in result.candidates if c.value is not None]
        if values:
            assert result.sequence.scores["place"].value == max(values)


class Asks(Aggregator):
    """Has a verifier look at the candidates again before it chooses."""

    spends = True  # type: ignore[assignment]

    def __init__(self, again: FunctionVerifier) -> None:
        self.answer, self.again = ANSWER, again

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        scores = await self.again.score([c.sequence for c in pool], scope=scope.child("again"))
        return best_of([s.value for s in scores], [c.sequence.text for c in pool], salt)


@pytest.mark.parametrize("calls", [2, 4, 6, 9, 12])
def test_an_aggregator_that_spends_has_a_part_of_the_budget(calls: int) -> None:
    again = FunctionVerifier(lambda s: int(s.text[0]) / 10, name="again")
    strategy = Adaptive(writes("123456"), 6, Asks(again), Unanimous(99), batch=2)
    result = strategy.solve(PROMPT, budget={"calls": calls})
    # Sampling has the larger half; whom choosing does not reach has no score.
    drawn_, asked = min(6, (calls + 1) // 2), min(6, calls // 2)
    assert len(result.candidates) == drawn_ and result.usage.calls == drawn_ + asked
    assert result.text == f"{asked - 1}={asked}" and result.exhausted == (calls < 12)


def test_a_verifier_that_fails_in_the_middle_fails_the_call_and_loses_nothing() -> None:
    broken = [True]

    def look(sequence: Sequence) -> float:
        if broken[0] and sequence.text.startswith("3"):
            raise EngineError("the verifier is down")
        return 0.5

    strategy = Adaptive(writes("12121212"), 8, Best(FunctionVerifier(look), answer=ANSWER), Sure(0.9))
    journal = CountingJournal()
    with pytest.raises(EngineError, match="down"):
        strategy.solve(PROMPT, journal=journal)
    assert journal.recorded == 4 + 3
    broken[0] = False
    assert len(strategy.solve(PROMPT, journal=journal).candidates) == 8 and journal.recorded == 16


def test_a_verdict_in_place_of_a_score_makes_nobody_sure() -> None:
    verifier = FunctionVerifier(lambda s: Score(None, verdict="timeout"), name="late")
    strategy = Adaptive(writes("1111"), 4, Weighted(verifier, ANSWER), Share(0.5, 0.1) | Sure(0.0))
    assert drawn(strategy) == "1111"


@pytest.mark.parametrize("batch", [1, 3])
def test_a_run_that_was_cut_off_anywhere_goes_on_as_if_it_had_not_been(batch: int) -> None:
    strategy = Adaptive(numbers(), 13, Weighted(first_word, last_word), Beta(0.7), batch=batch)
    whole = MemoryJournal()
    first = strategy.solve(PROMPT, journal=whole)
    assert 1 < len(first.candidates) < 13
    rows: list[Row] = whole.of_problem(PROMPT.problem_id)
    for cut in range(len(rows) + 1):
        journal = CountingJournal()
        asyncio.run(journal.record(rows[:cut]))
        journal.recorded = 0
        again = strategy.solve(PROMPT, journal=journal)
        assert (again.text, again.candidates) == (first.text, first.candidates)
        assert replace(again.usage, seconds=0.0) == replace(first.usage, seconds=0.0)
        assert journal.recorded == len(rows) - cut


def test_cancelled_cleanly_and_what_was_drawn_is_kept() -> None:
    journal = CountingJournal()
    gate, waits = 3, asyncio.Event()

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        if index >= gate:
            waits.set()
            await asyncio.sleep(60)
        return f"{index}={index % 2}"

    strategy = AdaptiveConsistency(FunctionGenerator(write, name="slow"), 8, answer=ANSWER)

    async def main() -> None:
        task = asyncio.create_task(strategy.asolve(PROMPT, journal=journal))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert journal.recorded == 3 and not journal.inflight
    gate = 99
    assert len(strategy.solve(PROMPT, journal=journal).candidates) == 8 and journal.recorded == 8


def test_nested_in_another_each_draws_its_own() -> None:
    inner = AdaptiveConsistency(numbers(), 8, answer=last_word)
    outer = BestOfN(inner, 3, verifier=first_word, answer=last_word).solve(PROMPT)
    paths = {row.path for row in outer.trace.rows if row.kind == "generate"}
    assert paths == {f"0/sample/{i}/sample" for i in range(3)}
    # And the other way round: it draws from a strategy, whose samples are numbered on.
    nested = AdaptiveConsistency(MajorityVote(numbers(), 3, answer=last_word), 8, answer=last_word)
    result = nested.solve(PROMPT)
    paths = {row.path for row in result.trace.rows}
    assert paths == {f"0/sample/{i}/sample" for i in range(len(result.candidates))}


def test_bad_numbers_and_joint_draws_are_refused_when_it_is_built() -> None:
    with pytest.raises(InputError, match="batch=0; expected"):
        AdaptiveConsistency(numbers(), 8, answer=last_word, batch=0)
    with pytest.raises(InputError, match="n=0; expected"):
        EarlyStopping(numbers(), 0, answer=last_word)
    with pytest.raises(InputError, match="window=0; expected"):
        EarlyStopping(numbers(), 8, answer=last_word, window=0)
    with pytest.raises(InputError, match="posterior='gamma'; expected one of beta, dirichlet"):
        AdaptiveConsistency(numbers(), 8, answer=last_word, posterior="gamma")  # type: ignore[arg-type]
    beams = numbers()
    beams.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        AdaptiveConsistency(beams, 8, answer=last_word)


@pytest.mark.parametrize(
    ("aggregator", "rule", "words"),
    [
        (
            Majority(last_word),
            Sure(0.9),
            r"rule=Sure\(threshold=0.9\) looks at scores, and Majority has no verifier",
        ),
        (
            Majority(last_word),
            Beta() | (Sure(0.9) & Decided(9)),
            r"rule=Sure\(threshold=0.9\) looks at scores",
        ),
        (Best(first_word), Beta(), r"rule=Beta\(.*\) counts answers, and Best has no answer rule"),
        (
            Best(first_word),
            Sure(0.9) | Share(),
            r"rule=Share\(.*\) counts answers, and Best has no answer rule",
        ),
    ],
)
def test_a_rule_that_cannot_see_what_it_looks_at_is_refused(
    aggregator: Aggregator, rule: StoppingRule, words: str
) -> None:
    with pytest.raises(InputError, match=f"^Adaptive: {words}"):
        Adaptive(numbers(), 20, aggregator, rule)
    Adaptive(numbers(), 20, Weighted(first_word, last_word), rule)


@pytest.mark.parametrize("rule", [Share(), Beta(), Dirichlet(), Unanimous(2), Decided(9), Predictive(9)])
def test_a_rule_on_answers_needs_no_scores(rule: StoppingRule) -> None:
    Adaptive(numbers(), 20, Majority(last_word), rule)
    with pytest.raises(InputError, match="has no answer rule"):
        Adaptive(numbers(), 20, Best(first_word), rule)


def test_fingerprints_tell_configurations_apart() -> None:
    g = numbers()
    made: list[Strategy] = [
        AdaptiveConsistency(g, 8, answer=last_word), AdaptiveConsistency(g, 9, answer=last_word),
        AdaptiveConsistency(g, 8, answer=last_word, confidence=0.9),
        AdaptiveConsistency(g, 8, answer=last_word, posterior="dirichlet"),
        AdaptiveConsistency(g, 8, answer=last_word, batch=2), AdaptiveConsistency(g, 8, answer=ANSWER),
        EarlyStopping(g, 8, answer=last_word), EarlyStopping(g, 8, answer=last_word, window=2),
        WeightedUntilSure(g, 8, verifier=first_word, answer=last_word),
        WeightedUntilSure(g, 8, verifier=first_word, answer=last_word, mass=3.0),
        MajorityVote(g, 8, answer=last_word),
    ]  # fmt: skip
    assert len({s.fingerprint for s in made}) == len(made)
    assert made[0].fingerprint == AdaptiveConsistency(g, 8, answer=last_word).fingerprint


class TestAdaptiveConsistencyLaws(StrategyLaws):
    def make(self) -> Strategy:
        return AdaptiveConsistency(numbers(), 8, answer=last_word)


class TestEarlyStoppingLaws(StrategyLaws):
    def make(self) -> Strategy:
        return EarlyStopping(numbers(), 8, answer=last_word, window=3)


class TestWeightedUntilSureLaws(StrategyLaws):
    def make(self) -> Strategy:
        return WeightedUntilSure(numbers(), 8, verifier=first_word, answer=last_word, batch=2)


# ---------------------------------------------------------------------------------------- a real model


@pytest.fixture(scope="module")
def small() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        yield engine


def test_on_an_embedded_model_it_draws_less_where_it_is_easy(small: TorchEngine) -> None:
    generator: Generator = small.generator(max_tokens=200)
    journal = MemoryJournal()

    def spent(level: int) -> tuple[int, int]:
        task = ArithmeticTask("validation", levels=(level,), per_level=5)
        few = many = 0
        for problem in task.problems():
            full = MajorityVote(generator, 12, answer=task.answer).solve(problem.prompt, journal=journal)
            adaptive = AdaptiveConsistency(generator, 12, answer=task.answer)
            result = adaptive.solve(problem.prompt, journal=journal)
            texts = [c.sequence.text for c in full.candidates]
            assert [c.sequence.text for c in result.candidates] == texts[: len(result.candidates)]
            few, many = few + len(result.candidates), many + len(texts)
        return few, many

    (easy, all_easy), (hard, all_hard) = spent(1), spent(5)
    assert easy < hard <= all_hard == all_easy == 60


def test_a_budget_shared_with_others_is_met_like_any_other() -> None:
    async def main() -> list[Sequence]:
        scope = Scope.root("p", budget=Budget(generated=40))
        strategy = AdaptiveConsistency(numbers(), 8, answer=last_word)
        try:
            return await strategy.generate(Sequence.of(PROMPT), n=3, scope=scope)
        finally:
            used = scope.usage.generated
            assert used is not None and used <= 40

    results = asyncio.run(main())
    # The first that fit.
    assert 1 <= len(results) < 3
