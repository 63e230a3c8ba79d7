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
_OTHER: dict[Kind, Kind] = {"best": "labels", "labels": "best"}


class Turns:
    """`best` and `labels` take turns; `plain` requests go along with both. All of it runs in one event loop.

    Requests of a kind share its turn. Once the other kind waits, newcomers wait too: its turn comes when all that are
    in are done, and is for all of it that wait by then. So a request waits for those that are in, and for one turn.
    """

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._inside = 0
        self._waiting: dict[Kind, dict[asyncio.Future[None], None]] = {"best": {}, "labels": {}}

    @asynccontextmanager
    async def of(self, kind: Kind) -> AsyncIterator[None]:
        """A turn of that kind, which others of the kind share."""
        if kind == "plain":
            yield
            return
        await self._enter(kind)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, kind: Kind) -> None:
        if self._kind in (None, kind) and not self._waiting[_OTHER[kind]]:
            self._kind = kind
            self._inside += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting[kind][place] = None
        try:
            await place
        except BaseException:  # cancelled, or closed with its coroutine
            if place in self._waiting[kind]:
                del self._waiting[kind][place]
                self._unblock(_OTHER[kind])
            else:  # let in, and cancelled before it went in
                self._leave()
            raise

    def _leave(self) -> None:
        self._inside -= 1
        if self._inside or self._kind is None:
            return
        last, self._kind = self._kind, None
        self._let_in(_OTHER[last] if self._waiting[_OTHER[last]] else last)

    def _unblock(self, kind: Kind) -> None:
        """Newcomers of the present kind, if nobody is left for whom they waited."""
        if self._kind == kind and not self._waiting[_OTHER[kind]]:
            self._let_in(kind)

    def _let_in(self, kind: Kind) -> None:
        """All that wait, if any: they count as in from now on."""
        places, self._waiting[kind] = self._waiting[kind], {}
        if places:
            self._kind = kind
        self._inside += len(places)
        for place in places:
            if not place.done():
                place.set_result(None)
