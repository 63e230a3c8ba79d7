"""Experiment files: read, checked as a whole before anything runs, and written.

Every fault is found at once: `load` raises one ConfigError that lists them all, each as

    file:line: field.path = value: what was expected; did you mean 'x'?
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from metagen.errors import ConfigError
from metagen.experiments.combinations import Combinations
from metagen.experiments.explain import fault
from metagen.experiments.source import Source, read, write
from metagen.experiments.specs import SECTIONS, Context, Experiment

__all__ = ["Experiment", "checked", "dump", "load"]


def load(path: str | Path, *, sets: Sequence[str] = (), limit: int | None = None) -> Experiment:
    """Read and check an experiment file.

    sets: overrides such as `grid.n=[1, 4]`, the value in YAML. limit: only the first problems of the task.
    Relative paths in the file begin at its directory. Raises ConfigError that lists all faults.
    """
    source = read(path)
    for assignment in sets:
        source.assign(assignment, named=SECTIONS)
    if limit is not None:
        source.assign(f"task.limit={limit}", option="--limit")
    return checked(source, Path(path).parent)


def dump(experiment: Experiment) -> str:
    """YAML that loads back, from any directory, as an equal experiment; defaults are written out."""
    return write(experiment.model_dump(mode="json", exclude_none=True))


def checked(source: Source, base: Path) -> Experiment:
    """The experiment that a source describes; relative paths begin at `base`. ConfigError with all faults.

    A grid without names of generators or strategies, or with `all`, has all that are defined.
    """
    sections = {name: source.data.get(name) for name in SECTIONS}
    context = Context({s: tuple(d) if isinstance(d, dict) else () for s, d in sections.items()}, base)
    grid = source.data.setdefault("grid", {})
    if isinstance(grid, dict):
        chosen = ("generators", "strategies")
        grid |= {s: list(context.names[s]) for s in chosen if grid.get(s, "all") == "all"}
    experiment, faults = None, list(source.faults)
    try:
        # YAML has the types of JSON, so it is validated as JSON: strictly, but lists become tuples.
        experiment = Experiment.model_validate_json(json.dumps(source.data), context=context)
    except ValidationError as errors:
        faults += (fault(source, error) for error in errors.errors(include_url=False))
    faults += Combinations(source, context).faults()
    if experiment is None or faults:
        lines = sorted(dict.fromkeys(faults), key=lambda one: one.place)
        count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
        raise ConfigError("\n".join([f"{source.name} is not a valid experiment, {count}:", *map(str, lines)]))
    return experiment
