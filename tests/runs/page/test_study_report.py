"""What a terminal and JSON show of a study: how many problems, notes, failures, and costs that some lack."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
from rich.console import Console

from metagen.runs.curves.study import StudyResult
from metagen.runs.directory import StudyDirectory
from metagen.runs.note import Note
from metagen.runs.page import study_report as report
from metagen.runs.questions.section import Finding, Section
from tests.runs.made import made


def shown(result: StudyResult, tmp_path: Path) -> str:
    file = StringIO()
    Console(file=file, width=160).print(report.render(result, (), StudyDirectory(tmp_path)))
    return file.getvalue()


def rows(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:2] == name.split("/"))


def test_a_curve_is_shown_where_half_of_the_problems_have_it(tmp_path: Path) -> None:
    result = made(60)
    first, *rest = result.curves
    short = first.accuracy.copy()
    short[-1, 29:] = np.nan
    short[-2, 37:] = np.nan
    ragged = replace(result, curves=(replace(first, accuracy=short), *rest))
    text = shown(ragged, tmp_path)
    line = " ".join(rows(text, first.name))
    assert f" {first.ns[-2]} " in line and line.count("(37 of 60)") == 1
    assert text.count("of 60)") == 1
    data = report.data(ragged, (), StudyDirectory(tmp_path).files)
    counts = [c["problems"] for c in data["configurations"]]
    assert counts[: len(first.ns)] == [60] * (len(first.ns) - 2) + [37, 29] and set(
        counts[len(first.ns) :]
    ) == {60}


def test_costs_are_over_the_problems_that_are_counted(tmp_path: Path) -> None:
    result = made(60)
    first, *rest = result.curves
    short, costs = first.accuracy.copy(), first.costs["flops"].copy()
    short[:, 40:] = np.nan
    costs[:, 40:] *= 100
    ragged = replace(result, curves=(replace(first, accuracy=short, costs={"flops": costs}), *rest))
    (one, *_) = report.data(ragged, (), StudyDirectory(tmp_path).files)["configurations"]
    assert one["costs"]["flops"] == first.costs["flops"][0, 0]


def test_an_unknown_cell_does_not_change_the_cost(tmp_path: Path) -> None:
    result = made(60)
    first, *rest = result.curves
    holed = first.costs["flops"].copy()
    holed[-1, 3] = np.nan
    text = shown(
        replace(result, curves=(replace(first, costs={**first.costs, "flops": holed}), *rest)), tmp_path
    )
    assert "flops" in text and "tokens" not in text
    none = replace(first, costs={**first.costs, "flops": np.full_like(holed, np.nan)})
    assert rows(shown(replace(result, curves=(none, *rest)), tmp_path), first.name)[-1] == "–"


def test_notes_and_failures_are_shown(tmp_path: Path) -> None:
    notes = tuple(Note(f"part-{i}", "is unknown") for i in range(8))
    roles = {"test": {"failures": 3, "mendable": True}, "limit": {"failures": 0, "mendable": True}}
    result = replace(made(9), notes=notes, facts={"roles": roles})
    text = shown(result, tmp_path)
    assert "part-4: is unknown" in text and "part-5" not in text and "… and 3 more in the report" in text
    assert "test: 3 failures" in text and "limit:" not in text
    assert "more in the report" not in shown(replace(result, notes=notes[:5]), tmp_path)
    assert report.data(result, (), StudyDirectory(tmp_path).files)["failures"] == {"test": 3}


def test_details_are_data(tmp_path: Path) -> None:
    found = Section("s", "S", findings=(Finding("Why?", "So.", True, details=("At 1: 2.",)),))
    (one,) = report.data(made(9), (found,), StudyDirectory(tmp_path).files)["findings"]
    assert one["details"] == ["At 1: 2."]
