"""Collecting: the arrays say of every problem what the run's own results say of all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metagen.cost import ModelShape
from metagen.errors import DataError, InputError
from metagen.runs.curves import collect
from metagen.runs.curves.measured import derive
from metagen.runs.curves.reading import POOLED_SECONDS, Run
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import schema
from metagen.runs.declare.study import SizeSpec
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

Write = Callable[..., Path]
SEARCH = "  direct: {kind: soft_best_of_n, verifier: judge, beta: 0.2, n: 4}\n"


def run(file: Path, root: Path, *sets: str) -> RunDirectory:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))
    return RunDirectory(root)


def test_means_over_problems_are_the_results_of_the_run(study_experiment_file: Write, tmp_path: Path) -> None:
    sets = ["strategies.soft={kind: soft_best_of_n, verifier: judge, beta: 0.2, n: 4}"]
    directory = run(study_experiment_file(count=9), tmp_path / "run", *sets)
    result = collect.of_run(directory)
    measured = {m.cell.name: m for m in derive(directory, directory.state().lines).configurations}
    seen = set()
    for curve in result.curves:
        for point, n in enumerate(curve.ns):
            name = curve.name if curve.kind == "sample" else curve.configuration(point)
            m = measured[name]
            assert curve.accuracy[point].mean() == pytest.approx(m.accuracy, abs=1e-12)
            assert curve.cost("tokens")[point] == pytest.approx(m.tokens)
            timed = curve.cost("seconds")[point]
            assert np.isnan(timed) if curve.source == "pool" else timed == pytest.approx(m.seconds)
            assert curve.cost("samples")[point] == (n or 1)
            assert curve.oracle == m.cell.oracle
            seen.add(name)
    assert seen == set(measured)
    assert (
        result.curve("small", "soft").source == "run" and result.curve("small", "majority").source == "pool"
    )
    assert [n.text for n in result.notes if n.about == "seconds"] == [POOLED_SECONDS]
    assert result.problems == tuple(f"sum-{i}" for i in range(9)) and result.levels.tolist() == [1, 2, 3] * 3


def test_a_size_that_is_known_beats_one_that_is_stated(study_experiment_file: Write, tmp_path: Path) -> None:
    shape = ModelShape(layers=2, width=8, heads=2, kv_heads=1, head_dim=4, ff=16, vocab=11)
    reading = Run(run(study_experiment_file(), tmp_path / "run"), sizes={"small": SizeSpec(parameters=5e9)})
    vars(reading)["shapes"] = {"small": shape}
    result = reading.result()
    assert {model.name: model.size for model in result.models} == {"small": shape.parameters, "large": None}
    assert any(
        note.about == "small" and "study.sizes says 5,000,000,000" in note.text for note in result.notes
    )


def test_a_sample_is_one_point(study_experiment_file: Write, tmp_path: Path) -> None:
    curve = collect.of_run(run(study_experiment_file(), tmp_path / "run")).curve("small", "single")
    assert curve.ns.tolist() == [1] and curve.accuracy.shape == (1, 6)


def test_a_problem_that_failed_is_nan_and_is_said(study_experiment_file: Write, tmp_path: Path) -> None:
    directory = run(study_experiment_file(), tmp_path / "run", "generators.small.fails_on=sum-2")
    result = collect.of_run(directory)
    small, large = result.curve("small", "majority"), result.curve("large", "majority")
    assert np.isnan(small.accuracy).all(axis=0).tolist() == [i == 2 for i in range(6)]
    assert np.isnan(small.costs["tokens"]).all(axis=0).tolist() == [i == 2 for i in range(6)]
    assert np.isfinite(small.cost("tokens")).all() and np.isfinite(large.accuracy).all()
    assert any(note.about == "small" and "1 of 6 problems failed" in note.text for note in result.notes)
    (votes,) = (v for v in result.votes if v.model == "small")
    assert votes.sizes.tolist() == [8, 8, 0, 8, 8, 8] and (votes.classes[2] == -1).all()


def test_votes_hold_the_samples(study_experiment_file: Write, tmp_path: Path) -> None:
    result = collect.of_run(run(study_experiment_file(), tmp_path / "run"))
    for votes in result.votes:
        assert votes.classes.shape == votes.correct.shape == votes.tokens.shape == (6, 8)
        assert np.isfinite(votes.scores["judge"]).all() and (votes.tokens > 0).all()
        curve = result.curve(votes.model, "single")
        assert curve.accuracy[0] == pytest.approx(votes.correct.mean(axis=1))


def test_variants_take_the_names_of_the_study(study_experiment_file: Write, tmp_path: Path) -> None:
    names = {"small/majority": ("tiny", "vote", "temperature=0.5"), "small/single": ("tiny", "single", "")}
    sets = ["grid.generators=[small]", "grid.strategies=[single, majority]"]
    result = collect.of_run(run(study_experiment_file(), tmp_path / "run", *sets), names=names)
    assert [(c.name, c.setting) for c in result.curves] == [
        ("tiny/single", ""),
        ("tiny/vote", "temperature=0.5"),
    ]
    assert [v.model for v in result.votes] == [m.name for m in result.models] == ["tiny"]


def test_what_was_collected_reads_back(study_experiment_file: Write, tmp_path: Path) -> None:
    directory = run(study_experiment_file(), tmp_path / "run")
    result = collect.of_run(directory)
    result.save(directory)
    again = StudyResult.load(directory.root)
    assert again.facts == result.facts and again.notes == result.notes and again.models == result.models
    for a, b in zip(again.curves, result.curves, strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.accuracy, b.accuracy)


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not begun"):
        collect.of_run(RunDirectory(tmp_path))


def test_an_infinite_score_is_refused_and_a_missing_one_is_said(
    study_experiment_file: Write, tmp_path: Path
) -> None:
    directory = run(study_experiment_file(), tmp_path / "run")
    path = directory.table("candidates")
    table = pq.read_table(path)

    def scored(value: float | None) -> None:
        scores = [value, *table["score.judge"].to_pylist()[1:]]
        at = table.schema.get_field_index("score.judge")
        pq.write_table(table.set_column(at, "score.judge", pa.array(scores, pa.float64())), path)

    scored(None)
    result = collect.of_run(directory)
    texts = [note.text for note in result.notes]
    assert any("1 of 48 samples have no score of judge: they have no vote" in text for text in texts)
    scored(float("inf"))
    with pytest.raises(DataError, match=r"the score of 'judge' for sample \d+ of problem .* is inf"):
        collect.of_run(directory)


def test_unequal_pools_are_measured_where_they_are_large_enough(
    study_experiment_file: Write, tmp_path: Path
) -> None:
    directory = run(study_experiment_file(), tmp_path / "run")
    path = directory.table("candidates")
    table = pq.read_table(path)
    short = pc.and_(pc.equal(table["problem"], "sum-1"), pc.greater_equal(table["sample"], 3))
    pq.write_table(table.filter(pc.invert(short)), path)
    result = collect.of_run(directory)
    curve = result.curve("small", "majority")
    assert np.isnan(curve.accuracy[:, 1]).tolist() == [False, False, True] and curve.ns.tolist() == [1, 2, 8]
    text = "n = 8 is measured on 5 of 6 problems, those with as many samples"
    assert any((note.about, note.text) == ("small", text) for note in result.notes)
