"""Tools of a client go through to a model that knows tools, and its calls come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from metagen.errors import PromptError
from metagen.serve.turns import read_turns
from tests.generators.openai.serving import Asked, Reply, Server
from tests.serve.serving import QUESTION, serving
from tests.serve.test_upstream import front

TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}}}},
    }
]


async def model(asked: Asked) -> Reply:
    """Calls the tool that it is told of, and says what came of it."""
    turns = asked.body["messages"]
    message: dict[str, Any] = {"role": "assistant", "content": f"It is {turns[-1]['content']}."}
    finish = "stop"
    if turns[-1]["role"] == "tool":
        assert turns[-1]["tool_call_id"] == turns[-2]["tool_calls"][0]["id"]
    elif asked.body.get("tools"):
        function = {
            "name": asked.body["tools"][0]["function"]["name"],
            "arguments": json.dumps({"a": 12, "b": 7}),
        }
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": "call_x", "type": "function", "function": function}]
        finish = "tool_calls"
    choices = [
        {"index": i, "message": message, "finish_reason": finish} for i in range(asked.body.get("n", 1))
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": 12 * len(choices)}
    return Reply(body={"choices": choices, "usage": usage})


def test_a_client_is_asked_for_its_tool_and_told_the_rest(tmp_path: Path) -> None:
    with Server(model).open() as behind, serving(tmp_path, front(behind.url, api="chat")) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        turns: list[Any] = [{"role": "user", "content": "12 + 7?"}]
        for name in ("through/one", "through/majority@4"):
            got = client.chat.completions.create(model=name, messages=turns, tools=TOOLS).choices[0]
            assert got.finish_reason == "tool_calls" and got.message.content is None
            (call,) = got.message.tool_calls or []
            assert call.type == "function" and call.function.name == "add"
            assert json.loads(call.function.arguments) == {"a": 12, "b": 7}
        stream = client.chat.completions.create(model="through/one", messages=turns, tools=TOOLS, stream=True)
        deltas = [choice.delta for chunk in stream for choice in chunk.choices]
        assert [
            d.tool_calls[0].function.name for d in deltas if d.tool_calls and d.tool_calls[0].function
        ] == ["add"]
        assert not any(d.content for d in deltas)
        after = [*turns, got.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "19"}]
        last = client.chat.completions.create(model="through/one", messages=after, tools=TOOLS).choices[0]
        assert last.message.content == "It is 19." and last.finish_reason == "stop"
        none = client.chat.completions.create(
            model="through/one", messages=turns, tools=TOOLS, tool_choice="none"
        )
        assert none.choices[0].message.content == "It is 12 + 7?."


def test_each_call_gets_its_own_answer(tmp_path: Path) -> None:
    """Clients may send the answers of two calls in any order: their ids say which is which."""

    def call(name: str) -> dict[str, Any]:
        return {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}

    def answer(name: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": f"id-{name}", "content": f"said by {name}"}

    async def told(asked: Asked) -> Reply:
        names = {one["id"]: one["function"]["name"] for one in asked.body["messages"][1]["tool_calls"]}
        said = [f"{names[turn['tool_call_id']]}: {turn['content']}" for turn in asked.body["messages"][2:]]
        message = {"role": "assistant", "content": "; ".join(said)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return Reply(body={"choices": choices, "usage": {"prompt_tokens": 20, "completion_tokens": 12}})

    with Server(told).open() as behind, serving(tmp_path, front(behind.url, api="chat")) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        turns: list[Any] = [{"role": "user", "content": "both"}]
        turns.append({"role": "assistant", "content": None, "tool_calls": [call("one"), call("two")]})
        expected = "one: said by one; two: said by two"
        for answers in ([answer("one"), answer("two")], [answer("two"), answer("one")]):
            got = client.chat.completions.create(
                model="through/one", messages=[*turns, *answers], tools=TOOLS
            )
            assert got.choices[0].message.content == expected
        for wrong in ([answer("two")], [answer("one"), answer("three")], [answer("one"), answer("one")]):
            with pytest.raises(openai.BadRequestError, match="one answer for each call") as refused:
                client.chat.completions.create(model="through/one", messages=[*turns, *wrong], tools=TOOLS)
            assert refused.value.param == "messages.2.tool_call_id"
        with pytest.raises(openai.BadRequestError, match="one call at most"):
            client.chat.completions.create(
                model="through/one", messages=turns[:1], tools=TOOLS, parallel_tool_calls=False
            )


def test_calls_of_one_id_have_their_answers_in_order_and_words_beside_them_are_kept() -> None:
    call = {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [{"type": "text", "text": "First I look it up."}]
    turns = read_turns(
        [
            {"role": "assistant", "content": said, "tool_calls": [call, call]},
            {"role": "tool", "tool_call_id": "", "content": "12"},
            {"role": "tool", "tool_call_id": "", "content": "99"},
        ]
    )
    assert [turn["content"] for turn in turns[1:]] == ["12", "99"]
    assert turns[0]["content"].startswith("First I look it up.\n<tool_call>")
    image = {"role": "assistant", "content": [{"type": "image_url"}], "tool_calls": [call]}
    with pytest.raises(PromptError, match="image_url"):
        read_turns([image])


def test_a_model_without_a_place_for_tools_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        turns: list[Any] = [{"role": "user", "content": QUESTION}]
        with pytest.raises(openai.BadRequestError, match="no place for tools"):
            client.chat.completions.create(model="fast", messages=turns, tools=TOOLS)
        with pytest.raises(openai.BadRequestError, match="in several steps"):
            client.chat.completions.create(model="small/rebase@4", messages=turns, tools=TOOLS)
        with pytest.raises(openai.BadRequestError, match="cannot be promised"):
            client.chat.completions.create(model="fast", messages=turns, tools=TOOLS, tool_choice="required")
