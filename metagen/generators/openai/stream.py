"""The chunks of a streamed answer, put together to the answer that a server gives at once."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

#: Calls of tools in one answer, at most.
CALLS = 128
#: Ends of lines in server-sent events. A text in JSON may hold others, such as U+2028.
_LINES = re.compile(r"\r\n|\n|\r")


def error_in(content: bytes) -> dict[str, Any] | None:
    """The error that an answer tells in place of choices, or of one: some servers do under status 200."""
    texts: list[bytes | str] = [content]
    if is_stream(content):
        lines = _LINES.split(content.decode("utf-8", "replace"))
        texts = [one.removeprefix("data:") for one in lines if "error" in one]
    for text in texts:
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(text)
            choices = told.get("choices") if isinstance(told, dict) else None
            for place in (told, *(choices if isinstance(choices, list) else ())):
                error = place.get("error") if isinstance(place, dict) else None
                if isinstance(error, dict):
                    return error
                if isinstance(error, str) and error:
                    return {"message": error}
    return None


def is_stream(content: bytes) -> bool:
    """Whether a body is server-sent events."""
    return content.lstrip()[:6].startswith((b"data:", b"event:", b"id:", b":"))


def join_stream(content: bytes) -> dict[str, Any]:
    """The answer of a stream. ValueError for events that are no JSON, and for an error among them.

    Texts, token ids and log-probabilities of a choice follow one another; of what ended it, and of counts, the last
    that is there holds. A stream that broke off has a choice without a finish_reason.
    """
    answer: dict[str, Any] = {"choices": []}
    choices: dict[int, dict[str, Any]] = {}
    for line in _LINES.split(content.decode("utf-8")):
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if not data or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if not isinstance(chunk, dict) or chunk.get("error"):
            raise ValueError("an error within the stream")
        for name in ("usage", "timings"):
            answer[name] = chunk.get(name) or answer.get(name)
        for part in chunk.get("choices") or ():
            index = part.get("index") or 0
            choice = choices.setdefault(index, {"index": index})
            delta = part.pop("delta", None)
            _add(choice, part)
            if delta is not None:
                _add(choice.setdefault("message", {}), delta)
    answer["choices"] = list(choices.values())
    return answer


class Following:
    """The text of one answer so far, told as its chunks come. What cannot be read is left to who reads the whole."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._rest, self._text = tell, b"", ""

    def __call__(self, part: bytes) -> None:
        """Take more bytes."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        more = "".join(map(_text, lines))
        if more:
            self._text += more
            self._tell(self._text)


def _text(line: bytes) -> str:
    """What one line of a stream adds to the text of the first choice."""
    try:
        chunk = json.loads(line.removeprefix(b"data:"))
        said = [
            (choice.get("delta") or {}).get("content") or choice.get("text") or ""
            for choice in chunk.get("choices") or ()
        ]
        return "".join(
            str(part["text"]) for some in said for part in _as_parts(some) if part.get("type") == "text"
        )
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


def _as_parts(content: str | list[Any]) -> list[Any]:
    """A content as parts: Mistral sends thoughts as parts, and the answer behind them as text."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _add_calls(whole: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    """Parts of calls of tools, each with the number of its call. Another id with a name begins another call: some
    servers number all of them 0.
    """
    for part in parts:
        number, name = part.get("index") or 0, part.get("id")
        call = next((one for one in reversed(whole) if one["index"] == number), None)
        function = part.get("function")
        named = isinstance(function, dict) and function.get("name")
        if call is None or (named and name and call.get("id") and call["id"] != name):
            if len(whole) == CALLS:
                raise ValueError(f"more than {CALLS} calls of tools")
            whole.append(call := {"index": number})
        _add(call, part)


def _add(whole: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        old = whole.get(name)
        if value is None or name in ("index", "role"):
            continue
        if name == "tool_calls":
            _add_calls(whole.setdefault(name, []), value)
            continue
        if name in ("finish_reason", "stop_reason", "matched_stop", "id", "type") or old is None:
            whole[name] = dict(value) if isinstance(value, dict) else value
        elif isinstance(old, dict) and isinstance(value, dict):
            _add(old, value)
        elif name == "content" and {type(old), type(value)} == {str, list}:
            whole[name] = _as_parts(old) + _as_parts(value)
        elif type(old) is type(value) and isinstance(value, str | list):
            whole[name] = old + value
        else:
            whole[name] = value
