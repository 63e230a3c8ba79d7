"""What has ended is on disk before its call returns: SIGKILL in the middle of a call loses none of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.generators.engine import Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai import OpenAIEngine
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal, Row, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing.asking import seeds
from metagen.verifiers.function import FunctionVerifier
from tests.generators.openai.serving import Asked, Reply, Server, answer, said

PROMPT = Sequence(Prompt("p", text="What is it?"))
#: A program that asks for n samples of `generator` and never gets all of them.
PROGRAM = """
import asyncio, sys
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai import OpenAIEngine
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

async def held(prefix, seed, index):
    if index % 2:
        await asyncio.sleep(3600)
    return f"text {{index}}"

async def main():
    with SQLiteJournal({path!r}, seed=0) as journal:
        {work}
        prefix, scope = Sequence(Prompt("p", text="What is it?")), Scope.root("p", journal=journal)
        await generator.generate(prefix, n={n}, scope=scope)

asyncio.run(main())
"""
FUNCTION = "generator = FunctionGenerator(held, name='held')"


def served(server: Server, **options: Any) -> str:
    given = {"base_url": server.url, **options}
    return f"generator = OpenAIEngine('m', **{given!r}).__enter__().generator(max_tokens=16)"


def killed(path: Path, work: str, n: int, ended: int, program: str = PROGRAM) -> None:
    """Run the program until so many samples are on disk, and kill it."""
    program = program.format(path=str(path), work=work, n=n)
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ)
    try:
        for _ in range(2400):
            if count(path) >= ended:
                break
            assert process.poll() is None, "the program ended by itself"
            time.sleep(0.05)  # another process tells nobody
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert count(path) == ended


def count(path: Path) -> int:
    if not path.exists():
        return 0
    with SQLiteJournal(path, read_only=True) as journal:
        return journal.count()


@contextmanager
def resumed(path: Path) -> Iterator[Scope]:
    with SQLiteJournal(path, seed=0) as journal:
        yield Scope.root("p", journal=journal)


def test_a_kill_within_a_call_of_functions_loses_nothing_that_had_ended(tmp_path: Path) -> None:
    path, again = tmp_path / "j.sqlite", []
    killed(path, FUNCTION, 20, 10)

    def function(prefix: Sequence, seed: int, index: int) -> str:
        again.append(index)
        return f"text {index}"

    async def main() -> list[Sequence]:
        with resumed(path) as scope:
            return await FunctionGenerator(function, name="held").generate(PROMPT, n=20, scope=scope)

    assert [s.text for s in asyncio.run(main())] == [f"text {i}" for i in range(20)]
    assert sorted(again) == list(range(1, 20, 2)), "what was on disk is not asked for again"


@pytest.mark.parametrize(
    ("options", "n", "first"),
    [({}, 16, 10), ({"dialect": "vllm", "api": "chat"}, 300, 128), ({"stream": True}, 16, 10)],
)
def test_a_kill_within_a_call_behind_http_loses_nothing_that_was_answered(
    options: dict[str, Any], n: int, first: int, tmp_path: Path
) -> None:
    path = tmp_path / "j.sqlite"
    given, holds = 0, True

    async def handler(asked: Asked) -> Reply:
        nonlocal given
        each = asked.body.get("n", 1)
        if holds and given >= first:
            await asyncio.sleep(3600)
        start, given = given, given + each
        told = {"token_ids": [1, 2]} if asked.body.get("return_token_ids") else {}
        choices = [said(f"text {start + i}", index=i, **told) for i in range(each)]
        return Reply(body=answer(*choices, new=2 * each))

    with Server(handler).open() as server:
        killed(path, served(server, **options), n, first)
        holds = False

        async def main() -> list[Sequence]:
            with (
                resumed(path) as scope,
                OpenAIEngine("m", base_url=server.url, **options) as engine,
            ):
                return await engine.generator(max_tokens=16).generate(PROMPT, n=n, scope=scope)

        samples = asyncio.run(main())
    assert len({s.text for s in samples}) == n and given == n, "what was answered is not asked for again"


def test_a_kill_within_a_call_of_scores_loses_none_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    program = PROGRAM.replace(
        "await generator.generate(prefix, n={n}, scope=scope)",
        "await verifier.score([Sequence(prefix.prompt, str(i)) for i in range({n})], scope=scope)",
    ).replace(
        "import FunctionGenerator",
        "import FunctionGenerator\nfrom metagen.verifiers.function import FunctionVerifier",
    )
    work = """
        async def judge(sequence):
            if int(sequence.text) % 2:
                await asyncio.sleep(3600)
            return 0.5
        verifier = FunctionVerifier(judge, name="judge")
    """
    killed(path, work, 12, 6, program)
    again = []

    async def judge(sequence: Sequence) -> float:
        again.append(int(sequence.text))
        return 0.5

    async def main() -> list[Score]:
        with resumed(path) as scope:
            candidates = [Sequence(PROMPT.prompt, str(i)) for i in range(12)]
            return await FunctionVerifier(judge, name="judge").score(candidates, scope=scope)

    assert [s.value for s in asyncio.run(main())] == [0.5] * 12
    assert sorted(again) == list(range(1, 12, 2))


class Steps(MemoryJournal):
    """Notes how many rows came at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def record(self, rows: Any) -> None:
        self.sizes.append(len(rows))
        await super().record(rows)


