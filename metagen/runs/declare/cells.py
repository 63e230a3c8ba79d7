"""The grid of an experiment, cell by cell."""

from __future__ import annotations

from collections import abc

from metagen.runs.declare import registry
from metagen.runs.declare.specs import Experiment, PartSpec
from metagen.runs.directory import Cell


def configurations(experiment: Experiment) -> tuple[Cell, ...]:
    """The grid, cell by cell: generators, of each the strategies, of each every n. Opens nothing."""
    cells = []
    for generator, strategy in experiment.grid.cells:
        spec = experiment.strategies[strategy]
        for n in sizes(spec, experiment.grid.n):
            name = f"{generator}/{strategy}" + (f"@{n}" if n is not None else "")
            verifier = getattr(spec, "verifier", None)
            cells.append(Cell(name, generator, strategy, spec.kind, n, verifier))
    return tuple(cells)


def sizes(spec: PartSpec, grid: abc.Sequence[int]) -> abc.Sequence[int | None]:
    """The n that a strategy is run with: its own, or else those of the grid; None for a strategy without n."""
    if (own := getattr(spec, "n", None)) is not None:
        return [own] if isinstance(own, int) else own
    return grid if "n" in registry.parameters("strategies", spec.kind) else [None]
