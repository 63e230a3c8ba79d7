"""The recipe of the Countdown family, on a small share of its steps and data: `countdown/countdown_family.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metagen.tasks.countdown import notation
from metagen.tasks.countdown.game import table
from metagen.tasks.split import Split

PROPOSER, VALUE = "tiny-countdown", "tiny-countdown-value"
SCRIPT = "countdown/countdown_family.py"


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(scripts: Any, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    scripts.run(SCRIPT, whole)
    scripts.interrupt(SCRIPT, broken, (broken / "checkpoints" / f"{PROPOSER}-1.pt").exists)
    scripts.run(SCRIPT, broken)
    assert scripts.files(whole) == scripts.files(broken)
    config = json.loads((whole / "models" / VALUE / "config.json").read_text())
    assert config["metagen"]["kind"] == "prm"


def test_the_corpus_is_of_the_training_space_and_right(train: Callable[[str], Any]) -> None:
    games = train("games")
    problems = train("metagen.tasks.countdown.problems")
    for prompt, completion in games.shard(0, 30, 0):
        numbers, target = notation.read_prompt(prompt)
        assert all(notation.check(numbers, target, completion, finished=True))
        asked = problems.Problem(tuple(int(n) for n in numbers), int(target))
        assert problems.split_of(asked) is Split.TRAIN
    assert games.shard(0, 5, 1) == games.shard(0, 5, 1) != games.shard(1, 5, 1)


@pytest.mark.parametrize(
    ("text", "ended", "labels", "correct"),
    [
        ("7*3=21;2 5 21\n5-2=3;3 21\n21+3=24;24\n", True, (True, True, True), True),
        ("7*3=21;2 5 21\n5-2=3;3 21\n21+3=24;24", True, (True, True, True), True),
        ("7*3=21;2 5 21\n5-2=3;3 2", False, (True,), False),
        ("7-5=2;2 2 3\n2*2=4;3 4\n4*3=12;12\n", True, (True, True, False), False),
        ("7*3=22;2 5 22\n", True, (False,), False),
        ("", True, (), False),
    ],
)
def test_attempts_are_labelled_by_what_can_still_be_reached(
    train: Callable[[str], Any], text: str, ended: bool, labels: tuple[bool, ...], correct: bool
) -> None:
    found = train("tables").judged(table([3, 5, 7, 2]), 24, "Q:3 5 7 2=24\nS:\n", text, ended)
    assert found.correct is correct and len(found.labels) == len(found.steps) == len(labels)
    assert found.labels[-1:] == labels[-1:]
