"""The first figure of a report: a line for each group with its name, one band, and labels that hide nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from metagen.analysis.budgets import MOST, budgets
from metagen.analysis.frontier import Point, frontier
from metagen.errors import InputError
from tests.analysis.test_figures import drawn, outside, overlaps


def group(start: float, cost: float, count: int = 6, gain: float = 0.04) -> list[Point]:
    """Accuracies that rise with the cost, each twice: the second is worse."""
    found = []
    for i in range(count):
        y = start + gain * i
        found.append(Point(f"weighted@{2**i}", cost * 2**i, y, y - 0.08, y + 0.08))
        found.append(Point(f"majority@{2**i}", 1.1 * cost * 2**i, y - 0.03, y - 0.1, y + 0.05))
    return found


MODELS = {"tiny-0.1m": group(0.2, 2e7), "tiny-0.5m": group(0.4, 1e8), "tiny-2m": group(0.7, 3.5e8)}
FIGURES: dict[str, Callable[[], Figure]] = {
    "models": lambda: budgets(MODELS, x="flops"),
    "narrow": lambda: budgets(MODELS, x="flops", narrow=True),
    "one": lambda: budgets({"majority": group(0.3, 50)}, x="tokens"),
    "crowded": lambda: budgets({f"m{i}": group(0.3 + 0.001 * i, 1e8, 9, 0.004) for i in range(9)}, x="flops"),
    "point": lambda: budgets({"a": [Point("a", 1e7, 0.5, float("nan"), float("nan"))]}, x="flops"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_neither_overlap_nor_leave_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FIGURES[name]()
    boxes = drawn(figure, monkeypatch)
    assert overlaps(boxes) == []
    assert outside(figure, boxes) == []


def test_each_group_has_a_line_with_its_name_and_the_highest_a_band() -> None:
    (axes,) = budgets(MODELS, x="flops").axes
    texts = {text.get_text() for text in axes.texts}
    assert set(MODELS) <= texts
    (band,) = axes.collections
    bounds = {round(float(y), 9) for y in band.get_paths()[0].vertices[:, 1]}
    for point in frontier(MODELS["tiny-2m"]):
        assert {round(point.low, 9), round(point.high, 9)} <= bounds


def test_dots_are_the_best_of_all_for_their_cost() -> None:
    (axes,) = budgets(MODELS, x="flops").axes
    dots = {
        (float(one.get_xdata()[0]), float(one.get_ydata()[0]))
        for one in axes.lines
        if one.get_marker() == "o"
    }
    best = frontier([point for points in MODELS.values() for point in points])
    assert dots == {(point.cost, point.accuracy) for point in best}
    labels = {text.get_text() for text in axes.texts} - set(MODELS)
    assert labels <= {point.label for point in best} and len(labels) >= 3


def test_a_group_alone_needs_no_name() -> None:
    (axes,) = budgets({"majority": group(0.3, 50)}, x="tokens").axes
    assert "majority" not in {text.get_text() for text in axes.texts}


def test_of_many_groups_those_that_reach_most_have_names() -> None:
    (axes,) = budgets({f"m{i}": group(0.3 + 0.03 * i, 1e8) for i in range(9)}, x="flops").axes
    names = {text.get_text() for text in axes.texts if text.get_text().startswith("m")}
    assert {f"m{i}" for i in range(9 - MOST, 9)} <= names and "m0" not in names


def test_nothing_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        budgets({}, x="flops")
    with pytest.raises(InputError, match="positive"):
        budgets({"a": [Point("a", 0.0, 0.5, 0.4, 0.6)]}, x="flops")
