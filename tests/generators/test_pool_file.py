"""A file of recorded samples, read from its beginning and again at any place."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError
from metagen.generators import pool_records
from metagen.generators.pool import PoolFile, read_pool
from metagen.generators.pool_records import RecordFile
from metagen.generators.replay import ReplayGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import wait

#: Characters of one to four bytes, what ends a line elsewhere, and what begins or ends a JSON list.
TEXTS = ["a", "é", "∑", "𝔸", "x\u2028y", "]", "[,{", '"}', "\\", "\n"]
RECORDS: list[dict[str, Any]] = [{"id": f"p{i}", "texts": [TEXTS[i % 10] * i, i]} for i in range(40)]


def form(name: str, records: list[dict[str, Any]]) -> bytes:
    match name:
        case "lines":
            text = "\n \n".join(json.dumps(r, ensure_ascii=False) for r in records)
        case "marked":
            return b"\xef\xbb\xbf" + form("lines", records)
        case "windows":
            return form("lines", records).replace(b"\n", b"\r\n")
        case "list":
            text = json.dumps(records, ensure_ascii=False)
        case "indented":
            text = "\n " + json.dumps(records, indent=1) + "\n"
        case _:
            return b"\xef\xbb\xbf" + form("list", records)
    return text.encode()


@pytest.mark.parametrize("name", ["lines", "marked", "windows", "list", "indented", "marked list"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_each_problem_is_found_again_where_it_stands(
    name: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_records, "CHUNK", chunk)
    path = tmp_path / "pool"
    path.write_bytes(form(name, RECORDS))
    assert [record for _, record in RecordFile(path)] == RECORDS
    pool = PoolFile(path)
    assert list(pool) == [r["id"] for r in RECORDS]
    for record in reversed(RECORDS):
        assert [one.text for one in pool[record["id"]]] == [str(text) for text in record["texts"]]


@pytest.mark.parametrize("name", ["lines", "list"])
def test_samples_of_a_problem_may_stand_apart(name: str, tmp_path: Path) -> None:
    """With one sample a line: in one stretch, in several, and between records that are not asked for."""
    path = tmp_path / "pool"
    ids = "aabbbaccabbbc"
    records = [{"id": x, "texts": f"{x}{i}", "of": "m" if i % 4 else "other"} for i, x in enumerate(ids)]
    path.write_bytes(form(name, records))
    for where in ({}, {"of": "m"}):
        pool = PoolFile(path, where=where)
        for problem in reversed(list(pool)):
            texts = [r["texts"] for r in records if r["id"] == problem and where.items() <= r.items()]
            assert [one.text for one in pool[problem]] == texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": 1}, {"id": 2]', "is not JSON"),
        ('[{"id": 1} {"id": 2}]', "is not JSON"),
        ('[{"id": 1}, 12]', r"entry 1 is 12; expected one object"),
        ('[{"id": 1}], 3', "is not JSON"),
        ('[{"id": 1}', "is not JSON"),
        ('[[{"id": 1}]]', r"entry 0 is \[\{'id': 1\}\]"),
        ('{"id": 1}\n{"id": ', "line 2 is not JSON"),
        (b'{"id": "\xff"}', "expected a JSONL file in UTF-8"),
        (b'[{"id": "\xff"}]', "expected a JSONL file in UTF-8"),
        (gzip.compress(b'{"id": 1}', mtime=0), "is packed; unpack it first .gunzip does"),
    ],
)
def test_what_is_no_pool_is_a_data_error(content: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        list(RecordFile(path))


def test_a_pipe_is_refused_before_anything_of_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no file that can be read at any place"):
        RecordFile(tmp_path / "pipe")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_bytes(form("lines", RECORDS))
    pool = ReplayGenerator.from_jsonl(path)
    path.write_bytes(form("lines", RECORDS[::-1]))
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="was changed while it was read"):
        wait(pool.generate(Sequence(Prompt("p1", text="?")), scope=Scope.root("p1")))


def test_a_list_of_counts_is_so_many_problems(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text('{"id": "x", "successes": [1, 0, 2], "n": 2}\n{"id": "y", "successes": 1, "n": 1}\n')
    fields = {"successes": "successes"}
    assert {p: [s.correct for s in found] for p, found in read_pool(path, fields).items()} == {
        "x/0": [True, False], "x/1": [False, False], "x/2": [True, True], "y": [True],
    }  # fmt: skip


def test_only_so_much_of_a_pool_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was put away is read again, as it was."""
    from metagen.generators import replay

    path = tmp_path / "pool.jsonl"
    records = [
        {"id": f"p{i}", "texts": [f"{i} {j}" * 50 for j in range(8)], "s": [*range(8)]} for i in range(20)
    ]
    path.write_bytes(form("lines", records))

    def texts(pool: ReplayGenerator) -> list[list[Sequence]]:
        return [
            wait(pool.generate(Sequence(Prompt(p, text="?")), n=8, scope=Scope.root(p)))
            for p in (*pool.problems, *pool.problems)
        ]

    whole = texts(ReplayGenerator(read_pool(path, {"scores.s": "s"})))
    monkeypatch.setattr(replay, "ROOM", 5_000)
    pool = ReplayGenerator.from_jsonl(path, {"scores.s": "s"})
    assert texts(pool) == whole
    assert 1 <= len(pool._ready) < 5


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"successes": "k", "n": "n", "generated": "tok"},
            "fields maps 'successes' and 'generated': a record of counts",
        ),
        ({"successes": "k", "scores.rm": "s"}, "fields maps 'successes' and 'scores.rm'"),
        ({"texts": "texts", "n": "n"}, "fields maps 'n', which counts samples beside 'successes'"),
    ],
)
def test_what_counts_leave_unread_is_refused(fields: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        PoolFile(tmp_path / "pool.jsonl", fields)
