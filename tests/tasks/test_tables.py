"""Tables: files whose names say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.errors import DataError
from metagen.tasks.jsonl import JsonlTask
from metagen.tasks.tables import TableTask


def test_a_file_that_is_no_table_is_refused_and_is_jsonl_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text('{"id": "a", "question": "?", "answer": "4"}\n', "utf-8")
    with pytest.raises(
        DataError, match=r"data.txt': expected a file that ends in \.jsonl, \.parquet, \.csv, \.tsv"
    ):
        TableTask(path)
    assert [problem.id for problem in JsonlTask(path).problems()] == ["a"]


def test_a_table_is_read_by_either(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,question,answer,level\na,?,4,3.0\nb,?,5,\n", "utf-8")
    for task in (TableTask(path), JsonlTask(path)):
        assert [(p.id, p.reference, p.level) for p in task.problems()] == [("a", "4", 3), ("b", "5", None)]
