"""Universal self-consistency: what a model names is taken; the order of the pool is nothing."""

from __future__ import annotations

import re

import pytest

from metagen.errors import InputError
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Message, Prompt, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.universal import UniversalSelfConsistency, most_consistent
from metagen.testing import StrategyLaws, numbers

PROMPT = Prompt("p", text="What is it?")


def writes(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: texts[i], count=len, max_tokens=20, name=" ".join(texts))


def judge(says: str = "", *, names: str | None = None) -> FunctionGenerator:
    """Says the same always, or names the response that is `names`."""

    def answer(prefix: Sequence, seed: int, index: int) -> str:
        asked = prefix.prompt.messages[0].content
        found = dict(re.findall(r"Response (\d+):\n(\w+)", asked))
        return says or next(f"It is\nResponse {number}" for number, text in found.items() if text == names)

    return FunctionGenerator(answer, count=len, max_tokens=40, name=f"judge {says} {names}")


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_candidate_that_the_model_names_is_returned_in_every_order(name: str) -> None:
    for texts in (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")):
        strategy = UniversalSelfConsistency(writes(*texts), 3, judge=judge(names=name))
        assert strategy.solve(PROMPT).text == name


def test_candidates_are_shown_in_one_order_whatever_that_of_the_pool() -> None:
    seen = []

    def look(prefix: Sequence, seed: int, index: int) -> str:
        seen.append(prefix.prompt)
        return "Response 1"

    for texts in (("a", "b", "c"), ("c", "b", "a")):
        UniversalSelfConsistency(writes(*texts), 3, judge=FunctionGenerator(look)).solve(PROMPT)
    assert seen[0] == seen[1] and "What is it?" in seen[0].messages[0].content


@pytest.mark.parametrize("says", ["no idea", "Response 9", "Response 0", "response"])
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
        return most_consistent(task, candidates)

    for n, place in ((1, 0), (4, 1)):
        strategy = UniversalSelfConsistency(writes("a", "b", "c"), 3, judge=votes, votes=n, ask=shown)
        assert strategy.solve(PROMPT).text == asked[-1][place]


def test_one_candidate_or_equal_ones_need_no_judge() -> None:
    strategy = UniversalSelfConsistency(writes("a", "a", "a"), 3, judge=judge("Response 1"))
    assert strategy.solve(PROMPT).usage.calls == 3
    assert UniversalSelfConsistency(writes("a"), 1, judge=judge()).solve(PROMPT).usage.calls == 1


def test_a_part_of_the_budget_is_kept_for_the_judge() -> None:
    strategy = UniversalSelfConsistency(writes("a", "b", "c", "d"), 4, judge=judge(names="a"))
    for calls in range(1, 6):
        result = strategy.solve(PROMPT, budget={"calls": calls})
        assert result.usage.calls <= calls and result.exhausted == (calls < 5 or calls // 2 < 4)


def test_the_prompt_shows_the_messages_of_a_chat() -> None:
    chat = Prompt("c", messages=(Message("system", "be brief"), Message("user", "2 + 2?")))
    text = most_consistent(chat, ["4", "5"]).messages[0].content
    assert "2 + 2?" in text and "be brief" not in text and "Response 2:\n5" in text


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="votes=0"):
        UniversalSelfConsistency(writes("a"), 1, votes=0)


class TestUniversalSelfConsistency(StrategyLaws):
    def make(self) -> Strategy:
        name = FunctionGenerator(
            lambda p, s, i: "Response 2", name="law judge", count=lambda t: len(t.split()), max_tokens=5
        )
        return UniversalSelfConsistency(numbers(), 4, judge=name)
