"""What was begun and lost: what limits, results and the journal say of it, against servers that really bill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.attempts import Attempts, Lost, lost_attempts, physical
from metagen.budget import Account, Budget
from metagen.cache import Cache, CachedJournal
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Price, Usage
from metagen.errors import BudgetExhausted, EngineError, InputError
from metagen.generators.function import FunctionGenerator
from metagen.generators.likelihood import alikelihoods
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.openai.retries import Patience
from metagen.generators.torch import TorchEngine
from metagen.journal import ATTEMPT, Journal, MemoryJournal, SQLiteJournal
from metagen.runs.work.progress import Meter
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import BestOfN, MajorityVote
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.function import FunctionVerifier
from metagen.view.ledger import Ledger
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Asked, Reply, Server, always, answer, in_turn, said

PROMPT = Sequence(Prompt("p", text="What is it?"))
#: One unit of money for each token.
UNIT = Price(prompt=1e6, generated=1e6)
MOST = 20
MODEL = "tiny-0.1m"


class Biller:
    """A server that bills each answer it makes, and cuts off all but every eighth."""

    def __init__(self, every: int = 8) -> None:
        self.billed, self.answers, self.every = 0, 0, every

    async def __call__(self, asked: Asked) -> Reply:
        self.answers += 1
        n = asked.body.get("n", 1)
        self.billed += 5 + 3 * n
        body = answer(*(said(f"text {asked.number} {i}") for i in range(n)), new=3 * n)
        return Reply(body=body, cut=None if self.answers % self.every == 0 else 10)


def engine(server: Server, **options: Any) -> OpenAIEngine:
    given = {"base_url": server.url, "price": UNIT, "patience": Patience(attempts=4)} | options
    return OpenAIEngine("m", **given)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another without a pause."""
    monkeypatch.setattr("metagen.generators.openai.retries.FIRST_WAIT", 0.001)


def draw(
    server: Server, n: int, budget: Budget | None, journal: Journal | None = None, **options: Any
) -> tuple[list[Sequence], Scope]:
    async def main() -> tuple[list[Sequence], Scope]:
        with engine(server, **options) as opened:
            scope = Scope.root("p", budget=budget, journal=journal, label="B", began_by="B")
            try:
                samples = await opened.generator(max_tokens=MOST).generate(PROMPT, n=n, scope=scope)
            except (BudgetExhausted, EngineError, InputError):
                samples = []
            if isinstance(journal, CachedJournal):
                await journal.settle()
            return samples, scope

    return asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"n_per_request": 4}, {"stream": True}])
@pytest.mark.parametrize("limit", [200, 400, None])
def test_a_server_that_cuts_answers_off_bills_no_more_than_the_limit_and_the_result_says(
    limit: int | None, options: dict[str, Any]
) -> None:
    biller = Biller()
    with Server(biller).open() as server:
        _, scope = draw(server, 8, Budget(money=limit) if limit else None, **options)
    trace = scope.trace
    assert trace.lost > 0
    assert trace.physical.money is None, "what was cut off is unknown"
    assert trace.most.money is not None and biller.billed <= trace.most.money
    if limit:
        assert trace.most.money <= limit and (scope.left().money or 0) >= 0


def test_a_result_tells_logical_and_physical_usage_side_by_side() -> None:
    biller = Biller(every=2)
    with Server(biller).open() as server, engine(server) as opened:
        vote = MajorityVote(opened.generator(max_tokens=MOST), n=4, answer=ArithmeticTask().answer)
        result = vote.solve("What is it?", budget=Budget(money=2000))
    assert result.usage.calls == 4 and result.physical.calls == biller.answers == 4 + result.lost
    assert result.usage.money == 4 * (5 + 3) and result.physical.money is None
    assert result.most.money is not None and result.most.money >= biller.billed
    assert (
        f"{result.lost} lost" in repr(result) and f"at most, with {result.lost} lost" in result._repr_html_()
    )


@pytest.mark.parametrize(("refusal", "money"), [(Reply(429), 8), (Reply(503), 8), (Reply(400, b"no"), 0)])
def test_what_is_known_to_be_unbilled_costs_nothing(refusal: Reply, money: int) -> None:
    """A refusal that passes is tried again; one that stays is the user's to mend."""
    with Server(in_turn(refusal, Reply(body=answer()))).open() as server:
        samples, scope = draw(server, 1, Budget(money=90))
    assert len(samples) == bool(money)
    assert (scope.trace.lost, scope.trace.physical.money, scope.left().money) == (0, money, 90 - money)


