"""Batches: what fits of several pieces of work under one limit, whoever is faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from metagen.batch import Batch, Stage
from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import BudgetExhausted, EngineError, ScopeError
from metagen.scope import Scope
from tests.test_scope import Writer, run


@pytest.mark.parametrize(
    ("budget", "generates", "most"),
    [
        (None, True, 4),
        (Budget(seconds=60), True, 4),
        (Budget(generated=5), True, 1),
        (Budget(generated=5), False, 4),
        (Budget(generated=5, calls=5), False, 1),
        (Budget(calls=5), False, 1),
        (Budget(prefilled=5), True, 1),
        (Budget(flops=1.0), True, 1),
        (Budget(money=1.0), True, 1),
    ],
)
def test_only_limits_that_calls_use_up_make_them_wait(
    budget: Budget | None, generates: bool, most: int
) -> None:
    running, seen = set[int](), list[int]()

    async def one(i: int) -> int:
        running.add(i)
        seen.append(len(running))
        for _ in range(3):
            await asyncio.sleep(0)
        running.remove(i)
        return i

    async def main() -> list[int]:
        batch = await Scope.root(budget=budget).batch(range(4), Stage(one, generates=generates))
        return batch.whole()

    assert run(main()) == [0, 1, 2, 3]
    assert max(seen) == most


def stages(scope: Scope, told: list[str], generates: bool = True) -> list[Stage[int, int]]:
    """Item i: a draw of at most 4 that takes 2, and then a score of one call."""

    async def draw(i: int) -> int:
        told.append(f"draw {i}")
        await Writer(lambda i: 2, most=4, seconds=0.001)(scope.child(f"draw/{i}"))
        told.append(f"drawn {i}")
        return i

    async def score(i: int) -> int:
        told.append(f"score {i}")
        await Writer(lambda i: 0, most=None, seconds=0.001)(scope.child(f"score/{i}"))
        return 10 + i

    return [
        Stage(draw, lambda i: Usage(generated=4, calls=1)),
        Stage(score, lambda i: Usage(generated=0, calls=1), generates=generates),
    ]


@pytest.mark.parametrize(
    ("budget", "generates", "first"),
    [
        (None, True, ["draw 0", "draw 1", "draw 2"]),  # nothing binds: each goes on by itself
        (Budget(seconds=60), True, ["draw 0", "draw 1", "draw 2"]),
        (Budget(generated=12), True, ["draw 0", "draw 1", "draw 2"]),  # room for all at their worst
        (
            Budget(generated=11),
            True,
            ["draw 0", "drawn 0", "draw 1", "drawn 1", "draw 2", "drawn 2", "score 0"],
        ),
        (
            Budget(generated=11),
            False,
            ["draw 0", "drawn 0", "draw 1", "drawn 1", "draw 2", "drawn 2", "score 0"],
        ),
        (Budget(calls=5), True, ["draw 0", "draw 1", "draw 2"]),  # of the first stage
    ],
)
def test_a_stage_runs_side_by_side_where_all_of_it_fits(
    budget: Budget | None, generates: bool, first: list[str]
) -> None:
    told: list[str] = []

    async def main() -> tuple[Batch[int], Budget]:
        scope = Scope.root("p", budget=budget)
        return await scope.batch(range(3), *stages(scope, told, generates)), scope.left()

    batch, left = run(main())
    assert told[: len(first)] == first
    if budget and budget.calls:
        # The limit ends within the second stage, of which what fits is there, in order.
        assert told[6:] == ["score 0", "score 1", "score 2"]
        assert batch.results == [10, 11, None] and [*batch.refused] == [2] and left.calls == 0
        assert batch.some() == [10, 11, None]
        with pytest.raises(BudgetExhausted, match="calls"):
            batch.whole()
    else:
        assert batch.whole() == [10, 11, 12] and not batch.refused


@pytest.mark.parametrize(("generates", "first"), [(False, "score 1"), (True, "drawn 0")])
def test_a_stage_that_no_limit_binds_follows_its_draw_at_once(generates: bool, first: str) -> None:
    told: list[str] = []

    async def draw(i: int) -> None:
        for _ in range(0 if i else 50):
            await asyncio.sleep(0)
        told.append(f"drawn {i}")

    async def score(i: int) -> None:
        told.append(f"score {i}")

    async def main() -> None:
        scope = Scope.root("p", budget=Budget(generated=8))
        await scope.batch(
            range(2), Stage(draw, lambda i: Usage(generated=4)), Stage(score, generates=generates)
        )

    run(main())
    assert told[:2] == ["drawn 1", first]


@pytest.mark.parametrize(("whole", "tried"), [(False, [0, 1, 2]), (True, [0, 1])])
def test_after_a_refusal_what_is_left_over_goes_to_the_next_unless_all_are_needed(
    whole: bool, tried: list[int]
) -> None:
    begun: list[int] = []

    async def main() -> Batch[str]:
        root = Scope.root("p", budget=Budget(calls=3))

        async def one(i: int) -> str:
            begun.append(i)
            scope = root.child(str(i), budget=Budget(calls=0) if i == 1 else None)
            await Writer()(scope)
            return f"done {i}"

        return await root.batch(range(3), one, whole=whole)

    batch = run(main())
    assert begun == tried
    assert batch.results[:2] == ["done 0", None] and [*batch.refused] == [1]


def test_an_error_that_is_no_limit_leaves_a_batch_at_once() -> None:
    async def fails(i: int) -> int:
        if i == 1:
            raise EngineError("broken")
        return i

    for budget in (None, Budget(calls=3)):
        with pytest.raises(EngineError, match="broken"):
            asyncio.run(_batch(budget, fails))


async def _batch(budget: Budget | None, work: Callable[[int], Awaitable[int]]) -> Batch[int]:
    return await Scope.root("p", budget=budget).batch(range(3), work)


def test_an_attempt_is_none_where_a_limit_refuses_it_and_only_there() -> None:
    async def main() -> None:
        scope = Scope.root("p", budget=Budget(calls=1))
        assert await scope.attempt(Writer()(scope.child("a"))) is not None
        assert await scope.attempt(Writer()(scope.child("b"))) is None
        assert scope.exhausted
        with pytest.raises(ScopeError):
            await scope.attempt(never())

    async def never() -> None:
        raise ScopeError("another error")

    run(main())


def test_parts_of_a_budget_are_equal_and_what_comes_later_keeps_its_own() -> None:
    async def main() -> None:
        root = Scope.root("p", budget=Budget(generated=11, calls=6, seconds=60))
        sample, score = root.parts("sample", "score", later=1)
        assert (sample.path, score.path) == ("sample", "score")
        assert (sample.left().generated, score.left().generated) == (
            4,
            4,
        )  # and three are left for what comes
        assert (sample.left().calls, score.left().calls) == (2, 2)
        (alone,) = root.parts("alone")
        assert (alone.left().generated, alone.left().calls) == (11, 6)
        assert [scope.left() for scope in Scope.root("p").parts("a", "b")] == [Budget(), Budget()]

    run(main())
