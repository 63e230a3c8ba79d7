"""Process rewards: many candidates of many problems at once, beside one after another."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import torch

from benchmarks.row import RUNS, Row, seconds
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

PROFILE = (
    "of 0.74 s for 137 texts together (torch.profiler, two threads) matrix products take 36%, batched products of "
    "attention 14%, exponentials 10%, gathers and copies 21%; the matrix products of one text fill both cores too"
)
Pools = list[list[Sequence]]
Score = Callable[[ProcessRewardModel, Pools], Awaitable[None]]
#: Rows of one product, as many as a pass of texts that are scored together has.
ROWS = 512
MODEL, GENERATOR, PROBLEMS, SAMPLES = "tiny-prm", "tiny-0.5m", 16, 16


def rows() -> Iterator[Row]:
    """Candidates scored per second, by an engine that has scored others before: its tree holds nothing of them."""
    others, pools = asyncio.run(candidates())
    how = (
        f"{MODEL}, {PROBLEMS} problems × {SAMPLES} samples of {GENERATOR}, median of {RUNS}; "
        "a new engine for each run, which scores as many candidates of other problems first"
    )
    together, apart = _seconds(others, pools, all_at_once), _seconds(others, pools, one_by_one)
    total = PROBLEMS * SAMPLES
    yield Row("process rewards together, candidates per second", total / together, "1/s", how)
    yield Row("process rewards one by one, candidates per second", total / apart, "1/s", how)
    yield Row("process rewards, together over one by one", apart / together, "×", how, "≥ 3", PROFILE)
    yield Row(
        "process rewards together, share of the speed of matrix products",
        _products(others, pools) / together,
        "×",
        f"{how}; beside the products of the layers alone for as many tokens, {ROWS} at once, with as many threads",
        "≥ 0.6",
    )


async def candidates() -> tuple[list[list[Sequence]], list[list[Sequence]]]:
    problems = list(ArithmeticTask("validation", per_level=6, limit=2 * PROBLEMS).problems())
    with TorchEngine(GENERATOR) as engine:
        generator = engine.generator(max_tokens=200)
        pools = await asyncio.gather(
            *(
                generator.generate(Sequence(p.prompt), n=SAMPLES, scope=Scope.root(p.id, seed=1))
                for p in problems
            )
        )
    return pools[::2], pools[1::2]


def _seconds(others: Pools, pools: Pools, score: Score) -> float:
    return statistics.median(taken(others, pools, score) for _ in range(RUNS))


def taken(others: Pools, pools: Pools, score: Score) -> float:
    """Seconds of a new engine for `pools`, which scores `others` before."""

    async def timed(model: ProcessRewardModel) -> float:
        await all_at_once(model, others)
        began = time.perf_counter()
        await score(model, pools)
        return time.perf_counter() - began

    with TorchEngine(MODEL) as engine:
        return asyncio.run(timed(ProcessRewardModel(engine)))


def _products(others: Pools, pools: Pools) -> float:
    """Seconds that the matrices of the layers alone take for the tokens that are computed for `pools`."""

    async def tokens(engine: TorchEngine) -> int:
        await all_at_once(ProcessRewardModel(engine), others)
        before = engine.stats.prefilled
        await all_at_once(ProcessRewardModel(engine), pools)
        return engine.stats.prefilled - before

    with TorchEngine(MODEL) as engine, torch.inference_mode():
        computed = asyncio.run(tokens(engine))
        model: Any = engine._model
        torch.set_num_threads(engine.threads)
        matrices = [m for layer in model._layers for m in (layer.qkv, layer.out, layer.up, layer.down)]
        c = model.config
        sizes = [c.width, c.heads * c.head_dim, c.width, c.ff] * c.layers
        inputs = {size: torch.randn(ROWS, size, dtype=engine.dtype) for size in set(sizes)}
        once = seconds(lambda: [m(inputs[size]) for m, size in zip(matrices, sizes, strict=True)])
    return once * computed / ROWS


async def all_at_once(model: ProcessRewardModel, pools: Pools) -> None:
    await asyncio.gather(*(model.score(pool, scope=Scope.root(f"p{i}")) for i, pool in enumerate(pools)))


async def one_by_one(model: ProcessRewardModel, pools: Pools) -> None:
    for i, pool in enumerate(pools):
        scope = Scope.root(f"p{i}")
        for sequence in pool:
            await model.score([sequence], scope=scope)
