"""When a request is tried again, and how long is waited before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tenacity import AsyncRetrying, RetryCallState

from metagen.errors import InputError
from metagen.generators.openai.retries import (
    FIRST_WAIT,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    Backoff,
    Failed,
    Patience,
    Spent,
    pause_of,
)
from metagen.generators.ray.crew import Policy
from metagen.runs.declare.specs.executor import ExecutorSpec

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "86400"}, LONGEST_PAUSE),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=8), usegmt=True)}, 8.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=8), usegmt=True)}, 0.0),
        ({"retry-after": format_datetime(NOW + timedelta(days=8), usegmt=True)}, LONGEST_PAUSE),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:09 -0000"}, 4.0),
    ],
)
def test_the_time_that_a_server_asks_for_is_read(headers: dict[str, str], expected: float | None) -> None:
    assert pause_of(headers, NOW) == expected


def state(attempt: int, failed: Failed) -> RetryCallState:
    made = RetryCallState(AsyncRetrying(), None, (), {})
    made.attempt_number = attempt
    made.set_exception((Failed, failed, None))
    return made


def test_waits_grow_exponentially_with_full_jitter_up_to_a_bound() -> None:
    backoff = Backoff()
    for attempt in range(1, 20):
        waits = [backoff(state(attempt, Failed("x", "status"))) for _ in range(200)]
        bound = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
        assert max(waits) <= bound and min(waits) < 0.2 * bound and max(waits) > 0.8 * bound


def test_the_time_that_was_asked_for_is_a_lower_bound_with_a_little_jitter() -> None:
    waits = [Backoff()(state(1, Failed("x", "busy", pause=4.0))) for _ in range(100)]
    assert min(waits) >= 4.0 and max(waits) <= 4.0 + FIRST_WAIT and len(set(waits)) > 50


def test_failures_are_numbered_and_refusals_of_a_busy_server_are_not() -> None:
    spent = Spent(Patience(attempts=3))
    assert not any(spent(state(i, Failed("x", "busy", busy=True))) for i in range(50))
    assert [spent(state(i, Failed("x", "status"))) for i in range(3)] == [False, False, True]


def test_the_time_of_all_attempts_is_bounded() -> None:
    spent = Spent(Patience(timeout=30.0, total=100.0, attempts=1000))
    assert spent.left == 30.0
    spent.seconds = 90.0
    assert spent.left == 10.0, "the last attempt gets what is left"
    waiting = state(1, Failed("x", "busy", busy=True))
    waiting.upcoming_sleep = 9.0
    assert not spent(waiting)
    assert spent(waiting), "what would be waited counts"


def test_an_attempt_ends_before_a_pool_gives_the_engine_up() -> None:
    """A time-out moves the engine's counters; without one, a pool would take a slow server for a dead replica."""
    assert Patience().timeout + LONGEST_WAIT <= min(Policy().deadline, ExecutorSpec(kind="ray").deadline)
    assert Policy().deadline > LONGEST_PAUSE + FIRST_WAIT


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": 0.0}, {"total": -1.0}, {"timeout": float("inf")}, {"total": float("nan")}, {"attempts": 0}],
)
def test_a_patience_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Patience(**wrong)  # type: ignore[arg-type]  # of several types
