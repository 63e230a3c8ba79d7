"""Two studies against each other: the same problems, equal cost, one family of tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.runs.curves.frontier import at_cost
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.questions.compare_studies import compare, curves
from metagen.runs.questions.found import find
from metagen.runs.work import build, runner
from tests.runs.conftest import MORE, TOY
from tests.runs.made import made

Write = Callable[..., Path]
MADE = made()


def better(result: StudyResult, name: str, by: float) -> StudyResult:
    """One curve solves a share `by` of what it failed."""
    return replace(
        result,
        curves=tuple(
            replace(c, accuracy=c.accuracy + by * (1.0 - c.accuracy)) if c.name == name else c
            for c in result.curves
        ),
    )


def test_curves_are_compared_at_the_budgets_problem_by_problem() -> None:
    other = better(MADE, "small/majority", 0.3)
    found, notes = curves(MADE, other)
    assert {one.budget for one in found} == {1e8, 1e9} == set(MADE.budgets["flops"])
    names = {one.contrast.name.partition(" at ")[0] for one in found}
    assert names == {c.name for c in MADE.curves if not c.oracle}
    for one in found:
        name = one.contrast.name.partition(" at ")[0]
        at = at_cost(MADE.curve(*name.split("/")), "flops", one.budget)
        assert (
            at is not None
            and one.contrast.a == pytest.approx(at.mean)
            and one.spends == pytest.approx(at.spends)
        )
        assert one.contrast.shown == (name == "small/majority")
        if name == "small/majority":
            assert one.contrast.b == pytest.approx(at.mean + 0.3 * (1 - at.mean))
    assert notes == [note for note in notes if "below the cheapest" in note.text]


def test_few_problems_have_no_interval_and_no_test() -> None:
    few = made(problems=6)
    found, notes = curves(few, better(few, "small/majority", 0.9))
    assert any(one.contrast.difference.estimate > 0.1 for one in found)
    for one in found:
        d = one.contrast.difference
        assert np.isnan([d.low, d.high, d.p_value, d.detectable]).all() and not one.contrast.shown
    assert any("fewer than 8 problems: no interval, no test" in note.text for note in notes)


def test_the_more_is_compared_the_more_it_takes() -> None:
    other = better(MADE, "small/majority", 0.05)
    (alone,) = (o for o in curves(MADE, other, [("small/majority", "small/majority")])[0] if o.budget == 1e8)
    among = next(
        o for o in curves(MADE, other)[0] if o.budget == 1e8 and o.contrast.name.startswith("small/majority")
    )
    assert alone.contrast.difference.p_value == among.contrast.difference.p_value
    assert alone.contrast.p_value < among.contrast.p_value


def test_problems_are_matched_by_id_and_shared_only() -> None:
    order = np.random.default_rng(0).permutation(60)[:40]
    moved = replace(
        MADE,
        problems=tuple(MADE.problems[i] for i in order),
        levels=MADE.levels[order],
        curves=tuple(
            replace(
                c, accuracy=c.accuracy[:, order], error=c.error[:, order], verification=c.verification[:, order],
                costs={name: values[:, order] for name, values in c.costs.items()},
            )
            for c in MADE.curves
        ),
    )  # fmt: skip
    found, _ = curves(MADE, moved)
    assert all(o.contrast.difference.estimate == pytest.approx(0.0, abs=1e-12) for o in found)
    assert all(o.contrast.difference.problems == 40 for o in found)
    strangers = replace(MADE, problems=tuple(f"x{i}" for i in range(60)))
    with pytest.raises(InputError, match="'made' and 'made' share no problem: the first has 'p0'"):
        curves(MADE, strangers)


def test_curves_of_other_names_are_paired_on_request() -> None:
    found, _ = curves(MADE, MADE, [("small/majority", "large/majority")])
    assert found and all(o.contrast.name.startswith("small/majority → large/majority at ") for o in found)
    large = at_cost(MADE.curve("large", "majority"), "flops", found[-1].spends)
    assert large is not None and found[-1].contrast.b == pytest.approx(large.mean)
    with pytest.raises(
        InputError, match="'made' has no curve 'large/majorty'; did you mean 'large/majority'"
    ):
        curves(MADE, MADE, [("small/majority", "large/majorty")])


def test_what_cannot_be_compared_is_said() -> None:
    dear = replace(MADE, budgets={"flops": (1e5,), "money": (1.0,)})
    found, notes = curves(dear, MADE, [("small/majority", "small/majority")])
    texts = " ".join(note.text for note in notes)
    assert "flops=1e+05 is below the cheapest point of small/majority" in texts
    assert "money is not known on both sides" in texts
    assert {one.budget for one in found} == {1e8, 1e9}


def test_a_curve_that_ends_before_the_other_begins() -> None:
    dear = replace(
        MADE.curve("large", "majority"), costs={"flops": MADE.curve("large", "majority").costs["flops"] * 1e6}
    )
    other = replace(MADE, curves=(dear,))
    _, notes = curves(MADE, other, [("small/majority", "large/majority")])
    assert [note.text for note in notes] == [
        "flops=1e+08, flops=1e+09 are below the cheapest point of large/majority"
    ]
    rich = replace(other, budgets={"flops": (1e16,)})
    _, notes = curves(rich, replace(MADE, budgets={}), [("large/majority", "small/majority")])
    assert [note.text for note in notes] == [
        "flops=1e+16 is not compared, since the other curve ends below the cheapest point of large/majority"
    ]


def test_budgets_beyond_both_curves_are_one_test() -> None:
    rich = replace(MADE, budgets={"flops": (1e12, 1e13, 1e14)})
    found, _ = curves(rich, replace(rich, budgets={}), [("small/majority", "small/majority")])
    assert [one.budget for one in found] == [1e12]
    assert found[0].spends < 1e12


def test_costs_that_are_alike_in_words_are_two_tests() -> None:
    near = replace(MADE, budgets={"flops": (1e8, 1.001e8)})
    found, _ = curves(near, near, [("small/majority", "small/majority")])
    assert [one.spends for one in found] == pytest.approx([1e8, 1.001e8])
    assert {one.contrast.name for one in found} == {"small/majority at 100M FLOPs"}
    assert {one.contrast.tests for one in found} == {2}


def test_nothing_is_compared_with_what_spends_less() -> None:
    small, large = (MADE.curve(m, "majority") for m in ("small", "large"))
    rich = replace(MADE, budgets={"flops": (1e8, 1e12)})
    found, _ = curves(rich, rich, [("small/majority", "large/majority")])
    most = float(small.cost("flops")[-1])
    assert most < float(large.cost("flops")[-1])
    assert [one.spends for one in found] == pytest.approx([1e8, most])
    at = at_cost(large, "flops", most)
    assert at is not None and found[-1].contrast.b == pytest.approx(at.mean)


def test_without_budgets_the_points_of_the_first_are_the_budgets() -> None:
    bare = replace(MADE, budgets={})
    found, _ = curves(bare, bare, [("small/majority", "small/majority")])
    assert [one.budget for one in found] == pytest.approx(
        MADE.curve("small", "majority").cost("flops").tolist()
    )


def test_a_cost_that_both_know_is_found_and_none_is_said() -> None:
    def paid(result: StudyResult, cost: str) -> StudyResult:
        kept = tuple(replace(c, costs={cost: c.costs["flops"]}) for c in result.curves)
        return replace(result, budgets={}, curves=kept)

    tokens = replace(
        MADE,
        budgets={},
        curves=tuple(replace(c, costs={**c.costs, "tokens": c.costs["flops"]}) for c in MADE.curves),
    )
    found, notes = curves(tokens, paid(MADE, "tokens"), [("small/majority", "small/majority")])
    assert {one.cost for one in found} == {"tokens"} and not notes
    found, notes = curves(paid(MADE, "money"), paid(MADE, "tokens"), [("small/majority", "small/majority")])
    assert not found and "no cost is known on both sides" in notes[-1].text


def test_a_point_that_few_problems_have_takes_no_problem_away() -> None:
    line = MADE.curve("small", "majority")
    rare = line.accuracy.copy()
    rare[-1, 5:] = np.nan
    costs = {name: np.where(np.isnan(rare), np.nan, paid) for name, paid in line.costs.items()}
    thin = replace(MADE, curves=(replace(line, accuracy=rare, costs=costs),))
    found, notes = curves(thin, thin, [("small/majority", "small/majority")])
    assert {one.contrast.difference.problems for one in found} == {60}
    assert "fewer than half of 60 problems" in notes[0].text


# ------------------------------------------------------------------------------------------------ directories


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two studies by their files alone, with a run as their `test`; the second has a model that is worse."""
    from metagen.runs.curves import collect

    place = tmp_path_factory.mktemp("studies")
    (place / "sums.yaml").write_text(MORE.format(count=12, n="[1, 2, 8]"))
    for name, sets in (("one", []), ("two", ["generators.small.skill=0.2"])):
        root = place / name
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(TOY))
            with build.open_setup(schema.load(place / "sums.yaml", sets=sets)) as setup:
                runner.run(setup, RunDirectory.at(root / "test"))
        result = collect.of_run(RunDirectory(root / "test"))
        replace(result, name=name, budgets={"samples": (2.0, 8.0)}).save(RunDirectory(root))
        (root / "study.yaml").write_text("name: sums\n")
    return place


