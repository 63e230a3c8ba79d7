"""Rows of SmolLM2-135M with and without two adapters: on one engine, on an engine each, and all without an adapter.

Each side draws the same number of samples of the same length, and sides go by turns. The figures are CPU seconds, which
a busy machine changes less than the seconds of a clock. The second adapter is the first with another scale.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.row import Row
from metagen.generators.engine import Engine, GenerateRequest, SamplingParams
from metagen.generators.models import lora
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt
from metagen.sequence import Sequence as Text

BASE, SOLVER, TOKENS, TURNS = "smollm2-135m", "smollm2-135m-solver", 48, 5
#: Rows of each of the three models.
SIZES = (2, 16, 64)
QUESTION = Prompt.of("Tom has 5 apples and buys 7 more. How many has he?", form="chat")


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        other = scaled(Path(folder) / "other")
        one, plain, solver, second = (
            stack.enter_context(TorchEngine(model, threads=1)) for model in (BASE, BASE, SOLVER, other)
        )
        sides: dict[str, Sequence[Engine]] = {
            "on one engine": (one, one.adapted(SOLVER), one.adapted(other)),
            "on an engine each": (plain, solver, second),
            "without adapters": (one, one, one),
        }
        for size in SIZES:
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(TURNS + 1):
                for name, engines in sides.items():
                    spent = seconds(engines, size)
                    if turn:  # the first warms caches
                        taken[name].append(spent)
            for name, found in taken.items():
                least, most = min(found), max(found)
                how = f"3 x {size} rows of {TOKENS} tokens, one thread; {TURNS} turns, {least:.2f} to {most:.2f} CPU s"
                yield Row(
                    f"adapters by row, {size} rows each, {name}", statistics.median(found), "CPU s", how
                )


def scaled(into: Path) -> Path:
    """The solver, twice as strong."""
    shutil.copytree(lora.adapters()[SOLVER], into)
    config = json.loads((into / lora.CONFIG).read_text("utf-8"))
    (into / lora.CONFIG).write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
    return into


def seconds(engines: Sequence[Engine], size: int) -> float:
    """CPU seconds of so many samples of each."""

    async def draw() -> None:
        params = SamplingParams(ignore_eos=True)
        calls = []
        for i, engine in enumerate(engines):
            seeds = tuple(range(1000 * i, 1000 * i + size))
            calls.append(engine.generate(GenerateRequest(Text.of(QUESTION), seeds, params, TOKENS)))
        await asyncio.gather(*calls)

    start = time.process_time()
    asyncio.run(draw())
    return time.process_time() - start
