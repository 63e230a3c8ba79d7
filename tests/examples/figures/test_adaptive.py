"""Pictures of adaptive compute hold the numbers that they are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.figures.adaptive import Confided, confidence_traces, savings, spending
from metagen.analysis.figures import save
from metagen.analysis.stopping import replay, running_vote
from metagen.errors import InputError
from metagen.strategies.adaptive.consistency import Beta
from metagen.strategies.adaptive.stopping import Decided


def test_savings_are_points_beside_the_curve_of_the_plain_vote(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    classes = np.where(rng.random((40, 16)) < rng.uniform(0.3, 1.0, (40, 1)), 0, rng.integers(1, 4, (40, 16)))
    curve = running_vote(classes, classes == 0).mean(axis=0)
    rules = {
        "Beta": replay(Beta(), classes, classes == 0),
        "decided": replay(Decided(16), classes, classes == 0),
    }
    figure = savings(curve, rules, title="What stopping saves")
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata().tolist() == curve.tolist()
    for container, found in zip(axes.containers, rules.values(), strict=True):
        (point, _, (bar,)) = container
        assert point.get_xydata().tolist() == [[found.drawn.mean(), found.accuracy.mean()]]
        (segment,) = bar.get_segments()
        assert segment[0, 0] < found.drawn.mean() < segment[1, 0]
    png, svg = save(figure, tmp_path / "savings")
    assert png.stat().st_size > 5000 and "What stopping saves" not in svg.read_text()[:10]


def test_spending_is_the_mean_of_each_group() -> None:
    groups = [0, 0, 1, 2, 2, 2]
    figure = spending(
        groups, {"8": [8, 8, 8, 8, 8, 8], "allocated": [12, 10, 20, 1, 2, 3]}, ["hard", "middle", "easy"]
    )
    (axes,) = figure.axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[8, 8, 8], [11, 20, 2]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["hard\n2", "middle\n1", "easy\n3"]


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(InputError, match="0 rules"):
        savings([0.5], {})
    with pytest.raises(InputError, match=r"expected one \[problems\]"):
        spending([0, 1], {"a": [1.0]}, ["x", "y"])
    with pytest.raises(InputError, match="2 names"):
        spending([0, 2], {"a": [1.0, 1.0]}, ["x", "y"])


def test_traces_end_as_their_samples_did() -> None:
    panels = {
        "whole": [Confided([4, 5, 6], [0.9, 0.8, 0.95], True), Confided([4], [0.5], False)],
        "watched": [Confided(range(4, 6), [0.9, 0.6], None)],
    }
    whole, watched = confidence_traces(panels, 0.7, title="Confidence").axes
    lines = [list(line.get_ydata()) for line in whole.get_lines()]
    assert lines == [[0.9, 0.8, 0.95], [0.95], [0.5], [0.5], [0.7, 0.7]]
    right, wrong = whole.get_lines()[1], whole.get_lines()[3]
    assert right.get_xdata() == [6] and right.get_markerfacecolor() == right.get_color()
    assert wrong.get_marker() == "o" and wrong.get_markerfacecolor() == "white"
    assert watched.get_lines()[1].get_marker() == "x" and watched.get_lines()[1].get_xdata() == [5]


@pytest.mark.parametrize("panels", [{}, {"whole": []}, {"whole": [Confided((), (), None)]}])
def test_no_traces_are_refused(panels: dict[str, list[Confided]]) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        confidence_traces(panels, 0.5)
