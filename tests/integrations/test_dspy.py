"""DSPy runs its programs on strategies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import metagen as mg
from tests.generators.openai.serving import Server
from tests.integrations.problems import ASKED, SEED, accuracy, is_right, skip_without, voting, write

skip_without("dspy")

import dspy  # noqa: E402
from dspy import lm15  # noqa: E402

from metagen.integrations.dspy import SENT, WRITTEN, StrategyEngine, language_model  # noqa: E402
from metagen.integrations.local import Local  # noqa: E402
from metagen.serve.errors import ApiError  # noqa: E402
from tests.serve.test_tools import TOOLS, model  # noqa: E402
from tests.serve.test_upstream import front  # noqa: E402


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
    with pytest.raises(ApiError, match="did you mean 'vote'"):
        language_model(write(tmp_path), "votes")
    with voting() as vote:
        with pytest.raises(Exception, match="would be equal"):
            language_model(vote, temperature=0.0)(ASKED[0][0])
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        with pytest.raises(Exception, match="no place for tools"):
            language_model(vote)(ASKED[0][0], tools=[tool])
        assert not language_model(vote).supports_function_calling


class Asking(dspy.Signature):
    """Answer, with a tool where one helps."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()


def test_a_program_is_asked_for_its_tools(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with Server(model).open() as behind:
        (tmp_path / "served.yaml").write_text(yaml.safe_dump(front(behind.url, api="chat")), "utf-8")
        for name in ("through/one", "through/majority@4"):
            lm = language_model(str(tmp_path / "served.yaml"), name)
            assert lm.supports_function_calling
            with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=True)):
                calls = dspy.Predict(Asking)(question="12 + 7?", tools=[dspy.Tool(add)]).calls
            (call,) = calls.tool_calls
            assert (call.name, call.args) == ("add", {"a": 12, "b": 7})
        with pytest.raises(Exception, match="cannot be promised"):
            lm("12 + 7?", tools=[TOOLS[0]], tool_choice="required")


def test_turns_and_formats_are_those_of_the_api() -> None:
    from metagen.integrations.dspy import _call, _format, _turns

    asked = lm15.Message(
        "assistant",
        (lm15.ThinkingPart("hm"), lm15.TextPart("so"), lm15.ToolCallPart("c1", "add", {"a": "é"})),
    )
    (turn,) = _turns(asked)
    (written,) = turn.pop("tool_calls")
    assert turn == {"role": "assistant", "content": "so"} and written["id"] == "c1"
    assert json.loads(written["function"]["arguments"]) == {"a": "é"}
    results = tuple(lm15.ToolResultPart(name, (lm15.TextPart(name),)) for name in ("c1", "c2"))
    assert list(_turns(lm15.Message("tool", results))) == [
        {"role": "tool", "tool_call_id": name, "content": name} for name in ("c1", "c2")
    ]
    schema = {"type": "object"}
    assert _format({"type": "json_schema", "name": "x", "schema": schema}) == {
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}
    }  # fmt: skip
    with pytest.raises(lm15.ServerError, match="expected an object"):
        _call({"id": "c", "function": {"name": "add", "arguments": "[1]"}})


def test_fields_of_a_request_stand_beside_the_options() -> None:
    config = make_dataclass("Config", [(name, Any, None) for name in (*SENT, *WRITTEN)])
    asked = SimpleNamespace(
        system=None, messages=(), tools=(), model="m", config=config(extensions={"metagen": {"n": 8}})
    )
    with voting() as vote:
        engine = StrategyEngine(Local(vote), {"n": 3, "budget": 90})
        body = engine._body(asked)  # type: ignore[arg-type]  # as far as it is looked at
    assert body["metagen"] == {"n": 8, "budget": 90}
