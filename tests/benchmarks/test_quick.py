"""The gate on speed: what counts as a fall, and that each of its sides works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import quick


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [
        ([1.0, 1.1], [2.0, 2.1], True),
        ([1.0, 1.1], [2.0, 1.05], False),  # a turn on record was as low
        ([1.6, 1.7], [2.0, 2.1], False),  # below, but by less than machines differ
        ([1.0], [], False),  # nothing on record
        ([4.0], [2.0], False),
    ],
)
def test_a_fall_is_below_all_turns_on_record_and_far_below_their_median(
    now: list[float], before: list[float], found: bool
) -> None:
    assert quick.fallen(now, before) is found


def test_a_fall_fails_the_command_and_the_record_grows_by_its_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speed = {"now": 2.0}
    monkeypatch.setattr(quick, "RECORD", tmp_path / "quick.json")
    monkeypatch.setattr(quick, "pairs", lambda: iter([("ours", lambda: speed["now"], lambda: 1.0)]))
    assert quick.main([]) == 0 and not quick.RECORD.exists()
    assert quick.main(["record"]) == 0
    assert json.loads(quick.RECORD.read_text()) == {quick.processor(): {"ours": [2.0] * quick.TURNS}}
    speed["now"] = 1.0
    capsys.readouterr()
    assert quick.main([]) == 1
    assert "fallen" in capsys.readouterr().out
    assert json.loads(quick.RECORD.read_text()) == {quick.processor(): {"ours": [2.0] * quick.TURNS}}


def test_the_record_has_each_ratio_that_is_measured() -> None:
    """A ratio without a record guards nothing. The sandbox is missing where no programs can be isolated."""
    measured = {name for name, _, _ in quick.pairs()}
    for recorded in json.loads(quick.RECORD.read_text("utf-8")).values():
        assert measured - set(recorded) == set()
        assert set(recorded) - measured <= {"programs in the sandbox over bare interpreters"}
