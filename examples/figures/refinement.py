"""Refinement round by round: what is kept, what was written last, and whether revisions have become copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.analysis.intervals import SHARES, interval
from metagen.errors import InputError

Floats = NDArray[np.float64]
PANELS = ("best so far", "as written last", "revisions that copy")


@dataclass(frozen=True, slots=True)
class Rounds:
    """Chains of one configuration; both arrays (chains × rounds + 1), of which the first column is the draft.

    values: in [0, 1], of the candidate that there was after each round; NaN without one. copies: 1 where the revision
    was equal to what it mends, else 0; NaN for the draft, and where the chain had ended before.
    """

    values: Floats
    copies: Floats

    @classmethod
    def of(cls, values: ArrayLike, copies: ArrayLike) -> Rounds:
        """From arrays of any kind, such as `by_round` gives. Raises InputError for shapes that do not fit."""
        v, c = np.asarray(values, dtype=np.float64), np.asarray(copies, dtype=np.float64)
        if v.ndim != 2 or v.shape != c.shape or 0 in v.shape:
            raise InputError(
                f"values of shape {v.shape} and copies of shape {c.shape}; expected both (chains × rounds + 1), "
                "at least one chain and a draft"
            )
        return cls(v, c)

    def last(self) -> Floats:
        """The value of the last candidate after each round; one that had none counts 0. What has ended stays."""
        made = ~np.isnan(self.copies)
        made[:, 0] = True
        at = np.maximum.accumulate(np.where(made, np.arange(made.shape[1]), 0), axis=1)
        return np.take_along_axis(np.nan_to_num(self.values, nan=0.0), at, axis=1)

    def best(self) -> Floats:
        """The value of what is returned after each round: the highest so far."""
        return np.asarray(np.maximum.accumulate(self.last(), axis=1), dtype=np.float64)

    def copying(self) -> Floats:
        """The share of each round's revisions that are copies; NaN where no chain went so far, and for the draft."""
        made = ~np.isnan(self.copies)
        return np.asarray(
            np.divide(
                np.nansum(self.copies, axis=0), made.sum(axis=0),
                out=np.full(self.copies.shape[1], np.nan), where=made.any(axis=0),
            )
        )  # fmt: skip


def refinement_trajectory(
    chains: Mapping[str, Rounds],
    *,
    problems: Sequence[object] | None = None,
    expected: Mapping[str, ArrayLike] | None = None,
    title: str = "",
    measure: str = "value",
) -> Figure:
    """Mean value by round of what is kept and of what was written last, with 95% bands, and the share of copies.

    chains: name of the configuration → its rounds. problems: the problem of each chain, where several chains have
    one: then intervals are over problems. expected: name → a theory's curve for what was written last, dotted.
    measure: what the values are. Raises InputError if there is nothing to draw.
    """
    if not chains:
        raise InputError("nothing to draw: expected the rounds of at least one configuration")
    with style():
        figure, (best, last, copies) = small_multiples(3, title, rows_of=3)
        handles: list[Line2D] = []
        for i, (name, rounds) in enumerate(chains.items()):
            look = STYLES[i % len(STYLES)]
            handles += _mean(best, rounds.best(), look, problems)
            _mean(last, rounds.last(), look, problems)
            copying = rounds.copying()
            copies.plot(np.arange(len(copying)), copying, color=look[0], linestyle=look[2], linewidth=1.6)
            if expected is not None and name in expected:
                theory = np.asarray(expected[name], dtype=np.float64)
                last.plot(
                    np.arange(len(theory)), theory, color="#000000", linestyle=":", linewidth=1.1, zorder=4
                )
        for axes, panel in zip((best, last, copies), PANELS, strict=True):
            axes.set_title(panel)
            axes.set_xlabel("round")
            axes.set_ylim(0.0, 1.0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
        best.set_ylabel(measure)
        names = [name for name in chains if name]
        if names:
            figure.legend(handles, list(chains), loc="outside lower center", ncols=min(4, len(chains)))
    return figure


def _mean(
    axes: Axes, values: Floats, look: tuple[str, str, Any], problems: Sequence[object] | None
) -> list[Line2D]:
    """The mean over problems with its band; the line, for the legend."""
    rows = values if problems is None else _by_problem(values, problems)
    found = interval(rows.T, support=SHARES)
    x = np.arange(values.shape[1])
    axes.fill_between(x, found.low, found.high, color=look[0], alpha=0.13, linewidth=0, zorder=1)
    return list(axes.plot(x, found.estimate, color=look[0], linestyle=look[2], linewidth=1.6, zorder=3))


def _by_problem(values: Floats, problems: Sequence[object]) -> Floats:
    """The mean over the chains of each problem."""
    if len(problems) != len(values):
        raise InputError(f"{len(problems)} problems for {len(values)} chains; expected one for each chain")
    places: dict[object, list[int]] = {}
    for i, problem in enumerate(problems):
        places.setdefault(problem, []).append(i)
    return np.stack([values[rows].mean(axis=0) for rows in places.values()])
