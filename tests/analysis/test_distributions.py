"""Pictures of distributions, and measures of texts that degenerate."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.patches import Rectangle

from metagen.analysis.degeneration import Written, distinct, quality_lines, repetition
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


def test_repetition_and_diversity_are_shares_of_ngrams() -> None:
    words = ["a", "b", "a", "b", "a", "b"]
    assert repetition(words, 2) == pytest.approx(1 - 2 / 5)
    assert repetition(words, 9) == 0.0
    assert repetition(["a", "b", "c", "d"], 1) == 0.0
    assert distinct([words, ["a", "c"]], 2) == pytest.approx(3 / 6)
    with pytest.raises(InputError, match="all of the 1 texts are shorter"):
        distinct([["a"]], 2)
    with pytest.raises(InputError, match="n=0"):
        repetition(words, 0)


def test_settings_stand_where_they_were_measured() -> None:
    points = {"top-p": [Written("0.5", 1.0, 0.2), Written("0.7", 1.2, 0.5), Written("0.9", 1.5, 0.8)]}
    (axes,) = quality_lines({"distinct": points}, reference=Written("a person", 2.0, 0.9)).axes
    line, star = axes.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1.0, 1.2, 1.5], [0.2, 0.5, 0.8])
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([2.0], [0.9])
    assert [text.get_text() for text in axes.texts] == ["0.5", "0.9"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: stage_bars({}, ["a"]),
        lambda: stage_bars({"": [1.0]}, ["a", "b"]),
        lambda: quality_lines({"a": {"b": []}}),
    ],
)
def test_nothing_to_draw_is_an_error(draw: Any) -> None:
    with pytest.raises(InputError):
        draw()
