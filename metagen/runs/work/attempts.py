"""The candidates of a configuration that ran by itself, read back from what it recorded.

Strategies that sample and aggregate draw under `0/sample` and score under `0/score`, with a budget as without; greedy
decoding draws one. What other strategies do in between is in the span tree only.
"""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NoReturn

from metagen.cost import Usage
from metagen.errors import MetagenError
from metagen.generators.primitive import thought_of
from metagen.journal import Journal, Row
from metagen.runs.table import costs, unjudged
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.tasks.base import Problem
from metagen.verifiers.base import UNSCORED, Verifier

#: Of a sample that a strategy did not have scored in its scope `score`, though no limit kept it from that.
NOT_ASKED = Score(None, verdict=unjudged.NOT_ASKED)
SAMPLES = f"{costs.POOL}/{costs.SAMPLING}"


class Unrecorded(MetagenError):
    """What was asked for is not in the journal, and nothing may be made: this part of the work is still to come."""


class Closed(dict[bytes, asyncio.Future[None]]):
    """The calls in flight of a journal that nothing may be added to: there are none, and none can begin."""

    def setdefault(self, key: bytes, default: object = None, /) -> NoReturn:
        raise Unrecorded("this part is not recorded yet; resume the run")

    __setitem__ = setdefault


class Recorded:
    """A journal that only answers: what it does not hold is `Unrecorded`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.inflight: dict[bytes, asyncio.Future[None]] = Closed()
        self.version, self.limits = journal.version, journal.limits

    def keep_to(self, seed: int) -> None:
        self._journal.keep_to(seed)

    def find(self, keys: abc.Sequence[bytes]) -> dict[bytes, Row]:
        return self._journal.find(keys)

    async def record(self, rows: abc.Sequence[Row]) -> None:
        raise Unrecorded("this part is not recorded yet; resume the run")

    def of_problem(self, problem: str) -> list[Row]:
        return self._journal.of_problem(problem)

    def attempts(self, problem: str) -> list[Row]:
        return []


def read_samples(problem: Problem, rows: Iterable[Row]) -> list[tuple[Sequence, Usage]]:
    """The samples among the rows that a configuration touched, in the order of their numbers, with what each cost."""
    found = {
        row.index: row
        for row in rows
        if row.path == SAMPLES and row.kind == "generate" and row.payload is not None
    }
    return [(_sequence(problem, row), row.usage) for _, row in sorted(found.items())]


async def read_scores(
    verifier: Verifier,
    sequences: abc.Sequence[Sequence],
    root: Callable[[], Scope],
    *,
    missing: Score = UNSCORED,
) -> list[Score]:
    """The scores that are recorded; in place of the others, `missing`.

    root: makes a scope of the problem whose journal is `Recorded`.
    """
    try:
        return await verifier.score(sequences, scope=root().child(costs.POOL).child(costs.SCORING))
    except Unrecorded:
        if len(sequences) == 1:
            return [missing]
    return [(await read_scores(verifier, [one], root, missing=missing))[0] for one in sequences]


def _sequence(problem: Problem, row: Row) -> Sequence:
    data: dict[str, Any] = dict(row.payload or {})
    cut = row.status == "truncated"
    sequence = Sequence.of(problem.prompt).extend(
        data["text"],
        logprob=data.get("logprob"),
        finish="length" if cut else data.get("finish"),
        thought=thought_of(data),
    )
    scores = {name: Score(**score) for name, score in (data.get("scores") or {}).items()}
    return replace(sequence, exhausted=cut, scores=scores)
