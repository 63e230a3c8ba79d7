"""Several pieces of judging at once, or one after the other where a limit could end between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Ordered
from typing import TypeVar

from metagen.scope import Scope

T = TypeVar("T")

#: What the stages of a judgement spend alike, so that an early stage of many leaves nothing for the late stage of any.
SHARED = ("prefilled", "calls", "flops", "money")


async def paced(work: Ordered[Callable[[], Awaitable[T]]], scope: Scope) -> list[T]:
    """The results in order. Side by side, unless a limit binds that the stages of each piece share."""
    left = scope.left()
    if any(getattr(left, dimension) is not None for dimension in SHARED):
        return [await one() for one in work]

    async def begun(one: Callable[[], Awaitable[T]]) -> T:
        return await one()

    return await scope.gather(*(begun(one) for one in work))
