"""The limiter on a simulated clock: it finds what a server can take, keeps near it, and recovers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from metagen.errors import InputError
from metagen.generators.openai.limiter import Concurrency, Limiter

Serve = Callable[[int], float | None]


def simulate(
    limiter: Limiter, serve: Serve, seconds: float, size: float = 1.0, pause: float = 0.0
) -> dict[str, float]:
    """A caller that always has more to ask. serve: of the requests under way, itself included, the seconds that one
    takes, or None if it is refused, which takes no time to speak of.
    """
    now, running = 0.0, 0
    ending: list[tuple[float, float, bool]] = []
    count = {"answered": 0.0, "refused": 0.0, "most": 0.0}
    while now < seconds:
        while limiter.admits(running, now):
            running += 1
            count["most"] = max(count["most"], running)
            took = serve(running)
            heapq.heappush(ending, (now + (0.001 if took is None else took), now, took is not None))
        if not ending:
            now = max(limiter.closed_until, now + 1e-9)
            continue
        now, began, good = heapq.heappop(ending)
        running -= 1
        count["answered" if good else "refused"] += 1
        if good:
            limiter.answered(began, now, size, running)
        else:
            limiter.refused(began, now, pause)
    return count


def test_against_a_server_without_limits_the_window_grows_to_its_most_and_no_further() -> None:
    limiter = Limiter(Concurrency(2, 50))
    count = simulate(limiter, lambda running: 1.0, 60.0)
    assert limiter.window == 50 and count["most"] == 50
    assert count["answered"] > 0.9 * 50 * 60


@pytest.mark.parametrize("capacity", [1, 3, 10, 40])
def test_refusals_cut_the_window_to_what_the_server_has(capacity: int) -> None:
    """With jitter in the times: most places are used, and few requests are refused."""
    chance = random.Random(capacity)
    limiter = Limiter(Concurrency(64, 256))
    count = simulate(
        limiter, lambda running: None if running > capacity else chance.uniform(0.5, 1.5), 400.0, pause=0.1
    )
    assert limiter.window <= 2 * capacity + 1
    assert count["answered"] > 0.6 * capacity * 400, "a saw between half and all of what there is"
    assert count["refused"] < 0.2 * count["answered"] + 80


def test_one_round_of_complaints_cuts_once() -> None:
    limiter = Limiter(Concurrency(32, 256))
    for _ in range(32):
        limiter.refused(began=1.0, now=2.0)
    assert limiter.window == 16
    limiter.refused(began=2.5, now=3.0)
    assert limiter.window == 8


def test_a_window_never_falls_below_one_request() -> None:
    limiter = Limiter(Concurrency(4, 8))
    for i in range(20):
        limiter.refused(began=i + 0.5, now=i + 1.0)
    assert limiter.admits(0, 30.0) and not limiter.admits(1, 30.0)


def test_a_server_that_becomes_slow_gets_less_at_a_time_and_more_again_when_it_recovers() -> None:
    """It serves 8 at full speed, and the time of one grows as the square of what is beyond: thrashing."""
    limiter = Limiter(Concurrency(4, 256))
    simulate(limiter, lambda running: max(1.0, (running / 8) ** 2), 300.0)
    assert 8 <= limiter.window <= 32, (
        "without the limit all 256 would be under way, at a thousandth of the speed"
    )
    before = limiter.window
    for i in range(400):
        limiter.answered(300.0 + i, 301.0 + i, 1.0, running=int(limiter.window))
    assert limiter.window > before


def test_longer_answers_are_not_taken_for_a_slower_server() -> None:
    limiter = Limiter(Concurrency(8, 64))
    for i in range(200):
        limiter.answered(float(i), i + 0.1, size=10, running=64)
    for i in range(200, 400):
        limiter.answered(float(i), i + 10.0, size=1000, running=64)
    assert limiter.window == 64


def test_readings_between_generations_are_not_taken_for_a_slower_server() -> None:
    """A token takes 0.01 s in a sample of 200, and a prompt that is read, for one token, a whole second."""
    limiter = Limiter(Concurrency(8, 64))
    for i in range(400):
        limiter.answered(i - 2.0, float(i), size=200, running=64)
        limiter.answered(i - 1.0, float(i), size=None, running=64)
    assert limiter.window == 64


def test_a_window_that_a_slow_server_has_cut_grows_again_while_it_only_reads() -> None:
    limiter = Limiter(Concurrency(4, 64))
    for i in range(50):
        limiter.answered(float(i), i + 1.0, size=100, running=64)
    for i in range(50, 100):
        limiter.answered(float(i), i + 1.0, size=1, running=64)
    cut = limiter.window
    assert cut < 16
    for i in range(100, 800):
        limiter.answered(float(i), i + 1.0, size=None, running=64)
    assert limiter.window > 2 * cut


def test_a_window_that_is_not_used_does_not_grow() -> None:
    limiter = Limiter(Concurrency(8, 64))
    for i in range(100):
        limiter.answered(float(i), i + 1.0, 1.0, running=1)
    assert limiter.window == 8


def test_nothing_is_admitted_before_the_time_that_was_asked_for() -> None:
    limiter = Limiter(Concurrency(8, 64))
    limiter.refused(began=0.0, now=1.0, pause=5.0)
    limiter.refused(began=0.0, now=1.5, pause=1.0)
    assert not limiter.admits(0, 5.9)
    assert limiter.admits(0, 6.0)


@pytest.mark.parametrize(("start", "most"), [(0, 4), (5, 4), (-1, -1)])
def test_a_concurrency_that_is_none_is_refused(start: int, most: int) -> None:
    with pytest.raises(InputError, match="1 ≤ start ≤ most"):
        Concurrency(start, most)
