"""Several pieces of work at once, or one after the other where a limit could end between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Ordered
from typing import TypeVar

from metagen.scope import Scope

T = TypeVar("T")


async def paced(
    work: Ordered[Callable[[], Awaitable[T]]], scope: Scope, *, generates: bool = True
) -> list[T]:
    """The results in order. Side by side, unless a limit binds that calls use up.

    Under such a limit an early stage of many would leave nothing for the late stage of any, and what each piece may
    spend would hang on who is faster. generates: whether the work may generate tokens; a limit of those binds no other.
    """
    if any(limit != "generated" or generates for limit in scope.left().divisible):
        return [await one() for one in work]

    async def begun(one: Callable[[], Awaitable[T]]) -> T:
        return await one()

    return await scope.gather(*(begun(one) for one in work))
