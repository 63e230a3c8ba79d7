"""The Responses API: the same answers in OpenAI's newer form. The server keeps none of them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from metagen.serve.answers import beside, finish_of, tell, usage_over
from metagen.serve.errors import ApiError, refuse
from metagen.serve.protocol import ChatRequest, Common, Effort, JsonSchema, Positive, Read, ResponseFormat
from metagen.serve.solve import Job, Solution, Told

#: What a client may name and get only if it is left out.
REFUSED = ("previous_response_id", "conversation", "background", "tools", "prompt", "max_tool_calls")


class Reasoning(Read):
    """effort: as `reasoning_effort`. summary: progress is told in any case."""

    effort: Effort | None = None
    summary: Any = None
    generate_summary: Any = None


class Format(Read):
    """text, json_object (any JSON), or json_schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class Text(Read):
    """format: what the answer must be."""

    format: Format | None = None
    verbosity: Any = None


class ResponsesRequest(Common):
    """POST /v1/responses."""

    asks = "input"
    names: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
    }

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    stream_options: Any = None
    truncation: Any = None
    include: Any = None
    tool_choice: Any = None
    previous_response_id: Any = None
    conversation: Any = None
    background: Any = None
    tools: Any = None
    prompt: Any = None
    max_tool_calls: Any = None
    top_logprobs: Any = None

    def chat(self) -> ChatRequest:
        """The same request as a chat. Raises ApiError for what cannot be honoured."""
        for name in REFUSED:
            if getattr(self, name):
                raise refuse(
                    name, "not supported, since nothing of a request is kept; send all turns in input"
                )
        if self.include or self.top_logprobs:
            raise refuse("include" if self.include else "top_logprobs", "not supported; leave it out")
        messages = [*self._instructions(), *self._turns()]
        if not messages:
            raise refuse("input", "there is no turn to answer; expected a text or messages")
        return ChatRequest(
            model=self.model,
            messages=messages,
            temperature=self.temperature,
            top_p=self.top_p,
            max_completion_tokens=self.max_output_tokens,
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
            response_format=self._format(),
            stream=self.stream,
            metagen=self.metagen,
        )

    def _instructions(self) -> list[dict[str, Any]]:
        return [{"role": "system", "content": self.instructions}] if self.instructions else []

    def _turns(self) -> Iterator[dict[str, Any]]:
        if isinstance(self.input, str):
            yield {"role": "user", "content": self.input}
            return
        for place, item in enumerate(self.input):
            kind = item.get("type", "message")
            if kind == "reasoning":
                continue
            if kind != "message":
                raise refuse(f"input.{place}.type", f"{kind!r} is no turn; expected messages")
            content = item.get("content")
            if isinstance(content, list):
                content = [
                    {"type": "text", "text": part.get("text")}
                    if isinstance(part, dict) and part.get("type") in ("input_text", "output_text", "text")
                    else part
                    for part in content
                ]
            yield {"role": item.get("role"), "content": content}

    def _format(self) -> ResponseFormat | None:
        form = None if self.text is None else self.text.format
        if form is None:
            return None
        if form.type == "json_schema" and form.schema_ is None:
            raise refuse("text.format.schema", "missing")
        if form.type != "json_schema" and form.schema_ is not None:
            raise refuse(
                "text.format.schema", f"type {form.type!r} does not read it; give type 'json_schema'"
            )
        schema = None if form.schema_ is None else JsonSchema(schema=form.schema_)
        return ResponseFormat(type=form.type, json_schema=schema)


