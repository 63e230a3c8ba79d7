"""Pools that ask the replicas of another pool, as drivers in shards do: nothing is lost, charged or counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from metagen.errors import EngineError, InputError
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.ray import Policy, RayPool, Scaling, fleet
from metagen.generators.ray.guest import FAR
from metagen.sequence import Prompt, Sequence
from tests.generators.ray.test_pool import QUICK, Make, Until, request, work


@pytest.fixture(scope="module")
def plain(alone: Callable[..., Any]) -> Any:
    """What the engine gives by itself."""
    with alone() as engine:
        return work(engine)


@contextmanager
def guests(owner: RayPool, make: Make, count: int = 2, **options: Any) -> Iterator[list[RayPool]]:
    """Pools that ask the replicas of another one, which hears of them often."""
    over, pools = Event(), dict[str, RayPool]()

    async def exchange() -> None:
        reports = dict.fromkeys(pools)
        while not over.is_set():
            for name, pool in pools.items():
                reports[name] = await pool.follow(await owner.share(name, reports[name]))
            await asyncio.sleep(0.02)

    with ExitStack() as stack:
        for number in range(count):
            name = f"guest-{number}"
            roster = asyncio.run(owner.share(name))
            pools[name] = stack.enter_context(make(roster=roster, **options))
        exchanging = Thread(target=lambda: asyncio.run(exchange()), daemon=True)
        exchanging.start()
        try:
            yield list(pools.values())
        finally:
            over.set()
            exchanging.join(20)
    for name in pools:
        asyncio.run(owner.dismiss(name))


def together(pools: list[RayPool], do: Callable[[], object] | None = None) -> list[Any]:
    """What each of the pools gives, at the same time. do: what is done meanwhile."""
    with ThreadPoolExecutor(len(pools)) as threads:
        asked = [threads.submit(work, pool, meanwhile=do if pool is pools[0] else None) for pool in pools]
        return [one.result(120) for one in asked]


@pytest.fixture(scope="module")
def lasting(
    pools: Callable[..., Make], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RayPool, list[RayPool], Path]]:
    """A pool and two guests that go through one trouble after the other, and where files make trouble for them."""
    place = tmp_path_factory.mktemp("troubles")
    make = pools(place)
    with make(lent=True, policy=QUICK) as owner, guests(owner, make, policy=QUICK) as several:
        yield owner, several, place


def test_guests_get_what_the_engine_gives_and_are_counted_once(
    lasting: tuple[RayPool, list[RayPool], Path], plain: Any, alone: Any, until: Until
) -> None:
    with alone() as engine:
        work(engine)
    owner, pools, _ = lasting
    before, there = owner.stats, set(owner.replicas)
    assert together(pools) == [plain, plain], "the same texts, and each call charged once"
    until(lambda: owner.stats.generated == before.generated + 2 * engine.stats.generated)
    assert owner.stats.samples == before.samples + 2 * engine.stats.samples
    assert owner.stats.extra == before.extra
    assert set(owner.replicas) == there
    assert {name for pool in pools for name in pool.replicas} == there
    with pytest.raises(InputError, match="has the replicas of another process; change them there"):
        pools[0].add()


@pytest.mark.parametrize("trouble", ["exits", "blocks", "fails"])
def test_a_replica_in_trouble_is_replaced_for_all_guests(
    lasting: tuple[RayPool, list[RayPool], Path], plain: Any, until: Until, trouble: str
) -> None:
    """Whichever of them notices."""
    owner, pools, troubles = lasting
    before, there = owner.stats.extra, set(owner.replicas)
    assert together(pools, (troubles / trouble).touch) == [plain, plain]
    assert not (troubles / trouble).exists(), "somebody took it"
    until(
        lambda: len(owner.replicas) == 2 and all(set(pool.replicas) == set(owner.replicas) for pool in pools)
    )
    assert len(there & set(owner.replicas)) == 1
    assert owner.stats.extra["replaced"] == before["replaced"] + 1
    until(lambda: owner.stats.extra["failed_attempts"] >= before["failed_attempts"] + 1)
    assert owner.stats.extra["failed_attempts"] == sum(pool.stats.extra["failed_attempts"] for pool in pools)


def test_what_a_guest_asked_ends_when_it_is_gone(
    make: Make, plain: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed: it says nothing any more. The others go on."""
    with make(1, lent=True, delay=0.1) as owner, guests(owner, make, 1, delay=0.1) as (other,):
        roster = asyncio.run(owner.share("gone"))
        gone = make(roster=roster, delay=0.1).__enter__()
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(lambda: asyncio.run(gone.generate(request(3, n=16))))
            until(lambda: owner.stats.requests > 0)
            before = owner.stats
            asyncio.run(owner.dismiss("gone"))
            until(lambda: owner.stats.aborted_tokens > before.aborted_tokens)
            gone.close()
            with pytest.raises(EngineError):  # nobody answers a client that is gone
                asked.result(60)
        assert together([other]) == [plain]
        assert owner.stats.extra == {"failed_attempts": 0, "replaced": 0}


