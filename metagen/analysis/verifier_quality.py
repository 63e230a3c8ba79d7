"""The quality of a verifier, from a pool that it has scored and a grader has judged: arrays in, figures out.

AUC says how well it tells right from wrong. The curve of best-of-n, beside an oracle's choice from the same samples,
says what that is worth. The error rates predict that curve if errors depend on correctness alone. Where the measured
curve is another, errors depend on more: on the problem, or on a property that wrong samples share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from metagen.analysis.calibration import brier_score, reliability
from metagen.analysis.error_rates import ErrorRates, error_rates, predict_by_group, predict_in_pool
from metagen.analysis.estimators import best_of_k, mean_best_of_k, pass_at_k, subset_share
from metagen.analysis.first_error import FirstError, first_error
from metagen.analysis.intervals import DIFFERENCES, SHARES, Support, interval
from metagen.analysis.ragged import Floats, Pool, Rows, pad
from metagen.analysis.ranks import standing
from metagen.analysis.selection import Fall, over_optimisation, pooled_auc, problem_aucs
from metagen.errors import InputError

#: Of fewer problems there are no intervals: they cannot know what so few leave out.
FEW = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems, with bounds (`intervals.interval`). NaN where there is none, or are none."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: ArrayLike) -> Estimate:
        """From shares, [problems]; NaN for a problem without one. Bounds need `FEW` problems that have one."""
        x = np.asarray(values, dtype=np.float64)
        x = x[~np.isnan(x)]
        return cls.rows(x[None])[0] if x.size else cls(float("nan"), float("nan"), float("nan"))

    @classmethod
    def rows(cls, values: Floats, *, support: Support = SHARES) -> list[Estimate]:
        """One for each row of [rows, problems]. No bounds for fewer than `FEW` problems."""
        if values.shape[1] < FEW:
            nan = float("nan")
            return [cls(float(row.mean()), nan, nan) for row in values]
        found = interval(values, support=support)
        return [cls(*map(float, row)) for row in zip(found.estimate, found.low, found.high, strict=True)]

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "unknown"
        return f"{self.value:.3f}" + ("" if np.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]")


@dataclass(frozen=True, slots=True)
class AtN:
    """Best-of-n at one n. Accuracies are estimates for n fresh samples, from subsets of the pools.

    chosen: by the verifier's score. oracle: a right one if there is one (pass@n). regret: oracle less chosen.
    predicted: for `chosen`, from the score's distribution among right and wrong samples. gap: predicted less chosen.
    accepted: choosing at random among what scores at least the threshold, or among all if nothing does;
    accepted_predicted: the same from the two error rates. score: the mean score of the chosen. kl: log n − (n
    − 1) / n, nats: how far best-of-n is from the generator at most.
    """

    n: int
    chosen: Estimate
    oracle: Estimate
    regret: Estimate
    predicted: float
    gap: Estimate
    accepted: float
    accepted_predicted: float
    score: float
    kl: float


@dataclass(frozen=True, slots=True)
class LengthBias:
    """A verifier's preference for length for its own sake.

    preference: P(the longer of two scores higher) + ½ P(equal), of pairs of one problem that are alike in
    correctness; ½ is no bias. chosen: by n, the mean length of the best of n over the mean length of all.
    """

    preference: Estimate
    chosen: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class VerifierQuality:
    """The report on one verifier. Fields that need what was not given are None.

    unscored: share of samples without a score. auc: within problems. pooled_auc: over all samples, where telling easy
    problems from hard ones counts as well. limit: the mean over problems of what `accepted` tends to. ece, mce,
    brier: calibration.
    """

    problems: int
    samples: int
    accuracy: float
    unscored: float
    auc: Estimate
    pooled_auc: float
    ece: float
    mce: float
    brier: float
    rates: ErrorRates
    limit: float
    curve: tuple[AtN, ...]
    fall: Fall | None
    length: LengthBias | None
    first_error: FirstError | None

    def markdown(self) -> str:
        """The report as text with a table."""
        return "\n".join(_lines(self)) + "\n"


def verifier_quality(
    scores: Rows,
    correct: Rows,
    *,
    lengths: Rows | None = None,
    steps: Sequence[ArrayLike] | None = None,
    first_errors: ArrayLike | None = None,
    step_threshold: float | None = None,
    threshold: float | None = None,
    ns: Sequence[int] | None = None,
    groups: ArrayLike | None = None,
) -> VerifierQuality:
    """The report from arrays [problems, samples], or rows of unequal length.

    scores: in [0, 1], NaN where there is none. correct: of every sample. lengths: in any unit. steps,
    first_errors: for a process verifier, of any solutions, as of `first_error`. threshold: above which a
    sample is accepted; by default chosen on these data, which flatters. ns: powers of two up to the smallest
    pool, and its size, by default. groups: a label for each problem, within which `predicted` is told. Raises
    InputError for shapes that do not fit, n beyond the smallest pool, and where all samples are right, or all wrong.
    """
    pool = Pool.of(scores, correct)
    ns = _sizes(pool, ns)
    rates = error_rates(pool, threshold)
    chosen = best_of_n(pool, ns)
    curve = _curve(pool, ns, chosen, rates, groups)
    counts = pool.correct.sum(axis=1)
    shares = counts / pool.sizes
    with np.errstate(invalid="ignore"):
        limits = rates.limit(shares)
    # Where nothing would be accepted, one of all is taken.
    limits = np.where(np.isnan(limits), shares, limits)
    if (steps is None) != (first_errors is None):
        raise InputError("first errors need both steps= and first_errors=, and one of them is missing")
    if steps is None and step_threshold is not None:
        raise InputError(
            f"step_threshold={step_threshold!r}: of steps, and there are none; give steps= and first_errors="
        )
    found = None
    if steps is not None and first_errors is not None:
        found = first_error(steps, first_errors, threshold=0.5 if step_threshold is None else step_threshold)
    bins = reliability(scores, correct)
    return VerifierQuality(
        problems=len(pool.sizes),
        samples=int(pool.sizes.sum()),
        accuracy=float(shares.mean()),
        unscored=1.0 - float(pool.scored.sum() / pool.sizes.sum()),
        auc=Estimate.of(aucs(pool)),
        pooled_auc=pooled_auc(pool.scores[pool.present][None], pool.correct[pool.present][None]),
        ece=bins.expected_error,
        mce=bins.largest_error,
        brier=brier_score(scores, correct),
        rates=rates,
        limit=float(limits.mean()),
        curve=curve,
        fall=over_optimisation(chosen, ns) if len(ns) > 1 and len(pool.sizes) >= FEW else None,
        length=length_bias(pool, lengths, ns) if lengths is not None else None,
        first_error=found,
    )


def aucs(pool: Pool) -> Floats:
    """AUC of each problem, [problems]; NaN where it has no right, or no wrong sample with a score."""
    return problem_aucs(pool.scores, pool.correct)


def best_of_n(pool: Pool, ns: Sequence[int]) -> Floats:
    """Accuracy of the best of n, [len(ns), problems]; exact over the n-subsets of each problem's pool."""
    result = np.empty((len(ns), len(pool.sizes)))
    for rows, scores, correct in pool.by_size():
        result[:, rows] = best_of_k(scores, correct, ns).accuracy
    return result


