"""Rejection sampling: the first that is accepted, up to a cap, whatever the batch."""

from __future__ import annotations

import math
from typing import Any

import pytest

from metagen.errors import InputError, UnsupportedError
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.rejection import RejectionSampling
from metagen.testing import StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule, FunctionVerifier

PROMPT = Prompt("p", text="?")
VALUE = FunctionVerifier(lambda s: float(s.text.split("=")[0]))


def writes(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=20, name=" ".join(texts))


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8])
def test_the_first_accepted_is_returned_whatever_the_batch(batch: int) -> None:
    generator = writes("0.2=a", "0.4=b", "0.7=c", "0.9=d", "0.1=e")
    strategy = RejectionSampling(generator, 5, verifier=VALUE, threshold=0.6, batch=batch)
    result = strategy.solve(PROMPT)
    assert result.text == "0.7=c" and not result.exhausted
    assert result.sequence.scores["function"].value == 0.7
    assert len(result.candidates) == min(5, math.ceil(3 / batch) * batch)


def test_if_none_is_accepted_the_best_is_returned() -> None:
    strategy = RejectionSampling(writes("0.2=a", "0.4=b", "0.3=c"), 3, verifier=VALUE, threshold=0.6)
    assert strategy.solve(PROMPT).text == "0.4=b"


def test_verdicts_and_what_has_no_answer_are_never_accepted() -> None:
    verdict = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text == "a" else 0.9)
    assert RejectionSampling(writes("a", "b"), 2, verifier=verdict).solve(PROMPT).text == "b"
    rule = FunctionRule(lambda text: text.partition("=")[2] or None)
    answered = RejectionSampling(writes("0.9=", "0.8=x"), 2, verifier=VALUE, answer=rule)
    assert answered.solve(PROMPT).text == "0.8=x"


def test_a_perfect_verifier_reaches_pass_at_n() -> None:
    """Right with 1 in 5, 400 problems, n = 4: solved as often as some sample is right, 1 − 0.8⁴ = 0.59."""
    generator = FunctionGenerator(lambda p, seed, i: "right" if seed % 5 == 0 else "wrong")
    perfect = FunctionVerifier(lambda s: float(s.text == "right"))
    journal = MemoryJournal()
    solved = passed = drawn = 0
    for k in range(400):
        prompt = Prompt(f"p{k}", text=f"{k}?")
        strategy = RejectionSampling(generator, 4, verifier=perfect)
        result = strategy.solve(prompt, journal=journal)
        solved += result.text == "right"
        drawn += len(result.candidates)
        everything = RejectionSampling(generator, 4, verifier=perfect, batch=4).solve(prompt, journal=journal)
        passed += any(c.sequence.text == "right" for c in everything.candidates)
    assert solved == passed and abs(solved / 400 - 0.59) < 0.1
    # A geometric number of draws, cut at 4: 1 + .8 + .64 + .512 = 2.952.
    assert abs(drawn / 400 - 2.952) < 0.25


@pytest.mark.parametrize("calls", range(1, 8))
def test_when_calls_run_out_the_best_so_far_is_returned(calls: int) -> None:
    generator = writes("0.3=a", "0.1=b", "0.5=c", "0.9=d")
    result = RejectionSampling(generator, 4, verifier=VALUE, threshold=0.8).solve(
        PROMPT, budget={"calls": calls}
    )
    assert result.usage.calls == calls and result.exhausted
    assert result.text == ("0.5=c" if calls >= 6 else "0.3=a")


def test_the_threshold_itself_is_accepted() -> None:
    strategy = RejectionSampling(writes("0.5=a", "0.9=b"), 2, verifier=VALUE, threshold=0.5)
    assert strategy.solve(PROMPT).text == "0.5=a"


def test_equal_samples_are_scored_once_and_waves_leave_none_unscored() -> None:
    same = RejectionSampling(writes(*["0.1=a"] * 6), 6, verifier=VALUE, threshold=0.9)
    assert same.solve(PROMPT).usage.calls == 7
    wide = RejectionSampling(
        writes(*(f"0.{i}=x" for i in range(8))), 8, verifier=VALUE, threshold=0.9, batch=8
    )
    result = wide.solve(PROMPT, budget={"calls": 8})
    assert sum(c.value is not None for c in result.candidates) >= 3 and result.text != "0.0=x"


def test_bad_arguments_are_refused_when_it_is_built() -> None:
    for wrong, match in (
        ({"n": 0}, "n=0"),
        ({"n": 2.5}, "n=2.5"),
        ({"batch": 0}, "batch=0"),
        ({"threshold": 1.5}, "threshold=1.5"),
    ):
        given: dict[str, Any] = {"n": 4, **wrong}
        with pytest.raises(InputError, match=match):
            RejectionSampling(writes(), verifier=VALUE, **given)
    relative = type("Relative", (FunctionVerifier,), {"relative": True})(lambda s: 0.5)
    with pytest.raises(UnsupportedError, match="relative to each other"):
        RejectionSampling(writes("a"), 2, verifier=relative)
    joint = writes()
    joint.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        RejectionSampling(joint, 2, verifier=VALUE)


class TestRejectionSampling(StrategyLaws):
    def make(self) -> Strategy:
        return RejectionSampling(numbers(), 6, verifier=first_word, threshold=0.9, batch=2, answer=last_word)


def test_sequences_of_a_prefix_extend_it() -> None:
    prefix = Sequence.of(PROMPT).extend("so ")
    result = RejectionSampling(writes("0.9"), 1, verifier=FunctionVerifier(lambda s: 1.0))
    assert result.accepts_prefix and prefix.text == "so "
