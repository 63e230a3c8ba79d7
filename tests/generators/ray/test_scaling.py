"""How many replicas a pool has: by the load, and never at the cost of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.engine import EngineStats
from metagen.generators.ray import Placement, Policy, RayPool, Scaling, fleet
from metagen.generators.ray.fleet import Fleet
from metagen.generators.ray.link import Lost, NoCluster, NotOpened
from metagen.generators.ray.scaling import Scaler
from metagen.generators.routing import Router
from metagen.runs.declare.specs.executor import ExecutorSpec
from tests.generators.ray.test_pool import Make, Until, request, work


@pytest.fixture(scope="module")
def plain(alone: Any) -> Any:
    """What the engine gives by itself."""
    with alone() as engine:
        return work(engine)


def test_as_many_replicas_as_the_load_needs() -> None:
    scaling = Scaling(most=5, load=10)
    wanted = [scaling.wanted(load, least=2) for load in (0, 10, 20, 21, 30, 31, 50, 51, 10**6)]
    assert wanted == [2, 2, 2, 3, 3, 4, 5, 5, 5]


def test_more_start_at_once_and_one_at_a_time_leaves_later() -> None:
    scaler = Scaler(Scaling(most=4, load=10, idle=5.0), least=1)
    assert scaler.change(0.0, 35, there=1, coming=0) == 3
    assert scaler.change(1.0, 35, there=1, coming=3) == 0, "they come"
    assert scaler.change(2.0, 12, there=4, coming=0) == 0
    assert scaler.change(6.9, 12, there=4, coming=0) == 0
    assert scaler.change(7.0, 12, there=4, coming=0) == -1
    assert scaler.change(8.0, 12, there=3, coming=0) == 0
    assert scaler.change(9.0, 30, there=3, coming=0) == 0, "the load came back: the time begins anew"
    assert scaler.change(12.0, 12, there=3, coming=0) == 0
    assert scaler.change(17.0, 12, there=3, coming=0) == -1
    assert scaler.change(30.0, 12, there=2, coming=0) == 0, "two are needed"
    assert scaler.change(40.0, 0, there=1, coming=0) == 0, "one is the fewest"


def test_those_that_come_count_among_those_that_may_leave() -> None:
    scaler = Scaler(Scaling(most=4, load=10, idle=1.0), least=1)
    assert scaler.change(0.0, 15, there=1, coming=1) == 0
    assert scaler.change(1.0, 5, there=1, coming=1) == 0
    assert scaler.change(2.0, 5, there=1, coming=1) == -1
    assert scaler.change(9.0, 5, there=1, coming=0) == 0


@pytest.mark.parametrize("wrong", [{"most": 0}, {"most": 2, "load": 0}, {"most": 2, "idle": -1}])
def test_numbers_that_are_too_small(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected a number ≥"):
        Scaling(**wrong)


def test_no_fewer_than_it_opens_with() -> None:
    with pytest.raises(InputError, match="most=1: expected an integer ≥ replicas, which is 2"):
        RayPool(object, replicas=2, scaling=Scaling(most=1))  # type: ignore[arg-type]


def test_a_file_says_it() -> None:
    short = ExecutorSpec.model_validate({"kind": "ray", "scaling": 8})
    long = ExecutorSpec.model_validate({"kind": "ray", "scaling": {"most": 8, "load": 64, "idle": 60}})
    assert short == long and short.most == 8
    with pytest.raises(ValueError, match=r"scaling\.most is 2, and replicas, the fewest, 4"):
        ExecutorSpec.model_validate({"kind": "ray", "replicas": 4, "scaling": 2})
    with pytest.raises(ValueError, match="scaling is for pools of engines"):
        ExecutorSpec.model_validate({"kind": "local", "scaling": 2})


# -- a fleet without a cluster ---------------------------------------------------------------------------------


class Paper(Fleet):
    """Replicas that are names. opens: until it is set, none opens. dies: whether one that opens dies instead.
    closed: why the next ones do not open.
    """

    def __init__(self, scaling: Scaling, replacements: int = 8) -> None:
        policy = Policy(replacements=replacements)
        super().__init__(None, object, {}, Placement(), policy, Router(), scaling)  # type: ignore[arg-type]
        self.opens, self.dies, self.closed = asyncio.Event(), False, list[Lost]()
        self.opens.set()
        self.lost: dict[str, asyncio.Event] = {}
        self.busy = asyncio.Event()
        self.facts = object()  # type: ignore[assignment]

    async def _life(self, name: str, slot: Any) -> None:
        await self.opens.wait()
        if self.dies:
            raise Lost("was killed while it opened")
        if self.closed:
            raise self.closed.pop()
        slot.link = self.links[name] = SimpleNamespace(name=name, stats=EngineStats())  # type: ignore[assignment]
        self._router.join(name)
        if not slot.settled.done():
            slot.settled.set_result(None)
        self.lost[name] = asyncio.Event()
        ends = [asyncio.create_task(event.wait()) for event in (self.lost[name], slot.leaving)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._router.leave(name)
        if self.lost[name].is_set():
            self._forget(slot.link)
            raise Lost("was killed")
        await self.busy.wait()
        self._forget(slot.link)

    def ask_much(self, load: int) -> None:
        first = next(iter(self._router))
        self._router.began(first, None, load - self._router.load(first))

    async def until(self, true: Callable[[], bool]) -> None:
        for _ in range(500):
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(self._slots)} slots, {len(self._router)} replicas, {self.deaths}")


@contextmanager
def fleet_of(replicas: int, scaling: Scaling, replacements: int = 8) -> Iterator[Any]:
    """Runs a coroutine function of an open fleet, and closes that."""

    def run(do: Callable[[Paper], Awaitable[None]]) -> None:
        async def live() -> None:
            paper = Paper(scaling, replacements)
            await paper.open(replicas)
            try:
                await do(paper)
            finally:
                await paper.close()

        asyncio.run(live())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "PULSE", 0.01)
        yield run


def test_a_replica_that_opens_for_long_stops_nothing() -> None:
    """More are added meanwhile; and when the load has gone, nobody waits for those that have not opened."""

    async def do(paper: Paper) -> None:
        paper.opens.clear()
        paper.ask_much(15)
        await paper.until(lambda: len(paper._slots) == 2)
        paper.ask_much(35)
        await paper.until(lambda: len(paper._slots) == 4)
        paper.ask_much(0)
        await paper.until(lambda: len(paper._slots) == 1)
        assert not paper.deaths and len(paper._router) == 1

    with fleet_of(1, Scaling(most=4, load=10, idle=0.05)) as run:
        run(do)


def test_a_replacement_is_on_its_way_and_not_missing() -> None:
    async def do(paper: Paper) -> None:
        paper.opens.clear()
        paper.lost["replica-0"].set()
        await paper.until(lambda: paper.waste.replaced == 1)
        await asyncio.sleep(0.1)
        assert len(paper._slots) == 2
        paper.opens.set()
        await paper.until(lambda: len(paper._router) == 2)

    with fleet_of(2, Scaling(most=4, load=10)) as run:
        run(do)


@pytest.mark.parametrize("kind", [NotOpened, NoCluster])
def test_a_replacement_that_cannot_open_is_replaced_after_a_pause_if_any_can(
    kind: type[Lost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PAUSE", 0.01)

    async def do(paper: Paper) -> None:
        paper.closed = [kind("its memory is not free yet"), kind("its memory is not free yet")]
        paper.lost["replica-0"].set()
        await paper.until(lambda: bool(paper.deaths) and bool(paper._router or paper.over))
        left = ["replica-3"] if kind is NotOpened else []
        assert list(paper._router) == left and paper.waste.replaced == (3 if left else 1)

    with fleet_of(1, Scaling(most=1)) as run:
        run(do)


def test_no_more_are_replaced_than_may_be() -> None:
    async def do(paper: Paper) -> None:
        paper.lost["replica-0"].set()
        await paper.until(lambda: bool(paper.deaths))
        await asyncio.sleep(0.1)
        assert len(paper._slots) == len(paper._router) == 1
        paper.ask_much(10**6)
        await paper.until(lambda: len(paper._router) == 3)
        await asyncio.sleep(0.1)
        assert len(paper._slots) == 3, "one of the four was given up"

    with fleet_of(2, Scaling(most=4, load=10), replacements=0) as run:
        run(do)


def test_one_that_dies_while_it_opens_takes_no_replacement() -> None:
    async def do(paper: Paper) -> None:
        paper.dies = True
        paper.ask_much(20)
        await paper.until(lambda: bool(paper.deaths))
        await asyncio.sleep(0.1)
        assert len(paper.deaths) == 1 and paper.waste.replaced == 0, "and it is tried again later"

    with fleet_of(1, Scaling(most=4, load=10)) as run:
        run(do)


def test_those_that_leave_count_until_they_have_left() -> None:
    async def do(paper: Paper) -> None:
        paper.ask_much(20)
        await paper.until(lambda: len(paper._router) == 2)
        paper.ask_much(0)
        await paper.until(lambda: len(paper._router) == 1)
        paper.ask_much(20)
        await asyncio.sleep(0.1)
        assert len(paper._slots) == 2
        paper.busy.set()
        await paper.until(lambda: len(paper._router) == 2)

    with fleet_of(1, Scaling(most=2, load=10, idle=0.02)) as run:
        run(do)


# -- on a cluster ----------------------------------------------------------------------------------------------


def test_replicas_come_with_the_load_and_leave_after_it(
    make: Make,
    plain: Any,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "PULSE", 0.05)
    most: list[int] = []
    with make(1, scaling=Scaling(most=3, load=2, idle=0.5), delay=0.1) as pool:
        assert len(pool.replicas) == 1

        async def ask_on() -> None:
            while len(pool.replicas) == 1:  # one may open later than the work ends
                await asyncio.gather(*(pool.generate(request(20 + i)) for i in range(8)))
            most.append(len(pool.replicas))

        assert work(pool, meanwhile=lambda: asyncio.run(ask_on())) == plain, (
            "the same texts, and each call charged once"
        )
        assert 1 < most[0] <= 3
        until(lambda: len(pool.replicas) == 1)
        assert pool.stats.extra == {"failed_attempts": 0, "replaced": 0}
        assert asyncio.run(pool.generate(request(1))).samples


def test_a_full_cluster_is_asked_again_later_only(
    make: Make,
    plain: Any,
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
) -> None:
    """Where a replica cannot open, the others do all the work, and no further one is tried at once."""
    monkeypatch.setattr(fleet, "PULSE", 0.05)
    added: list[Callable[..., Any]] = []
    with make(1, scaling=Scaling(most=3, load=2), delay=0.1) as pool:
        fleet_of = pool._fleet
        assert fleet_of is not None

        async def refused(name: str, slot: Any) -> None:
            added.append(slot)
            raise NotOpened("cannot open: the cluster is full")

        monkeypatch.setattr(fleet_of, "_life", refused)
        assert work(pool) == plain
        assert len(added) == 2, "both at once, and then a pause"
        assert len(pool.replicas) == 1
