"""Aggregators over a pool: their identities, their order, and what they leave of a budget."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, MetagenError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence, digest
from metagen.strategies.aggregators import (
    Aggregator,
    Best,
    Borda,
    Majority,
    MinimumBayesRisk,
    Ranked,
    SoftBest,
    Weighted,
)
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import (
    MBR,
    BestOfN,
    BordaVote,
    MajorityVote,
    Parallel,
    PessimisticBestOfN,
    RankedVote,
    SoftBestOfN,
    WeightedVote,
)
from metagen.testing import StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.base import Answer
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.exact import ExactAnswer
from metagen.verifiers.utility.pairs import FunctionUtility

PROMPT = Prompt("p", text="?")
ANSWER = FunctionRule(lambda text: text.partition("=")[2] or None)
LENGTH = FunctionVerifier(lambda s: (len(s.text) * 7 % 10) / 10, name="length")


def pool_of(seed: int, n: int = 12) -> list[Candidate]:
    """Texts with answers 0 to 3, some equal, some cut; scores with ties, some without."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        text = f"{draw.choice('abcde')}={draw.choice('0012')}"
        value = draw.choice([None, 0.1, 0.5, 0.5, draw.random()])
        sequence = Sequence.of(PROMPT).extend(text, finish=draw.choice(["eos", "eos", "length"]))
        found.append(
            Candidate(
                sequence,
                Answer(text[2:], text[2:]),
                Score(value, raw=value, verdict="unscored" if value is None else None),
            )
        )
    return found


def chosen(aggregator: Aggregator, pool: list[Candidate], seed: int = 0) -> str:
    async def main() -> str:
        scope = Scope.root("p", seed=seed)
        return (await aggregator.aggregate(pool, Sequence.of(PROMPT), scope)).text

    return asyncio.run(main())


ALL: list[Callable[[], Aggregator]] = [
    lambda: Best(LENGTH),
    lambda: Majority(ANSWER),
    lambda: Weighted(LENGTH, ANSWER),
    lambda: SoftBest(LENGTH, beta=0.5),
    lambda: SoftBest(LENGTH, beta=0.5, raw=True),
    lambda: Borda(LENGTH, ANSWER),
    lambda: Borda(LENGTH, ANSWER, power=3),
    lambda: Ranked(ANSWER, ballot=lambda text: [text[2:], "2"]),
    lambda: Ranked(ANSWER, ballot=lambda text: [text[2:], "2"], rule="instant-runoff"),
    lambda: MinimumBayesRisk(ExactAnswer(ANSWER)),
    lambda: MinimumBayesRisk(ExactAnswer(ANSWER), verifier=LENGTH, answer=ANSWER),
    lambda: MinimumBayesRisk(EditSimilarity(), verifier=LENGTH),
    lambda: MinimumBayesRisk(FunctionUtility(lambda a, b: float(a.text < b.text))),
]


def test_shares_of_ranks_are_their_points() -> None:
    draw = writes("3 5", "5 7", "5 3")
    ranked = Ranked(FunctionRule(lambda text: text), ballot=str.split)
    shares = Parallel(draw, 3, aggregator=ranked).solve(PROMPT).shares
    assert shares == pytest.approx({"5": 5 / 9, "3": 3 / 9, "7": 1 / 9})


def test_where_the_comparison_is_refused_what_has_an_answer_is_chosen() -> None:
    class Refused(FunctionUtility):
        async def matrix(self, *given: Any, scope: Scope, **options: Any) -> Any:
            raise BudgetExhausted("seconds", 20.0, 1.0, 0.0)

    draw = writes("no", "a=1", "b=2")
    choose = MinimumBayesRisk(Refused(lambda a, b: 1.0), answer=ANSWER)
    result = Parallel(draw, 3, aggregator=choose).solve(PROMPT)
    assert result.text in ("a=1", "b=2") and result.exhausted


def test_two_functions_without_names_are_two_verifiers() -> None:
    one, two = FunctionVerifier(lambda s: 0.9), FunctionVerifier(lambda s: 0.1)
    assert one.fingerprint != two.fingerprint
    result = PessimisticBestOfN(writes("a", "b"), 2, verifiers=[one, two], penalty=1.0).solve(PROMPT)
    assert result.usage.calls == 2 + 4
    named = [FunctionVerifier(f, name="n") for f in (lambda s: 0.9, lambda s: 0.1)]
    assert named[0].fingerprint == named[1].fingerprint


