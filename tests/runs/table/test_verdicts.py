"""Recorded verdicts decide: what is right depends on them, whatever the answer rule makes of the texts."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.curves.measured import Pool


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def figures(run: Path) -> dict[str, float]:
    table = pq.read_table(run / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


def graded(tmp_path: Path, records: list[dict[str, Any]], *options: str) -> dict[str, float]:
    pool = written(tmp_path / "pool.jsonl", *records)
    result = CliRunner().invoke(app, ["grade", str(pool), *options, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    return figures(tmp_path / "run")


PROGRAMS = ["return None", "print()", "I refuse.", "x = 5"]


@pytest.mark.parametrize(
    "texts", [PROGRAMS, ["no number here", "7", "8", "9"], [None, "1", "2", "3"], [""] * 4]
)
def test_coverage_and_choices_by_scores_do_not_hang_on_what_can_be_read(
    tmp_path: Path, texts: list[str | None]
) -> None:
    """The right sample is the one whose text says nothing to the rule."""
    records = [
        {"id": name, "samples": texts, "correct": [1, 0, 0, 0], "sure": [0.9, 0.4, 0.3, 0.2]} for name in "ab"
    ]
    found = graded(tmp_path, records, "--correct", "correct", "--score", "sure")
    assert found["single"] == pytest.approx(0.25)
    assert [found[f"pass@{n}"] for n in (1, 2, 4)] == pytest.approx([0.25, 0.5, 1.0])
    assert [found[f"best-sure@{n}"] for n in (1, 2, 4)] == pytest.approx([0.25, 0.5, 1.0])


def test_a_vote_goes_by_what_can_be_read_and_by_chance_or_score_where_nobody_votes(tmp_path: Path) -> None:
    right, sure = [1, 0, 0, 1], [0.9, 0.4, 0.3, 0.2]
    records = [{"id": "a", "samples": ["?", "!", "7", "8"], "correct": right, "sure": sure}]
    found = graded(tmp_path, records, "--correct", "correct", "--score", "sure")

    def expected(weights: list[float] | None, n: int) -> float:
        total = []
        for subset in combinations(range(4), n):
            voting = [i for i in subset if i >= 2]
            if weights is None:
                among = voting or list(subset)
                total.append(np.mean([right[i] for i in among]))
            else:
                total.append(right[max(voting or subset, key=lambda i: weights[i])])
        return float(np.mean(total))

    for n in (1, 2, 4):
        assert found[f"majority@{n}"] == pytest.approx(expected(None, n)), n
        assert found[f"weighted-sure@{n}"] == pytest.approx(expected(sure, n)), n


def test_what_runs_by_itself_chooses_among_all_samples_too(tmp_path: Path) -> None:
    """Strategies that are not averages over a pool, on texts of which two are equal and differ in verdict."""
    records = [
        {"id": name, "samples": ["", "", "2", "3"], "right": [1, 0, 0, 0], "sure": [0.9, 0.1, 0.3, 0.2]}
        for name in "abc"
    ]
    pool = written(tmp_path / "pool.jsonl", *records)
    (tmp_path / "it.yaml").write_text(
        f"""
name: it
task: {{kind: recorded, path: {pool}}}
generators:
  theirs: {{kind: replay, path: {pool}, fields: {{texts: samples, correct: right, scores.sure: sure}}}}
verifiers:
  sure: {{kind: recorded, score: sure}}
  oracle: {{kind: oracle}}
strategies:
  pass: {{kind: rejection, verifier: oracle}}
  soft: {{kind: soft_best_of_n, verifier: sure, beta: 0.0001}}
  first: {{kind: rejection, verifier: sure, threshold: 0.8}}
grid: {{n: [4]}}
""",
        "utf-8",
    )
    result = CliRunner().invoke(app, ["run", str(tmp_path / "it.yaml"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    found = pq.read_table(tmp_path / "run" / "configurations.parquet").to_pylist()
    assert {row["strategy"]: row["accuracy"] for row in found} == {"pass": 1.0, "soft": 1.0, "first": 1.0}
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "a"])
    assert shown.exit_code == 0 and "no answer ✓" in shown.output, shown.output


def test_shown_problems_tell_equal_texts_with_other_verdicts_apart(tmp_path: Path) -> None:
    records = [
        {"id": "a", "samples": ["", "", "", "5"], "correct": [1, 0, 0, 0], "sure": [0.9, 0.1, 0.1, 0.2]}
    ]
    graded(tmp_path, records, "--correct", "correct", "--score", "sure")
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "a", "--all"])
    assert shown.exit_code == 0, shown.output
    assert "1 of 4 right" in shown.output and "no answer that can be read: no vote" in shown.output
    assert "None" not in shown.output


def test_the_order_of_scores_is_that_of_their_raw_scores() -> None:
    """Values that a map has made equal; a raw score that is missing; one candidate cut, one without a score."""
    nan = float("nan")
    values = np.array([[1.0, 1.0, 1.0, 0.5, nan, 1.0]])
    raw = np.array([[40.0, 90.0, 60.0, 0.0, nan, 99.0]])
    eligible = np.array([[True, True, True, True, True, False]])
    sizes = np.array([6])
    for best in range(6):
        correct = np.arange(6)[None] == best
        pool = Pool(
            np.array([[0, 0, 0, 0, 0, -1]]), eligible, correct, {"v": values}, np.array([-1]), sizes,
            {"v": raw},
        )  # fmt: skip
        order = [1, 2, 0, 3, 4, 5]  # by raw scores, then the unscored, then what is not eligible
        for n in (1, 2, 3, 6):
            subsets = list(combinations(range(6), n))
            wins = np.mean([min(subset, key=order.index) == best for subset in subsets])
            assert pool.accuracy("best_of_n", n, "v")[0][0] == pytest.approx(wins)
