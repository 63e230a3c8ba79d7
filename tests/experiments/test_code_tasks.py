"""A code task in an experiment: recorded programs, graded by hidden tests and chosen by public ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

PROBLEM = {
    "task_id": "one", "prompt": "Write a function to double a number.", "text": "Write a function to double a number.",
    "code": "def double(x):\n    return 2 * x", "test_setup_code": "", "challenge_test_list": [],
    "test_list": ["assert double(1) == 2", "assert double(4) == 8", "assert double(-3) == -6"],
}  # fmt: skip
SAMPLES = [
    "```python\ndef double(x):\n    return x + 1\n```",  # passes the public test, and not the hidden ones
    "```python\ndef double(x):\n    return x * 2\n```",
    "```python\ndef double(x):\n    return 0\n```",
    "no program at all",
]
FILE = """\
name: programs
task: {kind: mbpp, path: problems.jsonl, shown: 1}
generators: {recorded: {kind: replay, path: pool.jsonl}}
verifiers: {tests: {kind: public_tests, wall: 5}, truth: {kind: oracle}}
strategies:
  single: {kind: sample}
  tested: {kind: best_of_n, verifier: tests}
  bound: {kind: best_of_n, verifier: truth}
grid: {n: [1, 4]}
"""


def test_public_tests_choose_and_hidden_tests_grade(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n", "utf-8")
    (tmp_path / "programs.yaml").write_text(FILE, "utf-8")
    pool = {"id": "mbpp/one", "texts": SAMPLES}
    (tmp_path / "pool.jsonl").write_text(json.dumps(pool) + "\n", "utf-8")
    run = tmp_path / "run"
    result = CliRunner().invoke(app, ["run", str(tmp_path / "programs.yaml"), "--out", str(run)])
    assert result.exit_code == 0, result.output
    rows = {row["text"]: row for row in pq.read_table(run / "candidates.parquet").to_pylist()}
    assert [rows[text]["correct"] for text in SAMPLES] == [False, True, False, False]
    assert [rows[text]["score.tests"] for text in SAMPLES] == [1.0, 1.0, 0.0, 0.0]
    found = {
        r["configuration"]: r["accuracy"] for r in pq.read_table(run / "configurations.parquet").to_pylist()
    }
    assert found["recorded/single"] == 0.25 and found["recorded/bound@4"] == 1.0
    assert found["recorded/tested@4"] == 0.5  # two programs pass the public test; one of them is right
