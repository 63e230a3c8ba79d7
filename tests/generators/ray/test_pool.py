"""A pool gives what its engine gives, whatever happens to the replicas."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import EngineError, InputError, PromptError, UnsupportedError
from metagen.generators.engine import Engine, Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.likelihood import likelihoods
from metagen.generators.openai import OpenAIEngine
from metagen.generators.primitive import EngineGenerator
from metagen.generators.ray import Placement, Policy, RayPool, fleet
from metagen.generators.routing import Router
from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Tokens

#: One cluster, in one process.
Make = Callable[..., RayPool]
Until = Callable[[Callable[[], bool]], None]
PROBLEMS = 24
#: A hang is noticed after so many seconds. One pool goes through all troubles of this file.
QUICK = Policy(deadline=4.0, replacements=20)


def request(number: int, n: int = 4, most: int = 40) -> GenerateRequest:
    prefix = Sequence.of(Prompt(f"p{number}", text=f"{chr(65 + number)} is the name of this problem."))
    return GenerateRequest(prefix, tuple(range(1000 * number, 1000 * number + n)), SamplingParams(), most)


def work(
    engine: Engine, *, budget: Budget | None = None, meanwhile: Callable[[], None] | None = None
) -> tuple[list[tuple[str, ...]], Usage]:
    """Problems at once, each in two blocks: the texts, and what was charged. meanwhile: done after a moment."""
    generator = EngineGenerator(engine, SamplingParams(max_tokens=40))

    async def one(number: int) -> tuple[tuple[str, ...], list[Row]]:
        scope = Scope.root(f"p{number}", seed=5, budget=budget)
        prefix = request(number).prefix
        begun = await generator.generate(prefix, n=3, until=Tokens(6), scope=scope.child("block"))
        texts = []
        for i, sequence in enumerate(begun):
            if sequence.finish is None and not sequence.exhausted:
                (sequence,) = await generator.generate(sequence, scope=scope.child(f"rest/{i}"))
            texts.append(sequence.text)
        return tuple(texts), list(scope.trace.rows)

    async def both() -> list[tuple[tuple[str, ...], list[Row]]]:
        async def later() -> None:
            await asyncio.sleep(0.3)
            if meanwhile is not None:
                await asyncio.to_thread(meanwhile)

        *found, _ = await asyncio.gather(*(one(i) for i in range(PROBLEMS)), later())
        return found

    found = asyncio.run(both())
    charged = Usage.sum(row.usage for _, rows in found for row in rows)
    return [texts for texts, _ in found], replace(charged, seconds=0)


def process_of(troubles: Path, besides: frozenset[int] = frozenset()) -> int:
    """The process of some replica that lives."""
    pids = sorted(int(file.name.partition("-")[2]) for file in troubles.glob("opened-*"))
    return next(pid for pid in pids if Path(f"/proc/{pid}").exists() and pid not in besides)


@pytest.fixture(scope="module")
def engine(alone: Callable[..., EnumerableEngine]) -> EnumerableEngine:
    return alone()


@pytest.fixture(scope="module")
def plain(engine: EnumerableEngine) -> tuple[list[tuple[str, ...]], Usage]:
    """What the engine gives by itself."""
    with engine:
        return work(engine)


def test_a_pool_gives_what_its_engine_gives(make: Make, plain: Any, engine: EnumerableEngine) -> None:
    router = Router(absolute=1000)
    with make(router=router) as pool:
        assert set(pool.replicas) == set(router) == {"replica-0", "replica-1"}
        assert work(pool) == plain
        stats = pool.stats
        assert stats.extra["failed_attempts"] == 0
        assert stats.generated == engine.stats.generated
        assert stats.prefilled == engine.stats.prefilled, "a problem stays where its prompt is"
        assert all(link.stats.requests for link in pool._fleet.links.values()), "both had some of the work"


@pytest.fixture(scope="module")
def lasting(
    pools: Callable[..., Make], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RayPool, Path]]:
    """A pool that goes through one trouble after the other, and where files make trouble for it.

    Replicas take longer to start than most tests: those that ask nothing of how a pool is made use this one.
    """
    place = tmp_path_factory.mktemp("troubles")
    with pools(place)(policy=QUICK, max_context=100) as pool:
        yield pool, place


def test_a_killed_process_changes_nothing(lasting: tuple[RayPool, Path], plain: Any, until: Until) -> None:
    pool, troubles = lasting
    before = pool.stats.extra["replaced"]
    found = work(pool, meanwhile=lambda: os.kill(process_of(troubles), signal.SIGKILL))
    assert found == plain
    assert pool.stats.extra["replaced"] == before + 1
    until(lambda: len(pool.replicas) == 2)


@pytest.mark.parametrize("trouble", ["exits", "hangs", "blocks", "fails", "cancels", "garbles"])
def test_a_replica_in_trouble_is_replaced_and_changes_nothing(
    lasting: tuple[RayPool, Path], plain: Any, until: Until, trouble: str
) -> None:
    pool, troubles = lasting
    before, there = dict(pool.stats.extra), set(pool.replicas)
    found = work(pool, meanwhile=(troubles / trouble).touch)
    assert not (troubles / trouble).exists(), "somebody took it"
    assert found == plain, "the same texts, and each call charged once"
    assert pool.stats.extra["failed_attempts"] >= before["failed_attempts"] + 1
    assert pool.stats.extra["replaced"] == before["replaced"] + 1
    until(lambda: len(pool.replicas) == 2)
    assert len(set(pool.replicas) - there) == 1


def test_a_removed_node_changes_nothing(
    make: Make, cluster: Any, add_node: Callable[..., Any], plain: Any, until: Until
) -> None:
    """Four replicas on two nodes, and one of these is gone in the middle of the work."""
    import ray

    added = add_node(resources={"room": 4})
    with make(4, placement=Placement(resources={"room": 1}), delay=0.1) as pool:
        found = work(pool, meanwhile=lambda: cluster.remove_node(added, allow_graceful=False))
        assert found == plain
        assert pool.stats.extra["failed_attempts"] >= 1
        until(lambda: len(pool.replicas) == 4)
    until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)


def test_replicas_join_and_leave_in_the_middle(make: Make, plain: Any, until: Until) -> None:
    with make(1) as pool:

        def change() -> None:
            pool.add(2)
            until(lambda: len(pool.replicas) == 3)
            pool.remove("replica-0")
            until(lambda: len(pool.replicas) == 2)

        assert work(pool, meanwhile=change) == plain
        assert set(pool.replicas) == {"replica-1", "replica-2"}
        assert pool.stats.extra["failed_attempts"] == 0, "who leaves finishes what it was asked"
        with pytest.raises(InputError, match="'replica-0' is not there; expected one of"):
            pool.remove("replica-0")

        def let_both_go() -> None:
            pool.remove("replica-1")
            with pytest.raises(InputError, match="'replica-2' is the only one"):
                pool.remove("replica-2")

        assert work(pool, meanwhile=let_both_go)[0] == plain[0]
        until(lambda: pool.replicas == ("replica-2",))


def test_a_budget_that_has_room_for_what_is_lost_changes_nothing(
    lasting: tuple[RayPool, Path], plain: Any, until: Until
) -> None:
    """A lost replica's work is charged at its worst, so a tight budget would refuse what is asked anew."""
    pool, troubles = lasting
    before = pool.stats.extra["failed_attempts"]
    found = work(pool, budget=Budget(generated=400), meanwhile=(troubles / "exits").touch)
    assert pool.stats.extra["failed_attempts"] > before
    assert found == plain
    until(lambda: len(pool.replicas) == 2)


