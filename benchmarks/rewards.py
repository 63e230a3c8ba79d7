"""Process rewards: many candidates of many problems at once, beside one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.row import Row, seconds
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.tasks.embedded import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

MODEL, GENERATOR, PROBLEMS, SAMPLES = "tiny-prm", "tiny-0.5m", 16, 16


def rows() -> Iterator[Row]:
    """Candidates scored per second; every run has an engine of its own, whose memory holds nothing yet."""
    pools = asyncio.run(_candidates())
    how = f"{MODEL}, {PROBLEMS} problems × {SAMPLES} samples of {GENERATOR}, median of 5, a new engine for each run"
    together = seconds(lambda: _scored(pools, together=True))
    apart = seconds(lambda: _scored(pools, together=False))
    total = PROBLEMS * SAMPLES
    yield Row("process rewards together, candidates per second", total / together, "1/s", how)
    yield Row("process rewards one by one, candidates per second", total / apart, "1/s", how)
    yield Row("process rewards, together over one by one", apart / together, "×", how, "≥ 3")


async def _candidates() -> list[list[Sequence]]:
    problems = ArithmeticTask("validation", per_level=3, limit=PROBLEMS).problems()
    with TorchEngine(GENERATOR) as engine:
        generator = engine.generator(max_tokens=200)
        return await asyncio.gather(
            *(
                generator.generate(Sequence(p.prompt), n=SAMPLES, scope=Scope.root(p.id, seed=1))
                for p in problems
            )
        )


def _scored(pools: list[list[Sequence]], *, together: bool) -> None:
    async def all_at_once(model: ProcessRewardModel) -> None:
        await asyncio.gather(*(model.score(pool, scope=Scope.root(f"p{i}")) for i, pool in enumerate(pools)))

    async def one_by_one(model: ProcessRewardModel) -> None:
        for i, pool in enumerate(pools):
            scope = Scope.root(f"p{i}")
            for sequence in pool:
                await model.score([sequence], scope=scope)

    with TorchEngine(MODEL) as engine:
        asyncio.run((all_at_once if together else one_by_one)(ProcessRewardModel(engine)))
