"""Thoughts beside recorded answers, or within them, in `metagen grade`: read, shown, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs import study as run
from metagen.runs.declare import study_schema as studies
from metagen.runs.declare.grade import Fields, grading
from metagen.runs.directory import StudyDirectory

RECORDS: list[dict[str, Any]] = [
    {"id": "one", "gold": "2", "samples": ["2", "3", None, "2"], "sure": [90, 40, 10, 20],
     "reasoning": ["1 and 1, not 7", "so 2", "let me see", "easy"]},
    {"id": "two", "gold": "12", "samples": ["12", None, "7", "12"], "sure": [20, 0, 30, 40],
     "reasoning": ["3*4", None, "a guess", None]},
]  # fmt: skip


def pool(tmp_path: Path, *records: dict[str, Any]) -> Path:
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def graded(path: Path, *options: str) -> tuple[dict[str, float], list[dict[str, Any]], str]:
    """Accuracies, candidates, and what was said."""
    run_dir = path.parent / f"run-{len(list(path.parent.glob('run-*')))}"
    result = CliRunner().invoke(app, ["grade", str(path), *options, "--out", str(run_dir)])
    assert result.exit_code == 0, result.output
    rows = pq.read_table(run_dir / "configurations.parquet").to_pylist()
    cells = {f"{row['strategy']}@{row['n'] or 1}": row["accuracy"] for row in rows}
    return cells, pq.read_table(run_dir / "candidates.parquet").to_pylist(), " ".join(result.output.split())


def inline(record: dict[str, Any], *, opened: bool) -> dict[str, Any]:
    """The same samples, with their thoughts in their texts."""
    texts = []
    for text, thought in zip(record["samples"], record["reasoning"], strict=True):
        before = "" if thought is None else ("<think>" if opened or text is None else "") + thought
        after = "" if thought is None or text is None else "</think>"
        texts.append(None if text is None and thought is None else f"{before}{after}{text or ''}")
    return {**{k: v for k, v in record.items() if k != "reasoning"}, "samples": texts}


def test_thoughts_are_kept_apart_and_those_that_were_cut_are_named(tmp_path: Path) -> None:
    cells, rows, said = graded(pool(tmp_path, *RECORDS), "--thoughts", "reasoning", "--score", "sure")
    found = {(row["problem"], row["position"]): row for row in rows}
    assert [found["one", i]["thought"] for i in range(4)] == RECORDS[0]["reasoning"]
    assert [found["two", i]["thought"] for i in range(4)] == RECORDS[1]["reasoning"]
    assert [found["one", i]["text"] for i in range(4)] == ["2", "3", "", "2"]
    assert [found["one", i]["raw.sure"] for i in range(4)] == [90, 40, 10, 20], (
        "equal answers, and their own scores"
    )
    assert (found["one", 2]["finish"], found["two", 1]["finish"]) == ("length", "eos")
    assert "1 of 8 (12.5%) samples were cut within their thought: they have no answer, and no vote" in said
    assert "1 of 8 (12.5%) samples are empty" in said and "1 of 8 samples are null: they abstain" in said
    assert "1 of 8 samples have no thought ('reasoning' is null)" in said
    assert cells["majority@4"] == 1.0 and cells["best-sure@4"] == 1.0
    audit = json.loads((tmp_path / "run-0" / "audit.json").read_text("utf-8"))["recorded"]["counts"]
    assert (audit["cut"], audit["empty"]) == (1, 1)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run-0"), "one"])
    assert "cut within its thought" in " ".join(shown.output.split()), shown.output


@pytest.mark.parametrize("opened", [True, False])
def test_thoughts_within_samples_are_as_those_in_a_field(opened: bool, tmp_path: Path) -> None:
    cells, rows, _ = graded(pool(tmp_path, *RECORDS), "--thoughts", "reasoning", "--score", "sure")
    path = pool(tmp_path, *(inline(record, opened=opened) for record in RECORDS))
    same, others, said = graded(path, "--thought-end", "</think>", "--score", "sure")
    assert cells == same
    keys = ("problem", "position", "text", "thought", "finish", "correct")

    def told(table: list[dict[str, Any]]) -> list[list[Any]]:
        return sorted(([row[key] for key in keys] for row in table), key=repr)

    assert told(rows) == told(others)
    assert "1 of 8 samples have no thought (no '</think>' in the text)" in said
    *_, said = graded(path)
    assert "samples hold <think> or </think>, which is read as part of the answer" in said


def test_equal_answers_behind_other_thoughts_are_no_repeats(tmp_path: Path) -> None:
    texts, thoughts = ["12"] * 3, ["a " * 50, "b " * 50, "a " * 50]
    *_, said = graded(
        pool(tmp_path, {"id": "a", "gold": "12", "samples": texts, "reasoning": thoughts}),
        "--thoughts",
        "reasoning",
    )
    assert "1 of 3 (33.3%) samples repeat another one of their problem word for word" in said


@pytest.mark.parametrize(
    "record",
    [
        {"samples": ["2"], "reasoning": ["hm"]},
        {"samples": [{"content": "2", "reasoning": "hm"}]},
        {"samples": "2", "reasoning": "hm"},
    ],
)
def test_thoughts_that_are_not_read_are_named(record: dict[str, Any], tmp_path: Path) -> None:
    path = pool(tmp_path, {"id": "a", "gold": "2", **record})
    assert "'reasoning' is not read; --thoughts reasoning reads it" in " ".join(grading(path).notes)
    assert not grading(path, fields={"thoughts": "reasoning"}).notes


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"samples": ["2"], "reasoning": "of the reference"}, Fields()),
        ({"samples": ["2"], "reasoning": ["a", "b"]}, Fields()),
        ({"samples": "2", "reasoning": "so 2"}, Fields(reference="reasoning")),
    ],
)
def test_what_are_no_thoughts_of_samples_is_not_named(
    record: dict[str, Any], named: Fields, tmp_path: Path
) -> None:
    assert not grading(pool(tmp_path, {"id": "a", "gold": "2", **record}), named=named).notes


STUDY = """\
name: thoughts
task: {kind: jsonl, path: pool.jsonl, fields: {question: id, answer: gold}, answer: math}
generators:
  t: {kind: replay, path: pool.jsonl, fields: {texts: samples, thoughts: reasoning}, thought_end: "</think>"}
strategies: {single: {kind: sample}, majority: {kind: majority}}
grid: {n: [1, 4]}
study:
  sizes: {t: {parameters: 70.0e+9, tokens: 900}}
"""


def test_a_study_reads_thoughts_and_names_those_that_were_cut(tmp_path: Path) -> None:
    inside = {"id": "three", "gold": "5", "samples": ["<think>9-4</think>5", "5", "<think>hm", "4"],
              "reasoning": [None, "9-4", None, "x"]}  # fmt: skip
    pool(tmp_path, *RECORDS, inside)
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    study, directory = studies.load(tmp_path / "study.yaml"), StudyDirectory(tmp_path / "out")
    notes = " ".join(note.text for note in run.run(study, directory.root).notes)
    assert "2 of 12 (16.7%) samples were cut within their thought" in notes
    assert "1 of 12 samples have no thought ('reasoning' is null, no '</think>' in the text)" in notes
