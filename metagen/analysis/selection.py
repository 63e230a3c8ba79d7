"""Selection by a verifier: AUC within problems, and whether best-of-n over-optimises it.

Pooled AUC also rewards telling easy problems from hard ones. A choice among the candidates of one
problem gains nothing from that; it depends on the AUC within problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.intervals import SHARES, Support
from metagen.analysis.paired import Difference, paired_difference
from metagen.analysis.ranks import standing
from metagen.errors import InputError

Floats = NDArray[np.float64]


def problem_aucs(scores: ArrayLike, correct: ArrayLike) -> Floats:
    """AUC of each problem, [problems]: P(score of a right sample > of a wrong one) + ½ P(equal).

    scores: [problems, samples], NaN (no score) left out. correct: bool, same shape. NaN where a
    problem has no scored right, or no scored wrong sample. Raises InputError for shapes that differ.
    """
    x, right = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=bool)
    if x.shape != right.shape or x.ndim != 2 or 0 in x.shape:
        raise InputError(
            f"AUC of scores {x.shape} and correct {right.shape}: expected one [problems, samples]"
        )
    lower, equal = standing(x)
    scored = ~np.isnan(x)
    right = right & scored
    positives = right.sum(axis=1)
    negatives = scored.sum(axis=1) - positives
    # Mann and Whitney: the rank sum of the right samples, less its least value.
    ranks = ((lower + (equal + 1) / 2.0) * right).sum(axis=1)
    pairs = positives * negatives
    wins = ranks - positives * (positives + 1) / 2.0
    return np.asarray(np.where(pairs > 0, wins / np.maximum(pairs, 1), np.nan))


def within_problem_auc(scores: ArrayLike, correct: ArrayLike) -> float:
    """Mean of `problem_aucs` over the problems that have one; NaN if none has.

    scores, correct: [problems, samples].
    """
    aucs = problem_aucs(scores, correct)
    known = aucs[~np.isnan(aucs)]
    return float(known.mean()) if known.size else float("nan")


def pooled_auc(scores: ArrayLike, correct: ArrayLike) -> float:
    """AUC over all samples of all problems at once; NaN if all are right, or all wrong.

    scores, correct: [problems, samples], or any other shape that is the same for both.
    """
    return float(problem_aucs(np.reshape(scores, (1, -1)), np.reshape(correct, (1, -1)))[0])


@dataclass(frozen=True, slots=True)
class Fall:
    """Accuracy at the largest n against that at its peak.

    peak, largest: these n. at_peak, at_largest: mean accuracies there, in [0, 1]; that at the peak flatters, since the
    peak was picked for it. difference: largest n minus peak, with an interval that allows for the choice of the peak.
    """

    peak: int
    largest: int
    at_peak: float
    at_largest: float
    difference: Difference

    @property
    def found(self) -> bool:
        """Whether accuracy falls, beyond what chance among problems explains."""
        return self.difference.high < 0.0


def over_optimisation(
    accuracy: ArrayLike, ks: Sequence[int], *, support: Support | None = SHARES, level: float = 0.95
) -> Fall:
    """Does best-of-n fall with n? accuracy: [len(ks), problems], as of `best_of_k`; ks ascending.

    The peak is the smaller k with the highest mean. It is picked after looking at all of them, so the
    interval is Bonferroni's over the len(ks) − 1 comparisons, and the p-value is multiplied likewise.
    support: of the accuracies, None for rewards without bounds. Raises InputError for fewer
    than two ks, or shapes that do not fit.
    """
    x = np.asarray(accuracy, dtype=np.float64)
    if x.ndim != 2 or len(x) != len(ks) or len(ks) < 2 or any(a >= b for a, b in pairwise(ks)):
        raise InputError(
            f"accuracy of shape {x.shape} at ks={list(ks)!r}: expected [len(ks), problems], "
            "and at least two ks in ascending order"
        )
    peak = int(np.argmax(x[:-1].mean(axis=1)))
    comparisons = len(ks) - 1
    joint = 1.0 - (1.0 - level) / comparisons
    fall = paired_difference(x[-1], x[peak], support=support, level=joint)
    p_value = float(np.minimum(1.0, fall.p_value * comparisons))
    means = x.mean(axis=1)
    return Fall(ks[peak], ks[-1], float(means[peak]), float(means[-1]), replace(fall, p_value=p_value))