def coverage(pool: Pool, ns: Sequence[int]) -> Floats:
    """Accuracy of an oracle's choice: pass@n, [len(ns), problems]."""
    return pass_at_k(pool.sizes, pool.correct.sum(axis=1), np.asarray(ns)[:, None])


def regret(pool: Pool, ns: Sequence[int]) -> Floats:
    """The loss of choosing by this verifier against an oracle, [len(ns), problems]: pass@n less the best of n."""
    return coverage(pool, ns) - best_of_n(pool, ns)


def chosen_shares(scores: ArrayLike, k: int) -> Floats:
    """P(a sample is the best of k drawn from its row), [problems, samples]; scores: the same shape.

    Ties share the probability; a sample with a NaN score is never chosen.
    """
    x = np.asarray(scores, dtype=np.float64)
    lower, equal = standing(x)
    lower = lower + np.isnan(x).sum(axis=1, keepdims=True)
    below = subset_share(x.shape[1], k)
    return np.asarray(
        np.where(np.isnan(x), 0.0, (below[lower + equal] - below[lower]) / np.maximum(equal, 1))
    )


def mean_of_chosen(pool: Pool, values: Rows, ns: Sequence[int]) -> Floats:
    """The mean of `values` (length, score, …) over the choices of best-of-n, [len(ns), problems]; NaN if there is none.

    values: [problems, samples], or ragged. Raises InputError for other shapes, and for a sample without a value.
    """
    x = pad(values)
    if x.shape != pool.scores.shape or np.isnan(x[pool.present]).any():
        raise InputError(f"values {x.shape} for samples {pool.scores.shape}: expected one for each sample")
    result = np.full((len(ns), len(pool.sizes)), np.nan)
    for rows, scores, _ in pool.by_size():
        result[:, rows] = mean_best_of_k(scores, x[rows, : scores.shape[1]], ns)
    return result


