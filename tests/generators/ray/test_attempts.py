"""What a pool's engines begin and lose is charged where the call was made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Price
from metagen.errors import BudgetExhausted, EngineError, InputError
from metagen.generators.likelihood import alikelihoods
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.retries import Patience
from metagen.generators.ray import RayPool
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Asked, Reply, Server, answer, said

PROMPT = Sequence(Prompt("p", text="What is it?"))
MODEL = "tiny-0.1m"
UNIT = Price(prompt=1e6, generated=1e6)


@pytest.mark.parametrize("limit", [200, 2000])
def test_retries_of_an_engine_in_a_replica_ask_for_leave_and_are_charged(cluster: Any, limit: int) -> None:
    billed = 0

    async def handler(asked: Asked) -> Reply:
        nonlocal billed
        if asked.number % 6 == 1:
            return Reply(429)
        billed += 8
        return Reply(
            body=answer(said(f"text {asked.number}"), new=3), cut=None if asked.number % 2 == 0 else 10
        )

    journal = MemoryJournal()

    async def main(pool: RayPool) -> tuple[list[Sequence], Scope]:
        scope = Scope.root("p", budget=Budget(money=limit), journal=journal)
        samples = []
        try:
            samples = await pool.generator(max_tokens=20).generate(PROMPT, n=8, scope=scope)
        except (BudgetExhausted, EngineError):
            assert limit == 200
        return samples, scope

    with Server(handler).open() as server:
        options = {"model": "m", "base_url": server.url, "price": UNIT, "patience": Patience(attempts=40)}
        with RayPool(OpenAIEngine, options, replicas=1, address=cluster.address) as pool:
            samples, scope = asyncio.run(main(pool))
            attempts = len(server.asked)
    trace = scope.trace
    assert trace.lost > 0 and trace.physical.money is None
    assert trace.most.money is not None and billed <= trace.most.money <= limit
    assert len(journal.attempts("p")) == attempts
    free = [row for row in journal.attempts("p") if row.status == "free"]
    assert len(free) == sum(asked.number % 6 == 1 for asked in server.asked)
    assert len(samples) == 8 or limit == 200


def test_what_a_lost_replica_was_asked_is_charged_and_asked_anew(
    make: Callable[..., RayPool], troubles: Path
) -> None:
    (troubles / "exits").touch()

    async def main(pool: RayPool) -> Scope:
        scope = Scope.root("p", budget=Budget(calls=8, generated=80))
        await pool.generator(max_tokens=10).generate(PROMPT, n=4, scope=scope)
        return scope

    with make() as pool:
        scope = asyncio.run(main(pool))
        assert pool.stats.extra["failed_attempts"] == 1
    assert scope.usage.calls == 4 and scope.left().calls == 0
    assert (
        scope.trace.lost == 1 and scope.trace.physical.calls == 8 and scope.trace.physical.generated is None
    )


def test_a_reading_that_a_replica_was_lost_with_is_charged_and_asked_anew(
    make: Callable[..., RayPool], troubles: Path
) -> None:
    text = PROMPT.extend("ab")

    async def read(pool: RayPool, limit: int) -> Scope:
        scope = Scope.root("p", budget=Budget(prefilled=limit))
        await alikelihoods(pool, [text], scope=scope)
        return scope

    with make() as pool:
        once = len(pool.render(text) or ())
        for times in (1, 2):
            scope = asyncio.run(read(pool, 2 * once))
            assert (scope.usage.prefilled, scope.left().prefilled) == (once, (2 - times) * once)
            assert scope.trace.lost == times - 1 == pool.stats.extra["failed_attempts"]
            (troubles / "exits").touch()
        with pytest.raises(BudgetExhausted):
            asyncio.run(read(pool, 2 * once - 1))


@pytest.mark.parametrize(
    ("limit", "bad", "asked"),
    [(60, 10, 2), (600, 10, 3), (600, 400, 2)],
    ids=["no room", "read again", "refused behind an answer"],
)
def test_a_reading_by_an_engine_in_a_replica_is_durable_asks_for_leave_and_is_charged(
    cluster: Any, limit: int, bad: int, asked: int
) -> None:
    """A server that bills each reading, and cuts off all but every third; or one that refuses the second text."""
    billed, journal, texts = 0, MemoryJournal(), ["a=5+7=12"] if bad == 10 else ["a=5+7=12", "a=5+7=13"]

    async def main(pool: RayPool) -> Scope:
        scope = Scope.root("p", budget=Budget(money=limit), journal=journal)
        start = Sequence(Prompt("p", text="Q:a=5+7;a?\nS:\n"))
        with contextlib.suppress(BudgetExhausted, InputError):
            read = [start.extend(text) for text in texts]
            await alikelihoods(pool, read, scope=scope, price=UNIT, entropies=False)
        return scope

    with TorchEngine(MODEL, threads=1) as torch:
        model = serves(torch)

        async def handler(one: Asked) -> Reply:
            nonlocal billed
            assert sum(row.status == "open" for row in journal.attempts("p")) > (bad == 10 and one.number)
            if bad == 400 and one.number:
                return Reply(400, {"error": {"message": "the prompt is too long"}})
            billed += len(one.body["prompt"])
            return replace(await model(one), cut=None if bad == 400 or one.number % 3 == 2 else bad)

        with Server(handler).open() as server:
            options = {
                "model": MODEL, "base_url": server.url, "price": UNIT, "api": "completions", "dialect": "vllm",
                "tokenizer": MODEL, "patience": Patience(attempts=5),
            }  # fmt: skip
            with RayPool(OpenAIEngine, options, address=cluster.address) as pool:
                scope = asyncio.run(main(pool))
            assert len(server.asked) == asked
    left, most = scope.left().money, scope.trace.most
    assert (
        left is not None and most.prefilled is not None and most.cached is not None and scope.trace.lost > 0
    )
    assert billed <= most.prefilled + most.cached and left <= limit - billed
    assert left == limit - billed or bad == 400, "of both texts, where one was refused"