def test_nobody_is_charged_for_a_server_that_is_not_there() -> None:
    with Server(always(Reply())).open() as server:
        pass
    _, scope = draw(server, 1, Budget(money=300))
    assert scope.trace.rows == () and scope.left().money == 300


def test_fewer_choices_than_were_asked_for_are_no_loss() -> None:
    async def handler(asked: Asked) -> Reply:
        return Reply(body=answer(said(f"text {asked.number}"), new=3))

    with (
        Server(handler).open() as server,
        pytest.warns(UserWarning, match="one sample or reading at a time"),
    ):
        samples, scope = draw(server, 4, Budget(money=400), n_per_request=4)
    assert len(samples) == len(server.asked) == 4
    assert scope.trace.lost == 0 and scope.trace.physical.money == 4 * (5 + 3)


def test_a_shared_limit_of_calls_starts_no_more_than_it_says_though_a_third_of_the_solves_are_cancelled() -> (
    None
):
    chance = random.Random(7)
    started = 0

    async def main() -> int:
        nonlocal started
        shared = Account(Budget(calls=50), owner="all")
        under_way = asyncio.Event()

        async def write(prefix: Sequence, seed: int, index: int) -> str:
            nonlocal started
            started += 1
            under_way.set()
            for _ in range(3):
                await asyncio.sleep(0)
            return "text"

        generator, cancelled = FunctionGenerator(write), 0
        for k in range(100):
            under_way.clear()
            scope = Scope.root(f"p{k}", account=shared)
            work = asyncio.ensure_future(generator.generate(PROMPT, n=2, scope=scope))
            if chance.random() < 0.3:
                await asyncio.wait(
                    [work, asyncio.ensure_future(under_way.wait())], return_when="FIRST_COMPLETED"
                )
                cancelled += work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        assert shared.spent[2] == 50
        return cancelled

    assert asyncio.run(main()) > 5 and started <= 50


def test_what_was_never_sent_is_free() -> None:
    """One request is under way, the others wait for a place when all are cancelled."""

    arrived = threading.Event()

    async def held(asked: Asked) -> Reply:
        arrived.set()
        return Reply(body=answer(), delay=60)

    async def main(server: Server) -> Scope:
        with engine(server, concurrency=Concurrency(start=1, most=1)) as opened:
            scope = Scope.root("p", budget=Budget(calls=10))
            work = asyncio.ensure_future(opened.generator(max_tokens=MOST).generate(PROMPT, n=6, scope=scope))
            await asyncio.to_thread(arrived.wait)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return scope

    with Server(held).open() as server:
        scope = asyncio.run(main(server))
    assert len(server.asked) == 1 and scope.left().calls == 9
    assert scope.trace.lost == 1 and scope.trace.physical.calls == 1


def test_a_verifier_that_fails_after_it_has_begun_is_charged() -> None:
    def judge(sequence: Sequence) -> float:
        raise ConnectionError("gone")

    async def main() -> Scope:
        scope = Scope.root("p", budget=Budget(calls=5))
        with pytest.raises(InputError, match="ConnectionError"):
            await FunctionVerifier(judge).score([PROMPT.extend("a"), PROMPT.extend("b")], scope=scope)
        return scope

    scope = asyncio.run(main())
    assert scope.left().calls == 3 and scope.trace.physical.calls == 2


def test_attempts_that_are_refused_for_want_of_room_are_refused_again_at_a_replay() -> None:
    """What had ended is returned both times; the replay asks nobody."""
    journal = MemoryJournal()
    with Server(Biller(every=3)).open() as server:
        first, scope = draw(server, 8, Budget(money=400), journal)
        asked = len(server.asked)
        again, replay = draw(server, 8, Budget(money=400), journal)
        assert len(server.asked) == asked
    assert [s.text for s in again] == [s.text for s in first] and 0 < len(first) < 8
    assert scope.exhausted and replay.exhausted
    assert replay.trace.lost == scope.trace.lost and replay.left().money == scope.left().money
    assert replay.trace.most == scope.trace.most


