"""What a run has really done, from its journal: the span tree of each problem, and what was computed twice.

A record counts once, whichever configurations used it. Records of one kind, by one maker, at one path are one
leaf, with their number; so is the usage of each place in the tree that of all below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from typing import Any

from metagen.cost import Usage
from metagen.experiments.problem import Examined
from metagen.journal import Row, SQLiteJournal
from metagen.trace import Trace


@dataclass(slots=True)
class Makers:
    """Names of those who answered, by fingerprint.

    The journal knows fingerprints, the experiment names. They are brought together by what is the same in both: a
    generator's texts, a verifier's values. A fingerprint that fits no name, or several, stays as it is.
    """

    names: dict[str, str] = field(default_factory=dict)

    def learn(self, rows: Iterable[Row], problem: Examined) -> None:
        texts = {
            pool.generator: {(i, d.text) for d in pool.distinct for i in d.samples} for pool in problem.pools
        }
        values = {
            v: {d.scores[v] for pool in problem.pools for d in pool.distinct if v in d.scores}
            for v in dict.fromkeys(v for pool in problem.pools for v in pool.verifiers)
        }
        for (kind, by), said in _said(row for row in rows if row.by not in self.names).items():
            known: Mapping[str, set[Any]] = texts if kind == "generate" else values
            fitting = [name for name, theirs in known.items() if said <= theirs]
            if len(fitting) == 1:
                self.names[by] = fitting[0]

    def name(self, by: str) -> str:
        return self.names.get(by, by[:8])


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


def trees(journal: SQLiteJournal, problems: Ordered[Examined]) -> Iterator[Span]:
    """The tree of each problem."""
    makers = Makers()
    # Names are clear after a few problems that tell generators apart.
    for problem in problems[:20]:
        makers.learn(journal.of_problem(problem.problem), problem)
    for problem in problems:
        yield tree(problem.problem, journal.of_problem(problem.problem), makers)


def _said(rows: Iterable[Row]) -> dict[tuple[str, str], set[Any]]:
    """What each maker said: texts with their numbers, or values."""
    said: dict[tuple[str, str], set[Any]] = {}
    for row in rows:
        if row.payload is None or row.status != "complete":
            continue
        if row.kind == "generate" and "text" in row.payload:
            said.setdefault((row.kind, row.by), set()).add((row.index, row.payload["text"]))
        elif row.kind == "score" and "value" in row.payload:
            said.setdefault((row.kind, row.by), set()).add(row.payload["value"])
    return said