def test_a_request_that_kills_fails_alone(make: Make, alone: Any) -> None:
    """Its neighbours are lost with it, twice; then it runs by itself."""
    bad = GenerateRequest(Sequence.of("Divide by zero."), (1,), SamplingParams(), 40)
    good = [request(i) for i in range(8)]

    async def ask(engine: Engine, *more: GenerateRequest) -> list[Any]:
        calls = (engine.generate(one) for one in (*good, *more))
        return await asyncio.gather(*calls, return_exceptions=True)

    with alone() as engine:
        expected = asyncio.run(ask(engine))
    with make(fatal="Divide by zero.") as pool:
        *found, error = asyncio.run(ask(pool, bad))
    assert [answer.samples for answer in found] == [answer.samples for answer in expected]
    assert isinstance(error, EngineError)
    assert "3 replicas were lost while they worked on one request" in str(error)


def test_requests_that_may_kill_share_no_replica_and_wait_for_none_elsewhere(
    make: Make, troubles: Path, alone: Any
) -> None:
    prefixes = [Sequence.of(Prompt(name, text=f"Twice {name}.")) for name in ("one", "two")]
    asked = [GenerateRequest(prefix, (1, 2), SamplingParams(), 40) for prefix in prefixes]

    async def ask(engine: Engine) -> list[Generated]:
        return await asyncio.gather(*map(engine.generate, asked))

    with alone() as engine:
        expected = asyncio.run(ask(engine))
    with make(policy=Policy(attempts=6)) as pool:
        found = asyncio.run(ask(pool))
    assert [answer.samples for answer in found] == [answer.samples for answer in expected]
    assert len({file.name.rpartition("-")[2] for file in troubles.glob("*-came-*")}) == 2, "at the same time"