PROGRAM = """
import asyncio
from metagen.budget import Budget
from metagen.cost import Price
from metagen.generators.openai import OpenAIEngine
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

async def main():
    with SQLiteJournal({path!r}, seed=0) as journal, OpenAIEngine(
        "m", base_url={url!r}, price=Price(prompt=1e6, generated=1e6)
    ) as engine:
        scope = Scope.root("p", journal=journal, budget=Budget(money=2000), label="B")
        await engine.generator(max_tokens={most}).generate(
            Sequence(Prompt("p", text="What is it?")), n=8, scope=scope
        )

asyncio.run(main())
"""


def test_a_kill_in_the_middle_of_requests_is_charged_by_the_run_that_resumes(tmp_path: Path) -> None:
    path, holds, billed = tmp_path / "j.sqlite", True, 0

    async def handler(asked: Asked) -> Reply:
        nonlocal billed
        billed += 5 + 3
        if holds and asked.number >= 3:
            await asyncio.sleep(3600)
        return Reply(body=answer(said(f"text {asked.number}"), new=3))

    with Server(handler).open() as server:
        program = PROGRAM.format(path=str(path), url=server.url, most=MOST)
        process = subprocess.Popen([sys.executable, "-c", program], env=os.environ)
        while not (len(server.asked) == 8 and path.exists() and _count(path) == 3):
            assert process.poll() is None, "the program ended by itself"
            time.sleep(0.02)  # another process tells nobody
        process.send_signal(signal.SIGKILL)
        process.wait()
        holds = False
        with SQLiteJournal(path, seed=0) as journal:
            samples, scope = draw(server, 8, Budget(money=2000), journal)
            assert len(samples) == 8 and len(server.asked) == 13
            trace = scope.trace
            lost = [row for row in trace.rows if isinstance(row, Lost)]
            assert len(lost) == 5 and trace.physical.calls == 13
            assert trace.physical.money is None and billed == 13 * 8 <= (trace.most.money or 0)
            assert scope.left().money == 2000 - (trace.most.money or 0)
            _, again = draw(server, 8, Budget(money=2000), journal)
            assert again.trace.most == trace.most and again.left().money == scope.left().money
            _, free = draw(server, 8, None, journal)
            assert free.trace.lost == 5, "without a limit they are shown all the same"


def _count(path: Path) -> int:
    with SQLiteJournal(path, read_only=True) as journal:
        return journal.count()


def test_an_attempt_is_recorded_before_the_request_is_sent_and_is_no_result() -> None:
    journal = MemoryJournal()
    seen: list[int] = []

    async def handler(asked: Asked) -> Reply:
        seen.append(len(journal.attempts("p")))
        return Reply(body=answer())

    with Server(handler).open() as server:
        draw(server, 1, None, journal)
    assert seen == [1] and ATTEMPT in journal.limits
    assert [row.kind for row in journal.of_problem("p")] == ["generate"]
    (attempt,) = journal.attempts("p")
    assert attempt.status == "open" and attempt.physical.money == 16 + len(b"What is it?") + MOST


def test_each_account_is_charged_once_for_what_was_lost_before(tmp_path: Path) -> None:
    journal = MemoryJournal()
    with Server(Biller(every=99)).open() as server:
        draw(server, 1, None, journal, patience=Patience(attempts=2))
        lost = len(journal.attempts("p"))
        assert lost == 2

        async def main() -> list[float | None]:
            shared = Account(Budget(money=1000), owner="all")
            left = []
            for _ in range(2):
                scope = Scope.root("p", account=shared, journal=journal)
                nested = scope.child("x", budget=Budget(calls=5))
                await FunctionGenerator(lambda prefix, seed, index: "text").generate(PROMPT, scope=nested)
                left += [scope.left().money, nested.left().calls]
            return left

        first, *others = asyncio.run(main())
    assert first is not None and first < 1000 and others == [4, first, 4]


def test_what_was_lost_before_is_shown_once_though_nothing_limits_several_calls() -> None:
    journal = MemoryJournal()

    async def main() -> list[int]:
        scope, shown = Scope.root("p", journal=journal, label="B"), []
        for name in "xy":
            child = scope.child(name)
            await FunctionGenerator(lambda prefix, seed, index: "text").generate(PROMPT, scope=child)
            shown.append(scope.trace.lost)
        return shown

    with Server(Biller(every=99)).open() as server:
        _, scope = draw(server, 1, None, journal, patience=Patience(attempts=2))
    assert asyncio.run(main()) == [scope.trace.lost] * 2 != [0, 0]


