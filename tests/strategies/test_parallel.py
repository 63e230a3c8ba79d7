"""Sample n, then aggregate: shared pools, eligibility, and budgets that end on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from metagen.budget import Budget
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.base import Result, Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample, WeightedVote
from metagen.verifiers.base import Verifier
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.respondent import WritingRespondent

T = TypeVar("T")
PROMPT = Prompt("p", text="?")
#: The answer is the digit after "="; "?" cannot be read.
ANSWER = FunctionRule(
    lambda text: text.partition("=")[2][:1] or None, lambda answer: answer if answer.isdigit() else None
)


def writes(*texts: str | Drawn, name: str = "writes") -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=8, name=name)


def scored(scores: dict[str, float | Score]) -> FunctionVerifier:
    return FunctionVerifier(lambda s: scores[s.text])


def cut(text: str) -> Drawn:
    return Drawn(text, None, len(text), finish="length")


def test_majority_weighted_and_best_choose_as_their_formulas_say() -> None:
    generator = writes("a=1", "b=2", "c=2", "d=3", "e=3")
    verifier = scored({"a=1": 0.95, "b=2": 0.3, "c=2": 0.4, "d=3": 0.6, "e=3": 0.2})
    best = BestOfN(generator, 5, verifier=verifier, answer=ANSWER).solve(PROMPT)
    weighted = WeightedVote(generator, 5, verifier=verifier, answer=ANSWER).solve(PROMPT)
    assert (best.text, best.sequence.scores["function"].value) == ("a=1", 0.95)
    assert weighted.text == "a=1"  # 0.95 against 0.7 and 0.8
    more = writes("a=1", "b=2", "c=2", "d=3", "e=3", "f=3", name="more")
    assert MajorityVote(more, 6, answer=ANSWER).solve(PROMPT).answer.key == "3"  # type: ignore[union-attr]
    assert Sample(generator, answer=ANSWER).solve(PROMPT).text == "a=1"
    assert best.sequence.finish == "eos" and not best.exhausted and not best.oracle


def test_what_is_cut_or_has_no_readable_answer_loses_to_whatever_has_one() -> None:
    generator = writes(cut("a=1"), "b=?", "c", "d=4")
    verifier = scored({"a=1": 0.9, "b=?": 0.8, "c": 0.7, "d=4": 0.1})
    for strategy in (
        BestOfN(generator, 4, verifier=verifier, answer=ANSWER),
        WeightedVote(generator, 4, verifier=verifier, answer=ANSWER),
        MajorityVote(generator, 4, answer=ANSWER),
    ):
        result = strategy.solve(PROMPT)
        assert result.text == "d=4"
        verdicts = {c.sequence.text: c.key for c in result.candidates}
        assert verdicts == {"a=1": "1", "b=?": None, "c": None, "d=4": "4"}
    # Without an answer rule a cut text loses, any other does not.
    assert BestOfN(generator, 4, verifier=verifier).solve(PROMPT).text == "b=?"


def test_with_nothing_eligible_the_best_of_what_there_is_is_returned() -> None:
    generator = writes(cut("a"), cut("b"))
    assert (
        BestOfN(generator, 2, verifier=scored({"a": 0.1, "b": 0.2}), answer=ANSWER).solve(PROMPT).text == "b"
    )
    assert MajorityVote(generator, 2, answer=ANSWER).solve(PROMPT).text in {"a", "b"}


def test_verdicts_instead_of_scores_lose() -> None:
    verifier = scored({"a=1": Score(None, verdict="timeout"), "b=2": 0.0})
    assert BestOfN(writes("a=1", "b=2"), 2, verifier=verifier).solve(PROMPT).text == "b=2"
    assert WeightedVote(writes("a=1", "b=2"), 2, verifier=verifier, answer=ANSWER).solve(PROMPT).candidates


def test_equal_candidates_are_scored_and_paid_for_once() -> None:
    seen: list[str] = []

    def look(sequence: Sequence) -> float:
        seen.append(sequence.text)
        return 0.5

    result = BestOfN(writes("x", "y", "x", "x"), 4, verifier=FunctionVerifier(look)).solve(PROMPT)
    assert sorted(seen) == ["x", "y"] and result.usage.calls == 6


def test_one_pool_serves_every_n_and_every_aggregation() -> None:
    calls = 0

    def function(prefix: Sequence, seed: int, index: int) -> str:
        nonlocal calls
        calls += 1
        return f"{index}={seed % 3}"

    generator, journal = FunctionGenerator(function), MemoryJournal()
    verifier = FunctionVerifier(lambda s: len(s.text) / 10)

    def pool(strategy: Strategy) -> list[str]:
        result: Result = strategy.solve(PROMPT, journal=journal)
        return [c.sequence.text for c in result.candidates]

    sixteen = pool(MajorityVote(generator, 16, answer=ANSWER))
    assert calls == 16
    assert pool(BestOfN(generator, 16, verifier=verifier)) == sixteen
    assert pool(WeightedVote(generator, 4, verifier=verifier, answer=ANSWER)) == sixteen[:4]
    assert pool(Sample(generator)) == sixteen[:1] and calls == 16
    assert pool(MajorityVote(generator, 64, answer=ANSWER))[:16] == sixteen and calls == 64


@pytest.mark.parametrize("calls", range(1, 13))
def test_when_calls_run_out_there_is_a_scored_answer_whenever_one_was_affordable(calls: int) -> None:
    """Generating and scoring share the limit, so candidates are scored in waves and the best so far stands."""
    generator = writes(*(f"{i}={i}" for i in range(6)))
    verifier = FunctionVerifier(lambda s: int(s.text[0]) / 10)
    result = BestOfN(generator, 6, verifier=verifier, answer=ANSWER).solve(PROMPT, budget={"calls": calls})
    assert result.usage.calls == calls <= 12
    assert result.exhausted == (calls < 12)
    values = [c.value for c in result.candidates if c.value is not None]
    assert result.text and (
        not values or result.text == f"{round(max(values) * 10)}={round(max(values) * 10)}"
    )
    assert len(values) >= min(4, calls - 4)


def test_generated_tokens_that_run_out_leave_a_vote_over_what_there_is() -> None:
    generator = writes("a=1", "b=2", "c=2", "d=1", "e=1")
    strategy = MajorityVote(generator, 5, answer=ANSWER)
    # Three tokens each, eight at most: 14 pay for three samples whole, and the rest is refused or cut.
    result = strategy.solve(PROMPT, budget=14)
    assert result.exhausted and result.answer is not None and result.answer.key == "2"
    assert [c.sequence.text for c in result.candidates] == ["a=1", "b=2", "c=2"]
    assert not strategy.solve(PROMPT, budget=20).exhausted


@pytest.mark.parametrize("wrap", [lambda judge: judge, lambda judge: Ensemble([judge])])
def test_generated_tokens_are_kept_for_a_judge_that_writes(wrap: Callable[[Verifier], Verifier]) -> None:
    """Its verdicts are of the same limit as samples, so that candidates are drawn and judged in waves."""
    generator = writes("a=1", "b=2", "c=2", "d=2", "e=2", "f=2")
    critic = FunctionGenerator(lambda p, s, i: "Yes", count=len, max_tokens=3, name="critic")
    judge = wrap(Judge.of(WritingRespondent(critic, samples=1)))
    result = WeightedVote(generator, 6, verifier=judge, answer=ANSWER).solve(PROMPT, budget=24)
    assert result.exhausted and result.votes is not None and result.votes["2"] >= 2 * result.votes["1"]
    assert result.answer is not None and result.answer.key == "2"


def test_what_a_budget_leaves_unscored_has_its_answer_all_the_same() -> None:
    strategy = WeightedVote(writes("a=1", "b=2"), 2, verifier=scored({}), answer=ANSWER)
    result = strategy.solve(PROMPT, budget={"calls": 1})
    assert [(c.sequence.text, c.value, c.key) for c in result.candidates] == [("a=1", None, "1")]


@pytest.mark.parametrize(
    "make",
    [
        lambda g, n: MajorityVote(g, n, answer=ANSWER),
        lambda g, n: BestOfN(g, n, verifier=scored({})),
        lambda g, n: WeightedVote(g, n, verifier=scored({}), answer=ANSWER),
    ],
)
def test_bad_numbers_and_joint_draws_are_refused_when_it_is_built(
    make: Callable[[Generator, int], Strategy],
) -> None:
    with pytest.raises(InputError, match="n=0; expected an integer ≥ 1"):
        make(writes(), 0)
    beams = writes()
    beams.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        make(beams, 2)


def test_fingerprints_tell_configurations_apart() -> None:
    generator, verifier = writes(), scored({})
    strategies: list[Strategy] = [
        Sample(generator), MajorityVote(generator, 4, answer=ANSWER), MajorityVote(generator, 8, answer=ANSWER),
        BestOfN(generator, 4, verifier=verifier), WeightedVote(generator, 4, verifier=verifier, answer=ANSWER),
        BestOfN(generator, 4, verifier=FunctionVerifier(lambda s: 0.0, name="other")),
        BestOfN(writes(name="other"), 4, verifier=verifier),
    ]  # fmt: skip
    assert len({s.fingerprint for s in strategies}) == len(strategies)


def test_nested_strategies_multiply_samples_and_keep_their_paths() -> None:
    inner = MajorityVote(FunctionGenerator(lambda p, s, i: f"{s}={s % 2}"), 3, answer=ANSWER)
    outer = BestOfN(inner, 4, verifier=FunctionVerifier(lambda s: 0.5), answer=ANSWER)

    async def main() -> Awaitable[Result] | Result:
        return await outer.asolve(PROMPT)

    result = asyncio.run(main())  # type: ignore[arg-type]
    assert isinstance(result, Result)
    generated = [r for r in result.trace.rows if r.kind == "generate"]
    assert len(generated) == 12 and {r.path for r in generated} == {f"0/sample/{i}/sample" for i in range(4)}
    assert len({r.payload["text"] for r in generated if r.payload}) == 12


def test_a_replay_under_a_deadline_asks_for_nothing_new_and_ends_alike() -> None:
    """Wherever the deadline falls, while samples are drawn or while they are scored."""
    calls: list[int] = []

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        calls.append(index)
        await asyncio.sleep(0.02)
        return f"t {seed % 1000}"

    class Slow(FunctionVerifier):
        async def evaluate(self, sequences: Any, scope: Scope, ended: Any) -> Any:
            await asyncio.sleep(0.08)
            return await super().evaluate(sequences, scope, ended)

    verifier = Slow(lambda s: int(s.text.split()[1]) / 1000)
    answer = FunctionRule(lambda text: text.split()[-1])
    strategy = BestOfN(FunctionGenerator(write), 32, verifier=verifier, answer=answer)
    for seconds in (0.15, 0.25, 0.33, 0.4):
        journal = MemoryJournal()

        def once(seconds: float = seconds, journal: MemoryJournal = journal) -> tuple[str, int, bool]:
            result = strategy.solve("q", budget=Budget(seconds=seconds), journal=journal)
            return result.text, len(result.candidates), result.exhausted

        first = once()
        calls.clear()
        assert once() == first and first[2] and not calls


class Rank(FunctionVerifier):
    """Scores each by how many of those that are scored with it are smaller."""

    relative = True

    async def score(self, sequences: Any, *, scope: Scope) -> list[Score]:
        await super().score(sequences, scope=scope)  # pays
        texts = [s.text for s in sequences]
        return [Score(sum(t < s.text for t in texts) / max(1, len(texts) - 1)) for s in sequences]


@pytest.mark.parametrize("calls", [None, *range(1, 14)])
def test_a_verifier_that_compares_sees_all_candidates_at_once(calls: int | None) -> None:
    generator = writes("c", "a", "f", "b", "e", "d")
    strategy = BestOfN(generator, 6, verifier=Rank(lambda s: 0.0))
    result = strategy.solve(PROMPT, budget=None if calls is None else {"calls": calls})
    assert result.exhausted == (calls is not None and calls < 12) and result.usage.calls <= (calls or 12)
    drawn = [c.sequence.text for c in result.candidates]
    if calls is None or calls >= 2:
        assert result.text == max(drawn)
        assert max(c.value or 0.0 for c in result.candidates) == (1.0 if len(drawn) > 1 else 0.0)


def test_equal_texts_of_two_waves_are_paid_for_once() -> None:
    """Under a limit that generating and scoring share, candidates come in waves."""
    generator = writes("x", "x", "x", "x", "y", "x")
    result = BestOfN(generator, 6, verifier=scored({"x": 0.1, "y": 0.2})).solve(PROMPT, budget={"calls": 30})
    assert result.usage.calls == 6 + 2 and result.text == "y" and len(result.candidates) == 6


def test_a_rule_that_knows_the_answer_makes_a_bound_only_of_what_looks_at_answers() -> None:
    class Knows(FunctionRule):
        oracle = True

    knows, generator = Knows(lambda text: text), FunctionGenerator(lambda prefix, seed, index: "x")
    assert not Sample(generator, answer=knows).oracle
    assert not BestOfN(generator, 2, verifier=FunctionVerifier(lambda s: 0.5), answer=knows).oracle
    assert MajorityVote(generator, 2, answer=knows).oracle
