"""Garbage while a run is under way."""

from __future__ import annotations

import gc

import pytest

from metagen.runs.work.garbage import EVERY, rarely


@pytest.fixture(autouse=True)
def restored() -> object:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_is_looked_for_less_often_and_then_as_before() -> None:
    gc.set_threshold(700, 10, 10)
    within = rarely()
    within.__enter__()
    assert gc.get_threshold() == (EVERY, 10, 10)
    assert gc.get_freeze_count() > 0
    assert not within.__exit__(KeyError, KeyError(), None), "what goes wrong within goes on"
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_cycles_are_still_found() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    gc.set_threshold(700, 10, 10)
    with rarely():
        for _ in range(3 * EVERY):
            Node()
        assert Node.alive < 2 * EVERY


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_who_looks_less_often_or_never_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rarely():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
