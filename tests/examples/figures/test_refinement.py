"""Trajectories of refinement: what is kept, what ended stays, and who copies."""

from __future__ import annotations

import numpy as np
import pytest

from examples.figures.refinement import PANELS, Rounds, refinement_trajectory
from metagen.analysis.figures import save
from metagen.analysis.intervals import SHARES, interval
from metagen.errors import InputError

NAN = np.nan
#: One is accepted after a copy; one ends with a verdict in place of a value; one is a draft that was accepted.
VALUES = [[0.2, 0.2, 1.0, NAN], [0.6, 0.4, 0.5, NAN], [1.0, NAN, NAN, NAN]]
COPIES = [[NAN, 1.0, 0.0, NAN], [NAN, 0.0, 0.0, 0.0], [NAN, NAN, NAN, NAN]]


def test_what_is_kept_what_is_last_and_what_copies() -> None:
    rounds = Rounds.of(VALUES, COPIES)
    np.testing.assert_array_equal(rounds.last(), [[0.2, 0.2, 1, 1], [0.6, 0.4, 0.5, 0.0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(rounds.best(), [[0.2, 0.2, 1, 1], [0.6, 0.6, 0.6, 0.6], [1, 1, 1, 1]])
    np.testing.assert_array_equal(rounds.copying(), [NAN, 0.5, 0.0, 0.0])


def test_a_draft_without_value_counts_nothing_until_something_has_one() -> None:
    rounds = Rounds.of([[NAN, 0.3]], [[NAN, 0.0]])
    np.testing.assert_array_equal(rounds.best(), [[0.0, 0.3]])


def test_the_figure_shows_means_bands_theory_and_copies(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    copies = np.zeros((40, 5))
    copies[:, 0] = NAN
    drawn = {
        name: Rounds.of(np.sort(rng.uniform(0, level, (40, 5)), axis=1), copies)
        for name, level in (("told", 1.0), ("blind", 0.5))
    }
    theory = [0.1, 0.3, 0.5, 0.7, 0.8]
    figure = refinement_trajectory(drawn, expected={"told": theory}, title="A toy", measure="similarity")
    best, last, copying = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(PANELS)
    np.testing.assert_allclose(best.lines[0].get_ydata(), drawn["told"].best().mean(axis=0))
    np.testing.assert_allclose(last.lines[1].get_ydata(), theory)
    np.testing.assert_allclose(last.lines[2].get_ydata(), drawn["blind"].last().mean(axis=0))
    np.testing.assert_array_equal(copying.lines[0].get_ydata(), [NAN, 0, 0, 0, 0])
    assert len(best.collections) == 2 and best.get_ylabel() == "similarity"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["told", "blind"]
    assert all(path.stat().st_size > 5000 for path in save(figure, f"{tmp_path}/figure"))


def test_several_chains_of_a_problem_are_resampled_together() -> None:
    values = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    rounds = Rounds.of(values, np.array([[NAN, 0.0]] * 4))
    apart = refinement_trajectory({"": rounds}).axes[0].collections[0].get_paths()[0].vertices
    alike = refinement_trajectory({"": rounds}, problems=["p", "p", "q", "q"]).axes[0].collections[0]
    # Each problem's mean is one half, and there are two problems, not four.
    bounds = interval([0.5, 0.5], support=SHARES)
    heights = np.unique(np.asarray(alike.get_paths()[0].vertices)[:, 1])
    np.testing.assert_allclose(heights, [bounds.low, bounds.high])
    assert sorted(np.asarray(apart)[:, 1])[0] < bounds.low


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        refinement_trajectory({})
    for values, copies in (([0.1], [NAN]), ([[0.1]], [[NAN, 0.0]]), (np.zeros((0, 2)), np.zeros((0, 2)))):
        with pytest.raises(InputError, match="expected both"):
            Rounds.of(values, copies)
    with pytest.raises(InputError, match="2 problems for 3 chains"):
        refinement_trajectory({"": Rounds.of(VALUES, COPIES)}, problems=["p", "q"])
