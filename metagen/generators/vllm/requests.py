"""Requests inside vLLM's event loop: one of vLLM's own for each sample, as many at once as there is room for."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final

from metagen.errors import EngineError, InputError, MetagenError
from metagen.generators.continuation import Continuation
from metagen.generators.engine import (
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
)
from metagen.generators.telling import Telling
from metagen.generators.turns import Kind, Turns
from metagen.generators.vllm.endings import Endings
from metagen.generators.vllm.library import words
from metagen.generators.vllm.sampling import LABELS, Drawn, asked, following, labels, numbers, stream

#: Requests of an engine whose log-probabilities are read though nobody asks, since weights that are broken show there.
CHECKED: Final = 4


@dataclass(slots=True)
class Work:
    """A Generate request on its way. start: tokens of the completion that the prefix holds already. bias: by token."""

    request: GenerateRequest
    ids: tuple[int, ...]
    start: int
    ends: bytes
    continuation: Continuation
    samples: list[Sample | None]
    bias: Mapping[int, float] = field(default_factory=dict)
    prefilled: int | None = 0
    cached: int | None = 0

    def hearer(self, i: int, ids: list[int]) -> Callable[[Any], None] | None:
        """Tells of the text of a sample: of `ids`, and of those in an output of vLLM's. None if nobody asks for it."""
        if self.request.written is None:
            return None
        telling = Telling(self.continuation, partial(self.request.tell, i))

        def hear(output: Any) -> None:
            new = output.outputs[0].token_ids
            if telling.due(len(ids) + len(new)):
                telling.hear([*ids, *new])

        return hear


@dataclass(slots=True)
class Going:
    """What a call has in vLLM: names of requests that may be aborted, and the tasks that wait for them.

    ending: whether they are being aborted.
    """

    names: set[str] = field(default_factory=set)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    ending: bool = False