def test_an_outage_of_a_hosted_server_is_no_loss_of_replicas(make: Make, troubles: Path) -> None:
    (troubles / "outage").touch()
    with make(1, bills=True) as pool:
        with pytest.raises(
            EngineError, match=r"^the server does not answer \(raised in Troubled\.generate, "
        ):
            asyncio.run(pool.generate(request(1)))
        assert pool.stats.extra == {"failed_attempts": 0, "replaced": 0}
        assert asyncio.run(pool.generate(request(1))).samples
        assert pool.replicas == ("replica-0",)


def test_a_request_that_cannot_be_sent_is_the_callers_fault(lasting: tuple[RayPool, Path]) -> None:
    prompt, (pool, _) = Prompt("p", text="?", public={"test": lambda: None}), lasting
    before = pool.stats.extra
    with pytest.raises(InputError, match="cannot be sent to another process"):
        asyncio.run(pool.generate(GenerateRequest(Sequence.of(prompt), (1,), SamplingParams(), 4)))
    assert asyncio.run(pool.generate(request(1))).samples
    assert pool.stats.extra == before


def test_with_no_replica_left_the_error_names_what_each_died_of(make: Make, troubles: Path) -> None:
    (troubles / "exits").touch()
    (troubles / "memory").touch()
    with make(1, policy=Policy(replacements=1)) as pool:
        with pytest.raises(EngineError, match="no replica is left, 1 of at most 1 were replaced") as caught:
            asyncio.run(pool.generate(request(1)))
        assert "replica-0 ActorDiedError" in str(caught.value)
        assert re.search(
            r"replica-1 PluginError: .* raised MemoryError: no memory is left", str(caught.value)
        )
        with pytest.raises(EngineError, match="no replica is left"):
            asyncio.run(pool.generate(request(2)))


def test_errors_of_a_request_are_the_callers(lasting: tuple[RayPool, Path]) -> None:
    pool, _ = lasting
    before = pool.stats.extra

    async def ask() -> list[Any]:
        calls = [pool.generate(request(1, most=10)), pool.generate(request(1, most=100))]
        return await asyncio.gather(*calls, return_exceptions=True)

    answer, error = asyncio.run(ask())
    assert isinstance(answer, Generated)
    assert isinstance(error, PromptError)
    assert "exceed the context of 100 tokens" in str(error)
    assert pool.stats.extra == before


def test_cancelling_reaches_the_engine(lasting: tuple[RayPool, Path], until: Until) -> None:
    asked, (pool, _) = request(1, n=16), lasting
    before = pool.stats.aborted_tokens

    async def cancelled() -> None:
        task = asyncio.create_task(pool.generate(asked))
        while not asked.ended:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    until(lambda: pool.stats.aborted_tokens > before)
    whole = asyncio.run(pool.generate(request(1, n=16)))
    assert all(whole.samples[i] == sample for i, sample in asked.ended.items())


def test_what_an_engine_raises_when_it_opens_is_raised(make: Make) -> None:
    with pytest.raises(InputError, match="delay=-1"), make(1, delay=-1.0):
        pass


def test_a_pool_that_the_cluster_has_no_room_for_says_what_it_needs(make: Make) -> None:
    wanted = Placement(num_gpus=1)
    with pytest.raises(
        EngineError, match=r"did not open within 0.5 s; it needs {'GPU': 1}, and the cluster has"
    ):
        make(1, placement=wanted, policy=Policy(opening=0.5)).__enter__()


def test_bundles_are_reserved_together_and_given_back(make: Make, until: Until) -> None:
    from ray.util import placement_group_table

    def states() -> set[str]:
        return {group["state"] for group in placement_group_table().values()}

    with make(1, placement=Placement(bundles=({"CPU": 1, "room": 1}, {"CPU": 1, "room": 1}))) as pool:
        assert states() >= {"CREATED"}
        asyncio.run(pool.generate(request(1)))
    until(lambda: states() == {"REMOVED"})


