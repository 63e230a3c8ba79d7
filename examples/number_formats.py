"""What two number formats of one model agree on, from a run of number_formats.yaml, as Markdown.

    python examples/number_formats.py RUN
    python examples/number_formats.py RUN --alone 16

1. Accuracies, and their paired differences: 95% intervals over problems, p of the exact randomisation test.
2. Texts and answers that are equal in both formats. Of a run that has not ended, both are over what it has so far.
3. With --alone: samples drawn by themselves against the same samples drawn in a crowd, on so many problems. Equal
   seeds give equal samples, unless rounding changes a choice.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator

import numpy as np

from metagen.analysis.intervals import SHARES, interval
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.runs.directory import RunDirectory
from metagen.runs.questions.compare import Compared, compare
from metagen.runs.table.tables import read
from metagen.runs.work import unfinished
from metagen.sequence import Message, Prompt, Sequence

#: Generators of the run, and the number formats that they are named after.
FORMATS = ("float32", "bfloat16")
#: Of each problem that is drawn alone: one greedy text, and samples.
TEMPERATURES = (0.0, 0.7, 0.7, 0.7)
MODEL, MOST = "smollm2-135m-solver", 120


def accuracies(run: RunDirectory) -> Iterator[str]:
    names = [line.name.removeprefix("float32/") for line in run.state().lines if line.generator == "float32"]
    compared, _ = compare(run, run, [(f"float32/{name}", f"bfloat16/{name}") for name in names])
    yield "| | float32 | bfloat16 | difference, points | p (Holm) | detectable | gained, lost | as often right |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in zip(names, compared, strict=True):
        yield accuracy_row(name, one)


def accuracy_row(name: str, one: Compared) -> str:
    d = one.difference
    pairs = np.array(list(one.accuracies.values()))
    equal = int(np.isclose(*pairs.T).sum())
    solved = " | ".join(percent(column) for column in pairs.T)
    points = f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
    changed = f"{len(one.gained)}, {len(one.lost)}"
    return (
        f"| {name} | {solved} | {points} | {one.p_value:.2g} | {100 * d.detectable:.1f} | {changed} "
        f"| {equal} of {len(pairs)} |"
    )


def agreement(run: RunDirectory) -> Iterator[str]:
    """Of the samples of the pool, and of what each configuration returned that ran by itself."""
    with unfinished.tables(run) as (found, _):
        yield from agreement_rows(found)


def agreement_rows(run: RunDirectory) -> Iterator[str]:
    yield "| | texts that are equal | answers that are equal |"
    yield "|---|---|---|"
    columns = ["problem", "generator", "sample", "text", "key"]
    drawn: dict[str, dict[tuple[str, int], tuple[str, str | None]]] = {name: {} for name in FORMATS}
    for row in read(run.table("candidates"), columns).to_pylist():
        drawn[row["generator"]][row["problem"], row["sample"]] = (row["text"], row["key"])
    yield agreement_row("samples", *drawn.values())
    returned: dict[str, dict[tuple[str, int], tuple[str, str | None]]] = {}
    for row in read(run.table("outcomes"), ["problem", "configuration", "text", "key"]).to_pylist():
        returned.setdefault(row["configuration"], {})[row["problem"], 0] = (row["text"], row["key"])
    for name in returned:
        other = name.replace("float32/", "bfloat16/")
        if name != other:
            yield agreement_row(name.removeprefix("float32/"), returned[name], returned[other])


def agreement_row(
    name: str,
    a: dict[tuple[str, int], tuple[str, str | None]],
    b: dict[tuple[str, int], tuple[str, str | None]],
) -> str:
    """Shares by problem, over the texts that both have."""
    equal: dict[str, list[tuple[bool, bool]]] = {}
    for place in a.keys() & b.keys():
        equal.setdefault(place[0], []).append((a[place][0] == b[place][0], a[place][1] == b[place][1]))
    shares = np.array([np.mean(rows, axis=0) for rows in equal.values()])
    return f"| {name} | {' | '.join(percent(column) for column in shares.T)} |"


def percent(values: Iterable[float]) -> str:
    """A mean over problems with its interval."""
    found = interval(list(values), support=SHARES)
    return f"{100 * found.estimate:.1f}% [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def crowds(run: RunDirectory, problems: int) -> Iterator[str]:
    """How many samples another batch changes, and how many draws the engine counted as near an edge."""
    yield "| | samples that differ alone and in a crowd | draws near an edge | tokens |"
    yield "|---|---|---|---|"
    with unfinished.tables(run) as (found, _):
        prompts = read(found.table("problems"), ["problem", "prompt"]).to_pylist()[:problems]
    asked = [
        GenerateRequest(
            Sequence(
                Prompt(row["problem"], messages=(Message("user", row["prompt"].removeprefix("user: ")),))
            ),
            (1000 * i + j,),
            SamplingParams(temperature=temperature),
            MOST,
        )
        for i, row in enumerate(prompts)
        for j, temperature in enumerate(TEMPERATURES)
    ]
    for name in FORMATS:
        with TorchEngine(MODEL, dtype=name, max_batch=128) as engine:
            alone = [ids for one in asked for ids in asyncio.run(draw(engine, [one]))]
            near = engine.stats.extra["near_edge"]
            crowd = asyncio.run(draw(engine, asked))
        differ = sum(a != b for a, b in zip(alone, crowd, strict=True))
        yield f"| {name} | {differ} of {len(asked)} | {near:.0f} | {sum(map(len, alone)):,} |"


async def draw(engine: TorchEngine, requests: Iterable[GenerateRequest]) -> list[tuple[int, ...]]:
    """The ids of each sample, drawn side by side."""
    answers: list[Generated] = await asyncio.gather(*map(engine.generate, requests))
    return [tuple(sample.ids or ()) for answer in answers for sample in answer.samples]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--alone", type=int, default=0, metavar="PROBLEMS")
    args = parser.parse_args()
    run = RunDirectory.find(args.run)
    for part in (accuracies(run), agreement(run), crowds(run, args.alone) if args.alone else ()):
        print("\n".join(part), end="\n\n")


if __name__ == "__main__":
    main()
