"""Parts of lists of scores in a recorded pool: a verifier for so many verifications of each sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metagen.errors import DataError
from metagen.generators.pool import Recorded, read_pool

Write = Callable[..., Path]
LISTS = [[1, 0, 0.5, 0.5], [0, 1, 1, 1]]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(*records: dict[str, Any]) -> Path:
        path = tmp_path / "pool.jsonl"
        path.write_text("".join(json.dumps({"id": i, **record}) + "\n" for i, record in enumerate(records)))
        return path

    return write


def scores(path: Path, given: str, problem: str = "0") -> list[float | None]:
    return [sample.scores["v"] for sample in read_pool(path, {"scores.v": given})[problem]]


def test_a_part_is_the_mean_of_these_numbers_of_each_sample(written: Write) -> None:
    path = written({"texts": ["a", "b"], "checks": LISTS})
    assert scores(path, "checks[0:1]") == [1, 0]
    assert scores(path, "checks[1:3]") == [0.25, 1]
    assert scores(path, "checks[0:4]") == scores(path, "checks") == [0.5, 0.75]


def test_several_parts_of_one_field_are_several_scores(written: Write) -> None:
    path = written({"texts": ["a", "b"], "checks": LISTS})
    (samples,) = read_pool(path, {f"scores.v{k}": f"checks[0:{k}]" for k in (1, 2)}).values()
    assert samples == [Recorded("a", None, {"v1": 1, "v2": 0.5}), Recorded("b", None, {"v1": 0, "v2": 0.5})]


def test_samples_behind_the_list_have_no_score(written: Write) -> None:
    path = written({"texts": ["a", "b", "c", None], "checks": LISTS}, {"texts": ["a", "b"], "checks": [None]})
    assert scores(path, "checks[0:2]") == [0.5, 0.5, None, None]
    assert scores(path, "checks[0:2]", "1") == [None, None]
    # Without a part the list must say of every sample what it has, as before.
    with pytest.raises(DataError, match="2 for 4 samples; write null for those without"):
        scores(path, "checks")


def test_a_verification_without_a_verdict_does_not_count(written: Write) -> None:
    path = written({"texts": ["a", "b"], "checks": [[None, 1, 0], [None, None, 1]]})
    assert scores(path, "checks[0:2]") == [1, None] and scores(path, "checks") == [0.5, 1]


def test_one_sample_a_line_has_one_list(written: Write) -> None:
    path = written({"texts": "a", "checks": [1, 0, 0]})
    path.write_text(path.read_text() + json.dumps({"id": 0, "texts": "b"}) + "\n")
    with pytest.raises(DataError, match="line 2 has no field 'checks'"):
        scores(path, "checks[0:2]")
    path.write_text(path.read_text().replace('"b"', '"b", "checks": [0, 0, 1]'))
    assert scores(path, "checks[0:2]") == [0.5, 0]


def test_a_field_of_that_very_name_is_itself(written: Write) -> None:
    assert scores(written({"texts": ["a"], "v[0:2]": [0.25], "v": [[1, 1]]}), "v[0:2]") == [0.25]


@pytest.mark.parametrize(
    ("checks", "given", "message"),
    [
        (
            LISTS,
            "checks[0:5]",
            r"line 1: entry 0 of 'checks' has 4 numbers, 'checks\[0:5\]' takes 5 of each",
        ),
        ([1, 2], "checks[0:1]", "entry 0 of 'checks' is 1, .* write null for a sample without them"),
        (LISTS, "checks[2:2]", r"'checks\[2:2\]' is an empty part; expected \[a:b\] with a < b"),
        ([*LISTS, [1]], "checks[0:1]", "'checks' has 3 entries for 2 samples; expected at most one a sample"),
        (LISTS, "check[0:1]", r"line 1 has no field 'check' \(it has checks, id, texts\)"),
        ([["x"], [1]], "checks[0:1]", r"a score 'v' is \['x'\]; expected numbers"),
        ([[float("nan")], [1]], "checks[0:1]", r"line 1: a score 'v' is \[nan\]; expected numbers"),
        ([[1], [float("inf")]], "checks[0:1]", r"line 1: a score 'v' is \[inf\]; expected numbers"),
    ],
)
def test_parts_that_are_not_there_are_data_errors(
    written: Write, checks: list[Any], given: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        scores(written({"texts": ["a", "b"], "checks": checks}), given)


def test_some_numbers_of_each_list_are_drawn_at_random_and_once_for_all(tmp_path: Path) -> None:
    """Of 0 … 9 the mean of v, for many lists: of expectation 4.5, and the variance of draws without replacement."""
    line = {"id": "a", "texts": ["x"] * 2000, "checks": [list(range(10))] * 2000}
    path = tmp_path / "pool.jsonl"
    path.write_text(json.dumps(line))
    found = {}
    for v in (1, 4, 10):
        (samples,) = read_pool(path, {"scores.v": f"checks~{v}"}).values()
        found[v] = np.array([sample.scores["v"] for sample in samples])
        spread = (8.25 / v * (10 - v) / 9) ** 0.5
        assert abs(found[v].mean() - 4.5) <= 5 * spread / 2000**0.5
        assert found[v].std() == pytest.approx(spread, rel=0.1, abs=1e-12)
    again = tmp_path / "elsewhere.jsonl"
    again.write_text(json.dumps(line))
    (samples,) = read_pool(again, {"scores.v": "checks~4"}).values()
    assert [s.scores["v"] for s in samples] == found[4].tolist(), "wherever the file lies"
    with pytest.raises(DataError, match=r"entry 0 of 'checks' has 10 numbers, 'checks~11' takes 11 of each"):
        read_pool(path, {"scores.v": "checks~11"})
    with pytest.raises(DataError, match=r"'checks~0' is an empty part"):
        read_pool(path, {"scores.v": "checks~0"})
