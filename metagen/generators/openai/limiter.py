"""How many requests a server may have at a time: a window that grows while it answers and shrinks when it complains."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from metagen.errors import InputError
from metagen.values import Count

#: Requests at a time, at first and at most, unless said otherwise.
START: Final = 64
MOST: Final = 512
#: What the window is multiplied with where the server refused or hung.
REFUSED: Final = 0.5
#: A window below this grows no faster than this one: a server that takes one request would refuse every second.
FEW: Final = 8.0
#: Connections fail often where more than this share of them does; how much one counts.
OFTEN, WEIGHT = 0.25, 0.05
#: A window is judged by so many rounds of answers, and so many answers, at least.
ROUNDS, ANSWERS = 2, 32
#: Widening ends where the server gets less than so much of its best done; another window is kept where it gets so much
#: more done.
WORSE, BETTER = 0.75, 1.08
#: Judgements until another window is tried; four times as many after each pair of trials in vain, up to the second.
SOON, LATE = 4, 16


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests under way: how many at first, and how many at most. Raises InputError unless 1 ≤ start ≤ most.

    start: at first. most: at most.
    """

    start: Count = START
    most: Count = MOST

    def __post_init__(self) -> None:
        if not 1 <= self.start <= self.most:
            raise InputError(
                f"concurrency start={self.start!r}, most={self.most!r}: expected 1 ≤ start ≤ most requests at a time"
            )


class Look:
    """How much a server gets done at a window. at: the window; after: when it became this one."""

    def __init__(self, at: float, after: float) -> None:
        self.at, self._after = at, after
        self._since: float | None = None
        self._done, self._answers = 0.0, 0

    def add(self, began: float, now: float, size: float) -> float | None:
        """One more answer. Tokens a second, once enough have come since the first that was sent at this window."""
        if self._since is None:
            self._since = now if began >= self._after else None
            return None
        self._done, self._answers = self._done + size, self._answers + 1
        if self._answers < max(ROUNDS * self.at, ANSWERS) or began < self._since or now <= self._since:
            return None
        return self._done / (now - self._since)


class Limiter:
    """The window: additive increase, multiplicative decrease (Chiu and Jain 1989), on a clock that the caller reads.

    It starts wide and widens as TCP does: until the first complaint each answer adds one, after it each round of
    answers. It does not grow while it is not used. A complaint is a refusal, a request that hung, or connections that
    fail often while others are answered. It cuts the window by half, once: what had been sent before the cut says
    nothing about the window after it.

    The server's total work in a second judges the window too. Widening ends where more at a time gets less done. From
    then on, half as many and twice as many are tried by turns, and kept where that gets more done (Dong et al. 2015,
    PCC). Trials in vain make the next ones rarer. A longer answer is no complaint: a server that batches takes longer
    for each and gets more done. Times are in seconds, of any clock. The lengths of answers tell the work; nothing is
    judged while some have none, which take time too.
    """

    def __init__(self, concurrency: Concurrency) -> None:
        self._most = concurrency.most
        self.window = float(concurrency.start)
        #: Nothing is sent before this time.
        self.closed_until = 0.0
        #: With each answer, with each round of them, or by trials alone.
        self._growth: Literal["fast", "slow", "none"] = "fast"
        self._last_cut = -1.0
        #: Whether anything was answered since the last cut; the share of connections that failed of late.
        self._answers, self._dropped = False, 0.0
        self._look = Look(self.window, -1.0)
        #: The most that was done while the window widened, and the window then.
        self._best, self._best_at = 0.0, self.window
        #: What is done at the window that is kept, and this window while another is tried.
        self._pace = 0.0
        self._kept: float | None = None
        #: Judgements since the last trial, and how many there are to be; by what the next one multiplies the window.
        self._judged, self._patience, self._factor = 0, SOON, 0.5

    def admits(self, running: int, now: float) -> bool:
        """Whether one more may be sent beside those that are running."""
        return running < int(self.window) and now >= self.closed_until

    def note_answer(self, began: float, now: float, size: float | None, running: int) -> None:
        """An answer came. size: its tokens, or some other measure of its length, None for one that has none, such as
        log-probabilities of a prompt; running: others under way.
        """
        self._answers, self._dropped = True, self._dropped * (1 - WEIGHT)
        used = 2 * (running + 1) >= self.window
        if used and self._growth == "fast":  # to twice what was judged
            self.window = min(self.window + 1.0, max(2 * self._look.at, ANSWERS), float(self._most))
        elif used and self._growth == "slow" and self._kept is None:
            self.window = min(self.window + 1.0 / max(self.window, FEW), float(self._most))
        if size is None or not used:
            self._move(self.window if self._kept is None else self._kept, now)
        elif (pace := self._look.add(began, now, max(size, 1.0))) is not None:
            self._judge(pace, now)

    def note_refusal(self, began: float, now: float, pause: float = 0.0) -> None:
        """The server refused for being busy, or hung. pause: for how long it asked to be left alone."""
        self.closed_until = max(self.closed_until, now + pause)
        if began > self._last_cut:
            self._growth, self._last_cut, self._answers = "slow", now, False
            self._move(max(1.0, self.window * REFUSED), now)

    def note_drop(self, began: float, now: float) -> None:
        """A connection failed. Where nothing is answered the server is away, and where one fails now and then the
        network is at fault: neither says that there are too many.
        """
        self._dropped += WEIGHT * (1 - self._dropped)
        if self._dropped > OFTEN and self._answers:
            self.note_refusal(began, now)

    def _move(self, window: float, now: float) -> None:
        self.window, self._kept = window, None
        self._look = Look(window, now)

    def _judge(self, pace: float, now: float) -> None:
        if self._kept is not None:
            self._end_trial(pace, self._kept, now)
        elif self._growth == "fast":
            self._widen(pace, now)
        else:
            self._pace, self._judged = pace, self._judged + 1
            self._move(self.window, now)
            if self._judged >= self._patience:
                self._try(now)

    def _widen(self, pace: float, now: float) -> None:
        """End it at the widest window, or where the server gets less done than before, and go back to the best."""
        if pace >= self._best:
            self._best, self._best_at = pace, self._look.at
        widest = self._look.at >= self._most
        if pace < WORSE * self._best or (widest and BETTER * pace < self._best):
            self._growth, self._judged = "none", SOON
            self._move(self._best_at, now)
        elif widest:
            self._growth, self._patience = "none", LATE
            self._move(self.window, now)
        else:
            self._look = Look(self.window, -1.0)

    def _try(self, now: float) -> None:
        """Another window: half as many, or twice."""
        kept, other = self.window, min(max(1.0, self.window * self._factor), float(self._most))
        self._move(other, now)
        self._kept = kept

    def _end_trial(self, pace: float, kept: float, now: float) -> None:
        if pace > BETTER * self._pace:
            self._growth, self._pace, self._patience = "none", pace, SOON
            self._move(self.window, now)
            self._try(now)
            return
        if self.window < kept and self._growth == "none":
            self._factor = 2.0
        else:  # neither half nor twice as many, which a window that grows finds by itself
            self._factor, self._judged, self._patience = 0.5, 0, min(4 * self._patience, LATE)
        self._move(kept, now)


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
