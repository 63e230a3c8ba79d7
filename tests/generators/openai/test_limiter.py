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
    limiter: Limiter, serve: Serve, seconds: float, size: float = 1.0, pause: float = 0.0, start: float = 0.0
) -> dict[str, float]:
    """A caller that always has more to ask. serve: of the requests under way, itself included, the seconds that one
    takes, or None if it is refused, which takes no time to speak of.
    """
    now, running = start, 0
    ending: list[tuple[float, float, bool]] = []
    count = {"answered": 0.0, "refused": 0.0, "most": 0.0}
    while now < start + seconds:
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
            limiter.note_answer(began, now, size, running)
        else:
            limiter.note_refusal(began, now, pause)
    return count


def test_against_a_server_without_limits_the_window_grows_to_its_most_and_no_further() -> None:
    limiter = Limiter(Concurrency(2, 50))
    count = simulate(limiter, lambda running: 1.0, 60.0)
    assert limiter.window == 50 and count["most"] == 50
    assert count["answered"] > 0.85 * 50 * 60, "it began with two at a time"


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
    assert count["refused"] < 0.2 * count["answered"] + 2 * 64


def test_one_round_of_complaints_cuts_once() -> None:
    limiter = Limiter(Concurrency(32, 256))
    for _ in range(32):
        limiter.note_refusal(began=1.0, now=2.0)
    assert limiter.window == 16
    limiter.note_refusal(began=2.5, now=3.0)
    assert limiter.window == 8


def test_a_window_never_falls_below_one_request() -> None:
    limiter = Limiter(Concurrency(4, 8))
    for i in range(20):
        limiter.note_refusal(began=i + 0.5, now=i + 1.0)
    assert limiter.admits(0, 30.0) and not limiter.admits(1, 30.0)


def test_a_server_that_becomes_slow_gets_less_at_a_time_and_more_again_when_it_recovers() -> None:
    """It serves 8 at full speed, and the time of one grows as the square of what is beyond: thrashing."""
    limiter = Limiter(Concurrency(4, 256))
    simulate(limiter, lambda running: max(1.0, (running / 8) ** 2), 300.0)
    assert 8 <= limiter.window <= 32, (
        "without the limit all 256 would be under way, at a thousandth of the speed"
    )
    simulate(limiter, lambda running: 1.0, 300.0, start=300.0)
    assert limiter.window > 64, "all recover"


def batching(running: int) -> float:
    """1 s, and 0.1 s for each in the batch: one alone takes 1.1 s, 64 take 7.4 s, and nine times as much is done."""
    return 1.0 + 0.1 * running


@pytest.mark.parametrize("start", [1, 8, 64])
def test_a_server_that_batches_is_given_all_it_can_take_though_each_answer_takes_longer(start: int) -> None:
    limiter = Limiter(Concurrency(start, 256))
    count = simulate(limiter, batching, 600.0)
    assert limiter.window == 256
    assert count["answered"] > 0.8 * 600 * 256 / batching(256)


@pytest.mark.parametrize("seed", range(5))
def test_answers_of_all_lengths_that_end_together_or_apart_cut_nothing(seed: int) -> None:
    """Tokens take 0.01 s each, more in a batch; lengths vary forty times, and a fifth of the answers are of rounds."""
    chance = random.Random(seed)
    limiter = Limiter(Concurrency(16, 128))
    now, running = 0.0, 0
    ending: list[tuple[float, float, int]] = []
    while now < 300.0:
        while limiter.admits(running, now):
            running += 1
            length = chance.choice([5, 20, 80, 200])
            took = length * (0.01 + 0.0002 * running)
            heapq.heappush(
                ending, (round(now + took, 1) if chance.random() < 0.2 else now + took, now, length)
            )
        now, began, length = heapq.heappop(ending)
        running -= 1
        limiter.note_answer(began, now, length, running)
    assert limiter.window == 128


def test_a_server_that_queues_what_is_too_much_is_not_taken_for_a_slow_one() -> None:
    """It works on 8 at a time; who waits longer in its queue gets as much done in all."""
    limiter = Limiter(Concurrency(64, 256))
    count = simulate(limiter, lambda running: max(1.0, running / 8), 300.0)
    assert limiter.window >= 64 and count["answered"] > 0.9 * 8 * 300


def beyond(knee: int, power: float) -> Callable[[int], float]:
    """A server that gets most done with `knee` requests, and less with more: one a second for each, at the knee."""
    return lambda running: running / (min(running, knee) * min(1.0, knee / running) ** power)


@pytest.mark.parametrize(
    ("knee", "power"), [(8, 0.2), (8, 0.5), (32, 0.5), (32, 1.0), (128, 0.5), (128, 1.0)]
)
def test_the_window_finds_where_most_is_done_below_its_start_and_above(knee: int, power: float) -> None:
    """Of all that could be done in 2,000 s, with what it costs to find out. A window of 512 does 6% to 50% of it."""
    limiter = Limiter(Concurrency())
    count = simulate(limiter, beyond(knee, power), 2000.0)
    assert count["answered"] > 0.7 * knee * 2000
    assert knee / 4 <= limiter.window <= 4 * knee


