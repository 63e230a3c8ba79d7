"""One machine for each model: slots bound what runs, dependencies what begins, and prefixes are held once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from metagen.cost import Hardware, ModelShape, roofline_seconds
from metagen.runs.curves.efficiency.called import Accelerator, Called
from metagen.runs.curves.efficiency.critical import longest
from metagen.runs.curves.efficiency.schedule import Held, Schedule, schedule

SHAPE = ModelShape(layers=2, width=8, heads=4, kv_heads=2, head_dim=3, ff=10, vocab=7)
OTHER = ModelShape(layers=3, width=8, heads=4, kv_heads=2, head_dim=3, ff=10, vocab=7)
SHAPES = {"writer": SHAPE, "reader": OTHER}
HARDWARE = Hardware("between", 2e9, 4e8)


def called(
    *calls: tuple[str, int, int, int, Sequence[int]], depth: Sequence[int] = (), waits: bool = False
) -> Called:
    """Calls as (maker, prefilled, cached, generated, parents)."""
    count = len(calls)
    maker, new, cached, made, parents = zip(*calls, strict=True)
    scores = [m == "reader" for m in maker]

    def words(values: Sequence[str]) -> Any:
        return np.array(values, dtype=object)

    prefilled, known, generated = (np.array(a, dtype=np.float64) for a in (new, cached, made))
    return Called(
        np.zeros(count, dtype=np.int64), words(["prm" if s else "generation" for s in scores]),
        words(["score" if s else "generate" for s in scores]), words(list(maker)),
        words(["0/score" if s else f"0/sample/{len(p)}" for s, p in zip(scores, parents, strict=True)]),
        np.arange(count), np.cumsum([0, *map(len, parents)]),
        np.array([j for some in parents for j in some], dtype=np.int64),
        np.array(depth or [0] * count), np.full(count, waits), np.zeros(count, dtype=bool),
        prefilled, known, generated, prefilled + known, np.full(count, np.nan),
    )  # fmt: skip


#: Three samples of one prompt, of which two are scored, and one that goes on from the first.
MIXED = called(
    ("writer", 20, 0, 10, ()), ("writer", 0, 20, 30, ()), ("writer", 0, 20, 5, ()),
    ("reader", 30, 0, 0, (0,)), ("reader", 10, 20, 0, (2,)), ("writer", 1, 29, 8, (0, 3)),
)  # fmt: skip


def planned(rows: Called, batch: int) -> Schedule:
    found = schedule(rows, Accelerator("it", HARDWARE, batch), SHAPES)
    assert found is not None
    return found


def test_one_call_takes_the_time_of_the_roofline() -> None:
    alone = planned(called(("writer", 20, 0, 10, ())), 4)
    assert alone.seconds == pytest.approx(roofline_seconds(SHAPE, HARDWARE, 20, 10, 20))


def test_with_one_slot_calls_of_a_model_run_one_after_the_other() -> None:
    rows = called(("writer", 20, 0, 10, ()), ("writer", 0, 20, 30, ()), ("writer", 0, 20, 5, ()))
    each = [roofline_seconds(SHAPE, HARDWARE, int(p), int(g), 20) for p, g in ((20, 10), (0, 30), (0, 5))]
    found = planned(rows, 1)
    assert found.seconds == pytest.approx(sum(each))
    assert found.running.peak == 1.0


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_nothing_begins_before_what_it_waits_for_and_no_slot_is_taken_twice(batch: int) -> None:
    found = planned(MIXED, batch)
    for i in range(len(MIXED)):
        assert all(found.begin[i] >= found.end[j] for j in MIXED.graph.of(i))
        for machine in ("writer", "reader"):
            ours = MIXED.maker == machine
            assert ((found.begin[ours] <= found.begin[i]) & (found.begin[i] < found.end[ours])).sum() <= batch
    assert (found.end >= found.begin).all()


def test_slots_save_time_down_to_the_critical_path() -> None:
    times = [planned(MIXED, batch).seconds for batch in (1, 2, 3)]
    assert times[0] > times[1] >= times[2]
    path = longest(MIXED.graph, MIXED.batch_seconds(Accelerator("it", HARDWARE, 1), SHAPES)).seconds
    assert times[2] >= path * (1 - 1e-12)


def test_a_level_begins_when_the_one_before_has_ended() -> None:
    calls = (("writer", 20, 0, 10, ()), ("writer", 0, 20, 30, ()), ("writer", 1, 29, 5, (0,)))
    free, level = (planned(called(*calls, depth=(1, 1, 2), waits=waits), 4) for waits in (False, True))
    assert free.begin[2] == pytest.approx(free.end[0])
    assert level.begin[2] == pytest.approx(level.end[1])


def test_a_shared_prompt_is_held_once_and_for_as_long_as_it_is_read() -> None:
    rows = called(("writer", 1000, 0, 2, ()), ("writer", 0, 1000, 2, ()), ("writer", 0, 1000, 40, ()))
    found, token = planned(rows, 8), SHAPE.kv_bytes_per_token
    # Nobody goes on from the short samples: they are let go, and the prompt stays for the longest.
    assert 3 * 1000 * token <= found.apart.peak <= (3 * 1000 + 44) * token
    assert 1000 * token <= found.held.peak <= 1044 * token
    (_, late) = found.held.at(np.array([0.999 * found.seconds]))
    assert 1000 * token <= late[0] <= 1040 * token


def test_what_is_gone_on_from_is_kept() -> None:
    rows = called(("writer", 10, 0, 500, ()), ("reader", 510, 0, 0, (0,)), ("writer", 1, 509, 2, (0, 1)))
    found = planned(rows, 8)
    middle = (found.begin[1] + found.end[1]) / 2
    (_, held) = found.held.at(np.array([middle]))
    assert held[0] == 510 * SHAPE.kv_bytes_per_token + 510 * OTHER.kv_bytes_per_token


def test_what_is_unknown_has_no_schedule_and_what_reads_nothing_takes_no_time() -> None:
    accelerator = Accelerator("it", HARDWARE, 2)
    assert schedule(MIXED, accelerator, {"writer": SHAPE}) is None
    nothing = called(("writer", 20, 0, 10, ()), ("reader", 0, 0, 0, (0,)))
    found = schedule(nothing, accelerator, {"writer": SHAPE})
    assert found is not None
    assert found.seconds == pytest.approx(roofline_seconds(SHAPE, HARDWARE, 20, 10, 20))


def test_the_mean_and_the_peak_are_those_of_the_course() -> None:
    rng = np.random.default_rng(0)
    begin = rng.random(6)
    full = begin + rng.random(6)
    held = Held(begin, full, full + rng.random(6), rng.random(6), 1 + rng.random(6))
    grid = (np.arange(200_000) + 0.5) / 200_000 * held.end.max()
    course = held.at(grid)[1]
    assert held.mean == pytest.approx(course.mean(), rel=1e-3)
    assert held.peak == pytest.approx(course.max(), rel=1e-3)
