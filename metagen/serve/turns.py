"""The turns of a chat as metagen knows them: calls of tools are text, and a speaker's name has no place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metagen.generators.tool_calls import write_calls
from metagen.sequence import words
from metagen.serve.errors import refuse

#: Fields of a turn that say nothing to a model. Clients send back what they were sent.
SILENT = ("name", "tool_calls", "tool_call_id", "refusal", "annotations", "reasoning_content")


def read_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each turn with its role and its content, and answers of tools in the order of their calls.

    Within metagen an answer belongs to a call by its order. Raises ApiError for calls that cannot be read, and for
    answers that are not those of the calls before them.
    """
    turns: list[dict[str, Any]] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        calls = _calls(message, place)
        turns.append(_turn(message, calls))
        place += 1
        if calls:
            answers = [*_following(messages[place:])]
            turns += _in_order(calls, answers, place)
            place += len(answers)
    return turns


def _turn(message: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    made = {name: value for name, value in message.items() if name not in SILENT}
    if made.get("role") == "developer":
        made["role"] = "system"
    if calls:
        said = words(made["content"], "a message with tool_calls") if made.get("content") else ""
        made["content"] = "\n".join(part for part in (said, write_calls(calls)) if part)
    return made


def _calls(message: dict[str, Any], place: int) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise refuse(
                f"messages.{place}.tool_calls",
                f"{call!r:.80} is no call; expected {{id, type: function, function: {{name, arguments}}}}",
            )
    return list(calls)


def _following(messages: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for message in messages:
        if message.get("role") != "tool":
            return
        yield message


def _in_order(calls: list[dict[str, Any]], answers: list[dict[str, Any]], place: int) -> list[dict[str, Any]]:
    """The answers of tools behind their calls; by their ids, where the answers have some."""
    ids = [call.get("id") for call in calls]
    given = [answer.get("tool_call_id") for answer in answers]
    if all(one is None for one in given):
        return [_turn(answer, []) for answer in answers]
    if sorted(map(str, ids)) != sorted(map(str, given)):
        raise refuse(
            f"messages.{place}.tool_call_id",
            f"{given!r:.120} answer the calls {ids!r:.120} before; expected one answer for each call",
        )
    left = {str(one): [a for a in answers if str(a.get("tool_call_id")) == str(one)] for one in ids}
    # Calls whose ids are equal have their answers in order.
    return [_turn(left[str(one)].pop(0), []) for one in ids]
