"""Answers in the form of the OpenAI API, whole and in chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from metagen.events import Event
from metagen.generators.continuation import BROKEN
from metagen.generators.primitive import EngineGenerator
from metagen.generators.tool_calls import split_calls, tools_of
from metagen.runs.table.costs import SCORING
from metagen.sequence import Sequence, TokenIds
from metagen.serve.errors import ApiError
from metagen.serve.solve import Job, Solution
from metagen.serve.usage import usage_of
from metagen.strategies.rewrite import generators_of

Kind = Literal["chat", "text"]
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
        events: AsyncGenerator[Event | Solution],
        *,
        usage: bool = False,
        progress: bool = True,
    ) -> AsyncGenerator[dict[str, Any]]:
        """The chunks of an answer: its text as it is written, or how the work goes and then the text."""
        chat = self.kind == "chat"
        begun: set[int] = set()
        solutions: list[Solution] = []
        said, base = "", 0

        def say(place: int, delta: dict[str, Any], **more: Any) -> Iterator[dict[str, Any]]:
            if chat and place not in begun:
                begun.add(place)
                yield self._chunk(jobs[0], place, {"role": "assistant", "content": ""})
            yield self._chunk(jobs[0], place, delta, **more)

        def end(one: Solution) -> Iterator[dict[str, Any]]:
            for i, sequence in enumerate(one.sequences):
                content, calls = said_by(sequence, one.job)
                logprobs = _logprobs(sequence, one.job, self.kind)
                if (rest := content if i else content[len(said) :]) or logprobs is not None:
                    yield from say(base + i, {"content": rest}, logprobs=logprobs)
                if calls:
                    numbered = [{"index": number, **call} for number, call in enumerate(calls)]
                    yield from say(base + i, {"tool_calls": numbered})
                finish = "tool_calls" if calls else finish_of(sequence)
                *before, last = say(base + i, {}, finish=finish)
                yield from before
                ends = len(solutions) == len(jobs) and i == len(one.sequences) - 1
                yield last | beside(solutions) if ends else last

        async with aclosing(tell(jobs, events, progress=progress and chat)) as parts:
            async for one in parts:
                if isinstance(one, Solution):
                    solutions.append(one)
                    chunks = end(one)
                elif chat or not one.thought:
                    chunks = say(base, {"reasoning_content" if one.thought else "content": one.text})
                else:
                    chunks = iter(())
                for chunk in chunks:
                    yield chunk
                if isinstance(one, Solution):
                    said, base = "", base + one.job.choices
                elif not one.thought:
                    said += one.text
        if usage and (spent := self._usage(solutions)):
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
    return usage_of([one.trace for one in found], [sequence for one in found for sequence in one.sequences])


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
    if not _wants_logprobs(job):
        return None
    kept = sequence.token_logprobs
    spell = _spelling(generators_of(job.strategy), sequence.tokens)
    if kept is None or sequence.tokens is None or spell is None:
        return None
    texts = spell(sequence.tokens.ids)
    if kind == "text":
        return {"tokens": texts, "token_logprobs": list(kept[: len(texts)]), "top_logprobs": None}
    content = [
        {
            "token": text, "logprob": value, "top_logprobs": [],
            # A token that is a part of a character is no text, and nobody knows its bytes here.
            "bytes": None if BROKEN in text else list(text.encode("utf-8")),
        }
        for text, value in zip(texts, kept, strict=False)
    ]  # fmt: skip
    return {"content": content, "refusal": None}


def _spelling(
    generators: list[EngineGenerator], tokens: TokenIds | None
) -> Callable[[Iterable[int]], list[str]] | None:
    """What writes these tokens one by one; None where no engine with their tokenizer can."""
    for one in generators:
        decode = getattr(one.engine, "decode", None)
        if decode is not None and tokens is not None and one.tokenizer_fingerprint == tokens.tokenizer:
            return lambda ids: [decode((token,)) for token in ids]
    return None


@dataclass(frozen=True, slots=True)
class Said:
    """A part of an answer's text, or, as a thought, of the thoughts before it and of how the work goes."""

    text: str
    thought: bool = False


async def tell(
    jobs: list[Job], events: AsyncGenerator[Event | Solution], *, progress: bool
) -> AsyncGenerator[Said | Solution]:
    """What a stream says of each job: its text as it is written, or how the work goes; and then its solution.

    Calls of tools and log-probabilities are told with the whole text only.
    """
    left = iter(jobs)
    job = next(left)
    said, told = "", Progress(job)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Solution):
                yield _behind(said, event)
                if (following := next(left, None)) is None:
                    return
                job, said, told = following, "", Progress(following)
            elif event.kind == "text" and event.text and not _waits(job):
                said += event.text
                yield Said(event.text)
            elif event.kind == "thought" and event.text:
                yield Said(event.text, thought=True)
            elif progress and not said and (line := await told.line(event)):
                yield Said(line, thought=True)


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
    return tools_of(job.prompt) is not None or _wants_logprobs(job)


def _wants_logprobs(job: Job) -> bool:
    return any(one.params.logprobs for one in generators_of(job.strategy))


class Progress:
    """What a stream tells before its answer: samples and how they vote, scores, steps of a search."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._samples = 0
        self._votes: Counter[str] = Counter()
        #: An answer as it was first written, by its key.
        self._written: dict[str, str] = {}

    async def line(self, event: Event) -> str | None:
        """What an event is in words; None where it is nothing to tell."""
        if event.refused:
            return f"no room for this {event.kind}: the budget ends\n"
        if event.kind == "sample" and SCORING in event.path.split("/"):
            return f"a verifier writes: {_short(event.text or '')}\n"
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
                self._votes[answer.key] += 1
                self._written.setdefault(answer.key, answer.text or answer.key)
        if not self._votes:
            return f"sample {self._samples}{of}: {_short(text)}\n"
        leading = self._votes.most_common(COUNTED)
        votes = ", ".join(f"{self._written[key]} ×{count}" for key, count in leading)
        return f"sample {self._samples}{of}; votes: {votes}\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"…{line[-SHOWN:]}"
