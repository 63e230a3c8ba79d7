"""A recorded pool as a generator."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from metagen.budget import Budget
from metagen.errors import DataError, PoolExhausted, UnsupportedError
from metagen.generators.pool import read_pool
from metagen.generators.replay import Recorded, ReplayGenerator
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step
from metagen.verifiers.recorded import RecordedVerifier

T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return asyncio.run(main())


def texts(
    generator: ReplayGenerator, n: int, *, start: int = 0, seed: int = 0, problem: str = "p"
) -> list[str]:
    scope = Scope.root(problem, seed=seed).child("sample")
    prefix = Sequence(Prompt(problem, text="?"))
    return [s.text for s in run(generator.generate(prefix, n=n, start=start, scope=scope))]


POOL = ReplayGenerator({"p": [str(i) for i in range(8)], "q": ["only"]})


def test_samples_come_without_replacement_in_an_order_of_the_seed() -> None:
    order = texts(POOL, 8)
    assert sorted(order) == sorted(str(i) for i in range(8))
    assert order == texts(POOL, 8) and order[:3] == texts(POOL, 3) and order[5:] == texts(POOL, 3, start=5)
    assert len({tuple(texts(POOL, 8, seed=seed)) for seed in range(20)}) > 15


def test_a_sorted_file_does_no_harm() -> None:
    """Each recorded sample is first with probability 1/8: χ² with 7 degrees of freedom, false alarm 1e-6."""
    firsts = Counter(texts(POOL, 1, seed=seed)[0] for seed in range(800))
    assert sum((firsts[str(i)] - 100) ** 2 / 100 for i in range(8)) < 40.5


def test_asking_for_more_than_was_recorded_is_an_error() -> None:
    with pytest.raises(PoolExhausted, match=r"sample 8 of problem 'p'.*holds 8"):
        texts(POOL, 9)
    assert POOL.size("p") == 8 and POOL.problems == ("p", "q")
    with pytest.raises(DataError, match="no problem 'z'"):
        texts(POOL, 1, problem="z")
    with pytest.raises(DataError, match="is empty"):
        ReplayGenerator({})


def test_it_starts_from_prompts_and_goes_to_the_end() -> None:
    prefix = Sequence(Prompt("p", text="?"))
    with pytest.raises(UnsupportedError, match="prompt only"):
        run(POOL.generate(prefix.extend("x"), scope=Scope.root("p")))
    with pytest.raises(UnsupportedError, match="to the end only"):
        run(POOL.generate(prefix, until=Step(), scope=Scope.root("p")))


def test_files_are_read_with_fields_by_mapping(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    records = [
        {"task": 7, "outputs": ["a", None], "lengths": [3, 0], "reward": [2.5, -800.0], "judge": [0.25, 1]},
        {"task": 8, "outputs": ["b"], "lengths": [4], "reward": [0.0], "judge": [0.5]},
    ]
    path.write_text("\n\n".join(json.dumps(r) for r in records) + "\n")
    generator = ReplayGenerator.from_jsonl(
        path,
        {
            "id": "task",
            "texts": "outputs",
            "generated": "lengths",
            "scores.rm": "reward",
            "scores.judge": "judge",
        },
    )
    scope = Scope.root("7", budget=Budget(generated=6))
    found = run(generator.generate(Sequence(Prompt("7", text="?")), n=2, scope=scope))
    by_text = {s.text: s.scores for s in found}
    assert set(by_text) == {"a", ""} and scope.usage.generated == 3 and scope.usage.prefilled is None
    # In [0, 1] throughout: as it is. Otherwise through the logistic function, the raw value kept.
    assert by_text["a"]["judge"].value == 0.25 and by_text["a"]["rm"].raw == 2.5
    assert by_text["a"]["rm"].value == pytest.approx(1 / (1 + 2.718281828459045**-2.5))
    assert by_text[""]["rm"].value == pytest.approx(0.0, abs=1e-300)
    scores = run(RecordedVerifier("judge").score(found, scope=scope))
    assert [s.value for s in scores] == [by_text[s.text]["judge"].value for s in found]
    with pytest.raises(DataError, match=r"no recorded score 'x' \(it has judge, rm\)"):
        run(RecordedVerifier("x").score(found, scope=scope))


def test_scores_survive_the_journal() -> None:
    pool = ReplayGenerator({"p": [Recorded("a", 1, {"v": 0.5})]})
    journal, prefix = MemoryJournal(), Sequence(Prompt("p", text="?"))
    first, again = (run(pool.generate(prefix, scope=Scope.root("p", journal=journal))) for _ in range(2))
    assert first == again and first[0].scores["v"].value == 0.5


def pool(path: Path, *lines: object, **fields: str) -> dict[str, list[Recorded]]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_pool(path, {name.replace("_", "."): given for name, given in fields.items()})


def test_one_sample_a_line(tmp_path: Path) -> None:
    lines = [
        {"task_id": "a", "completion": "x", "sure": 0.5, "tokens": 3},
        {"task_id": "b", "completion": "y", "sure": None, "tokens": 1},
        {"task_id": "a", "completion": "", "sure": True, "tokens": None},
    ]
    fields = {"id": "task_id", "texts": "completion", "generated": "tokens", "scores_v": "sure"}
    found = pool(tmp_path / "p.jsonl", *lines, **fields)
    assert found == {
        "a": [Recorded("x", 3, {"v": 0.5}), Recorded("", None, {"v": 1.0})],
        "b": [Recorded("y", 1, {"v": None})],
    }
    with pytest.raises(DataError, match="line 2: problem id 'a' occurs twice"):
        pool(tmp_path / "p.jsonl", {"id": "a", "texts": "x"}, {"id": "a", "texts": ["y"]})


def test_samples_may_be_objects_and_scores_null_truths_or_lists(tmp_path: Path) -> None:
    texts = [{"text": "x", "finish": "stop"}, {"completion": "y"}, None, 4.5]
    line = {"id": 1, "texts": texts, "v": [None, True, [0.25, 0.75], 0]}
    (samples,) = pool(tmp_path / "p.jsonl", line, scores_v="v").values()
    assert [s.text for s in samples] == ["x", "y", "", "4.5"]
    assert [s.scores["v"] for s in samples] == [None, 1.0, 0.5, 0.0]
    replayed = ReplayGenerator({"p": samples})
    found = run(replayed.generate(Sequence(Prompt("p", text="?")), n=4, scope=Scope.root("p")))
    assert {s.text: s.scores["v"].value for s in found} == {"x": None, "y": 1.0, "": 0.5, "4.5": 0.0}
    assert next(s for s in found if s.text == "x").scores["v"].verdict == "unscored"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no samples"),
        ("{]", "line 1 is not JSON"),
        ('{"id": 1}', r"line 1 has no field 'texts' \(it has id\); map it"),
        ('{"id": 1, "texts": []}\n{"id": 1, "texts": []}', r"line 2: problem id '1' occurs twice"),
    ],
)
def test_faults_of_a_file_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        ReplayGenerator.from_jsonl(path)


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text('{"id": 1, "texts": ["a", "b"], "s": [0.5]}')
    with pytest.raises(DataError, match=r"line 1: 's' is \[0.5\]; expected a list with one entry a sample"):
        ReplayGenerator.from_jsonl(path, {"scores.v": "s"})


def test_the_fingerprint_names_the_content_and_not_the_name() -> None:
    one, two = ReplayGenerator({"p": ["a"]}, name="x"), ReplayGenerator({"p": ["a"]}, name="y")
    assert one.fingerprint == two.fingerprint != ReplayGenerator({"p": ["b"]}).fingerprint


@pytest.mark.parametrize(
    ("line", "fields", "message"),
    [
        ('{"id": 1, "texts": 5}', None, "'texts' is 5; expected a list"),
        ('{"id": 1, "texts": ["a"], "t": ["x"]}', {"generated": "t"}, "a token count is 'x'"),
        ('{"id": 1, "texts": ["a"], "s": ["x"]}', {"scores.v": "s"}, "a score 'v' is 'x'"),
        (
            '{"id": 1, "texts": ["a"], "s": [[]]}',
            {"scores.v": "s"},
            r"a score 'v' is \[\]; expected numbers, lists",
        ),
        (
            '{"id": 1, "texts": ["a", "b"], "s": [1]}',
            {"scores.v": "s"},
            "1 for 2 samples; write null for those without",
        ),
        (
            '{"id": 1, "texts": [{"x": "a"}]}',
            None,
            "an object with x; expected a text, or an object whose text is",
        ),
        ('{"id": 1, "texts": [["a"]]}', None, r"a sample is \['a'\]; expected a text, an object"),
        ("[1]", None, "expected one object a line"),
        ('{"id": 1, "texts": ["a"]}', {"score.v": "s"}, "fields maps 'score.v'"),
    ],
)
def test_faulty_pools_are_data_errors(
    tmp_path: Path, line: str, fields: dict[str, str] | None, message: str
) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text(line)
    with pytest.raises(DataError, match=message):
        ReplayGenerator.from_jsonl(path, fields)


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the pool"):
        ReplayGenerator.from_jsonl(tmp_path / "nowhere.jsonl")


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text('\ufeff{"id": 1, "texts": ["a\u2028b"]}\n', encoding="utf-8")
    assert ReplayGenerator.from_jsonl(path).size("1") == 1
