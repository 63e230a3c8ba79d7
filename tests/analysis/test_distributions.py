"""Pictures of distributions."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.patches import Rectangle

from metagen.analysis.distributions import stage_bars, token_name
from metagen.errors import InputError


def widths(axes: Any) -> list[float]:
    return [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]


def test_each_stage_stands_before_the_one_it_came_from() -> None:
    figure = stage_bars(
        {"": [0.6, 0.3, 0.1], "warm": [0.5, 0.3, 0.2], "cut": [0.6, 0.4, 0.0]}, ["a", "\n", " "]
    )
    raw, warm, cut = figure.axes
    assert widths(raw) == [0.6, 0.3, 0.1]
    assert widths(warm) == [0.6, 0.3, 0.1, 0.5, 0.3, 0.2]
    assert widths(cut) == [0.5, 0.3, 0.2, 0.6, 0.4, 0.0]
    (crosses,) = cut.get_lines()
    assert list(crosses.get_ydata()) == [2], "what is cut off has a cross"
    assert [label.get_text() for label in raw.get_yticklabels()] == ["a", "⏎", "␣"]
    assert all(axes.get_xlim() == pytest.approx((0, 1.06 * 0.6)) for axes in figure.axes), "a bar has room"


def test_stages_may_all_be_compared_with_the_first() -> None:
    figure = stage_bars({"": [0.6, 0.4], "x": [1.0, 0.0], "y": [0.0, 1.0]}, ["a", "b"], against_first=True)
    assert all(widths(axes)[:2] == [0.6, 0.4] for axes in figure.axes[1:])


def test_stages_that_stand_apart_are_compared_with_none() -> None:
    figure = stage_bars({"one": [0.6, 0.4], "other": [0.0, 1.0]}, ["a", "b"], apart=True)
    assert [widths(axes) for axes in figure.axes] == [[0.6, 0.4], [0.0, 1.0]]
    assert not figure.legends


def test_tokens_are_named_so_that_they_can_be_seen() -> None:
    assert [token_name(t) for t in (" a", "\n", "\x00", "", "x" * 20)] == [
        "␣a", "⏎", r"\x00", "∅", "x" * 11 + "…",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "draw",
    [
        lambda: stage_bars({}, ["a"]),
        lambda: stage_bars({"": [1.0]}, ["a", "b"]),
    ],
)
def test_nothing_to_draw_is_an_error(draw: Any) -> None:
    with pytest.raises(InputError):
        draw()
