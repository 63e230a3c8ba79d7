"""Accounts: never overshot, nothing lost, nobody starves, nothing deadlocks."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from metagen.attempts import Lost
from metagen.budget import DIMENSIONS, SLACK, ZERO, Account, Amounts, Budget, Grant, Turn, Worst
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, InputError, UnsupportedError
from metagen.scope import Scope

EXACT = {"generated", "prefilled", "calls"}


def linear(each: Amounts) -> Worst:
    """k items of this weight; a cap replaces the generated tokens and scales FLOPs and money with them."""

    def worst(k: int, cap: int | None) -> Amounts:
        generated, prefilled, calls, flops, money = each
        if cap is not None:
            share = cap / generated if generated else 0.0
            generated, flops, money = float(cap), flops * share, money * share
        return (k * generated, k * prefilled, k * calls, k * flops, k * money)

    return worst


def check_limits(account: Account) -> None:
    for i, dimension in enumerate(DIMENSIONS):
        held = account.spent[i] + account._reserved[i]
        limit = account._limits[i]
        slack = 0.0 if dimension in EXACT or limit == math.inf else 2 * SLACK * limit
        assert held <= limit + slack, (account.owner, dimension, held, limit)


@dataclass(eq=False)
class Call:
    """A caller of the model: what it asks for, at most `batch` items at a time, and what became of it."""

    order: tuple[int, ...]
    account: Account
    each: Amounts
    left: int
    batch: int
    most: int | None
    turn: Turn = field(init=False)
    task: asyncio.Task[Grant] = field(init=False)

    def __post_init__(self) -> None:
        self.turn = Turn(self.account, self.order)

    def start(self) -> None:
        items, more = min(self.batch, self.left), self.left > self.batch
        work = self.turn.reserve(linear(self.each), items, self.most, more=more)
        self.task = asyncio.get_event_loop().create_task(work)

    def misfits(self, account: Account) -> bool:
        """Whether one whole item does not fit what this account has free."""
        need = linear(self.each)(1, None)
        return any(
            need[i] - (account._limits[i] - account.spent[i] - account._reserved[i]) > SLACK * need[i]
            for i in range(len(DIMENSIONS))
        )


limits = st.none() | st.integers(0, 60)
budgets = st.builds(
    Budget,
    generated=limits,
    prefilled=limits,
    calls=limits,
    flops=limits.map(lambda x: x and x * 0.1),
    money=limits,
)


class Accounts(RuleBasedStateMachine):
    """Callers come, are granted, refused or made to wait, spend at most their grant, ask for more, and go; some are
    cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.waiting: list[Call] = []
        self.holding: list[tuple[Call, Grant]] = []
        self.resting: list[tuple[Call, Grant]] = []
        self.used: dict[int, Amounts] = {}
        self.number = 0

    @initialize(root=budgets, parents=st.lists(st.tuples(st.integers(0, 9), budgets), max_size=5))
    def plant(self, root: Budget, parents: list[tuple[int, Budget]]) -> None:
        self.accounts = [Account(root, owner="0")]
        for number, (parent, budget) in enumerate(parents, 1):
            self.accounts.append(Account(budget, self.accounts[parent % number], str(number)))
        self.used = {id(a): ZERO for a in self.accounts}

    @rule(
        place=st.integers(0, 3), which=st.integers(0, 9), items=st.integers(1, 5), batch=st.integers(1, 5),
        most=st.none() | st.integers(1, 20), prefilled=st.integers(0, 10), flops=st.integers(0, 20),
    )  # fmt: skip
    def ask(
        self, place: int, which: int, items: int, batch: int, most: int | None, prefilled: int, flops: int
    ) -> None:
        self.number += 1
        each = (float(most or 5), float(prefilled), 1.0, flops * 0.1, flops / 7)
        account = self.accounts[which % len(self.accounts)]
        call = Call((place, self.number), account, each, items, batch, most)
        call.start()
        self.waiting.append(call)
        self.settle_down()

    @precondition(lambda self: self.holding)
    @rule(which=st.integers(0, 99), share=st.floats(0.0, 1.0), again=st.booleans())
    def end(self, which: int, share: float, again: bool) -> None:
        call, grant = self.holding.pop(which % len(self.holding))
        used: Amounts = tuple(math.floor(share * x) if d in EXACT else share * x
                              for d, x in zip(DIMENSIONS, grant.reserved, strict=True))  # type: ignore[assignment]  # fmt: skip
        for account in call.account.path:
            self.used[id(account)] = tuple(map(sum, zip(self.used[id(account)], used, strict=True)))  # type: ignore[assignment]
        call.account.settle(grant, used)
        if again and call.left:
            call.start()
            self.waiting.append(call)
        else:
            call.turn.leave()
        self.settle_down()

    @precondition(lambda self: self.holding)
    @rule(which=st.integers(0, 99))
    def give_back(self, which: int) -> None:
        call, grant = self.holding.pop(which % len(self.holding))
        call.account.release(grant)
        call.turn.leave()
        self.settle_down()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        self.waiting.pop(which % len(self.waiting)).task.cancel()
        self.settle_down()

    @precondition(lambda self: self.waiting and self.holding)
    @rule(which=st.integers(0, 99), held=st.integers(0, 99))
    def cancel_while_granted(self, which: int, held: int) -> None:
        """The room is given in the very moment in which the caller is cancelled: it must come back."""
        call, grant = self.holding.pop(held % len(self.holding))
        call.account.release(grant)
        call.turn.leave()
        self.waiting.pop(which % len(self.waiting)).task.cancel()
        self.settle_down()

    def settle_down(self) -> None:
        """Let the loop run until nothing moves, and sort the callers by what became of them."""

        async def turns() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for call in [c for c in self.waiting if c.task.done()]:
            self.waiting.remove(call)
            error = call.task.exception()
            if error is None:
                self.granted(call, call.task.result())
            else:
                self.refused(call, error)
        self.resting = [(c, g) for c, g in self.holding if c.left]

    def granted(self, call: Call, grant: Grant) -> None:
        assert 1 <= grant.count <= min(call.batch, call.left)
        call.left -= grant.count
        for earlier in (c for c, g in self.resting if (c, g) in self.holding and c.order < call.order):
            assert earlier.turn._rest not in call.account.path, (
                "a later call overtook the rest of an earlier one"
            )
        if grant.cap is not None:
            assert grant.count == 1 and call.most is not None and 1 <= grant.cap < call.most
            assert grant.account in call.account.path and grant.dimension in DIMENSIONS
            # The limit that is named is the one that binds: one token more would not fit it.
            more = linear(call.each)(1, grant.cap + 1)
            i = DIMENSIONS.index(grant.dimension)
            held = grant.account.spent[i] + grant.account._reserved[i] - grant.reserved[i]
            if grant.account._outstanding == 1:
                assert held + more[i] > grant.account._limits[i]
        self.holding.append((call, grant))

    def refused(self, call: Call, error: BaseException) -> None:
        assert isinstance(error, BudgetExhausted)
        owner = next(a for a in call.account.path if a.owner == error.owner)
        i = DIMENSIONS.index(error.dimension)
        least = linear(call.each)(1, 1 if call.most else None)
        assert least[i] > owner._limits[i] - owner.spent[i] - SLACK * least[i]

    @invariant()
    def nothing_is_overshot(self) -> None:
        for account in getattr(self, "accounts", []):
            check_limits(account)

    @invariant()
    def sums_are_exact(self) -> None:
        for account in getattr(self, "accounts", []):
            holders = [g for c, g in self.holding if account in c.account.path]
            assert account._outstanding == len(holders)
            for i, dimension in enumerate(DIMENSIONS):
                exact = 0.0 if dimension in EXACT else 1e-9
                assert account.spent[i] == pytest.approx(self.used[id(account)][i], abs=exact)
                assert account._reserved[i] == pytest.approx(
                    math.fsum(g.reserved[i] for g in holders), abs=exact
                )
            if not holders:
                assert account._reserved == ZERO

    @invariant()
    def who_waits_waits_for_something_outstanding(self) -> None:
        """The first in the queue waits for an outstanding call under a limit in its way; the rest for those before.

        Among these are calls which have more to ask for, and that run until then.
        """
        held_back: list[Account] = []
        for call in sorted([*self.waiting, *(c for c, _ in self.resting)], key=lambda c: c.order):
            if call not in self.waiting:
                rest = call.turn._rest
                if rest is None:
                    assert not any(account.budget.divisible for account in call.account.path)
                else:
                    assert rest._outstanding
                    held_back.append(rest)
                continue
            if any(account in held_back for account in call.account.path):
                continue
            blocking = [a for a in call.account.path if a._outstanding and call.misfits(a)]
            assert blocking, "a call waits although nothing under a limit in its way is outstanding"
            held_back.append(blocking[0])

    def teardown(self) -> None:
        while self.holding:
            self.end(0, 0.5, False)
        assert not self.waiting
        for account in getattr(self, "accounts", []):
            assert account._reserved == ZERO and account._outstanding == 0 and not account._queue
        self.loop.close()
        asyncio.set_event_loop(None)


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=150, stateful_step_count=40)