@pytest.mark.parametrize(
    ("rate", "burst", "pause"), [(10, 10, 1.0), (100, 100, 1.0), (1, 60, 1.0), (8, 500, 20.0)]
)
def test_a_server_that_allows_so_many_a_second_is_asked_for_about_as_many(
    rate: int, burst: int, pause: float
) -> None:
    """A bucket of tokens: each request takes one, `rate` a second come back, and an empty one refuses."""
    limiter, chance = Limiter(Concurrency()), random.Random(rate)
    now, filled, left, running, good, bad = 0.0, 0.0, float(burst), 0, 0, 0
    ending: list[tuple[float, float, bool]] = []
    while now < 600.0:
        while limiter.admits(running, now):
            running += 1
            left, filled = min(burst, left + rate * (now - filled)), now
            passes = left >= 1
            left -= passes
            heapq.heappush(ending, (now + (chance.uniform(0.1, 0.3) if passes else 0.01), now, passes))
        if not ending:
            now = max(limiter.closed_until, now + 1e-6)
            continue
        now, began, passed = heapq.heappop(ending)
        running -= 1
        good, bad = good + passed, bad + (not passed)
        if passed:
            limiter.note_answer(began, now, 1.0, running)
        else:
            limiter.note_refusal(began, now, pause)
    assert good > 0.9 * rate * 600 and bad < good


def drops(limiter: Limiter, broken: Callable[[int], bool], seconds: float) -> tuple[int, int]:
    """How many are answered, after 1 s, and how many connections fail, after 0.1 s. broken: with so many in work."""
    now, running, working, good, bad = 0.0, 0, 0, 0, 0
    ending: list[tuple[float, float, bool]] = []
    while now < seconds:
        while limiter.admits(running, now):
            running += 1
            fails = broken(working + 1)
            working += not fails
            heapq.heappush(ending, (now + (0.1 if fails else 1.0), now, not fails))
        now, began, answered = heapq.heappop(ending)
        running, working = running - 1, working - answered
        good, bad = good + answered, bad + (not answered)
        if answered:
            limiter.note_answer(began, now, 1.0, running)
        else:
            limiter.note_drop(began, now)
    return good, bad


def test_a_server_that_drops_connections_beyond_some_gets_about_as_many() -> None:
    good, bad = drops(Limiter(Concurrency()), lambda working: working > 8, 400.0)
    assert good > 0.7 * 8 * 400 and bad < good


def test_connections_that_fail_now_and_then_cut_nothing() -> None:
    chance = random.Random(1)
    good, bad = drops(Limiter(Concurrency(64, 64)), lambda working: chance.random() < 0.01, 200.0)
    assert bad > 50 and good > 0.9 * 64 * 200


def test_a_server_that_is_away_cuts_once_at_most() -> None:
    limiter = Limiter(Concurrency(64, 256))
    limiter.note_answer(0.0, 1.0, 1.0, 63)
    for i in range(1000):
        limiter.note_drop(began=1.0 + i, now=2.0 + i)
    assert limiter.window >= 32


def test_requests_without_a_length_between_others_cut_nothing() -> None:
    """Prompts that are read take a second each, and nothing is written meanwhile."""
    limiter = Limiter(Concurrency(8, 64))
    for i in range(400):
        limiter.note_answer(i - 2.0, float(i), size=200, running=64)
        limiter.note_answer(i - 1.0, i + 9.0 * (i % 3 == 0), size=None, running=64)
    assert limiter.window == 64


def test_time_in_which_nothing_was_asked_is_not_counted() -> None:
    limiter = Limiter(Concurrency(8, 64))
    for pause in range(40):
        start = 100.0 * pause
        for i in range(20):
            limiter.note_answer(start + i, start + i + 1.0, size=10, running=64)
        limiter.note_answer(start + 20.0, start + 21.0, size=10, running=0)
    assert limiter.window == 64


def test_a_window_that_is_not_used_does_not_grow() -> None:
    limiter = Limiter(Concurrency(8, 64))
    for i in range(100):
        limiter.note_answer(float(i), i + 1.0, 1.0, running=1)
    assert limiter.window == 8


def test_nothing_is_admitted_before_the_time_that_was_asked_for() -> None:
    limiter = Limiter(Concurrency(8, 64))
    limiter.note_refusal(began=0.0, now=1.0, pause=5.0)
    limiter.note_refusal(began=0.0, now=1.5, pause=1.0)
    assert not limiter.admits(0, 5.9)
    assert limiter.admits(0, 6.0)


@pytest.mark.parametrize(("start", "most"), [(0, 4), (5, 4), (-1, -1)])
def test_a_concurrency_that_is_none_is_refused(start: int, most: int) -> None:
    with pytest.raises(InputError, match="1 ≤ start ≤ most"):
        Concurrency(start, most)
