"""Pictures of texts: surprise, modes, strips and masks of tokens; and measures of texts that degenerate."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.patches import FancyBboxPatch

from examples.figures.degeneration import Written, distinct, quality_lines, repetition
from examples.figures.surprise import mode_bars, surprise_bars, surprise_lines
from examples.figures.tokens import LETTERS, mask_bars, token_strips
from metagen.errors import InputError


def test_surprise_has_a_bar_or_a_line_for_each_token_and_says_the_mean() -> None:
    figure = surprise_bars(["a", "b"], [1.0, 3.0], [0.5, 0.6])
    assert [p.get_height() for p in figure.axes[0].patches] == [1.0, 3.0]
    assert list(figure.axes[0].get_lines()[0].get_ydata()) == [0.5, 0.6]
    cut = surprise_lines({"mirostat": [1.0, 3.0]}, cuts={"mirostat": [4.0, 3.5]})
    assert [list(line.get_ydata()) for line in cut.axes[0].get_lines()][::2] == [[1.0, 3.0], [4.0, 3.5]]
    lines = surprise_lines({"greedy": [1.0, 3.0], "sampled": [4.0]})
    assert [axes.get_title(loc="left") for axes in lines.axes] == [
        "greedy: 2.00 bits a token", "sampled: 4.00 bits a token",
    ]  # fmt: skip


def test_the_bar_of_the_mode_is_hatched() -> None:
    figure = mode_bars({"flips": {"0": 0.2, "1": 0.8}}, {"flips": "0"})
    assert [patch.get_hatch() for patch in figure.axes[0].patches] == ["////", ""]


def test_a_strip_has_a_box_for_each_token_and_goes_on_in_the_next_line() -> None:
    line = [("ab", "kept"), ("c", "lost")] * LETTERS
    figure = token_strips({"one": line, "two": line[:2]}, {"kept": "is kept", "lost": "is lost"})
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == 2 * LETTERS + 2
    assert len({box.get_y() for box in boxes}) in (1 + 5, 1 + 6), (
        "five letters a pair, and no token is torn apart"
    )
    assert all(box.get_x() + box.get_width() <= LETTERS for box in boxes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["is kept", "is lost"]


def test_a_mask_has_a_bar_for_each_place() -> None:
    figure = mask_bars(["{", "1"], [1, 10], 104)
    assert [patch.get_height() for patch in figure.axes[0].patches] == [1, 10]
    assert [bool(patch.get_hatch()) for patch in figure.axes[0].patches] == [True, False]


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
        lambda: surprise_bars(["a"], [1.0, 2.0], [1.0]),
        lambda: surprise_bars(["a"], [float("inf")], [1.0]),
        lambda: surprise_lines({"a": []}),
        lambda: mode_bars({}, {}),
        lambda: token_strips({"a": []}, {"x": ""}),
        lambda: token_strips({"a": [("t", "y")]}, {"x": ""}),
        lambda: mask_bars(["a"], [0], 3),
        lambda: quality_lines({"a": {"b": []}}),
    ],
)
def test_nothing_to_draw_is_an_error(draw: Any) -> None:
    with pytest.raises(InputError):
        draw()
