"""Tables of an experiment file that are learned: written out as edges and options before anything is made of them.

A strategy of kind `by_difficulty` that names a held-out run is given its table from it. Whoever reads the experiment of
a run sees who is given what, and nothing else needs to know how a table came about.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from metagen.errors import InputError
from metagen.logs import logger
from metagen.runs.declare.parts import Part, made_of, of_cells
from metagen.runs.declare.schema import load
from metagen.runs.declare.specs import ByDifficultySpec, Experiment, OptionSpec
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.work.allocation.choose import Table
from metagen.runs.work.allocation.held_out import apart
from metagen.runs.work.allocation.options import Options
from metagen.tasks.base import Task

_LOG = logger(__name__)


def tabulated(experiment: Experiment, task: Task) -> Experiment:
    """The experiment with every table that is to be learned written out.

    Raises InputError for a run that is not finished, has a problem of this task, or lacks what a table needs; for parts
    that are defined otherwise there; for several generators, since a table is learned for one; and for a table that
    stands below another strategy.
    """
    for top in experiment.grid.strategies:
        for (section, name), spec in made_of(experiment, ("strategies", top)).items():
            below = section == "strategies" and name not in experiment.grid.strategies
            if below and isinstance(spec, ByDifficultySpec) and spec.held_out:
                raise InputError(
                    f"strategies.{name}.held_out = {spec.held_out!r}: a table is learned where the grid names it, and "
                    f"here {top!r} is made of it; write edges and then, or name it in grid.strategies"
                )
    learned = {
        name: _tabulated(experiment, task, name, spec)
        for name, spec in experiment.strategies.items()
        if isinstance(spec, ByDifficultySpec) and spec.held_out and name in experiment.grid.strategies
    }
    return experiment.model_copy(update={"strategies": {**experiment.strategies, **learned}})


def _tabulated(experiment: Experiment, task: Task, name: str, spec: ByDifficultySpec) -> ByDifficultySpec:
    assert spec.held_out is not None and spec.mean is not None
    field, run = f"strategies.{name}", RunDirectory(Path(spec.held_out))
    generator, *others = experiment.grid.generators
    if others:
        raise InputError(
            f"{field}.held_out: a table is learned for one generator, and grid.generators are {generator}, "
            f"{', '.join(others)}; keep one of them"
        )
    lines = [line for line in run.finished().lines if _able(line, experiment)]
    apart(run, task, f"{field}.held_out")
    limit = spec.mean.limit
    try:
        _alike(experiment, load(run.experiment), generator, lines, spec.verifier)
        options = Options.of(
            run, generator, lines,
            first=spec.first, limit=limit, verifier=spec.verifier, predictor=spec.predictor,
        )  # fmt: skip
    except InputError as error:
        raise InputError(f"{field}.held_out = {spec.held_out!r}: {error}") from error
    mean = getattr(spec.mean, limit)
    try:
        table = Table.learn(options.values, options.measured, budget=mean, groups=spec.groups)
    except InputError as error:
        raise InputError(f"{field}.mean.{limit} = {mean:g}: {error}") from error
    accuracy, cost = table.expected()
    _LOG.info(
        "table learned",
        extra={
            "strategy": name, "edges": table.edges.tolist(), "options": table.names, "accuracy": round(accuracy, 4),
            limit: cost, "validated": table.validated,
        },
    )  # fmt: skip
    # Neighbours with the same option are one group.
    ends = [i for i in range(len(table.edges)) if table.names[i] != table.names[i + 1]]
    ways = [options.ways[table.names[i]] for i in (*ends, len(table.edges))]
    written = {
        "edges": tuple(float(table.edges[i]) for i in ends),
        "then": tuple(
            way
            if isinstance(way, int)
            else OptionSpec(generator=way.generator, strategy=way.strategy, n=way.n)
            for way in ways
        ),
    }
    return spec.model_copy(update={**written, "held_out": None, "mean": None})


def _able(line: Cell, experiment: Experiment) -> bool:
    """Whether it can be an option: made of what is defined here, ignorant of the answers, and itself no table."""
    named = line.generator in experiment.generators and line.strategy in experiment.strategies
    if line.oracle or not named:
        return False
    parts = made_of(experiment, ("strategies", line.strategy))
    return not any(isinstance(spec, ByDifficultySpec) for spec in parts.values())


def _alike(
    experiment: Experiment, there: Experiment, generator: str, lines: Iterable[Cell], verifier: str | None
) -> None:
    """Whatever the options and the first samples are made of is defined in both alike."""
    roots: list[Part] = [("generators", generator)]
    roots += [("verifiers", verifier)] if verifier else []
    roots += of_cells((line.generator, line.strategy) for line in lines)
    for (section, name), spec in made_of(experiment, *roots).items():
        other = getattr(there, section).get(name)
        # How an engine computes may differ, its model may not.
        ours, theirs = (getattr(one, "model", one) if section == "engines" else one for one in (spec, other))
        if other is not None and ours != theirs:
            raise InputError(
                f"{section}.{name} is defined otherwise in that run ({theirs}, here {ours}); define it as there, or "
                "give it another name"
            )
