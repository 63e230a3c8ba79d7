"""Replaying stopping rules over recorded pools: by hand, by brute force, and on a pool whose truth is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.analysis.estimators import majority_at_k
from metagen.analysis.stopping import replay, running_vote, stopping_points
from metagen.errors import InputError
from metagen.strategies.adaptive.consistency import Beta, Dirichlet
from metagen.strategies.adaptive.stopping import Decided
from metagen.strategies.adaptive.sure import Share
from metagen.strategies.adaptive.window import Unanimous


@dataclass(frozen=True)
class After:
    """Stops after so many samples."""

    k: int

    def stops(self, classes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        assert classes.shape == weights.shape
        return np.full(len(classes), classes.shape[1] >= self.k)


def pool(
    problems: int = 300, samples: int = 40, seed: int = 0, *, easy: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes, correct (class 0 is right) and tokens; the right answer's share is spread evenly, or mostly high."""
    rng = np.random.default_rng(seed)
    right = rng.beta(6, 1, problems) if easy else rng.uniform(0.05, 0.95, problems)
    wrong = rng.integers(1, 5, (problems, samples))
    classes = np.where(rng.random((problems, samples)) < right[:, None], 0, wrong)
    return classes, classes == 0, rng.integers(10, 60, (problems, samples)).astype(float)


def test_stopping_points_are_where_the_rule_first_says_so() -> None:
    classes = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 2, 1, 1, 1], [1, 2, 1, 2, 1, 2]])
    ones = np.ones(classes.shape)
    assert stopping_points(Beta(), classes, ones).tolist() == [4, 6, 6]
    assert stopping_points(Beta(), classes, ones, batch=3).tolist() == [6, 6, 6]
    assert stopping_points(Unanimous(2), classes, ones, batch=2).tolist() == [2, 2, 6]
    assert stopping_points(Decided(6), classes, ones).tolist() == [4, 5, 6]
    assert stopping_points(After(1), classes, ones).tolist() == [1, 1, 1]


@st.composite
def small(draw: st.DrawFn) -> tuple[list[list[int]], list[list[float]]]:
    n = draw(st.integers(1, 6))
    rows = st.lists(
        st.lists(st.sampled_from([-7, -1, 0, 3, 4]), min_size=n, max_size=n), min_size=1, max_size=4
    )
    classes = draw(rows)
    weight = st.sampled_from([0.0, 0.25, 0.5, 1.0, float("nan")])
    weights = [draw(st.lists(weight, min_size=n, max_size=n)) for _ in classes]
    return classes, weights


def brute(classes: Sequence[int], weights: Sequence[float], correct: Sequence[float]) -> float:
    votes: Counter[int] = Counter()
    for name, weight in zip(classes, weights, strict=True):
        if name >= 0:
            votes[name] += 0.0 if np.isnan(weight) else weight  # type: ignore[assignment]  # a Counter of floats
    leaders = [name for name, total in votes.items() if total == max(votes.values())]
    return float(np.mean([correct[name] for name in leaders])) if leaders else 0.0


@given(small())
def test_the_running_vote_is_the_vote_over_each_prefix(
    case: tuple[list[list[int]], list[list[float]]],
) -> None:
    classes, weights = case
    right = {0: 1.0, 3: 0.0, 4: 1.0}
    correct = [[right.get(name, 1.0) for name in row] for row in classes]
    found = running_vote(classes, correct, weights)
    for i, (row, heavy) in enumerate(zip(classes, weights, strict=True)):
        for n in range(1, len(row) + 1):
            assert found[i, n - 1] == pytest.approx(brute(row[:n], heavy[:n], right))  # type: ignore[arg-type]  # rows of arrays


def test_a_rule_that_never_stops_is_the_full_vote() -> None:
    classes, correct, tokens = pool(50)
    found = replay(After(99), classes, correct, tokens=tokens, orders=3)
    assert (found.drawn == 40).all() and (found.agreement == 1).all() and found.fewer == found.cheaper == 1
    assert found.tokens.tolist() == found.full_tokens.tolist() == pytest.approx(tokens.sum(axis=1).tolist())
    exact = majority_at_k(classes, correct, [40], np.random.default_rng(0)).accuracy[0]
    assert found.accuracy.tolist() == found.full_accuracy.tolist() == exact.tolist()
    assert found.gain().estimate == 0


