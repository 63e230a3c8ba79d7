"""Universal self-consistency: what a model names is taken; the order of the pool is nothing."""

from __future__ import annotations

import re
from collections import abc
from dataclasses import replace
from typing import Any

import pytest

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import Parallel
from metagen.strategies.universal import MOST_CONSISTENT, Consistent, UniversalSelfConsistency
from metagen.testing import StrategyLaws, numbers

PROMPT = Prompt("p", text="What is it?")
QUESTION = Prompt("q", text="Q:a=36/8;b=a+3;c=b*4;d=c-11;d?\nS:\n")


def writes(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=20, name=" ".join(texts))


def judge(says: str = "", *, names: str | None = None) -> FunctionGenerator:
    """Says the same always, or names the response that is `names`."""

    def answer(prefix: Sequence, seed: int, index: int) -> str:
        found = dict(re.findall(r"Response (\d+):\n(\w+)", prefix.prompt.text or ""))
        return says or next(f"It is\nResponse {number}" for number, text in found.items() if text == names)

    return FunctionGenerator(answer, count=len, max_tokens=6000, name=f"judge {says:.9} {names}")


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_candidate_that_the_model_names_is_returned_in_every_order(name: str) -> None:
    for texts in (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")):
        strategy = UniversalSelfConsistency(writes(*texts), 3, judge=judge(names=name))
        assert strategy.solve(PROMPT).text == name


def test_a_pattern_of_ones_own_may_have_blanks_around_the_number() -> None:
    def chosen(said: str) -> str:
        judge = FunctionGenerator(lambda prefix, seed, index: said)
        by = Consistent(judge, reads=re.compile(r"\[\[(.*?)\]\]"))
        return Parallel(writes("a", "b", "c"), 3, aggregator=by).solve(PROMPT).text

    assert chosen("[[2]]") == chosen("[[ 2 ]]") != chosen("[[ 3 ]]")


def test_candidates_are_shown_in_one_order_whatever_that_of_the_pool() -> None:
    seen = []

    def look(prefix: Sequence, seed: int, index: int) -> str:
        seen.append(prefix.prompt)
        return "Response 1"

    for texts in (("a", "b", "c"), ("c", "b", "a")):
        UniversalSelfConsistency(writes(*texts), 3, judge=FunctionGenerator(look)).solve(PROMPT)
    assert seen[0] == seen[1] and "What is it?" in (seen[0].text or "")


@pytest.mark.parametrize(
    "says", ["no idea", "Response 9", "Response 0", "response", "Response " + "9" * 5000]
)
def test_where_nothing_that_can_be_read_is_said_the_tie_rule_decides(says: str) -> None:
    found = {
        UniversalSelfConsistency(writes(*texts), 3, judge=judge(says)).solve(PROMPT).text
        for texts in (("a", "b", "c"), ("c", "a", "b"))
    }
    assert len(found) == 1


def test_the_last_name_counts_and_the_most_frequent_of_several_votes() -> None:
    said = ["Response 2 is not; Response 1", "Response 2", "response #2", "nothing"]
    votes = FunctionGenerator(lambda p, s, i: said[i])
    asked = []

    def shown(task: Prompt, candidates: list[str]) -> Prompt:
        asked.append(list(candidates))
        return MOST_CONSISTENT(task, candidates)

    for n, place in ((1, 0), (4, 1)):
        strategy = UniversalSelfConsistency(writes("a", "b", "c"), 3, judge=votes, votes=n, ask=shown)
        assert strategy.solve(PROMPT).text == asked[-1][place]


def test_votes_for_equal_texts_are_votes_for_one_choice() -> None:
    """Of three, the text that stands twice has four votes and the other three."""

    def named(prefix: Sequence, seed: int, index: int) -> str:
        texts = re.findall(r"Response (\d+):\n(\w+)", prefix.prompt.text or "")
        (other,) = (number for number, text in texts if text == "b")
        same = [number for number, text in texts if text == "a"]
        return f"Response {other if index < 3 else same[index % 2]}"

    votes = FunctionGenerator(named, name="votes")
    assert UniversalSelfConsistency(writes("a", "a", "b"), 3, judge=votes, votes=7).solve(PROMPT).text == "a"


def test_a_number_at_the_end_of_a_cut_reply_is_no_choice() -> None:
    """ "Response 1" may have been about to be "Response 10"; what stands before the cut counts."""
    said = [
        Drawn("Response 1", None, 10, finish="length"),
        Drawn("Response 1", None, 10, finish="length"),
        Drawn("Response 2 is it, for", None, 10, finish="length"),
    ]
    asked: list[str] = []

    def shown(task: Prompt, candidates: abc.Sequence[str]) -> Prompt:
        asked[:] = candidates
        return MOST_CONSISTENT(task, candidates)

    votes = FunctionGenerator(lambda p, s, i: said[i], name="cut")
    strategy = UniversalSelfConsistency(writes("a", "b", "c"), 3, judge=votes, votes=3, ask=shown)
    assert strategy.solve(PROMPT).text == asked[1]


def test_one_candidate_or_equal_ones_need_no_judge() -> None:
    strategy = UniversalSelfConsistency(writes("a", "a", "a"), 3, judge=judge("Response 1"))
    assert strategy.solve(PROMPT).usage.calls == 3
    assert UniversalSelfConsistency(writes("a"), 1, judge=judge()).solve(PROMPT).usage.calls == 1


def test_a_part_of_the_budget_is_kept_for_the_judge() -> None:
    strategy = UniversalSelfConsistency(writes("a", "b", "c", "d"), 4, judge=judge(names="a"))
    for calls in range(1, 6):
        result = strategy.solve(PROMPT, budget={"calls": calls})
        assert result.usage.calls <= calls and result.exhausted == (calls < 5 or calls // 2 < 4)


def test_a_form_that_gives_no_prompt_is_told() -> None:
    wrong: Any = lambda task, candidates: "Which?"  # noqa: E731
    strategy = UniversalSelfConsistency(writes("a", "b"), 2, judge=judge("Response 1"), ask=wrong)
    with pytest.raises(InputError, match="returned 'Which\\?' for problem 'p'; expected a Prompt"):
        strategy.solve(PROMPT)


def test_a_model_without_a_chat_template_is_asked_by_text() -> None:
    """The embedded model reads English as little as any base model, but it is asked, and it replies."""
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        strategy = UniversalSelfConsistency(
            engine.generator(max_tokens=80), 3, judge=engine.generator(max_tokens=4)
        )
        result = strategy.solve(QUESTION)
        assert result.text in [c.sequence.text for c in result.candidates]
        (asked,) = [row for row in result.trace.rows if row.path == "0/consistent"]
        assert asked.payload is not None and asked.usage.generated
        with pytest.raises(UnsupportedError, match="no chat template"):
            UniversalSelfConsistency(
                engine.generator(max_tokens=24), 3, ask=replace(MOST_CONSISTENT, chat=True)
            ).solve(QUESTION)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="votes=0"):
        UniversalSelfConsistency(writes("a"), 1, votes=0)


class TestUniversalSelfConsistency(StrategyLaws):
    def make(self) -> Strategy:
        name = FunctionGenerator(
            lambda p, s, i: "Response 2", name="law judge", count=lambda t: len(t.split()), max_tokens=5
        )
        return UniversalSelfConsistency(numbers(), 4, judge=name)