def test_later_calls_do_not_overtake_an_earlier_one_at_the_limit_it_waits_for() -> None:
    async def main() -> list[str]:
        account = Account(Budget(generated=10))
        log: list[str] = []

        async def caller(name: str, order: int, tokens: int) -> None:
            grant = await Turn(account, (order,)).reserve(linear((float(tokens), 0, 1, 0, 0)), 1)
            log.append(name)
            await asyncio.sleep(0)
            account.release(grant)

        first = await Turn(account, (0,)).reserve(linear((6.0, 0, 1, 0, 0)), 1)
        big = asyncio.create_task(caller("big", 1, 10))
        await asyncio.sleep(0)
        small = [asyncio.create_task(caller(f"small {i}", 2 + i, 1)) for i in range(20)]
        await asyncio.sleep(0)
        assert log == []
        account.release(first)
        await asyncio.gather(big, *small)
        return log

    assert asyncio.run(main()) == ["big", *(f"small {i}" for i in range(20))]


def test_what_a_partial_grant_leaves_is_kept_for_the_same_call() -> None:
    async def main() -> None:
        account = Account(Budget(generated=20))
        held = await Turn(account, (0,)).reserve(linear((20.0, 0, 1, 0, 0)), 1)
        many, few = Turn(account, (1,)), Turn(account, (2,))
        first = asyncio.create_task(many.reserve(linear((8.0, 0, 1, 0, 0)), 4))
        await asyncio.sleep(0)
        later = asyncio.create_task(few.reserve(linear((1.0, 0, 1, 0, 0)), 1))
        await asyncio.sleep(0)
        account.release(held)
        grant = await first
        assert grant.count == 2
        # Of twenty tokens four are left, and the call that asked first has not got all.
        for _ in range(3):
            await asyncio.sleep(0)
        assert not later.done()
        account.release(grant)
        many.leave()
        assert (await later).count == 1

    asyncio.run(main())


