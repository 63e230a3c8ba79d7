"""Recommendations keep their budgets, never know the answers, and say what to expect elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from metagen.analysis.ties import TIE
from metagen.cli import app
from metagen.errors import InputError
from metagen.runs.curves.measured import derive
from metagen.runs.curves.study import Curve, Floats, Model, StudyResult
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.note import Note
from metagen.runs.questions.recommend import parse_budgets, recommend, render
from metagen.runs.work import build, runner
from tests.runs.made import made

Write = Callable[..., Path]
MADE = made()


def study(rows: Floats, costs: Floats, problems: int | None = None) -> StudyResult:
    """Curves of one point each: accuracies [curves, problems], FLOPs [curves]."""
    count = rows.shape[1]
    curves = tuple(
        Curve(
            "m", f"s{i}", "majority", np.array([4]), row[None], np.zeros((1, count)),
            {"flops": np.full((1, count), cost)}, np.zeros((1, count)),
        )
        for i, (row, cost) in enumerate(zip(rows, costs, strict=True))
    )  # fmt: skip
    ids = tuple(f"p{i}" for i in range(count))
    return StudyResult("noise", 0, ids, np.full(count, -1), (Model("m"),), curves)


@pytest.mark.parametrize("budget", [1.1e7, 4e7, 1e8, 3e8, 1e9, 1e10])
def test_it_is_the_cheapest_of_the_best_that_the_budget_pays_for(budget: float) -> None:
    found = recommend(MADE, {"flops": budget})
    affordable = {
        (c.name, p): (c.accuracy[p].mean(), c.cost("flops")[p])
        for c in MADE.curves
        for p in range(len(c.ns))
        if not c.oracle and c.cost("flops")[p] <= budget
    }
    best = max(accuracy for accuracy, _ in affordable.values())
    cost = min(cost for accuracy, cost in affordable.values() if accuracy >= best - TIE)
    assert not found.curve.oracle and found.naive >= best - TIE - 1e-12
    assert found.costs["flops"] == pytest.approx(cost) and cost <= budget
    assert found.low <= found.accuracy <= found.high


def test_every_budget_holds_at_once() -> None:
    alone = recommend(MADE, {"flops": 1e9})
    assert not any(note.about == "latency" for note in alone.notes)
    bare = [{name: v for name, v in c.costs.items() if name != "latency:h200"} for c in MADE.curves]
    curves = tuple(replace(c, costs=costs) for c, costs in zip(MADE.curves, bare, strict=True))
    unknown = recommend(replace(MADE, curves=curves), {"flops": 1e9})
    assert not unknown.latency and any("from study.accelerators" in note.text for note in unknown.notes)
    both = recommend(MADE, {"flops": 1e9, "latency:h200": 0.01})
    assert alone.curve.model == "large" and alone.latency["h200"] > 0.01
    assert both.curve.model == "small" and both.latency["h200"] <= 0.01
    assert any("modelled, not measured" in note.text for note in both.notes)
    # Each budget pays for one of two, and none for both.
    two = study(np.eye(2, 16), np.array([1e6, 1e7]))
    many, few = (
        replace(curve, costs={**curve.costs, "samples": np.full((1, 16), n)})
        for curve, n in zip(two.curves, (9.0, 1.0), strict=True)
    )
    with pytest.raises(InputError, match=r"no configuration keeps samples=4 and flops=5e\+06 together"):
        recommend(replace(two, curves=(many, few)), {"samples": 4, "flops": 5e6})


def test_what_is_picked_by_chance_is_expected_to_be_like_the_rest() -> None:
    """Configurations that all solve half: the best of them looks better, and is not."""
    rng = np.random.default_rng(0)
    naive, expected, covered = [], [], 0
    for _ in range(20):
        found = recommend(
            study((rng.random((16, 60)) < 0.5).astype(float), np.arange(1.0, 17.0)), {"flops": 100}
        )
        naive.append(found.naive)
        expected.append(found.accuracy)
        covered += found.low <= 0.5 <= found.high
    assert np.mean(naive) > 0.58
    assert np.mean(expected) == pytest.approx(0.5, abs=0.03)
    assert covered >= 17, "misses of 95% intervals that are more are of probability 0.02"


@pytest.mark.slow
def test_intervals_cover_what_is_true_of_the_configuration_that_was_chosen() -> None:
    """Eight configurations that differ, on sixty problems: of 50 intervals at least 43 hold the truth.

    At 95% fewer do with probability 0.004; intervals of the held-out values alone do in three of four.
    """
    rng, truth, covered = np.random.default_rng(1), np.linspace(0.3, 0.7, 8), 0
    for _ in range(50):
        rows = (rng.random((8, 60)) < truth[:, None]).astype(float)
        found = recommend(study(rows, np.arange(1.0, 9.0)), {"flops": 100})
        covered += found.low <= truth[int(found.curve.strategy[1:])] <= found.high
    assert covered >= 43


def test_the_runner_up_is_of_another_curve_and_tested_in_a_family() -> None:
    found = recommend(MADE, {"flops": 1e9})
    assert found.runner_up is not None and not found.runner_up.name.startswith(f"{found.curve.name}@")
    assert found.runner_up.b == pytest.approx(found.naive) and found.runner_up.a <= found.naive + TIE
    assert found.runner_up.p_value >= found.runner_up.difference.p_value
    alone = recommend(study(np.eye(1, 16), np.array([1.0])), {"flops": 2})
    assert alone.runner_up is None


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (
            {"flops": 1e6},
            "flops=1e\\+06 is below the cheapest, small/majority@1 at 1e\\+07 a problem; give at least",
        ),
        ({"money": 1}, "money is unknown: give engines.NAME.price; known costs: samples, generated"),
        ({"flop": 1}, "budget flop: there is no such cost; did you mean 'flops'"),
        ({"seconds": 1}, "seconds is 0 throughout: nobody counted it; known costs: samples, generated"),
        ({"latency:tpu": 1}, "latency:tpu is unknown: give study.accelerators.tpu"),
        ({"flops": -1.0}, "flops=-1.0: expected a number > 0"),
        ({"flops": float("nan")}, "flops=nan: expected a number > 0"),
        ({}, "no budget is given; expected at least one, of samples"),
    ],
)
def test_budgets_that_cannot_be_kept(budgets: dict[str, float], message: str) -> None:
    free = tuple(replace(c, costs={**c.costs, "seconds": np.zeros_like(c.accuracy)}) for c in MADE.curves)
    with pytest.raises(InputError, match=message):
        recommend(replace(MADE, curves=free), budgets)


def test_oracles_alone_are_nothing_to_recommend() -> None:
    with pytest.raises(InputError, match="nothing to recommend"):
        recommend(replace(MADE, curves=tuple(c for c in MADE.curves if c.oracle)), {"flops": 1e9})


@pytest.mark.parametrize(
    ("problems", "words"), [(1, "one problem allows no interval"), (5, "5 problems are too few")]
)
def test_few_problems_give_no_interval(problems: int, words: str) -> None:
    found = recommend(made(problems), {"flops": 1e9})
    assert np.isnan(found.low) and np.isnan(found.high) and found.accuracy == found.naive
    assert any(words in note.text for note in found.notes)
    assert any("of the choice; expect less" in note.text for note in found.notes)
    assert found.data()["low"] is None, "JSON has no NaN"
    if found.runner_up is not None:
        d = found.runner_up.difference
        assert np.isnan([d.low, d.high, d.p_value, found.runner_up.p_value]).all()


def test_costs_that_some_lack_and_samples_that_some_lack_are_said() -> None:
    first, second, *_ = (
        c for c in MADE.curves if c.name in ("large/best", "large/weighted", "small/majority")
    )
    unknown = replace(first, costs={**first.costs, "flops": np.full_like(first.costs["flops"], np.nan)})
    short = second.accuracy.copy()
    short[-1, 5:] = np.nan
    short[-2, 50:] = np.nan
    found = recommend(replace(MADE, curves=(unknown, replace(second, accuracy=short))), {"flops": 1e12})
    text = " ".join(note.text for note in found.notes)
    assert found.curve.name == second.name
    assert "flops is unknown: left out" in text and f"{second.name}@32 (5); left out" in text
    assert "compared on the 50 of 60 problems" in text and found.problems == 50


def test_a_budget_beyond_what_was_measured_is_said() -> None:
    found = recommend(replace(MADE, curves=(MADE.curve("large", "best"),)), {"flops": 1e15})
    assert (found.n == 32) == any("largest measured n" in note.text for note in found.notes)
    rising = study(np.array([[0.0] * 8 + [1.0] * 8]), np.array([1.0]))
    assert any("largest measured n" in n.text for n in recommend(rising, {"flops": 10}).notes)
    (line,) = rising.curves
    single = replace(rising, curves=(replace(line, kind="sample"),))
    notes = recommend(single, {"flops": 10}).notes
    assert not any("largest n" in n.text for n in notes), "one sample has no larger n"


def test_notes_of_what_is_recommended_come_along() -> None:
    noted = replace(MADE, notes=(Note("prm", "counts as free"), Note("elsewhere", "not this")))
    assert [n.text for n in recommend(noted, {"flops": 1e9}).notes if n.about in ("prm", "elsewhere")] == [
        "counts as free"
    ]


def test_words_and_json() -> None:
    found = recommend(MADE, {"flops": 1e9, "samples": 64})
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115 - shown nowhere
    console.print(render(found))
    text = console.export_text()
    assert found.configuration in text and "modelled seconds of waiting on h200" in text and "Holm" in text
    data = json.loads(json.dumps(found.data(), allow_nan=False))
    assert data["configuration"] == found.configuration and data["costs"]["flops"] == found.costs["flops"]
    assert parse_budgets(["flops=2e9", "money=0.01"]) == {"flops": 2e9, "money": 0.01}
    for wrong, message in (["flops"], "expected COST=AMOUNT"), (["a=1", "a=2"], "given twice"):
        with pytest.raises(InputError, match=message):
            parse_budgets(wrong)


def test_a_frozen_setting_is_part_of_what_to_run() -> None:
    first, second = study(
        np.tile([[0.0] * 4 + [1.0] * 12, [1.0] * 8 + [0.0] * 8], 2), np.array([1.0, 2.0])
    ).curves
    tuned = (replace(first, setting="temperature=0.2"), replace(second, setting="step.tokens=8"))
    found = recommend(replace(study(np.eye(2, 32), np.array([1.0, 2.0])), curves=tuned), {"flops": 9})
    assert found.configuration == "m/s0@4" and found.full_name == "m/s0@4 (temperature=0.2)"
    assert found.full_name in found.sentence and found.data()["setting"] == "temperature=0.2"
    assert found.runner_up is not None and found.runner_up.name == "m/s1@4 (step.tokens=8)"
    written = recommend(
        replace(study(np.eye(1, 32), np.array([1.0])), curves=(replace(first, setting="as written"),)),
        {"flops": 9},
    )
    assert written.full_name == "m/s0@4"


def test_of_equals_the_plain_sample_is_taken() -> None:
    same = study(np.ones((2, 16)), np.array([1.0, 1.0 + 1e-15]))
    pool, drawn = same.curves
    pool = replace(pool, strategy="majority", ns=np.array([1]))
    drawn = replace(drawn, strategy="single", kind="sample", ns=np.array([0]))
    assert recommend(replace(same, curves=(pool, drawn)), {"flops": 2}).configuration == "m/single"


def test_a_modelled_cost_is_named_once() -> None:
    found = recommend(MADE, {"flops": 1e9, "latency:h200": 0.01})
    assert [f"{n.about}: {n.text}" for n in found.notes if "modelled" in n.text] == [
        "latency:h200: modelled, not measured"
    ]


# ------------------------------------------------------------------------------------------------ what to run


def ran(file: Path, root: Path, *sets: str) -> RunDirectory:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))
    return RunDirectory(root)


def test_the_experiment_of_a_recommendation_runs_its_one_cell(
    study_experiment_file: Write, tmp_path: Path
) -> None:
    ran(study_experiment_file(count=12), tmp_path / "run")
    best = tmp_path / "best.yaml"
    command = ["recommend", str(tmp_path / "run"), "--budget", "samples=2", "--out", str(best), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    experiment = schema.load(best)
    (cell,) = build.configurations(experiment)
    assert (cell.generator, cell.strategy) == (data["model"], data["strategy"]) and data["n"] in (1, 2)
    assert set(experiment.generators) == {cell.generator} and set(experiment.strategies) == {cell.strategy}
    assert set(experiment.verifiers) == {cell.verifier} - {None}
    assert data["configuration"] in best.read_text().splitlines()[0] and experiment.seed == 3
    assert not any(
        word in best.read_text() for word in ("replicas", "resources", "bundles", "pools", "replacements")
    )
    again = ran(best, tmp_path / "again")
    (measured,) = derive(again, again.final_state().lines).configurations
    assert measured.problems == 12 and measured.cell.n == cell.n


def test_a_ladder_becomes_one_number_and_what_it_stands_over_stays(
    study_experiment_file: Write, tmp_path: Path
) -> None:
    from metagen.runs.declare.recipe import recipe

    more = "strategies.over={kind: majority, over: soft-one, n: [2, 4]}"
    soft = "strategies.soft-one={kind: soft_best_of_n, verifier: judge, beta: 0.2, n: 2}"
    experiment = schema.load(study_experiment_file(), sets=[soft, more])
    path = tmp_path / "one.yaml"
    path.write_text(recipe(experiment, "small", "over", 4, ["a: comment\nof two lines"]))
    made = schema.load(path)
    (cell,) = build.configurations(made)
    assert (cell.name, cell.n) == ("small/over@4", 4)
    assert set(made.strategies) == {"over", "soft-one"} and set(made.verifiers) == {"judge"}
    single = tmp_path / "single.yaml"
    single.write_text(recipe(experiment, "large", "single", 1))
    (cell,) = build.configurations(schema.load(single))
    assert (cell.name, cell.n, schema.load(single).verifiers) == ("large/single", None, {})


def test_pools_of_engines_that_are_not_needed_are_left_out(tmp_path: Path) -> None:
    from metagen.runs.declare.recipe import recipe

    experiment = schema.load(Path(__file__).parents[3] / "examples" / "ray.yaml")
    path = tmp_path / "one.yaml"
    path.write_text(recipe(experiment, "tiny-0.5m", "majority", 4))
    made = schema.load(path)
    assert set(experiment.executor.pools) == {"reward"} and set(made.engines) == {"tiny-0.5m"}
    assert made.executor == experiment.executor.model_copy(update={"pools": {}})


def test_frozen_variants_are_found_by_the_names_of_the_study(study_experiment_file: Write) -> None:
    from metagen.runs.declare.recipe import recipe

    pairs = "[[small, single], [small.skill-0.9, majority], [large, weighted.verifier-weak]]"
    file = study_experiment_file()
    text = file.read_text()
    text = text.replace(
        "  large: {", "  small.skill-0.9: {kind: 'metagen_toy:generator', skill: 0.9}\n  large: {", 1
    )
    text = text.replace(
        "  pass: {", "  weighted.verifier-weak: {kind: weighted, verifier: weak}\n  pass: {", 1
    )
    text = text.replace("grid: {n: [1, 2, 8]}", "grid: {n: [1, 2, 8], pairs: " + pairs + "}")
    file.write_text(text)
    experiment = schema.load(file)
    assert "- small.skill-0.9\n" in recipe(experiment, "small", "majority", 2)
    assert "- weighted.verifier-weak\n" in recipe(experiment, "large", "weighted", 2)
    with pytest.raises(InputError, match=r"no cell for large/majority \(it has small/single"):
        recipe(experiment, "large", "majority", 2)


def test_an_experiment_without_the_cell_gives_advice_without_yaml(study_experiment_file: Write) -> None:
    best = replace(MADE, curves=(MADE.curve("small", "rebase"),))
    found = recommend(best, {"flops": 1e9}, experiment=schema.load(study_experiment_file()))
    assert found.yaml is None
    assert any(
        "no YAML: the experiment 'sums' has no cell for small/rebase" in note.text for note in found.notes
    )


def test_the_experiment_of_a_study_has_the_frozen_settings(study_file: Write, tmp_path: Path) -> None:
    from metagen.runs import study as run
    from metagen.runs.declare import study_schema as studies

    root = tmp_path / "study"
    result = run.run(studies.load(study_file(count=12)), root)
    for curve in (c for c in result.curves if not c.oracle):
        for n in curve.ns.tolist():
            alone = replace(result, curves=(curve,))
            found = recommend(
                alone, {"samples": n + 0.5}, experiment=schema.load(root / "test" / "experiment.yaml")
            )
            path = tmp_path / "one.yaml"
            path.write_text(found.yaml or "")
            (cell,) = build.configurations(schema.load(path))
            assert cell.generator.startswith(curve.model) and cell.strategy.startswith(curve.strategy)
            assert cell.n == (None if curve.kind == "sample" else found.n) and found.n <= n
    frozen = {f"{t.model}/{t.strategy}": t.chosen for t in result.tuned}
    assert {c.name: c.setting for c in result.curves if c.name in frozen} == frozen
    answer = CliRunner().invoke(app, ["recommend", str(root), "--budget", "samples=8", "--json"])
    assert answer.exit_code == 0 and "name: sums-recommended" in json.loads(answer.stdout)["yaml"]


def test_a_moved_model_takes_the_experiment_away_and_not_the_advice(
    study_experiment_file: Write, tmp_path: Path
) -> None:
    run = ran(study_experiment_file(), tmp_path / "run")
    run.experiment.write_text(run.experiment.read_text().replace("kind: majority", "kind: majorty"))
    out = tmp_path / "best.yaml"
    result = CliRunner().invoke(app, ["recommend", str(run.root), "--budget", "samples=8"])
    assert result.exit_code == 0 and "no YAML" in result.output
    result = CliRunner().invoke(app, ["recommend", str(run.root), "--budget", "samples=8", "--out", str(out)])
    assert result.exit_code == 2 and "cannot write" in result.output and not out.exists()


def test_a_budget_of_seconds_says_what_they_are() -> None:
    notes = recommend(made(), {"seconds": 1e9}).notes
    assert any(note.about == "seconds" and "depend on concurrency" in note.text for note in notes)
    assert not any("concurrency" in note.text for note in recommend(made(), {"flops": 1e9}).notes)
