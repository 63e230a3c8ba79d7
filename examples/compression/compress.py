"""What compression costs: accuracy, size and speed of embedded models, pruned, rounded and quantised.

    python examples/compression/compress.py [FOLDER] [--models tiny-2m tiny-0.5m] [--per-level 15] [--samples 8]

Copies of the models and results go to FOLDER (runs/compression by default); what is there is not made again, so an
interrupted run is called again to go on. Some minutes of a core for the copies of tiny-2m, and a few seconds for each
line of the table on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import first  # noqa: F401 - first
import weights
from figures.degeneration import Written, quality_lines

import metagen as mg
from metagen.analysis.figures import style
from metagen.analysis.intervals import SHARES, interval
from metagen.cost import ModelShape

LEVELS = (2, 3, 4)
#: Bytes of a weight as it ships.
DENSE = 2
#: Of the speed: texts that are written at once, and tokens of each.
ROWS, TOKENS = (1, 16), 100


@dataclass(frozen=True, eq=False)
class Variant:
    """A line of the table. bytes: of one weight of the layers; None: as the engine keeps it. options: of the engine."""

    name: str
    directory: str
    bytes: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


Lines = dict[Variant, dict[str, Any]]


def variants(model: str, folder: Path) -> Iterator[Variant]:
    plain = {"dtype": "float32"}
    yield Variant("float32", model, None, plain)
    yield Variant("bfloat16", model, None, {"dtype": "bfloat16"})
    yield Variant("int8", model, None, {"quantization": "int8"})
    yield Variant("int4", model, None, {"quantization": "int4"})
    for sparsity in weights.SPARSITIES:
        for how in ("magnitude", "obc"):
            name = f"{how}-{100 * sparsity:.0f}"
            yield Variant(name, str(folder / name), weights.pruned_bytes(sparsity, DENSE), plain)
    for bits in weights.BITS:
        for how in ("nearest", "obc"):
            name = f"{how}-{bits}bit"
            yield Variant(name, str(folder / name), weights.rounded_bytes(bits), plain)


def measured(variant: Variant, folder: Path, per_level: int, samples: int) -> dict[str, Any]:
    """What `measure` finds, or has found before."""
    path = folder / f"{variant.name}-{per_level}x{samples}.json"
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(measure(variant, per_level, samples)), "utf-8")
        part.rename(path)
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def measure(variant: Variant, per_level: int, samples: int) -> dict[str, Any]:
    """Whether each problem is solved, greedily and by a vote."""
    task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=per_level, seed=7)
    problems = list(task.problems())
    with mg.TorchEngine(variant.directory, threads=1, device="cpu", **variant.options) as engine:

        async def solved(strategy: mg.Strategy) -> list[float]:
            results = await asyncio.gather(
                *(strategy.asolve(p.prompt, seed=i) for i, p in enumerate(problems))
            )
            return [
                float(r.answer is not None and r.answer.key == p.reference)
                for r, p in zip(results, problems, strict=True)
            ]

        greedy = mg.Sample(engine.generator(max_tokens=200, temperature=0), answer=task.answer)
        found = {"greedy": asyncio.run(solved(greedy))}
        if samples:
            vote = mg.MajorityVote(engine.generator(max_tokens=200), samples, answer=task.answer)
            found["vote"] = asyncio.run(solved(vote))
        shape = engine.shape
    assert shape is not None
    return {**found, "bytes": size(shape, variant.bytes)}


def speeds(model: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of processor time for each of ROWS, of the model as it runs: by turns, medians of `rounds`."""
    path = folder / "speed.json"
    if not path.exists():
        kinds = [variant for variant in variants(model, folder) if variant.directory == model]
        with ExitStack() as stack:
            engines = {
                kind.name: stack.enter_context(mg.TorchEngine(model, threads=1, device="cpu", **kind.options))
                for kind in kinds
            }
            found: dict[str, list[float]] = {name: [] for name in engines}
            for rows in ROWS:
                # The first turn fills the caches, and is not counted.
                turns = [{name: pace(one, rows) for name, one in engines.items()} for _ in range(rounds + 1)]
                for name in engines:
                    found[name].append(median(turn[name] for turn in turns[1:]))
        path.write_text(json.dumps(found), "utf-8")
    known: dict[str, list[float]] = json.loads(path.read_text("utf-8"))
    return known


