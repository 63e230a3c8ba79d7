"""A recorded pool as a generator."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from metagen.budget import Budget
from metagen.cost import Price
from metagen.errors import DataError, InputError, PoolExhausted, UnsupportedError
from metagen.generators.pool import read_pool
from metagen.generators.replay import VERDICT, Recorded, ReplayGenerator, Unknown
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
    # In [0, 1] throughout: as it is. Otherwise by its rank in the problem, the raw value kept.
    assert by_text["a"]["judge"].value == 0.25 and by_text["a"]["rm"].raw == 2.5
    assert (by_text["a"]["rm"].value, by_text[""]["rm"].value) == (1.0, 0.5)
    assert by_text[""]["rm"].raw == -800.0
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
    assert [s.text for s in samples] == ["x", "y", None, "4.5"]
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
        ('{"id": 1, "texts": true}', None, "'texts' is True; expected a list"),
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


# -- scores of any scale, and what files leave unsaid ------------------------------------------------------------------


def drawn(generator: ReplayGenerator, problem: str = "p") -> dict[str, Sequence]:
    n = generator.size(problem)
    found = run(generator.generate(Sequence(Prompt(problem, text="?")), n=n, scope=Scope.root(problem)))
    return {s.text: s for s in found}


def test_scores_of_any_scale_keep_their_order_and_say_how_they_are_mapped() -> None:
    for raw in (
        [0.0, 50.0, 98.0, 99.0, 100.0],
        [-900.0, -899.5, -3.0, -2.9, -1.0],
        [1e300, 2e300, 3e300, 4e300, 5e300],
    ):
        pool = ReplayGenerator({"p": [Recorded(str(i), scores={"v": s}) for i, s in enumerate(raw)]})
        found = [drawn(pool)[str(i)].scores["v"] for i in range(5)]
        assert [s.value for s in found] == [0.2, 0.4, 0.6, 0.8, 1.0] and [s.raw for s in found] == raw
        (note,) = pool.notes
        assert "best-of-n goes by them as they are" in note and "by ranks, the default" in note


def test_a_map_is_chosen_and_warns_where_it_loses_the_order() -> None:
    samples = [Recorded(str(i), scores={"v": s, "w": s}) for i, s in enumerate([10.0, 98.0, 99.0, 100.0])]
    pool = ReplayGenerator({"p": samples}, maps={"v": "sigmoid", "w": "softmax(50)"})
    scores = {name: [drawn(pool)[str(i)].scores[name].value for i in range(4)] for name in "vw"}
    assert scores["v"][1:] == [1.0] * 3 and len(set(scores["w"])) == 4
    lost = [note for note in pool.notes if "equal" in note]
    assert len(lost) == 1 and lost[0].startswith("sigmoid makes 2 scores 'v' equal to others")
    other = ReplayGenerator({"p": samples}, maps={"v": "minmax"})
    assert other.fingerprint != pool.fingerprint and len(set(drawn(other)["0"].scores["v"].__repr__())) > 1
    with pytest.raises(InputError, match=r"maps names 'x', and the pool 'replay' has the scores v, w"):
        ReplayGenerator({"p": samples}, maps={"x": "ranks"})


SILENT = [
    {"id": "a", "texts": ["1", None, None, "2"], "ok": [1, 1, None, None], "tokens": [10, 20, None, 60]},
    {"id": "b", "texts": [None, None], "ok": [None, None], "tokens": [None, None]},
]


@pytest.mark.parametrize(
    ("unknown", "sizes", "note"),
    [
        ("exclude", (2, 0), "left out (unknown: exclude); 1 of 2 problems have no other sample; a sample is right in "
                            "100.0% without them, in 25.0% if they are wrong"),
        ("wrong", (4, 2), "counted as wrong (unknown: wrong)"),
    ],
)  # fmt: skip
def test_failed_calls_unknown_verdicts_and_abstentions_are_told_apart(
    tmp_path: Path, unknown: Unknown, sizes: tuple[int, int], note: str
) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in SILENT))
    fields = {"correct": "ok", "generated": "tokens"}
    found = ReplayGenerator.from_jsonl(path, fields, unknown=unknown)
    assert (found.size("a"), found.size("b")) == sizes
    first = found.notes[0]
    assert first.startswith("3 failed calls and 1 without a verdict (null) among 6 samples") and note in first
    assert any("are null: they abstain, and have no vote" in text for text in found.notes)
    with pytest.raises(
        DataError, match=r"3 failed calls.*the first is sample 2 of problem 'a'.*unknown: exclude or wrong"
    ):
        ReplayGenerator.from_jsonl(path, fields, unknown="error")


def test_without_verdicts_a_failed_call_counts_as_no_answer_and_is_told_so() -> None:
    samples = {"p": [Recorded("a"), Recorded(None, failed=True)]}
    found = ReplayGenerator(samples, unknown="wrong")
    assert found.size("p") == 2 and "kept as samples without an answer" in found.notes[0]


def test_an_abstention_may_be_right_and_has_the_empty_text() -> None:
    pool = ReplayGenerator({"p": [Recorded(None, correct=True), Recorded("x", correct=False)]})
    found = drawn(pool)
    assert found[""].scores[VERDICT].value == 1.0 and found["x"].scores[VERDICT].value == 0.0


def test_one_missing_count_is_estimated_and_named() -> None:
    """By the others of its problem, or of the pool; of a quantity that nobody recorded nothing is known."""
    samples = {
        "p": [
            Recorded("a", 10, seconds=1.0),
            Recorded("b", None, seconds=3.0),
            Recorded("c", 21, seconds=2.0),
        ],
        "q": [Recorded("d", None, seconds=None)],
    }
    pool = ReplayGenerator(samples)
    usages = {}
    for problem in samples:
        scope = Scope.root(problem)
        run(pool.generate(Sequence(Prompt(problem, text="?")), n=pool.size(problem), scope=scope))
        usages[problem] = scope.usage
    assert (usages["p"].generated, usages["q"].generated) == (10 + 16 + 21, 16)
    assert (usages["p"].seconds, usages["q"].seconds) == (6.0, 2.0)
    assert usages["p"].prefilled is None and usages["p"].money is None, "nobody counted prompts, or money"
    assert any(
        "2 of 4 samples have no generated (null): each counts as the mean" in note for note in pool.notes
    )
    assert any("1 of 4 samples have no seconds (null)" in note for note in pool.notes)


def test_recorded_amounts_are_what_samples_cost() -> None:
    samples = [Recorded("a", 100, prefilled=40, money=0.5), Recorded("b", 200, prefilled=40, money=0.25)]
    usage = {}
    for name, price in (("told", None), ("priced", Price(1.0, 10.0))):
        told = samples if price is None else [replace(s, money=None) for s in samples]
        scope = Scope.root("p")
        run(
            ReplayGenerator({"p": told}, price=price).generate(
                Sequence(Prompt("p", text="?")), n=2, scope=scope
            )
        )
        usage[name] = scope.usage
    assert (usage["told"].prefilled, usage["told"].generated, usage["told"].money) == (80, 300, 0.75)
    assert usage["priced"].money == pytest.approx((80 * 1.0 + 300 * 10.0) / 1e6)
    unknown = ReplayGenerator({"p": [Recorded("a", 100)]}, price=Price(1.0, 10.0))
    assert "money is unknown" in unknown.notes[-1]
    by_output = ReplayGenerator({"p": [Recorded("a", 100)]}, price=Price(0.0, 10.0))
    scope = Scope.root("p", budget=Budget(money=0.01))
    run(by_output.generate(Sequence(Prompt("p", text="?")), scope=scope))
    assert scope.usage.money == pytest.approx(100 * 10.0 / 1e6)


def test_counts_of_right_samples_are_a_pool(tmp_path: Path) -> None:
    lines = [{"id": "a", "n": 3, "successes": 2}, {"id": "b", "n": 3, "successes": 0}]
    found = pool(tmp_path / "p.jsonl", *lines, successes="successes")
    assert [[s.correct for s in samples] for samples in found.values()] == [[True, True, False], [False] * 3]
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"of": name, "n": 2, "successes": [0, 2]} for name in "xy"]))
    fields = {"id": "of", "successes": "successes"}
    assert list(read_pool(path, fields)) == ["x/0", "x/1", "y/0", "y/1"]
    assert list(read_pool(path, fields, {"of": "y"})) == ["y/0", "y/1"]
    assert ReplayGenerator(read_pool(path, fields)).notes == ("no sample has a text: none has a vote",)
    with pytest.raises(DataError, match=r"4 of 3 samples are right; expected integers, 0 ≤ successes ≤ n"):
        pool(tmp_path / "p.jsonl", {"id": "a", "n": 3, "successes": 4}, successes="successes")
    with pytest.raises(DataError, match=r"no samples with \{'of': 'z'\}"):
        read_pool(path, fields, {"of": "z"})


def test_one_sample_a_line_may_be_null_a_number_or_an_object(tmp_path: Path) -> None:
    lines: list[object] = [
        {"id": "a", "texts": None, "ok": None},
        {"id": "a", "texts": 4.5, "ok": 1},
        {"id": "a", "texts": {"text": "x", "tokens": 7}, "ok": 0},
        {"id": "a", "texts": {"error": "timeout"}, "ok": None},
    ]
    (samples,) = pool(tmp_path / "p.jsonl", *lines, correct="ok").values()
    assert [(s.text, s.correct, s.failed) for s in samples] == [
        (None, None, True), ("4.5", True, False), ("x", False, False), (None, None, True),
    ]  # fmt: skip


def test_what_records_lack_may_be_in_samples_that_are_objects(tmp_path: Path) -> None:
    samples = [
        {"text": "x", "tokens": 7, "ok": True, "s": 80},
        {"text": None, "tokens": None, "ok": None, "s": None},
    ]
    (found,) = pool(
        tmp_path / "p.jsonl", {"id": 1, "texts": samples}, correct="ok", generated="tokens", scores_v="s"
    ).values()
    assert found == [
        Recorded("x", 7, {"v": 80.0}, True),
        Recorded(None, None, {"v": None}, None, failed=True),
    ]


@pytest.mark.parametrize(
    ("line", "fields", "message"),
    [
        (
            {"id": 1, "texts": ["a"], "ok": [2]},
            {"correct": "ok"},
            "a verdict is 2; expected true, false, a number from 0 to 1",
        ),
        (
            {"id": 1, "texts": ["a"], "ok": [[True, True, False]]},
            {"correct": "ok"},
            r"a verdict is \[True, True, False\]; expected true, false",
        ),
        (
            {"id": 1, "texts": ["a"], "ok": ["yes"]},
            {"correct": "ok"},
            "a verdict is 'yes'; expected true, false",
        ),
        ({"id": 1, "texts": ["a"], "ok": [None]}, {"correct": "ok"}, "every verdict 'ok' is null"),
        (
            {"id": 1, "texts": ["a"], "t": [-1.0]},
            {"seconds": "t"},
            "seconds of a sample is -1.0; expected a number ≥ 0",
        ),
    ],
)
def test_verdicts_and_amounts_that_are_none_are_refused(
    tmp_path: Path, line: object, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        pool(tmp_path / "p.jsonl", line, **fields)


def test_a_score_and_the_verdicts_cannot_have_one_name() -> None:
    with pytest.raises(DataError, match="has verdicts, and a score 'verdict'; give the score another name"):
        ReplayGenerator({"p": [Recorded("a", correct=True, scores={"verdict": 0.5})]})


def test_verdicts_in_part_are_right_above_a_half_and_noted() -> None:
    pool = ReplayGenerator(
        {"p": [Recorded("a", correct=0.7), Recorded("b", correct=0.5), Recorded("c", correct=1)]}
    )
    assert [drawn(pool)[name].scores[VERDICT].value for name in "abc"] == [0.7, 0.5, 1.0]
    assert pool.notes == ("2 of 3 verdicts lie between 0 and 1: right above ½",)


def test_counts_may_be_written_as_floats(tmp_path: Path) -> None:
    (samples,) = pool(tmp_path / "p.jsonl", {"id": 1, "texts": ["a"], "t": [812.0]}, generated="t").values()
    assert samples[0].generated == 812


def test_places_are_those_of_the_file_whatever_is_left_out() -> None:
    samples = [
        Recorded(str(i), correct=None if i % 2 else 1.0, scores={"v": None if i == 4 else 0.5})
        for i in range(6)
    ]
    for generator, left in (
        (ReplayGenerator({"p": samples}), "024"),
        (ReplayGenerator({"p": samples}, scored="v"), "02"),
    ):
        prefix, scope = Sequence(Prompt("p", text="?")), Scope.root("p")
        found = run(generator.generate(prefix, n=len(left), scope=scope))
        assert sorted(s.text for s in found) == list(left)
        assert generator.places(prefix, len(left), scope) == [int(s.text) for s in found]


def test_an_error_beside_a_text_or_a_verdict_is_no_failed_call(tmp_path: Path) -> None:
    samples = [
        {"text": "x", "error": "", "ok": None}, {"text": "y", "error": "cut", "ok": 1},
        {"error": "timeout", "ok": 0}, {"error": "timeout", "ok": None},
    ]  # fmt: skip
    (found,) = pool(tmp_path / "p.jsonl", {"id": 1, "texts": samples}, correct="ok").values()
    assert [s.failed for s in found] == [False, False, False, True]
