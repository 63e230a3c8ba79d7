"""Problems of a run are read one by one, with an index of little memory and no work that grows with their number."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metagen.runs.directory import RunDirectory
from metagen.runs.table.problem import Examiner
from metagen.runs.table.tables import schemas

COUNT, PART = 60_000, 1000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Problems in parts, of which the first hold the odd ones, as two drivers write them."""
    directory = RunDirectory.at(tmp_path_factory.mktemp("many"))
    places = np.concatenate([np.arange(1, COUNT, 2), np.arange(0, COUNT, 2)])
    for name, schema in schemas(()).items():
        if name == "problems":
            columns: dict[str, Any] = {
                "place": places,
                "problem": [f"p{i}" for i in places.tolist()],
                "level": [None if i % 7 == 0 else 1 + i % 3 for i in places.tolist()],
            }
        else:
            # More rows than problems, and some of a problem that is not in the other table.
            columns = {"place": np.repeat([*places[: COUNT // 2], COUNT], 3)} if name == "outcomes" else {}
        length = len(columns.get("place", ()))
        whole = {
            field.name: pa.array(columns.get(field.name, [None] * length), field.type) for field in schema
        }
        pq.write_table(pa.table(whole, schema=schema), directory.table(name), row_group_size=PART)
    return directory


def test_problems_come_in_the_order_of_the_tables_or_by_number(many: RunDirectory) -> None:
    with Examiner(many, ()) as examiner:
        assert (len(examiner), examiner.levels) == (COUNT, [1, 2, 3])
        for number in (0, 1, 7, COUNT - 1):
            assert examiner.id(number) == examiner[number].problem == f"p{number}"
            assert len(examiner[number].outcomes) == number % 2 * 3
        given = [(number, one.problem) for number, one in examiner.each()]
    assert given == [(i, f"p{i}") for i in (*range(1, COUNT, 2), *range(0, COUNT, 2))]


def test_reading_a_problem_makes_no_copy_of_the_index(many: RunDirectory) -> None:
    """It did, of each table, so that the page of a million problems took three times as long as ten of a tenth."""
    tracemalloc.start()
    try:
        with Examiner(many, ()) as examiner:
            held, _ = tracemalloc.get_traced_memory()
            examiner[1], examiner[COUNT - 1]
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            for number in range(3, 43, 2):
                assert examiner[number].problem == f"p{number}"
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < COUNT  # a copy has 8 bytes for each problem
    assert held < 60 * COUNT