@pytest.mark.parametrize("make", ALL)
def test_permuting_the_pool_changes_nothing(make: Callable[[], Aggregator]) -> None:
    aggregator = make()
    for seed in range(8):
        pool = pool_of(seed)
        first = chosen(aggregator, pool)
        for shuffle in range(3):
            random.Random(shuffle).shuffle(pool)
            assert chosen(aggregator, pool) == first


@pytest.mark.parametrize("make", ALL)
def test_one_candidate_is_chosen_and_a_cut_one_never_beats_a_whole_one(
    make: Callable[[], Aggregator],
) -> None:
    whole = Candidate(Sequence.of(PROMPT).extend("a=1", finish="eos"), Answer("1", "1"), Score(0.1, raw=0.1))
    cut = Candidate(Sequence.of(PROMPT).extend("b=2", finish="length"), Answer("2", "2"), Score(0.9, raw=9.0))
    assert chosen(make(), [cut]) == "b=2"
    assert chosen(make(), [cut, cut, whole]) == "a=1"
    with pytest.raises(InputError):
        chosen(make(), [])


def test_of_cut_candidates_those_without_an_answer_take_no_rank() -> None:
    """Of the answers alone the first has 9 and the second 4 + 1; with three ranks below it would be 36 against 41."""
    given = [("a=1", 0.9), ("b=2", 0.8), ("c=2", 0.7), ("d", 0.3), ("e", 0.2), ("f", 0.1)]
    pool = [
        Candidate(
            Sequence.of(PROMPT).extend(text, finish="length"), Answer(key, key), Score(value, raw=value)
        )
        for text, value in given
        for key in [text.partition("=")[2] or None]
    ]
    assert chosen(Borda(LENGTH, ANSWER, power=2.0), pool) == "a=1"


def test_fingerprints_tell_all_of_them_apart() -> None:
    found = [make().fingerprint for make in ALL]
    assert len(set(found)) == len(found)


def test_minimum_bayes_risk_with_exact_answers_is_voting() -> None:
    """To the last tie: the same candidate, not one of its class."""
    for seed in range(60):
        pool = pool_of(seed)
        exact = ExactAnswer(ANSWER)
        assert chosen(MinimumBayesRisk(exact, answer=ANSWER), pool) == chosen(Majority(ANSWER), pool)
        weighted = MinimumBayesRisk(exact, verifier=LENGTH, answer=ANSWER)
        assert chosen(weighted, pool) == chosen(Weighted(LENGTH, ANSWER), pool)


def test_borda_without_power_is_a_majority_of_what_has_a_score_and_soft_best_tends_to_the_best() -> None:
    for seed in range(30):
        scored = [c for c in pool_of(seed) if c.value is not None]
        if len({c.value for c in scored}) == len(scored):
            classes = {
                chosen(rule, scored)[2:] for rule in (Borda(LENGTH, ANSWER, power=0), Majority(ANSWER))
            }
            assert len(classes) == 1
        best, soft = chosen(Best(LENGTH), scored), chosen(SoftBest(LENGTH, beta=1e-4), scored)
        values = {c.sequence.text: c.value for c in scored if c.sequence.finish == "eos"}
        assert not values or abs((values[best] or 0) - (values[soft] or 0)) < 0.01


def test_a_value_without_a_raw_score_stands_for_itself_in_a_soft_choice() -> None:
    texts = {"a=1": Score(0.1, raw=-3.0), "b=2": Score(0.9), "c=3": Score(0.5)}
    pool = [Candidate(Sequence.of(PROMPT).extend(t, finish="eos"), None, s) for t, s in texts.items()]
    for few in (pool, pool[1:]):
        assert {chosen(SoftBest(LENGTH, beta=1e-4, raw=True), few, seed) for seed in range(9)} == {"b=2"}


def test_a_soft_choice_follows_the_seed_of_the_run() -> None:
    found = {chosen(SoftBest(LENGTH, beta=2.0), pool_of(3), seed) for seed in range(30)}
    assert len(found) > 2


def writes(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=20, name=" ".join(texts))


