"""Strategies on vLLM through metagen, beside a bare loop that hands vLLM the same requests. Runs where vLLM is."""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from benchmarks.row import Row
from metagen.generators.vllm import VLLMEngine
from metagen.sequence import Prompt, Step
from metagen.strategies.parallel import BestOfN, WeightedVote
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

MODEL, JUDGE, PROBLEMS, WIDTH, TOKENS = "tiny-0.5m", "tiny-prm", 8, 64, 200
#: Runs of each side by turns: what they differ in is less than what single runs differ in.
TURNS = 7
ARGS: dict[str, Any] = {"threads": 1, "enforce_eager": True, "kv_cache_memory_bytes": 1 << 29}
PROBLEM: ContextVar[int] = ContextVar("problem")


@dataclass
class Event:
    """A request that began or ended. of: the number of its beginning, for an end."""

    engine: int
    prompt: tuple[int, ...]
    params: Any
    of: int | None = None
    tokens: tuple[int, ...] = ()
    cached: int = 0


@dataclass
class Recording:
    """What vLLM was asked, problem by problem, in the order of time."""

    events: dict[int, list[Event]] = field(default_factory=dict)
    order: list[Event] = field(default_factory=list)

    def note(self, event: Event) -> int:
        mine = self.events.setdefault(PROBLEM.get(), [])
        mine.append(event)
        self.order.append(event)
        return len(mine) - 1


def rows() -> Iterator[Row]:
    """Tokens per second through metagen over those of the bare loop, and the hits of the prefix cache."""
    if importlib.util.find_spec("vllm") is None:
        return
    task = ArithmeticTask("validation", levels=[2, 3, 4], per_level=3, limit=PROBLEMS)
    prompts = [problem.prompt for problem in task.problems()]
    with VLLMEngine(MODEL, **ARGS) as model, VLLMEngine(JUDGE, **ARGS) as judge:
        writer = model.generator(max_tokens=TOKENS)
        makes = {
            "best of 64": lambda: BestOfN(
                writer, WIDTH, verifier=ProcessRewardModel(judge), answer=task.answer
            ),
            "weighted vote of 64": lambda: WeightedVote(
                writer, WIDTH, verifier=ProcessRewardModel(judge), answer=task.answer
            ),
            "REBASE of width 64": lambda: Rebase(
                writer, WIDTH, verifier=ProcessRewardModel(judge), answer=task.answer, until=Step("\n")
            ),
        }
        how = (
            f"{MODEL} and {JUDGE} on vLLM, {len(prompts)} problems at once; the bare loop issues the same requests to "
            "the same engines, each as soon as those before it had ended; caches emptied before each run; "
            f"{TURNS} runs each, by turns"
        )
        for name, make in makes.items():
            yield from compared(name, how, make, prompts, (model, judge))


def compared(
    name: str, how: str, make: Any, prompts: list[Prompt], engines: tuple[VLLMEngine, ...]
) -> Iterator[Row]:
    with recorded(engines) as recording:
        tokens, _ = through_metagen(make(), prompts, engines)
    ours, bare = [], []
    for _ in range(TURNS):
        found, taken = through_metagen(make(), prompts, engines)
        assert found == tokens, "equal seeds draw equal samples"
        ours.append(taken)
        bare.append(through_nothing(recording, engines))
    fast, slow = statistics.median(bare), statistics.median(ours)
    yield Row(f"vLLM, {name} through metagen, tokens per second", tokens / slow, "1/s", how)
    yield Row(f"vLLM, {name}, metagen over a bare loop", fast / slow, "×", how, "≥ 0.95")
    if name.startswith("REBASE"):
        events = [event for event in recording.order if event.engine == 0]
        read = sum(event.cached for event in events if event.of is not None)
        given = sum(len(event.prompt) for event in events if event.of is not None)
        block = engines[0].block_size
        yield Row(
            f"vLLM, {name}, prompt tokens read from the cache", read / given, "share", f"generating; {how}"
        )
        yield Row(
            f"vLLM, {name}, prefix cache over what whole blocks allow",
            read / allowed(events, block),
            "×",
            f"generating, blocks of {block}; a block may be read once a request with it has begun",
            "≥ 0.95",
        )


