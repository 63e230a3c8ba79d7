"""What is left out of garbage collections, by several at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from metagen.generators.frozen import frozen


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_there_is_is_frozen_and_then_thawed() -> None:
    with frozen():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_the_first_to_leave_thaws_nothing_of_the_others() -> None:
    first, second = frozen(), frozen()
    first.__enter__()
    held = [object() for _ in range(10)]
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_freeze_count() > len(gc.get_objects()), "nearly all there is is frozen still"
    second.__exit__(None, None, None)
    assert gc.get_freeze_count() == 0 and held


def test_who_comes_later_has_what_is_new_left_out_as_well() -> None:
    with frozen():
        new = [[i] for i in range(1000)]
        with frozen():
            collected = {id(one) for one in gc.get_objects()}
            assert not collected & {id(one) for one in new}


def test_what_the_program_froze_before_stays_frozen() -> None:
    gc.freeze()
    with frozen(), frozen():
        pass
    assert gc.get_freeze_count() > 0


def test_an_error_within_goes_on_and_thaws() -> None:
    with pytest.raises(KeyError), frozen():
        raise KeyError
    assert gc.get_freeze_count() == 0
