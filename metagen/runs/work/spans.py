"""What a run has really done, from its journal: the span tree of each problem, and what was computed twice.

A record counts once, whichever configurations used it. Records of one kind, by one maker, at one path are one
leaf, with their number; so is the usage of each place in the tree that of all below it. Attempts that were lost are
leaves of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from metagen.attempts import lost_attempts
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
        rows = [*journal.of_problem(problem), *lost_attempts(journal, problem)]
        yield tree(problem, rows, makers) if rows else None


@dataclass(frozen=True, slots=True)
class Spender:
    """What one generator or verifier spent in the whole run, each record once.

    wasted: tokens computed beyond those accounted for; None where the engine does not tell what it computed, and partly
    where it did not for some (after an interruption, for one): then there may be more.
    flops_share, token_shares: of the largest part, in percent; tokens as generated, prefilled and cached.
    """

    name: str
    what: str
    records: int
    usage: Usage
    wasted: int | None
    partly: bool = False
    physical: Usage = field(default_factory=Usage)
    lost: int = 0
    flops_share: float = 0.0
    token_shares: tuple[float, float, float] = (0.0, 0.0, 0.0)


def parts(trees: Iterable[Span | None]) -> list[Spender]:
    """Leaves of all trees by who made them: generators first, in order of appearance."""
    spending = Spending()
    for number, tree in enumerate(trees):
        spending.add(number, tree)
    return spending.parts


class Spending:
    """Adds up the leaves of trees, one tree after the other in any order. No tree is kept."""

    def __init__(self) -> None:
        self._found: dict[str, _Spent] = {}

    def add(self, number: int, tree: Span | None) -> None:
        """The tree of the problem of this number."""
        for place, leaf in enumerate(_leaves(tree) if tree else ()):
            self._found.setdefault(leaf.label, _Spent()).add((number, place), leaf)

    @property
    def parts(self) -> list[Spender]:
        """Who made the leaves: generators first, in order of appearance in the problems."""
        every = sorted(self._found.items(), key=lambda one: one[1].first)
        spenders = [spent.spender(label) for label, spent in every]
        spenders.sort(key=lambda part: part.what != "generation")
        flops = max((part.usage.flops or 0 for part in spenders), default=0)
        tokens = max((sum(_tokens(part.usage)) for part in spenders), default=0)
        return [
            replace(
                p,
                flops_share=100 * (p.usage.flops or 0) / (flops or 1),
                token_shares=tuple(100 * count / (tokens or 1) for count in _tokens(p.usage)),  # type: ignore[arg-type]
            )
            for p in spenders
        ]


@dataclass(slots=True)
class _Spent:
    """What one of them spent, leaf by leaf.

    told: the leaves whose tokens are known, logically and physically. first: where the first leaf stands.
    """

    usage: Usage = field(default_factory=Usage)
    physical: Usage = field(default_factory=Usage)
    told: tuple[Usage, Usage] = field(default_factory=lambda: (Usage(), Usage()))
    partly: bool = False
    made: int = 0
    lost: int = 0
    first: tuple[float, int] = (inf, 0)

    def add(self, place: tuple[int, int], leaf: Span) -> None:
        self.first = min(self.first, place)
        self.usage, self.physical = self.usage + leaf.usage, self.physical + leaf.physical
        if None in (leaf.usage.tokens, leaf.physical.tokens):
            self.partly = True
        else:
            self.told = self.told[0] + leaf.usage, self.told[1] + leaf.physical
        if leaf.status == "lost":
            self.lost += leaf.count
        else:
            self.made += leaf.count

    def spender(self, label: str) -> Spender:
        what, _, name = label.partition(": ")
        used, real = self.told
        # Of each kind: what samples that begin alike have saved makes no prompt good that was read twice.
        kinds = ((used.prefilled, real.prefilled), (used.generated, real.generated))
        # Nothing computed at all: a generator or verifier that does not count it.
        wasted = sum(max(0, (now or 0) - (asked or 0)) for asked, now in kinds) if real.tokens else None
        kind = {"generate": "generation", "score": "verification"}.get(what, what)
        return Spender(name, kind, self.made, self.usage, wasted, self.partly, self.physical, self.lost)


def _tokens(usage: Usage) -> tuple[int, int, int]:
    return usage.generated or 0, usage.prefilled or 0, usage.cached or 0


def _leaves(span: Span) -> list[Span]:
    return [span] if span.count else [leaf for child in span.children for leaf in _leaves(child)]
