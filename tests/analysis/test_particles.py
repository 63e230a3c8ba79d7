"""The picture of effective sample sizes."""

from __future__ import annotations

import pytest

from metagen.analysis.figures import save
from metagen.analysis.particles import by_step, effective_sizes
from metagen.errors import InputError


def test_means_are_over_the_filters_that_go_on() -> None:
    assert by_step([[4.0, 2.0], [2.0], [3.0, 4.0, 1.0]]) == [3.0, 3.0, 1.0]


def test_a_line_for_each_filter_and_one_for_their_mean(tmp_path: object) -> None:
    sharp, flat = [[1.0, 1.5, 1.2], [2.0, 1.0]], [[3.5, 3.0, 2.5]]
    figure = effective_sizes(
        {"n = 4": {"T = 1": sharp, "T = 4": flat}, "n = 8": {"T = 4": flat}}, title="Filters"
    )
    left, right = figure.axes[:2]
    assert [len(axes.get_lines()) for axes in (left, right)] == [5, 2]
    mean = next(line for line in left.get_lines() if line.get_label() == "T = 1")
    assert list(mean.get_ydata()) == [1.5, 1.25, 1.2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["T = 1", "T = 4"]
    colours = [axes.get_lines()[-1].get_color() for axes in (left, right)]
    assert colours[0] == colours[1] != mean.get_color(), "equal names look alike in all panels"
    png, svg = save(figure, f"{tmp_path}/sizes")
    assert png.stat().st_size > 5_000 and svg.stat().st_size > 5_000


@pytest.mark.parametrize("panels", [{}, {"n": {}}, {"n": {"T": []}}, {"n": {"T": [[]]}}])
def test_nothing_to_draw_is_an_error(panels: dict[str, dict[str, list[list[float]]]]) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        effective_sizes(panels)
