"""Particle filters as a picture: how many particles there really are, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from metagen.analysis.figures import STYLES, small_multiples, style
from metagen.errors import InputError


def effective_sizes(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], *, title: str = ""
) -> Figure:
    """Effective sample size by step: a thin line for each filter, a thick one for the mean of those that go on.

    panels: title of the panel, such as a number of particles → name of a configuration → the effective sizes of each of
    its filters, step by step (`Level.effective`). Raises InputError if there is nothing to draw.
    """
    if not panels or not all(
        runs and all(run for run in runs) for p in panels.values() for runs in (p or {"": ()}).values()
    ):
        raise InputError("nothing to draw: expected the effective sizes of at least one filter in each panel")
    with style():
        figure, grid = small_multiples(len(panels), title, rows_of=3)
        names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
        for axes, (heading, panel) in zip(grid, panels.items(), strict=True):
            axes.set_title(heading)
            for name, runs in panel.items():
                colour, _, dash = STYLES[names.index(name) % len(STYLES)]
                for run in runs:
                    axes.plot(range(1, len(run) + 1), run, color=colour, linewidth=0.7, alpha=0.25, zorder=2)
                means = by_step(runs)
                axes.plot(
                    range(1, len(means) + 1),
                    means,
                    color=colour,
                    linestyle=dash,
                    linewidth=2.0,
                    label=name,
                    zorder=3,
                )
            axes.set_ylim(bottom=0.0)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        grid[0].set_ylabel("effective particles")
        if any(names):
            handles = {line.get_label(): line for axes in grid for line in axes.get_lines()}
            figure.legend(
                [handles[name] for name in names], names, loc="outside lower center", ncols=min(4, len(names))
            )
    return figure


def by_step(runs: Sequence[Sequence[float]]) -> list[float]:
    """The mean at each step, over the runs that have as many steps."""
    longest = max(len(run) for run in runs)
    return [float(np.mean([run[t] for run in runs if len(run) > t])) for t in range(longest)]
