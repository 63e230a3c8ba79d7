"""How many requests a server may have at a time: a window that grows while it answers and shrinks when it complains."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from metagen.errors import InputError

#: Requests at a time, at first and at most, unless said otherwise.
START: Final = 64
MOST: Final = 512
#: What the window is multiplied with where the server refused or hung.
REFUSED: Final = 0.5
#: A window below this grows no faster than this one: a server that takes one request would refuse every second.
FEW: Final = 8.0
#: More at a time is too much where the server gets less than so much of its best done, twice running.
WORSE: Final = 0.6
#: Its best is forgotten by so much with each look, since models, machines and neighbours change.
FORGOTTEN: Final = 0.98


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests under way: how many at first, and how many at most. Raises InputError unless 1 ≤ start ≤ most."""

    start: int = START
    most: int = MOST

    def __post_init__(self) -> None:
        if not 1 <= self.start <= self.most:
            raise InputError(
                f"concurrency start={self.start!r}, most={self.most!r}: expected 1 ≤ start ≤ most requests at a time"
            )


class Limiter:
    """The window: additive increase, multiplicative decrease (Chiu and Jain 1989), on a clock that the caller reads.

    It starts wide and widens as TCP does: until the first complaint each answer adds one, after it each round of
    answers. It does not grow while it is not used. A complaint is a refusal, or a request that hung, and cuts the
    window by half, once: what had been sent before the cut says nothing about the window after it. And where more at a
    time gets less done in all, the window goes back to where most was done. That an answer takes longer is no
    complaint: a server that batches takes longer for each and gets more done. Times are in seconds, of any clock.
    What is done is told by answers that have a length; none is looked at while there are others, which take time too.
    """

    def __init__(self, concurrency: Concurrency) -> None:
        self._most = concurrency.most
        self.window = float(concurrency.start)
        #: Nothing is sent before this time.
        self.closed_until = 0.0
        self._slow_start = True
        self._last_cut = -1.0
        #: The look at what is done: since when, at which window, how much, of how many; None while none is taken.
        self._since: float | None = None
        self._at, self._done, self._answers = self.window, 0.0, 0
        self._best, self._best_at, self._worse = 0.0, self.window, 0

    def admits(self, running: int, now: float) -> bool:
        """Whether one more may be sent beside those that are running."""
        return running < int(self.window) and now >= self.closed_until

    def answered(self, began: float, now: float, size: float | None, running: int) -> None:
        """An answer came. size: its tokens, or some other measure of its length, None for one that has none, such as
        log-probabilities of a prompt; running: others under way.
        """
        used = 2 * (running + 1) >= self.window
        if used:
            self.window += 1.0 if self._slow_start else 1.0 / max(self.window, FEW)
            self.window = min(self.window, float(self._most))
        if size is None or not used:
            self._since = None
        else:
            self._look(began, now, max(size, 1.0))

    def refused(self, began: float, now: float, pause: float = 0.0) -> None:
        """The server refused for being busy, or hung. pause: for how long it asked to be left alone."""
        self.closed_until = max(self.closed_until, now + pause)
        if began > self._last_cut:
            self._slow_start, self._since = False, None
            self.window = max(1.0, self.window * REFUSED)
            self._last_cut = now

    def _look(self, began: float, now: float, size: float) -> None:
        """Add up what is done, until all that were under way have been replaced twice; then judge it."""
        if self._since is None:
            self._since, self._at, self._done, self._answers = now, self.window, 0.0, 0
            return
        self._done, self._answers = self._done + size, self._answers + 1
        if self._answers < 2 * self._at or began < self._since or now <= self._since:
            return
        pace = self._done / (now - self._since)
        at, self._since = self._at, None
        self._best *= FORGOTTEN
        if pace >= self._best:
            self._best, self._best_at, self._worse = pace, at, 0
        elif pace < WORSE * self._best and at > self._best_at:
            self._worse += 1
            if self._worse == 2:
                self.window, self._slow_start, self._worse = self._best_at, False, 0
        else:
            self._worse = 0


class Gate:
    """Where requests wait, in order, until the limiter admits them. Lives in one event loop."""

    def __init__(self, limiter: Limiter, clock: Callable[[], float]) -> None:
        self.limiter, self.clock = limiter, clock
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """One of the places; given back however the block ends."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            # Its turn may have come in the same moment, or may just have been passed over.
            if not turn.cancelled():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self.running -= 1
        self._admit()

    def _admit(self) -> None:
        now = self.clock()
        while self._waiting and self.limiter.admits(self.running, now):
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self.running += 1
                turn.set_result(None)
        if self._waiting and self.limiter.closed_until > now and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.limiter.closed_until - now, self._open)

    def _open(self) -> None:
        self._timer = None
        self._admit()
