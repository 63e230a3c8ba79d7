"""Answers without the words that a task asks for, as recorded pools have them, are read by every public task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metagen.runs.declare import registry
from metagen.sequence import Sequence
from metagen.tasks.base import Task

STUB = 'import math\n\ndef half(x):\n    """Half of x."""\n'
TEST = "def check(candidate):\n    assert candidate(4) == 2\n"
RECORDS: dict[str, dict[str, Any]] = {
    "gsm8k": {"id": "a", "question": "?", "answer": "so\n#### 1,051"},
    "math": {"id": "a", "problem": "?", "answer": r"\frac{1}{2}"},
    "aime": {"id": "a", "problem": "?", "answer": "025"},
    "humaneval": {"task_id": "a", "prompt": STUB, "entry_point": "half", "test": TEST},
    "mbpp": {"task_id": 1, "text": "Write half.", "code": "def half(x):\n    return x / 2",
             "test_list": ["assert half(4) == 2"], "test_setup_code": "", "challenge_test_list": []},
    "cruxeval": {"id": "a", "code": "def f(a, b):\n    return [a] * b", "input": "1, 2", "output": "[1, 1]"},
}  # fmt: skip


@pytest.fixture
def tasks(tmp_path: Path) -> Any:
    def made(kind: str, **options: Any) -> Task:
        path = tmp_path / f"{kind}.jsonl"
        path.write_text(json.dumps(RECORDS[kind]) + "\n", "utf-8")
        task: Task = registry.make("task", kind, {"source": path, **options}, {})
        return task

    return made


@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize(
    ("kind", "options", "right", "wrong"),
    [
        ("gsm8k", {}, ["1051", "1051.0", "$1,051", "1,051"], ["1052", "none"]),
        ("gsm8k", {"form": "few_shot"}, ["1051", "1051.0"], ["1052"]),
        ("math", {}, [r"\frac{1}{2}", "0.5", r"$\frac12$"], ["2", "none"]),
        ("aime", {}, ["25", "025", "25.0"], ["250"]),
        ("cruxeval", {}, ["[1, 1]", "[1,1]", "`[1, 1]`"], ["[1]", "unknown"]),
        ("cruxeval", {"form": "few_shot"}, ["[1, 1]"], ["[1]"]),
        ("cruxeval", {"mode": "input"}, ["f(1, 2)", "1, 2", "f(1, b=2)"], ["f(2, 1)", "unknown"]),
        ("mbpp", {}, ["def half(x):\n    return x / 2"], ["def half(x):\n    return x"]),
        ("humaneval", {}, ["def half(x):\n    return x / 2", "    return x / 2\n", "return x / 2",
                           "    y = x\n    return math.floor(y / 2)\n\nprint(half(3))"],
         ["    return x\n", "I cannot."]),
        ("humaneval", {"form": "few_shot"}, ["    return x / 2\n"], ["    return x\n"]),
    ],
)  # fmt: skip
def test_bare_answers_are_read_and_graded(
    kind: str, options: dict[str, Any], right: list[str], wrong: list[str], tasks: Any
) -> None:
    task = tasks(kind, **options)
    (problem,) = task.problems()
    sequences = [Sequence(problem.prompt, text, finish="eos") for text in (*right, *wrong)]
    answers = asyncio.run(task.answer.read(sequences))
    assert [answer.key is not None for answer in answers[: len(right)]] == [True] * len(right)
    if kind in ("gsm8k", "math", "aime", "cruxeval"):
        assert len({answer.key for answer in answers[: len(right)]}) == 1 or options.get("mode") == "input"
    grades = asyncio.run(task.grade(problem, sequences))
    assert grades == [1.0] * len(right) + [0.0] * len(wrong)
