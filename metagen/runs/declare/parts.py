"""What the parts of an experiment are made of: whatever they name, down to engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metagen.runs.declare.registry import Section
from metagen.runs.declare.specs import SECTIONS, Experiment, PartSpec

#: The section and the name of a definition.
Part = tuple[Section, str]


def definitions_of(experiment: Experiment, *roots: Part) -> dict[Part, PartSpec]:
    """The definitions of these parts, and of all that they name: each stands behind those that it names itself."""
    found: dict[Part, PartSpec] = {}

    def visit(part: Part) -> None:
        if part in found:
            return
        section, name = part
        spec: PartSpec = getattr(experiment, section)[name]
        for below in SECTIONS:
            for one in spec.names_in(below):
                visit((below, one))
        found[part] = spec

    for root in roots:
        visit(root)
    return found


def of_cells(cells: Iterable[tuple[str, str]]) -> Iterator[Part]:
    """The generator and the strategy of each cell of the grid."""
    for generator, strategy in cells:
        yield "generators", generator
        yield "strategies", strategy
