"""Answers in the form of the OpenAI API, whole and in chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from metagen.generators.tool_calls import split_calls, tools_of
from metagen.sequence import Sequence
from metagen.serve.errors import ApiError
from metagen.serve.logprobs import chat_logprobs, text_logprobs, wants_logprobs
from metagen.serve.progress import Progress
from metagen.serve.solve import Job, Solution, Told
from metagen.serve.usage import spent_of, usage_of

Kind = Literal["chat", "text"]


class Form:
    """How one request is answered. name: of the model, as the request called it. end: behind a stream."""

    end = "data: [DONE]\n\n"

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind, self._name = kind, name
        self._id = f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{secrets.token_hex(12)}"
        self._created = int(time.time())

    def whole(self, solutions: Iterable[Solution]) -> dict[str, Any]:
        """The answer of a request that is not streamed."""
        found = list(solutions)
        # Each prompt has its numbers, even if its budget ended before it had all choices.
        made = [
            self._choice(place * one.job.choices + i, one, i)
            for place, one in enumerate(found)
            for i in range(len(one.sequences))
        ]
        kind = "chat.completion" if self.kind == "chat" else "text_completion"
        return self._head(kind, found[0].job) | {"choices": made} | self._usage(found) | beside(found)

    async def stream(
        self,
        jobs: list[Job],
        events: AsyncGenerator[Told],
        *,
        usage: bool = False,
        progress: bool = True,
    ) -> AsyncGenerator[dict[str, Any]]:
        """The chunks of an answer: its text as it is written, or how the work goes and then the text.

        Those of several prompts come as these are written, each with the index of its choice.
        """
        chat = self.kind == "chat"
        begun: set[int] = set()
        solved: dict[int, Solution] = {}
        said = [""] * len(jobs)

        def say(place: int, delta: dict[str, Any], **more: Any) -> Iterator[dict[str, Any]]:
            if chat and place not in begun:
                begun.add(place)
                yield self._chunk(jobs[0], place, {"role": "assistant", "content": ""})
            yield self._chunk(jobs[0], place, delta, **more)

        def end(number: int, one: Solution) -> Iterator[dict[str, Any]]:
            base = number * one.job.choices
            for i, sequence in enumerate(one.sequences):
                content, calls = said_by(sequence, one.job)
                logprobs = self._logprobs(sequence, one.job)
                if (rest := content if i else content[len(said[number]) :]) or logprobs is not None:
                    yield from say(base + i, {"content": rest}, logprobs=logprobs)
                if calls:
                    numbered = [{"index": number, **call} for number, call in enumerate(calls)]
                    yield from say(base + i, {"tool_calls": numbered})
                finish = "tool_calls" if calls else finish_of(sequence)
                *before, last = say(base + i, {}, finish=finish)
                yield from before
                ends = len(solved) == len(jobs) and i == len(one.sequences) - 1
                yield last | beside(in_order(solved)) if ends else last

        async with aclosing(tell(jobs, events, progress=progress and chat)) as parts:
            async for number, one in parts:
                if isinstance(one, Solution):
                    solved[number] = one
                    chunks = end(number, one)
                elif chat or not one.thought:
                    field = "reasoning_content" if one.thought else "content"
                    chunks = say(number * jobs[number].choices, {field: one.text})
                else:
                    chunks = iter(())
                for chunk in chunks:
                    yield chunk
                if not isinstance(one, Solution) and not one.thought:
                    said[number] += one.text
        if usage and (spent := self._usage(in_order(solved))):
            kind = "chat.completion.chunk" if chat else "text_completion"
            yield self._head(kind, jobs[0]) | {"choices": []} | spent

    def frame(self, chunk: dict[str, Any]) -> str:
        """A chunk as a server-sent event."""
        return f"data: {json.dumps(chunk)}\n\n"

    def broken(self, error: ApiError) -> str:
        """An error in the middle of a stream."""
        return f"data: {json.dumps(error.body)}\n\n"

    def _chunk(
        self, job: Job, place: int, delta: dict[str, Any], *, finish: str | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        """A part of the choice at this place."""
        said = {"delta": delta} if self.kind == "chat" else {"text": delta.get("content", "")}
        choice = {"index": place, **said, "logprobs": logprobs, "finish_reason": finish}
        kind = "chat.completion.chunk" if self.kind == "chat" else "text_completion"
        return self._head(kind, job) | {"choices": [choice]}

    def _head(self, kind: str, job: Job) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._name,
            "system_fingerprint": f"fp_{job.strategy.fingerprint[:16]}",
        }  # fmt: skip

    def _choice(self, number: int, solution: Solution, i: int) -> dict[str, Any]:
        sequence = solution.sequences[i]
        made: dict[str, Any] = {"index": number, "finish_reason": finish_of(sequence)}
        logprobs = self._logprobs(sequence, solution.job)
        if self.kind == "text":
            return made | {"text": sequence.text, "logprobs": logprobs}
        content, calls = said_by(sequence, solution.job)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            made["finish_reason"] = "tool_calls"
            message |= {"content": content or None, "tool_calls": calls}
        if sequence.thought is not None and sequence.thought.text:
            message["reasoning_content"] = sequence.thought.text
        return made | {"message": message, "logprobs": logprobs}

    def _logprobs(self, sequence: Sequence, job: Job) -> dict[str, Any] | None:
        return chat_logprobs(sequence, job) if self.kind == "chat" else text_logprobs(sequence, job)

    @staticmethod
    def _usage(solutions: list[Solution]) -> dict[str, Any]:
        found = usage_over(solutions)
        return {} if found is None else {"usage": found}


def usage_over(solutions: Iterable[Solution]) -> dict[str, Any] | None:
    """The usage of several solutions together; None where it is not known."""
    found = list(solutions)
    return usage_of([one.trace for one in found], [sequence for one in found for sequence in one.sequences])


def in_order(solved: Mapping[int, Solution]) -> list[Solution]:
    """Solutions in the order of their jobs, whichever came first."""
    return [solved[number] for number in sorted(solved)]


def said_by(sequence: Sequence, job: Job) -> tuple[str, list[dict[str, Any]]]:
    """What a sequence says, and its calls of tools, of which the request has told."""
    if tools_of(job.prompt) is None:
        return sequence.text, []
    return split_calls(sequence.text, f"call_{secrets.token_hex(6)}")


def finish_of(sequence: Sequence) -> str:
    """`length` for whatever did not end by itself."""
    return "stop" if sequence.finish in ("eos", "stop") and not sequence.exhausted else "length"


def beside(solutions: list[Solution]) -> dict[str, Any]:
    """What the API has no word for.

    model, seed, n: how to repeat the request. exhausted: whether a limit cut it. answers: as they were read, one for
    each choice. shares: those of its vote, one for each choice, by the keys of answers. answer_keys: the keys of
    `answers`. spent: what is known of the cost where `usage` tells less.
    """
    first = solutions[0]
    told: dict[str, Any] = {
        "model": first.job.model,
        "seed": first.job.seed,
        "exhausted": any(one.exhausted for one in solutions),
    }
    if first.job.samples is not None:
        told["n"] = first.job.samples
    read = [answer for one in solutions for answer in one.answers]
    if any(answer is not None for answer in read):
        told["answers"] = [None if answer is None else answer.text for answer in read]
    if any(shares := [share for one in solutions for share in one.shares]):
        told["shares"] = shares
        told["answer_keys"] = [None if answer is None else answer.key for answer in read]
    if (spent := spent_of(one.trace for one in solutions)) is not None:
        told["spent"] = spent
    return {"metagen": told}


@dataclass(frozen=True, slots=True)
class Said:
    """A part of an answer's text, or, as a thought, of the thoughts before it and of how the work goes."""

    text: str
    thought: bool = False


