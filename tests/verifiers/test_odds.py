"""Probabilities and log-odds, at their ends as well."""

from __future__ import annotations

import math

import pytest

from metagen.verifiers.odds import log_odds, logit, sigmoid


@pytest.mark.parametrize("x", [-745.0, -3.0, 0.0, 1.5, 800.0])
def test_the_sigmoid_never_overflows_and_is_symmetric(x: float) -> None:
    assert sigmoid(x) + sigmoid(-x) == pytest.approx(1.0, abs=1e-15) and 0.0 <= sigmoid(x) <= 1.0


def test_the_logit_undoes_it_and_stays_finite() -> None:
    assert logit(sigmoid(2.5), 1e-9) == pytest.approx(2.5)
    ends = [logit(1.0, 1e-9), -logit(0.0, 1e-9)]
    assert ends == pytest.approx([math.log(1e9)] * 2, rel=1e-6)


def test_log_odds_are_those_of_the_softmax() -> None:
    row = (0.2, -1.0, 1.7)
    shares = [math.exp(x) / sum(map(math.exp, row)) for x in row]
    assert [sigmoid(log_odds(row, i)) for i in range(3)] == pytest.approx(shares)
    assert log_odds((0.7,), 0) == 0.7
    assert log_odds((0.0, -math.inf), 0) == math.inf and log_odds((-math.inf, -math.inf), 0) == 0.0
