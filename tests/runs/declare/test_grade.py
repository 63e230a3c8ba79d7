"""Grading what others have sampled: the figures, the fields, and what is said of files that are no pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError, DataError, InputError
from metagen.runs.declare import grade
from metagen.runs.directory import RunDirectory
from metagen.runs.questions import quality

RECORDS: list[dict[str, Any]] = [
    {
        "id": "a",
        "question": "1+1?",
        "gold": 2,
        "samples": ["2", "2", "3", None],
        "sure": [0.1, 0.2, 0.9, 0.3],
    },
    {
        "id": "b",
        "question": "2+2?",
        "gold": "4",
        "samples": ["5", "5", "5", "4"],
        "sure": [0.1, 0.1, 0.1, 0.8],
    },
]


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def figures(run: Path) -> dict[str, float]:
    table = pq.read_table(run / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


def test_a_pool_is_graded_by_its_own_references_with_votes_coverage_and_recorded_scores(
    tmp_path: Path,
) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    asked = ["grade", str(pool), "--pattern", "^(.*)$", "--score", "sure", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "pass (oracle)" in result.output
    found = figures(tmp_path / "run")
    assert found["single"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    # Of the 6 pairs: a right sample is in 5 of a, in 3 of b.
    assert found["pass@2"] == pytest.approx((5 / 6 + 3 / 6) / 2)
    assert found["pass@4"] == 1.0
    # A pair of a: {2,2} and {2,none} (twice) are right, {2,3} a tie (twice), {3,none} wrong; of b: a tie in 3 of 6.
    assert found["majority@2"] == pytest.approx(((1 + 2 + 2 * 0.5) / 6 + (3 * 0.5) / 6) / 2)
    assert found["majority@4"] == pytest.approx((1.0 + 0.0) / 2)
    assert found["best-sure@4"] == pytest.approx((0.0 + 1.0) / 2)
    assert found["weighted-sure@4"] == pytest.approx((0.0 + 1.0) / 2)


def test_the_task_and_the_verifiers_of_an_experiment_are_used(tmp_path: Path) -> None:
    data = written(
        tmp_path / "data.jsonl",
        *({"id": r["id"], "question": r["question"], "answer": str(r["gold"])} for r in RECORDS),
    )
    like = tmp_path / "like.yaml"
    like.write_text(
        f"task: {{kind: jsonl, path: {data.name}, pattern: '^(.*)$'}}\n"
        "verifiers: {perfect: {kind: oracle}}\n",
        "utf-8",
    )
    pool = written(
        tmp_path / "pool.jsonl", *({"problem_id": r["id"], "completions": r["samples"]} for r in RECORDS)
    )
    experiment = grade.grading(pool, like=like, n=[1, 4]).experiment
    assert set(experiment.strategies) == {"single", "majority", "pass", "best-perfect", "weighted-perfect"}
    assert experiment.grid.n == (1, 4)
    run = tmp_path / "run"
    result = CliRunner().invoke(app, ["grade", str(pool), "--like", str(like), "-n", "4", "--out", str(run)])
    assert result.exit_code == 0, result.output
    assert figures(run)["best-perfect@4"] == figures(run)["pass@4"] == 1.0


def test_sizes_are_powers_of_two_and_the_smallest_pool(tmp_path: Path) -> None:
    sizes = [7, 5]
    pool = written(tmp_path / "p.jsonl", *({"id": str(k), "gold": 1, "samples": ["1"] * k} for k in sizes))
    found = grade.grading(pool)
    assert found.experiment.grid.n == (1, 2, 4, 5, 7)
    assert "from 5 ('5') to 7 samples; figures at an n above 5 are over the problems that" in found.notes[0]


def test_every_problem_is_measured_with_all_its_samples_and_figures_say_how_many_carry_them(
    tmp_path: Path,
) -> None:
    """Unbiased at each problem's own n: 2 right of 3, 1 right of 2, 4 right of 4 with a vote."""
    rights = {"a": [1, 1, 0], "b": [0, 1], "c": [1, 1, 1, 1]}
    records = ({"id": i, "gold": 1, "samples": [str(r) for r in of], "sure": of} for i, of in rights.items())
    pool = written(tmp_path / "p.jsonl", *records)
    run = tmp_path / "run"
    sizes = [part for n in "123" for part in ("-n", n)]
    asked = ["grade", str(pool), "--pattern", "^(.*)$", "--score", "sure", *sizes, "--out", str(run)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    rows = pq.read_table(run / "configurations.parquet").to_pylist()
    found = {r["configuration"].removeprefix("recorded/"): (r["accuracy"], r["problems"]) for r in rows}
    assert found["single"] == (pytest.approx((2 / 3 + 1 / 2 + 1) / 3), 3)
    assert found["pass@2"] == (pytest.approx(1.0), 3) and found["pass@1"] == (pytest.approx(13 / 18), 3)
    assert found["majority@2"] == (pytest.approx(((1 + 0.5 + 0.5) / 3 + 0.5 + 1) / 3), 3)
    assert found["majority@3"] == (1.0, 2) and found["majority@4"] == (1.0, 1)
    assert "n = 4: over 1 of 3 problems" in " ".join(result.output.split())
    state = RunDirectory(run).state()
    assert (state.samples, state.failures) == (9, ())
    (report,) = quality.examine(RunDirectory(run), RunDirectory(run))
    assert report.quality is not None and report.quality.samples == 9
    again = CliRunner().invoke(app, ["compare", str(run), str(run)])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("records", "named", "message"),
    [
        ([], {}, "is empty; expected a JSONL file, one problem a line"),
        ([["a"]], {}, "entry 0 is 'a'; expected one object a line"),
        ([{"id": "a", "texts": ["1"]}], {}, r"usual for the reference \(answer, gold.*--reference"),
        ([{"id": "a", "gold": 1}], {}, "usual for the samples.*--samples"),
        ([{"id": "a", "gold": 1, "outs": ["1"]}], {"samples": "out"}, "no field 'out'.*did you mean 'outs'"),
        ([{"id": "a", "gold": 1, "samples": []}], {}, "problem 'a' has no samples"),
    ],
)
def test_what_is_no_pool_is_said_with_the_remedy(
    records: list[Any], named: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        grade.grading(written(tmp_path / "pool.jsonl", *records), named=grade.Fields(**named))


def test_faults_of_the_rest_are_listed_with_their_places(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    like = tmp_path / "like.yaml"
    like.write_text("task: {kind: jsonl, path: nowhere.jsonl}\nverifiers: {v: {kind: orakle}}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"like.yaml:1: task.path(.|\n)*like.yaml:2: verifiers.v.*'oracle'"):
        grade.grading(pool, like=like)


# -- tasks that lend their problems ------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"id": r["id"], "question": r["question"], "answer": f"so #### {r['gold']}"} for r in RECORDS]
    return written(tmp_path / "data.jsonl", *rows, {"id": "c", "question": "?", "answer": "#### 1"})


def lent(data: Path) -> str:
    return f"{{kind: gsm8k, path: {data}}}"


SAMPLES = [
    {"id": r["id"], "samples": [None if s is None else f"The answer is {s}." for s in r["samples"]]}
    for r in RECORDS
]


def test_a_task_is_named_on_the_command_line(tmp_path: Path, data: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *SAMPLES)
    asked = ["grade", str(pool), "--task", lent(data), "--partial", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    found = figures(tmp_path / "run")
    assert found["single"] == pytest.approx((2 / 4 + 1 / 4) / 2) and found["pass@4"] == 1.0
    # The run goes on, and is looked at, by the file that it wrote.
    for command in (["resume"], ["quality", "--verifier", "grader"]):
        again = CliRunner().invoke(app, [command[0], str(tmp_path / "run"), *command[1:]])
        assert again.exit_code == 0, again.output


def test_a_task_comes_before_that_of_the_file_that_lends(tmp_path: Path, data: Path) -> None:
    like = tmp_path / "like.yaml"
    like.write_text("task: {kind: jsonl, path: nowhere.jsonl}\nverifiers: {sure: {kind: oracle}}\n", "utf-8")
    pool = written(tmp_path / "pool.jsonl", *SAMPLES, {"id": "c", "samples": ["1"] * 4})
    found = grade.grading(pool, like=like, task=lent(data)).experiment
    assert found.task.kind == "gsm8k" and "best-sure" in found.strategies


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("gsm8", "--task gsm8: expected one of .*did you mean 'gsm8k'"),
        ("like.yaml", "an experiment file with one is given by --like"),
        ("{kind: gsm8k, form: chatty, path: pool.jsonl}", r"--task .*task.form = 'chatty'"),
        ("no.such.package:Task", "cannot import 'no.such.package:Task'"),
    ],
)
def test_what_is_no_task_is_refused(
    task: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = written(tmp_path / "pool.jsonl", *SAMPLES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        grade.grading(pool, task=task)


def test_a_pool_of_other_problems_is_refused_or_graded_in_part(tmp_path: Path, data: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *SAMPLES, {"id": "x", "samples": ["1"]})
    message = r"of 3 problems, and the task has 3; 2 are in both, not 'x' of the pool nor 'c' of the task; --partial"
    with pytest.raises(DataError, match=message):
        grade.grading(pool, task=lent(data))
    found = grade.grading(pool, task=lent(data), partial=True)
    assert found.experiment.grid.n == (1, 2, 4) and not found.notes, "the pool's other problem does not count"
    strange = written(tmp_path / "strange.jsonl", {"id": "y", "samples": ["1"]})
    with pytest.raises(DataError, match=r"0 are in both.*give the pool's ids as the task names them"):
        grade.grading(strange, task=lent(data), partial=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": {"pattern": "(.*)"}}, "--pattern: the task finds answers by a rule of its own"),
        (
            {"answer": {"pattern": "(.*)"}, "named": grade.Fields(question="q")},
            "--question: the task has its own",
        ),
        ({"named": grade.Fields(reference="q")}, "--reference: the task"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path, data: Path
) -> None:
    with pytest.raises(InputError, match=message):
        grade.grading(written(tmp_path / "pool.jsonl", *SAMPLES), task=lent(data), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"correct": "ok", "named": grade.Fields(reference="gold")},
            "--reference: the verdicts of --correct grade",
        ),
        ({"partial": True}, "--partial: it is for a task beside the file"),
        ({"fields": {"n": "k"}}, "--field n: it counts samples beside --field successes"),
        ({"n": [2], "sets": ["grid.n=[1]"]}, r"--set grid\.n=.*: -n says it, too"),
        ({"n": [2], "sets": ["grid={n: [1]}"]}, r"--set grid=.*: -n says it, too"),
        (
            {"answer": {"answer": "text"}, "sets": ["task.answer=math"]},
            r"task\.answer: --answer says it, too",
        ),
        (
            {"task": "{kind: gsm8k, limit: 2}", "sets": ["task.limit=3"]},
            r"task\.limit: --task .* says it, too",
        ),
        ({"fields": {"texts": "sure"}}, "--field texts: --samples says this"),
        ({"fields": {"answers": "sure"}}, "--field answers: --answer '{kind: recorded"),
        ({"fields": {"scores.v": "sure"}}, r"--field scores\.v: --score"),
        (
            {"scores": ["sure"], "maps": ["ranks", "minmax"]},
            "--map minmax: every score is mapped by ranks, too",
        ),
        ({"like": "generators: {}"}, "it has no task, engines, verifiers or seed, so nothing of it"),
        ({"like": "task: {kind: gsm8k}", "task": "gsm8k"}, "it has no engines, verifiers or seed"),
    ],
)
def test_options_that_others_make_useless_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if "like" in options:
        (tmp_path / "like.yaml").write_text(options["like"], "utf-8")
        options = {**options, "like": tmp_path / "like.yaml"}
    with pytest.raises(InputError, match=message):
        grade.grading(written(tmp_path / "pool.jsonl", *RECORDS), **options)


@pytest.mark.parametrize(
    "options",
    [
        ["--correct", "ok"], ["--answer", "choice"], ["--pattern", "(.*)"], ["--score", "ok"], ["--unknown", "wrong"],
        ["--field", "seconds=s"], ["--thoughts", "t"], ["--thought-end", "</t>"], ["--reference", "gold"],
        ["--field", "successes=successes", "--samples", "texts"],
    ],
)  # fmt: skip
def test_counts_have_no_texts_that_an_option_could_be_about(options: list[str], tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", {"id": "a", "n": 4, "successes": 1})
    result = CliRunner().invoke(app, ["grade", str(pool), *options])
    name = options[-2] if options[-2] != "--field" else "--field seconds"
    assert result.exit_code == 2, result.output
    assert f"{name}: the file has counts of right samples, and no texts to read" in result.output


def test_a_map_of_one_score_comes_before_that_of_all(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    found = [
        grade.grading(pool, scores=["sure"], maps=maps).experiment.generators["recorded"].options()
        for maps in (["sure=minmax", "ranks"], ["ranks", "sure=minmax"])
    ]
    assert found[0]["maps"] == found[1]["maps"] == {"sure": "minmax"}


def test_thoughts_that_two_options_name_are_refused(tmp_path: Path) -> None:
    asked = [
        "grade",
        str(written(tmp_path / "pool.jsonl", *RECORDS)),
        "--thoughts",
        "a",
        "--field",
        "thoughts=b",
    ]
    assert "--field thoughts is given twice" in CliRunner().invoke(app, asked).output


@pytest.mark.parametrize(
    ("reference", "sample", "told"),
    [("25", "It is 25%.", True), ("25", r"\boxed{25\%}", True), ("0.25", "25%", False), ("5", "25%", False),
     ("25%", "25%", False), ("25", "25% of 100 is 25", False)],
)  # fmt: skip
def test_percentages_that_are_read_as_another_number_than_the_reference_are_named(
    reference: str, sample: str, told: bool, tmp_path: Path
) -> None:
    pool = written(tmp_path / "pool.jsonl", {"id": "a", "gold": reference, "samples": ["1", sample]})
    assert any("percent: dropped" in note for note in grade.grading(pool).notes) == told
    assert not grade.grading(pool, answer={"answer": "{kind: math, percent: dropped}"}).notes


@pytest.mark.parametrize(
    ("name", "message"),
    [("grader", "the task's grader is called so"), ("sure", "the recorded score of --score sure")],
)
def test_names_that_two_verifiers_would_have_are_refused(name: str, message: str, tmp_path: Path) -> None:
    like = tmp_path / "like.yaml"
    like.write_text(f"verifiers: {{{name}: {{kind: oracle}}}}\n", "utf-8")
    with pytest.raises(InputError, match=rf"verifiers\.{name}: {message}"):
        grade.grading(written(tmp_path / "pool.jsonl", *RECORDS), like=like, scores=["sure"])


# -- verdicts, and other forms of pools --------------------------------------------------------------------------------


def test_recorded_verdicts_grade_in_place_of_the_task(tmp_path: Path, data: Path) -> None:
    rows = [dict(r, right=[0, 0, 1, 0]) for r in SAMPLES]
    pool = written(tmp_path / "pool.jsonl", *rows)
    run = tmp_path / "run"
    asked = ["grade", str(pool), "--task", lent(data), "--partial", "--correct", "right", "--out", str(run)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert figures(run)["single"] == 0.25


def test_one_sample_a_line_and_two_lists_of_samples(tmp_path: Path) -> None:
    rows = [
        {"task_id": r["id"], "completion": f"The answer is {s}.", "gold": r["gold"]}
        for r in RECORDS
        for s in r["samples"]
    ]
    run = tmp_path / "run"
    result = CliRunner().invoke(
        app, ["grade", str(written(tmp_path / "pool.jsonl", *rows)), "--out", str(run)]
    )
    assert result.exit_code == 0, result.output
    assert figures(run)["single"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    both = written(tmp_path / "both.jsonl", {"id": "a", "gold": 1, "texts": ["x"], "answers": ["1"]})
    (note,) = grade.grading(both).notes
    assert (
        note == "the records have 'texts' and 'answers'; 'texts' is graded, --samples answers takes the other"
    )


def test_sizes_that_are_asked_for_are_measured_with_all_samples(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *RECORDS)
    run = tmp_path / "run"
    asked = ["grade", str(pool), "--pattern", "^(.*)$", "-n", "2", "--out", str(run)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert figures(run)["pass@2"] == pytest.approx((5 / 6 + 3 / 6) / 2), "over all pairs, not the first"
    assert grade.grading(pool, sets=["grid.n=[1]"]).experiment.grid.n == (1,)


# -- scores of other scales, counts, verdicts drawn --------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 100.0, -900.0])
def test_a_perfect_judge_chooses_the_right_sample_on_any_scale(tmp_path: Path, scale: float) -> None:
    """Right samples have the highest score by a hundredth of the scale, log-probabilities near −900 among them."""
    scores = [0.98, 0.99, 0.97, 0.96] if scale > 0 else [0.99, 0.98, 1.0, 1.01]
    record = {"samples": ["1", "2", "1", "3"], "right": [0, 1, 0, 0], "judge": [s * scale for s in scores]}
    pool = written(tmp_path / "pool.jsonl", *({"id": i, **record} for i in "ab"))
    run = tmp_path / "run"
    asked = ["grade", str(pool), "--correct", "right", "--score", "judge", "--out", str(run)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    found = figures(run)
    assert found["best-judge@4"] == 1.0 and found["best-judge@2"] == pytest.approx(0.5)
    said = " ".join(result.output.split())
    assert ("mapped into [0, 1] by ranks, the default" in said) == (scale != 1.0)


def test_maps_are_chosen_and_named_where_they_lose_the_order(tmp_path: Path) -> None:
    record = {"samples": ["1", "2", "1", "3"], "right": [0, 1, 0, 0], "judge": [98, 99, 40, 50]}
    pool = written(tmp_path / "pool.jsonl", {"id": "a", **record})
    found = {}
    for name in ("sigmoid", "softmax(10)", "judge=minmax"):
        run = tmp_path / name
        asked = [
            "grade",
            str(pool),
            "--correct",
            "right",
            "--score",
            "judge",
            "--map",
            name,
            "--out",
            str(run),
        ]
        result = CliRunner().invoke(app, asked)
        assert result.exit_code == 0, result.output
        found[name] = figures(run)
        lost = "weighted votes cannot tell them apart" in " ".join(result.output.split())
        assert lost == (name == "sigmoid") and found[name]["best-judge@4"] == 1.0
    # A sigmoid weighs all alike, so that two votes win; a softmax hears the best alone.
    assert found["sigmoid"]["weighted-judge@4"] == 0.0 and found["softmax(10)"]["weighted-judge@4"] == 1.0
    for options, message in (
        (["--map", "ranks"], "there are no scores to map"),
        (["--score", "judge", "--map", "rm=ranks"], "'rm' is no --score"),
        (["--score", "judge", "--map", "square"], "maps no scores into"),
        (["--where", "x"], "expected NAME=VALUE"),
        (["--where", "model=a", "--where", "model=b"], "given twice, as 'a' and 'b'"),
    ):
        result = CliRunner().invoke(app, ["grade", str(pool), "--correct", "right", *options])
        assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(("unknown", "single"), [("exclude", (1.0 + 0.5) / 2), ("wrong", (1 / 3 + 0.5) / 2)])
def test_unknown_verdicts_are_left_out_or_wrong_and_named(
    tmp_path: Path, unknown: str, single: float
) -> None:
    rows = [
        {"id": "a", "samples": ["1", None, "2"], "right": [1, None, None]},
        {"id": "b", "samples": ["1", "2"], "right": [1, 0]},
        {"id": "c", "samples": [None], "right": [None]},
    ]
    pool = written(tmp_path / "pool.jsonl", *rows[: 2 if unknown == "wrong" else 3])
    run = tmp_path / "run"
    asked = ["grade", str(pool), "--correct", "right", "--unknown", unknown, "--out", str(run)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert figures(run)["single"] == pytest.approx(single)
    said = " ".join(result.output.split())
    assert "failed call" in said and f"(unknown: {unknown})" in said
    again = CliRunner().invoke(app, ["report", str(run)])
    assert f"(unknown: {unknown})" in " ".join(again.output.split()), "kept with the result"
    assert "(unknown: " in (run / "report.html").read_text("utf-8")
    refused = CliRunner().invoke(app, ["grade", str(pool), "--correct", "right", "--unknown", "error"])
    assert refused.exit_code == 2 and "unknown: exclude or wrong" in " ".join(refused.output.split())


def test_counts_of_right_samples_are_graded(tmp_path: Path) -> None:
    rows = [{"task_id": i, "n": 4, "successes": c} for i, c in enumerate((0, 1, 4))]
    pool = written(tmp_path / "pool.jsonl", *rows)
    run = tmp_path / "run"
    result = CliRunner().invoke(app, ["grade", str(pool), "--out", str(run)])
    assert result.exit_code == 0, result.output
    found = figures(run)
    assert found == pytest.approx({"single": 5 / 12, "pass@1": 5 / 12, "pass@2": 0.5, "pass@4": 2 / 3})
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"run": r, "total": 2, "c": [r, 2]} for r in (0, 1)]))
    names = ["--id", "run", "--field", "successes=c", "--field", "n=total", "--where", "run=1"]
    result = CliRunner().invoke(app, ["grade", str(listed), *names, "--out", str(tmp_path / "other")])
    assert result.exit_code == 0, result.output
    assert figures(tmp_path / "other")["single"] == pytest.approx(0.75)


def test_counts_grade_in_place_of_the_task(tmp_path: Path, data: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *({"id": name, "n": 4, "successes": 1} for name in "abc"))
    asked = ["grade", str(pool), "--task", lent(data), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert figures(tmp_path / "run")["single"] == 0.25


def test_a_score_may_be_the_mean_of_some_verdicts_of_each_sample(tmp_path: Path) -> None:
    """Three of four verdicts are right of either sample: one of them errs in a quarter, all four never."""
    record = {"samples": ["1", "2"], "right": [1, 0], "checks": [[1, 1, 1, 0], [0, 0, 0, 1]]}
    pool = written(tmp_path / "pool.jsonl", *({"id": str(i), **record} for i in range(300)))
    run = tmp_path / "run"
    asked = ["--correct", "right", "--score", "checks~1", "--score", "checks~4", "--score", "checks[0:3]"]
    result = CliRunner().invoke(app, ["grade", str(pool), *asked, "--out", str(run)])
    assert result.exit_code == 0, result.output
    found = figures(run)
    assert found["best-checks-4@2"] == found["best-checks-0-3@2"] == 1.0
    # Right with 9/16, a tie with 6/16: 3/4, ± 5 standard errors over 300 problems.
    assert found["best-checks-1@2"] == pytest.approx(0.75, abs=5 * 0.34 / 300**0.5)
