"""A table chooses how to go on, by what the first samples say."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from metagen.errors import EngineError, InputError, PluginError, UnsupportedError
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Prompt, Sequence
from metagen.strategies.adaptive.by_difficulty import ByDifficulty, agreement, mean_score
from metagen.strategies.aggregators import Best, Majority, Weighted
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier

PROMPT = Prompt("p", text="?")
ANSWER = FunctionRule(lambda text: text.partition("=")[2][:1] or None, name="after =")


def writes(answers: str) -> FunctionGenerator:
    texts = [f"{i}={a}" if a != "-" else f"{i}" for i, a in enumerate(answers)]
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=8, name=f"writes {answers}")


#: Agreement of four: up to ½, a larger model; up to ¾, eight samples; else that is it.
LARGER = FunctionGenerator(lambda p, s, i: "L=9", count=len, max_tokens=8, name="larger")


def table(answers: str, **kwargs: object) -> ByDifficulty:
    options = {"edges": (0.6, 0.9), "options": (LARGER, 8, 4)} | kwargs
    return ByDifficulty(writes(answers), 4, Majority(ANSWER), **options)  # type: ignore[arg-type]


def test_predictors_by_hand() -> None:
    classes, weights = (
        np.array([[0, 0, 1, -1], [2, 2, 2, 2]]),
        np.array([[0.5, 0.5, np.nan, 0.2], [1, 1, 0.5, 0.5]]),
    )
    assert agreement(classes, weights).tolist() == [0.5, 1.0]
    assert mean_score(classes, weights) == pytest.approx([0.3, 0.75])


def test_each_group_goes_its_own_way() -> None:
    easy, middle, hard = table("1111"), table("11123333"), table("1234")
    done = easy.solve(PROMPT)
    assert done.text.endswith("=1") and len(done.candidates) == done.usage.calls == 4
    voted = middle.solve(PROMPT)
    assert voted.text.endswith("=3") and len(voted.candidates) == 8
    assert hard.solve(PROMPT).text == "L=9" and hard.solve(PROMPT).usage.calls == 5
    assert hard.solve(PROMPT).shares == {"9": 1.0}, "the samples that it overrules have no vote"
    paths = {row.path for row in hard.solve(PROMPT).trace.rows}
    assert paths == {"0/sample", "0/harder"}


def test_the_value_of_an_edge_belongs_to_the_easier_group() -> None:
    strategy = table("1123", edges=(0.5, 0.9))
    assert strategy.solve(PROMPT, budget={"calls": 4}).usage.calls == 4
    with pytest.raises(
        PluginError, match="raised IndexError"
    ):  # agreement ½ is of the second group, which draws eight: there are four texts
        strategy.solve(PROMPT)


def test_the_first_samples_are_those_of_the_pool() -> None:
    journal, generator = CountingJournal(), numbers()
    MajorityVote(generator, 8, answer=last_word).solve(PROMPT, journal=journal)
    options = {"edges": (0.5,), "options": (8, 6)}
    ByDifficulty(generator, 4, Majority(last_word), **options).solve(PROMPT, journal=journal)  # type: ignore[arg-type]
    assert journal.recorded == 8


def test_a_verifier_tells_how_hard_it_is() -> None:
    verifier = FunctionVerifier(lambda s: 0.9 if s.text.endswith("1") else 0.1, name="one")
    strategy = ByDifficulty(
        writes("112111"), 3, Weighted(verifier, ANSWER), edges=(0.7,), options=(6, 3), predictor="mean_score"
    )
    assert len(strategy.solve(PROMPT).candidates) == 6, "0.63 is hard"
    plain = ByDifficulty(
        writes("12"), 2, Best(verifier), edges=(0.95,), options=(LARGER, 2), predictor="mean_score"
    )
    assert plain.solve(PROMPT).text == "L=9", "without an answer rule as well"


def test_what_did_not_end_by_itself_gives_way_to_the_first_samples() -> None:
    broke = Sample(FunctionGenerator(lambda p, s, i: "x" * 9, count=len, max_tokens=9, name="long"))
    strategy = table("1233", options=(broke, 8, 4))
    assert strategy.solve(PROMPT).text == "x" * 9
    short = strategy.solve(PROMPT, budget=19)  # 12 for the first four, and too little for the other
    assert short.exhausted and short.answer is not None and short.answer.key == "3"


@pytest.mark.parametrize("calls", range(11))
def test_calls_that_run_out_leave_a_vote_over_what_there_is(calls: int) -> None:
    result = table("11123333").solve(PROMPT, budget={"calls": calls})
    assert result.usage.calls == min(calls, 8) and result.exhausted == (calls < 8)
    assert bool(result.text) == (calls > 0) and len(result.candidates) == min(calls, 8)


def test_it_goes_on_where_it_was_cut_off() -> None:
    inner = BestOfN(numbers(), 3, verifier=first_word, answer=last_word)
    strategy = ByDifficulty(numbers(), 3, Majority(last_word), edges=(1.0,), options=(inner, 3))
    for seed in range(3):
        whole = MemoryJournal()
        first = strategy.solve(PROMPT, seed=seed, journal=whole)
        rows = whole.of_problem(PROMPT.problem_id)
        for cut in range(len(rows) + 1):
            journal = CountingJournal()
            asyncio.run(journal.record(rows[:cut]))
            journal.recorded = 0
            again = strategy.solve(PROMPT, seed=seed, journal=journal)
            assert (again.text, again.candidates) == (first.text, first.candidates)
            assert journal.recorded == len(rows) - cut


def test_an_option_that_fails_fails_the_call() -> None:
    def down(prefix: Sequence, seed: int, index: int) -> str:
        raise EngineError("the larger model is down")

    with pytest.raises(EngineError, match="down"):
        table("1234", options=(FunctionGenerator(down, name="down"), 8, 4)).solve(PROMPT)


def test_an_oracle_among_the_options_is_seen() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    knows = BestOfN(numbers(), 2, verifier=OracleVerifier(grade))
    assert table("1", options=(knows, 8, 4)).oracle and not table("1").oracle


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": (8, 4)}, "2 options for edges"), ({"edges": (0.9, 0.6)}, "ascending edges"),
        ({"options": (8, 3, 4)}, "an option of 3 samples, after first=4"), ({"predictor": "mood"}, "predictor='mood'"),
        ({"predictor": "mean_score"}, "needs an aggregator with a verifier; Majority has none"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        table("1", **change)


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="first=0"):
        ByDifficulty(numbers(), 0, Majority(last_word), edges=(), options=(4,))
    with pytest.raises(InputError, match="needs an aggregator with an answer rule; Best has none"):
        ByDifficulty(numbers(), 2, Best(first_word), edges=(), options=(4,))
    beams = numbers()
    beams.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        ByDifficulty(beams, 2, Majority(last_word), edges=(), options=(4,))


def test_fingerprints_tell_tables_apart() -> None:
    made = [
        table("1"),
        table("1", edges=(0.6, 0.8)),
        table("1", options=(LARGER, 9, 4)),
        table("1", options=(8, 8, 4)),
    ]
    assert len({s.fingerprint for s in made}) == len(made) and table("1").fingerprint == made[0].fingerprint


class TestByDifficultyLaws(StrategyLaws):
    def make(self) -> Strategy:
        harder = BestOfN(numbers(), 4, verifier=first_word, answer=last_word)
        return ByDifficulty(numbers(), 3, Majority(last_word), edges=(0.5, 1.0), options=(harder, 5, 3))
