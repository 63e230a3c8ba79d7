"""Experiment files: read, checked as a whole before anything runs, and written.

Every fault is found at once: `load` raises one ConfigError that lists them all, each as

    file:line: field.path = value: what was expected; did you mean 'x'?
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from metagen.errors import ConfigError, InputError
from metagen.runs.declare.combinations import Combinations
from metagen.runs.declare.explain import fault
from metagen.runs.declare.nested import move_out
from metagen.runs.declare.source import Fault, Source, read, write
from metagen.runs.declare.specs import SECTIONS, Context, Experiment

#: A section that says what is otherwise in a small run of the same file.
REHEARSAL: Final = "rehearsal"

__all__ = [
    "REHEARSAL",
    "Experiment",
    "config_error",
    "context_of",
    "dump",
    "load",
    "locate_errors",
    "parse_experiment",
    "parse_with_faults",
    "read_source",
]


def load(
    path: str | Path, *, sets: Sequence[str] = (), limit: int | None = None, rehearse: bool = False
) -> Experiment:
    """Read and check an experiment file.

    sets: overrides such as `grid.n=[1, 4]`, the value in YAML. limit: only the first problems of the task. rehearse:
    with what its section `rehearsal` says otherwise. Relative paths in the file begin at its directory. Raises
    ConfigError that lists all faults.
    """
    return parse_experiment(read_source(path, sets=sets, limit=limit, rehearse=rehearse), Path(path).parent)


def read_source(
    path: str | Path, *, sets: Sequence[str] = (), limit: int | None = None, rehearse: bool = False
) -> Source:
    """A file with its overrides, as `load` reads it, not checked yet.

    A rehearsal is called by the file's name and `-rehearsal`, unless it says a name. Raises ConfigError for a rehearsal
    of a file without that section.
    """
    source = read(path)
    if rehearse and REHEARSAL not in source.data:
        raise ConfigError(
            f"{path}: there is no section {REHEARSAL}, so nothing says what is smaller in a rehearsal; add it, or "
            "leave out --rehearse"
        )
    if rehearse:
        name = source.data.get("name")
        source.lay_over(REHEARSAL)
        if name is not None and source.data.get("name") == name:
            source.data["name"] = f"{name}-{REHEARSAL}"
    else:
        source.data.pop(REHEARSAL, None)
    for assignment in sets:
        source.assign(assignment, named=SECTIONS)
    if limit is not None:
        source.assign(f"task.limit={limit}", option="--limit")
    return source


@contextmanager
def locate_errors(source: Source) -> Iterator[None]:
    """Errors about a part of the experiment that are raised inside name its place in the file."""
    try:
        yield
    except InputError as error:
        if error.path:
            error.args = (f"{source.place(error.path)}: {error.args[0]}",)
        raise


def dump(experiment: Experiment) -> str:
    """YAML that loads back, from any directory, as an equal experiment; defaults are written out."""
    return write(experiment.model_dump(mode="json", exclude_none=True))


def parse_experiment(source: Source, base: Path) -> Experiment:
    """The experiment that a source describes; relative paths begin at `base`. ConfigError with all faults.

    A grid without names of generators or strategies, or with `all`, has all that are defined, or all of its pairs.
    """
    experiment, faults = parse_with_faults(source, base)
    if experiment is None or faults:
        raise config_error(source, faults)
    return experiment


def parse_with_faults(source: Source, base: Path) -> tuple[Experiment | None, list[Fault]]:
    """As much of the experiment as can be read, and all faults, where `parse_experiment` would raise them."""
    faults = list(source.faults)
    if "study" in source.data:
        del source.data["study"]
        reason = "belongs to a study; run it with: metagen study FILE, or leave this section out"
        faults.append(Fault(source.place(("study",)), "study", reason))
    move_out(source)
    context = context_of(source, base)
    grid = source.data.setdefault("grid", {})
    if isinstance(grid, dict):
        for at, section in enumerate(("generators", "strategies")):
            if grid.get(section, "all") == "all":
                known = context.names[section]
                paired = [name for name in _names_in_pairs(grid.get("pairs"), at) if name in known]
                grid[section] = paired or list(known)
    experiment = None
    try:
        # YAML has the types of JSON, so it is validated as JSON: strictly, but lists become tuples.
        experiment = Experiment.model_validate_json(json.dumps(source.data), context=context)
    except ValidationError as errors:
        faults += (fault(source, error) for error in errors.errors(include_url=False))
    return experiment, [*faults, *Combinations(source, context).faults()]


def context_of(source: Source, base: Path) -> Context:
    """The names that a source defines, for what refers to them."""
    sections = {name: source.data.get(name) for name in SECTIONS}
    return Context({s: tuple(d) if isinstance(d, dict) else () for s, d in sections.items()}, base)


def config_error(source: Source, faults: Iterable[Fault], what: str = "experiment") -> ConfigError:
    """The error that lists all faults."""
    lines = sorted(dict.fromkeys(faults), key=lambda one: one.place)
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    return ConfigError("\n".join([f"{source.name} is not a valid {what}, {count}:", *map(str, lines)]))


def _names_in_pairs(pairs: object, at: int) -> list[object]:
    """Names of one side of a grid's pairs."""
    found = (
        [pair[at] for pair in pairs if isinstance(pair, list) and len(pair) == 2]
        if isinstance(pairs, list)
        else []
    )
    return [name for i, name in enumerate(found) if name not in found[:i]]
