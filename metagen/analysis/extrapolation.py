"""Coverage beyond the samples there are: pass@k for k above the size of the pool, with a predictive interval.

A problem's samples are right with its own chance p, and pass@k is the mean of 1 − (1 − p)^k over problems. It depends
on the smallest chances (Schaeffer et al. 2025, arXiv:2502.17578). The model: chances follow a beta distribution (Levi
2024, arXiv:2410.16377), except for a share of problems that no number of samples solves. The interval is of the
posterior over all such distributions. So it covers the doubt about problems that were never solved: they may be hard or
impossible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, expit, gammaln
from scipy.stats import binom

from metagen.analysis.estimators import pass_at_k
from metagen.analysis.intervals import SHARES, interval
from metagen.errors import InputError

Floats = NDArray[np.float64]

#: The prior: flat in the logit of the mean chance and in the logarithm of a + b, over these ranges; with even odds no
#: problem is impossible, else their share is flat.
LOGITS, SIZES = (-9.0, 9.0), (np.log(0.03), np.log(1e5))
#: Points on each axis of the grid, and how far in standard deviations its second round goes.
POINTS, REACH = 36, 5.0
#: Twice the log-likelihood that any distribution of chances may gain over these before they do not fit.
MISFIT = 30.0
#: Problems that must have been solved at least once: fewer say nothing about the form of the chances.
SOLVED = 15
#: Steps to the best of all distributions.
STEPS = 300


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """pass@k of fresh problems: posterior median and interval.

    fits: whether the pool's counts agree with the model, and are enough to tell. Where not, the bounds hold for any
    distribution of chances: low is the lower bound of pass@N as measured, N the smallest pool or k, and high is 1. The
    estimate is then that of pass@N.
    """

    k: int
    estimate: float
    low: float
    high: float
    fits: bool


def coverage_beyond(
    samples: ArrayLike, right: ArrayLike, ks: ArrayLike, *, level: float = 0.95
) -> list[Extrapolated]:
    """pass@k for each k, of any size, from each problem's number of right samples.

    samples, right: [problems], or samples one number for all. ks: [ks], or one number. Raises InputError for no
    problems, right beyond samples, and k < 1.
    """
    c = np.atleast_1d(np.asarray(right, dtype=np.float64))
    n = np.broadcast_to(np.asarray(samples, dtype=np.float64), c.shape)
    wanted = np.atleast_1d(np.asarray(ks, dtype=np.float64))
    if c.ndim != 1 or not c.size or (n < 1).any() or (c < 0).any() or (c > n).any() or (wanted < 1).any():
        raise InputError(
            f"coverage of {c.shape} problems at k={wanted.tolist()}: expected [problems] with 0 ≤ right ≤ samples, "
            "samples ≥ 1 and k ≥ 1"
        )
    kinds, seen = np.unique(np.stack([n, c]), axis=1, return_counts=True)
    counts = seen.astype(np.float64)
    axes = [np.linspace(*LOGITS, POINTS), np.linspace(*SIZES, POINTS), np.linspace(0.0, 0.98, POINTS)]
    first, _ = _posterior(kinds, counts, axes)
    shares = [first.sum(axis=tuple({0, 1, 2} - {i})) for i in range(3)]
    near = [_near(axis, weights) for axis, weights in zip(axes, shares, strict=True)]
    near[2] = np.unique(np.concatenate([[0.0], np.clip(near[2], 0.0, 0.98)]))
    weights, best = _posterior(kinds, counts, near)
    enough = int((c > 0).sum()) >= SOLVED
    fits = enough and 2.0 * (_best_of_all(kinds, counts) - best) <= MISFIT
    logit, size = (axis[..., None] for axis in np.meshgrid(near[0], near[1], indexing="ij"))
    a, b = expit(logit) * np.exp(size), expit(-logit) * np.exp(size)
    found = []
    tails = np.array([(1.0 - level) / 2.0, 0.5, (1.0 + level) / 2.0])
    for k in wanted.tolist():
        if not fits:
            least = int(min(n.min(), k))
            measured = interval(pass_at_k(n, c, least), support=SHARES, level=level)
            found.append(Extrapolated(int(k), float(measured.estimate), float(measured.low), 1.0, False))
            continue
        solved = (1.0 - near[2]) * -np.expm1(betaln(a, b + k) - betaln(a, b))
        order = np.argsort(solved, axis=None)
        upto = np.cumsum(weights.ravel()[order])
        at = np.minimum(np.searchsorted(upto, tails * upto[-1]), order.size - 1)
        low, middle, high = solved.ravel()[order[at]].tolist()
        found.append(Extrapolated(int(k), middle, low, high, True))
    return found


def _posterior(kinds: Floats, counts: Floats, axes: list[Floats]) -> tuple[Floats, float]:
    """Weights of (logit of the mean, log of a + b, share of impossible problems) on a grid; the best log-likelihood."""
    n, c = kinds
    logit, size = (axis[..., None] for axis in np.meshgrid(axes[0], axes[1], indexing="ij"))
    a, b = expit(logit) * np.exp(size), expit(-logit) * np.exp(size)
    each = _ways(n, c) + betaln(a + c, b + n - c) - betaln(a, b)  # [mean, size, kinds]
    impossible = axes[2]
    with np.errstate(divide="ignore"):
        none, some = np.log(impossible), np.log1p(-impossible)
    never = c == 0
    total = (each[..., ~never] @ counts[~never])[..., None] + counts[~never].sum() * some
    for i in np.flatnonzero(never):
        total = total + counts[i] * np.logaddexp(none, some + each[..., i, None])
    width = np.gradient(impossible) if len(impossible) > 1 else np.ones(1)
    prior = np.where(impossible == 0.0, 0.5, 0.5 * width)
    weights = np.exp(total - total.max()) * prior
    return weights / weights.sum(), float(total.max())


def _near(axis: Floats, weights: Floats) -> Floats:
    """A finer axis where the weight is."""
    mean = float(axis @ weights)
    deviation = float(np.sqrt(np.square(axis - mean) @ weights))
    reach = REACH * max(deviation, 0.3 * float(axis[1] - axis[0]))
    return np.linspace(max(axis[0], mean - reach), min(axis[-1], mean + reach), POINTS)


def _best_of_all(kinds: Floats, counts: Floats) -> float:
    """The log-likelihood of the best distribution of chances of any form, on a grid (Laird 1978)."""
    n, c = kinds
    chances = np.concatenate([[0.0], expit(np.linspace(-9.0, 9.0, 90)), [1.0]])
    each = binom.pmf(c[:, None], n[:, None], chances)
    share = np.full(len(chances), 1.0 / len(chances))
    for _ in range(STEPS):
        share = share * (each.T @ (counts / (each @ share))) / counts.sum()
    return float(counts @ np.log(each @ share))


def _ways(n: Floats, c: Floats) -> Floats:
    """Ln C(n, c)."""
    return np.asarray(gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1))
