"""Verifiers with a part that is fitted: statistics that the verifiers themselves know nothing of."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metagen.analysis.calibration import Temperature
from metagen.analysis.preference import bradley_terry
from metagen.generators.engine import Engine
from metagen.verifiers.base import Verifier
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.generative import options
from metagen.verifiers.generative.pairwise import TournamentVerifier


def tournament(
    engine: Engine,
    *,
    strengths: Literal["win_rate", "bradley_terry"] = "win_rate",
    name: str = "tournament",
    **given: Any,
) -> TournamentVerifier:
    """A tournament by win rates, or by the strengths of the Bradley–Terry model."""
    fit = bradley_terry_strengths if strengths == "bradley_terry" else None
    return options.tournament(engine, strengths=fit, name=name, **given)


def bradley_terry_strengths(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """From a matrix of wins; half a win each way keeps them finite."""
    return np.asarray(bradley_terry(wins, prior=0.5).theta)


def calibrated(
    members: Ordered[Verifier],
    *,
    name: str,
    temperature: float = 1.0,
    bias: float = 0.0,
    steps: bool = False,
) -> Calibrated:
    """One verifier, its scores mapped by a temperature and a bias."""
    (verifier,) = members
    return Calibrated(verifier, Temperature(temperature, bias), steps=steps, name=name)
