"""Which failures of a request pass, how long to wait before the next attempt, and when to give up."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final

from annotated_types import Gt
from tenacity import RetryCallState
from tenacity.stop import stop_base
from tenacity.wait import wait_base, wait_random_exponential

from metagen.errors import InputError
from metagen.values import Count, Expects

#: Statuses that say: try again. 409 is a lock, 425 too early; most from 500 on are faults that pass.
TRANSIENT: Final = frozenset({408, 409, 425, 429})
#: Statuses from 500 on that stay: what was asked for is not implemented.
LASTING: Final = frozenset({501, 505})
#: Statuses that say: too much at a time.
BUSY: Final = frozenset({429, 503, 529})
#: Codes and types of errors that look like one of them, and never pass: there is no money left.
QUOTA: Final = frozenset({"insufficient_quota", "exceeded_current_quota_error"})
#: The status that says so by itself, unless it names a time to come back at.
UNPAID: Final = 402
#: A server may ask for so many seconds of peace; longer ones are cut to this.
LONGEST_PAUSE: Final = 120.0
#: Seconds between attempts: up to the first, doubled with each failure, up to the second.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
Seconds = Annotated[float, Gt(0), Expects("seconds > 0")]


class Failed(Exception):
    """One attempt failed.

    kind: one word for logs and counts. transient: it may succeed another time. busy: the server has too much to do.
    pause: seconds that the server asked for. billed: the server may have done the work.
    """

    def __init__(
        self,
        message: str,
        kind: str,
        *,
        transient: bool = True,
        busy: bool = False,
        pause: float | None = None,
        billed: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.transient, self.busy, self.pause = kind, transient, busy, pause
        self.billed, self.status = billed, status


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server. Raises InputError for what is no time or number.

    timeout: seconds that one attempt may take. total: seconds of all attempts of a request and the waits between
    them; waiting for a place does not count. attempts: failures after which to give up; refusals of a busy server do
    not count, unless it says to come back at once. A pool of engines gives a replica up when nothing has moved for its
    deadline, 600 seconds unless said: the attempt has to end before.
    """

    timeout: Seconds = 540.0
    total: Seconds = 1800.0
    attempts: Count = 8

    def __post_init__(self) -> None:
        for name in ("timeout", "total"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise InputError(f"{name}={value!r}: expected seconds > 0")
        if self.attempts < 1:
            raise InputError(f"attempts={self.attempts!r}: expected an integer ≥ 1")


class Spent(stop_base):
    """Stops when a request has used up a patience; it also holds how much of it is left."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.seconds = 0.0
        self._failures = 0

    @property
    def left(self) -> float:
        """Seconds that the next attempt may take."""
        return min(self.patience.timeout, self.patience.total - self.seconds)

    def __call__(self, retry_state: RetryCallState) -> bool:
        failed = _failure(retry_state)
        # Who says to come back at once, again and again, is not busy.
        self._failures += not (failed and failed.busy and failed.pause != 0.0)
        self.seconds += retry_state.upcoming_sleep
        return self._failures >= self.patience.attempts or self.seconds >= self.patience.total


class Backoff(wait_base):
    """What the server asked for and a little more, or else exponential with full jitter.

    A server that asks for no time, or for one that is past, asked for nothing.
    """

    def __init__(self) -> None:
        self._jittered = wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT)

    def __call__(self, retry_state: RetryCallState) -> float:
        failed = _failure(retry_state)
        if failed is None or not failed.pause:
            return self._jittered(retry_state)
        return failed.pause + random.uniform(0.0, FIRST_WAIT)


def _failure(state: RetryCallState) -> Failed | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, Failed) else None


def pause_of(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a response asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date.

    At most LONGEST_PAUSE, at least 0; None if it does not say, or says what cannot be read.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return min(max(seconds, 0.0), LONGEST_PAUSE) if math.isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max((date - (now or datetime.now(UTC))).total_seconds(), 0.0), LONGEST_PAUSE)