def length_bias(pool: Pool, lengths: Rows, ns: Sequence[int]) -> LengthBias:
    """Whether longer samples score higher among equally right ones.

    lengths: [problems, samples], or ragged, in any unit.
    """
    x = pad(lengths)
    relative = mean_of_chosen(pool, lengths, ns)
    means = np.array([row[:size].mean() for row, size in zip(x, pool.sizes, strict=True)])
    preference = []
    for scores, right, long, size in zip(pool.scores, pool.correct, x, pool.sizes, strict=True):
        s, r, m = scores[:size], right[:size], long[:size]
        pairs = (m[:, None] > m) & (r[:, None] == r) & ~np.isnan(s)[:, None] & ~np.isnan(s)
        wins = (s[:, None] > s) + 0.5 * (s[:, None] == s)
        preference.append(wins[pairs].mean() if pairs.any() else np.nan)
    ratios = [(n, float(np.nanmean(row / means))) for n, row in zip(ns, relative, strict=True)]
    return LengthBias(Estimate.of(preference), tuple(ratios))


def _sizes(pool: Pool, ns: Sequence[int] | None) -> list[int]:
    smallest = int(pool.sizes.min())
    if ns is None:
        return sorted({*(1 << i for i in range(smallest.bit_length())), smallest})
    if not ns or min(ns) < 1 or max(ns) > smallest:
        raise InputError(
            f"ns={list(ns)!r}: expected numbers from 1 to the {smallest} samples of the smallest pool"
        )
    return sorted(set(ns))


def _curve(
    pool: Pool, ns: list[int], chosen: Floats, rates: ErrorRates, groups: ArrayLike | None
) -> tuple[AtN, ...]:
    best = predict_by_group(pool, ns, groups)
    two = predict_in_pool(pool.correct.sum(axis=1), pool.sizes, rates.levels, ns)
    oracle = coverage(pool, ns)
    accepted = np.where(pool.present, np.nan_to_num(pool.scores, nan=-np.inf) >= rates.threshold, np.nan)
    measured = best_of_n(Pool(accepted.astype(np.float64), pool.correct, pool.sizes), ns)
    proxy = mean_of_chosen(pool, np.where(pool.scored, pool.scores, np.where(pool.present, 0.0, np.nan)), ns)
    accuracies = Estimate.rows(np.concatenate((chosen, oracle)))
    differences = Estimate.rows(np.concatenate((oracle - chosen, best - chosen)), support=DIFFERENCES)
    return tuple(
        AtN(
            n,
            chosen=accuracies[i],
            oracle=accuracies[i + len(ns)],
            regret=differences[i],
            predicted=float(best[i].mean()),
            gap=differences[i + len(ns)],
            accepted=float(measured[i].mean()),
            accepted_predicted=float(two[i].mean()),
            score=float(np.nanmean(proxy[i])),
            kl=float(np.log(n) - (n - 1) / n),
        )
        for i, n in enumerate(ns)
    )


def _lines(q: VerifierQuality) -> Iterator[str]:
    yield (
        f"{q.problems} problems, {q.samples} samples, {q.accuracy:.1%} of them right, "
        f"{q.unscored:.1%} without a score."
    )
    yield ""
    yield f"- AUC within problems {q.auc}; pooled {q.pooled_auc:.3f}"
    yield f"- calibration error {q.ece:.3f}, at most {q.mce:.3f} in a bin, Brier score {q.brier:.3f}"
    yield (
        f"- accepting what scores at least {q.rates.threshold:.3g}: {q.rates.true_positive:.1%} of the right and "
        f"{q.rates.false_positive:.1%} of the wrong samples; resampling tends to {q.limit:.1%}"
    )
    if q.fall is not None:
        d = q.fall.difference
        said = "falls" if q.fall.found else "no fall found"
        yield (
            f"- over-optimisation: {said} from n = {q.fall.peak} ({q.fall.at_peak:.1%}) to n = {q.fall.largest} "
            f"({q.fall.at_largest:.1%}), difference [{d.low:.3f}, {d.high:.3f}]"
        )
    if q.length is not None:
        n, ratio = q.length.chosen[-1]
        yield (
            f"- the longer of two equally right samples wins {q.length.preference}; "
            f"best of {n} is {ratio:.2f} × as long"
        )
    if q.first_error is not None:
        e = q.first_error
        shares = [
            f"{share:.1%} of {count} solutions {what} an error" if count else f"no solution {what} an error"
            for share, count, what in zip(
                (e.erroneous, e.correct), e.counts, ("with", "without"), strict=True
            )
        ]
        f1 = "" if np.isnan(e.f1) else f"F1 {e.f1:.3f}, "
        yield f"- first error at threshold {e.threshold:.3g}: {f1}{'; '.join(shares)}"
    yield ""
    yield "| n | best of n | oracle | regret | predicted | accepted at random | predicted | score | KL ≤ |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for a in q.curve:
        yield (
            f"| {a.n} | {a.chosen} | {a.oracle.value:.3f} | {a.regret} | {a.predicted:.3f} | {a.accepted:.3f} "
            f"| {a.accepted_predicted:.3f} | {a.score:.3f} | {a.kl:.2f} |"
        )
