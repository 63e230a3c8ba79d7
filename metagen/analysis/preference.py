"""From pairwise preferences to strengths: Bradley and Terry's model, and Elo's ratings.

Both say that i beats j with probability σ(θ_i − θ_j); Elo writes θ in units of 400 / ln 10 and follows a stream of
matches, where Bradley and Terry fit all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit

from metagen.errors import InputError

Floats = NDArray[np.float64]

#: Points of Elo in one unit of log-odds.
ELO_UNIT = 400.0 / float(np.log(10.0))
STEPS = 100
TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Strengths:
    """θ of Bradley and Terry, centred: θ.mean() = 0, in log-odds. Arrays are [items].

    error: standard error of each θ, from the inverse of the observed information.
    """

    theta: Floats
    error: Floats

    def probability(self, i: int, j: int) -> float:
        """P(i beats j) = σ(θ_i − θ_j)."""
        return float(expit(self.theta[i] - self.theta[j]))

    def elo(self, centre: float = 1500.0) -> Floats:
        """The same strengths in points of Elo, [items]."""
        return centre + ELO_UNIT * self.theta


def bradley_terry(wins: ArrayLike, *, prior: float = 0.0) -> Strengths:
    """The strengths of highest likelihood: max_θ Σ_ij wins[i, j] log σ(θ_i − θ_j).

    wins: [items, items]; wins[i, j] is how often i beat j. Ties count half for each, and preferences by their
    probability, so the entries need not be whole. prior: lost and won matches of each item against one of strength 0;
    with some, strengths stay finite where an item has won all its matches, and a wrong sign of few matches weighs less.
    Raises InputError for a matrix that is not square, entries that are negative or not finite, and, without a prior,
    where no finite maximum exists: some items never lost to the others (Ford 1957).
    """
    w = np.asarray(wins, dtype=np.float64)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or not w.size:
        raise InputError(f"wins of shape {w.shape}: expected one row and one column for each item")
    if not np.isfinite(w).all() or (w < 0).any() or not 0.0 <= prior < np.inf:
        raise InputError(f"wins and prior={prior!r}: expected finite numbers ≥ 0")
    w = w * ~np.eye(len(w), dtype=bool)
    if prior == 0.0 and connected_components(w > 0, connection="strong")[0] > 1:
        raise InputError(
            "some items never lost to any of the others, so their strengths have no finite maximum; "
            "compare more pairs, or give a prior, such as prior=0.5"
        )
    theta = _newton(w, prior)
    hessian = _slopes(w, prior, theta)[1]
    # Without a prior the information says nothing of the mean, which is fixed.
    error = np.sqrt(np.maximum(np.diag(np.linalg.pinv(hessian, hermitian=True)), 0.0))
    return Strengths(theta - theta.mean(), error)


def _newton(w: Floats, prior: float) -> Floats:
    """Newton's method with halved steps; the objective is concave."""
    theta = np.zeros(len(w))
    value = _log_likelihood(w, prior, theta)
    for _ in range(STEPS):
        gradient, hessian = _slopes(w, prior, theta)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        length = 1.0
        while (after := _log_likelihood(w, prior, theta + length * step)) < value and length > 1e-8:
            length /= 2.0
        theta, value = theta + length * step, max(after, value)
        if np.abs(length * step).max() < TOLERANCE:
            break
    return theta


def _log_likelihood(w: Floats, prior: float, theta: Floats) -> float:
    pairs = (w * log_expit(theta[:, None] - theta[None, :])).sum()
    return float(pairs + prior * (log_expit(theta) + log_expit(-theta)).sum())


def _slopes(w: Floats, prior: float, theta: Floats) -> tuple[Floats, Floats]:
    """Gradient and negative Hessian of the log-likelihood."""
    beats = expit(theta[:, None] - theta[None, :])
    lost = w * (1.0 - beats)
    own = expit(theta)
    gradient = lost.sum(axis=1) - lost.sum(axis=0) + prior * (1.0 - 2.0 * own)
    met = (w + w.T) * beats * (1.0 - beats)
    hessian = np.diag(met.sum(axis=1) + 2.0 * prior * own * (1.0 - own)) - met
    return gradient, hessian


def elo_expectation(rating: ArrayLike, opponent: ArrayLike) -> Floats:
    """E_A = 1 / (1 + 10^((R_B − R_A) / 400)); rating, opponent: any shapes that broadcast."""
    difference = np.asarray(rating, dtype=np.float64) - np.asarray(opponent, dtype=np.float64)
    return np.asarray(expit(difference / ELO_UNIT))


def elo(
    matches: Sequence[tuple[int, int, float]],
    items: int,
    *,
    k: float = 16.0,
    initial: float = 1500.0,
    orders: int = 1,
    seed: int = 0,
) -> Floats:
    """Ratings after a stream of matches, [items]: R_A ← R_A + k (S_A − E_A), and as much off R_B; the sum is constant.

    matches: (a, b, result), result 1 if a won, 0 if b did, ½ or a probability between. items: how many there are.
    Ratings depend on the order: with `orders` > 1 they are means over as many random orders; where all matches are
    known at once, `bradley_terry` needs none. Raises InputError for items that are not there and results
    outside [0, 1].
    """
    if orders < 1 or items < 1 or not 0.0 <= k < np.inf:
        raise InputError(
            f"items={items!r}, k={k!r}, orders={orders!r}: expected items ≥ 1, k ≥ 0, orders ≥ 1"
        )
    for a, b, result in matches:
        if not (0 <= a < items and 0 <= b < items and a != b and 0.0 <= result <= 1.0):
            raise InputError(
                f"match {(a, b, result)!r}: expected two different items from 0 to {items - 1}, and a result in [0, 1]"
            )
    rng = np.random.default_rng(seed)
    total = np.zeros(items)
    for _ in range(orders):
        ratings = np.full(items, initial)
        for m in rng.permutation(len(matches)) if orders > 1 else range(len(matches)):
            a, b, result = matches[m]
            gain = k * (result - float(elo_expectation(ratings[a], ratings[b])))
            ratings[a] += gain
            ratings[b] -= gain
        total += ratings
    return total / orders