def test_a_fixed_number_is_that_number_of_samples() -> None:
    classes, correct, tokens = pool(200)
    found = replay(After(5), classes, correct, tokens=tokens, orders=200)
    reference = majority_at_k(classes, correct, [5], np.random.default_rng(0), subsets=400)
    # Both average over random subsets: each problem within five standard errors of the two.
    error = np.sqrt(0.25 / 200 + 0.25 / 400)
    assert np.abs(found.accuracy - reference.accuracy[0]).max() < 5 * error
    assert abs(found.accuracy.mean() - reference.mean[0]) < 0.01
    assert (found.drawn == 5).all() and found.fewer == 8
    assert found.tokens.mean() == pytest.approx(5 * tokens.mean(), rel=0.02)
    short = replay(After(5), classes, correct, most=20, orders=2)
    assert short.most == 20 and short.fewer == 4


def test_the_recorded_order_is_taken_when_no_other_is_asked_for() -> None:
    classes = np.array([[1, 1, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]])
    found = replay(Beta(), classes, classes == 0, orders=0, tokens=np.tile(np.arange(1.0, 7), (2, 1)))
    assert found.drawn.tolist() == [4, 6] and found.tokens.tolist() == [10, 21]
    assert found.accuracy.tolist() == [0, 1] and found.agreement.tolist() == [1, 1]


def test_ties_agree_as_often_as_one_order_of_preference_would() -> None:
    # After two samples 0 and 1 tie; over all four, 0 leads alone: the favourite of {0, 1} is 0 half of the time.
    classes = np.array([[0, 1, 0, 2]])
    found = replay(After(2), classes, classes == 0, orders=0)
    assert (found.accuracy[0], found.full_accuracy[0], found.agreement[0]) == (0.5, 1.0, 0.5)
    nobody = replay(After(1), np.array([[-1, -1]]), [[False, False]], orders=0)
    assert (nobody.accuracy[0], nobody.agreement[0]) == (0.0, 1.0)


def test_decided_loses_nothing_and_saves_something() -> None:
    classes, correct, _ = pool()
    found = replay(Decided(40), classes, correct, orders=5)
    assert (found.agreement == 1).all() and np.allclose(found.accuracy, found.full_accuracy)
    assert 1.3 < found.fewer < 2.0, "an undisputed answer is decided at 21 of 40"


def test_the_published_saving_is_that_of_mostly_easy_problems() -> None:
    classes, correct, tokens = pool(600, easy=True)
    beta = replay(Beta(), classes, correct, tokens=tokens)
    dirichlet = replay(Dirichlet(), classes, correct, tokens=tokens, orders=5)
    assert beta.fewer > 3 and beta.agreement.mean() > 0.99 and abs(beta.gain().estimate) < 0.005
    assert dirichlet.drawn.mean() > beta.drawn.mean()
    assert dirichlet.agreement.mean() >= beta.agreement.mean() - 0.005
    hard = replay(Beta(), *pool(600)[:2], orders=5)
    assert 1.5 < hard.fewer < 2.5, "with problems of all difficulties there is less to save"
    bounds = beta.fewer_interval()
    assert float(bounds.low) < beta.fewer < float(bounds.high) and float(bounds.high) - float(bounds.low) < 1
    assert beta.cheaper == pytest.approx(beta.fewer, rel=0.05)


def test_weights_weigh() -> None:
    classes = np.array([[1, 1, 0, 0, 0]])
    weights = np.array([[0.9, 0.9, 0.1, 0.1, float("nan")]])
    found = replay(Share(0.9, 1.5), classes, classes == 1, weights=weights, orders=0)
    assert (found.drawn[0], found.accuracy[0], found.full_accuracy[0]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"correct": np.ones((2, 3))}, "one shape"), ({"most": 5}, "most=5"),
        ({"classes": np.zeros((0, 4)), "correct": np.zeros((0, 4))}, "none empty"),
        ({"batch": 0}, "batch=0"), ({"tokens": np.ones(4)}, "one shape"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_refused(change: dict[str, object], words: str) -> None:
    given = {"classes": np.zeros((2, 4)), "correct": np.ones((2, 4))} | change
    with pytest.raises(InputError, match=words):
        replay(Beta(), **given)  # type: ignore[arg-type]  # that is what is tested
