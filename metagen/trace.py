"""The trace of a problem: a tree of spans with the usage of each, built from rows when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from metagen.attempts import Lost
from metagen.cost import Usage
from metagen.history import Delivery
from metagen.journal import Row

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True)
class Trace:
    """The rows that one problem touched, in the order in which they were delivered.

    deliveries: which of them came together, and what they had waited for; empty where that is not known, as of rows
    that were read from a journal.
    """

    problem: str
    rows: tuple[Row, ...]
    deliveries: tuple[Delivery, ...] = ()

    @classmethod
    def of(cls, problem: str, rows: Iterable[Row], deliveries: Iterable[Delivery] = ()) -> Trace:
        return cls(problem, tuple(rows), tuple(deliveries))

    @property
    def rounds(self) -> int:
        """The most calls that one had to wait for the other; 0 where that is not known."""
        return max((one.clock for one in self.deliveries), default=0)

    @property
    def usage(self) -> Usage:
        """Logical usage of all rows: what a replay is charged."""
        return Usage.sum(row.usage for row in self.rows)

    @property
    def physical(self) -> Usage:
        """What these records took when they were made, and what was lost on the way; None where a part is unknown."""
        return self._real(row.physical for row in self._unique_rows())

    @property
    def most(self) -> Usage:
        """The same with what was lost at its worst case. None where a record does not know, or nothing bounds it."""
        return self._real(row.worst if isinstance(row, Lost) else row.physical for row in self._unique_rows())

    @property
    def lost(self) -> int:
        """Attempts that began and whose end nobody knows."""
        return sum(isinstance(row, Lost) for row in self.rows)

    def _real(self, usages: Iterable[Usage]) -> Usage:
        # A record took the time that a replay is told.
        seconds = sum(row.usage.seconds + row.physical.seconds for row in self._unique_rows())
        return replace(Usage.sum(usages), seconds=seconds)

    def _unique_rows(self) -> Iterable[Row]:
        """Each record once, however often it has answered."""
        return {row.key or id(row): row for row in self.rows}.values()

    def graph(self) -> networkx.DiGraph:
        """A tree: the problem, a node per path, a leaf per row; edges point to children.

        Node attributes: `kind` (problem, path, generate, score, …), `label`, `usage` (logical, of
        all below), `physical`, `status`, and on leaves `row`.
        """
        import networkx

        graph: networkx.DiGraph[Any] = networkx.DiGraph(problem=self.problem)
        number = count()
        totals: dict[str, list[Usage]] = {"": []}
        physical: dict[str, list[Usage]] = {"": []}
        graph.add_node("", kind="problem", label=self.problem, status="complete")
        for row in self.rows:
            parent = ""
            places = [""]
            for part in filter(None, row.path.split("/")):
                node = f"{parent}/{part}" if parent else part
                if node not in graph:
                    graph.add_node(node, kind="path", label=part, status="complete")
                    graph.add_edge(parent, node)
                places.append(node)
                parent = node
            # A record that answered twice, or was refused and then ran, is a leaf each time.
            leaf = f"{parent}#{next(number)}:{row.kind}:{row.index}"
            graph.add_node(
                leaf, kind=row.kind, label=f"{row.kind} {row.index}", status=row.status,
                usage=row.usage, physical=row.physical, row=row,
            )  # fmt: skip
            graph.add_edge(parent, leaf)
            for place in places:
                totals.setdefault(place, []).append(row.usage)
                physical.setdefault(place, []).append(row.physical)
        for place in totals:
            graph.nodes[place]["usage"] = Usage.sum(totals[place])
            graph.nodes[place]["physical"] = Usage.sum(physical[place])
        return graph
