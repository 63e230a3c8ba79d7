"""Votes as bars: the heaviest first, the winner with an edge, the right ones in their colour."""

from __future__ import annotations

import pytest

from metagen.analysis.votes import MOST, RIGHT, WRONG, vote_bars
from metagen.errors import InputError


def test_answers_stand_in_one_order_and_the_winner_of_each_panel_has_an_edge() -> None:
    counts = {"majority": {"7": 3.0, "9": 5.0, "1": 1.0}, "weighted": {"7": 2.4, "9": 1.1, "1": 0.2}}
    figure = vote_bars(counts, right=["7"], title="one problem")
    left, right = figure.axes
    order = [t.get_text() for t in left.get_yticklabels()]
    assert order == ["9", "7", "1"]
    for axes, winner, values in ((left, "9", [5, 3, 1]), (right, "7", [1.1, 2.4, 0.2])):
        edges = [bar.get_linewidth() > 0 for bar in axes.patches]
        assert [answer for answer, edge in zip(order, edges, strict=True) if edge] == [winner]
        assert [bar.get_width() for bar in axes.patches] == values
        colours = [matplotlib_hex(bar.get_facecolor()) for bar in axes.patches]
        assert colours == [WRONG.lower(), RIGHT.lower(), WRONG.lower()]
        # The first answer is on top.
        assert axes.yaxis_inverted()


def matplotlib_hex(colour: object) -> str:
    from matplotlib.colors import to_hex

    return to_hex(colour)  # type: ignore[arg-type]  # whatever matplotlib gives


def test_many_answers_are_one_bar_beyond_the_first() -> None:
    counts = {"vote": {str(i): float(20 - i) for i in range(20)}}
    (axes,) = vote_bars(counts).axes
    assert len(axes.patches) == MOST + 1
    assert axes.get_yticklabels()[-1].get_text() == "12 others"
    assert axes.patches[-1].get_width() == sum(20 - i for i in range(MOST, 20))


@pytest.mark.parametrize("counts", [{}, {"vote": {}}])
def test_nothing_is_refused(counts: dict[str, dict[str, float]]) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        vote_bars(counts)
