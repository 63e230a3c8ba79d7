"""What was published of recorded pools comes out of grading them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app

POOLS = Path(__file__).parents[2] / "data" / "pools"


def graded(name: str, out: Path, *options: str) -> dict[str, float]:
    result = CliRunner().invoke(app, ["grade", str(POOLS / name), *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    table = pq.read_table(out / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (POOLS / name).read_text("utf-8").splitlines()]


def vote(row: dict[str, Any]) -> float:
    """The share of right classes among those with the most votes; abstentions have none."""
    votes = Counter(answer for answer in row["answers"] if answer is not None)
    most = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum(row["correct"][row["answers"].index(answer)] for answer in most) / max(1, len(most))


def test_gpqa_coverage_and_majority_are_the_published_ones(tmp_path: Path) -> None:
    options = ("--correct", "correct", "--pattern", "^([A-D]|.+)")
    found = graded("gpqa64_llama3.3_70b.jsonl", tmp_path / "run", *options)
    published = (0.437378, 0.554786, 0.647166, 0.716224, 0.764144, 0.791863, 0.820310, 0.875)
    assert [found[f"pass@{1 << i}"] for i in range(8)] == pytest.approx(published, abs=1e-6)
    # What is no letter is a class of its own and votes, as in the published figure …
    assert found["majority@128"] == pytest.approx(0.46875, abs=1e-9)
    # … and where it abstains, more is right.
    found = graded("gpqa64_llama3.3_70b.jsonl", tmp_path / "other", "--pattern", "^([A-D])", "-n", "16")
    assert found["majority@128"] == pytest.approx(0.484375, abs=1e-9)
    assert found["pass@16"] == pytest.approx(published[4], abs=1e-6), "from all 128, not from 16 of them"


def test_svamp_by_answers_with_shared_ties(tmp_path: Path) -> None:
    name = "svamp_codex_pot_40.jsonl"
    found = graded(name, tmp_path / "run", "--samples", "answers", "-n", "1")
    expected = rows(name)
    assert found["majority@30"] == pytest.approx(sum(map(vote, expected)) / len(expected))
    assert found["single"] == pytest.approx(sum(sum(r["correct"]) for r in expected) / (30 * len(expected)))
    assert found["pass@30"] == pytest.approx(sum(any(r["correct"]) for r in expected) / len(expected))


def test_the_game_of_24_has_no_references_and_is_graded_by_its_verdicts(tmp_path: Path) -> None:
    name = "game24_gpt4_cot_12.jsonl"
    found = graded(name, tmp_path / "run", "--correct", "correct")
    expected = rows(name)
    assert found["single"] == pytest.approx(sum(sum(r["correct"]) for r in expected) / 1200)
    assert any(any(r["correct"]) for r in expected)
    assert found["pass@100"] == pytest.approx(sum(any(r["correct"]) for r in expected) / 12)
