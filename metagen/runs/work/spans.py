"""What a run has really done, from its journal: the span tree of each problem, and what was computed twice.

A record counts once, whichever configurations used it. Records of one kind, by one maker, at one path are one
leaf, with their number; so is the usage of each place in the tree that of all below it. Attempts that were lost are
leaves of their own.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
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


def parts(trees: abc.Sequence[Span | None]) -> list[Spender]:
    """Leaves of all trees by who made them: generators first, in order of appearance."""
    leaves: dict[str, list[Span]] = {}
    for tree in trees:
        for leaf in _leaves(tree) if tree else ():
            leaves.setdefault(leaf.label, []).append(leaf)
    found = []
    for label, ours in leaves.items():
        what, _, name = label.partition(": ")
        told = [leaf for leaf in ours if None not in (leaf.usage.tokens, leaf.physical.tokens)]
        used, real = (Usage.sum(getattr(leaf, of) for leaf in told) for of in ("usage", "physical"))
        # Of each kind: what samples that begin alike have saved makes no prompt good that was read twice.
        kinds = ((used.prefilled, real.prefilled), (used.generated, real.generated))
        # Nothing computed at all: a generator or verifier that does not count it.
        wasted = sum(max(0, (now or 0) - (asked or 0)) for asked, now in kinds) if real.tokens else None
        kind = {"generate": "generation", "score": "verification"}.get(what, what)
        spent = Usage.sum(leaf.usage for leaf in ours)
        made, lost = (
            sum(leaf.count for leaf in ours if (leaf.status == "lost") is gone) for gone in (False, True)
        )
        real = Usage.sum(leaf.physical for leaf in ours)
        found.append(Spender(name, kind, made, spent, wasted, len(told) < len(ours), real, lost))
    found.sort(key=lambda part: part.what != "generation")
    flops = max((part.usage.flops or 0 for part in found), default=0)
    tokens = max((sum(_tokens(part.usage)) for part in found), default=0)
    return [
        replace(
            p,
            flops_share=100 * (p.usage.flops or 0) / (flops or 1),
            token_shares=tuple(100 * count / (tokens or 1) for count in _tokens(p.usage)),  # type: ignore[arg-type]
        )
        for p in found
    ]


def _tokens(usage: Usage) -> tuple[int, int, int]:
    return usage.generated or 0, usage.prefilled or 0, usage.cached or 0


def _leaves(span: Span) -> list[Span]:
    return [span] if span.count else [leaf for child in span.children for leaf in _leaves(child)]
