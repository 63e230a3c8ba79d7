"""Tools called by JSON."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from pydantic import BaseModel

from metagen.errors import InputError, PromptError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.chain.tool_use import ToolUse, describe
from metagen.strategies.tools import Tool
from metagen.testing import StrategyLaws, last_word, numbers
from tests.strategies.chain.toolbox import add


def test_calls_by_json_and_what_is_wrong_with_them() -> None:
    turns = iter([
        "I think",
        '{"tool": "sub", "arguments": {}}',
        '{"tool": "add", "arguments": {"a": "two"}}',
        '```json\n{"tool": "add", "arguments": {"a": 2, "b": 3}}\n```',
        'So {"answer": "5"} it is',
    ])  # fmt: skip
    prompts: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt.text or "")
        return next(turns)

    result = ToolUse(FunctionGenerator(write), [add], answer=last_word).solve("2+3?")
    assert result.text == "5" and result.answer is not None and result.answer.key == "5"
    assert [row.path for row in result.trace.rows] == [
        "0/turn/0", "0/turn/1", "0/turn/2", "0/turn/3", "0/tool/3", "0/turn/4"
    ]  # fmt: skip
    assert prompts[0].startswith("2+3?\n") and "add: Add two numbers. {" in prompts[0]
    told = [prompt.rpartition("Result: ")[2].strip() for prompt in prompts[1:]]
    assert told[0] == "there is no JSON object in it"
    assert told[1] == "no tool is called 'sub'; there are add"
    assert told[2].startswith(
        "the tool 'add' cannot take these arguments: a: Input should be a valid integer"
    )
    assert told[3] == "5"


class Point(BaseModel):
    x: int


def test_a_tool_may_take_nothing_or_a_model() -> None:
    def now() -> str:
        return "noon"

    def right(point: Point) -> int:
        assert point == {"x": 2}, "arguments are JSON"
        return 3

    turns = iter(
        ['{"tool": "now"}', '{"tool": "right", "arguments": {"point": {"x": 2}}}', '{"answer": "x"}']
    )
    prompts: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt.text or "")
        return next(turns)

    assert ToolUse(FunctionGenerator(write), [now, Tool(right)]).solve("q").text == "x"
    assert '"$defs": {"Point"' in prompts[0]
    assert [p.rpartition("Result: ")[2].strip() for p in prompts[1:]] == ["noon", "3"]


def test_annotations_that_cannot_be_read_are_an_error_when_it_is_built() -> None:
    def undefined(x: Nothing) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Odd."""

    def strange(x: EnumerableEngine) -> None:
        """Odd."""

    for odd in (undefined, strange):
        with pytest.raises(InputError, match=f"annotations of the tool '{odd.__name__}' cannot be read"):
            ToolUse(numbers(), [odd])


def test_without_an_answer_the_last_turn_is_returned() -> None:
    generator = FunctionGenerator(lambda p, s, i: '{"tool": "add", "arguments": {"a": 1}}')
    result = ToolUse(generator, [Tool(add)], most=2).solve("q")
    assert json.loads(result.text)["tool"] == "add" and len(result.trace.rows) == 4
    assert result.sequence.finish is None, "a call is no answer"
    for tools, most in (([], 1), ([add, add], 1), ([add], 0), ([add], 1.5)):
        with pytest.raises(InputError, match=r"expected tools of different names|expected an integer"):
            ToolUse(generator, tools, most=most)


def counting_up(room: int = 10_000) -> ToolUse:
    """Adds one to the last result until it is 3, and answers; a model with room for so many characters."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        if len(text) > room:
            raise PromptError(f"{len(text)} characters exceed the context of {room}")
        last = int((text.rpartition("Result: ")[2].split() or ["0"])[0]) if "Result: " in text else 0
        return json.dumps(
            {"answer": "three"} if last == 3 else {"tool": "add", "arguments": {"a": last, "b": 1}}
        )

    return ToolUse(FunctionGenerator(write), [add], ask="{prompt}{tools}", answer=last_word)


@pytest.mark.parametrize("calls", range(8))
def test_the_last_turn_is_what_a_spent_budget_returns(calls: int) -> None:
    result = counting_up().solve("q", budget={"calls": calls})
    assert result.exhausted == (calls < 7) and result.usage.calls == calls
    if calls == 7:
        assert (result.text, result.sequence.finish) == ("three", "eos")
    elif calls:
        assert json.loads(result.text)["arguments"]["a"] == (calls - 1) // 2
        assert result.sequence.finish is None
    else:
        assert not result.text
    assert [c.sequence.text for c in result.candidates] == [result.text] * (calls > 0)


def test_the_last_turn_that_fits_is_returned_where_calls_outgrow_the_context() -> None:
    first = len("q" + describe([Tool(add)]))
    result = counting_up(first + 80).solve("q")
    assert json.loads(result.text)["arguments"] == {"a": 1, "b": 1} and result.sequence.finish is None
    with pytest.raises(PromptError):
        counting_up(first - 1).solve("q")


def test_an_engine_that_knows_grammars_is_held_to_calls_that_can_be_followed() -> None:
    """The embedded model has never seen a tool; whatever it writes is a call that fits, or an answer."""

    def right(point: Point, way: Literal["north", "south"], kinds: set[int]) -> str:
        """What no grammar can say (that a set has no equals) is left to be checked."""
        return way

    with TorchEngine("tiny-0.5m", threads=1) as engine:
        free = engine.generator(max_tokens=160)
        strategy = ToolUse(free, [add, right], most=3, turn="{result}\n")
        assert strategy._held.fingerprint != free.fingerprint
        turns = [row for seed in range(2) for row in strategy.solve("Q:a=1+2;a?\nS:\n", seed=seed).trace.rows]
    written = [
        row.payload["text"] for row in turns if row.kind == "generate" and row.payload["finish"] == "eos"
    ]
    assert len(written) >= 2
    for text in written:
        move = json.loads(text)
        if "answer" in move:
            assert list(move) == ["answer"] and isinstance(move["answer"], str)
        else:
            tool = {"add": Tool(add), "right": Tool(right)}[move["tool"]]
            assert list(move) == ["tool", "arguments"] and tool.read(move["arguments"])


def test_what_a_length_cuts_is_answered_with_what_is_wrong() -> None:
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        strategy = ToolUse(engine.generator(max_tokens=8), [add], most=2)
        result = strategy.solve("Q:a=1+2;a?\nS:\n")
    assert [row.kind for row in result.trace.rows] == ["generate", "generate"], "nothing is called"
    assert result.sequence.finish is None


class TestToolUse(StrategyLaws):
    def make(self) -> Strategy:
        return ToolUse(numbers(), [add], most=2)
