"""How long the work behind the samples will take, said only where it is known."""

import pytest

from metagen.cli.progress import _counts
from metagen.runs.work.progress import Meter, Phase


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_rest_takes_as_long_as_what_is_done() -> None:
    clock = Clock()
    phase = Phase(clock)
    phase.begin("curves of test", 3, "curves", 100)
    assert phase.left is None
    clock.now = 10.0
    phase.advance(20)
    assert phase.left == pytest.approx(40.0)
    clock.now = 25.0
    assert phase.left == pytest.approx(25.0)
    clock.now = 100.0
    assert phase.left == 0.0
    phase.advance(80)
    assert phase.left is None


def test_nothing_is_said_of_items_that_take_unknown_times() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.begin(10, 2)
    meter.advance(10, 10)
    meter.after = Phase(clock)
    assert "10 of 10 samples" in _counts(meter)
    meter.after.begin("sections", 8, "sections")
    clock.now = 5.0
    meter.after.advance()
    assert _counts(meter) == "sections: 1 of 8 sections"
    meter.after.begin("page")
    assert _counts(meter) == "page …"
    meter.after.begin("curves of test", 57, "curves", 100)
    clock.now = 15.0
    meter.after.advance(50)
    assert _counts(meter) == "curves of test: 1 of 57 curves, about 10 s left"
