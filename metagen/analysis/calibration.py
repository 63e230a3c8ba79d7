"""Calibration: does a score of 0.8 mean right in 8 of 10? Reliability, and monotone maps that improve it.

The maps keep the order of scores, so best-of-n chooses as before. Votes weighted by scores and thresholds change. Fit
the maps on other problems than those that are reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, log_expit, logit

from metagen.analysis.ragged import Pool, Rows
from metagen.errors import InputError

Floats = NDArray[np.float64]

#: Scores are kept this far from 0 and 1 where log-odds are taken.
EDGE = 1e-6
#: The temperatures that a fit may give.
COOLEST, HOTTEST = 0.01, 100.0
#: Share of the score itself in an isotonic map, so that scores on one of its steps stay apart.
SLOPE = 1e-6


@dataclass(frozen=True, slots=True)
class Temperature:
    """v ↦ σ(logit(v) / T + bias): strictly increasing. Without bias, Guo et al. (2017); with, Platt (1999).

    Raises InputError unless T > 0.
    """

    temperature: float
    bias: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < np.inf or not np.isfinite(self.bias):
            raise InputError(f"{self!r}: expected a temperature > 0 and a finite bias")

    def __call__(self, scores: ArrayLike) -> Floats:
        """Scores in [0, 1], any shape; NaN stays NaN."""
        return np.asarray(expit(logit(np.asarray(scores, dtype=np.float64)) / self.temperature + self.bias))


@dataclass(frozen=True, slots=True)
class Isotonic:
    """The map through `points` (score, share that is right), linear between them and flat outside.

    A millionth of the score itself is mixed in: scores that the flat parts would tie keep their order.
    Raises InputError unless the points ascend in [0, 1].
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        p = np.asarray(self.points, dtype=np.float64)
        good = p.ndim == 2 and p.shape[1] == 2 and bool(((p >= 0.0) & (p <= 1.0)).all())
        if not good or (np.diff(p[:, 0]) <= 0).any() or (np.diff(p[:, 1]) < 0).any():
            raise InputError(
                f"points={self.points!r:.120}: expected pairs (score, value) in [0, 1], scores ascending, values not "
                "descending"
            )

    def __call__(self, scores: ArrayLike) -> Floats:
        """Scores in [0, 1], any shape; NaN stays NaN."""
        v = np.asarray(scores, dtype=np.float64)
        p = np.asarray(self.points, dtype=np.float64)
        return np.asarray((1.0 - SLOPE) * np.interp(v, p[:, 0], p[:, 1]) + SLOPE * v)


