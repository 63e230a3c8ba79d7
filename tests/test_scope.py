"""The scope: seeds, records, coalescing, limits and replay, through the one crossing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import sys
import time
from collections import abc
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.attempts import Lost
from metagen.budget import Budget
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, EngineError, ScopeError, UnsupportedError
from metagen.events import Event
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai.engine import _at_once
from metagen.journal import Journal, MemoryJournal, Row, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

T = TypeVar("T")
PROMPT = Sequence(Prompt("p", text="one two three"))


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await asyncio.wait_for(work, 300)

    return asyncio.run(main())


class Writer:
    """A leaf that writes `length(i)` tokens as item i, and keeps a log of what it was asked to execute."""

    def __init__(
        self,
        length: Callable[[int], int] = lambda i: 10,
        *,
        most: int | None = 20,
        prompt: int = 3,
        name: str = "writer",
        seconds: float = 0.0,
    ) -> None:
        self.length, self.most, self.prompt, self.name, self.seconds = length, most, prompt, name, seconds
        self.log: list[tuple[str, int, int | None]] = []

    async def __call__(
        self, scope: Scope, indices: Iterable[int] = (0,), content: bytes = b"x", remember: Any = None
    ) -> list[Row]:
        items = tuple(Item(content, i) for i in indices)

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            self.log += [(scope.path, items[i].index, cap) for i in positions]
            if self.seconds:
                await asyncio.sleep(self.seconds)
            return [self._outcome(items[i].index, cap) for i in positions]

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            k = len(positions)
            tokens = cap if cap is not None else self.most
            return Usage(
                prefilled=k * self.prompt,
                generated=k * (self.length(0) if tokens is None else tokens),
                flops=None,
            )

        return await scope.call(Request("generate", self.name, items, self.most), execute, worst, remember)

    def _outcome(self, index: int, cap: int | None) -> Outcome:
        length = self.length(index)
        tokens = length if cap is None else min(length, cap)
        usage = Usage(prefilled=self.prompt, generated=tokens, flops=None)
        return Outcome({"text": "x" * tokens}, usage, truncated=tokens < length)


def texts(rows: Iterable[Row]) -> list[int]:
    return [len(row.payload["text"]) for row in rows if row.payload is not None]


# -- paths and seeds ----------------------------------------------------------------------------------


def test_a_seed_depends_on_run_problem_path_content_and_index_and_on_nothing_else() -> None:
    def seed(run: int = 0, problem: str = "p", path: str = "a", content: bytes = b"c", index: int = 0) -> int:
        return Scope.root(problem, seed=run).child(path).seed(Item(content, index))

    others = [seed(run=1), seed(problem="q"), seed(path="b"), seed(content=b"d"), seed(index=1)]
    assert len({seed(), *others}) == 6
    nested = Scope.root(
        "p", journal=MemoryJournal(), budget=Budget(generated=5), label="other", order=9, listener=print
    )
    assert nested.child("a", budget=Budget(calls=1)).seed(Item(b"c")) == seed()
    assert 0 <= seed() < 2**64


def test_64_samples_begin_with_the_16() -> None:
    async def samples(n: int, start: int = 0) -> list[str]:
        generator = FunctionGenerator(lambda prefix, seed, index: f"{index}: {seed}")
        scope = Scope.root("p", seed=3).child("sample")
        return [s.text for s in await generator.generate(PROMPT, n=n, start=start, scope=scope)]

    long, short, tail = run(samples(64)), run(samples(16)), run(samples(48, 16))
    assert long[:16] == short and long[16:] == tail and len(set(long)) == 64


def test_a_repeated_child_is_an_error_however_it_is_spelt() -> None:
    async def main() -> None:
        scope = Scope.root("p")
        a = scope.child("a")
        a.child("b")
        with pytest.raises(ScopeError, match=r"already has a child 'a'.*'revise/2'"):
            scope.child("a")
        with pytest.raises(ScopeError, match="already has a child 'a/b'"):
            scope.child("a/b")
        for role in ("", "/a", "a/", "a#b"):
            with pytest.raises(ScopeError, match="cannot name a scope"):
                scope.child(role)
        assert scope.child("node/0.3.1").path == "node/0.3.1"

    run(main())


def test_places_are_ordered_by_number_and_not_by_letter() -> None:
    root = Scope.root("p")
    paths = ["2/sample", "2/score", "10/sample", "node/0.9", "node/0.10", "sample"]
    scopes = {path: root.child(path) for path in reversed(paths)}
    assert sorted(scopes, key=lambda path: scopes[path]._place.order) == paths
    earlier, later = Scope.root("z", order=1), Scope.root("a", order=2)
    assert earlier.child("9")._place.order < later.child("1")._place.order


# -- records ------------------------------------------------------------------------------------------


def test_what_is_recorded_is_not_executed_again_and_charges_what_it_cost() -> None:
    journal = MemoryJournal()
    writer = Writer(lambda i: i)

    async def once(n: int) -> tuple[list[Row], Usage, float]:
        scope = Scope.root("p", journal=journal, budget=Budget(generated=1000, prefilled=1000))
        rows = await writer(scope.child("a"), range(n))
        return rows, scope.usage, scope.left().generated or 0

    first, second = run(once(8)), run(once(8))
    assert [i for _, i, _ in writer.log] == list(range(8))
    assert first == second and first[2] == 1000 - sum(range(8))
    run(once(11))
    assert [i for _, i, _ in writer.log] == list(range(11))


@pytest.mark.parametrize("recorded", [True, False])
def test_what_says_its_seconds_keeps_them_and_the_rest_is_timed(recorded: bool) -> None:
    async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
        return [Outcome({"text": "x"}, Usage(seconds=seconds)) for seconds in (900.0, None)]

    request = Request("g", "g", (Item(b"", 0), Item(b"", 1)), recorded=recorded)
    kept, timed = run(Scope.root("p").call(request, execute, lambda p, c: Usage()))
    assert kept.usage.seconds == 900.0 and timed.usage.seconds is not None and timed.usage.seconds < 900.0


def test_holes_are_filled_in_order() -> None:
    async def main() -> None:
        journal, writer = MemoryJournal(), Writer(lambda i: i)
        await writer(Scope.root("p", journal=journal), (1, 2, 5))
        remembered: list[int] = []
        rows = await writer(
            Scope.root("p", journal=journal),
            range(7),
            remember=lambda rows: remembered.extend(r.index for r in rows),
        )
        assert texts(rows) == list(range(7)) == remembered
        assert [i for _, i, _ in writer.log] == [1, 2, 5, 0, 3, 4, 6]

    run(main())


def test_transient_failures_are_not_recorded_and_are_charged_at_their_worst() -> None:
    async def main() -> None:
        journal, writer = MemoryJournal(), Writer()
        scope = Scope.root("p", journal=journal, budget=Budget(generated=40))

        async def fail(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            raise ConnectionError("lost")

        request = Request("generate", "writer", (Item(b"x"),), 20)
        with pytest.raises(ConnectionError):
            await scope.call(request, fail, lambda p, c: Usage(generated=20))
        assert journal.of_problem("p") == [] and not journal.inflight and scope.left().generated == 20
        assert texts(await writer(scope)) == [10] and scope.left().generated == 10
        assert (scope.usage.generated, scope.trace.physical.generated) == (10, None)
        assert (scope.trace.most.calls, scope.trace.lost) == (2, 1)

    run(main())


def test_too_few_outcomes_are_an_error_and_not_a_short_answer() -> None:
    async def main() -> None:
        async def lazy(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            return [Outcome({}, Usage())]

        scope = Scope.root("p")
        with pytest.raises(ValueError, match="shorter"):
            await scope.call(Request("g", "g", (Item(b"", 0), Item(b"", 1))), lazy, lambda p, c: Usage())
        assert scope.trace.lost == len(scope.trace.rows) == 1

    run(main())


# -- coalescing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, Budget(generated=100_000)])
def test_identical_requests_in_flight_are_executed_once(budget: Budget | None) -> None:
    async def main() -> None:
        writer = Writer(seconds=0.01)
        scope = Scope.root("p", budget=budget)
        answers = await asyncio.gather(*(writer(scope, range(n)) for n in (3, 5, 3, 4)))
        assert [texts(rows) for rows in answers] == [[10] * 3, [10] * 5, [10] * 3, [10] * 4]
        assert sorted(i for _, i, _ in writer.log) == [0, 1, 2, 3, 4]

    run(main())


@pytest.mark.parametrize("fate", ["cancelled", "failed"])
@pytest.mark.parametrize("budget", [None, Budget(generated=30)])
def test_others_run_themselves_what_the_first_did_not_finish(fate: str, budget: Budget | None) -> None:
    async def main() -> None:
        scope, executed = Scope.root("p", budget=budget), 0

        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            nonlocal executed
            executed += 1
            first = executed == 1
            await asyncio.sleep(0.01)
            if first and fate == "failed":
                raise ConnectionError
            return [Outcome({"text": "y"}, Usage(generated=1)) for _ in positions]

        def call() -> Awaitable[list[Row]]:
            return scope.call(
                Request("g", "g", (Item(b""),), 20), execute, lambda p, c: Usage(generated=c or 20)
            )

        first = asyncio.ensure_future(call())
        others = [asyncio.ensure_future(call()) for _ in range(5)]
        await asyncio.sleep(0.001)
        if fate == "cancelled":
            first.cancel()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError if fate == "cancelled" else ConnectionError)
        assert [r[0].payload for r in results[1:] if not isinstance(r, BaseException)] == [{"text": "y"}] * 5
        assert executed == 2

    run(main())


# -- limits -------------------------------------------------------------------------------------------


def test_the_first_that_fit_run_and_the_next_is_cut() -> None:
    async def main() -> None:
        journal, writer = MemoryJournal(), Writer(lambda i: 20)
        scope = Scope.root("p", journal=journal, budget=Budget(generated=50), label="B")
        rows = await writer(scope, range(5))
        assert texts(rows) == [20, 20, 10]
        assert [r.status for r in rows] == ["complete", "complete", "truncated"]
        assert rows[2].limit is not None and (rows[2].limit.owner, rows[2].limit.amount) == ("B", 50.0)
        assert scope.exhausted and scope.left().generated == 0
        statuses = [(r.index, r.status) for r in scope.trace.rows]
        assert statuses[3:] == [(3, "refused"), (4, "refused")]
        with pytest.raises(BudgetExhausted, match=r"'B' of 50 generated"):
            await writer(scope, [7])

    run(main())


def test_a_call_that_is_granted_a_part_keeps_its_place_until_it_has_all() -> None:
    """What it gives back is for the rest of it first, and also what others give back while it runs."""

    async def main() -> None:
        writer = Writer(seconds=0.001)
        scope = Scope.root("p", budget=Budget(generated=50))
        places = [scope.child(str(i)) for i in range(2)]
        rows = await scope.gather(*(writer(place, range(4)) for place in places))
        assert [texts(r) for r in rows] == [[10] * 4, [10]]
        assert [(path, index) for path, index, _ in writer.log] == [*(("0", i) for i in range(4)), ("1", 0)]

        short, long = Writer(seconds=0.001, name="short"), Writer(seconds=0.01, name="long")
        scope = Scope.root("p", budget=Budget(generated=70))
        first, second, third = (scope.child(str(i)) for i in range(3))
        rows = await scope.gather(short(first), long(second, range(4)), short(third, range(4)))
        assert [texts(r) for r in rows] == [[10], [10] * 4, [10] * 2]

    run(main())


@pytest.mark.parametrize("recorded", [(0,), (1, 2), (0, 3)])
def test_a_call_that_is_recorded_in_part_keeps_its_place_too(recorded: tuple[int, ...]) -> None:
    async def main() -> None:
        journal, writer = MemoryJournal(), Writer(seconds=0.001)
        await writer(Scope.root("p", journal=journal).child("1"), recorded)
        scope = Scope.root("p", journal=journal, budget=Budget(generated=60))
        places = [scope.child(str(i)) for i in range(3)]
        rows = await scope.gather(
            *(writer(place, range(n)) for place, n in zip(places, (1, 4, 4), strict=True))
        )
        assert [texts(r) for r in rows] == [[10], [10] * 4, [10]]

    run(main())


def test_under_a_deadline_alone_nobody_waits_for_another() -> None:
    """Recorded and new items alternate in the first call: it asks several times, and nothing can run short."""

    async def main() -> None:
        journal, writer = MemoryJournal(), Writer()
        await writer(Scope.root("p", journal=journal).child("0"), (1,))
        slow, quick = Writer(seconds=3600), Writer(name="quick")
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=3600))
        first = asyncio.ensure_future(slow(scope.child("0"), range(4)))
        await asyncio.sleep(0)
        # The first call is between two grants for as long as its first item takes.
        later = await asyncio.wait_for(quick(scope.child("1"), range(4)), 60)
        assert texts(later) == [10] * 4
        assert [index for _, index, _ in slow.log] == [0]
        first.cancel()
        await asyncio.wait([first])

    run(main())


def test_who_leaves_in_the_middle_makes_way() -> None:
    """Cancelled or failed between two grants, a call holds back nobody."""

    async def main(fate: str) -> None:
        writer, scope = Writer(), Scope.root("p", budget=Budget(generated=50))

        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            await asyncio.sleep(0.005)
            raise ConnectionError

        request = Request("g", "g", tuple(Item(b"", i) for i in range(4)), 20)
        work = scope.child("0").call(request, execute, lambda p, c: Usage(generated=20 * len(p)))
        first = asyncio.ensure_future(work)
        later = asyncio.ensure_future(writer(scope.child("1"), range(2)))
        await asyncio.sleep(0.001)
        assert not later.done(), "two of the first call run, and what is left is for the rest of it"
        if fate == "cancelled":
            first.cancel()
        result = (await asyncio.gather(first, return_exceptions=True))[0]
        assert isinstance(result, asyncio.CancelledError if fate == "cancelled" else ConnectionError)
        assert texts(await later) == [10], "what was under way when it left stays charged"
        account = scope._place.account
        assert account is not None and account._outstanding == 0 and not account._queue

    for fate in ("cancelled", "failed"):
        run(main(fate))


def test_items_that_cannot_be_cut_are_refused_whole() -> None:
    async def main() -> None:
        scope = Scope.root("p", budget=Budget(generated=25))
        assert texts(await Writer(most=None)(scope, range(5))) == [10, 10]
        assert scope.left().generated == 5

    run(main())


@settings(max_examples=40)
@given(data=st.data())
def test_a_replay_takes_the_same_branches_and_executes_nothing(data: st.DataObject) -> None:
    """Limits of all kinds on nested scopes, several configurations on one journal, some killed on the way."""
    lengths = data.draw(st.lists(st.integers(1, 20), min_size=8, max_size=8))
    amounts = st.none() | st.integers(0, 120)
    budgets = st.builds(Budget, generated=amounts, prefilled=amounts, calls=st.none() | st.integers(0, 12))
    settings_of = st.tuples(budgets, budgets, st.integers(1, 8))
    configurations = data.draw(st.lists(settings_of, min_size=1, max_size=3))
    stop = data.draw(st.integers(0, 4))
    journal = MemoryJournal()
    writer = Writer(lambda i: lengths[i])

    async def once(outer: Budget, inner: Budget, n: int, steps: int = 99) -> list[Any]:
        root = Scope.root("p", journal=journal, budget=outer, label=f"{outer} {inner} {n}")
        seen: list[Any] = []
        left = itertools.count(1)
        for path in ("a", "b"):
            scope = root.child(path, budget=inner)
            for content in (b"x", b"y"):
                if next(left) > steps:
                    return seen
                try:
                    rows = await writer(scope, range(n), content)
                    seen.append([(texts([r]), r.status) for r in rows])
                except BudgetExhausted as refusal:
                    seen.append((refusal.dimension, refusal.owner))
                seen.append((scope.exhausted, root.exhausted, scope.left(), root.left()))
        return seen

    async def main() -> None:
        await once(*configurations[0], steps=stop)
        first = [await once(*c) for c in configurations]
        executed = len(writer.log)
        assert [await once(*c) for c in configurations] == first
        assert len(writer.log) == executed

    run(main())


def test_rows_of_one_limit_answer_under_no_other_and_hide_no_complete_row() -> None:
    journal = MemoryJournal()
    writer = Writer(lambda i: 20)

    async def under(generated: int | None, label: str = "B") -> list[int]:
        budget = Budget(generated=generated) if generated else None
        return texts(await writer(Scope.root("p", journal=journal, budget=budget, label=label)))

    assert run(under(8)) == [8]
    assert run(under(12)) == [12]
    assert run(under(5)) == [5]
    assert run(under(8, "another")) == [8]
    assert run(under(None)) == [20]
    executed = len(writer.log)
    assert executed == 5
    # Every one of them again: each from its own record, the complete one unharmed.
    assert [run(under(g)) for g in (8, 12, 5, None)] == [[8], [12], [5], [20]] and run(
        under(8, "another")
    ) == [8]
    assert run(under(20)) == [20] and run(under(1000)) == [20]
    assert len(writer.log) == executed


def test_a_complete_row_that_does_not_fit_is_run_again_under_the_cap_and_survives() -> None:
    journal = MemoryJournal()
    writer = Writer(lambda i: 20)
    assert texts(run(writer(Scope.root("p", journal=journal)))) == [20]
    assert texts(run(writer(Scope.root("p", journal=journal, budget=Budget(generated=7))))) == [7]
    assert texts(run(writer(Scope.root("p", journal=journal)))) == [20]
    assert [cap for _, _, cap in writer.log] == [None, 7]


@pytest.mark.parametrize(("length", "again"), [(9, []), (10, []), (11, [10])])
def test_who_is_granted_a_cap_takes_what_another_has_meanwhile_made_within_it(
    length: int, again: list[int]
) -> None:
    async def main() -> None:
        journal, writer = MemoryJournal(), Writer(lambda i: length)
        root = Scope.root("p", journal=journal, budget=Budget(generated=20))
        await Writer(name="first")(root.child("first"))
        holder = asyncio.create_task(Writer(lambda i: 0, seconds=0.2, name="holder")(root.child("a")))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(writer(root.child("b")))
        await asyncio.sleep(0)
        same = Writer(lambda i: length)
        assert texts(await same(Scope.root("p", journal=journal).child("b"))) == [length]
        assert texts(await holder) == [0]  # 10 of 20 tokens are left
        assert texts(await waiting) == [min(length, 10)]
        assert [cap for _, _, cap in writer.log] == again

    run(main())


def test_refused_under_one_limit_runs_under_a_larger_one() -> None:
    journal = MemoryJournal()
    writer = Writer()
    with pytest.raises(BudgetExhausted):
        run(writer(Scope.root("p", journal=journal, budget=Budget(calls=0))))
    assert texts(run(writer(Scope.root("p", journal=journal, budget=Budget(calls=1))))) == [10]
    with pytest.raises(BudgetExhausted):
        run(writer(Scope.root("p", journal=journal, budget=Budget(calls=0))))


def test_limits_of_children_of_different_strategies_are_kept_apart() -> None:
    """Without a budget at the top, the label still names whose child it was."""
    journal = MemoryJournal()
    writer = Writer(lambda i: 20)

    async def strategy(label: str, before: int) -> list[int]:
        scope = Scope.root("p", journal=journal, label=label).child("a", budget=Budget(generated=30))
        await writer(scope, range(before), b"before")
        return texts(await writer(scope))

    assert [run(strategy("A", 1)), run(strategy("B", 0))] == [[10], [20]]
    assert run(strategy("A", 1)) == [10]


@pytest.mark.parametrize("dimension", ["generated", "prefilled", "flops", "money"])
def test_what_is_unknown_is_never_taken_for_nothing(dimension: str) -> None:
    usage = dataclasses.replace(Usage(prefilled=1, generated=1, flops=1.0, money=1.0), **{dimension: None})
    journal = MemoryJournal()
    executed = 0

    async def call(bound: float | None, budget: Budget | None) -> Scope:
        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            nonlocal executed
            executed += len(positions)
            return [Outcome({}, usage) for _ in positions]

        scope = Scope.root("p", journal=journal, budget=budget)
        worst = dataclasses.replace(usage, **{dimension: bound})
        await scope.call(Request("g", "abc", (Item(b""),)), execute, lambda p, c: worst)
        return scope

    limit = Budget(**{dimension: 10})
    # Unbounded: refused before anything runs. Bounded: charged at its bound. Recorded: just the same.
    for _ in range(2):
        with pytest.raises(
            UnsupportedError, match=rf"a budget of 10 {dimension} cannot be kept: the g call of 'abc'"
        ):
            run(call(None, limit))
        assert executed == 0
    run(call(None, Budget(calls=5)))
    assert executed == 1
    with pytest.raises(UnsupportedError):
        run(call(None, limit))
    scope = run(call(4.0, limit))
    assert getattr(scope.left(), dimension) == 6 and getattr(scope.usage, dimension) is None
    assert executed == 1


def test_calls_are_counted_by_the_scope_itself() -> None:
    async def main() -> None:
        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            await asyncio.sleep(0)
            return [Outcome({}, Usage(calls=0)) for _ in positions]

        scope = Scope.root("p", budget=Budget(calls=5))
        calls = [
            scope.call(Request("g", str(i), (Item(b"", 0), Item(b"", 1))), execute, lambda p, c: Usage())
            for i in range(4)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(len(r) for r in results if isinstance(r, list)) == 5 == scope.usage.calls

    run(main())


def test_exhaustion_is_marked_up_to_the_owner_of_the_limit_and_not_above() -> None:
    async def main() -> None:
        root = Scope.root("p", budget=Budget(generated=1000), label="B")
        middle = root.child("m", budget=Budget(generated=15))
        beside, leaf = middle.child("beside"), middle.child("deep").child("leaf")
        assert texts(await Writer(lambda i: 20)(leaf, range(2))) == [15]
        assert leaf.exhausted and middle.exhausted and not root.exhausted and not beside.exhausted
        with pytest.raises(BudgetExhausted):
            await Writer(most=None, prompt=0)(root.child("n").child("o", budget=Budget(calls=0)))
        assert not root.exhausted
        with pytest.raises(BudgetExhausted):
            await Writer(lambda i: 1001, most=None)(root.child("big"))
        assert root.exhausted and not beside.exhausted

    run(main())


def test_a_hit_that_does_not_fit_waits_for_what_is_outstanding() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        await Writer(lambda i: 20)(Scope.root("p", journal=journal).child("b"))
        root = Scope.root("p", journal=journal, budget=Budget(generated=40))
        slow = asyncio.create_task(Writer(lambda i: 5, most=30, seconds=0.01)(root.child("a")))
        await asyncio.sleep(0)
        assert texts(await Writer(lambda i: 20)(root.child("b"))) == [20]
        assert slow.done() and root.left().generated == 15

    run(main())


def test_left_is_the_tightest_over_all_limits() -> None:
    async def main() -> None:
        root = Scope.root("p", budget=Budget(generated=100, calls=5, seconds=100))
        child = root.child("a", budget=Budget(generated=60, flops=9.5, seconds=50))
        await Writer(lambda i: 50, most=50)(root)
        left = child.left()
        assert (left.generated, left.calls, left.flops, left.prefilled, left.money) == (
            50,
            4,
            9.5,
            None,
            None,
        )
        assert left.seconds is not None and 45 < left.seconds <= 50
        assert Scope.root("p").left() == Budget()
        some = Budget(flops=0.0, money=0.25)
        assert Scope.root("p", budget=some).left() == some

    with pytest.raises(UnsupportedError):  # the child limits FLOPs, which this writer cannot bound
        run(Writer()(Scope.root("p", budget=Budget(flops=9.5))))
    run(main())


# -- seconds ------------------------------------------------------------------------------------------


def test_a_deadline_cancels_and_a_replay_takes_the_same_branch_and_a_longer_one_runs_again() -> None:
    journal = MemoryJournal()

    async def under(seconds: float, speed: float) -> tuple[list[int], bool]:
        """Two quick samples, then a slow one."""
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=seconds), label="B")
        quick, slow = Writer(name="w"), Writer(name="w", seconds=speed)
        found = texts(await quick(scope, range(2)))
        try:
            found += texts(await slow(scope, [2]))
        except BudgetExhausted as refusal:
            assert (refusal.dimension, refusal.owner, refusal.limit) == ("seconds", "B", seconds)  # noqa: PT017
            assert refusal.needed == refusal.left == 0  # noqa: PT017
        return found, scope.exhausted

    assert run(under(1.0, speed=20)) == ([10, 10], True)
    assert run(under(1.0, speed=0)) == ([10, 10], True)  # it would be fast enough now
    assert run(under(60, speed=0)) == ([10] * 3, False)
    assert run(under(1.0, speed=0)) == ([10, 10], True)
    assert run(under(60, speed=20)) == ([10] * 3, False)


def unequal(fast: set[int], log: list[int], cut: Exception | None = None) -> FunctionGenerator:
    """Sample i ends at once if it is in `fast`; the others wait for a minute, or raise `cut`."""

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        log.append(index)
        if index not in fast:
            await asyncio.sleep(0.05 if cut else 60)
            assert cut is not None
            raise cut
        return f"{index}"

    return FunctionGenerator(write, name="unequal", count=len, max_tokens=2)


def test_what_had_ended_at_a_deadline_is_returned_and_replayed_and_never_paid_for_again() -> None:
    journal, log = MemoryJournal(), list[int]()

    async def under(seconds: float, fast: set[int], n: int = 5) -> tuple[list[str], bool]:
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=seconds, generated=100), label="B")
        samples = await unequal(fast, log).generate(PROMPT, n=n, scope=scope)
        lost = sum(row.physical.calls for row in scope.trace.rows if isinstance(row, Lost))
        assert scope.left().generated == 100 - len(samples) - 2 * lost
        return [s.text for s in samples], scope.exhausted

    assert run(under(1.0, {1, 3})) == (["1", "3"], True)
    everything = set(range(6))
    assert run(under(1.0, everything)) == (["1", "3"], True)
    assert sorted(log) == [0, 1, 2, 3, 4]
    log.clear()
    assert run(under(60, everything, n=6)) == (["0", "1", "2", "3", "4", "5"], False)
    assert sorted(log) == [0, 2, 4, 5]
    assert run(under(1.0, everything)) == (["1", "3"], True)


def test_a_failing_sibling_and_a_cancellation_lose_nothing_that_had_ended() -> None:
    async def main(cut: Exception | None) -> None:
        journal, log = MemoryJournal(), list[int]()
        work = asyncio.create_task(
            unequal({0, 2}, log, cut).generate(PROMPT, n=3, scope=Scope.root("p", journal=journal))
        )
        await asyncio.sleep(0.02)
        if cut is None:
            work.cancel()
        with pytest.raises(type(cut) if cut else asyncio.CancelledError):
            await work
        again = await unequal({0, 1, 2}, log).generate(PROMPT, n=3, scope=Scope.root("p", journal=journal))
        assert [s.text for s in again] == ["0", "1", "2"] and sorted(log) == [0, 1, 1, 2]
        assert not journal.inflight

    run(main(EngineError("the server is gone")))
    run(main(None))


def test_what_had_ended_is_paid_for_also_when_the_call_fails_or_is_cancelled() -> None:
    """The budget stands, though each call fails or is cut off after some of its samples, and a replay decides alike."""

    async def loop(journal: MemoryJournal, cut: Exception | None) -> tuple[int, bool]:
        scope = Scope.root("p", journal=journal, budget=Budget(generated=12), label="B")
        for k in range(10):
            with contextlib.suppress(EngineError, TimeoutError, BudgetExhausted):
                async with asyncio.timeout(None if cut else 0.05):
                    await unequal({0, 1}, [], cut).generate(PROMPT, n=3, scope=scope.child(f"a/{k}"))
        recorded = sum(row.usage.generated or 0 for row in journal.of_problem("p"))
        lost = sum(row.worst.generated or 0 for row in scope.trace.rows if isinstance(row, Lost))
        assert recorded == scope.usage.generated == 12 - lost - (scope.left().generated or 0) <= 12
        return recorded, scope.exhausted

    for cut in (EngineError("gone"), None):
        journal = MemoryJournal()
        first = run(loop(journal, cut))
        assert first[0] >= 4 and run(loop(journal, cut)) == first


def test_a_deadline_after_all_had_ended_exhausts_nothing() -> None:
    async def under(journal: MemoryJournal) -> tuple[int, bool]:
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=0.1), label="B")

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            ended.update({k: Outcome({"text": "x"}, Usage()) for k in range(len(positions))})
            await asyncio.sleep(30)
            return [ended[k] for k in range(len(positions))]

        request = Request("g", "g", (Item(b"", 0), Item(b"", 1)))
        return len(await scope.call(request, execute, lambda p, c: Usage())), scope.exhausted

    journal = MemoryJournal()
    assert run(under(journal)) == run(under(journal)) == (2, False)


def test_after_the_deadline_records_answer_and_nothing_is_begun() -> None:
    journal, writer = MemoryJournal(), Writer(lambda i: i)

    async def main() -> None:
        await writer(Scope.root("p", journal=journal), range(2))
        scope = Scope.root("p", journal=journal, budget=Budget(seconds=0))
        assert texts(await writer(scope, range(5))) == [0, 1]
        with pytest.raises(BudgetExhausted, match="of 0 seconds"):
            await writer(scope, [7])
        assert [i for _, i, _ in writer.log] == [0, 1]

    run(main())


def test_a_deadline_ends_waiting_for_room_and_for_others_as_well() -> None:
    """Others, who have no deadline, hold the room, or compute the same thing, for long."""

    async def main() -> None:
        root = Scope.root("p", budget=Budget(generated=20))
        holder = asyncio.create_task(Writer(seconds=20)(root.child("a")))
        await asyncio.sleep(0)
        hurried = root.child("b", budget=Budget(seconds=0.05))
        with pytest.raises(BudgetExhausted, match="seconds"):
            await asyncio.wait_for(Writer()(hurried), 10)
        holder.cancel()

        journal = MemoryJournal()
        holder = asyncio.create_task(Writer(seconds=20)(Scope.root("q", journal=journal)))
        await asyncio.sleep(0)
        with pytest.raises(BudgetExhausted, match="seconds"):  # noqa: PT012
            same = Writer()(Scope.root("q", journal=journal, budget=Budget(seconds=0.05)))
            await asyncio.wait_for(same, 10)
        holder.cancel()

    run(main())


def test_a_timeout_of_the_call_itself_is_not_the_deadline() -> None:
    async def main() -> None:
        async def execute(positions: Any, cap: int | None, ended: Ended) -> list[Outcome]:
            raise TimeoutError("of the server")

        scope = Scope.root("p", budget=Budget(seconds=60))
        with pytest.raises(TimeoutError, match="of the server"):
            await scope.call(Request("g", "g", (Item(b""),)), execute, lambda p, c: Usage())
        assert not scope.exhausted and scope.trace.lost == len(scope.trace.rows) == 1

    run(main())


# -- gather and offers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "several", [_at_once, lambda work: Scope.root().gather(*work)], ids=["engine", "scope"]
)
@pytest.mark.filterwarnings("error")
def test_what_is_cancelled_before_it_begins_leaves_no_warning(
    several: Callable[[list[Coroutine[Any, Any, int]]], Coroutine[Any, Any, list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    async def one() -> int:
        return 1

    async def main() -> None:
        task = asyncio.create_task(several([one(), one()]))
        await asyncio.sleep(0)  # its own tasks are made, and have not begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()
    assert not told


def test_gather_keeps_order_lets_the_others_finish_when_a_budget_ends_and_stops_them_on_errors() -> None:
    ended: list[str] = []

    async def one(name: str, turns: int, error: Exception | None = None) -> str:
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            if error:
                raise error
        finally:
            ended.append(name if asyncio.current_task().cancelling() == 0 else f"{name} cancelled")  # type: ignore[union-attr]
        return name

    async def main() -> None:
        scope = Scope.root("p")
        assert await scope.gather(one("a", 5), one("b", 1), one("c", 3)) == ["a", "b", "c"]
        assert ended == ["b", "c", "a"]
        ended.clear()
        with pytest.raises(BudgetExhausted):
            await scope.gather(one("a", 5), one("b", 1, BudgetExhausted("calls", 1, 1, 0)), one("c", 3))
        assert ended == ["b", "c", "a"]
        ended.clear()
        with pytest.raises(ConnectionError):
            await scope.gather(one("a", 50), one("b", 1, ConnectionError()))
        assert ended == ["b", "a cancelled"]
        assert await scope.gather() == []

    run(main())


def test_the_best_offer_has_the_highest_value_and_the_first_of_equals() -> None:
    scope = Scope.root("p")
    assert scope.best_offer() is None
    offers = {name: PROMPT.extend(name) for name in "abcdef"}
    for name, value in [("a", None), ("b", -2.0), ("c", 0.0), ("d", 0.5), ("e", 0.5), ("f", None)]:
        scope.offer(offers[name], value)
        assert scope.best_offer() == offers[min(name, "d")]


def test_emit_streams_to_whoever_listens() -> None:
    heard: list[Event] = []
    Scope.root("p", listener=heard.append).child("a").emit(PROMPT)
    Scope.root("p").emit(PROMPT)
    assert [(one.kind, one.path, one.sequence) for one in heard] == [("commit", "a", PROMPT)]


# -- the logical prefix cache -------------------------------------------------------------------------


class Prefixed:
    """A leaf over token ids that charges, once per model and problem, what no earlier call has paid for."""

    def __init__(self, model: str = "m") -> None:
        self.model = model

    async def __call__(self, scope: Scope, ids: abc.Sequence[int], indices: Iterable[int]) -> list[Row]:
        cache = scope.prefixes(self.model)
        items = tuple(Item(bytes(ids), i) for i in indices)

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            await asyncio.sleep(0)
            new = [len(ids) - cache.add(ids) for _ in positions]
            return [Outcome({"ids": list(ids)}, Usage(prefilled=k, generated=1)) for k in new]

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            return Usage(prefilled=len(ids) - cache.count_known(ids), generated=len(positions))

        def remember(rows: list[Row]) -> None:
            for row in rows:
                cache.add(row.payload["ids"])  # type: ignore[index]

        request = Request("generate", self.model, items)
        return await scope.call(request, execute, worst, remember)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_prefix_counts_once_per_model_and_problem_also_when_a_part_is_recorded(
    where: str, tmp_path: Path
) -> None:
    def prefilled(journal: Journal, n: int, limit: int) -> int | None:
        async def main() -> int | None:
            root = Scope.root("p", journal=journal, budget=Budget(prefilled=limit), label=str(n))
            await root.gather(*(Prefixed()(root.child(str(i)), range(100), range(n)) for i in range(4)))
            await Prefixed()(root.child("step"), range(120), range(n))
            await Prefixed("other")(root.child("other"), range(100), range(n))
            assert root.left().prefilled == limit - (root.usage.prefilled or 0)
            return root.usage.prefilled

        return run(main())

    journal = MemoryJournal() if where == "memory" else SQLiteJournal(tmp_path / "journal.sqlite")
    assert prefilled(journal, 4, 1000) == 220
    assert prefilled(journal, 4, 1000) == 220  # all from the journal
    assert prefilled(journal, 8, 1000) == 220  # half from the journal
    assert prefilled(MemoryJournal(), 8, 220) == 220  # and the limit binds exactly there
    if isinstance(journal, SQLiteJournal):
        journal.close()


# -- resuming -----------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(limit=st.integers(20, 200), stop=st.integers(1, 30), width=st.integers(1, 4))
def test_a_run_that_stopped_anywhere_resumes_with_the_same_decisions(
    limit: int, stop: int, width: int
) -> None:
    """A search that decides by what it sees and by what is left, cut off after any number of executions."""

    class Stop(Exception):
        pass

    def search(journal: Journal, allowed: int) -> tuple[list[Any], int]:
        executed = 0

        async def node(scope: Scope, name: int, depth: int) -> list[Any]:
            nonlocal executed

            async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
                nonlocal executed
                if executed >= allowed:
                    raise Stop
                executed += len(positions)
                seeds = [scope.seed(Item(b"", i)) % 23 for i in positions]
                used = [s if cap is None else min(s, cap) for s in seeds]
                return [
                    Outcome({"v": s % 7}, Usage(generated=u), truncated=u < s)
                    for s, u in zip(seeds, used, strict=True)
                ]

            request = Request("g", "g", tuple(Item(b"", i) for i in range(width)), 22)
            rows = await scope.call(
                request, execute, lambda p, c: Usage(generated=len(p) * (22 if c is None else c))
            )
            best = max(range(len(rows)), key=lambda i: rows[i].payload["v"])  # type: ignore[index]
            seen: list[Any] = [(scope.path, [(r.payload, r.status) for r in rows], best, scope.left())]
            if depth and (scope.left().generated or 0) > 10:
                for child in range(2):
                    seen += await node(scope.child(f"{best}.{child}"), child, depth - 1)
            return seen

        async def main() -> list[Any]:
            root = Scope.root(
                "p", seed=width, journal=journal, budget=Budget(generated=limit), label="search"
            )
            try:
                return await node(root, 0, 4)
            except BudgetExhausted as refusal:
                return [str(refusal.dimension), root.usage.generated]

        return run(main()), executed

    whole, executed = search(MemoryJournal(), 10**9)
    journal = MemoryJournal()
    with contextlib.suppress(Stop):
        search(journal, min(stop, executed))
    assert search(journal, 10**9)[0] == whole
    assert search(journal, 0) == (whole, 0)


# -- speed --------------------------------------------------------------------------------------------


def test_a_call_costs_little() -> None:
    """About 20 to 50 µs where nothing else runs; the bound only notices what is badly wrong."""

    async def main() -> float:
        scope = Scope.root("p", budget=Budget(generated=10**9))
        writer = Writer()
        began = time.process_time()
        for i in range(500):
            await writer(scope, [i])
        return (time.process_time() - began) / 500

    assert run(main()) < 0.002