class Requests:
    """Answers requests by vLLM's engine. All of it runs in that engine's event loop.

    room: requests inside vLLM at once; what does not fit waits here, and holds no more than its own request.
    block: tokens that the prefix cache shares at once. seeded: whether each sample is drawn by its own seed.
    """

    def __init__(
        self, names: Any, llm: Any, endings: Endings, stats: EngineStats, *, room: int, block: int, lora: Any,
        seeded: bool,
    ) -> None:  # fmt: skip
        self._seeded, self._unchecked = seeded, CHECKED
        self._names, self._llm, self._endings, self._stats = names, llm, endings, stats
        self._room, self._block, self._lora = asyncio.Semaphore(room), block, lora
        # The same few labels are asked for again and again, and vLLM copies what it changes.
        self._labels = lru_cache(1024)(partial(labels, names))
        self._numbers = count()
        self._turns = Turns()

    async def generate(self, work: Work) -> Generated:
        self._stats.requests += 1
        self._stats.samples += len(work.samples)
        params = work.request.params
        kind: Kind = "best" if params.top_logprobs else "plain"
        told = bool(params.logprobs or params.top_logprobs)
        self._unchecked -= not told
        async with self._turns.of(kind):
            first = self._asked(work, [], told or self._unchecked >= 0)
            await self._all([self._sampled(work, i, first) for i in range(len(work.samples))])
        samples = tuple(sample for sample in work.samples if sample is not None)
        if len(samples) < len(work.samples):
            raise EngineError("vLLM aborted a sample that nobody had cancelled; its log says why")
        return Generated(samples, work.ids, len(work.ids), work.prefilled, work.cached)

    def _sampled(self, work: Work, i: int, first: Any) -> Callable[[Going], Coroutine[Any, Any, None]]:
        async def sample(going: Going) -> None:
            work.samples[i] = made = await self._sample(work, i, first, going)
            if made is not None:
                work.request.note(i, made)

        return sample

    def _asked(self, work: Work, ids: list[int], logprobs: bool) -> Any:
        """What vLLM is asked for behind the ids of a sample, but for its seed."""
        written = work.continuation.text(ids, final=True) if ids else ""
        stops = self._endings.asked(work.request, written)
        most = work.continuation.limit - len(ids)
        told = work.request.written is not None
        return asked(
            self._names, work.request.params, stops, most=most, logprobs=logprobs, bias=work.bias, told=told
        )

    async def _sample(self, work: Work, i: int, first: Any, going: Going) -> Sample | None:
        """One sample; None if it was aborted. first: what vLLM is asked for at the start of each.

        vLLM may stop where the sample does not end, since it sees less of the text: then another request goes on.
        """
        ids: list[int] = []
        logprobs: list[float] = []
        confidences: list[float] = []
        params, hear = work.request.params, work.hearer(i, ids)
        while True:
            known = len(ids)
            given = first.clone() if not known else self._asked(work, ids, first.logprobs is not None)
            if params.temperature and self._seeded:
                given.seed = stream(work.request.seeds[i], work.start + known)
            output = await self._complete((*work.ids, *ids), given, going, hear)
            drawn = Drawn.of(output, params.top_logprobs)
            ids += drawn.ids
            logprobs += drawn.logprobs
            confidences += drawn.confidences
            if drawn.ended or drawn.ids:
                self._read(drawn, work if not known else None)
            if not drawn.ended:
                self._stats.aborted_tokens += len(ids)
                return None
            sample = self._endings.sample(
                work.continuation, work.ends, ids, logprobs or [0.0] * len(ids), known
            )
            if sample is not None:
                break
        assert sample.generated is not None
        self._stats.generated += sample.generated
        # What vLLM drew behind the end, before it knew.
        self._stats.aborted_tokens += len(ids) - sample.generated
        if not (params.logprobs or params.top_logprobs):
            sample = replace(sample, logprob=None, token_logprobs=None)
        if params.top_logprobs:
            sample = replace(sample, token_confidences=tuple(confidences[: sample.generated]))
        return sample

    def _read(self, drawn: Drawn, work: Work | None) -> None:
        """Count the prompt of a request, for the engine and for the work that it is the first of."""
        computed = None if drawn.cached is None else drawn.prompt - drawn.cached
        self._stats.prefilled += computed or 0
        self._stats.cached += drawn.cached or 0
        if work is not None:
            work.prefilled, work.cached = _plus(work.prefilled, computed), _plus(work.cached, drawn.cached)

    # -- evaluation ------------------------------------------------------------------------------

    async def evaluate(self, requests: abc.Sequence[EvaluateRequest]) -> list[Evaluated]:
        self._stats.requests += 1
        found = [Reading(request) for request in requests]
        jobs = [job for reading in found for job in self._readers(reading)]
        async with self._turns.of("labels"):
            await self._all(jobs)
        return [reading.evaluated() for reading in found]

    def _readers(self, reading: Reading) -> list[Callable[[Going], Coroutine[Any, Any, None]]]:
        """What has to be asked for a request.

        Prompts that end at a position are read through the prefix cache, which a prompt whose tokens all have their
        log-probabilities read is not. So the latter serves only where there are many positions, and one label each.
        """
        request = reading.request
        positions = sorted(set(request.positions))
        if request.labels is None and len(positions) * self._block > positions[-1]:
            return [self._whole(reading, positions)]
        return [
            self._position(reading, at, ids)
            for at in positions
            for ids in (_parts(request.labels) if request.labels is not None else [(request.ids[at + 1],)])
        ]

    def _position(
        self, reading: Reading, at: int, ids: tuple[int, ...]
    ) -> Callable[[Going], Coroutine[Any, Any, None]]:
        async def read(going: Going) -> None:
            output = await self._complete(reading.request.ids[: at + 1], self._labels(ids), going)
            if not self._told(reading, output, going):
                return
            (found,) = output.outputs[0].logprobs
            values = {i: found[i].logprob for i in ids}
            numbers(values.values(), at + 1)
            reading.values.setdefault(at, {}).update(values)

        return read

    def _whole(
        self, reading: Reading, positions: abc.Sequence[int]
    ) -> Callable[[Going], Coroutine[Any, Any, None]]:
        async def read(going: Going) -> None:
            ids = reading.request.ids[: positions[-1] + 2]
            output = await self._complete(ids, following(self._names), going)
            if not self._told(reading, output, going):
                return
            for at in positions:
                label = ids[at + 1]
                reading.values[at] = {label: output.prompt_logprobs[at + 1][label].logprob}
                numbers(reading.values[at].values(), at + 1)

        return read

    def _told(self, reading: Reading, output: Any, going: Going) -> bool:
        """Count what was read; False if it was aborted, since the call has ended. EngineError if it has not."""
        if output.outputs[0].finish_reason == "abort":
            if going.ending:
                return False
            raise EngineError("vLLM aborted a reading that nobody had cancelled; its log says why")
        cached = output.num_cached_tokens
        computed = None if cached is None else len(output.prompt_token_ids) - cached
        self._stats.prefilled += computed or 0
        self._stats.cached += cached or 0
        reading.prefilled, reading.cached = _plus(reading.prefilled, computed), _plus(reading.cached, cached)
        return True

    # -- vLLM ------------------------------------------------------------------------------------

    async def _all(self, jobs: abc.Sequence[Callable[[Going], Coroutine[Any, Any, None]]]) -> None:
        """Run jobs, each as soon as there is room; when one fails, or the call is cancelled, abort the others."""
        going = Going()
        try:
            for job in jobs:
                await self._room.acquire()
                task = asyncio.create_task(job(going))
                task.add_done_callback(lambda _: self._room.release())
                going.tasks.append(task)
            done, _ = await asyncio.wait(going.tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException:
            await self._abort(going)
            raise

    async def _abort(self, going: Going) -> None:
        """End all that runs. What vLLM knows comes back with the tokens that it has had."""
        going.ending = True
        try:
            if going.names:
                await self._llm.abort(list(going.names))
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            for task in going.tasks:
                task.cancel()
            # Their errors are that of the call, which has one already.
            await asyncio.gather(*going.tasks, return_exceptions=True)

    async def _complete(
        self,
        ids: abc.Sequence[int],
        params: Any,
        going: Going,
        hear: Callable[[Any], None] | None = None,
    ) -> Any:
        """The last word of vLLM on one request; of those before it `hear` is told.

        EngineError if its engine is gone, InputError for what it refuses.
        """
        names, name = self._names, str(next(self._numbers))
        going.names.add(name)
        prompt, last = names.prompt(prompt_token_ids=list(ids)), None
        try:
            async for output in self._llm.generate(prompt, params, name, lora_request=self._lora):
                last = output
                if hear is not None and not (output.finished or going.ending):
                    hear(output)
        except MetagenError:  # of who listens
            raise
        except names.EngineDeadError as error:
            raise EngineError(
                "vLLM's engine process has ended; its log says why; make a new engine"
            ) from error
        except names.refusals as error:
            raise InputError(f"vLLM refuses a request of {len(ids)} tokens: {words(error)}") from error
        except names.failures as error:
            raise EngineError(f"vLLM failed at a request of {len(ids)} tokens: {words(error)}") from error
        finally:
            going.names.discard(name)
        assert last is not None
        if last.outputs[0].finish_reason == "error":
            raise EngineError(
                f"vLLM ended a request of {len(ids)} tokens by an error of its own; its log above says which"
            )
        return last


@dataclass(slots=True)
class Reading:
    """An Evaluate request on its way. values: by position, the log-probability of each label."""

    request: EvaluateRequest
    values: dict[int, dict[int, float]] = field(default_factory=dict)
    prefilled: int | None = 0
    cached: int | None = 0

    def evaluated(self) -> Evaluated:
        ids, labels = self.request.ids, self.request.labels
        rows = (
            tuple(self.values[at][i] for i in (labels if labels is not None else (ids[at + 1],)))
            for at in self.request.positions
        )
        return Evaluated(tuple(rows), self.prefilled, self.cached)


def _parts(labels: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Labels, each once, as many at a time as vLLM takes."""
    distinct = tuple(dict.fromkeys(labels))
    return [distinct[i : i + LABELS] for i in range(0, len(distinct), LABELS)]


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
