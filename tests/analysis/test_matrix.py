"""A matrix as a picture: each value with its words, the higher the darker, the chosen row in a frame."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from metagen.analysis.matrix import matrix_diagram
from metagen.errors import InputError


def test_every_value_has_its_words_in_its_place_and_the_chosen_row_a_frame() -> None:
    values = [[1.0, 0.25, 0.5], [0.0, 1.0, 0.75]]
    figure = matrix_diagram(values, ["a $x$", "b"], list("pqr"), chosen=1, labels=("tests", "programs"))
    (axes,) = figure.axes
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (k, i): f"{value:.2f}" for (i, k), value in np.ndenumerate(np.array(values))
    }
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert (frame.get_xy(), frame.get_width(), frame.get_height()) == ((-0.5, 0.5), 3, 1)
    assert not frame.get_fill(), "the row can be read"
    (image,) = axes.get_images()
    shades = image.to_rgba(np.array(values))[..., :3].sum(axis=-1)
    assert (np.argsort(-shades, axis=None) == np.argsort(values, axis=None)).all(), "the higher, the darker"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tests", "programs")


def test_words_may_say_what_a_value_means() -> None:
    figure = matrix_diagram([[True, False]], ["one"], ["s", "t"], words=lambda ok: "pass" if ok else "–")
    assert [text.get_text() for text in figure.axes[0].texts] == ["pass", "–"]


@pytest.mark.parametrize("values", [[[1.0]], [[1.0, np.nan]], [[1.0, 2.0], [0.0, 1.0]], []])
def test_what_does_not_fit_its_names_is_refused(values: list[list[float]]) -> None:
    with pytest.raises(InputError, match="1 rows and 2 columns"):
        matrix_diagram(values, ["one"], ["s", "t"])
