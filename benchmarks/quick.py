"""The gate on speed: ratios of two sides that go by turns, compared with those on record.

`make bench ARGS=quick` measures for a few minutes and fails where a ratio has fallen: where every turn is below all
turns on record, and the median below `FALLEN` of the median on record, in two measurements. Other work slows one side
more than the other, so that a smaller fall tells nothing. `make bench ARGS='quick record'` adds its turns to the
record, benchmarks/results/quick.json, which has the ratios of each processor apart; remove a name to begin anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import adapters, answers, beams, engine, rewards, sandbox
from metagen.generators.compiled import build
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.runs.directory import environment
from metagen.sequence import Sequence
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.math import MathRule

RECORD = Path(__file__).parent / "results" / "quick.json"
#: Turns behind one that warms up, and those that the record keeps of each ratio.
TURNS, KEPT = 5, 30
FALLEN = 0.7
PROMPTS = engine.PROMPTS[:16]
#: How fast a side is, in a unit that both sides share.
Side = Callable[[], float]
Ratios = dict[str, list[float]]


def main(chosen: list[str]) -> int:
    """Measure, print, and say whether no ratio has fallen (0), or one has (1)."""
    console = Console()
    build.build()
    record: dict[str, Ratios] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    here = processor()
    before, found = record.get(here, {}), dict[str, list[float]]()
    if not before:
        console.print(f"[yellow]Nothing is on record for {here}: no fall can be found.[/]")
    for name, ours, theirs in pairs():
        found[name] = turns(ours, theirs)
        if fallen(found[name], before.get(name, [])):
            found[name] = turns(ours, theirs)
        console.print(f"  {name}: {statistics.median(found[name]):.2f}")
    table = Table("ratio", "now", "on record", "")
    for name, ratios in found.items():
        said = "[red]fallen[/]" if fallen(ratios, before.get(name, [])) else ""
        table.add_row(name, spread(ratios), spread(before.get(name, [])), said)
    console.print(table)
    if "record" in chosen:
        kept = before | {name: (before.get(name, []) + ratios)[-KEPT:] for name, ratios in found.items()}
        record[here] = {name: [round(one, 3) for one in ratios] for name, ratios in kept.items()}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(fallen(ratios, before.get(name, [])) for name, ratios in found.items()))


def turns(ours: Side, theirs: Side) -> list[float]:
    return [ours() / theirs() for _ in range(TURNS + 1)][1:]


def processor() -> str:
    """Its name and what it can: one name is given to generations that differ by three times in what is compiled."""
    told = environment()
    return f"{told['processor']}, {torch.backends.cpu.get_cpu_capability()}, {told['cores']} cores"


def fallen(now: list[float], before: list[float]) -> bool:
    """Whether `now` is wholly below `before`, and by more than machines and other work explain."""
    if not before:
        return False
    return max(now) < min(before) and statistics.median(now) < FALLEN * statistics.median(before)


def spread(ratios: list[float]) -> str:
    if not ratios:
        return "nothing"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} turns)"


def pairs() -> Iterator[tuple[str, Side, Side]]:
    """Names of ratios, with the side above and the side below."""
    # In a process of its own, for what benchmarks/engine.py says of threads.
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        yield (
            "torch engine over transformers.generate",
            lambda: sampled(engine.sample),
            lambda: engine.rate(other.submit(engine.transformers, 128, PROMPTS).result()),
        )
        yield (
            "beams over those of transformers",
            lambda: 1 / searched(),
            lambda: 1 / other.submit(beams.transformers, 16, PROMPTS).result()[1],
        )
    yield (
        "budget and journal over the bare engine",
        lambda: sampled(engine.through_the_stack),
        lambda: sampled(engine.sample),
    )
    for rows in (1, 32):
        name = f"compiled steps over torch's, rows: {rows}"
        yield name, partial(steps, "ready", rows), partial(steps, "off", rows)
    others, pools = asyncio.run(rewards.candidates())
    yield (
        "process rewards together over one by one",
        lambda: 1 / rewards.taken(others, pools, rewards.all_at_once),
        lambda: 1 / rewards.taken(others, pools, rewards.one_by_one),
    )
    together, one_by_one = adapters.sides(adapters.SIZES[-1], *adapters.cutting())
    yield (
        "truncation, 32,000 tokens, over processors row by row",
        lambda: 1 / clocked(together),
        lambda: 1 / clocked(one_by_one),
    )
    judged = random.Random(0).sample(answers.model() + answers.math_500(), answers.OTHERS)
    yield (
        "mathematical answers over math-verify",
        lambda: answers.rate(judged, partial(answers.judge, MathRule())),
        lambda: answers.rate(judged, answers.verified),
    )
    try:
        box = Sandbox()
    except IsolationError:
        return
    yield (
        "programs in the sandbox over bare interpreters",
        lambda: 1 / clocked(lambda: asyncio.run(sandbox.executions(box))),
        lambda: 1 / clocked(lambda: asyncio.run(sandbox.bare(2 * (os.cpu_count() or 1)))),
    )


def clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def sampled(work: Callable[..., engine.Work]) -> float:
    with TorchEngine(engine.MODEL) as opened:
        return engine.rate(asyncio.run(work(opened, PROMPTS)))


def searched() -> float:
    with TorchEngine(beams.MODEL) as opened:
        return asyncio.run(beams.search(opened, PROMPTS))[1]


def steps(setting: str, rows: int) -> float:
    """Tokens a second of the largest embedded model."""
    with set_to({build.SETTING: setting}), TorchEngine("tiny-2m", threads=1) as opened:
        seeds, params = tuple(range(rows)), SamplingParams(max_tokens=200, ignore_eos=True)

        def write() -> object:
            asked = GenerateRequest(Sequence.of(PROMPTS[0]), seeds, params, 200)
            return asyncio.run(opened.generate(asked))

        write()
        return 1 / min(clocked(write) for _ in range(3))


@contextmanager
def set_to(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
