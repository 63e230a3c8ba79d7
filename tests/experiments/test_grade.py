"""Grading what others have sampled: the figures, the fields, and what is said of files that are no pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError, DataError
from metagen.experiments import grade

RECORDS: list[dict[str, Any]] = [
    {
        "id": "a",
        "question": "1+1?",
        "gold": 2,
        "samples": ["2", "2", "3", None],
        "sure": [0.1, 0.2, 0.9, 0.3],
    },
    {
        "id": "b",
        "question": "2+2?",
        "gold": "4",
        "samples": ["5", "5", "5", "4"],
        "sure": [0.1, 0.1, 0.1, 0.8],
    },
]


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def figures(run: Path) -> dict[str, float]:
    table = pq.read_table(run / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


def test_a_pool_is_graded_by_its_own_references_with_votes_coverage_and_recorded_scores(
    tmp_path: Path,
) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    asked = ["grade", str(pool), "--pattern", "^(.*)$", "--score", "sure", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "pass (oracle)" in result.output
    found = figures(tmp_path / "run")
    assert found["single"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    # Of the 6 pairs: a right sample is in 5 of a, in 3 of b.
    assert found["pass@2"] == pytest.approx((5 / 6 + 3 / 6) / 2)
    assert found["pass@4"] == 1.0
    # A pair of a: {2,2} and {2,none} (twice) are right, {2,3} a tie (twice), {3,none} wrong; of b: a tie in 3 of 6.
    assert found["majority@2"] == pytest.approx(((1 + 2 + 2 * 0.5) / 6 + (3 * 0.5) / 6) / 2)
    assert found["majority@4"] == pytest.approx((1.0 + 0.0) / 2)
    assert found["best-sure@4"] == pytest.approx((0.0 + 1.0) / 2)
    assert found["weighted-sure@4"] == pytest.approx((0.0 + 1.0) / 2)


def test_the_task_and_the_verifiers_of_an_experiment_are_used(tmp_path: Path) -> None:
    data = written(
        tmp_path / "data.jsonl",
        *({"id": r["id"], "question": r["question"], "answer": str(r["gold"])} for r in RECORDS),
    )
    like = tmp_path / "like.yaml"
    like.write_text(
        f"task: {{kind: jsonl, path: {data.name}, pattern: '^(.*)$'}}\n"
        "verifiers: {perfect: {kind: oracle}}\n",
        "utf-8",
    )
    pool = written(
        tmp_path / "pool.jsonl", *({"problem_id": r["id"], "completions": r["samples"]} for r in RECORDS)
    )
    experiment = grade.experiment(pool, like=like, n=[1, 4])
    assert set(experiment.strategies) == {"single", "majority", "pass", "best-perfect", "weighted-perfect"}
    assert experiment.grid.n == (1, 4)
    run = tmp_path / "run"
    result = CliRunner().invoke(app, ["grade", str(pool), "--like", str(like), "-n", "4", "--out", str(run)])
    assert result.exit_code == 0, result.output
    assert figures(run)["best-perfect@4"] == figures(run)["pass@4"] == 1.0


def test_sizes_are_powers_of_two_and_the_smallest_pool(tmp_path: Path) -> None:
    sizes = [5, 7]
    pool = written(tmp_path / "p.jsonl", *({"id": str(k), "gold": 1, "samples": ["1"] * k} for k in sizes))
    assert grade.experiment(pool).grid.n == (1, 2, 4, 5)


@pytest.mark.parametrize(
    ("records", "named", "message"),
    [
        ([], {}, "cannot read the pool.*one problem a line"),
        ([["a"]], {}, "expected one JSON object a line"),
        ([{"id": "a", "texts": ["1"]}], {}, r"usual for the reference \(answer, gold.*--reference"),
        ([{"id": "a", "gold": 1}], {}, "usual for the samples.*--samples"),
        ([{"id": "a", "gold": 1, "outs": ["1"]}], {"samples": "out"}, "no field 'out'.*did you mean 'outs'"),
        ([{"id": "a", "gold": 1, "samples": []}], {}, "problem 'a' has no samples"),
    ],
)
def test_what_is_no_pool_is_said_with_the_remedy(
    records: list[Any], named: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        grade.experiment(written(tmp_path / "pool.jsonl", *records), named=grade.Fields(**named))


def test_faults_of_the_rest_are_listed_with_their_places(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    like = tmp_path / "like.yaml"
    like.write_text("task: {kind: jsonl, path: nowhere.jsonl}\nverifiers: {v: {kind: orakle}}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"like.yaml:1: task.path(.|\n)*like.yaml:2: verifiers.v.*'oracle'"):
        grade.experiment(pool, like=like)
