"""How far a run is, and when it will end: counted in samples, timed by fresh work only."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

#: Seconds of the recent past that the rate is taken from, at least.
WINDOW = 30.0
#: Moments of it that are kept, at most, however fast deliveries come.
MARKS = 1000


class Meter:
    """Counts samples. What comes from the journal advances the count and never the rate.

    Where most comes from the journal, nothing can be said of how fast the rest will be made.

    One thread writes it; any other may read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, window: float = WINDOW) -> None:
        self._clock, self._window = clock, window
        self.total = self.done = self.fresh = self.problems = self.problems_total = self.failures = 0
        #: Records that came from a cache.
        self.cached = 0
        #: The work behind the samples: curves, figures and the page.
        self.after = Phase(clock)
        self._began = clock()
        #: Moments of the recent past, each with the fresh and the other samples until then: the start, then every
        #: delivery of fresh ones.
        self._marks: deque[tuple[float, int, int]] = deque([(self._began, 0, 0)])

    def begin(self, total: int, problems: int) -> None:
        """Work starts on `total` samples of `problems` problems."""
        self.total, self.problems_total = total, problems
        self._began = self._clock()
        self._marks = deque([(self._began, 0, 0)])

    def advance(self, done: int, fresh: int) -> None:
        """`done` more samples are finished; `fresh` of them were made now."""
        now = self._clock()
        self.done += done
        self.fresh += fresh
        if fresh:
            if len(self._marks) > 2 and now - self._marks[-2][0] < self._window / MARKS:
                self._marks.pop()  # so close together that one of them says it all
            self._marks.append((now, self.fresh, self.done - self.fresh))
        elif not self.fresh:
            self._marks[0] = (now, 0, self.done)
        while len(self._marks) > 2 and self._marks[1][0] <= now - self._window:
            self._marks.popleft()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    @property
    def rate(self) -> float | None:
        """Fresh samples a second; None where there were none, or more came from the journal.

        Taken since the last delivery before the window, or since the start: whole gaps between deliveries
        count, so that samples that come in bursts, or less than once a window, are not taken for a fast run.
        """
        now, marks = self._clock(), tuple(self._marks)
        latest = marks[-1][1]
        before = [mark for mark in marks[:-1] if mark[0] <= now - self._window] or list(marks[:1])
        at, made, found = before[-1]
        fresh, reused = latest - made, self.done - self.fresh - found
        return fresh / (now - at) if fresh and fresh >= reused and now > at else None

    @property
    def left(self) -> float | None:
        """Seconds to the end, if all that is left is fresh work at the recent rate; None while that is unknown."""
        if self.done >= self.total:
            return 0.0
        rate = self.rate
        return (self.total - self.done) / rate if rate else None


class Phase:
    """Work behind the samples, such as the curves of a study: its name, and how much of it is done.

    total, done: in any measure of work, such as calls that are read; a total of 0 is unknown. items, finished: what a
    reader counts. One thread writes it; any other may read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self.name, self.unit = clock, "", ""
        self.total = self.done = 0.0
        self.items = self.finished = 0
        self._began = self._ended = clock()

    def begin(self, name: str, items: int = 0, unit: str = "", total: float = 0.0) -> None:
        """A new phase. items: 0 where they are not counted. total: 0 where items take work of unknown amounts."""
        self.done, self.finished = 0.0, 0
        self.name, self.items, self.unit, self.total = name, items, unit, total
        self._began = self._ended = self._clock()

    def advance(self, done: float = 1.0) -> None:
        """One more item is finished, which was so much of the work."""
        self.done, self.finished = self.done + done, self.finished + 1
        self._ended = self._clock()

    @property
    def left(self) -> float | None:
        """Seconds to the end of the phase, if the rest of its work takes as long as what is done; None before that."""
        if not self.done or self.done >= self.total:
            return None
        each = (self._ended - self._began) / self.done
        # An item that takes longer than was expected pushes the end on.
        return max(0.0, each * (self.total - self.done) - (self._clock() - self._ended))