def test_replicas_come_with_the_load_of_guests_and_leave_after_their_last_answer(
    make: Make, plain: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PULSE", 0.05)
    most, over = 1, Event()
    with (
        make(1, lent=True, scaling=Scaling(most=3, load=8, idle=0.2), delay=0.1) as owner,
        guests(owner, make, delay=0.1) as pools,
        ThreadPoolExecutor(1) as watcher,
    ):

        def watch() -> None:
            nonlocal most
            while not over.wait(0.005):
                most = max(most, len(owner.replicas))

        watcher.submit(watch)
        try:
            for _ in range(30):  # a load may have ended before a busy machine has a replica for it
                assert together(pools) == [plain, plain]
                if most > 1:
                    break
            until(lambda: len(owner.replicas) == 1)
            assert together(pools) == [plain, plain]
        finally:
            over.set()
        assert owner.stats.extra == {"failed_attempts": 0, "replaced": 0}
        assert 1 < most <= 3


def test_with_no_replica_left_guests_hear_what_each_died_of(make: Make, troubles: Path) -> None:
    (troubles / "exits").touch()
    none = Policy(replacements=0)
    with (
        make(1, lent=True, policy=none) as owner,
        guests(owner, make, 1, policy=none) as (pool,),
        pytest.raises(
            EngineError, match=r"no replica is left, 0 of at most 0 were replaced: replica-0 Actor"
        ),
    ):
        asyncio.run(pool.generate(request(1)))


def test_requests_of_two_guests_that_may_kill_share_no_replica(
    make: Make, troubles: Path, alone: Any
) -> None:
    """Where they did, one of them could be blamed for what the other does."""
    prefixes = [Sequence.of(Prompt(name, text=f"Twice {name}.")) for name in ("one", "two")]
    asked = [GenerateRequest(prefix, (1, 2), SamplingParams(), 40) for prefix in prefixes]
    policy = Policy(attempts=6)
    with alone() as engine:
        expected = [asyncio.run(engine.generate(one)).samples for one in asked]
    with (
        make(lent=True, policy=policy) as owner,
        guests(owner, make, policy=policy) as pools,
        ThreadPoolExecutor(2) as threads,
    ):
        calls = [
            threads.submit(asyncio.run, pool.generate(one)) for pool, one in zip(pools, asked, strict=True)
        ]
        found = [call.result(120) for call in calls]
    assert [answer.samples for answer in found] == expected
    assert len({file.name.rpartition("-")[2] for file in troubles.glob("*-came-*")}) == 2, "at the same time"


def test_guests_hear_each_others_load_and_prefer_their_share(make: Make, until: Until) -> None:
    with make(lent=True, delay=3600.0) as owner, guests(owner, make, delay=3600.0) as (one, two):
        fleets: list[Any] = [one._fleet, two._fleet]
        until(lambda: all(len(fleet._roster.near) == 1 for fleet in fleets))
        assert frozenset.union(*(fleet._roster.near for fleet in fleets)) == set(owner.replicas)
        (near,), far = fleets[0]._roster.near, FAR

        def handicaps(fleet: Any) -> dict[str, int]:
            return {name: fleet._handicap(name) for name in fleet.links}

        other = next(name for name in owner.replicas if name != near)
        until(lambda: handicaps(fleets[0]) == {near: 0, other: far})

        async def ask() -> None:
            asked = asyncio.create_task(one.generate(request(1, n=16)))
            await asyncio.to_thread(until, lambda: handicaps(fleets[1]) == {near: far + 16, other: 0})
            assert handicaps(fleets[0]) == {near: 0, other: far}, "of others alone"
            asked.cancel()  # an answer would take hours
            with pytest.raises(asyncio.CancelledError):
                await asked

        asyncio.run(ask())
        until(lambda: handicaps(fleets[1]) == {near: far, other: 0})