def rows(engine: Any, journal: Steps, n: int = 24) -> list[Row]:
    async def main() -> list[Row]:
        scope = Scope.root("p", journal=journal)
        await engine.generator(max_tokens=60).generate(PROMPT, n=n, scope=scope)
        return journal.of_problem("p")

    return asyncio.run(main())


def test_samples_of_a_batch_are_recorded_as_they_end_and_cost_what_they_would_together() -> None:
    """The prefix is paid for once, by the first sample; physically it stands with the last ones."""
    journal = Steps()
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        made = rows(engine, journal)
        length = len(engine.render(PROMPT) or ())
    assert len(made) == 24 and len(journal.sizes) > 4, "they end at different lengths"
    by_number = {row.index: row for row in made}
    assert by_number[0].usage.prefilled == length and by_number[0].usage.cached == 0
    assert {row.usage.prefilled for row in made if row.index} == {0}
    assert {row.usage.cached for row in made if row.index} == {length}
    whole = Usage.sum(row.physical for row in made)
    assert whole.prefilled == length and whole.calls == 24


def test_an_engine_tells_of_each_sample_but_the_last_before_it_answers() -> None:
    engine = EnumerableEngine(("a", "b", "."), lambda prompt, done: (0.5, 0.2, 0.3), name="coin", delay=1e-4)
    heard: dict[int, Sample] = {}
    request = GenerateRequest(
        PROMPT, seeds(12), SamplingParams(), 20, heard=lambda i, sample, tokens: heard.update({i: sample})
    )

    async def ask() -> Generated:
        return await engine.generate(request)

    with engine:
        made = asyncio.run(ask())
    assert len(heard) == 11 and all(made.samples[i] == sample for i, sample in heard.items())
    assert request.ended == dict(enumerate(made.samples))


class Held(EnumerableEngine):
    """Tells of all samples but the first, sets `told`, and goes on with that for an hour, unless it is let go."""

    holds, share = True, None
    told: asyncio.Event

    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(replace(request, heard=None, ended={}))
        if self.holds:
            for i, sample in enumerate(answer.samples[1:], 1):
                request.note(i, sample, share=self.share)
            self.told.set()
            await asyncio.sleep(3600)
        return answer


