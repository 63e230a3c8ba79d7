"""REBASE by the embedded models: all problems at once, beside problem after problem, level by level."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.row import Row
from metagen.budget import Budget
from metagen.cost import Usage
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence, Step
from metagen.strategies.base import Result
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

MODELS, JUDGE, PROBLEMS, WIDTH, TOKENS = ("tiny-0.5m", "tiny-2m"), "tiny-prm", 96, 16, 250
#: Runs of each side by turns: what they differ in is less than what single runs differ in.
TURNS = 3
PROFILE = (
    "tiny-0.5m, 32 problems at once under cProfile: 4.7 s of processor time in 3.8 s, strategies 0.8, generating 1.8, "
    "scoring 2.0; the engines wait for work 1.0 and 0.6 s of it, and for Python's lock"
)
#: Stands for the end token, whatever it is.
END = -1
#: A limit that never binds, under which a level is drawn first and scored then.
LEVEL_BY_LEVEL = Budget(calls=10**9)


@dataclass(frozen=True)
class Run:
    """Tokens of the prompts and of draws. drawn: all of them; distinct: equal ones once; judged: of what is scored.

    generated: that the generating engine ran, of prompts and draws. What is drawn last and never gone on with is not.
    """

    seconds: float
    results: list[Result]
    generated: int
    drawn: int
    distinct: int
    judged: int

    @property
    def scored(self) -> int:
        """Tokens that the judging engine ran."""
        rows = [row for result in self.results for row in result.trace.rows if row.kind == "score"]
        return Usage.sum(row.physical for row in rows).tokens or 0


def rows() -> Iterator[Row]:
    for model in MODELS:
        yield from rows_of(model)


def rows_of(model: str) -> Iterator[Row]:
    prompts = [p.prompt for p in ArithmeticTask("validation", per_level=16, limit=PROBLEMS).problems()]
    at_once, one_by_one = [], []
    run(model, prompts[:4], together=True)
    for _ in range(TURNS):
        at_once.append(run(model, prompts, together=True))
        one_by_one.append(run(model, prompts, together=False))
    fast, slow = (statistics.median(r.seconds for r in runs) for runs in (at_once, one_by_one))
    how = (
        f"{model} and {JUDGE}, {len(prompts)} problems, REBASE of width {WIDTH}; new engines for each run; "
        f"{TURNS} runs each, by turns, median"
    )
    what = f"REBASE by {model}"
    yield Row(f"{what}, all problems at once, problems per second", len(prompts) / fast, "1/s", how)
    yield Row(
        f"{what}, one after another, level by level, problems per second", len(prompts) / slow, "1/s", how
    )
    yield Row(f"{what}, at once over one by one", slow / fast, "×", how, "≥ 2.5", PROFILE)
    last = at_once[-1]
    yield Row(
        f"{what}, tokens computed over distinct tokens of the trees, generating",
        last.generated / last.distinct,
        "×",
        "of the engine's own count; a tree holds the prompt once, and what several draws begin with once",
        "≤ 1.02",
    )
    yield Row(
        f"{what}, tokens computed over distinct tokens of the trees, scoring",
        last.scored / last.judged,
        "×",
        "of the engine's own count; what several nodes begin with counts once",
        "≤ 1.02",
    )
    yield Row(
        f"{what}, tokens computed over tokens drawn",
        last.generated / last.drawn,
        "×",
        "equal draws apart: what computing them once saves",
    )


def run(name: str, prompts: list[Prompt], *, together: bool) -> Run:
    """The same searches, side by side or one after another."""
    # Side by side, engines share the cores; one after another, each has them all.
    threads = max(1, (os.cpu_count() or 1) // 2) if together else None
    with TorchEngine(name, threads=threads) as model, TorchEngine(JUDGE, threads=threads) as judge:
        strategy = Rebase(
            model.generator(max_tokens=TOKENS),
            WIDTH,
            verifier=ProcessRewardModel(judge),
            answer=ArithmeticTask().answer,
            until=Step("\n"),
        )

        async def all_at_once() -> list[Result]:
            return list(await asyncio.gather(*(strategy.asolve(prompt) for prompt in prompts)))

        async def one_by_one() -> list[Result]:
            return [await strategy.asolve(prompt, budget=LEVEL_BY_LEVEL) for prompt in prompts]

        began = time.perf_counter()
        results = asyncio.run(all_at_once() if together else one_by_one())
        taken = time.perf_counter() - began
        drawn = distinct = sum(len(model.render(Sequence(prompt))) for prompt in prompts)
        for result in results:
            paths = {ids[: i + 1] for ids in _drawn(result) for i in range(len(ids))}
            distinct += len(paths)
            drawn += result.usage.generated or 0
        scored = [row for result in results for row in result.trace.rows if row.kind == "score"]
        generated = model.stats.prefilled + int(model.stats.extra["decoded"])
        return Run(
            taken, results, generated, drawn, distinct, Usage.sum(r.usage for r in scored).prefilled or 0
        )


def _drawn(result: Result) -> list[tuple[int, ...]]:
    """The ids of each draw, from the prompt on. A draw's place names those before it."""
    draws: dict[tuple[str, int], tuple[int, ...]] = {}
    for row in result.trace.rows:
        if row.kind == "generate" and row.payload is not None:
            place = row.path.rpartition("/")[2]
            above, _, number = place.rpartition(".")
            before = draws[above, int(number)] if above else ()
            # The end token was drawn too.
            end = (END,) if row.payload.get("finish") == "eos" else ()
            draws[place, row.index] = before + tuple(row.payload.get("ids", ())) + end
    return list(draws.values())
