"""What a run has really done, from its journal: the span tree of each problem, and what was computed twice.

A record counts once, whichever configurations used it. Records of one kind, by one maker, at one path are one
leaf, with their number; so is the usage of each place in the tree that of all below it. Attempts that were lost are
leaves of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from metagen.attempts import lost_attempts
from metagen.cost import Usage
from metagen.journal import Row, SQLiteJournal
from metagen.runs.work.makers import Makers


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the tree: usage of all below, logical and physical. count: records, for a leaf."""

    label: str
    count: int
    status: str
    usage: Usage
    physical: Usage
    children: tuple[Span, ...] = ()

    def leaves(self) -> Iterator[Span]:
        """Those of the tree, from the left."""
        if self.count:
            yield self
        for child in self.children:
            yield from child.leaves()


#: The parts of a path.
Place = tuple[str, ...]


def leaves(rows: Iterable[Row], makers: Makers) -> Iterator[tuple[Place, Span]]:
    """The leaves of a problem, each with its place, in the order of their first records."""
    alike: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.path, row.kind, row.by, row.status), []).append(row)
    for (path, kind, by, status), same in alike.items():
        usage, physical = Usage.sum(row.usage for row in same), Usage.sum(row.physical for row in same)
        yield (
            tuple(filter(None, path.split("/"))),
            Span(f"{kind}: {makers.name(by)}", len(same), status, usage, physical),
        )


def tree(problem: str, rows: Iterable[Row], makers: Makers) -> Span:
    """The leaves of a problem as a tree: those of a place first, then the places below it."""
    children: dict[Place, dict[Place, None]] = {(): {}}
    here: dict[Place, list[Span]] = {}
    for place, leaf in leaves(rows, makers):
        for depth in range(len(place)):
            children.setdefault(place[:depth], {})[place[: depth + 1]] = None
        here.setdefault(place, []).append(leaf)

    def span(place: Place) -> Span:
        below = (*here.get(place, ()), *map(span, children.get(place, ())))
        usage, physical = Usage.sum(one.usage for one in below), Usage.sum(one.physical for one in below)
        return Span(place[-1] if place else problem, 0, "complete", usage, physical, below)

    return span(())


def trees(journal: SQLiteJournal, problems: Iterable[str], makers: Makers) -> Iterator[Span | None]:
    """The tree of each problem, given by its id; None where nothing is recorded, as of samples that were read."""
    for problem in problems:
        rows = _rows(journal, problem)
        yield tree(problem, rows, makers) if rows else None


def _rows(journal: SQLiteJournal, problem: str) -> list[Row]:
    return [*journal.of_problem(problem, payload=False), *lost_attempts(journal, problem)]


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


def parts(journal: SQLiteJournal, problems: Iterable[str], makers: Makers) -> list[Spender]:
    """Who spent on these problems: generators first, in order of appearance."""
    spending = Spending()
    for number, problem in enumerate(problems):
        spending.add(number, (leaf for _, leaf in leaves(_rows(journal, problem), makers)))
    return spending.parts


class Spending:
    """Adds up the leaves of problems, one problem after the other in any order. No leaf is kept."""

    def __init__(self) -> None:
        self._found: dict[str, _Spent] = {}

    def add(self, number: int, leaves: Iterable[Span]) -> None:
        """The leaves of the problem of this number."""
        for place, leaf in enumerate(leaves):
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
        elif leaf.status != "refused":
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