def pace(engine: mg.TorchEngine, rows: int) -> float:
    """Tokens per second of processor time, of `rows` texts of TOKENS tokens that are written at once."""
    problems = mg.ArithmeticTask("validation", levels=LEVELS, per_level=rows, seed=7).problems()
    writer = mg.Sample(engine.generator(max_tokens=TOKENS, temperature=0, ignore_eos=True))

    async def written() -> None:
        await asyncio.gather(*(writer.asolve(problem.prompt) for problem in islice(problems, rows)))

    start = time.process_time()
    asyncio.run(written())
    return rows * TOKENS / (time.process_time() - start)


def size(shape: ModelShape, weight_bytes: float | None) -> float:
    """Bytes of all matrices; beside compressed layers, embedding and head are kept as they ship."""
    if weight_bytes is None:
        return shape.bytes_total
    return replace(shape, dtype_bytes=DENSE).compress(weight_bytes).bytes_total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/compression"))
    parser.add_argument("--models", nargs="+", default=["tiny-2m", "tiny-0.5m"])
    parser.add_argument("--per-level", type=int, default=15)
    parser.add_argument("--samples", type=int, default=8, help="of the vote; 0: none")
    parser.add_argument("--rounds", type=int, default=15, help="turns in which the speed is measured")
    given = parser.parse_args()
    for model in given.models:
        folder = given.folder / model
        folder.mkdir(parents=True, exist_ok=True)
        weights.make(model, folder)
        lines = {v: measured(v, folder, given.per_level, given.samples) for v in variants(model, folder)}
        paces = speeds(model, folder, given.rounds)
        print("\n".join(table(model, lines, paces, given.per_level, given.samples)), end="\n\n", flush=True)
        picture(model, lines, folder / "accuracy.png")


def table(
    model: str, lines: Lines, paces: dict[str, list[float]], per_level: int, samples: int
) -> Iterator[str]:
    """Copies of the model are dense, and run as it does in float32."""
    yield f"{model}, {per_level * len(LEVELS)} validation problems of levels {LEVELS[0]} to {LEVELS[-1]}\n"
    rows = " or ".join(map(str, ROWS))
    yield f"| weights | size, kB | greedy, % | vote of {samples}, % | tokens per CPU second, {rows} rows at once |"
    yield "|---|---|---|---|---|"
    for variant, found in lines.items():
        cells = [share(found[name]) if name in found else "–" for name in ("greedy", "vote")]
        cells.append(" / ".join(f"{pace:,.0f}" for pace in paces.get(variant.name, paces["float32"])))
        yield f"| {variant.name} | {found['bytes'] / 1e3:,.0f} | {' | '.join(cells)} |"


def picture(model: str, lines: Lines, path: Path) -> None:
    """Accuracy of greedy decoding against size; each way begins at the weights as they ship."""
    ways = {
        "pruned by size": [f"magnitude-{100 * s:.0f}" for s in weights.SPARSITIES],
        "optimal brain, pruned": [f"obc-{100 * s:.0f}" for s in weights.SPARSITIES],
        "rounded": [f"nearest-{bits}bit" for bits in weights.BITS],
        "optimal brain, rounded": [f"obc-{bits}bit" for bits in weights.BITS],
    }
    found = {variant.name: line for variant, line in lines.items()}

    def point(name: str) -> Written:
        """A number behind the name is a share of zeros, in percent."""
        label = name.partition("-")[2] or name
        right = found[name]["greedy"]
        y = 100 * sum(right) / len(right)
        return Written(f"{label} %" if label.isdigit() else label, found[name]["bytes"] / 1e3, y)

    drawn = {way: [point(name) for name in ("bfloat16", *names)] for way, names in ways.items()}
    figure = quality_lines({"solved greedily, %": drawn}, x="size of the weights, kB", title=model)
    with style():
        figure.savefig(path, dpi=130, metadata={"Software": None})


def share(right: list[float]) -> str:
    """Percent with its 95% interval."""
    found = interval(right, support=SHARES)
    return f"{100 * found.estimate:.0f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


if __name__ == "__main__":
    main()