def test_the_best_by_chrf_is_the_one_in_the_middle() -> None:
    texts = ("the cat sat down", "the cat sat", "the cat sat there", "no")
    assert MBR(writes(*texts), 3, utility=ChrF()).solve(PROMPT).text in texts[:3]
    assert MBR(writes(*texts), 4, utility=ChrF()).solve(PROMPT).text != "no"


def test_a_pessimist_takes_the_lower_bound() -> None:
    """0.9 and 0.3: mean 0.6, deviation 0.3; 0.5 and 0.5: the same at every penalty."""
    first = FunctionVerifier(lambda s: {"a": 0.9, "b": 0.5}[s.text], name="first")
    second = FunctionVerifier(lambda s: {"a": 0.3, "b": 0.5}[s.text], name="second")

    def best(penalty: float) -> str:
        strategy = PessimisticBestOfN(writes("a", "b"), 2, verifiers=[first, second], penalty=penalty)
        return strategy.solve(PROMPT).text

    assert [best(p) for p in (0.0, 0.3, 0.4, 1.0)] == ["a", "a", "b", "b"]
    with pytest.raises(InputError, match="two for an uncertainty"):
        PessimisticBestOfN(writes("a"), 1, verifiers=[first])


def test_bounds_below_zero_are_told_apart() -> None:
    """Penalty 3: a is 0.5 − 3 · 0.2, b 0.5 − 3 · 0.4, c 0.5 − 3 · 0.3; as values in [0, 1] all are 0."""
    spread = {"a": 0.2, "b": 0.4, "c": 0.3}
    low = FunctionVerifier(lambda s: 0.5 - spread[s.text], name="low")
    high = FunctionVerifier(lambda s: 0.5 + spread[s.text], name="high")
    for k in range(12):
        strategy = PessimisticBestOfN(writes("b", "c", "a"), 3, verifiers=[low, high], penalty=3.0)
        assert strategy.solve(Prompt(f"p{k}", text=f"{k}?")).text == "a"


def test_a_utility_that_knows_nothing_of_a_candidate_leaves_it_behind() -> None:
    async def rates(a: Sequence, b: Sequence) -> float:
        return math.nan if a.text == "a" else 0.5

    assert MBR(writes("a", "b"), 2, utility=FunctionUtility(rates)).solve(PROMPT).text == "b"


def test_a_choice_among_what_nothing_is_known_of_is_a_best_effort() -> None:
    unknown, silent = (
        FunctionUtility(lambda a, b: math.nan),
        FunctionVerifier(lambda s: Score(None, verdict="unparsable")),
    )
    for make in (
        lambda g: MBR(g, 2, utility=unknown),
        lambda g: BestOfN(g, 2, verifier=silent),
        lambda g: SoftBestOfN(g, 2, verifier=silent, beta=1.0),
    ):
        result = make(writes("a", "b")).solve(PROMPT)
        assert result.exhausted and result.sequence.exhausted and result.text in "ab"
        assert not make(writes("a", "a")).solve(PROMPT).exhausted
    partly = FunctionUtility(lambda a, b: math.nan if a.text == "a" else 0.5)
    assert not MBR(writes("a", "b"), 2, utility=partly).solve(PROMPT).exhausted
    talkative = FunctionVerifier(lambda s: 0.0)
    assert not BestOfN(writes("a", "b"), 2, verifier=talkative).solve(PROMPT).exhausted


class Costly(FunctionUtility):
    """A utility that spends a call on each pair."""

    spends = True

    async def rate(self, pairs: list[Any], scope: Scope) -> list[float]:
        verifier = FunctionVerifier(lambda s: 0.5, name="pair")
        joined = [Sequence.of(f"{a.text} {b.text}").extend("x", finish="eos") for a, b in pairs]
        scores = await verifier.score(joined, scope=scope)
        return [math.nan if score.value is None else score.value for score in scores]


@pytest.mark.parametrize("calls", range(1, 22))
def test_a_part_of_the_budget_is_kept_for_choosing(calls: int) -> None:
    """Four samples and sixteen pairs make twenty calls; with fewer there are fewer samples, and all meet someone."""
    strategy = MBR(writes("a", "b", "c", "d"), 4, utility=Costly(lambda a, b: 0.5))
    result = strategy.solve(PROMPT, budget=Budget(calls=calls))
    assert result.usage.calls <= calls and result.exhausted == (calls < 20)
    if calls >= 2:
        assert result.text
        assert any(row.kind == "score" for row in result.trace.rows)