@pytest.mark.parametrize("share", [None, (1, 0, 1, 1)])
@pytest.mark.parametrize("late", [True, False])
def test_after_a_deadline_or_a_cancellation_the_prefix_is_paid_for_once(late: bool, share: Any) -> None:
    """After a deadline by the first sample that ended; else by the first sample, when somebody comes back for it."""
    journal = MemoryJournal()

    async def ask() -> list[int | None]:
        engine.told = asyncio.Event()
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=1.0) if late else None)
        work = asyncio.create_task(engine.generator(max_tokens=8).generate(PROMPT, n=4, scope=scope))
        if engine.holds and not late:
            await engine.told.wait()
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        rows = [row.usage for row in journal.of_problem("p") if row.status == "complete"]
        assert scope.usage.prefilled == sum(usage.prefilled or 0 for usage in rows)
        return [usage.prefilled for usage in rows]

    with Held(("a", "b", "."), lambda prompt, done: (0.5, 0.2, 0.3), name="held") as engine:
        engine.share, length = share, len(engine.render(PROMPT) or ())
        assert asyncio.run(ask()) == ([length, 0, 0] if late else [0, 0, 0])
        engine.holds = late
        assert asyncio.run(ask()) == ([length, 0, 0] if late else [0, 0, 0, length])


class Served(Held):
    """An engine without ids that counts the prefix with each sample, and is cut off before it answers."""

    blind = True

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        return None if self.blind else super().render(prefix)

    async def generate(self, request: GenerateRequest) -> Generated:
        self.blind = False
        answer = await EnumerableEngine.generate(self, replace(request, heard=None, ended={}))
        self.blind = True
        for i, sample in enumerate(answer.samples):
            request.note(i, sample, 5)
        self.told.set()
        await asyncio.sleep(3600)
        return answer


@pytest.mark.parametrize("n", [1, 4])
def test_what_was_told_of_the_prefix_is_kept_of_the_last_sample_too(n: int) -> None:
    journal = MemoryJournal()

    async def ask() -> None:
        engine.told = asyncio.Event()
        scope = Scope.root("p", journal=journal)
        work = asyncio.create_task(engine.generator(max_tokens=8).generate(PROMPT, n=n, scope=scope))
        await engine.told.wait()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    with Served(("a", "b", "."), lambda prompt, done: (0.5, 0.2, 0.3), name="served") as engine:
        asyncio.run(ask())
    usages = [row.usage for row in journal.of_problem("p") if row.status == "complete"]
    assert [(usage.prefilled, usage.cached) for usage in usages] == [(5, 0)] + [(0, 5)] * (n - 1)


class Samples(MemoryJournal):
    """Sets `there` when it holds so many samples."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.enough, self.count, self.there = enough, 0, asyncio.Event()

    async def record(self, rows: Any) -> None:
        await super().record(rows)
        self.count += sum(row.limit is None for row in rows)
        if self.count >= self.enough:
            self.there.set()


class Together(EnumerableEngine):
    """Tells of samples of two requests in one moment, as engines do that decode them in one batch."""

    bills = False
    go: asyncio.Event

    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(replace(request, heard=None, ended={}))
        self.asked.append((request, answer))
        if len(self.asked) == 2:
            for told, of in self.asked:
                for i, sample in enumerate(of.samples[:-1]):
                    told.note(i, sample)
        await self.go.wait()
        return answer

    asked: list[tuple[GenerateRequest, Generated]]


@pytest.mark.parametrize("bills", [False, True])
def test_what_nobody_bills_wakes_its_loop_once_for_all_calls(bills: bool) -> None:
    journal, woken = Samples(6), list[Any]()

    async def ask() -> None:
        engine.bills, engine.go, engine.asked = bills, asyncio.Event(), []
        loop: Any = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def noted(*args: Any, **named: Any) -> Any:
            woken.append(args)
            return wake(*args, **named)

        loop.call_soon_threadsafe = noted
        scopes = [Scope.root(f"p{i}", journal=journal) for i in range(2)]
        generator = engine.generator(max_tokens=8)
        calls = [asyncio.create_task(generator.generate(PROMPT, n=4, scope=scope)) for scope in scopes]
        await journal.there.wait()
        engine.go.set()
        await asyncio.gather(*calls)

    with Together(("a", "b", "."), lambda prompt, done: (0.5, 0.2, 0.3), name="turn") as engine:
        asyncio.run(asyncio.wait_for(ask(), 60))
    assert journal.count == 8 and len(woken) == (2 if bills else 1)