def test_a_call_that_waits_for_a_limit_of_its_own_holds_back_nobody_else() -> None:
    async def main() -> None:
        root = Account(Budget(generated=100))
        narrow = Account(Budget(generated=10), root)
        held = await Turn(narrow, (0,)).reserve(linear((10.0, 0, 1, 0, 0)), 1)
        waits = asyncio.create_task(Turn(narrow, (1,)).reserve(linear((10.0, 0, 1, 0, 0)), 1))
        await asyncio.sleep(0)
        beside = await asyncio.wait_for(Turn(root, (2,)).reserve(linear((50.0, 0, 1, 0, 0)), 1), 1)
        assert beside.count == 1 and not waits.done()
        narrow.release(held)
        assert (await waits).count == 1

    asyncio.run(main())


def test_a_capped_grant_names_the_limit_that_binds_and_not_the_first_in_the_way() -> None:
    async def main() -> None:
        root = Account(Budget(generated=90), owner="root")
        leaf = Account(Budget(generated=10), root, "leaf")
        grant = await Turn(leaf, (0,)).reserve(linear((100.0, 0, 1, 0, 0)), 1, most=100)
        assert (grant.cap, grant.account) == (10, leaf)

    asyncio.run(main())


def test_an_error_in_a_worst_case_reaches_its_own_caller_only() -> None:
    def unbounded(k: int, cap: int | None) -> Amounts:
        raise UnsupportedError("no bound")

    async def main() -> None:
        account = Account(Budget(generated=10))
        held = await Turn(account, (0,)).reserve(linear((10.0, 0, 1, 0, 0)), 1)
        waits = asyncio.create_task(Turn(account, (1,)).reserve(linear((10.0, 0, 1, 0, 0)), 1))
        await asyncio.sleep(0)
        faulty = asyncio.create_task(Turn(account, (2,)).reserve(unbounded, 1))
        await asyncio.sleep(0)
        account.release(held)
        account.release(await waits)
        with pytest.raises(UnsupportedError):
            await faulty
        assert account._outstanding == 0

    asyncio.run(main())


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, "many"])
def test_a_budget_refuses_what_is_no_amount(value: Any) -> None:
    with pytest.raises(InputError, match="budget flops="):
        Budget(flops=value)


def test_a_budget_is_made_of_what_people_type() -> None:
    assert Budget.of(7) == Budget(generated=7)
    assert Budget.of({"calls": 3, "seconds": 1.5}) == Budget(calls=3, seconds=1.5)
    assert Budget.of(None) is None
    assert not Budget() and Budget(calls=0)
    with pytest.raises(InputError, match=r"unknown budget 'tokens'.*generated"):
        Budget.of({"tokens": 1})


