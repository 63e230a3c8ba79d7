"""Votes on vLLM through metagen, beside a plain call of vLLM; and what searches read from its prefix cache.

Runs where vLLM is: `.venv-vllm/bin/python -m benchmarks vllm_engine`.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.row import Row
from metagen.generators.models import sources
from metagen.generators.vllm import VLLMEngine
from metagen.sequence import Prompt, Step
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

MODEL, JUDGE, TOKENS = "tiny-0.5m", "tiny-prm", 200
#: Problems of the votes and of the search, and candidates of each.
VOTES, SEARCHES, SAMPLES, WIDTH = 100, 8, 16, 64
#: Runs of each side by turns: what they differ in is less than what single runs differ in.
TURNS = 7
ARGS: dict[str, Any] = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 29}


@dataclass
class Event:
    """A request that began or ended. of: the number of its beginning, for an end."""

    prompt: tuple[int, ...]
    of: int | None = None
    tokens: tuple[int, ...] = ()
    cached: int = 0


@dataclass
class Recording:
    """What vLLM was asked, in the order of time."""

    events: list[Event] = field(default_factory=list)

    def note(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events) - 1


def rows() -> Iterator[Row]:
    """Samples per second through metagen over those of a plain call, and the hits of the prefix cache."""
    if importlib.util.find_spec("vllm") is None:
        return
    prompts = [
        p.prompt for p in ArithmeticTask("validation", levels=[2, 3, 4], per_level=40, limit=VOTES).problems()
    ]
    yield from votes(prompts)
    with VLLMEngine(MODEL, threads=1, **ARGS) as model, VLLMEngine(JUDGE, threads=1, **ARGS) as judge:
        yield from cache(model, judge, prompts[:SEARCHES])


def votes(prompts: list[Prompt]) -> Iterator[Row]:
    """The rival is `LLM.generate`, with n, and nothing that it does not need; both have a vLLM of their own."""
    from vllm import LLM, SamplingParams

    plain = LLM(
        str(sources.resolve(MODEL)), dtype="float32", max_model_len=1024, max_num_seqs=256, block_size=32,
        max_num_batched_tokens=16384, seed=0, disable_log_stats=True, **ARGS,
    )  # fmt: skip
    said = [prompt.text or "" for prompt in prompts]
    how = (
        f"{MODEL}, votes of {SAMPLES} on {len(prompts)} problems; {TURNS} runs each, by turns, caches emptied"
    )
    with VLLMEngine(MODEL, max_context=1024, **ARGS) as model:
        task = ArithmeticTask()
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(-1, TURNS):  # the first of each warms up
            plain.reset_prefix_cache()
            asked = SamplingParams(n=SAMPLES, temperature=1.0, max_tokens=TOKENS)
            began = time.perf_counter()
            written = plain.generate(said, asked, use_tqdm=False)
            tokens = sum(len(one.token_ids) for answer in written for one in answer.outputs)
            theirs += [tokens / (time.perf_counter() - began)] * (turn >= 0)
            forget((model,))
            vote = MajorityVote(model.generator(max_tokens=TOKENS), SAMPLES, answer=task.answer)
            made, seconds = through_metagen(vote, prompts, turn)
            ours += [made / seconds] * (turn >= 0)
    del plain
    gc.collect()
    yield Row("vLLM, votes through metagen, tokens per second", statistics.median(ours), "1/s", how)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    yield Row("vLLM, votes, metagen over LLM.generate", ratio, "×", how, "≥ 0.95")


def cache(model: VLLMEngine, judge: VLLMEngine, prompts: list[Prompt]) -> Iterator[Row]:
    task = ArithmeticTask()
    search = Rebase(
        model.generator(max_tokens=TOKENS), WIDTH, verifier=ProcessRewardModel(judge), answer=task.answer,
        until=Step("\n", 256, task.mark),
    )  # fmt: skip
    with recorded(model) as recording:
        through_metagen(search, prompts, 0)
    events, block = recording.events, model.block_size
    read = sum(event.cached for event in events if event.of is not None)
    given = sum(len(event.prompt) for event in events if event.of is not None)
    how = f"{MODEL} and {JUDGE}, REBASE of width {WIDTH} over {len(prompts)} problems; generating, blocks of {block}"
    yield Row("vLLM, REBASE, prompt tokens read from the cache", read / given, "share", how)
    yield Row(
        "vLLM, REBASE, prefix cache over what whole blocks allow",
        read / allowed(events, block),
        "×",
        f"{how}; a block may be read once a request with it has begun",
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


def through_metagen(strategy: Any, prompts: list[Prompt], seed: int) -> tuple[int, float]:
    """Tokens generated, and seconds."""

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(strategy.asolve(prompt, seed=seed) for prompt in prompts)))

    began = time.perf_counter()
    results = asyncio.run(all_of_them())
    return sum(result.usage.generated or 0 for result in results), time.perf_counter() - began


@contextmanager
def recorded(engine: VLLMEngine) -> Iterator[Recording]:
    """Notes every request that reaches vLLM."""
    recording, original = Recording(), engine._llm.generate

    async def generate(prompt: Any, params: Any, name: str, **more: Any) -> AsyncIterator[Any]:
        ids = tuple(prompt["prompt_token_ids"])
        began = recording.note(Event(ids))
        async for output in original(prompt, params, name, **more):
            drawn = tuple(output.outputs[0].token_ids)
            recording.note(Event(ids, began, drawn, output.num_cached_tokens or 0))
            yield output

    try:
        engine._llm.generate = generate
        yield recording
    finally:
        del engine._llm.generate


def forget(engines: tuple[VLLMEngine, ...]) -> None:
    for engine in engines:
        engine._loop.wait(engine._llm.reset_prefix_cache())
