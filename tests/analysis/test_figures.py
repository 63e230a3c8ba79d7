import re
from itertools import combinations
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from examples.figures.adaptive import Confided, confidence_traces
from examples.figures.votes import draw_bars, vote_bars
from metagen.analysis.figures import (
    Line,
    Point,
    accuracy_by_level,
    best_under_budget,
    curves,
    frontier,
    save,
)
from metagen.analysis.matrix import matrix_diagram
from metagen.errors import InputError

KS = [1, 2, 4, 8, 16, 32, 64]


def rise(label: str, start: float, slope: float, scale: float = 1.0) -> Line:
    y = [start + slope * i for i in range(len(KS))]
    return Line(label, [scale * k for k in KS], y, [v - 0.04 for v in y], [v + 0.04 for v in y])


def panels(scale: float = 1.0) -> dict[str, list[Line]]:
    labels = ("majority voting", "weighted voting", "best-of-n", "best-of-n, weak verifier")
    return {
        name: [rise(label, start, 0.005 * i, scale) for i, label in enumerate(labels)]
        for name, start in (("0.1M", 0.2), ("0.5M", 0.45), ("2M", 0.7))
    }


POINTS = [
    Point(f"{m} · weighted voting · n = {n}", c * n, a + 0.03 * i, a + 0.03 * i - 0.02, a + 0.03 * i + 0.02)
    for m, c, a in (("0.1M", 3e6, 0.2), ("0.5M", 2e7, 0.4), ("2M", 1e8, 0.6))
    for i, n in enumerate(KS)
]


def drawn(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Bbox]]:
    """Texts with their boxes in pixels; only those that reach the page (not ticks beyond the limits)."""
    texts: list[Text] = []
    draw = Text.draw

    def record(text: Text, renderer: object) -> None:
        if text.get_visible() and text.get_text():
            texts.append(text)
        draw(text, renderer)

    figure.canvas.draw()  # lay out
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", record)
        figure.canvas.draw()
    return [(t.get_text(), t.get_window_extent()) for t in dict.fromkeys(texts)]