async def tell(
    jobs: list[Job], events: AsyncGenerator[Told], *, progress: bool
) -> AsyncGenerator[tuple[int, Said | Solution]]:
    """What a stream says of each job, by its number: its text as it is written, or how the work goes; and then its
    solution.

    Calls of tools and log-probabilities are told with the whole text only.
    """
    said, told = [""] * len(jobs), [Progress(job) for job in jobs]
    async with aclosing(events):
        async for number, event in events:
            if isinstance(event, Solution):
                yield number, _behind(said[number], event)
            elif event.kind == "text" and event.text and not _waits(jobs[number]):
                said[number] += event.text
                yield number, Said(event.text)
            elif event.kind == "thought" and event.text:
                yield number, Said(event.text, thought=True)
            elif progress and not said[number] and (line := await told[number].line(event)):
                yield number, Said(line, thought=True)


def _behind(said: str, solution: Solution) -> Solution:
    """The solution behind what was sent of it, which cannot be taken back: of a sample that a deadline has cut off, it
    is the answer. ApiError for another text, as of a server that was asked again.
    """
    first = solution.sequences[0]
    if first.text.startswith(said):
        return solution
    if solution.exhausted and said.startswith(first.text):
        sent = replace(
            Sequence.of(first.prompt).extend(said), thought=first.thought, exhausted=True, finish="length"
        )
        return replace(solution, sequences=(sent, *solution.sequences[1:]))
    raise ApiError(
        503, "the model began another text than the one that was streamed; ask again, without stream",
        code="stream_differs",
    )  # fmt: skip


def _waits(job: Job) -> bool:
    """Whether its text is sent when it is whole."""
    return tools_of(job.prompt) is not None or wants_logprobs(job)