def test_a_replica_that_is_leaving_ends_with_the_pool(
    make: Make, troubles: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.util import placement_group_table

    # Neither would close, however long it had.
    monkeypatch.setattr(fleet, "CLOSING", 1.0)
    room = Placement(bundles=({"CPU": 1, "room": 1},))
    with make(2, placement=room, closing=3600.0) as pool:
        pool.remove("replica-0")
        until(lambda: bool(list(troubles.glob("closing-*"))))
    pids = [int(file.name.partition("-")[2]) for file in troubles.glob("opened-*")]
    assert len(pids) == 2
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
    until(lambda: {group["state"] for group in placement_group_table().values()} == {"REMOVED"})


def test_a_place_is_given_back_if_nothing_can_be_put_there(make: Make, until: Until) -> None:
    from ray.util import placement_group_table

    odd = Placement(bundles=({"GPU": 1.5},))
    with (
        pytest.raises(
            EngineError, match="no replica is left, 1 of at most 1 were replaced: replica-0 ValueError"
        ),
        make(1, placement=odd, policy=Policy(replacements=1)),
    ):
        pass
    assert placement_group_table(), "it was reserved"
    until(lambda: {group["state"] for group in placement_group_table().values()} == {"REMOVED"})


def test_a_pool_that_is_closed_while_it_opens_says_so(make: Make, until: Until) -> None:
    pool = make(1, placement=Placement(num_gpus=1))
    said: list[str] = []

    def opens() -> None:
        try:
            pool.__enter__()
        except EngineError as error:
            said.append(str(error))

    opening = threading.Thread(target=opens, daemon=True)
    opening.start()
    until(lambda: pool._fleet is not None)
    pool.close()
    opening.join(20)
    assert len(said) == 1 and "was closed while it was being opened; make a new pool" in said[0]
    with pytest.raises(EngineError, match="was opened before"), pool:
        pass


def test_who_waits_when_a_pool_closes_hears_of_it(make: Make, until: Until) -> None:
    """Whatever it waits for: an answer, a replica, or something else in the pool's loop."""
    pool, said = make(1, delay=3600.0), list[BaseException | object]()

    async def wait() -> None:
        waits = (
            pool.generate(request(1)),
            pool.generate(request(2)),
            pool._across(lambda fleet: asyncio.sleep(3600)),
        )
        said.extend(await asyncio.gather(*waits, return_exceptions=True))

    with pool:
        waiting = threading.Thread(target=lambda: asyncio.run(wait()), daemon=True)
        waiting.start()
        until(lambda: bool(pool.stats.requests))
    waiting.join(20)
    assert [type(error) for error in said] == [EngineError] * 3
    assert all("was closed while a request was running; make a new pool" in str(error) for error in said)


def test_a_closed_pool_says_so(make: Make) -> None:
    pool = make(1)
    with pytest.raises(EngineError, match="is not open"):
        asyncio.run(pool.generate(request(1)))
    with pool:
        pass
    pool.close()
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(pool.generate(request(1)))
    with pytest.raises(EngineError, match="was opened before"), pool:
        pass


def test_a_pool_refuses_parameters_as_the_engine_in_it_where_the_generator_is_made(cluster: Any) -> None:
    options: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    with RayPool(OpenAIEngine, options) as pool:
        for params in ({"top_k": 5}, {"ignore_eos": True}):
            with pytest.raises(UnsupportedError) as alone:
                OpenAIEngine(**options).generator(**params)
            with pytest.raises(UnsupportedError, match=re.escape(str(alone.value))):
                pool.generator(**params)
        assert pool.generator(frequency_penalty=0.5).params.frequency_penalty == 0.5


def test_a_pool_of_engines_that_declare_nothing_asks_nothing(lasting: tuple[RayPool, Path]) -> None:
    pool, _ = lasting
    assert pool.generator(temperature=99.0).params.temperature == 99.0


def test_likelihoods_of_a_pool_are_those_of_its_engine(
    lasting: tuple[RayPool, Path], alone: Callable[..., Any]
) -> None:
    start, (pool, _) = Sequence.of("?"), lasting
    texts = [start, start.extend("abc"), start.extend("d\n")]
    with alone() as engine:
        found = likelihoods(pool, texts)
        assert found == likelihoods(engine, texts) and all(one.end is not None for one in found)