def overlaps(boxes: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes intersect by more than a pixel."""
    return [
        (s, t)
        for (s, a), (t, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def outside(figure: Figure, boxes: list[tuple[str, Bbox]]) -> list[str]:
    page = figure.bbox
    return [t for t, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > page.x1 + 1 or b.y1 > page.y1 + 1]


FIGURES = {
    "samples": lambda: curves(panels(), title="Accuracy against samples"),
    "one panel": lambda: curves({"": panels()["2M"]}, x="tokens"),
    "flops": lambda: curves(panels(3e6), x="flops"),
    "five panels": lambda: curves({str(i): panels()["2M"] for i in range(5)}),
    "ten lines": lambda: curves(
        {"": [rise(f"a configuration, number {i}", 0.05 * i, 0.01) for i in range(10)]}
    ),
    "levels": lambda: accuracy_by_level(panels(), title="By level"),
    "budget": lambda: best_under_budget(POINTS, title="What a budget buys"),
    "narrow budget": lambda: best_under_budget(POINTS[:2], x="tokens"),
    "votes": lambda: vote_bars(
        {"majority": {"12": 4.0, "-7/2": 3.0}, "weighted": {"12": 0.4, "-7/2": 2.1}},
        right=["-7/2"],
        title="A vote",
    ),
    "draws": lambda: draw_bars(
        {"at once": [("12", 0.93, True)], "never": [(str(i), 0.08 * i, False) for i in range(10)]},
        0.9,
        chosen={"at once": 0, "never": 9},
        title="Draws",
    ),
    "matrix": lambda: matrix_diagram(
        [[1.0, 0.5], [0.5, 1.0]],
        ["12  0.75", "-7/2  0.75"],
        ["12", "-7/2"],
        chosen=0,
        labels=("if", "answer"),
    ),
    "traces": lambda: confidence_traces(
        {"whole": [Confided([8, 9], [0.9, 0.7], True)]}, 0.8, title="Confidence"
    ),
    "budget of one": lambda: best_under_budget(POINTS[:1], x="seconds"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_neither_overlap_nor_leave_the_page(name: str, monkeypatch) -> None:
    figure = FIGURES[name]()
    boxes = drawn(figure, monkeypatch)
    assert len(boxes) > 8
    assert overlaps(boxes) == []
    assert outside(figure, boxes) == []
    assert not [text for text, _ in boxes if "$" in text], "mathematics is off where names may hold a dollar"


def test_the_check_of_overlaps_sees_one(monkeypatch) -> None:
    figure = curves(panels())
    figure.text(0.5, 0.98, "a heading", ha="center")
    figure.text(0.5, 0.98, "on a heading", ha="center")
    boxes = drawn(figure, monkeypatch)
    assert ("a heading", "on a heading") in overlaps(boxes)


def test_drawing_leaves_global_state_alone(tmp_path) -> None:
    before = dict(matplotlib.rcParams)
    save(curves(panels()), tmp_path / "x")
    assert dict(matplotlib.rcParams) == before


def test_equal_data_give_equal_files(tmp_path) -> None:
    first = [p.read_bytes() for p in save(best_under_budget(POINTS), tmp_path / "a")]
    second = [p.read_bytes() for p in save(best_under_budget(POINTS), tmp_path / "b.2")]
    assert first == second
    assert first[0].startswith(b"\x89PNG")
    assert b"<svg" in first[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "b.2.png", "b.2.svg"]


def test_places_are_rounded_and_scales_are_not(tmp_path) -> None:
    svg = save(curves(panels()), tmp_path / "x")[1].read_text()
    assert not re.search(r"[1-9]\d*\.\d{3}", svg)
    assert "scale(0.015625)" in svg and ElementTree.fromstring(svg).tag.endswith("svg")


def test_looks_are_distinct_and_the_same_in_all_panels() -> None:
    figure = curves({"a": [rise(str(i), 0.3, 0.0) for i in range(20)], "b": [rise("7", 0.3, 0.0)]})
    first, second = figure.axes
    looks = [
        (x.get_color(), x.get_marker(), x.get_linestyle()) for x in first.lines if x.get_marker() != "None"
    ]
    assert len(set(looks)) == 20
    assert (second.lines[0].get_color(), second.lines[0].get_marker()) == looks[7][:2]
    few = looks[:7]
    assert len({c for c, _, _ in few}) == len({m for _, m, _ in few}) == 7


def test_limits_hold_all_data_and_stay_within_percentages() -> None:
    for figure in (
        curves(panels()),
        accuracy_by_level(panels()),
        curves({"": [Line("", [1, 2], [0.0, 1.0])]}),
    ):
        low, high = figure.axes[0].get_ylim()
        assert 0.0 <= low < high <= 1.0
        for axes in figure.axes:
            for line in axes.lines:
                assert low <= min(line.get_ydata())
                assert max(line.get_ydata()) <= high


def test_missing_values_leave_gaps() -> None:
    figure = curves({"": [Line("x", [1, 2, 4], [0.1, float("nan"), 0.3], [np.nan] * 3, [np.nan] * 3)]})
    assert figure.axes[0].get_ylim()[1] >= 0.3
    with pytest.raises(InputError, match="all accuracies are NaN"):
        curves({"": [Line("x", [1], [float("nan")])]})


def test_frontier_keeps_what_beats_everything_cheaper() -> None:
    def point(cost: float, accuracy: float) -> Point:
        return Point(f"{cost}", cost, accuracy, accuracy, accuracy)

    points = [point(4, 0.5), point(1, 0.2), point(2, 0.6), point(2, 0.3), point(8, 0.6), point(9, 0.7)]
    assert [(p.cost, p.accuracy) for p in frontier(points)] == [(1, 0.2), (2, 0.6), (9, 0.7)]
    assert frontier([]) == []


def test_faults() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        curves({})
    with pytest.raises(InputError, match="nothing to draw"):
        accuracy_by_level({"a": []})
    with pytest.raises(InputError, match="nothing to draw"):
        best_under_budget([])
    with pytest.raises(InputError, match="positive"):
        curves({"": [Line("x", [0, 1], [0.1, 0.2])]})
    with pytest.raises(InputError, match="one length"):
        Line("x", [1, 2], [0.1])
    with pytest.raises(InputError, match="low with high"):
        Line("x", [1], [0.1], low=[0.0])
