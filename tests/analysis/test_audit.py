"""Counts of what recorded samples hide, against pools in which it was put, and against ones without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from metagen.analysis.audit import LONG, TOLD, Auditing, Samples, audit
from metagen.errors import InputError


def made(rows: list[tuple[int, int, int, int, int]], **scores: list[float]) -> Samples:
    """Rows of (problem, key, correct, text, length); positions as they stand."""
    problem, key, correct, text, length = (np.array(column) for column in zip(*rows, strict=True))
    seen: dict[int, int] = {}
    position = []
    for one in problem.tolist():
        position.append(seen.get(one, 0))
        seen[one] = seen.get(one, 0) + 1
    given = {name: np.array(values, dtype=np.float64) for name, values in scores.items()}
    return Samples(problem, key, correct.astype(bool), text, length, np.array(position), given)


def drawn(problems: int, size: int, seed: int = 0, **more: Any) -> Samples:
    """A pool in which nothing is wrong: independent verdicts, no two texts alike."""
    rng = np.random.default_rng(seed)
    count = problems * size
    chance = np.repeat(rng.random(problems), size)
    correct = rng.random(count) < chance
    return Samples(
        np.repeat(np.arange(problems), size), np.where(correct, 0, 1), correct, np.arange(count),
        np.full(count, 2 * LONG), np.tile(np.arange(size), problems), **more,
    )  # fmt: skip


def test_what_cannot_be_read_is_counted_with_examples_of_different_problems() -> None:
    found = audit(
        made([(0, -1, 0, 1, 5), (0, -1, 0, 2, 5), (1, 3, 1, 3, 5), (2, -1, 1, 4, 5), (2, -1, 0, 0, 0)])
    )
    assert (found.unread, found.empty, found.unread_at) == (3, 1, (0, 3, 1))
    assert audit(made([(0, 1, 1, 1, 5)])).unread_at == ()


def test_classes_that_verdicts_contradict() -> None:
    """Of problem 0 class 7 has two right and one wrong; of problem 1 right samples are of two classes."""
    rows = [(0, 7, 1, 1, 5), (0, 7, 1, 2, 5), (0, 7, 0, 3, 5), (0, 8, 0, 4, 5), (1, 7, 1, 5, 5), (1, 9, 1, 6, 5),
            (1, -1, 0, 7, 5), (2, 7, 0, 8, 5)]  # fmt: skip
    found = audit(made(rows))
    assert (found.mixed, found.mixed_problems, found.mixed_at, found.split) == (1, 1, 0, 1)


def test_repeats_are_within_problems_and_long_ones_are_told_apart() -> None:
    rows = [(0, 1, 1, 5, 9), (0, 1, 1, 5, 9), (0, 1, 1, 6, LONG), (0, 1, 1, 6, LONG), (1, 1, 1, 5, 9), (1, -1, 0, 0, 0),
            (1, -1, 0, 0, 0)]  # fmt: skip
    found = audit(made(rows))
    assert (found.repeated, found.repeated_long) == (2, 1)
    assert (found.fewest, found.most, found.fewer) == (3, 4, 1)


def test_ties_and_saturation_of_scores() -> None:
    nan = float("nan")
    rows = [
        (0, 1, 1, 1, 5),
        (0, 2, 0, 2, 5),
        (0, 3, 0, 3, 5),
        (1, 1, 1, 4, 5),
        (1, 1, 1, 5, 5),
        (2, 1, 0, 6, 5),
    ]
    found = audit(made(rows, judge=[1.0, 1.0, 0.2, 1.0, 1.0, nan], sure=[3, 2, 1, 5, 4, -900])).scores
    judge, sure = found["judge"], found["sure"]
    assert (judge.tied, judge.contested, judge.missing, judge.distinct) == (2, 1, 1, 2)
    assert judge.top == pytest.approx(0.8) and not judge.saturated, "two values alone are verdicts"
    assert (sure.tied, sure.contested, sure.lowest, sure.highest) == (0, 0, -900.0, 5.0)
    ends = audit(made(rows, judge=[1.0, 1.0, 0.2, 1.0, 1.0, 0.5])).scores["judge"]
    assert ends.saturated
    assert audit(made(rows, judge=[nan] * 6)).scores["judge"].missing == 6


def test_a_file_that_is_sorted_by_verdict_has_a_trend_and_one_that_is_not_has_none() -> None:
    pool = drawn(200, 16)
    order = np.lexsort((~pool.correct, pool.problem))
    ranked = replace(pool, correct=pool.correct[order], key=pool.key[order])
    trend = audit(ranked).trend
    assert trend is not None and trend.z < -20 and trend.first > trend.last + 0.3
    assert audit(replace(pool, correct=np.repeat(np.arange(200) % 2 == 0, 16))).trend is None, (
        "no problem is mixed"
    )


def test_false_alarms_of_the_trend_are_as_rare_as_stated() -> None:
    """Under no order |z| reaches TOLD with p < 0.001; two of 400 pools or fewer, at a false-alarm rate of 1%."""
    zs = [t.z for seed in range(400) if (t := audit(drawn(30, 8, seed)).trend) is not None]
    assert sum(abs(z) >= TOLD for z in zs) <= 3
    assert binomtest(sum(abs(z) >= 1.96 for z in zs), len(zs), 0.05).pvalue > 0.001
    assert abs(np.mean(zs)) < 0.2 and 0.85 < np.std(zs) < 1.15


@pytest.mark.parametrize(("sign", "expected"), [(1, 1), (-1, -1)])
def test_files_sorted_by_score_or_length_are_recognised(sign: int, expected: int) -> None:
    pool = drawn(50, 8)
    rng = np.random.default_rng(1)
    scores = rng.normal(size=len(pool.problem))
    ranked = scores[np.lexsort((sign * scores, pool.problem))]
    lengths = (1000 + sign * pool.position * 10).astype(np.int64)
    found = audit(replace(pool, scores={"s": ranked, "t": scores}, length=lengths))
    assert (found.scores["s"].order, found.scores["t"].order, found.by_length) == (expected, 0, expected)


def test_positions_may_stand_in_any_order() -> None:
    pool = drawn(20, 8, scores={"s": np.random.default_rng(2).normal(size=160)})
    order = np.random.default_rng(3).permutation(160)
    arrays = {
        name: getattr(pool, name)[order]
        for name in ("problem", "key", "correct", "text", "length", "position")
    }
    shuffled = Samples(**arrays, scores={"s": pool.scores["s"][order]})
    one, other = audit(pool), audit(shuffled)
    assert one.trend is not None and other.trend is not None
    assert one.trend.z == pytest.approx(other.trend.z)
    assert replace(one, trend=None, fewest_at=0) == replace(other, trend=None, fewest_at=0)


@pytest.mark.parametrize("size", [1, 3, 40])
def test_problems_may_be_told_part_by_part(size: int) -> None:
    """In any order: of examples, those of the first problems are chosen."""
    rng = np.random.default_rng(5)
    rows = [
        (
            p,
            int(rng.integers(-1, 3)),
            int(rng.random() < 0.5),
            int(rng.integers(4)),
            int(rng.integers(3) * LONG),
        )
        for p in range(40)
        for _ in range(9 if p == 7 else 8 + (p % 5 == 0))
    ]
    whole = made(rows, s=rng.integers(0, 5, len(rows)).tolist(), none=[float("nan")] * len(rows))
    problems = rng.permutation(40)
    auditing = Auditing()
    for start in range(0, 40, size):
        there = np.flatnonzero(np.isin(whole.problem, problems[start : start + size]))
        arrays = (
            getattr(whole, name)[there]
            for name in ("problem", "key", "correct", "text", "length", "position")
        )
        auditing.add(Samples(*arrays, {name: values[there] for name, values in whole.scores.items()}), there)
    one, other = audit(whole), auditing.result
    assert one.trend is not None and other.trend is not None and one.mixed > 2 and len(one.unread_at) == 3
    assert (other.trend.z, other.trend.first) == pytest.approx((one.trend.z, one.trend.first))
    scores = {
        name: replace(score, top=0.0, highest=0.0, bottom=0.0, lowest=0.0)
        for name, score in one.scores.items()
    }
    for name, score in other.scores.items():
        assert replace(score, top=0.0, highest=0.0, bottom=0.0, lowest=0.0) == scores[name]
        assert (score.top, score.lowest) == pytest.approx(
            (one.scores[name].top, one.scores[name].lowest), nan_ok=True
        )
    assert replace(one, trend=None, scores={}) == replace(other, trend=None, scores={})


def test_different_values_are_counted_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them are unknown, and many all the same."""
    monkeypatch.setattr("metagen.analysis.audit.MANY", 100)
    pool = drawn(20, 8)
    half = np.where(np.arange(160) % 2, 1.0, np.arange(160) / 160)
    found = audit(
        replace(pool, scores={"few": np.arange(160) % 100.0, "many": np.arange(160.0), "top": half})
    ).scores
    assert (found["few"].distinct, found["many"].distinct, found["top"].distinct) == (100, None, 81)
    monkeypatch.setattr("metagen.analysis.audit.MANY", 10)
    assert audit(replace(pool, scores={"top": half})).scores["top"].saturated


def test_nothing_is_no_pool() -> None:
    empty = np.zeros(0, dtype=np.int64)
    with pytest.raises(InputError, match="no samples"):
        audit(Samples(empty, empty, empty.astype(bool), empty, empty, empty))
    with pytest.raises(InputError, match="one entry a sample"):
        Samples(empty, empty, empty.astype(bool), empty, empty, np.zeros(2, dtype=np.int64))
