"""How many requests a server may have at a time: a window that grows while it answers and shrinks when it complains."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from metagen.errors import InputError

#: What the window is multiplied with: where the server refused or hung, and where it has merely become slow.
REFUSED: Final = 0.5
SLOWED: Final = 0.8
#: A server is slow when a token takes it so many times what it took at its best.
INFLATED: Final = 4.0
#: How much one answer counts in the mean of the times of a token.
WEIGHT: Final = 0.1
#: The best time is forgotten by so much with each answer, since models and machines change.
FORGOTTEN: Final = 1.001


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests under way: how many at first, and how many at most. Raises InputError unless 1 ≤ start ≤ most."""

    start: int = 8
    most: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.start <= self.most:
            raise InputError(
                f"concurrency start={self.start!r}, most={self.most!r}: expected 1 ≤ start ≤ most requests at a time"
            )


class Limiter:
    """The window: additive increase, multiplicative decrease (Chiu and Jain 1989), on a clock that the caller reads.

    It starts slowly, as TCP does: until the first complaint each answer adds one, after it each round of answers.
    A window is cut once for one complaint: what had been sent before the cut says nothing about the window after
    it. It does not grow while it is not used. Times are in seconds, of any clock. How fast the server is, is told by
    the answers that have a length: what else it answers says only that it does.
    """

    def __init__(self, concurrency: Concurrency) -> None:
        self._start, self._most = concurrency.start, concurrency.most
        self.window = float(concurrency.start)
        #: Nothing is sent before this time.
        self.closed_until = 0.0
        self._slow_start = True
        self._last_cut = -1.0
        self._mean: float | None = None
        self._best = float("inf")

    def admits(self, running: int, now: float) -> bool:
        """Whether one more may be sent beside those that are running."""
        return running < int(self.window) and now >= self.closed_until

    def answered(self, began: float, now: float, size: float | None, running: int) -> None:
        """An answer came. size: its tokens, or some other measure of its length, None for one that has none, such as
        log-probabilities of a prompt; running: others under way.
        """
        if size is not None and self._slow((now - began) / max(size, 1.0)):
            self._cut(began, now, SLOWED, least=self._start)
        elif 2 * running >= self.window:
            self.window += 1.0 if self._slow_start else 1.0 / self.window
            self.window = min(self.window, float(self._most))

    def refused(self, began: float, now: float, pause: float = 0.0) -> None:
        """The server refused for being busy, or hung. pause: for how long it asked to be left alone."""
        self._cut(began, now, REFUSED, least=1)
        self.closed_until = max(self.closed_until, now + pause)

    def _slow(self, pace: float) -> bool:
        """Whether a server is, that has just taken so many seconds for a token."""
        self._mean = pace if self._mean is None else self._mean + WEIGHT * (pace - self._mean)
        self._best = min(self._best * FORGOTTEN, self._mean)
        return self._mean > INFLATED * self._best

    def _cut(self, began: float, now: float, factor: float, least: int) -> None:
        if began <= self._last_cut:
            return
        self._slow_start = False
        self.window = max(min(float(least), self.window), self.window * factor)
        self._last_cut = now


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
