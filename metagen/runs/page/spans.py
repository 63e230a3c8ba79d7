"""What a run has really done, from its journal: the span tree of each problem, and what was computed twice.

A record counts once, whichever configurations used it. Records of one kind, by one maker, at one path are one
leaf, with their number; so is the usage of each place in the tree that of all below it. Attempts that were lost are
leaves of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from metagen.attempts import lost
from metagen.cost import Usage
from metagen.journal import Row, SQLiteJournal
from metagen.runs.work.makers import Makers
from metagen.trace import Trace


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the tree: usage of all below, logical and physical. count: records, for a leaf."""

    label: str
    count: int
    status: str
    usage: Usage
    physical: Usage
    children: tuple[Span, ...] = ()


def tree(problem: str, rows: Iterable[Row], makers: Makers) -> Span:
    """The trace of a problem with its leaves counted."""
    graph = Trace.of(problem, rows).graph()

    def span(node: str) -> Span:
        data = graph.nodes[node]
        paths: list[Span] = []
        leaves: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for child in graph.successors(node):
            below = graph.nodes[child]
            if below["kind"] == "path":
                paths.append(span(child))
            else:
                leaves.setdefault((below["kind"], below["row"].by, below["status"]), []).append(below)
        counted = [
            Span(
                f"{kind}: {makers.name(by)}",
                len(same),
                status,
                Usage.sum(one["usage"] for one in same),
                Usage.sum(one["physical"] for one in same),
            )
            for (kind, by, status), same in leaves.items()
        ]
        return Span(
            data["label"],
            0,
            "complete",
            data.get("usage", Usage()),
            data.get("physical", Usage()),
            (*counted, *paths),
        )

    return span("")


def trees(journal: SQLiteJournal, problems: Iterable[str], makers: Makers) -> Iterator[Span | None]:
    """The tree of each problem, given by its id; None where nothing is recorded, as of samples that were read."""
    for problem in problems:
        rows = [*journal.of_problem(problem), *lost(journal, problem)]
        yield tree(problem, rows, makers) if rows else None
