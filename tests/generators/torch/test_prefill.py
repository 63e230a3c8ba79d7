"""Prefills of one batch end together: rows are taken back at once, and a bad text takes its own request along alone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from metagen.errors import MetagenError, NumericsError
from metagen.generators.engine import EngineStats
from metagen.generators.torch.jobs import Evaluation, Prefill, Ticket
from metagen.generators.torch.models.ids import FunctionModel
from metagen.generators.torch.prefill import Prefiller
from metagen.generators.torch.prefix_tree import PrefixTree

VOCAB, BAD, ROWS = 8, 7, 6


def logits(ids: tuple[int, ...]) -> Any:
    """Of the last token and the length; none after the bad token."""
    return np.full(VOCAB, np.nan) if BAD in ids else np.arange(VOCAB) * (ids[-1] + len(ids) / 10)


class Watched(FunctionModel):
    """Keeps which rows were closed. sound: tokens from which on its logits are numbers, whatever the tokens are."""

    sound = 1 << 30

    def __init__(self) -> None:
        super().__init__(
            VOCAB, lambda ids: logits(ids) if len(ids) < self.sound else np.zeros(VOCAB), rows=ROWS
        )
        self.closed: list[list[int]] = []
        self.poisoned: list[int] = []

    def close(self, rows: Any, *, poisoned: bool = False) -> None:
        self.closed.append(rows.tolist())
        self.poisoned += rows.tolist() if poisoned else []
        super().close(rows, poisoned=poisoned)


class Desk:
    """A prefiller, what it closed, and what it answered."""

    def __init__(self) -> None:
        self.model, self.tree = Watched(), PrefixTree[Any](10_000)
        self.closed, self.poisoned = self.model.closed, self.model.poisoned
        self.done: list[tuple[Prefill, torch.Tensor]] = []
        self.failed: list[tuple[Prefill, MetagenError]] = []
        self.prefiller = Prefiller(
            self.model,
            self.tree,
            range(ROWS),
            EngineStats(),
            lambda *found: self.done.append(found),
            self.fail,
        )

    def fail(self, job: Prefill, error: MetagenError) -> None:
        self.failed.append((job, error))
        self.prefiller.cancel([job.ticket])

    def add(self, *ids: int, ticket: Ticket | None = None, wanted: tuple[int, ...] | None = None) -> Prefill:
        owner = Evaluation(ticket or a_ticket(), [], [], [], 1)
        last = len(ids) - 1
        job = Prefill(owner, 0, ids, (wanted or (last,))[0], wanted or (last,))
        self.prefiller.add(job)
        return job

    def run(self) -> None:
        for _ in range(100):
            self.prefiller.step()
        assert not self.prefiller.busy


def a_ticket() -> Ticket:
    loop = asyncio.new_event_loop()
    ticket = Ticket(loop, loop.create_future())
    loop.close()
    return ticket


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_rows_of_one_batch_are_closed_at_once(desk: Desk) -> None:
    jobs = [desk.add(i, 1, 2) for i in range(5)]
    desk.run()
    assert [sorted(rows) for rows in desk.closed] == [sorted(job.row for job in jobs)]
    assert [job for job, _ in desk.done] == jobs and desk.tree.reserved == 0
    for job, found in desk.done:
        assert found.tolist() == [pytest.approx(logits(job.ids).tolist())]
        assert job.node is not None and job.node.locks == 1 and job.node.depth == len(job.ids)
        desk.tree.unlock(job.node)


def test_their_rows_serve_the_next_ones(desk: Desk) -> None:
    jobs = [desk.add(i % 7, i // 7, 3) for i in range(4 * ROWS)]
    desk.run()
    assert {id(job) for job, _ in desk.done} == {id(job) for job in jobs}
    assert sum(map(len, desk.closed)) == len(jobs) > 3 * len(desk.closed)


def test_a_bad_text_takes_its_own_request_along_alone(desk: Desk) -> None:
    before = desk.add(1, 2, 3)
    ticket = a_ticket()
    brothers = [desk.add(*ids, ticket=ticket) for ids in ((2, 2, 2), (3, BAD), (4, 4), (6, BAD))]
    after = desk.add(5, 5, 5)
    desk.run()
    assert [job for job, _ in desk.done] == [before, after]
    (found,) = desk.failed
    assert (
        found[0] is brothers[1]
        and isinstance(found[1], NumericsError)
        and sorted(desk.poisoned) == sorted(job.row for job in brothers)
    )
    assert sorted(row for rows in desk.closed for row in rows) == sorted(
        job.row for job in (before, *brothers, after)
    )
    assert desk.tree.reserved == 0


def test_a_bad_number_long_before_the_end_is_seen(desk: Desk) -> None:
    """Its logits came with a batch before the last."""
    desk.model.chunk = 2
    bad = desk.add(1, BAD, 1, 1, 1, wanted=(1, 4))
    desk.model.sound = 4
    desk.run()
    assert [job for job, _ in desk.failed] == [bad] and not desk.done


def test_a_row_that_is_cancelled_may_hold_what_nobody_has_seen(desk: Desk) -> None:
    """The logits of its last piece have not come."""
    desk.model.chunk = 2
    job = desk.add(1, BAD, 1, 1, 1)
    desk.prefiller.step()
    desk.prefiller.cancel([job.ticket])
    assert desk.poisoned == [job.row] and desk.tree.reserved == 0
