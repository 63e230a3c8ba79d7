"""The logical prefix cache against the obvious one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.prefixes import Prefixes

ids = st.lists(st.sampled_from([0, 1, 2, 255, 256, 65536, 2**32 - 1]), max_size=8)


@settings(max_examples=40)
@given(st.lists(ids, max_size=15), ids)
def test_the_known_part_is_the_longest_prefix_shared_with_anything_added(
    added: list[list[int]], asked: list[int]
) -> None:
    cache, seen = Prefixes(), [[]]

    def longest(sequence: list[int]) -> int:
        return max(k for s in seen for k in range(len(sequence) + 1) if s[:k] == sequence[:k] and k <= len(s))

    for sequence in added:
        assert cache.count_known(sequence) == longest(sequence)
        assert cache.add(sequence) == longest(sequence)
        seen.append(sequence)
        assert cache.count_known(sequence) == len(sequence)
    assert cache.count_known(asked) == longest(asked)


@settings(max_examples=40)
@given(st.lists(ids, max_size=15))
def test_what_is_paid_for_is_the_size_of_the_tree_in_any_order(added: list[list[int]]) -> None:
    nodes = {tuple(s[:k]) for s in added for k in range(1, len(s) + 1)}
    for order in (added, added[::-1], sorted(added)):
        cache = Prefixes()
        assert sum(len(s) - cache.add(s) for s in order) == len(nodes)


def test_looking_pays_for_nothing() -> None:
    cache = Prefixes()
    assert cache.count_known([1, 2]) == cache.count_known([1, 2]) == 0
    cache.add(iter([1, 2, 3]))
    assert cache.count_known(iter([1, 2, 9])) == 2
    assert cache.count_known([]) == 0


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2), max_size=5)), max_size=12),
    st.lists(st.integers(0, 2)),
)
def test_what_is_noted_counts_as_added(steps: list[tuple[bool, list[int]]], asked: list[int]) -> None:
    """Whenever it is asked about, and in whatever order it came."""
    eager, lazy = Prefixes(), Prefixes()
    for later, ids in steps:
        first = eager.add(ids)
        if later:
            lazy.note(ids)
        else:
            assert lazy.add(ids) == first
    assert lazy.count_known(asked) == eager.count_known(asked)
