"""Requests that must not meet in one step of vLLM.

Where a step holds a request for the log-probabilities of given labels, vLLM gives all others in it no more than that of
the token they drew: a request for the best k would come back without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Kind = Literal["plain", "best", "labels"]


class Turns:
    """`best` and `labels` take turns; `plain` requests go along with both."""

    def __init__(self) -> None:
        self._free = asyncio.Condition()
        self._kind: Kind | None = None
        self._inside = 0

    @asynccontextmanager
    async def of(self, kind: Kind) -> AsyncIterator[None]:
        """A turn of that kind, which others of the kind share."""
        if kind == "plain":
            yield
            return
        async with self._free:
            await self._free.wait_for(lambda: self._kind in (None, kind))
            self._kind = kind
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._kind = None
                async with self._free:
                    self._free.notify_all()
