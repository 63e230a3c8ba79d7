"""A matrix as a picture: tests that programs pass, or the likeness of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from metagen.analysis.figures import small_multiples, style
from metagen.errors import InputError

INK = "#111111"


def matrix_diagram(
    values: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    words: Callable[[float], str] = "{:.2f}".format,
    chosen: int | None = None,
    labels: tuple[str, str] = ("", ""),
    title: str = "",
    blanks: bool = False,
) -> Figure:
    """A cell for each value, the darker the higher, with words for it.

    values: [rows, columns]. rows, columns: names; labels: what they are, columns first. chosen: the row that has a
    frame. blanks: NaN is a cell without a value, and stays blank. Raises InputError for shapes that differ, no values,
    and values that are not finite.
    """
    cells = np.asarray(values, dtype=np.float64)
    shape = (len(rows), len(columns))
    known = np.isfinite(cells)
    if cells.shape != shape or not known.any() or not (known | (blanks & np.isnan(cells))).all():
        raise InputError(
            f"values of shape {cells.shape} for {shape[0]} rows and {shape[1]} columns; expected one finite number for "
            "each of these, and at least one"
        )
    with style():
        figure, (axes,) = small_multiples(1, title, 1)
        low, span = float(cells[known].min()), float(np.ptp(cells[known])) or 1.0
        axes.imshow(cells, cmap="Greens", vmin=low - 0.2 * span, vmax=low + 1.4 * span, aspect="auto")
        for (i, k), value in np.ndenumerate(cells):
            if known[i, k]:
                axes.text(k, i, words(value), ha="center", va="center", fontsize=8, parse_math=False)
        if chosen is not None:
            frame = Rectangle((-0.5, chosen - 0.5), shape[1], 1, fill=False, edgecolor=INK, linewidth=2.0)
            axes.add_patch(frame).set_clip_on(False)
        long = max(map(len, columns)) > 6
        axes.set_xticks(
            range(shape[1]), columns, rotation=30 if long else 0, ha="right" if long else "center"
        )
        axes.set_yticks(range(shape[0]), rows)
        axes.grid(visible=False)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
    return figure
