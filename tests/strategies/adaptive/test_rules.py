"""Stopping rules: what each of them computes, and how they relate."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from metagen.errors import InputError
from metagen.strategies.adaptive.consistency import (
    Beta,
    Dirichlet,
    beta_confidence,
    dirichlet_confidence,
)
from metagen.strategies.adaptive.stopping import Decided, Predictive, leaders, predictive_confidence, totals
from metagen.strategies.adaptive.sure import Share, Sure
from metagen.strategies.adaptive.window import Unanimous
from tests.strategies.adaptive.toys import stops


def test_totals_are_those_of_the_definition() -> None:
    found = totals(np.array([[0, 2, 2, -1], [1, 1, -5, 0]]), np.array([[0.5, 1, 2, 9], [1, np.nan, 3, 0.25]]))
    assert found.tolist() == [[0.5, 0.0, 3.0], [0.25, 1.0, 0.0]]
    assert [side.tolist() for side in leaders(found)] == [[3.0, 1.0], [0.5, 0.25]]
    nobody = totals(np.array([[-1, -1]]), np.ones((1, 2)))
    assert nobody.tolist() == [[0.0, 0.0]], "there is always someone behind the leader"


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (4, 0), (3, 2), (12, 5), (300, 280)])
def test_the_beta_rule_is_the_integral_of_the_paper(first: int, second: int) -> None:
    def density(x: float) -> float:
        # Scaled by its peak, so that large counts do not underflow.
        peak = first / (first + second) if first + second else 0.5
        return float((x / peak) ** first * ((1 - x) / max(1 - peak, 1e-9)) ** second) if first else 1.0

    above = integrate.quad(density, 0.5, 1.0, epsabs=0, limit=200)[0]
    share = above / integrate.quad(density, 0.0, 1.0, epsabs=0, limit=200, points=[0.5])[0]
    assert beta_confidence(np.array(first), np.array(second)) == pytest.approx(share, abs=1e-7)


def test_four_equal_answers_are_enough_and_three_are_not() -> None:
    # P(θ > ½ | v, 0) = 1 − 2^−(v + 1).
    assert beta_confidence(np.arange(5.0), np.zeros(5)).tolist() == [0.5, 0.75, 0.875, 0.9375, 0.96875]
    for rule in (Beta(), Dirichlet()):
        assert [stops(rule, "1" * k) for k in range(1, 6)] == [False, False, False, True, True]
    assert not stops(Beta(), "11112"), "5 of 6 would be needed: P(4, 1) = 0.89"
    assert stops(Beta(), "1111-"), "what has no answer has no vote"


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2))
def test_with_two_answers_dirichlet_is_beta(counts: list[int]) -> None:
    first, second = sorted([*counts, 0], reverse=True)[:2]
    exact = float(beta_confidence(np.array(first), np.array(second)))
    assert dirichlet_confidence(tuple(c for c in (first, second) if c)) == pytest.approx(exact, abs=1e-11)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=8))
def test_dirichlet_is_never_surer_than_beta(counts: list[int]) -> None:
    counts = sorted(counts, reverse=True)
    exact = float(beta_confidence(np.array(counts[0]), np.array(counts[1])))
    assert dirichlet_confidence(tuple(map(float, counts))) <= exact + 1e-11


@pytest.mark.parametrize("counts", [(1, 1, 1), (5, 2, 1), (7, 6, 6, 3), (9, 4, 3, 2, 1, 1, 1), (80, 70, 60)])
def test_dirichlet_against_draws(counts: tuple[float, ...]) -> None:
    draws = np.random.default_rng(0).dirichlet(np.array(counts) + 1.0, size=400_000)
    share = (draws.argmax(axis=1) == 0).mean()
    # Four standard errors of 400,000 draws: one false alarm in 16,000.
    assert dirichlet_confidence(counts) == pytest.approx(share, abs=4 * 0.5 / np.sqrt(400_000))
    assert dirichlet_confidence((1, 1, 1)) == pytest.approx(1 / 3, abs=1e-12)


def test_rules_look_at_every_row_by_itself_and_at_nothing_but_their_row() -> None:
    rng = np.random.default_rng(1)
    classes, weights = rng.integers(-1, 4, (60, 12)), rng.random((60, 12))
    rules = [
        Beta(0.7),
        Dirichlet(0.6),
        Unanimous(3),
        Decided(14),
        Sure(0.95),
        Predictive(20, 0.8),
        Share(0.5, 1.0),
        Beta(0.7) | Sure(0.9),
    ]
    for rule in rules:
        whole = rule.stops(classes, weights)
        one = [rule.stops(classes[i : i + 1], weights[i : i + 1])[0] for i in range(60)]
        renamed = rule.stops(np.where(classes < 0, -9, 3 - classes), weights)
        assert whole.tolist() == one == renamed.tolist() and 0 < whole.sum() < 60, rule


def test_windows_are_consecutive_whole_and_of_one_answer() -> None:
    rule = Unanimous(3)
    assert [stops(rule, a) for a in ("111", "112", "112222", "211222", "2222", "11-", "---", "11")] == [
        True, False, True, True, False, False, False, False,
    ]  # fmt: skip
    assert stops(Unanimous(1), "5") and not stops(Unanimous(1), "-")


@given(st.text("012-", min_size=1, max_size=9), st.integers(1, 9))
def test_decided_means_that_no_continuation_changes_the_winner(answers: str, n: int) -> None:
    """Against all continuations with the answers seen, and a new one."""
    left = n - len(answers)
    if not 0 <= left <= 4:
        return

    def winners(all_: str) -> set[str]:
        counts = {a: all_.count(a) for a in set(all_) - {"-"}}
        return {a for a in counts if counts[a] == max(counts.values())}

    ends = {frozenset(winners(answers + "".join(rest))) for rest in itertools.product("0123-", repeat=left)}
    assert stops(Decided(n), answers) == (len(ends) == 1 and len(next(iter(ends))) == 1)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 7))
def test_what_is_foreseen_is_what_an_urn_would_draw(first: int, second: int, left: int) -> None:
    """Exactly: each further vote goes to one of two answers by their counts plus one (Pólya's urn)."""

    def ahead(a: int, b: int, r: int) -> Fraction:
        if not r:
            return Fraction(1) if a > b else Fraction(a == b, 2)
        p = Fraction(a + 1, a + b + 2)
        return p * ahead(a + 1, b, r - 1) + (1 - p) * ahead(a, b + 1, r - 1)

    first, second = max(first, second), min(first, second)
    found = predictive_confidence(np.array(first), np.array(second), left)
    assert float(found) == pytest.approx(float(ahead(first, second, left)), abs=1e-12)


def test_foreseeing_lies_between_endless_samples_and_the_worst_case() -> None:
    counts = np.array([3.0]), np.array([1.0])
    assert predictive_confidence(*counts, 100_001) == pytest.approx(beta_confidence(*counts), abs=1e-4)
    rng = np.random.default_rng(2)
    classes = rng.integers(-1, 3, (400, 14))
    decided = Decided(20).stops(classes, np.ones(classes.shape))
    foreseen = Predictive(20, 0.99).stops(classes, np.ones(classes.shape))
    assert (foreseen | ~decided).all() and foreseen.sum() > decided.sum()
    assert not stops(Predictive(9), "-") and not stops(Predictive(2), "12") and stops(Predictive(3), "112")


def test_a_verifier_that_is_sure() -> None:
    assert stops(Sure(0.9), "12", [0.2, 0.9]) and not stops(Sure(0.9), "12", [0.2, 0.89])
    assert not stops(Sure(0.0), "1", [float("nan")]), "no score is not sure"
    weights = [0.5, 0.5, 0.6, 0.4]  # 1.6 of 2.0
    assert stops(Share(0.8, 1.5), "1112", weights) and not stops(Share(0.81, 1.5), "1112", weights)
    assert not stops(Share(0.5, 1.7), "1112", weights), "too little mass"
    assert not stops(Share(), "-", [1.0])


def test_rules_combine_and_print_themselves() -> None:
    either, both = Beta(0.9) | Decided(9) | Unanimous(2), Beta(0.9) & Unanimous(2)
    assert repr(either) == "AnyOf(rules=(Beta(confidence=0.9), Decided(n=9), Unanimous(size=2)))"
    assert stops(either, "11") and not stops(both, "11") and stops(both, "1111")
    assert either == (Beta(0.9) | Decided(9)) | Unanimous(2) and both != either


@pytest.mark.parametrize(
    "make",
    [
        lambda: Beta(0.5), lambda: Beta(1.0), lambda: Dirichlet(float("nan")), lambda: Predictive(0),
        lambda: Predictive(9, 1.0), lambda: Unanimous(0), lambda: Decided(0),
        lambda: Sure(1.1), lambda: Share(0.0), lambda: Share(0.5, 0.0),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_are_refused(make: object) -> None:
    with pytest.raises(InputError, match="expected"):
        make()  # type: ignore[operator]
