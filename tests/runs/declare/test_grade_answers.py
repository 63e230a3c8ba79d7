"""`metagen grade --answer`: any rule, with and without a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.runs.declare import grade

SHARED = Path(__file__).parents[4] / "shared" / "data"


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def graded(pool: Path, run: Path, *options: str) -> dict[str, float]:
    result = CliRunner().invoke(app, ["grade", str(pool), *options, "--out", str(run)])
    assert result.exit_code == 0, result.output
    table = pq.read_table(run / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


CHOICES: list[dict[str, Any]] = [
    {
        "id": "a",
        "gold": "B",
        "samples": ["(B)", "The answer is B.", "A", "A cat"],
        "said": ["B", "b", "A", None],
    },
    {"id": "b", "gold": "C", "samples": ["A", "(a)", "Answer: C", "**C**"], "said": ["A", "A", "C", "C"]},
]
PROGRAMS = [
    {"id": "a", "samples": ["x", "y", "z", "z"], "right": [1, 1, 0, 0]},
    {"id": "b", "samples": ["x", "y", "z", "w"], "right": [1, 0, 0, 0]},
]


def test_choices_are_read_by_name_and_with_letters(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *CHOICES)
    found = graded(pool, tmp_path / "run", "--answer", "choice")
    assert found["single"] == pytest.approx((2 / 4 + 2 / 4) / 2)
    assert found["majority@4"] == pytest.approx((1 + 0.5) / 2)
    yaml = "{kind: choice, letters: ABCD}"
    assert graded(pool, tmp_path / "other", "--answer", yaml) == found


def test_text_folds_what_it_is_told_to(tmp_path: Path) -> None:
    pool = written(
        tmp_path / "pool.jsonl", {"id": "a", "gold": "New York", "samples": ["new  york", "New York", "Rome"]}
    )
    assert graded(pool, tmp_path / "1", "--answer", "text")["single"] == pytest.approx(1 / 3)
    folding = "{kind: text, fold_case: true, fold_blanks: true}"
    assert graded(pool, tmp_path / "2", "--answer", folding)["single"] == pytest.approx(2 / 3)


def test_a_recorded_answer_is_read_in_place_of_the_text(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *CHOICES)
    rule = "{kind: recorded, field: said, rule: choice}"
    found = graded(pool, tmp_path / "run", "--answer", rule)
    assert found["single"] == pytest.approx((2 / 4 + 2 / 4) / 2)
    # The abstention of a does not vote.
    assert found["majority@4"] == pytest.approx((1 + 0.5) / 2)


@pytest.mark.parametrize(("wrong", "expected"), [("texts", (0.5 + 0.25) / 2), ("one", (0.5 + 0.0) / 2)])
def test_verdicts_make_classes_and_bounds_that_are_marked(
    wrong: str, expected: float, tmp_path: Path
) -> None:
    """Of a two are right, of the wrong ones two agree: a tie. Of b one is right, no wrong ones agree."""
    pool = written(tmp_path / "pool.jsonl", *PROGRAMS)
    run = tmp_path / "run"
    found = graded(pool, run, "--correct", "right", "--answer", f"{{kind: verdicts, wrong: {wrong}}}")
    assert found["majority@4"] == pytest.approx(expected)
    assert found["single"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    rows = pq.read_table(run / "configurations.parquet", columns=["configuration", "oracle"]).to_pylist()
    oracle = {row["configuration"].removeprefix("recorded/"): row["oracle"] for row in rows}
    assert oracle["majority@4"] and oracle["pass@4"] and not oracle["single"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": {"answer": "choise"}}, "--answer='choise' is no answer rule.*did you mean 'choice'"),
        ({"answer": {"answer": "{kind: choice, leters: AB}"}}, "has no option 'leters'"),
        (
            {"answer": {"answer": "verdicts"}},
            "it reads recorded verdicts; say which field has them by --correct",
        ),
    ],
)
def test_faults_name_the_option(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        grade.grading(written(tmp_path / "pool.jsonl", *CHOICES), **options)


def test_a_rule_takes_the_place_of_the_task_s_own(tmp_path: Path) -> None:
    data = written(
        tmp_path / "data.jsonl", *({"id": r["id"], "question": "?", "answer": r["gold"]} for r in CHOICES)
    )
    pool = written(tmp_path / "pool.jsonl", *CHOICES)
    task = f"{{kind: jsonl, path: {data}, answer: text}}"
    assert graded(pool, tmp_path / "1", "--task", task)["single"] == 0.0
    found = graded(pool, tmp_path / "2", "--task", task, "--answer", "choice")
    assert found["single"] == pytest.approx(0.5) and found["majority@4"] == pytest.approx(0.75)


def test_bare_recorded_answers_of_cruxeval_vote(tmp_path: Path) -> None:
    """Answers are calls, without the `Answer:` that the task asks for."""
    source = SHARED / "pools" / "cruxeval_input_codellama7b_t02_n10.jsonl"
    problems = SHARED / "problems" / "cruxeval.jsonl"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(source.read_text("utf-8").splitlines(keepends=True)[:60]), "utf-8")
    task = f"{{kind: cruxeval, mode: input, path: {problems}}}"
    options = ("--samples", "answers", "--correct", "correct", "--partial")
    found = graded(pool, tmp_path / "run", "--task", task, *options)
    rows = [json.loads(line) for line in pool.read_text("utf-8").splitlines()]
    share = sum(sum(r["correct"]) for r in rows) / (10 * len(rows))
    assert found["single"] == pytest.approx(share)
    assert found["majority@10"] > 0.8 * share
