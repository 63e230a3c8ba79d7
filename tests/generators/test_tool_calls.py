"""Calls of a client's tools: from fields to texts and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import PromptError
from metagen.generators.openai.stream import join_stream
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.tool_calls import TOOLS, split_calls, turns_with_calls, write_calls
from metagen.sequence import Message, Prompt, Sequence
from tests.chat_model import TEMPLATE, chat_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=10), st.dictionaries(st.text(max_size=8), JSON)), min_size=1
    )
)
def test_calls_come_back_as_they_were(calls: list[tuple[str, dict[str, Any]]]) -> None:
    content, found = split_calls(write_calls(call(*one) for one in calls))
    assert content == ""
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in found] == calls


def test_the_mark_that_ends_a_call_may_stand_in_one() -> None:
    said = {"text": "Write </tool_call>, then <tool_call> and <\\/tool_call>."}
    content, (found,) = split_calls(write_calls([call("say", said)]))
    assert content == "" and json.loads(found["function"]["arguments"]) == said


@pytest.mark.parametrize(
    "nothing", [{}, {"arguments": None}, *({"arguments": a} for a in ("", " ", "null", "{}"))]
)
def test_a_call_without_arguments_is_a_call(nothing: dict[str, Any]) -> None:
    content, (found,) = split_calls(write_calls([{"function": {"name": "now", **nothing}}]))
    assert content == "" and found["function"] == {"name": "now", "arguments": "{}"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "parameters": {"a": 1}}',
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        '\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n',
    ],
)
def test_notations_of_models(text: str) -> None:
    content, (found,) = split_calls(text)
    assert content == "" and found["function"] == {"name": "add", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        '{"a": 1}',
        "[1, 2]",
        '{"name": "Ann", "age": 3}',
        "<tool_call>no</tool_call>",
        '{"name": "x"}',
        "[{]",
        "{",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert split_calls(text) == (text, [])


def test_words_beside_calls_are_kept() -> None:
    content, found = split_calls("Let me see.\n" + write_calls([call("a", {}), call("b", {"x": [1]})]))
    assert content == "Let me see." and [one["id"] for one in found] == ["call_0", "call_1"]


def test_turns_name_the_calls_that_they_answer() -> None:
    turns = turns_with_calls(
        [
            Message("user", "?"),
            Message("assistant", write_calls([call("a", {}), call("b", {})])),
            Message("tool", "1"),
            Message("tool", "2"),
            Message("assistant", "3"),
        ]
    )
    ids = [one["id"] for one in turns[1]["tool_calls"]]
    assert len(set(ids)) == 2 and [turn.get("tool_call_id") for turn in turns] == [None, None, *ids, None]
    assert turns[1]["content"] == "" and turns[4] == {"role": "assistant", "content": "3"}


def test_a_stream_of_calls_is_joined() -> None:
    deltas: list[dict[str, Any]] = [
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {
            "tool_calls": [
                {"index": 1, "id": "c2", "type": "function", "function": {"name": "two", "arguments": "{}"}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]
    lines = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}" for delta in deltas]
    (choice,) = join_stream("\n".join(lines).encode())["choices"]
    functions = [one["function"] for one in choice["message"]["tool_calls"]]
    assert functions == [{"name": "add", "arguments": '{"a": 1}'}, {"name": "two", "arguments": "{}"}]


def test_a_template_is_told_of_tools_or_refuses(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    asked = Prompt.of([Message("user", "Q:a=1+2;a?")])
    told = Prompt(asked.problem_id, messages=asked.messages, public={TOOLS: tools})
    deaf = Tokenizer(chat_model(tmp_path / "deaf"), 128)
    assert not deaf.takes_tools
    with pytest.raises(PromptError, match="no place for any"):
        deaf.render(Sequence.of(told))
    place = chat_model(tmp_path / "hears")
    (place / "chat_template.jinja").write_text(
        "{% if tools %}{{ tools[0].function.name }}\n{% endif %}" + TEMPLATE
    )
    hears = Tokenizer(place, 128)
    assert hears.takes_tools
    with_tools, without = (hears.decode(list(hears.render(Sequence.of(one))[0])) for one in (told, asked))
    assert with_tools.startswith("add") and not without.startswith("add")
