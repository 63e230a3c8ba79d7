"""Problems that a pool's own records tell: of one sample a line, and with verdicts in the place of references."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.generators.replay import VERDICT
from metagen.sequence import Score, Sequence
from metagen.tasks.recorded import RecordedTask

FIELDS = {"id": "task", "question": "asked", "reference": "gold"}


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_the_first_record_of_an_id_tells_its_problem(tmp_path: Path) -> None:
    records = [
        {"task": 0, "asked": "1+1?", "gold": 2, "text": "x"},
        {"task": "b", "asked": None, "gold": "1/2"},
        {"task": 0, "asked": "other", "gold": 2},
    ]
    task = RecordedTask(written(tmp_path / "pool.jsonl", *records), fields=FIELDS)
    problems = list(task.problems())
    assert [(p.id, p.prompt.text, p.reference) for p in problems] == [
        ("0", "1+1?", "2"),
        ("b", "b", "1/2"),
    ]
    assert task.name == "pool"
    answers = [Sequence(problems[1].prompt, text, finish="eos") for text in ("so 0.5", "so 2")]
    assert asyncio.run(task.grade(problems[1], answers)) == [1.0, 0.0]
    numbers = RecordedTask(task.source, fields=FIELDS, answer="number", pattern="so (.*)", limit=1)  # type: ignore[arg-type]  # a path
    assert asyncio.run(numbers.answer.read(answers))[0].key == "1/2" and len(list(numbers.problems())) == 1


def test_verdicts_grade_and_need_no_reference(tmp_path: Path) -> None:
    task = RecordedTask(written(tmp_path / "pool.jsonl", {"id": "a"}), fields={"id": "id"})
    (problem,) = task.problems()
    plain = Sequence(problem.prompt, "x", finish="eos")
    scores = (Score(1.0), Score(0.0), Score(None, verdict="unscored"))
    samples = [replace(plain, scores={VERDICT: score}) for score in scores]
    assert asyncio.run(task.grade(problem, samples)) == [1.0, 0.0, 0.0]
    with pytest.raises(InputError, match=r"problem 'a' has no recorded verdict; map it .* \{correct: …\}"):
        asyncio.run(task.grade(problem, [plain]))


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        (
            [{"task": "a", "gold": "2"}],
            {"fields": {"name": "task"}},
            "'name' is none of id, question, reference",
        ),
        (
            [{"task": "a"}],
            {"fields": {"id": "task"}, "verdicts": False},
            "expected a reference, or verdicts",
        ),
        (
            [{"task": "a"}, [1]],
            {"fields": FIELDS},
            r"line 2 is \[1\]; expected one object a line",
        ),
        ([{"task": ["a"], "gold": "2"}], {"fields": FIELDS}, r":1: the id is \['a'\]; expected a text"),
        ([], {"fields": FIELDS}, "holds no problems; expected one record a line"),
        (
            [{"task": "a", "gold": "2"}],
            {"fields": {**FIELDS, "question": "promt"}},
            "record 'a' has no field 'promt' for the question",
        ),
    ],
)
def test_faults_are_named(
    records: list[object], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((DataError, InputError), match=message):
        RecordedTask(written(tmp_path / "pool.jsonl", *records), **options)