@pytest.fixture
def studies(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Copies of both, which a test may change."""
    monkeypatch.syspath_prepend(str(TOY))
    for name in ("one", "two"):
        shutil.copytree(written / name, tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def test_studies_are_compared_by_their_tests_and_by_their_curves(studies: tuple[Path, Path]) -> None:
    found = compare(*map(find, studies))
    assert found.runs is not None and found.a.study and found.b.study
    names = {c.name for c in found.runs[0]}
    assert "small/majority@8" in names and any(
        o.contrast.name.startswith("small/majority at") for o in found.curves
    )
    result = CliRunner().invoke(app, ["compare", *map(str, studies)])
    assert result.exit_code == 0, result.output
    assert "Curves at equal cost" in result.output and "12 problems in both" in result.output
    result = CliRunner().invoke(app, ["compare", *map(str, studies), "--json"])
    data = json.loads(result.stdout)
    assert data["problems"]["both"] == 12 and len(data["curves"]) == len(found.curves)
    assert {row["cost"] for row in data["curves"]} == {"samples"}


def test_configurations_without_a_partner_are_named(studies: tuple[Path, Path]) -> None:
    assert not any(note.about == "configurations" for note in compare(*map(find, studies)).notes)
    state = studies[1] / "test" / "state.json"
    data = json.loads(state.read_text())
    for line in data["lines"]:
        line["name"] = line["name"].replace("large/", "large.skill-0.2/")
    state.write_text(json.dumps(data))
    found = compare(*map(find, studies))
    said = [note.text for note in found.notes if note.about == "configurations"]
    assert len(said) == 2 and all("have no equal name in the other: large" in text for text in said)
    assert found.runs is not None and found.curves
    pairs = [("small/majority@8", "small/majority@8")]
    assert not any(note.about == "configurations" for note in compare(*map(find, studies), pairs).notes)


def test_a_study_and_a_run(studies: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(app, ["compare", str(studies[0]), str(studies[1] / "test")])
    assert result.exit_code == 0, result.output
    assert "Curves at equal cost" in result.output
    # Two runs are what they were.
    result = CliRunner().invoke(app, ["compare", *(str(root / "test") for root in studies)])
    assert result.exit_code == 0 and "Curves" not in result.output


def test_studies_of_other_settings_are_compared_by_curves_alone(studies: tuple[Path, Path]) -> None:
    state = studies[1] / "test" / "state.json"
    data = json.loads(state.read_text())
    for line in data["lines"]:
        line["name"] = line["name"].replace("small/", "small.skill-0.2/").replace("large/", "large.x/")
    state.write_text(json.dumps(data))
    found = compare(*map(find, studies))
    assert found.runs is None and found.curves
    assert any("share no configuration" in note.text for note in found.notes)


def test_pairs_of_curves_and_of_configurations(studies: tuple[Path, Path]) -> None:
    both = [("small/majority", "large/majority"), ("small/best@8", "large/best@8")]
    found = compare(*map(find, studies), both)
    assert found.runs is not None and [c.name for c in found.runs[0]] == ["small/best@8 → large/best@8"]
    assert {o.contrast.name.partition(" at ")[0] for o in found.curves} == {"small/majority → large/majority"}
    alone = compare(*map(find, studies), [("small/best@8", "large/best@8")])
    assert alone.runs is not None and alone.curves == ()


def test_a_name_in_several_pairs_is_compared_in_each(studies: tuple[Path, Path]) -> None:
    curves = ["--pair", "small/majority=small/best", "--pair", "small/majority=large/majority"]
    cells = ["--pair", "small/majority@8=small/best@8", "--pair", "small/majority@8=large/majority@8"]
    result = CliRunner().invoke(app, ["compare", *map(str, studies), *curves, *cells, *cells, "--json"])
    data = json.loads(result.stdout)
    named = {row["name"].partition(" at ")[0] for row in data["curves"]}
    assert named == {"small/majority → small/best", "small/majority → large/majority"}
    assert [row["name"] for row in data["configurations"]] == [
        "small/majority@8 → small/best@8",
        "small/majority@8 → large/majority@8",
    ]


def test_another_problem_under_the_same_id(studies: tuple[Path, Path], study_experiment_file: Write) -> None:
    other = studies[1] / "test"
    shutil.rmtree(other)
    with build.open_setup(schema.load(study_experiment_file(count=12), sets=["task.seed=9"])) as setup:
        runner.run(setup, RunDirectory.at(other))
    with pytest.raises(InputError, match="one id, but another prompt or reference"):
        compare(*map(find, studies))