class ResponseForm:
    """How one request is answered. name: of the model, as the request called it. end: behind a stream."""

    end = ""

    def __init__(self, name: str) -> None:
        self._name, self._created = name, int(time.time())
        #: Events so far.
        self._number = 0
        self._id, self._message, self._thought = (
            f"{kind}_{secrets.token_hex(12)}" for kind in ("resp", "msg", "rs")
        )

    def whole(self, solutions: Iterable[Solution], told: str | None = None) -> dict[str, Any]:
        """The answer. told: thoughts and progress of a stream; None where nothing was streamed."""
        (solution,) = solutions
        sequence = solution.sequences[0]
        told = _thought(solution) if told is None else told
        done = finish_of(sequence) == "stop"
        output = [self._reasoning(told)] if told else []
        output.append(self._item(sequence.text, "completed" if done else "incomplete"))
        return self._head("completed" if done else "incomplete") | {
            "output": output,
            "usage": _usage(solution),
            "incomplete_details": None if done else {"reason": "max_output_tokens"},
            **beside([solution]),
        }

    def frame(self, chunk: dict[str, Any]) -> str:
        """A chunk as a server-sent event."""
        return f"event: {chunk['type']}\ndata: {json.dumps(chunk)}\n\n"

    def broken(self, error: ApiError) -> str:
        """An error in the middle of a stream."""
        told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return self.frame({**told, "sequence_number": self._number})

    async def stream(
        self,
        jobs: list[Job],
        events: AsyncGenerator[Told],
        *,
        usage: bool = True,
        progress: bool = True,
    ) -> AsyncGenerator[dict[str, Any]]:
        """The events of an answer: progress as a summary of reasoning, then the text."""
        said, thought, begun = "", "", False

        def event(kind: str, **of: Any) -> dict[str, Any]:
            self._number += 1
            return {"type": kind, "sequence_number": self._number - 1, **of}

        def open_response() -> Iterator[dict[str, Any]]:
            head = self._head("in_progress") | {"output": [], "usage": None, "incomplete_details": None}
            yield event("response.created", response=head)
            yield event("response.in_progress", response=head)

        def think(line: str) -> Iterator[dict[str, Any]]:
            nonlocal thought
            where = {"item_id": self._thought, "output_index": 0, "summary_index": 0}
            if not thought:
                yield event("response.output_item.added", output_index=0, item=self._reasoning(""))
                part = {"type": "summary_text", "text": ""}
                yield event("response.reasoning_summary_part.added", **where, part=part)
            thought += line
            yield event("response.reasoning_summary_text.delta", **where, delta=line)

        def write(text: str) -> Iterator[dict[str, Any]]:
            nonlocal begun, said
            place = int(bool(thought))
            if not begun and thought:  # reasoning ends before the answer's item begins
                where = {"item_id": self._thought, "output_index": 0, "summary_index": 0}
                part = {"type": "summary_text", "text": thought}
                yield event("response.reasoning_summary_text.done", **where, text=thought)
                yield event("response.reasoning_summary_part.done", **where, part=part)
                yield event("response.output_item.done", output_index=0, item=self._reasoning(thought))
            if not begun:
                item = self._item("", "in_progress") | {"content": []}
                yield event("response.output_item.added", output_index=place, item=item)
                yield event("response.content_part.added", **self._where(place), part=_part(""))
            begun, said = True, said + text
            if text:
                yield event("response.output_text.delta", **self._where(place), delta=text, logprobs=[])

        def close(solution: Solution) -> Iterator[dict[str, Any]]:
            text = solution.sequences[0].text
            if not begun and not thought and (whole := _thought(solution)):
                yield from think(whole)
            yield from write(text[len(said) :])
            response, where = self.whole([solution], thought), self._where(int(bool(thought)))
            yield event("response.output_text.done", **where, text=text, logprobs=[])
            yield event("response.content_part.done", **where, part=_part(text))
            yield event(
                "response.output_item.done", output_index=where["output_index"], item=response["output"][-1]
            )
            yield event(f"response.{response['status']}", response=response)

        async with aclosing(tell(jobs, events, progress=progress)) as parts:
            async for _, one in parts:
                if not self._number:
                    for told in open_response():
                        yield told
                if isinstance(one, Solution):
                    made = close(one)
                elif not one.thought:
                    made = write(one.text)
                else:
                    made = iter(()) if begun else think(one.text)
                for told in made:
                    yield told

    def _head(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id, "object": "response", "created_at": self._created, "model": self._name, "status": status,
            "error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": False, "temperature": None,
            "tool_choice": "none", "tools": [], "top_p": None, "store": False,
        }  # fmt: skip

    def _item(self, text: str, status: str) -> dict[str, Any]:
        return {
            "type": "message", "id": self._message, "role": "assistant", "status": status, "content": [_part(text)]
        }  # fmt: skip

    def _reasoning(self, text: str) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "id": self._thought, "summary": summary}

    def _where(self, place: int) -> dict[str, Any]:
        return {"item_id": self._message, "output_index": place, "content_index": 0}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _thought(solution: Solution) -> str:
    """What was thought before the answer; empty where nothing is shown."""
    thought = solution.sequences[0].thought
    return (thought.text if thought is not None else None) or ""


def _usage(solution: Solution) -> dict[str, Any] | None:
    found = usage_over([solution])
    if found is None:
        return None
    # A count that is unknown is left out, though the API always has it. OpenAI's client reads it as None; null would
    # be refused by clients that check types, such as litellm.
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": found["prompt_tokens_details"],
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": found["completion_tokens_details"],
        "total_tokens": found["total_tokens"],
        "metagen": found["metagen"],
    }
