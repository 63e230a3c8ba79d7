"""Bad input, case by case: what cannot be computed is said, with the place, the value and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metagen.analysis.comparison import contrasts, sentence
from metagen.analysis.intervals import SHARES, interval
from metagen.errors import DataError, InputError
from metagen.runs.curves import checks, collect
from metagen.runs.curves.frontier import at_cost, cells, note_unknown_costs, shared_problems
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.note import Note
from metagen.runs.work import build, runner
from tests.runs.made import made

Write = Callable[..., Path]
MADE = made()


def texts(notes: tuple[Note, ...], about: str | None = None) -> str:
    return " | ".join(note.text for note in notes if about in (None, note.about))


def changed(name: str, **fields: Any) -> StudyResult:
    """The made study with one curve changed."""
    curves = tuple(replace(c, **fields) if c.name == name else c for c in MADE.curves)
    return replace(MADE, curves=curves)


def ran(file: Path, root: Path, *sets: str) -> RunDirectory:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))
    return RunDirectory(root)


def pool(root: Path, *records: dict[str, Any], n: str = "[1, 2]") -> RunDirectory:
    """A recorded pool, run."""
    (root / "pool.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (root / "pool.yaml").write_text(
        "name: pool\n"
        "task: {kind: jsonl, path: pool.jsonl, fields: {id: id, question: question, answer: gold}, answer: math}\n"
        "generators: {m: {kind: replay, path: pool.jsonl, fields: {texts: texts, scores.v: v}}}\n"
        "verifiers: {v: {kind: recorded, score: v}}\n"
        "strategies: {majority: {kind: majority}, best: {kind: best_of_n, verifier: v}, "
        "weighted: {kind: weighted, verifier: v}}\n"
        f"grid: {{n: {n}}}\n"
    )
    return ran(root / "pool.yaml", root / "run")


def record(
    i: int, texts: list[str | None], v: list[float | None] | None = None, **other: Any
) -> dict[str, Any]:
    scores = [0.5] * len(texts) if v is None else v
    return {"id": f"q{i}", "question": f"{i}?", "gold": str(i), "texts": texts, "v": scores, **other}


# ------------------------------------------------------------------------------------------------ samples


def test_unequal_numbers_of_samples(tmp_path: Path) -> None:

    run = pool(
        tmp_path, record(1, ["1", "1", "2", "1"]), record(2, ["2"]), record(3, ["3", "4"]), n="[1, 2, 4]"
    )
    result = collect.of_run(run)
    curve = result.curve("m", "majority")
    assert np.isfinite(curve.accuracy).sum(axis=1).tolist() == [3, 2, 1]
    said = [note.text for note in result.notes]
    assert "n = 2 is measured on 2 of 3 problems, those with as many samples" in said
    assert not any("n = 2 is" in note.text for note in checks.notes(result)), "said once"
    # Whoever has only the arrays says the same.
    assert Note("m", "n = 4 is measured on 1 of 3 problems, those with as many samples") in checks.notes(
        replace(result, notes=())
    )
    # What is compared is compared on the problems that both have.
    assert shared_problems([curve, result.curve("m", "best")]).tolist() == [True, False, False]


def test_problems_that_failed_in_a_run() -> None:
    accuracy = MADE.curve("small", "rebase").accuracy.copy()
    accuracy[:, :7] = np.nan
    notes = checks.notes(changed("small/rebase", accuracy=accuracy))
    assert texts(notes, "small/rebase") == "measured on 53 of 60 problems; the others failed"
    accuracy[0, :7], accuracy[1, :9] = 1.0, np.nan
    notes = checks.notes(changed("small/rebase", accuracy=accuracy))
    assert texts(notes, "small/rebase") == "n = 16 is measured on 51 of 60 problems, the others failed"


def test_missing_scores(tmp_path: Path) -> None:
    from metagen.runs.curves import collect

    run = pool(tmp_path, record(1, ["1", "2"], [0.5, None]), record(2, ["2", "3"], [None, 0.5]))
    result = collect.of_run(run)
    assert "2 of 4 samples have no score of v: they come last" in texts(result.notes, "m/best")
    assert "2 of 4 samples have no score of v: they have no vote" in texts(result.notes, "m/weighted")
    assert set(checks.notes(replace(result, notes=()))) >= {n for n in result.notes if "no score" in n.text}
    # Best-of-n never takes them before a scored one: problem 2 is wrong, whose right answer has no score.
    assert result.curve("m", "best").accuracy[1].tolist() == [1.0, 0.0]


def test_missing_scores_are_counted_in_the_pool_of_their_own_settings() -> None:
    first, *others = MADE.votes
    scores = first.scores["prm"].copy()
    scores[0, :5] = np.nan
    bare, cool = replace(first, scores={"prm": scores}), replace(first, generator="small.cool")
    curves = tuple(
        replace(c, generator="small.cool") if c.name == "small/weighted" else c for c in MADE.curves
    )
    for votes in ((bare, cool), (cool, bare)):
        notes = checks.notes(replace(MADE, curves=curves, votes=(*votes, *others)))
        assert "5 of 1,920 samples have no score of prm" in texts(notes, "small/best")
        assert not texts(notes, "small/weighted")


def test_no_scores_at_all(tmp_path: Path) -> None:
    from metagen.runs.curves import collect

    result = collect.of_run(pool(tmp_path, record(1, ["1", "2"], [None, None])))
    assert [curve.strategy for curve in result.curves] == ["majority"]
    assert "v scored no sample: it is left out" in texts(result.notes, "m/best")


@pytest.mark.parametrize(("problems", "exact"), [(5, False), (9, True)])
def test_an_exact_bound_is_promised_only_where_there_is_an_interval(problems: int, exact: bool) -> None:
    few = made(problems)
    first, *others = few.curves
    notes = checks.notes(
        replace(few, curves=(replace(first, accuracy=np.ones_like(first.accuracy)), *others))
    )
    said = texts(notes, first.name)
    assert "solved at every n" in said and ("exact binomial bound" in said) == exact


def test_missing_log_probabilities() -> None:
    first, *others = MADE.votes
    logprob = first.logprob.copy()
    logprob[0, :5] = np.nan
    result = replace(MADE, votes=(replace(first, logprob=logprob), *others))
    assert "5 of 1,920 samples have no log-probability" in texts(checks.notes(result), first.model)
    assert "log-probability" not in texts(checks.notes(MADE))


def test_samples_that_are_not_there_are_not_missing_scores() -> None:
    first, *others = MADE.votes
    sizes = first.sizes.copy()
    sizes[0] = 30
    scores, logprob = first.scores["prm"].copy(), first.logprob.copy()
    scores[0, 30:] = logprob[0, 30:] = np.nan
    padded = replace(first, sizes=sizes, scores={"prm": scores}, logprob=logprob)
    notes = checks.notes(replace(MADE, votes=(padded, *others)))
    assert not any("no score" in n.text or "log-prob" in n.text for n in notes)


@pytest.mark.parametrize(("value", "words"), [("NaN", "nan"), ("Infinity", "inf"), ('"high"', "high")])
def test_rewards_that_are_no_numbers_name_the_line(value: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    with pytest.raises(DataError, match=rf"line 2: a score 'v' is .*{words}.*; expected numbers"):
        pool(tmp_path, record(1, ["1", "2"]), {**record(2, ["2", "2"]), "v": [1, json.loads(value)]})
    assert file.exists()


def test_infinite_rewards_of_a_run_name_the_sample(study_experiment_file: Write, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from metagen.runs.curves import collect

    run = ran(study_experiment_file(), tmp_path / "run")
    table = pq.read_table(run.table("candidates"))
    at = table.schema.get_field_index("score.judge")
    values = table["score.judge"].to_pylist()
    rows = zip(*(table[name].to_pylist() for name in ("generator", "problem", "sample")), strict=True)
    values[list(rows).index(("small", "sum-4", 3))] = float("inf")
    pq.write_table(
        table.set_column(at, "score.judge", pa.array(values, pa.float64())), run.table("candidates")
    )
    with pytest.raises(
        DataError, match=r"'judge' for sample 3 of problem 'sum-4' is inf; expected a finite number"
    ):
        collect.of_run(run)


# ------------------------------------------------------------------------------------------------ problems


def test_one_id_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pool.jsonl:2: id 'q1' is that of 1 too; ids must be unique"):
        pool(tmp_path, record(1, ["1", "2"]), record(1, ["1", "1"]))


def test_one_prompt_under_two_ids(tmp_path: Path) -> None:
    same = {"question": "what?", "gold": "1"}
    run = pool(tmp_path, *({**record(i, ["1", "2"]), **same} for i in range(3)), record(7, ["7", "7"]))
    (note,) = checks.note_duplicates(run)
    assert "4 problems have only 2 different prompts ('q0' = 'q1' = 'q2')" in note.text
    assert "so intervals are too narrow" in note.text
    assert note in collect.of_run(run).notes
    assert checks.duplicates({"a": "1", "b": "2"}) == ()


def test_one_problem_and_few() -> None:
    assert "no interval, no test, no groups by difficulty and no fitted law" in texts(checks.notes(made(1)))
    assert "7 problems are too few for intervals" in texts(checks.notes(made(7)))
    assert checks.problems(8) == ()
    with pytest.raises(DataError, match="has no problem"):
        checks.problems(0)


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "all of 60 problems are solved"), (0.0, "none of 60 problems is")]
)
def test_all_right_and_all_wrong(value: float, words: str) -> None:
    curve = MADE.curve("small", "majority")
    flat = changed("small/majority", accuracy=np.full_like(curve.accuracy, value))
    assert words in texts(checks.notes(flat), "small/majority")
    assert "solved" not in texts(checks.notes(MADE))
    bounds = interval(np.full(60, value), support=SHARES)
    exact = 1 - 0.025 ** (1 / 60)
    assert float(bounds.high - bounds.low) == pytest.approx(exact)
    (contrast,) = contrasts({"both": (np.full(40, value), np.full(40, value))})
    assert contrast.p_value == 1.0 and not contrast.shown and "cannot tell them apart" in sentence(contrast)


# ------------------------------------------------------------------------------------------------ costs


def test_unknown_costs() -> None:
    assert "money is unknown for every curve: give engines.NAME.price" in texts(checks.notes(MADE), "money")
    with pytest.raises(InputError, match="has no cost 'joules'; expected one of samples"):
        MADE.curve("small", "majority").cost("joules")


def test_zero_costs_have_no_place_on_a_logarithmic_axis() -> None:
    curve = MADE.curve("small", "majority")
    free = changed("small/majority", costs={**curve.costs, "flops": np.zeros_like(curve.accuracy)})
    assert all(cell.curve.name != "small/majority" for cell in cells(free, "flops"))
    assert "zero for small/majority" in texts(tuple(note_unknown_costs(free, "flops")))


def test_a_budget_below_the_cheapest_is_no_number() -> None:
    assert at_cost(MADE.curve("small", "majority"), "flops", 1.0) is None


def test_curves_without_a_problem_in_common() -> None:
    one, other = MADE.curve("small", "majority"), MADE.curve("large", "best")
    left, right = one.accuracy.copy(), other.accuracy.copy()
    left[:, :30] = right[:, 30:] = np.nan
    with pytest.raises(InputError, match="large/best and small/majority have no problem in common"):
        shared_problems([replace(one, accuracy=left), replace(other, accuracy=right)])


def test_more_candidates_than_were_recorded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds 2 samples of problem 'q1', the grid asks for 4"):
        pool(tmp_path, record(1, ["1", "2"]), n="[4]")


# ------------------------------------------------------------------------------------------------ study files


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ("limit: {n: 8, seed: 3}", r"limit\.seed.*the same seed draws the same samples"),
        ("limit: {n: 8, halves: true}", "expected n .* or halves"),
        (
            "development: {task: {count: 2}, settings: {majority: [{}]}}",
            "2 problems of development are test problems",
        ),
        ("budgets: {flop: [1.0]}", "did you mean 'flops'"),
    ],
)
def test_study_files_that_would_cheat(study_experiment_file: Write, study: str, message: str) -> None:
    from metagen.runs.declare import plan
    from metagen.runs.declare import study_schema as studies

    file = study_experiment_file(more=f"study:\n  {study}\n")
    with pytest.raises(InputError, match=message):
        plan.apart(studies.load(file))


def test_notes_are_said_once() -> None:
    first = checks.notes(MADE)
    assert first and checks.notes(replace(MADE, notes=first)) == ()
