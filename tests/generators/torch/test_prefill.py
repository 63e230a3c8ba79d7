"""Prefills of one batch end together: rows are taken back at once, and a bad text takes its own request along alone."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from metagen.errors import MetagenError, NumericsError, PluginError
from metagen.generators.decoding.adapters import Adapter
from metagen.generators.engine import EngineStats, EvaluateRequest, SamplingParams
from metagen.generators.models.recipes import Table
from metagen.generators.torch import TorchEngine
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
            lambda job, positions, found: found,
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


TEXT = "abbab" * 160


def weights(prompt: str, done: tuple[str, ...]) -> Any:
    """Of the length of the completion."""
    p = np.array([1.0 + len(done) % 7, 2.0 + len(done) % 5, 1.0])
    return p / p.sum()


@pytest.mark.parametrize("labels", [None, (2, 0)])
@pytest.mark.parametrize("params", [None, SamplingParams(temperature=0.5, banned=((2,),))])
def test_the_logits_of_a_long_text_are_read_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch, labels: tuple[int, ...] | None, params: SamplingParams | None
) -> None:
    """None are held when the model goes on; the order of positions is the request's, and one may come twice."""
    with TorchEngine(Table(("a", "b", "."), weights, name="long"), threads=1) as engine:
        model, original = engine._model, engine._model.extend
        made: list[weakref.ref[Any]] = []
        held: list[int] = []

        def extend(*args: Any) -> torch.Tensor:
            held.append(sum(one() is not None for one in made))
            array = original(*args).numpy().copy()
            made.append(weakref.ref(array))
            return torch.from_numpy(array)

        monkeypatch.setattr(model, "extend", extend)
        monkeypatch.setattr(model, "chunk", 300)
        ids = engine.encode("x" + TEXT)
        start = len(ids) - len(TEXT)
        positions = (*range(len(ids) - 2, start - 1, -1), len(ids) - 2)
        request = EvaluateRequest(ids, positions, labels, entropies=True, params=params, start=start)
        (found,) = asyncio.run(engine.evaluate([request]))
    assert len(held) > 2 and not any(held)
    for p, values, entropy in zip(positions, found.values, found.entropies or (), strict=True):
        q = weights("x", tuple(TEXT[: p + 1 - start]))
        if params is not None:
            q = q**2 * (1, 1, 0) / (q[:2] ** 2).sum()
        wanted = (ids[p + 1],) if labels is None else labels
        with np.errstate(divide="ignore"):
            assert values == pytest.approx(np.log(q[list(wanted)]).tolist(), abs=1e-5)
        assert entropy == pytest.approx(-sum(x * np.log(x) for x in q if x), abs=1e-5)


def test_a_text_that_cannot_be_read_fails_alone() -> None:
    """Before its end, and with the other texts of its request."""

    class Late(Adapter):
        def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            if int((ids >= 0).sum(1).max()) > 100:
                raise ValueError("too long")
            return logits

    params = SamplingParams(adapters=(Late(),))
    with TorchEngine(Table(("a", "b", "."), weights, name="long"), threads=1) as engine:

        def read(text: str) -> EvaluateRequest:
            ids = engine.encode(text)
            return EvaluateRequest(ids, tuple(range(len(ids) - 1)), params=params)

        async def together() -> list[Any]:
            asked = [[read(TEXT), read("ab")], [read("ba")], [read("ab" * 10)]]
            return await asyncio.gather(*map(engine.evaluate, asked), return_exceptions=True)

        failed, short, longer = asyncio.run(together())
        assert isinstance(failed, PluginError) and "too long" in str(failed)
        assert [len(one.values) for one in (*short, *longer)] == [1, 19]
        assert engine._tree.reserved == engine._tree.locked == 0
