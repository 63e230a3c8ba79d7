"""How far a run is, and when it will end: counted in samples, timed by fresh work only."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

#: Seconds of the recent past that the rate is taken from.
WINDOW = 30.0


class Meter:
    """Counts samples. What comes from the journal advances the count and never the rate.

    One thread writes it; any other may read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, window: float = WINDOW) -> None:
        self._clock, self._window = clock, window
        self.total = self.done = self.fresh = self.problems = self.problems_total = self.failures = 0
        self._began = self._fresh_from = clock()
        self._recent: deque[tuple[float, int]] = deque()

    def begin(self, total: int, problems: int) -> None:
        """Work starts on `total` samples of `problems` problems."""
        self.total, self.problems_total = total, problems
        self._began = self._fresh_from = self._clock()

    def advance(self, done: int, fresh: int) -> None:
        """`done` more samples are finished; `fresh` of them were made now."""
        now = self._clock()
        self.done += done
        self.fresh += fresh
        if fresh:
            self._recent.append((now, fresh))
        elif not self.fresh:
            self._fresh_from = now
        while self._recent and self._recent[0][0] <= now - 2 * self._window:
            self._recent.popleft()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    @property
    def rate(self) -> float | None:
        """Fresh samples a second over the recent past; None where there were none."""
        now = self._clock()
        made = sum(count for at, count in tuple(self._recent) if at > now - self._window)
        span = min(self._window, now - self._fresh_from)
        return made / span if made and span > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds to the end, if all that is left is fresh work at the recent rate; None while that is unknown."""
        if self.done >= self.total:
            return 0.0
        rate = self.rate
        return (self.total - self.done) / rate if rate else None