def allowed(events: list[Event], block: int) -> int:
    """Tokens of prompts that lie in whole blocks which an earlier request has computed; the last token never does."""
    seen: set[tuple[int, ...]] = set()
    total = 0

    def blocks(ids: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [ids[:end] for end in range(block, len(ids) + 1, block)]

    for event in events:
        if event.of is None:
            own = blocks(event.prompt)
            total += block * sum(one in seen for one in own if len(one) < len(event.prompt))
            seen.update(own)
        else:
            # The last token was drawn and never run.
            seen.update(blocks((*event.prompt, *event.tokens[:-1])))
    return total


def through_metagen(
    strategy: Any, prompts: list[Prompt], engines: tuple[VLLMEngine, ...]
) -> tuple[int, float]:
    """Tokens generated, and seconds."""
    forget(engines)

    async def one(number: int, prompt: Prompt) -> Any:
        PROBLEM.set(number)
        return await strategy.asolve(prompt)

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(one(i, prompt) for i, prompt in enumerate(prompts))))

    began = time.perf_counter()
    results = asyncio.run(all_of_them())
    return sum(result.usage.generated or 0 for result in results), time.perf_counter() - began


def through_nothing(recording: Recording, engines: tuple[VLLMEngine, ...]) -> float:
    """Seconds of the same requests without metagen, driven by the event loop of the engine that generates."""
    forget(engines)
    names = iter(range(1 << 60))

    async def complete(event: Event) -> None:
        engine = engines[event.engine]
        prompt = engine._vllm.prompt(prompt_token_ids=list(event.prompt))
        async for _ in engine._llm.generate(prompt, event.params, f"bare {next(names)}"):
            pass

    async def together(events: list[Event]) -> None:
        await asyncio.gather(*(complete(event) for event in events))

    async def problem(events: list[Event]) -> None:
        running: dict[int, asyncio.Future[None]] = {}
        for (ends, engine), run in groupby(
            enumerate(events), lambda one: (one[1].of is not None, one[1].engine)
        ):
            group = list(run)
            if ends:
                for _, event in group:
                    await running[event.of or 0]
            elif engine == 0:
                running.update((i, asyncio.ensure_future(complete(event))) for i, event in group)
            else:
                work = engines[engine]._loop.run(together([event for _, event in group]))
                running.update(dict.fromkeys((i for i, _ in group), asyncio.ensure_future(work)))

    async def all_of_them() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(problem(events) for events in recording.events.values()))
        return time.perf_counter() - began

    return engines[0]._loop.wait(all_of_them())


@contextmanager
def recorded(engines: tuple[VLLMEngine, ...]) -> Iterator[Recording]:
    """Notes every request that reaches vLLM."""
    recording = Recording()
    originals = [engine._llm.generate for engine in engines]

    def noting(number: int, original: Any) -> Any:
        async def generate(prompt: Any, params: Any, name: str, **more: Any) -> AsyncIterator[Any]:
            ids = tuple(prompt["prompt_token_ids"])
            began = recording.note(Event(number, ids, params))
            async for output in original(prompt, params, name, **more):
                drawn = tuple(output.outputs[0].token_ids)
                recording.note(Event(number, ids, params, began, drawn, output.num_cached_tokens or 0))
                yield output

        return generate

    try:
        for number, engine in enumerate(engines):
            engine._llm.generate = noting(number, originals[number])
        yield recording
    finally:
        for engine in engines:
            del engine._llm.generate


def forget(engines: tuple[VLLMEngine, ...]) -> None:
    for engine in engines:
        engine._loop.wait(engine._llm.reset_prefix_cache())
