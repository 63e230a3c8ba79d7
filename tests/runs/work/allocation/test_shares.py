"""Shares of one budget: they never add up to more than it, and go where more is expected to be gained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.budget import Budget
from metagen.runs.declare import schema
from metagen.runs.work.allocation.allocate import Difficulty
from metagen.runs.work.allocation.shares import Look, Shares, by_difficulty
from metagen.runs.work.attempts import Unrecorded

#: First samples that disagree, half agree, and agree: only the middle gains from more, up to eight samples.
CURVES = np.array([[0.0, 0.1] + [0.1] * 7, 0.8 - 0.8 * 0.7 ** np.arange(9.0), [0.0, 1.0] + [1.0] * 7])
DIFFICULTY = Difficulty(2, "agreement", np.array([0.5, 1.0]), CURVES, np.array([9, 9, 9]))
HARD, MIDDLE, EASY = (-1, -1), (0, 1), (0, 0)


def seen(classes: tuple[int, int], cost: float = 10) -> Look:
    return Look(2 * cost, np.full(2, float(cost)), np.array(classes), np.ones(2))


def test_what_gains_nothing_more_leaves_its_share_to_what_does() -> None:
    equal = Budget(generated=121).share(3)
    shares = by_difficulty(equal, [seen(HARD), seen(MIDDLE), seen(EASY)], DIFFICULTY, 8)
    assert [share.generated for share in shares] == [20, 80, 20]
    assert [s.generated for s in by_difficulty(equal, [seen(MIDDLE)] * 3, DIFFICULTY, 8)] == [40] * 3
    capped = by_difficulty(equal, [seen(HARD), seen(MIDDLE), seen(EASY)], DIFFICULTY, 4)
    assert [share.generated for share in capped] == [20, 40, 20]


def test_what_was_not_seen_keeps_its_share() -> None:
    equal = Budget(generated=120).share(3)
    shares = by_difficulty(equal, [None, seen(MIDDLE), seen(EASY)], DIFFICULTY, 8)
    assert [share.generated for share in shares] == [40, 60, 20]
    assert by_difficulty(equal, [None] * 3, DIFFICULTY, 8) == equal


@settings(deadline=None)
@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.sampled_from([HARD, MIDDLE, EASY]), st.integers(1, 60)), min_size=1, max_size=12),
    st.booleans(),
)
def test_shares_never_exceed_the_total_and_pay_for_the_first_samples(
    total: int, problems: list[tuple[tuple[int, int], int]], whole: bool
) -> None:
    equal = (Budget(generated=total) if whole else Budget(flops=total / 7)).share(len(problems))
    name = "generated" if whole else "flops"
    looks = [
        look if (look := seen(classes, cost)).spent <= getattr(part, name) else None
        for (classes, cost), part in zip(problems, equal, strict=True)
    ]
    shares = [getattr(share, name) for share in by_difficulty(equal, looks, DIFFICULTY, 8)]
    assert sum(shares) <= (total if whole else total / 7 * (1 + 1e-9))
    for share, look, part in zip(shares, looks, equal, strict=True):
        assert share >= (look.spent if look else getattr(part, name))


def test_a_share_is_bound_by_the_budget_of_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "name: one\ntask: {kind: arithmetic}\nengines: {cpu: {kind: torch, model: tiny-0.1m}}\n"
        "generators: {tiny: {engine: cpu}}\nstrategies: {vote: {kind: majority}}\ngrid: {n: [4]}\n"
        "budget: {generated: 40, calls: 3}\nallocation: {total: {generated: 100, flops: 1.0e+9}}\n"
    )
    experiment = schema.load(file)
    shares = Shares(experiment, 2)
    assert shares.of("tiny/vote@4", 1) == Budget(generated=40, calls=3, flops=5e8) == shares.largest
    assert Shares(experiment, 4).of("tiny/vote@4", 3) == Budget(generated=25, calls=3, flops=2.5e8)
    plain = Shares(experiment.model_copy(update={"allocation": None, "budget": None}), 2)
    assert plain.of("tiny/vote@4", 1) is None
    undecided = Shares(experiment, 2, {"tiny/vote@4": DIFFICULTY})
    with pytest.raises(Unrecorded, match="not decided yet"):
        undecided.of("tiny/vote@4", 0)