@pytest.mark.parametrize("limit", [Budget(money=1000), None])
def test_what_another_configuration_lost_is_charged_only_to_limits_that_both_have(
    limit: Budget | None,
) -> None:
    journal = MemoryJournal()

    async def ask(label: str) -> tuple[Scope, Account]:
        shared = Account(Budget(money=1000), owner="all")
        scope = Scope.root("p", journal=journal, label=label, began_by=label, budget=limit, account=shared)
        await FunctionGenerator(lambda prefix, seed, index: "text").generate(PROMPT, scope=scope)
        return scope, shared

    with Server(Biller(every=99)).open() as server:
        _, first = draw(server, 1, None, journal, patience=Patience(attempts=2))
    own, all_of_own = asyncio.run(ask("B"))
    other, all_of_other = asyncio.run(ask("C"))
    assert (own.trace.lost, other.trace.lost) == (first.trace.lost, 0) and first.trace.lost == 2
    assert all_of_own.spent == all_of_other.spent and all_of_own.spent[-1] > 0
    if limit:
        assert own._place.account is not None and other._place.account is not None
        assert own._place.account.spent == all_of_own.spent and not any(other._place.account.spent[3:])


def test_in_python_what_was_lost_is_charged_whatever_a_strategy_is_called() -> None:
    """Its fingerprint may be another one in each process."""
    journal = MemoryJournal()
    with Server(Biller(every=99)).open() as server:
        draw(server, 1, None, journal, patience=Patience(attempts=2))
    writes = FunctionGenerator(lambda prefix, seed, index: "text")

    def left(length: int) -> float | None:
        judge = FunctionVerifier(lambda s: min(1.0, len(s.text) / length))
        result = BestOfN(writes, 1, verifier=judge).solve(
            PROMPT.prompt, journal=journal, budget={"money": 1000}
        )
        return result.trace.lost

    assert left(100) == left(200) != 0


def test_an_attempt_of_an_earlier_version_is_charged_to_whoever_asks() -> None:
    journal = MemoryJournal()
    with Server(Biller(every=99)).open() as server:
        draw(server, 1, None, journal, patience=Patience(attempts=2))
        untold = [replace(row, payload=None) for row in journal.attempts("p")]
        asyncio.run(journal.record(untold))
    assert untold and len(lost_attempts(journal, "p")) == 2

    async def other() -> Scope:
        scope = Scope.root("p", journal=journal, label="C", budget=Budget(money=1000))
        await FunctionGenerator(lambda prefix, seed, index: "text").generate(PROMPT, scope=scope)
        return scope

    scope = asyncio.run(other())
    assert scope.trace.lost == 2 and (scope.left().money or 0) < 1000


def test_what_another_run_made_of_a_lost_item_leaves_it_lost(tmp_path: Path) -> None:
    """The item comes from a cache into the journal; a process that looks later charges the same."""
    path, data = tmp_path / "own.sqlite", b"x" * 16
    with Server(Biller(every=2)).open() as server:
        with SQLiteJournal(path, seed=0) as own:
            own.bind("p", data)
            draw(server, 1, None, own, patience=Patience(attempts=1))
            (lost,) = lost_attempts(own, "p")
        with SQLiteJournal(tmp_path / "other.sqlite", seed=0) as other, Cache(tmp_path / "cache", 0) as cache:
            other.bind("p", data)
            draw(server, 1, None, CachedJournal(other, cache, Meter()))
            assert len(server.asked) == 2
        with SQLiteJournal(path, seed=0) as own, Cache(tmp_path / "cache", 0) as cache:
            count = Meter()
            journal = CachedJournal(own, cache, count)
            samples, first = draw(server, 1, Budget(money=1000), journal)
            assert len(samples) == count.cached == 1 and len(server.asked) == 2
            again = draw(server, 1, Budget(money=1000), journal)[1]
            assert lost_attempts(own, "p") == [lost] and own.count() == 1
            book = Ledger()
            book.read(own)
            assert len(book.attempts) == 1 and not book.seconds, "as a viewer sees it"
    assert first.trace.lost == again.trace.lost == 1
    assert first.left() == again.left()


