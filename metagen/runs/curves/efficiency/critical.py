"""The critical path of a problem's calls: what its user waits for where nobody waits for a machine.

A call begins when all have ended that it waits for (see `experiments.calls`). The length of the longest path is the
least time that any number of machines can do it in; work divided by it is the parallelism (Brent 1974, The parallel
evaluation of general arithmetic expressions, JACM 21(2)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from metagen.errors import InputError
from metagen.runs.curves.study import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Graph:
    """What each call of one problem waits for.

    Call i waits for `parents[starts[i] : starts[i + 1]]`, and, if it `waits`, for all calls of a lesser depth. Parents
    come before their children, and are no deeper. Raises InputError for others.
    """

    starts: Ints
    parents: Ints
    depth: Ints
    waits: Bools

    def __len__(self) -> int:
        return len(self.depth)

    def __post_init__(self) -> None:
        child = np.repeat(np.arange(len(self)), np.diff(self.starts))
        if (self.parents >= child).any() or (self.parents < 0).any():
            raise InputError("a call waits for one behind it: expected parents before their children")
        if (self.depth[self.parents] > self.depth[child]).any():
            raise InputError(
                "a call waits for a deeper one: expected depths that do not fall from parent to child"
            )

    def of(self, call: int) -> Ints:
        """The parents of a call, [parents]."""
        return self.parents[self.starts[call] : self.starts[call + 1]]

    @property
    def order(self) -> Ints:
        """All calls, [calls], such that each stands behind all that it waits for."""
        return np.lexsort((np.arange(len(self)), self.depth))


@dataclass(frozen=True, slots=True)
class Path:
    """seconds: of the longest path. work: of all calls. calls: on that path."""

    seconds: float
    work: float
    calls: int

    @property
    def parallelism(self) -> float:
        """How many machines are busy on average, if there are enough; NaN if nothing takes time."""
        return self.work / self.seconds if self.seconds else np.nan


def longest(graph: Graph, seconds: ArrayLike) -> Path:
    """The longest path; NaN if the time of any call is unknown. A problem without calls takes no time.

    seconds: of each call, [calls].
    """
    each = np.asarray(seconds, dtype=np.float64)
    if not len(graph):
        return Path(0.0, 0.0, 0)
    if np.isnan(each).any():
        return Path(np.nan, np.nan, 0)
    end, before = _end_times(graph, each)
    at, calls = int(end.argmax()), 0
    last = at
    while at >= 0:
        at, calls = int(before[at]), calls + 1
    return Path(float(end[last]), float(each.sum()), calls)


def _end_times(graph: Graph, each: Floats) -> tuple[Floats, Ints]:
    """The time at which each call ends, and the call that it waited for and that ended last: −1 for none."""
    end, before = np.zeros(len(graph)), np.full(len(graph), -1, dtype=np.int64)
    # The last to end of all calls so far, and of those of a lesser depth than the present one.
    latest = lesser = -1
    depth = None
    for i in graph.order.tolist():
        if graph.depth[i] != depth:
            depth, lesser = graph.depth[i], latest
        above = graph.of(i).tolist()
        if graph.waits[i] and lesser >= 0:
            above.append(lesser)
        if above:
            before[i] = max(above, key=lambda j: end[j])
            end[i] = end[before[i]]
        end[i] += each[i]
        if latest < 0 or end[i] > end[latest]:
            latest = i
    return end, before