def test_a_free_utility_leaves_the_whole_budget_to_samples() -> None:
    result = MBR(writes("a", "b", "c", "d"), 4, utility=EditSimilarity()).solve(PROMPT, budget={"calls": 4})
    assert len(result.candidates) == 4 and not result.exhausted


def test_an_oracle_inside_is_marked() -> None:
    oracle = FunctionVerifier(lambda s: 1.0)
    type(oracle).oracle  # noqa: B018
    marked = type("Marked", (FunctionVerifier,), {"oracle": True})(lambda s: 1.0)
    assert BestOfN(writes("a"), 1, verifier=marked).oracle
    assert MBR(writes("a"), 1, utility=EditSimilarity(), verifier=marked).oracle
    assert not MBR(writes("a"), 1, utility=EditSimilarity()).oracle


def test_a_pool_that_somebody_else_made_is_aggregated_alike() -> None:
    generator = writes("a=1", "b=2", "c=2")
    sampled = MajorityVote(generator, 3, answer=ANSWER).solve(PROMPT)
    pool = [Candidate(c.sequence, Answer(c.key, c.key)) for c in sampled.candidates]
    assert chosen(Majority(ANSWER), pool) == sampled.text


class TestSoftBestOfN(StrategyLaws):
    def make(self) -> Strategy:
        return SoftBestOfN(numbers(), 6, verifier=first_word, beta=0.3, answer=last_word)


class TestPessimisticBestOfN(StrategyLaws):
    def make(self) -> Strategy:
        other = FunctionVerifier(lambda s: 1.0 - len(s.text) / 100, name="law length")
        return PessimisticBestOfN(numbers(), 5, verifiers=[first_word, other], answer=last_word)


class TestBordaVote(StrategyLaws):
    def make(self) -> Strategy:
        return BordaVote(numbers(), 6, verifier=first_word, answer=last_word, power=2)


class TestRankedVote(StrategyLaws):
    def make(self) -> Strategy:
        return RankedVote(numbers(), 6, answer=last_word, ballot=lambda text: text.split()[::-1])


class TestMBR(StrategyLaws):
    def make(self) -> Strategy:
        return MBR(numbers(), 6, utility=EditSimilarity(), verifier=first_word, answer=last_word)


class TestCostlyMBR(StrategyLaws):
    def make(self) -> Strategy:
        return MBR(numbers(), 4, utility=Costly(lambda a, b: 0.5))


class TestWeightedParallel(StrategyLaws):
    """An aggregator given by hand is the strategy of its name."""

    def make(self) -> Strategy:
        return Parallel(numbers(), 6, Weighted(first_word, last_word))

    def test_it_is_the_weighted_vote(self) -> None:
        by_name = WeightedVote(numbers(), 6, verifier=first_word, answer=last_word)
        assert self.make().solve(PROMPT).text == by_name.solve(PROMPT).text


def test_errors_come_when_it_is_built() -> None:
    for wrong in (
        lambda: SoftBest(LENGTH, beta=0),
        lambda: Borda(LENGTH, ANSWER, power=math.nan),
        lambda: Ranked(ANSWER, ballot=str.split, rule="first"),  # type: ignore[arg-type]
        lambda: MBR(writes(), 0, utility=EditSimilarity()),
    ):
        with pytest.raises((InputError, MetagenError), match="expected"):
            wrong()


def test_the_tie_rule_is_that_of_the_digest() -> None:
    pool = [Candidate(Sequence.of(PROMPT).extend(t, finish="eos"), None, Score(0.5)) for t in "abc"]
    salt = PROMPT.digest.hex()
    assert chosen(Best(LENGTH), pool) == max("abc", key=lambda t: digest(salt, t))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Best(None),
        lambda: Weighted(None, ANSWER),
        lambda: SoftBest(None, beta=1.0),
        lambda: Borda(None, ANSWER),
        lambda: MinimumBayesRisk(None),
        lambda: MinimumBayesRisk(ExactAnswer(ANSWER), verifier="prm"),
    ],
)
def test_parts_that_are_none_are_told_at_once(make: Callable[[], Aggregator]) -> None:
    with pytest.raises(
        InputError, match=r"(verifier|utility)=(None|'prm'); expected an? (Verifier|Utility).*; give"
    ):
        make()
