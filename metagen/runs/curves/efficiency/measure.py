"""What configurations of a run make of a machine, measured on its calls: plain numbers for `StudyResult.facts`."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metagen.errors import InputError
from metagen.journal import SQLiteJournal
from metagen.runs.curves.efficiency.called import Accelerator, Called, Shapes
from metagen.runs.curves.efficiency.critical import Path, longest
from metagen.runs.curves.efficiency.schedule import Schedule, schedule
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.tables import read
from metagen.runs.work import spans
from metagen.runs.work.calls import GENERATION
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Phase

#: Problems that are scheduled, evenly spread over the task.
PROBLEMS = 64
#: Points of a course over time that are kept.
POINTS = 160


@dataclass(frozen=True, slots=True)
class Load:
    """One configuration on one accelerator, means over `problems`; bytes, seconds and numbers of sequences.

    waiting: the longest path of its calls, of `steps` calls. work: all calls, one by one. shareable: of the tokens that
    calls read, those that others have read before. alone: seconds on one machine for each model, with `slots` of them;
    held, running: mean over that time, and at its peak; apart: the peak if no prefix were shared. how: `known`,
    or `assumed` where what a call of it waits for was taken.
    """

    configuration: str
    accelerator: str
    problems: int
    waiting: float
    work: float
    steps: float
    shareable: float
    alone: float
    held: float
    held_peak: float
    apart_peak: float
    running: float
    running_peak: float
    slots: int
    how: str

    @property
    def parallelism(self) -> float:
        return self.work / self.waiting if self.waiting else np.nan


def measure(
    directory: RunDirectory,
    configurations: abc.Sequence[str],
    accelerators: Mapping[str, Accelerator],
    shapes: Shapes,
    *,
    labels: Mapping[str, str] | None = None,
    problems: int = PROBLEMS,
    phase: Phase | None = None,
) -> dict[str, Any]:
    """Loads and courses over time of some configurations of a run, and what the whole run spent.

    Of a pool the first n samples are taken. labels: what configurations are called in the report. Configurations whose
    calls or models' shapes are unknown are listed under `unknown`. phase: is told how far this is. Raises InputError
    for one that the run has not.
    """
    lines = {line.name: line for line in directory.state().lines}
    if missing := [name for name in configurations if name not in lines]:
        raise InputError(f"{str(directory.root)!r} has no {missing[0]!r}; it has {', '.join(lines)}")
    names, phase = labels or {}, phase or Phase()
    phase.begin("what was spent")
    found: dict[str, Any] = {
        "accelerators": [
            {**asdict(one.hardware), "hardware": one.hardware.name, "name": name, "batch": one.batch}
            for name, one in accelerators.items()
        ],
        "loads": [], "courses": [], "unknown": [], "spent": read_spending(directory),
    }  # fmt: skip
    phase.begin("efficiency", len(configurations), "configurations", len(configurations))
    for name in configurations:
        label, calls = names.get(name, name), list(_calls(directory, lines[name], problems))
        for accelerator in accelerators.values():
            load = _load(label, lines[name], calls, accelerator, shapes)
            if load is None:
                found["unknown"] += [label] if label not in found["unknown"] else []
                continue
            figures, course = load
            found["loads"].append(asdict(figures))
            found["courses"].append(course)
        phase.advance()
    return found


def read_spending(directory: RunDirectory) -> list[dict[str, Any]]:
    """Read the usage of each generator and verifier of a run, each record once; empty without a journal.

    wasted: tokens that were computed beyond those accounted for; None where that is not told, `partly` where it is told
    of a part.
    """
    if not directory.journal.exists():
        return []
    ids = read(directory.table("problems"), ["problem"])["problem"].to_pylist()
    with SQLiteJournal(directory.journal, read_only=True) as journal:
        found = spans.parts(journal, ids, Makers.of_run(directory))
    return [
        {
            "name": p.name, "what": p.what, "calls": p.records, "generated": p.usage.generated,
            "prefilled": p.usage.prefilled, "cached": p.usage.cached, "flops": p.usage.flops, "wasted": p.wasted,
            "partly": p.partly,
        }
        for p in found
    ]  # fmt: skip


def _calls(directory: RunDirectory, line: Cell, most: int) -> Iterable[Called]:
    """The calls of a configuration on some problems."""
    there = np.unique(np.concatenate([np.zeros(0, np.int64), *(b.problem for b in _blocks(directory, line))]))
    if not len(there):
        return
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(most, len(there))).round().astype(int))]
    wanted = {int(one) for one in chosen}
    found = [one for block in _blocks(directory, line) for one in block.problems(wanted)]
    for _, rows in sorted(found, key=lambda one: one[0]):
        yield rows.first(line.n or 1) if line.pooled else rows


def _blocks(directory: RunDirectory, line: Cell) -> Iterable[Called]:
    """All calls of a configuration, or those of its pool that it needs."""
    if not line.pooled:
        return Called.blocks(directory, line.name) or ()
    wanted = [GENERATION] if line.verifier is None else [GENERATION, line.verifier]
    blocks = Called.blocks(directory, line.generator, wanted)
    if blocks is None and line.verifier is None:
        return Called.of_samples(directory, line.generator)
    return blocks or ()


def _load(
    label: str, line: Cell, calls: abc.Sequence[Called], accelerator: Accelerator, shapes: Shapes
) -> tuple[Load, dict[str, Any]] | None:
    """None if anything that it takes is unknown."""
    plans: list[Schedule] = []
    paths: list[Path] = []
    for rows in calls:
        plan = schedule(rows, accelerator, shapes)
        if plan is None:
            return None
        plans.append(plan)
        paths.append(longest(rows.graph, rows.alone(accelerator, shapes)))
    if not plans:
        return None
    cached, computed = (sum(float(getattr(r, of).sum()) for r in calls) for of in ("cached", "prefilled"))
    taken = any(bool(rows.assumed.any()) for rows in calls)
    load = Load(
        label, accelerator.name, len(plans), _mean(p.seconds for p in paths), _mean(p.work for p in paths),
        _mean(p.calls for p in paths), cached / (cached + computed) if cached + computed else np.nan,
        _mean(p.seconds for p in plans), _mean(p.held.mean for p in plans), _mean(p.held.peak for p in plans),
        _mean(p.apart.peak for p in plans), _mean(p.running.mean for p in plans),
        _mean(p.running.peak for p in plans), accelerator.batch,
        "assumed" if taken else "known",
    )  # fmt: skip
    middle = sorted(plans, key=lambda plan: plan.seconds)[len(plans) // 2]
    return load, {"configuration": label, "accelerator": accelerator.name, **_course(middle)}


def _course(plan: Schedule) -> dict[str, list[float]]:
    """What is held and what runs over time."""
    times = np.linspace(0.0, plan.seconds, POINTS)
    every = {"seconds": times, "held": plan.held.at(times)[1], "running": plan.running.at(times)[1]}
    return {name: [float(f"{value:.5g}") for value in values] for name, values in every.items()}


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
