"""Votes as bars: the heaviest first, the winner with an edge, the right ones in their colour; draws in their order."""

from __future__ import annotations

import pytest

from examples.figures.votes import HATCH, MOST, RIGHT, WRONG, draw_bars, vote_bars
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
        assert [bar.get_hatch() or "" for bar in axes.patches] == ["", HATCH, ""]
        # The first answer is on top.
        assert axes.yaxis_inverted()


def test_who_was_chosen_need_not_be_the_heaviest_and_bounds_may_be_negative() -> None:
    counts = {"score": {"7": 0.9, "9": 0.4}, "bound": {"7": -0.3, "9": 0.2}}
    figure = vote_bars(counts, chosen={"score": "9"})
    for axes, edges in zip(figure.axes, ([False, True], [False, True]), strict=True):
        assert [bar.get_linewidth() > 0 for bar in axes.patches] == edges
    assert [axes.get_xlim()[0] for axes in figure.axes] == [0.0, -0.3]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["chosen"]


def test_draws_keep_their_order_and_say_what_was_returned() -> None:
    panels = {"later": [("$3$", 0.2, False), ("7", 0.95, True)], "never": [("4", 0.5, False)]}
    figure = draw_bars(panels, 0.9, chosen={"later": 1, "never": 0}, title="until 0.9")
    later, never = figure.axes
    assert [bar.get_width() for bar in later.patches] == [0.2, 0.95]
    assert [bar.get_linewidth() > 0 for bar in later.patches] == [False, True]
    assert [matplotlib_hex(bar.get_facecolor()) for bar in later.patches] == [WRONG.lower(), RIGHT.lower()]
    assert [text.get_text() for text in later.texts] == ["$3$", "7"]
    assert [text.get_text() for text in later.get_yticklabels()] == ["1", "2"]
    for axes in (later, never):
        (line,) = axes.get_lines()
        assert list(line.get_xdata()) == [0.9, 0.9] and axes.yaxis_inverted()


@pytest.mark.parametrize("panels", [{}, {"at once": []}])
def test_no_draws_are_refused(panels: dict[str, list[tuple[str, float, bool]]]) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw_bars(panels, 0.5, chosen={})


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
