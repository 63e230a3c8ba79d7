"""A code task in an experiment: recorded programs, graded by hidden tests and chosen by public ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.directory import RunDirectory

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


def test_broken_hidden_tests_are_nobodys_fault_and_end_nothing(tmp_path: Path) -> None:
    """One problem's tests are no Python, another's need a package that is missing; the third is graded as ever."""
    faults = {
        "cut": {"test_list": ["assert double(1 == 2"]},
        "bare": {"test_setup_code": "import no_such_package"},
    }
    records = [PROBLEM, *(PROBLEM | {"task_id": name} | fault for name, fault in faults.items())]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    pool = [{"id": f"mbpp/{record['task_id']}", "samples": SAMPLES} for record in records]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(r) + "\n" for r in pool), "utf-8")
    run, task = tmp_path / "run", f"{{kind: mbpp, path: {tmp_path}/problems.jsonl, shown: 1}}"
    result = CliRunner().invoke(
        app, ["grade", str(tmp_path / "pool.jsonl"), "--task", task, "--out", str(run)]
    )
    assert result.exit_code == 2, result.output
    assert "The tests of 2 of 3 problems are broken: they are left out" in " ".join(result.output.split())
    rows = pq.read_table(run / "configurations.parquet").to_pylist()
    found = {r["configuration"]: (r["accuracy"], r["problems"]) for r in rows}
    assert found["recorded/single"] == (0.25, 1) and found["recorded/pass@4"] == (1.0, 1)
    state = RunDirectory(run).state()
    assert state.status == "complete"
    assert {f.problem: f.kind for f in state.failures} == dict.fromkeys(
        ("mbpp/cut", "mbpp/bare"), "BrokenTests"
    )


def test_programs_of_contests_are_graded_by_their_output(tmp_path: Path) -> None:
    """From the command line: a program in the pool that nobody can judge is counted, and named as such."""
    record = {
        "name": "sum", "description": "Print the sum.", "public_tests": {"input": ["1 2"], "output": ["3"]},
        "private_tests": {"input": ["3 4"], "output": ["7"]}, "generated_tests": {"input": [], "output": []},
    }  # fmt: skip
    samples = [
        "print(sum(map(int, input().split())))\nexit()",
        "print(3)",
        "import numpy as np\nprint(np.sum(np.array(input().split(), int)))",
        "print(int(input()))",
    ]
    (tmp_path / "contests.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    (tmp_path / "pool.jsonl").write_text(json.dumps({"id": "sum", "samples": samples}) + "\n", "utf-8")
    run, task = tmp_path / "run", f"{{kind: code_contests, path: {tmp_path}/contests.jsonl, seconds: 5}}"
    result = CliRunner().invoke(
        app, ["grade", str(tmp_path / "pool.jsonl"), "--task", task, "--out", str(run)]
    )
    assert result.exit_code == 0, result.output
    rows = {row["text"]: row for row in pq.read_table(run / "candidates.parquet").to_pylist()}
    assert [rows[text]["correct"] for text in samples] == [True, False, False, False]
    assert [rows[text]["ungraded"] for text in samples] == [False, False, True, False]
    assert [rows[text]["score.grader"] for text in samples] == [1.0, 0.0, None, 0.0]
    assert rows[samples[2]]["verdict.grader"] == "ungraded"
    said = " ".join(result.output.split())
    assert "recorded: 1 of 4 samples (25.0%) are ungraded" in said and "They count as wrong." in said


def test_both_rules_of_codet_are_options_of_a_file(tmp_path: Path) -> None:
    from metagen.errors import ConfigError
    from metagen.runs.declare import schema

    path = tmp_path / "codet.yaml"
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n", "utf-8")
    (tmp_path / "pool.jsonl").write_text(json.dumps({"id": "mbpp/one", "texts": SAMPLES}) + "\n", "utf-8")
    codet = "tests: {kind: dual_agreement, generator: recorded, rule: sqrt}"
    text = FILE.replace("tests: {kind: public_tests, wall: 5}", codet)
    path.write_text(text, "utf-8")
    assert schema.load(path).verifiers["tests"].options()["rule"] == "sqrt"
    path.write_text(text.replace("sqrt", "cube"), "utf-8")
    with pytest.raises(ConfigError, match="rule"):
        schema.load(path)
