"""The critical path: no problem is done sooner, and nothing that could run beside it makes it longer."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.runs.curves.efficiency.critical import Graph, longest


def graph(parents: list[list[int]], depth: list[int] | None = None, waits: bool = False) -> Graph:
    starts = np.cumsum([0, *map(len, parents)])
    flat = np.array([j for some in parents for j in some], dtype=np.int64)
    depths = np.array(depth or [0] * len(parents))
    return Graph(starts, flat, depths, np.full(len(parents), waits))


def test_a_chain_takes_the_sum_and_what_is_side_by_side_the_longest() -> None:
    chain = longest(graph([[], [0], [1]]), [1.0, 2.0, 3.0])
    assert (chain.seconds, chain.work, chain.calls, chain.parallelism) == (6.0, 6.0, 3, 1.0)
    beside = longest(graph([[], [], []]), [1.0, 2.0, 3.0])
    assert (beside.seconds, beside.work, beside.calls, beside.parallelism) == (3.0, 6.0, 1, 2.0)


def test_a_level_waits_for_the_slowest_of_the_level_before() -> None:
    found = graph([[], [], [0], [1]], depth=[1, 1, 2, 2])
    assert longest(found, [1.0, 5.0, 4.0, 1.0]).seconds == 6.0
    level = graph([[], [], [0], [1]], depth=[1, 1, 2, 2], waits=True)
    assert longest(level, [1.0, 5.0, 4.0, 1.0]).seconds == 9.0


def test_a_depth_that_came_late_is_waited_for() -> None:
    late = graph([[], [], []], depth=[1, 2, 1], waits=True)
    assert longest(late, [1.0, 1.0, 7.0]).seconds == 8.0


def test_no_calls_take_no_time_and_unknown_time_stays_unknown() -> None:
    assert longest(graph([]), []).seconds == 0.0
    unknown = longest(graph([[], [0]]), [1.0, np.nan])
    assert np.isnan(unknown.seconds)
    assert np.isnan(unknown.parallelism)


def test_graphs_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="parents before their children"):
        graph([[1], []])
    with pytest.raises(InputError, match="waits for a deeper one"):
        graph([[], [0]], depth=[2, 1])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[float]]:
    count = draw(st.integers(1, 9))
    parents = [
        draw(st.lists(st.integers(0, i - 1), unique=True, max_size=3)) if i else [] for i in range(count)
    ]
    depth: list[int] = []
    for above in parents:
        depth.append(draw(st.integers(0, 1)) + max((depth[j] for j in above), default=0))
    return parents, depth, draw(st.lists(st.floats(0, 9), min_size=count, max_size=count))


@given(graphs(), st.booleans())
def test_it_is_the_longest_of_all_paths(
    made: tuple[list[list[int]], list[int], list[float]], waits: bool
) -> None:
    parents, depth, seconds = made
    above = [
        set(some) | {j for j in range(len(parents)) if waits and depth[j] < depth[i]}
        for i, some in enumerate(parents)
    ]

    def until(i: int) -> float:
        return seconds[i] + max((until(j) for j in above[i]), default=0.0)

    found = longest(graph(parents, depth, waits), seconds)
    assert found.seconds == pytest.approx(max(map(until, range(len(parents)))))
    assert found.seconds <= found.work + 1e-9
    assert 1 <= found.calls <= len(parents)


def test_a_longer_chain_waits_longer() -> None:
    times = [
        longest(graph([[i - 1] if i else [] for i in range(n)]), np.ones(n)).seconds for n in range(1, 6)
    ]
    assert all(a < b for a, b in pairwise(times))