@pytest.mark.parametrize("given", [Usage(calls=1), Usage()])
def test_what_a_maker_does_not_tell_is_unknown(given: Usage) -> None:
    known = physical(given, Usage(generated=5, flops=None, money=2.0, calls=1, seconds=1.5), False)
    assert known.calls == 1
    assert (known.generated, known.flops, known.money) == ((0, 0, 0) if given.calls else (None, None, None))


@pytest.mark.parametrize(("told", "known"), [(7.0, 7.0), (None, None), (0, None)])
def test_of_tokens_that_a_maker_tells_work_and_money_are_not_nothing(
    told: float | None, known: float | None
) -> None:
    logical = Usage(generated=5, flops=9.0, flops_2n=9.0, money=2.0, calls=1)
    found = physical(Usage(generated=5, calls=1, flops=told, flops_2n=told, money=told), logical, False)
    assert (found.flops, found.flops_2n, found.money) == (known, known, known)


@pytest.mark.parametrize("limit", [60, 600, None])
def test_a_reading_that_is_cut_off_is_charged_and_asks_for_leave_to_be_read_again(limit: int | None) -> None:
    """A server that bills each reading, and cuts off all but every third."""
    billed, journal = 0, MemoryJournal()

    async def main(server: Server) -> Scope:
        options = {"api": "completions", "dialect": "vllm", "tokenizer": MODEL}
        with engine(server, **options) as opened:
            scope = Scope.root("p", budget=Budget(money=limit) if limit else None, journal=journal)
            with contextlib.suppress(BudgetExhausted):
                asked = [Sequence(Prompt("p", text="Q:a=5+7;a?\nS:\n")).extend("a=5+7=12")]
                await alikelihoods(opened, asked, scope=scope, price=UNIT, entropies=False)
            return scope

    with TorchEngine(MODEL, threads=1) as torch:
        model = serves(torch)

        async def handler(asked: Asked) -> Reply:
            nonlocal billed
            billed += len(asked.body["prompt"])
            return replace(await model(asked), cut=None if asked.number % 3 == 2 else 10)

        with Server(handler).open() as server:
            scope = asyncio.run(main(server))
            attempts = len(server.asked)
    trace = scope.trace
    assert attempts == (2 if limit == 60 else 3) and trace.lost == 2
    most = trace.most
    assert trace.physical.prefilled is None and most.prefilled is not None and most.cached is not None
    assert billed <= most.prefilled + most.cached
    assert len(journal.attempts("p")) == attempts
    if limit:
        assert scope.left().money == limit - billed


def test_nothing_begins_at_a_call_that_has_ended() -> None:
    """What an engine leaves running would otherwise hold a reservation that nobody hands back."""
    kept: list[Attempts] = []

    async def main() -> None:
        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            assert ended.attempts is not None
            kept.append(ended.attempts)
            return [Outcome({"text": "x"}, Usage())]

        scope = Scope.root("p", budget=Budget(calls=5))
        await scope.call(Request("generate", "g", (Item(b""),)), execute, lambda p, c: Usage())
        with pytest.raises(EngineError, match="has ended"):
            await kept[0].begin([0], Usage(calls=1))
        assert (
            scope.left().calls == 4
            and scope._place.account is not None
            and not any(scope._place.account._reserved)
        )

    asyncio.run(main())


def test_a_retry_beside_others_takes_the_room_that_is_left_and_gives_back_what_it_did_not_use() -> None:
    async def main() -> None:
        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            attempts = ended.attempts
            assert attempts is not None
            attempts.apart()
            await attempts.begin([0], worst)
            (await attempts.begin([0], worst)).free()
            assert scope.left().generated == 60, "20 for the first attempt, 20 for the second"
            await attempts.begin([0], worst)
            assert scope.left().generated == 60, "the second one's room serves the third"
            return [Outcome({"text": "x"}, Usage(generated=5))]

        worst = Usage(generated=20, calls=1)
        scope = Scope.root("p", budget=Budget(generated=100))
        await scope.call(Request("generate", "g", (Item(b""),)), execute, lambda p, c: Usage(generated=20))
        assert scope.left().generated == 100 - 5 - 20 and scope.trace.lost == 1
        assert (scope.usage.generated, scope.trace.most.generated) == (5, None)

    asyncio.run(main())
