"""Difficulty comes from other samples than those that are measured, and tells which strategy is best."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.runs.curves.recorded import HALVES
from metagen.runs.questions import difficulty
from tests.runs.made import made

RESULT = made(80, 16)
LIMITS = [v for v in RESULT.votes if v.role == "limit"]


def test_test_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"a pool of small with role 'test': expected independent pools"):
        difficulty.groups([*LIMITS, RESULT.votes[0]])
    with pytest.raises(InputError, match="from no pool"):
        difficulty.groups([])


def test_groups_are_ordered_from_hard_to_easy_and_of_about_equal_size() -> None:
    assert len(difficulty.groups(LIMITS[:1]).of) == len(RESULT.problems), "one pool is enough"
    found = difficulty.groups(LIMITS)
    sizes = np.bincount(found.of)
    assert len(found.names) == len(sizes) == 5 and sizes.min() >= 14
    right = np.mean([v.correct.mean(axis=1) for v in LIMITS], axis=0)
    ends = [(right[found.of == g].min(), right[found.of == g].max()) for g in range(5)]
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    assert found.names[0].startswith(f"{ends[0][0]:.0%} to ")


def test_what_is_measured_has_no_part_in_the_groups() -> None:
    """Groups stay as they are, whatever the test samples say."""
    other = made(80, 16, seed=0)
    flipped = tuple(replace(v, correct=~v.correct) if v.role == "test" else v for v in other.votes)
    found = difficulty.groups([v for v in replace(other, votes=flipped).votes if v.role == "limit"])
    np.testing.assert_array_equal(found.of, difficulty.groups(LIMITS).of)


def test_equal_problems_are_one_group_and_those_without_samples_none() -> None:
    same = [replace(v, correct=np.ones_like(v.correct)) for v in LIMITS]
    assert difficulty.groups(same).names == ("100% right",)
    some = [replace(v, sizes=np.where(np.arange(80) < 5, 0, v.sizes)) for v in LIMITS]
    found = difficulty.groups(some)
    assert (found.of[:5] == -1).all() and (found.of[5:] >= 0).all()


def test_the_best_of_a_group_is_rated_on_problems_that_did_not_pick_it() -> None:
    made_groups = difficulty.groups(LIMITS, 3)
    found = difficulty.best_by_group(RESULT, made_groups, "flops", [1e8, 1e9])
    assert len(found) == 6
    for one in found:
        assert not one.name.endswith("pass") and one.problems >= 20
        assert one.low <= one.accuracy <= one.high and 0.0 <= one.share <= 1.0
    # Over many choices among near equals the picked one flatters itself.
    assert np.mean([one.naive for one in found]) >= np.mean([one.accuracy for one in found])
    rich = {one.group: one.accuracy for one in found if one.budget == 1e9}
    assert rich[made_groups.names[0]] < rich[made_groups.names[2]]


def test_small_groups_have_no_interval_and_a_note() -> None:
    few = made(12, 8)
    found = difficulty.best_by_group(
        few, difficulty.groups([v for v in few.votes if v.role == "limit"]), "flops", [1e9]
    )
    assert all(np.isnan(one.accuracy) and not np.isnan(one.naive) for one in found)
    assert "one group" in difficulty.section(few).notes[0].text


def test_groups_are_an_upper_bound_on_adapting_and_say_so() -> None:
    assert "the gain from adapting to difficulty is an upper bound" in difficulty.section(made()).text


def test_without_independent_samples_levels_remain() -> None:
    alone = replace(RESULT, votes=tuple(v for v in RESULT.votes if v.role == "test"))
    section = difficulty.section(alone)
    assert [p.name for p in section.pictures] == ["levels"] and section.tables == ()
    assert "`study.limit`" in section.notes[0].text
    assert difficulty.section(replace(alone, levels=np.full(80, -1))).pictures == ()


def test_what_reads_both_halves_of_the_samples_is_not_sorted_by_one() -> None:
    halved = replace(RESULT, facts={HALVES: True})
    groups = difficulty.groups(LIMITS)
    runs = {c.name for c in RESULT.curves if c.source == "run"}
    assert runs and runs & {c.name for c in difficulty.comparable(RESULT, "flops")}
    assert not runs & {c.name for c in difficulty.comparable(halved, "flops")}
    whole, some = (difficulty.best_by_group(r, groups, "flops", [1e9]) for r in (RESULT, halved))
    assert [a.options - b.options for a, b in zip(whole, some, strict=True)] == [len(runs)] * len(
        groups.names
    )
    section = difficulty.section(halved)
    drawn = {
        line.label
        for p in section.pictures
        if p.name != "levels"
        for lines in p.panels.values()
        for line in lines
    }
    assert "rebase" not in drawn and "majority" in drawn
    assert f"{len(runs)} curves are left out" in section.notes[0].text
    alone = replace(halved, curves=tuple(c for c in RESULT.curves if c.source == "run"))
    assert difficulty.section(alone).tables == ()
