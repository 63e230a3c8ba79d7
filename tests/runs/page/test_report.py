"""The report: what it says, that its budgets are round, and that its figures are drawn."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from rich.console import Console, RenderableType

from metagen.runs.curves.measured import Measured, Results, derive
from metagen.runs.declare import schema
from metagen.runs.directory import Cell, Failure, RunDirectory, State
from metagen.runs.page import bought, report, show
from metagen.runs.words import cost_amount
from metagen.runs.work import build, runner

COST = st.floats(1e-3, 1e21)


def text_of(page: RenderableType, width: int = 110) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(page)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def measured(name: str, n: int | None, accuracy: float, cost: float, *, oracle: bool = False) -> Measured:
    cell = Cell(f"g/{name}@{n}", "g", name, "majority", n, oracle=oracle, pooled=True)
    return Measured(
        cell, accuracy, accuracy - 0.1, accuracy + 0.05, 0.0, 0.035, 50, 10.0, cost, cost + 10, cost * 1e6, None, 0.0,
        0.0, 1.0,
    )  # fmt: skip


GRID = (
    measured("single", None, 0.30, 30),
    measured("vote", 2, 0.30, 60),
    measured("vote", 8, 0.55, 240),
    measured("best", 8, 0.50, 241),
    measured("pass", 8, 0.90, 240, oracle=True),
)


def test_the_table_has_every_figure_with_its_interval() -> None:
    text = text_of(report.accuracies(GRID))
    for words in ("30.0", "55.0 ±3.5", "45–60", "pass (oracle)", "n = 1"):
        assert words in text


def test_the_best_within_a_budget_is_never_the_oracle_and_never_over_it() -> None:
    table = report.best_table(GRID, "generated")
    assert table is not None
    text = text_of(table)
    assert "oracle" not in text
    rows = {line.split()[0]: line.split()[1] for line in text.splitlines() if "g/" in line}
    assert rows == {"50": "g/single@None", "100": "g/single@None", "200": "g/single@None", "500": "g/vote@8"}


def test_unknown_costs_have_no_table() -> None:
    assert report.best_table([replace(m, flops=None) for m in GRID], "flops") is None


@given(st.lists(COST, min_size=1, max_size=30))
def test_budgets_are_few_round_and_reach_the_dearest(costs: list[float]) -> None:
    found = bought.budgets(costs)
    assert 1 <= len(found) <= bought.BUDGETS
    assert found == sorted(set(found))
    assert found[-1] >= max(costs)
    assert all(f"{b:.0e}"[0] in "125" and float(f"{b:.0e}") == pytest.approx(b) for b in found)


@given(st.floats(1, 9e20), st.sampled_from(["generated", "flops"]))
def test_amounts_are_short(value: float, cost: str) -> None:
    assert len(cost_amount(value, cost)) <= 8


@pytest.mark.parametrize(
    ("value", "words"), [(17.4, "17"), (999.6, "1k"), (12_500, "12.5k"), (3e9, "3G"), (999_999, "1M")]
)
def test_amounts(value: float, words: str) -> None:
    assert cost_amount(value, "generated") == words


def test_failures_are_told_once_each() -> None:
    failures = tuple(Failure(f"p{i}", "g", "PromptError", "too long", True) for i in range(40))
    text = text_of(
        report.render(State("x", "complete", failures=failures), Results((), ()), RunDirectory(Path("r")))
    )
    assert "40 parts of the work failed" in text
    assert "p0 (g) and 39 more: too long" in text


def test_the_best_names_its_problems_where_others_have_more() -> None:
    few = replace(GRID[2], problems=30)
    said = text_of(
        report.render(State("x", "complete"), Results((GRID[0], few), ()), RunDirectory(Path("r")))
    )
    assert "g/vote@8 solves 55.0% [45–60] of 30 of the 50 problems" in said
    said = text_of(report.render(State("x", "complete"), Results(GRID, ()), RunDirectory(Path("r"))))
    assert "of the problems" in said


def test_texts_are_shown_as_they_are(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    """Nothing that a model or a data set says is taken for markup."""
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(schema.load(experiment_file(count=1))) as setup:
        runner.run(setup, directory)
    for name, columns in (("problems", ("prompt", "reference")), ("candidates", ("text", "answer", "key"))):
        table = pq.read_table(directory.table(name))
        for column in columns:
            marked = pa.array([f"[/][bold]{column}"] * len(table))
            table = table.set_column(table.column_names.index(column), column, marked)
        pq.write_table(table, directory.table(name))
    text = text_of(show.show(directory, "sum-0"))
    for column in ("prompt", "reference", "text", "answer", "key"):
        assert f"[/][bold]{column}" in text


def test_a_run_of_oracles_alone_has_figures_but_no_best_within_a_budget(tmp_path: Path) -> None:
    oracles = tuple(replace(m, cell=replace(m.cell, oracle=True), verifier_flops=0.0) for m in GRID)
    directory = RunDirectory.at(tmp_path / "run")
    report.draw(State("x", "complete"), Results(oracles, ()), directory)
    names = {path.stem for path in directory.figures.iterdir()}
    assert "accuracy-flops" in names and "best-flops" not in names


def test_answers_that_a_budget_ended_are_counted(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    directory = RunDirectory.at(tmp_path / "run")
    file = experiment_file()
    with build.open_setup(schema.load(file, sets=["budget.generated=60"])) as setup:
        runner.run(setup, directory)
    rows = pq.read_table(directory.table("outcomes")).to_pylist()
    ended = Counter(row["configuration"] for row in rows if row["exhausted"])
    assert 0 < ended.total() < len(rows)
    text = " ".join(text_of(report.publish(directory), width=1000).split())
    name, count = min(ended.items(), key=lambda item: (-item[1], item[0]))
    assert "the budget ended first" in text and f"{name} on {count} of 6 problems" in text
    assert f"{name} on {count} of 6 problems" in (directory.root / "report.html").read_text()
    with build.open_setup(schema.load(file)) as setup:
        runner.run(setup, RunDirectory.at(tmp_path / "free"))
    assert "best efforts" not in text_of(report.publish(RunDirectory.at(tmp_path / "free")))


@pytest.mark.usefixtures("whole_figures")
def test_published_runs_have_tables_and_figures(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(schema.load(experiment_file())) as setup:
        runner.run(setup, directory)
    text = text_of(report.publish(directory))
    assert "sums  6 problems, 96 samples, seed 3" in text
    assert "pass (oracle)" in text
    names = {"accuracy-samples", "accuracy-tokens", "accuracy-levels"}  # functions have no FLOPs
    assert {p.name for p in directory.figures.iterdir()} == {
        f"{n}{s}" for n in names for s in (".png", ".svg")
    }
    for name in names:
        assert imread(directory.figures / f"{name}.png").std() > 0.05
    svg = (directory.figures / "accuracy-samples.svg").read_text()
    assert text_of(report.publish(directory)) == text
    assert (directory.figures / "accuracy-samples.svg").read_text() == svg
    assert derive(directory, directory.state().lines).configurations[0].label == "small/single"