def fit_temperature(scores: Rows, correct: Rows, *, bias: bool = False) -> Temperature:
    """The temperature (and bias) of highest likelihood, over all scored samples.

    scores in [0, 1], NaN where there is none, and correct: [problems, samples] or ragged rows. The temperature is kept
    within 0.01 … 100: scores that separate right from wrong perfectly want 0. Raises InputError if all samples
    are right, or all wrong, and if higher scores go with lower accuracy, which no monotone map mends.
    """
    v, right = _flatten(scores, correct)
    x = logit(np.clip(v, EDGE, 1.0 - EDGE))
    if right.all() or not right.any():
        raise InputError(
            "a temperature needs right and wrong samples to fit, and all are alike; give more problems"
        )

    def loss(p: Floats) -> tuple[float, Floats]:
        z = p[0] * x + (p[1] if bias else 0.0)
        slack = expit(z) - right
        gradient = [(slack * x).mean(), slack.mean()] if bias else [(slack * x).mean()]
        return float(-np.where(right, log_expit(z), log_expit(-z)).mean()), np.array(gradient)

    bounds = [(1.0 / HOTTEST, 1.0 / COOLEST)] + [(None, None)] * bias
    start = np.array([1.0, 0.0][: 1 + bias])
    found = minimize(
        loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    inverse = float(found.x[0])
    if inverse <= 1.0 / HOTTEST * (1.0 + 1e-9):
        raise InputError(
            "higher scores do not go with higher accuracy here, so no temperature helps; "
            "look at the AUC of this verifier"
        )
    return Temperature(1.0 / inverse, float(found.x[1]) if bias else 0.0)


def fit_isotonic(scores: Rows, correct: Rows) -> Isotonic:
    """Isotonic regression of correctness on the score, over all scored samples (pool adjacent violators).

    The map goes through the mean score and the share of right samples of each block (centred: Oron and
    Flournoy 2017), so that it rises where the data do. scores, correct: [problems, samples], or ragged, as of
    `fit_temperature`. Raises InputError if nothing is scored, and if all samples are right, or all wrong.
    """
    v, right = _flatten(scores, correct)
    if right.all() or not right.any():
        raise InputError("a map needs right and wrong samples to fit, and all are alike; give more problems")
    levels, place = np.unique(v, return_inverse=True)
    weights = np.bincount(place).astype(np.float64)
    shares = np.bincount(place, weights=right) / weights
    fit = isotonic_regression(shares, weights=weights)
    edges = fit.blocks
    counts = np.add.reduceat(weights, edges[:-1])
    centres = np.add.reduceat(weights * levels, edges[:-1]) / counts
    values = np.clip(fit.x[edges[:-1]], 0.0, 1.0)
    return Isotonic(tuple(zip(centres.tolist(), values.tolist(), strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """A reliability diagram: by bin, the mean score and the share of right samples. All arrays are [bins] but `edges`.

    edges: [bins + 1]. count: samples. score: their mean score. accuracy: their share of right ones, with bounds low
    and high from a bootstrap over problems. Bins without samples hold NaN.
    """

    edges: Floats
    count: NDArray[np.int64]
    score: Floats
    accuracy: Floats
    low: Floats
    high: Floats

    @property
    def expected_error(self) -> float:
        """ECE = Σ_b (n_b / N) |accuracy_b − score_b| (Guo et al. 2017). Above 0 by chance alone, the more with
        few samples.
        """
        used = self.count > 0
        gaps = np.abs(self.accuracy - self.score)[used]
        return float((self.count[used] * gaps).sum() / self.count.sum())

    @property
    def largest_error(self) -> float:
        """MCE = max_b |accuracy_b − score_b|."""
        return float(np.nanmax(np.abs(self.accuracy - self.score)))


def reliability(
    scores: Rows,
    correct: Rows,
    *,
    bins: int = 10,
    equal: Literal["width", "mass"] = "width",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Reliability:
    """Bins of equal width in [0, 1], or of equal mass (then fewer where scores tie).

    Samples of one problem are alike, so the bounds resample problems, not samples. scores, correct: [problems,
    samples], or ragged, as of `fit_temperature`. Raises InputError for options out of range, and no scored sample.
    """
    if equal not in ("width", "mass"):
        raise InputError(f"equal={equal!r}: expected 'width' or 'mass'")
    if bins < 1 or not 0.0 < level < 1.0 or resamples < 100:
        raise InputError(
            f"bins={bins!r}, level={level!r}, resamples={resamples!r}: expected bins ≥ 1, 0 < level < 1, "
            "resamples ≥ 100"
        )
    pool = Pool.of(scores, correct)
    v, right = _flatten(scores, correct)
    edges = np.linspace(0.0, 1.0, bins + 1)
    if equal == "mass":
        edges = np.unique(np.concatenate(([0.0], np.quantile(v, edges[1:-1]), [1.0])))
    place = np.clip(np.searchsorted(edges, v, side="right") - 1, 0, len(edges) - 2)
    problems, width = np.nonzero(pool.scored)[0], len(edges) - 1
    cells, size = problems * width + place, len(pool.scores) * width
    totals = np.bincount(cells, minlength=size).reshape(-1, width)
    hits = np.bincount(cells, weights=right, minlength=size).reshape(-1, width)
    count = totals.sum(axis=0)
    drawn = np.random.default_rng(seed).multinomial(
        len(totals), np.full(len(totals), 1.0 / len(totals)), resamples
    )
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=v, minlength=width) / count
        shares = (drawn @ hits) / (drawn @ totals)
        accuracy = hits.sum(axis=0) / count
    bounds = np.full((2, width), np.nan)
    used = count > 0
    bounds[:, used] = np.nanquantile(shares[:, used], [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    return Reliability(edges, count, means, accuracy, bounds[0], bounds[1])


def brier_score(scores: Rows, correct: Rows) -> float:
    """Mean of (score − correct)²: a proper score of calibration and sharpness together; 0 is best.

    scores, correct: [problems, samples], or ragged, as of `fit_temperature`. Raises InputError if nothing is scored.
    """
    v, right = _flatten(scores, correct)
    return float(((v - right) ** 2).mean())


def log_loss(scores: Rows, correct: Rows) -> float:
    """Mean of −log of the score's probability of the true verdict, in nats; scores are kept a millionth from 0 and 1.

    scores, correct: [problems, samples], or ragged, as of `fit_temperature`. Raises InputError if nothing is scored.
    """
    v, right = _flatten(scores, correct)
    x = logit(np.clip(v, EDGE, 1.0 - EDGE))
    return float(-np.where(right, log_expit(x), log_expit(-x)).mean())


def _flatten(scores: Rows, correct: Rows) -> tuple[Floats, NDArray[np.bool_]]:
    """All scored samples, flat. InputError if there is none, or a score lies outside [0, 1]."""
    pool = Pool.of(scores, correct)
    v, right = pool.scores[pool.scored], pool.correct[pool.scored]
    if not v.size or v.min() < 0.0 or v.max() > 1.0:
        raise InputError("calibration: expected at least one score, and all of them in [0, 1]")
    return v, right
