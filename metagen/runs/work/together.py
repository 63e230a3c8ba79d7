"""Work side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of it; the first error cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
