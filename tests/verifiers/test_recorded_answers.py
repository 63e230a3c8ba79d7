"""Answers that a pool records itself: a field of their own, or verdicts alone."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import InputError
from metagen.generators.replay import ANSWER
from metagen.sequence import Prompt, Score, Sequence
from metagen.verifiers.recorded_answers import RecordedRule
from metagen.verifiers.rules import answer_rule
from metagen.verifiers.text import TextRule
from metagen.verifiers.verdict_classes import RIGHT, VerdictRule

PROMPT = Prompt("p", text="?")


def sample(text: str, **scores: Score) -> Sequence:
    return Sequence(PROMPT, text, finish="eos", scores=scores)


def recorded_answer(text: str) -> Score:
    return Score(None, verdict="recorded", feedback=text)


def keys(rule: RecordedRule | VerdictRule, *samples: Sequence) -> list[str | None]:
    return [answer.key for answer in asyncio.run(rule.read(samples))]


def test_a_recorded_answer_comes_before_the_text() -> None:
    rule = RecordedRule(TextRule(fold_case=True))
    without = Score(None, verdict="unscored")
    samples = [sample("it is B", **{ANSWER: recorded_answer(a)}) for a in ("A", "a", "b", " ")]
    found = asyncio.run(rule.read([*samples, sample("it is B", **{ANSWER: without})]))
    assert [answer.key for answer in found] == ["a", "a", "b", None, None]
    assert [answer.verdict for answer in found] == [None, None, None, "unparsable", "missing"]
    assert asyncio.run(rule.key("A")) == "a"
    with pytest.raises(InputError, match=r"no recorded 'answer'; map it .* fields: \{answers: FIELD\}"):
        keys(rule, sample("it is B"))


def test_what_is_right_is_one_class_and_what_is_wrong_agrees_by_its_text() -> None:
    right, wrong, none = Score(1.0), Score(0.0), Score(None, verdict="unscored")
    samples = [sample("x", verdict=right), sample("y", verdict=right), sample("p", verdict=wrong),
               sample("q ", verdict=wrong), sample("q", verdict=wrong), sample("x", verdict=none)]  # fmt: skip
    one, two, p, q, same, nothing = keys(VerdictRule(), *samples)
    assert one == two == RIGHT and q == same and len({RIGHT, p, q}) == 3 and nothing is None
    assert len(set(keys(VerdictRule(wrong="one"), *samples[2:5]))) == 1
    assert asyncio.run(VerdictRule().key("right")) is None
    with pytest.raises(InputError, match=r"fields: \{scores\.passed: FIELD\}"):
        keys(VerdictRule(score="passed"), samples[0])


def test_only_verdicts_know_what_is_right() -> None:
    assert answer_rule("verdicts").oracle and not answer_rule("recorded").oracle
