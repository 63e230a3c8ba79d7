"""Shapes of real pools that were read wrongly without a word."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import DataError
from metagen.generators.pool import read_pool
from metagen.runs.declare.grade import Fields, grading
from metagen.tasks.recorded import RecordedTask
from metagen.verifiers.text import TextRule


def _pool(tmp_path: Path, *records: dict[str, Any]) -> Path:
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_ids_and_references_that_were_chosen_among_several_are_named(tmp_path: Path) -> None:
    path = _pool(tmp_path, {"id": "a-0", "problem_id": "a", "answer": "3", "target": "4", "output": "A: 3"})
    notes = " ".join(grading(path).notes)
    assert "'answer' is the reference, --reference target takes the other" in notes
    assert "'id' is the id, --id problem_id takes the other" in notes
    assert not grading(path, named=Fields(id="problem_id", reference="target")).notes
    same = _pool(tmp_path, {"id": "a", "task_id": "a", "answer": "3", "gold": "3", "output": "A: 3"})
    assert not grading(same).notes


def test_samples_of_one_id_with_other_references_are_refused(tmp_path: Path) -> None:
    lines = [{"id": "a", "gold": gold, "right": 1, "output": "(A)"} for gold in "AAC"]
    path = _pool(tmp_path, *lines)
    fields = {"reference": "gold"}
    with pytest.raises(DataError, match="the reference of 'a' is 'C', and 'A' in an earlier record"):
        RecordedTask(path, fields=fields, answer="choice")
    assert RecordedTask(path, fields=fields, answer="choice", verdicts=True)  # the remedy


@pytest.mark.parametrize(
    "sample", [{"answer": 12}, {"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]}]
)
def test_objects_with_numbers_or_parts_are_no_abstentions(sample: dict[str, Any], tmp_path: Path) -> None:
    path = _pool(tmp_path, {"id": "a", "texts": [sample, {"content": None}]})
    assert [one.text for one in read_pool(path)["a"]] == ["12", None]


def test_parts_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    path = _pool(tmp_path, {"id": "a", "texts": [{"content": [{"type": "image_url"}]}]})
    with pytest.raises(DataError, match="expected a text"):
        read_pool(path)


def test_a_record_with_an_error_and_no_text_is_a_failed_call(tmp_path: Path) -> None:
    lines = [{"id": "a", "texts": "2", "error": None}, {"id": "a", "texts": None, "error": "timeout"}]
    assert [one.failed for one in read_pool(_pool(tmp_path, *lines))["a"]] == [False, True]


def test_texts_in_other_forms_of_unicode_are_equal() -> None:
    assert asyncio.run(TextRule().key("cafe\u0301")) == asyncio.run(TextRule().key("caf\u00e9"))


@pytest.mark.parametrize("name", ["pool.json", "pool.jsonl"])
def test_a_json_list_is_graded_by_its_references(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(json.dumps([{"id": "a", "gold": "2", "samples": ["2", "3"]}], indent=1), encoding="utf-8")
    assert grading(path).experiment.task.kind == "recorded"


def test_letters_that_are_read_as_mathematics_are_named(tmp_path: Path) -> None:
    path = _pool(tmp_path, {"id": "a", "gold": "(B)", "samples": ["Answer: B. 12 apples"]})
    assert "--answer choice" in " ".join(grading(path).notes)
    assert not grading(path, answer={"answer": "choice"}).notes


def test_counts_have_no_order_that_the_audit_could_tell(tmp_path: Path) -> None:
    rows = [{"id": str(i), "n": 20, "successes": 10} for i in range(10)]
    result = CliRunner().invoke(app, ["grade", str(_pool(tmp_path, *rows)), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "place in the file" not in result.output


def test_several_models_in_one_file_are_told_and_taken_apart(tmp_path: Path) -> None:
    lines = [
        {"id": problem, "gold": "1", "output": f"A: {answer}", "model": model, "temperature": 1.0}
        for problem in "ab"
        for model, answer in (("large", 1), ("large", 1), ("small", 2))
    ]
    path = _pool(tmp_path, *lines)
    (note,) = (note for note in grading(path).notes if "together" in note)
    assert note.startswith(
        "samples with 2 values of 'model' ('large', 'small') are graded together; --where model=large"
    )
    assert not [note for note in grading(path, where={"model": "large"}).notes if "together" in note]


def test_a_size_that_some_problems_do_not_have_is_no_lack_of_results(tmp_path: Path) -> None:
    rows = [{"id": str(i), "gold": "1", "samples": ["1", "2"] * (4 if i < 2 else 1)} for i in range(6)]
    pool, run = _pool(tmp_path, *rows), tmp_path / "run"
    result = CliRunner().invoke(app, ["grade", str(pool), "--out", str(run)])
    assert result.exit_code == 0, result.output
    page = (run / "report.html").read_text()
    assert "n = 8" in page and "lack a part of their results" not in page
