"""Answers in the form of the OpenAI API, whole and in chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Literal

from metagen.events import Event
from metagen.generators.primitive import EngineGenerator
from metagen.generators.tool_calls import split_calls, tools_of
from metagen.sequence import Sequence
from metagen.serve.errors import ApiError
from metagen.serve.solve import Job, Solution
from metagen.serve.usage import usage_of
from metagen.strategies.rewrite import generators_of
from metagen.trace import Trace

Kind = Literal["chat", "text"]
#: Does a job, and tells what happens; the solution comes last.
Follow = Callable[[Job], AsyncGenerator[Event | Solution]]
#: Characters of a step that progress shows.
SHOWN = 100
#: Answers that progress counts.
COUNTED = 5


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
        choices = [(s, i) for s in found for i in range(len(s.sequences))]
        made = [self._choice(number, solution, i) for number, (solution, i) in enumerate(choices)]
        kind = "chat.completion" if self.kind == "chat" else "text_completion"
        return self._head(kind, found[0].job) | {"choices": made} | self._usage(found) | beside(found)

    def chunk(self, job: Job, delta: dict[str, Any], index: int, finish: str | None = None) -> dict[str, Any]:
        """A part of a choice: `content` or `reasoning_content`."""
        if self.kind == "chat":
            choice: dict[str, Any] = {
                "index": index, "delta": delta, "logprobs": None, "finish_reason": finish
            }  # fmt: skip
            return self._head("chat.completion.chunk", job) | {"choices": [choice]}
        choice = {
            "index": index, "text": delta.get("content", ""), "logprobs": None, "finish_reason": finish
        }  # fmt: skip
        return self._head("text_completion", job) | {"choices": [choice]}

    def last(self, solutions: list[Solution], *, usage: bool) -> dict[str, Any]:
        """The chunk behind all choices."""
        kind = "chat.completion.chunk" if self.kind == "chat" else "text_completion"
        made = self._head(kind, solutions[0].job) | {"choices": []} | beside(solutions)
        return made | (self._usage(solutions) if usage else {})

    async def stream(
        self, jobs: list[Job], follow: Follow, *, usage: bool = False, progress: bool = True
    ) -> AsyncGenerator[dict[str, Any]]:
        """The chunks of an answer: its text as it is written, or how the work goes and then the text."""
        solutions: list[Solution] = []
        index = 0
        for job in jobs:
            said, told = "", Progress(job)
            if self.kind == "chat":
                for place in range(index, index + job.choices):
                    yield self.chunk(job, {"role": "assistant", "content": ""}, place)
            async for event in follow(job):
                if isinstance(event, Solution):
                    solutions.append(event)
                    break
                if event.kind == "text" and event.text and tools_of(job.prompt) is None:
                    said += event.text
                    yield self.chunk(job, {"content": event.text}, index)
                elif event.kind == "thought" and event.text and self.kind == "chat":
                    yield self.chunk(job, {"reasoning_content": event.text}, index)
                elif progress and self.kind == "chat" and not said and (line := await told.line(event)):
                    yield self.chunk(job, {"reasoning_content": line}, index)
            for i, sequence in enumerate(solutions[-1].sequences):
                if i == 0 and not sequence.text.startswith(said):
                    # A server that was asked again wrote another text, and what is sent cannot be taken back.
                    raise ApiError(
                        503, "the model began another text than the one that was streamed; ask again, without stream",
                        code="stream_differs",
                    )  # fmt: skip
                content, calls = said_by(sequence, job)
                if rest := content[len(said) :] if i == 0 else content:
                    yield self.chunk(job, {"content": rest}, index + i)
                if calls:
                    numbered = [{"index": number, **call} for number, call in enumerate(calls)]
                    yield self.chunk(job, {"tool_calls": numbered}, index + i)
                yield self.chunk(job, {}, index + i, "tool_calls" if calls else finish_of(sequence))
            index += job.choices
        yield self.last(solutions, usage=usage)

    def frame(self, chunk: dict[str, Any]) -> str:
        """A chunk as a server-sent event."""
        return f"data: {json.dumps(chunk)}\n\n"

    def broken(self, error: ApiError) -> str:
        """An error in the middle of a stream."""
        return f"data: {json.dumps(error.body)}\n\n"

    def _head(self, kind: str, job: Job) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._name,
            "system_fingerprint": f"fp_{job.strategy.fingerprint[:16]}",
        }  # fmt: skip

    def _choice(self, number: int, solution: Solution, i: int) -> dict[str, Any]:
        sequence = solution.sequences[i]
        made: dict[str, Any] = {"index": number, "finish_reason": finish_of(sequence)}
        logprobs = _logprobs(sequence, solution.job, self.kind)
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

    @staticmethod
    def _usage(solutions: list[Solution]) -> dict[str, Any]:
        found = usage_over(solutions)
        return {} if found is None else {"usage": found}


def usage_over(solutions: Iterable[Solution]) -> dict[str, Any] | None:
    """The usage of several solutions together; None where it is not known."""
    found = list(solutions)
    rows = [row for solution in found for row in solution.trace.rows]
    return usage_of(Trace.of("", rows), [sequence for solution in found for sequence in solution.sequences])


def said_by(sequence: Sequence, job: Job) -> tuple[str, list[dict[str, Any]]]:
    """What a sequence says, and its calls of tools, of which the request has told."""
    if tools_of(job.prompt) is None:
        return sequence.text, []
    return split_calls(sequence.text, f"call_{secrets.token_hex(6)}")


def finish_of(sequence: Sequence) -> str:
    """`length` for whatever did not end by itself."""
    return "stop" if sequence.finish in ("eos", "stop") and not sequence.exhausted else "length"


def beside(solutions: list[Solution]) -> dict[str, Any]:
    """What the API has no word for: how to repeat the request, its answers as they are read, whether a limit cut it."""
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
    return {"metagen": told}


def _logprobs(sequence: Sequence, job: Job, kind: Kind) -> dict[str, Any] | None:
    """Log-probabilities of the tokens of a sequence under its model; None where they were not asked for."""
    if not any(one.params.logprobs for one in generators_of(job.strategy)):
        return None
    kept = sequence.token_logprobs
    spell = _spelling(generators_of(job.strategy))
    if kept is None or sequence.tokens is None or spell is None:
        return None
    texts = spell(sequence.tokens.ids)
    if kind == "text":
        return {"tokens": texts, "token_logprobs": list(kept[: len(texts)]), "top_logprobs": None}
    content = [
        {"token": text, "logprob": value, "bytes": list(text.encode("utf-8")), "top_logprobs": []}
        for text, value in zip(texts, kept, strict=False)
    ]
    return {"content": content, "refusal": None}


def _spelling(generators: list[EngineGenerator]) -> Callable[[Iterable[int]], list[str]] | None:
    """What writes tokens one by one; None where no engine can."""
    for one in generators:
        decode = getattr(one.engine, "decode", None)
        if decode is not None:
            return lambda ids: [decode((token,)) for token in ids]
    return None


class Progress:
    """What a stream tells before its answer: samples and how they vote, scores, steps of a search."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._samples = 0
        self._votes: Counter[str] = Counter()

    async def line(self, event: Event) -> str | None:
        """What an event is in words; None where it is nothing to tell."""
        if event.refused:
            return f"no room for this {event.kind}: the budget ends\n"
        if event.kind == "sample" and event.finish is None:
            return f"step: {_short(event.text or '')}\n"
        if event.kind == "sample":
            return await self._sample(event)
        if event.kind == "score" and event.value is not None:
            return f"score {event.value:.3f}\n"
        if event.kind == "tool":
            return "a tool was called\n"
        if event.kind == "commit" and event.text:
            return f"kept so far: {_short(event.text)}\n"
        return None

    async def _sample(self, event: Event) -> str:
        self._samples += 1
        of = f" of {self._job.samples}" if self._job.samples else ""
        rule, text = self._job.strategy.answer, event.text or ""
        if rule is not None:
            prefix = Sequence.of(self._job.prompt)
            (answer,) = await rule.read([prefix.extend(text, finish=event.finish)])
            if answer.key is not None:
                self._votes[answer.text or answer.key] += 1
        if not self._votes:
            return f"sample {self._samples}{of}: {_short(text)}\n"
        votes = ", ".join(f"{name} ×{count}" for name, count in self._votes.most_common(COUNTED))
        return f"sample {self._samples}{of}; votes: {votes}\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"…{line[-SHOWN:]}"
