"""Records from JSONL, CSV, Parquet and the hub, and tasks made of tables."""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from metagen.errors import DataError, InputError, UnsupportedError
from metagen.sequence import Sequence
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.jsonl import JsonlTask
from metagen.tasks.math_dataset import MathTask
from metagen.tasks.records import Hub, records
from metagen.tasks.tables import TableTask

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "Two and\n\"two\", is?", "answer": "4", "level": 1},
    {"id": "b", "question": "Half of three?", "answer": "1.5", "level": 2},
    {"id": "c", "question": "Nothing?", "answer": "0", "level": 2},
]  # fmt: skip


def jsonl(path: Path) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in ROWS), "utf-8")
    return path


def csv(path: Path) -> Path:
    mark = "\t" if path.suffix == ".tsv" else ","
    lines = [mark.join(ROWS[0])]
    lines += [
        mark.join(f'"{str(value).replace(chr(34), chr(34) * 2)}"' for value in row.values()) for row in ROWS
    ]
    path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n\r\n", "utf-8", newline="")
    return path


def table(path: Path) -> Path:
    parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
    return path


FORMATS = [(jsonl, "data.jsonl"), (csv, "data.csv"), (csv, "data.TSV".lower()), (table, "data.parquet")]


@pytest.mark.parametrize(("write", "name"), FORMATS)
def test_every_format_holds_the_same_problems(write: Any, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name)
    task = TableTask(path, prompt="Q: {question}\nA:")
    expected = JsonlTask(jsonl(tmp_path / "same.jsonl"), prompt="Q: {question}\nA:")
    assert list(task.problems()) == list(expected.problems())
    assert task.name == "data" and len(list(TableTask(path, limit=2).problems())) == 2
    half = list(task.problems())[1]
    answers = [Sequence(half.prompt, text, finish="eos") for text in ("A:3/2", "A:2")]
    assert asyncio.run(task.grade(half, answers)) == [1.0, 0.0]


def test_numbers_of_records(tmp_path: Path) -> None:
    assert [number for number, _ in records(jsonl(tmp_path / "a.jsonl"))] == [1, 3, 5]
    assert [number for number, _ in records(csv(tmp_path / "a.csv"))] == [1, 2, 3]
    assert dict(next(records(table(tmp_path / "a.parquet")))[1]) == ROWS[0]


def test_fields_are_mapped_and_a_reference_is_cut_out(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("name,problem,solution,grade\n7,How many?,2 + 2 #### 4,3\n", "utf-8")
    fields = {"id": "name", "question": "problem", "answer": "solution", "level": "grade"}
    (problem,) = TableTask(path, fields=fields, reference="#### (.*)$").problems()
    assert (problem.id, problem.prompt.text, problem.reference, problem.level) == ("7", "How many?\n", "4", 3)


def test_parquet_values_that_json_does_not_know(tmp_path: Path) -> None:
    row = {"id": 1, "question": "When?", "answer": 4.0, "made": datetime.date(2020, 1, 2), "raw": b"\xff"}
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.Table.from_pylist([row]), path)
    (problem,) = TableTask(path).problems()
    assert (problem.id, problem.reference) == ("1", "4.0")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", b"", "holds no problems; expected .*one problem a row"),
        ("data.csv", b"id,question,answer\n", "holds no problems"),
        ("data.csv", b"id,question,answer\na,b\n", r"data.csv:1: a row of 2 cells under a head of 3"),
        ("data.csv", b'id,question,answer\na,"b\n', r"data.csv: line 2 is not CSV"),
        ("data.csv", b"id,question,answer\na,caf\xe9,4\n", "is not UTF-8"),
        ("data.csv", b"id,question,answer\na,,4\n", r"data.csv:1: the question is None; expected a text"),
        ("data.csv", b"id,question,answer\na,?,four\na,?,4\n", r"(?s):1: the reference 'four'.*:2: id 'a' is that of"),
        ("data.csv", b"id,qestion,answer\na,?,4\n", r":1: there is no field 'question', did you mean 'qestion'"),
        ("data.csv", b"id,question,answer,answer\na,?,4,5\n", "the head has 'answer' more than once"),
        ("data.parquet", b"PAR1 no", "is not Parquet"),
        ("data.jsonl", b"{\n", r"data.jsonl:1: not JSON"),
        ("data.jsonl", b"[1]\n", r"data.jsonl:1: holds a list"),
        ("data.xlsx", b"", r"expected a file that ends in .jsonl, .parquet, .csv, .tsv"),
    ],
)  # fmt: skip
def test_faulty_tables(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        TableTask(path)


def test_bytes_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.Table.from_pylist([{"id": b"x", "question": "?", "answer": "4"}]), path)
    with pytest.raises(DataError, match=r":1: the id is b'x'; expected a text or a number"):
        TableTask(path)


def test_a_revision_is_what_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def load_dataset(name: str, config: str | None, **how: Any) -> list[dict[str, Any]]:
        asked.update(how, name=name, config=config)
        return ROWS

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert len(list(records(Hub("a/b", "c", split="train", revision="abc")))) == 3
    where = {"name": "a/b", "config": "c", "split": "train", "revision": "abc"}
    assert asked == {**where, "trust_remote_code": False}


@pytest.mark.parametrize("name", ["none.csv", "none.jsonl", "none.parquet"])
def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"cannot read '.*{name}'.*; give the path"):
        TableTask(tmp_path / name)


def test_options_are_those_of_jsonl(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'answr' is none of id, question, answer, level"):
        TableTask(csv(tmp_path / "data.csv"), fields={"answr": "gold"})


# -- the hub ------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("cache")
def test_a_data_set_by_the_library_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    jsonl(folder / "test.jsonl")
    source = Hub(str(folder), split="test")
    assert [dict(record) for _, record in records(source)] == ROWS
    task = TableTask(source)
    assert task.name == "sums" and len(list(task.problems())) == 3
    assert [p.reference for p in MathTask(source, limit=2).problems()] == ["4", "1.5"]


@pytest.mark.usefixtures("cache")
def test_a_data_set_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot load the data set '.*nothing/test'"):
        list(records(Hub(str(tmp_path / "nothing"))))


class DatasetsError(Exception):
    """The base of the library's own errors, as of one that a faulty file raises."""


@pytest.mark.parametrize(
    "error", [RuntimeError("Dataset scripts are no longer supported"), DatasetsError("faulty")]
)
def test_errors_of_the_library_say_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def load_dataset(*given: Any, **how: Any) -> None:
        raise error

    errors = types.SimpleNamespace(DatasetsError=DatasetsError)
    library = types.SimpleNamespace(load_dataset=load_dataset, exceptions=errors)
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(
        DataError, match=rf"cannot load the data set 'a/b/test': {error}; .* download its files"
    ):
        list(records(Hub("a/b")))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        UnsupportedError, match=r"'openai/gsm8k/main/test' is read by the library 'datasets'.*pip install"
    ):
        GSM8KTask()
