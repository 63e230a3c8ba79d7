"""Figures of a study: what has a place on axes, how axes are written, and that nothing in a name is mathematics."""

import re
from collections.abc import Mapping
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from metagen.analysis import figures
from metagen.analysis.figures import Line, spread_places
from metagen.analysis.matrix import matrix_diagram
from metagen.analysis.study_figures import (
    Frame,
    Panel,
    drawable,
    is_named,
    is_share,
    lean,
    panel_figures,
    panels_figure,
    save,
)
from metagen.errors import InputError
from tests.analysis.test_figures import drawn, outside, overlaps

XS = [1e7, 1e8, 1e9, 1e10]


def line(label: str, start: float = 0.4) -> Line:
    y = [start + 0.1 * i for i in range(4)]
    return Line(label, XS, y, [v - 0.05 for v in y], [v + 0.05 for v in y])


def alone(name: str, panels: Mapping[str, Panel], frame: Frame) -> Figure:
    """One of `panel_figures`, as it is before the next is taken."""
    return next(figure for its, figure in panel_figures(panels, frame) if its == name)


PANELS = {
    name: Panel([line("small"), line("large", 0.5)], {"limit": (inf, 0.9)}) for name in ("vote", "best")
}
FIGURES = {
    "accuracy": lambda: panels_figure(PANELS, Frame("FLOPs per problem", "accuracy"), title="Accuracy"),
    "error": lambda: panels_figure(
        {"": Panel([Line("a", XS, [0.5, 0.2, 0.1, 0.02])])},
        Frame("FLOPs per problem", "error", y_log=True, steps=True, marks={1e9: "a budget"}),
    ),
    "samples": lambda: panels_figure(
        {"": Panel([Line("a", [1, 2, 4, 64], [0.1, 0.2, 0.3, 0.4])])}, Frame("n", "coverage", "log2")
    ),
    # Seventeen lines, most of which end at the same place.
    "names": lambda: alone(
        "p",
        {
            "p": Panel(
                [
                    Line(f"strategy-{i} of many letters", [1e7, 1e8], [0.2, 0.6 + 0.002 * (i % 5)])
                    for i in range(17)
                ]
            )
        },
        Frame("FLOPs per problem", "accuracy"),
    ),
    "reward": lambda: alone(
        "p",
        {"p": Panel([Line("a", [0.0, 1.5, 3.0], [-4.0, 0.5, 3.0])])},
        Frame("KL in nats", "reward", "linear"),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_neither_overlap_nor_leave_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FIGURES[name]()
    boxes = drawn(figure, monkeypatch)
    assert len(boxes) > 6
    assert overlaps(boxes) == []
    assert outside(figure, boxes) == []


def ticks(figure: Figure, axis: str) -> list[str]:
    figure.canvas.draw()
    found = getattr(figure.axes[0], f"{axis}axis")
    low, high = sorted(found.get_view_interval())
    return [t.label1.get_text() for t in found.get_major_ticks() if low <= t.get_loc() <= high]


def test_axes_are_written_for_people() -> None:
    assert ticks(FIGURES["accuracy"](), "x") == ["10M", "100M", "1G", "10G"]
    assert ticks(FIGURES["error"](), "y") == ["2%", "5%", "10%", "20%", "50%"]
    assert ticks(FIGURES["samples"](), "x") == ["1", "2", "4", "8", "16", "32", "64"]
    assert "−4" in ticks(FIGURES["reward"](), "y")
    narrow = panels_figure({"": Panel([Line("a", [1e8, 3e8], [0.1, 0.2])])}, Frame("FLOPs", "accuracy"))
    assert ticks(narrow, "x") == ["100M", "200M"]


@pytest.mark.parametrize(("least", "most"), [(0.35, 0.45), (0.3, 0.39), (0.61, 0.62), (0.011, 0.014)])
def test_errors_within_a_decade_have_more_than_one_tick(
    least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {"": Panel([Line("a", [least * 1e8, most * 1e8], [least, most])])}
    figure = panels_figure(lines, Frame("FLOPs", "error", y_log=True))
    for axis in "xy":
        seen = ticks(figure, axis)
        assert 2 <= len(seen) == len(set(seen)) <= 9, seen
    assert overlaps(drawn(figure, monkeypatch)) == []


def test_what_has_no_place_is_counted_and_left_out() -> None:
    given = {
        "a": Panel([Line("x", [0.0, 1e8, 1e9], [0.5, nan, 0.1])], {"at zero": (1e8, 0.0)}),
        "b": Panel([]),
    }
    kept, out = drawable(given, Frame("FLOPs", "error", y_log=True))
    assert list(kept) == ["a"] and out == 3
    assert kept["a"].lines[0].x == [1e9] and not kept["a"].points
    assert drawable(given, Frame("FLOPs", "error", "linear"))[1] == 1
    with pytest.raises(InputError, match="nothing to draw of error against FLOPs"):
        panels_figure({"a": Panel([Line("x", [0.0], [0.5])])}, Frame("FLOPs", "error"))


def test_long_lines_keep_few_markers_and_whole_numbers_whole_ticks() -> None:
    x = [float(i) for i in range(1, 500)]
    long = panels_figure({"": Panel([Line("a", x, [0.5] * len(x))])}, Frame("second", "share", "linear"))
    assert len(long.axes[0].lines[0].get_markevery()) <= 16
    levels = panels_figure(
        {"": Panel([Line("a", [1, 2, 3], [0.1, 0.2, 0.3])])}, Frame("level", "accuracy", "linear")
    )
    assert ticks(levels, "x") == ["1", "2", "3"]


def test_shares_are_percent_and_other_quantities_are_not() -> None:
    assert is_share("Accuracy", 0.1, 1.0)
    assert not is_share("accuracy", -0.2, 0.9) and not is_share("reward", 0.1, 0.9)


def test_bands_of_errors_end_at_the_edge() -> None:
    figure = panels_figure(
        {"": Panel([Line("a", [1.0, 2.0], [0.5, 0.1], [0.4, 0.0], [0.6, 0.2])])},
        Frame("n", "error", "log2", y_log=True),
    )
    bottom, _ = figure.axes[0].get_ylim()
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert bottom > 0 and band[:, 1].min() == pytest.approx(bottom)


def test_groups_of_a_line_are_named_in_the_page() -> None:
    svg = lean(figures.inline(alone("best", PANELS, Frame("FLOPs", "accuracy")), "p-0", "said"))
    assert set(re.findall(r'id="p-0-((?:line|band|point)-\d)"', svg)) == {
        "line-0", "line-1", "band-0", "band-1", "point-2",
    }  # fmt: skip
    ids, named = (
        set(re.findall(r' id="([^"]+)"', svg)),
        set(re.findall(r"""(?:url\(|href=")#([\w.-]+)""", svg)),
    )
    assert named <= ids
    assert len(svg) < len(figures.inline(alone("best", PANELS, Frame("FLOPs", "accuracy")), "p-0", "said"))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_panel_looks_the_same_whatever_was_drawn_on_its_axes_before(count: int) -> None:
    every = {
        f"p{i}": Panel([line(f"s{j}", 0.1 + 0.02 * ((i + j) % count)) for j in range(count)])
        for i in range(3)
    }
    every["fewer"] = Panel([line("s0", 0.2)], {"limit": (inf, 0.3)})

    def written(*names: str) -> dict[str, str]:
        found = panel_figures({name: every[name] for name in names}, Frame("FLOPs", "accuracy"))
        return {name: figures.inline(figure, name, "said") for name, figure in found}

    first, last = written("p0", "p1", "fewer", "p2"), written("p2", "fewer", "p1", "p0")
    assert first == last and len(set(first.values())) == 4


def test_nothing_in_a_name_is_mathematics() -> None:
    name = "$\\frac{1$ a_b^c"
    figure = panels_figure({name: Panel([line(name)])}, Frame(name, name, marks={1e8: name}), title=name)
    figure.canvas.draw()
    assert name in [t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text"))]


def test_equal_figures_give_equal_files(tmp_path) -> None:
    files = [save(FIGURES["accuracy"](), tmp_path / name) for name in ("a", "b")]
    assert [p.suffix for p in files[0]] == [".png", ".svg", ".pdf"]
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_matrix_may_have_blanks() -> None:
    with pytest.raises(InputError, match="finite"):
        matrix_diagram([[1.0, nan]], ["a"], ["b", "c"])
    figure = matrix_diagram([[1.0, nan]], ["a"], ["b", "c"], blanks=True)
    assert [t.get_text() for t in figure.axes[0].texts] == ["1.00"]
    for wrong in ([[nan, nan]], [[inf, 1.0]]):
        with pytest.raises(InputError, match="finite"):
            matrix_diagram(wrong, ["a"], ["b", "c"], blanks=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_names_keep_their_order_a_gap_and_their_panel(places: list[float]) -> None:
    found = spread_places(sorted(places))
    gap = min(0.058, 1 / max(1, len(places) - 1))
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(found))
    assert found[0] >= -1e-9 and found[-1] <= 1 + 1e-9


def test_names_that_do_not_meet_stay_where_their_lines_end() -> None:
    assert spread_places([0.1, 0.5, 0.9]) == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(("lines", "many"), [(1, False), (2, False), (6, False), (7, True)])
def test_several_lines_bear_their_names_and_many_need_no_legend(lines: int, many: bool) -> None:
    panel = Panel([Line(f"s{i}", [1.0, 2.0], [0.1, 0.1 * i]) for i in range(lines)])
    figure = alone("p", {"p": panel}, Frame("n", "accuracy", "linear"))
    texts = {t.get_text() for t in figure.axes[0].texts}
    assert texts == ({f"s{i}" for i in range(lines)} if lines > 1 else set())
    assert is_named(panel) == many


@pytest.mark.parametrize(("count", "bands"), [(1, 1), (2, 2), (3, 0)])
def test_few_lines_have_bands_and_several_a_bar_at_their_ends(count: int, bands: int) -> None:
    """Bands of several lines lie upon each other, and are grey."""
    panel = Panel([line(f"s{i}", 0.1 * i) for i in range(count)])
    for axes in (
        alone("p", {"p": panel}, Frame("FLOPs", "accuracy")).axes[0],
        figures.panel(panel.lines, panel.labels, (0.0, 1.0), x="flops", xs=(1e7, 1e10)).axes[0],
    ):
        assert len(axes.collections) == bands
        bars = [
            one
            for one in axes.lines
            if len(one.get_xdata()) == 2 and one.get_xdata()[0] == one.get_xdata()[1] == 1e10
        ]
        assert len(bars) == (count if count > 2 else 0)
        assert [tuple(one.get_ydata()) for one in bars] == [
            (v.low[-1], v.high[-1]) for v in panel.lines if bars
        ]


def test_panels_that_are_compared_have_equal_axes() -> None:
    short, long = Line("a", [1e7, 1e8], [0.1, 0.2]), Line("a", [1e8, 1e10], [0.5, 0.9])
    by_itself = [
        figures.panel([one], ["a"], (0.1, 0.9), x="flops", xs=(1e7, 1e10)).axes[0] for one in (short, long)
    ]
    beside = figures.curves({"p": [short], "q": [long]}, x="flops").axes
    for first, second in (by_itself, beside):
        assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("y_log", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("banded", [False, True])
def test_lines_that_end_before_others_are_drawn_in_every_frame(
    steps: bool, y_log: bool, count: int, banded: bool
) -> None:
    """A line of steps is held on to the end of the axis; its bar stands where it was measured last."""
    xs, ys = [1e7, 1e8], [0.5, 0.2]
    band = ([0.0, 0.1], [0.6, 0.3]) if banded else (None, None)
    short = [Line(f"s{i}", xs, ys, *band) for i in range(count)]
    panel = Panel([*short, Line("long", [1e7, 1e9], ys, *band)])
    axes = alone("p", {"p": panel}, Frame("FLOPs", "error", y_log=y_log, steps=steps)).axes[0]
    ends = [one.get_xdata()[-1] for one in axes.lines if str(one.get_gid()).startswith("line-")]
    assert ends == [max(axes.get_xlim()) if steps else 1e8] * count + [ends[-1]]
