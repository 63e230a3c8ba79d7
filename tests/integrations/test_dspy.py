"""DSPy runs its programs on strategies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import metagen as mg
from tests.integrations.problems import ASKED, SEED, accuracy, is_right, skip_without, voting, write

skip_without("dspy")

import dspy  # noqa: E402

from metagen.integrations.dspy import language_model  # noqa: E402
from metagen.serve.errors import ApiError  # noqa: E402


class Plain(dspy.ChatAdapter):
    """Sends the question as it is: the embedded models know one notation, and no instructions."""

    def format(self, signature: Any, demos: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": inputs["question"]}]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {"answer": completion}


def run(lm: Any) -> float:
    examples = [dspy.Example(question=q, answer=a).with_inputs("question") for q, a in ASKED]

    def judge(example: Any, found: Any, trace: Any = None) -> bool:
        return is_right(found.answer, example.answer)

    evaluate = dspy.Evaluate(devset=examples, metric=judge, num_threads=4, display_progress=False)
    with dspy.context(lm=lm, adapter=Plain()):
        return sum(score for _, _, score in evaluate(dspy.Predict("question -> answer")).results) / len(ASKED)


def test_a_program_has_the_accuracy_of_the_strategy(tmp_path: Path) -> None:
    with voting() as vote:
        expected = accuracy(vote)
        assert run(language_model(vote, seed=SEED)) == pytest.approx(expected)
        assert run(language_model(write(tmp_path), "vote", seed=SEED)) == pytest.approx(expected)


def test_settings_reach_the_strategy_and_usage_comes_back() -> None:
    question = ASKED[0][0]
    with voting() as vote:
        lm = language_model(vote, seed=SEED, options={"n": 3})
        (text,) = lm(question)
        entry = lm.history[-1]
        usage = entry["usage"]
        assert text and usage["completion_tokens"] > 0
        alone = type(vote)(vote.generator, n=3, answer=vote.answer)
        expected = alone.solve(mg.Prompt.of(question, form="auto"), seed=SEED)
        assert (text, usage["completion_tokens"]) == (expected.text, expected.usage.generated)
        # Nothing is kept by DSPy under a name that another strategy may have.
        assert language_model(vote, seed=SEED + 1)(question) != [] and not lm.cache


def test_awaited_and_streamed_answers_are_the_same() -> None:
    question = ASKED[0][0]
    with voting() as vote:
        lm = language_model(vote, seed=SEED)
        assert asyncio.run(lm.acall(question)) == lm(question)


def test_what_cannot_be_honoured_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="there are several"):
        language_model(write(tmp_path))
    with voting() as vote:
        with pytest.raises(Exception, match="would be equal"):
            language_model(vote, temperature=0.0)(ASKED[0][0])
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        with pytest.raises(Exception, match="tools"):
            language_model(vote)(ASKED[0][0], tools=[tool])
