"""A task as far as a pool goes: its problems, its grader, and its steps."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.errors import ConfigError, DataError
from metagen.generators.replay import VERDICT
from metagen.runs.declare import registry
from metagen.runs.declare.pooled import PooledTask
from metagen.sequence import Score, Sequence
from metagen.tasks.arithmetic.task import ArithmeticTask

WHOLE = ArithmeticTask(per_level=2, levels=[1])
TASK = {"kind": "arithmetic", "per_level": 2, "levels": [1]}


def pool(path: Path, *ids: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": one, "texts": ["A:1"], "v": [1]}) + "\n" for one in ids), "utf-8"
    )
    return path


def test_it_asks_what_the_pool_has_and_grades_as_the_task_does(tmp_path: Path) -> None:
    first, second = WHOLE.problems()
    task = PooledTask(TASK, pool(tmp_path / "p.jsonl", second.id, "other"))
    assert list(task.problems()) == [second] and task.name == WHOLE.name
    right = Sequence(second.prompt, f"A:{second.reference}\n", finish="eos")
    wrong = Sequence(second.prompt, "A:1/977\n", finish="eos")
    assert asyncio.run(task.grade(second, [right, wrong])) == [1.0, 0.0]
    text = "nothing follows\n"
    assert task.check_steps(second, text, finished=True) == WHOLE.check_steps(second, text, finished=True)
    said = PooledTask(TASK, tmp_path / "p.jsonl", fields={"correct": "v"})
    assert asyncio.run(said.grade(second, [replace(wrong, scores={VERDICT: Score(1.0)})])) == [1.0]
    silent = Sequence(second.prompt, "no answer\n", finish="eos")
    (answer,) = asyncio.run(said.answer.read([silent]))
    assert answer.key is None and not answer.needed, (
        "what cannot be read has no vote, and may still be chosen"
    )
    with pytest.raises(DataError, match="has no problem of the task 'arithmetic'"):
        PooledTask(TASK, pool(tmp_path / "none.jsonl", "x"))
    assert first.id != second.id


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="per_levle"):
        PooledTask(TASK | {"per_levle": 2}, pool(tmp_path / "p.jsonl", "x"))


def test_files_of_older_versions_name_it_by_where_it_was() -> None:
    assert registry.find("task", "metagen.experiments.pooled:PooledTask") is PooledTask