def test_a_budget_is_share_out_whole_and_everyone_has_the_deadline() -> None:
    shares = Budget(generated=8, flops=3.0, seconds=2.0).share(3)
    assert shares == [Budget(generated=n, flops=1.0, seconds=2.0) for n in (3, 3, 2)]
    assert Budget(calls=0, money=1.0, seconds=1.0).divisible == ("calls", "money")


def test_a_refusal_says_which_limit_and_by_how_much() -> None:
    async def main() -> None:
        account = Account(Budget(generated=100, flops=5.0), owner="best-of-8")
        with pytest.raises(
            BudgetExhausted, match=r"'best-of-8' of 5 flops.*needs 9 more and 5 are left"
        ) as caught:
            await Turn(account, (0,)).reserve(linear((10.0, 0, 1, 9.0, 0)), 1)
        assert (caught.value.dimension, caught.value.owner) == ("flops", "best-of-8")

    asyncio.run(main())


# -- thousands of real calls -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_concurrent_calls_overshoot_nothing(seed: int) -> None:
    """Nested limits in all dimensions; calls of random sizes, use and duration, some failing or cancelled."""
    rng = random.Random(seed)
    peaks = {"running": 0, "executed": 0}
    flops_each, price = 13.0, 0.003

    def usage(prefilled: int, generated: int, calls: int = 1) -> Usage:
        flops = flops_each * (prefilled + generated)
        return Usage(
            prefilled=prefilled,
            generated=generated,
            calls=calls,
            flops=flops,
            flops_2n=flops,
            money=price * generated,
        )

    async def one(scope: Scope, number: int, accounts: list[Account]) -> list[Any]:
        prefilled, most, n = rng.randint(0, 20), rng.randint(1, 50), rng.randint(1, 6)
        used = [rng.randint(0, most) for _ in range(n)]
        turns, fate = rng.randint(0, 3), rng.random()
        request = Request("generate", "g", tuple(Item(str(number).encode(), i) for i in range(n)), most)

        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            peaks["executed"] += len(positions)
            for _ in range(turns):
                await asyncio.sleep(0)
                for account in accounts:
                    check_limits(account)
            if fate < 0.05:
                raise ConnectionError("transient")
            tokens = [used[i] if cap is None else min(cap, used[i]) for i in positions]
            return [
                Outcome({}, usage(prefilled, t), truncated=cap is not None and used[i] > cap)
                for i, t in zip(positions, tokens, strict=True)
            ]

        def worst(positions: Any, cap: int | None) -> Usage:
            k = len(positions)
            return usage(k * prefilled, k * (most if cap is None else cap), 0)

        try:
            work = scope.call(request, execute, worst)
            if fate > 0.95:
                return await asyncio.wait_for(work, 0.001)
            return await work
        except (BudgetExhausted, ConnectionError, TimeoutError):
            return []

    async def main() -> None:
        run = Account(Budget(generated=30_000, calls=1_800, flops=900_000.0), owner="run")
        root = Scope.root(budget=Budget(prefilled=12_000, money=80.0), account=run, label="problem")
        middle = [root.child(f"m/{i}", budget=Budget(generated=rng.randint(500, 9_000))) for i in range(4)]
        leaves = [
            m.child(f"l/{i}", budget=Budget(calls=rng.randint(10, 300), flops=rng.randint(1, 90) * 1e3))
            for m in middle
            for i in range(4)
        ]
        scopes = [root, *middle, *leaves]
        accounts = list({id(a): a for s in scopes for a in s._place.account.path}.values())  # type: ignore[union-attr]
        calls = [one(rng.choice(scopes), number, accounts) for number in range(2_000)]
        served = [row for rows in await asyncio.wait_for(asyncio.gather(*calls), 600) for row in rows]
        for account in accounts:
            check_limits(account)
            assert account._reserved == ZERO and account._outstanding == 0 and not account._queue
        # What the accounts were charged is what was delivered, and what was lost at its worst.
        lost = [row.worst for row in root.trace.rows if isinstance(row, Lost)]
        delivered = Usage.sum((root.usage, *lost))
        assert lost
        assert run.spent[0] == delivered.generated and run.spent[1] == delivered.prefilled
        assert run.spent[2] == delivered.calls >= len(served)
        assert run.spent[3] == pytest.approx(delivered.flops, rel=1e-12)
        assert run.spent[4] == pytest.approx(delivered.money, rel=1e-12)
        # The limits were really tight: something was refused or cut in this run.
        assert root.exhausted and any(r.status == "refused" for r in root.trace.rows)

    asyncio.run(main())
    assert peaks["executed"] > 500
