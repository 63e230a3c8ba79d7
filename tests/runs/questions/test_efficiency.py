"""What the report says of efficiency, from a run of embedded models to its section."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metagen.cost import Hardware
from metagen.errors import InputError
from metagen.runs.curves import curve_costs as costs
from metagen.runs.curves.curve_costs import Accelerator
from metagen.runs.curves.efficiency.measure import measure
from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.directory import RunDirectory
from metagen.runs.questions.efficiency import order, section, size, time
from metagen.runs.questions.section import Plot
from tests.runs.made import made

NAMES = ["mid/weighted@4", "mid/judged@2", "mid/rebase@4", "mid/adaptive@4", "mid/mcts@3"]
CPU = {"cpu": Accelerator("cpu", Hardware.find("laptop-cpu"), 8)}


@pytest.fixture(scope="session")
def measured(small: RunDirectory) -> dict[str, Any]:
    found = measure(small, NAMES, CPU, costs.shapes(small), labels={NAMES[0]: "0.1M/weighted@4"})
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read


def with_facts(facts: object) -> StudyResult:
    result = made(12, 4)
    return replace(result, facts={**result.facts, "efficiency": facts})


def test_loads_obey_the_laws_of_work_and_depth(measured: dict[str, Any]) -> None:
    assert [one["configuration"] for one in measured["loads"]] == ["0.1M/weighted@4", *NAMES[1:]]
    for one in measured["loads"]:
        assert one["problems"] == 4
        assert 0 < one["waiting"] <= one["work"]
        assert 0 < one["held"] <= one["held_peak"]
        assert 0 < one["running"] <= one["running_peak"] <= 2 * one["slots"]  # two machines
        assert 0 < one["shareable"] < 1
        assert one["steps"] >= 1
    how = {one["configuration"]: one["how"] for one in measured["loads"]}
    assert set(how.values()) == {"known"}


def test_courses_begin_with_the_first_call_and_end_with_the_last(
    measured: dict[str, Any],
) -> None:
    for course in measured["courses"]:
        seconds, held, running = (np.array(course[of]) for of in ("seconds", "held", "running"))
        assert seconds[0] == 0
        assert (np.diff(seconds) > 0).all()
        assert held[-1] == running[-1] == 0
        assert running[0] >= 1
        assert (held[:-1] > 0).all()


def test_what_was_spent_is_told_by_who_spent_it(small: RunDirectory, measured: dict[str, Any]) -> None:
    spent = {(one["name"], one["what"]): one for one in measured["spent"]}
    assert {("mid", "generation"), ("last", "verification"), ("critic", "generation")} <= spent.keys()
    assert all(one["calls"] for one in spent.values())


def test_few_problems_are_spread_over_the_task(small: RunDirectory) -> None:
    found = measure(small, ["mid/weighted@1"], CPU, costs.shapes(small), problems=2)
    assert found["loads"][0]["problems"] == 2
    with pytest.raises(InputError, match="has no 'mid/nothing'"):
        measure(small, ["mid/nothing"], CPU, {})


def test_unknown_shapes_are_named_and_not_modelled(small: RunDirectory) -> None:
    found = measure(small, ["mid/weighted@4"], CPU, {})
    assert (found["loads"], found["unknown"]) == ([], ["mid/weighted@4"])
    said = section(with_facts(found))
    assert any(note.about == "mid/weighted@4" and "unknown" in note.text for note in said.notes)


def test_the_section_has_a_row_for_each_load(measured: dict[str, Any]) -> None:
    found = section(with_facts(measured))
    assert found.name == "efficiency"
    tables = {table.name: table for table in found.tables}
    assert set(tables) == {"waiting", "memory", "accelerators", "spent"}
    for table in found.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.numeric == set(range(2, len(table.columns))), "all but names"
    assert [row[0] for row in tables["waiting"].rows] == ["0.1M/weighted@4", *NAMES[1:]]
    waits = {row[0]: row[3] for row in tables["waiting"].rows}
    assert not any(said.startswith(("at least", "about")) for said in waits.values())
    for plot in found.pictures:
        assert isinstance(plot, Plot)
        assert {line.label for line in plot.panels["cpu"]} == {"0.1M/weighted@4", *NAMES[1:]}


def test_an_empty_study_says_what_to_give() -> None:
    result = made(12, 4)
    found = section(replace(result, curves=()))
    assert (found.findings, found.tables, found.pictures) == ((), (), ())
    assert "give study.accelerators" in found.notes[0].text


def test_the_order_of_costs_is_compared_over_all_pairs() -> None:
    result = made(12, 4)
    found = order(result, "h200")
    assert found.shown
    # Made: FLOPs grow with n, and the waiting does not; the large model is waited for ten times longer.
    points = [
        (flops, wait)
        for curve in result.curves
        if not curve.oracle
        for flops, wait in zip(curve.cost("flops"), curve.cost("latency:h200"), strict=True)
    ]
    different = [
        (a, b) for i, a in enumerate(points) for b in points[:i] if max(a[0], b[0]) > 1.05 * min(a[0], b[0])
    ]
    same = np.mean([np.sign(a[0] - b[0]) == np.sign(a[1] - b[1]) for a, b in different])
    assert found.estimate == pytest.approx(same)
    assert f"{len(different):,} pairs" in found.sentence
    units = [replace(c, costs={name: paid * 1e-12 for name, paid in c.costs.items()}) for c in result.curves]
    assert order(replace(result, curves=tuple(units)), "h200") == found, "whatever they are counted in"
    assert not order(replace(result, curves=result.curves[:0]), "h200").shown


def test_a_problem_that_failed_takes_no_configuration_from_the_order_of_costs() -> None:
    result = made(12, 4)

    def failed(curve: Curve) -> Curve:
        rows = {name: values.copy() for name, values in {"accuracy": curve.accuracy, **curve.costs}.items()}
        for values in rows.values():
            values[:, 0] = np.nan
        return replace(curve, accuracy=rows.pop("accuracy"), costs=rows)

    whole, without = order(result, "h200"), replace(result, curves=tuple(map(failed, result.curves)))
    assert order(without, "h200") == whole, "all problems cost the same here"
    assert without.curves[0].cost("flops") == pytest.approx(result.curves[0].cost("flops"))
    unknown = replace(without.curves[0], costs={"flops": np.full_like(without.curves[0].accuracy, np.nan)})
    assert np.isnan(unknown.cost("flops")).all()


def test_shares_of_flops_need_those_of_all() -> None:
    part = {
        "what": "generation",
        "calls": 1,
        "generated": 1,
        "prefilled": 1,
        "cached": 0,
        "wasted": 0,
        "partly": False,
    }
    spent = [{**part, "name": "known", "flops": 3e9}, {**part, "name": "other", "flops": 1e9}]
    for flops, shares in ((1e9, ["75%", "25%"]), (None, ["–", "–"])):
        spent[1]["flops"] = flops
        (table,) = section(with_facts({"spent": spent})).tables
        assert [row[table.columns.index("share")] for row in table.rows] == shares


@pytest.mark.parametrize(
    ("said", "words"),
    [(time(2.5), "2.5 s"), (time(0.0123), "12.3 ms"), (time(4e-6), "4 µs"), (time(2e-9), "2 ns"), (time(0.0), "0 ns"),
     (time(np.nan), "unknown"), (size(12), "12 B"), (size(3.2e6), "3.2 MB"), (size(np.inf), "unknown")],
)  # fmt: skip
def test_amounts_are_said_in_the_unit_that_fits(said: str, words: str) -> None:
    assert said == words


def test_a_picture_shows_the_longest_courses(measured: dict[str, Any]) -> None:
    course = measured["courses"][0]
    many = [
        {**course, "configuration": f"made@{i}", "seconds": [s * (1 + i) for s in course["seconds"]]}
        for i in range(9)
    ]
    for plot in section(with_facts({**measured, "courses": many})).pictures:
        assert isinstance(plot, Plot)
        assert [line.label for line in plot.panels["cpu"]] == [f"made@{i}" for i in range(3, 9)]
        assert "6 slowest configurations" in plot.caption
