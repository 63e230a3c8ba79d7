"""A client's tools: told to a model with its prompt, and its calls of them as texts.

Within metagen a call is `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as Hermes models write it. Servers and
clients have fields of their own for it; engines and the server translate at the border.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from metagen.sequence import Message, Prompt

#: Where a prompt's public data hold tools, in the form of the OpenAI API.
TOOLS: Final = "tools"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
#: How Mistral's models begin calls.
_MISTRAL = "[TOOL_CALLS]"


def tools_of(prompt: Prompt) -> list[Any] | None:
    """The tools that a prompt tells of; None if there are none."""
    found = prompt.public.get(TOOLS)
    return found if isinstance(found, list) and found else None


def tool_bytes(prompt: Prompt) -> int:
    """Bytes of the tools that a prompt tells of, as JSON; 0 if there are none."""
    tools = tools_of(prompt)
    return 0 if tools is None else len(json.dumps(tools, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def write_calls(calls: Iterable[Mapping[str, Any]]) -> str:
    """Calls in the form of the OpenAI API, as text. A call that cannot be read is left out."""
    texts = []
    for call in calls:
        function = call.get("function")
        if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
            arguments = _arguments(function.get("arguments"))
            said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            # Within an argument the mark would end the call; JSON reads `<\/` as `</`.
            said = said.replace("</tool_call>", "<\\/tool_call>")
            texts.append(f"<tool_call>\n{said}\n</tool_call>")
    return "\n".join(texts)


def split_calls(text: str, marks: str = "call") -> tuple[str, list[dict[str, Any]]]:
    """What a text says besides calls, and the calls, in the form of the OpenAI API, numbered behind `marks`.

    Reads Hermes' notation, and texts that are calls as a whole as Llama 3 and Mistral write them. What cannot be read
    as a call stays text.
    """
    found: list[tuple[str, Any]] = []

    def take(match: re.Match[str]) -> str:
        call = _parse(match[1].strip())
        if call is None:
            return match[0]
        found.append(call)
        return ""

    rest = _CALL.sub(take, text)
    if not found:
        whole = rest.strip().removeprefix(_MISTRAL).strip()
        read = [_parse(part) for part in _items(whole)]
        if read and None not in read:
            found, rest = [call for call in read if call is not None], ""
    calls = [
        {
            "id": f"{marks}_{i}", "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for i, (name, arguments) in enumerate(found)
    ]  # fmt: skip
    return rest.strip() if found else text, calls


def turns_with_calls(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Turns for a server, with the calls of assistants in their field, and answers of tools that name their calls."""
    turns: list[dict[str, Any]] = []
    waiting: list[str] = []
    for place, message in enumerate(messages):
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.role == "assistant":
            content, calls = split_calls(message.content, f"call_{place}")
            if calls:
                turn |= {"content": content, "tool_calls": calls}
                waiting = [call["id"] for call in calls]
        elif message.role == "tool" and waiting:
            turn["tool_call_id"] = waiting.pop(0)
        turns.append(turn)
    return turns


def _arguments(given: Any) -> Any:
    """What a call is given; {} where a server says that it is given nothing: "", "null" or no field."""
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except (ValueError, RecursionError):
            return given
    return {} if given is None else given


def _items(text: str) -> list[str]:
    """The parts of a JSON list, each as JSON; a text that is none is one part."""
    if not text.startswith("["):
        return [text] if text.startswith("{") else []
    try:
        return [json.dumps(part) for part in json.loads(text)]
    except (ValueError, RecursionError):
        return []


def _parse(text: str) -> tuple[str, Any] | None:
    """Name and arguments of a call; None for what is no call."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return None
    arguments = data.get("arguments", data.get("parameters"))
    if arguments is None or not set(data) <= {"name", "arguments", "parameters", "id", "type"}:
        return None
    return data["name"], _arguments(arguments)
