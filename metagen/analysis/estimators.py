"""The accuracy of a strategy with k samples, estimated from a pool of N ≥ k samples per problem.

Each estimate is an average over random k-subsets of the pool, drawn without replacement, never the
first k: unbiased for k fresh samples, and far less noisy than one draw of k. Pass@k, best-of-k and,
for pools of moderate size, the majority have closed forms; other rules are enumerated where the
subsets are few, and sampled otherwise. Estimates are per problem, so that the interval over problems
stays a separate step.

Arrays are [problems, samples]:

- `classes` int: the class of the sample's answer; any negative id is "no answer" and never votes.
- `scores` float: the verifier's score; NaN is "no score": such a sample is never chosen and has no
  weighted vote.
- `correct` bool: whether the sample is right.

A subset without a sample that can be chosen counts as wrong. Ties are split evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.ranks import standing
from metagen.analysis.subset_votes import (
    TIE,
    WORK,
    Ballots,
    Draws,
    Job,
    averages,
    majority_exact,
    majority_work,
)
from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AtK:
    """Expected accuracy at each k.

    ks: subset sizes. accuracy: [len(ks), problems], in [0, 1]. error: the Monte-Carlo standard error
    of `accuracy`, same shape; 0 where the value is exact, and where all subsets that were drawn agree.
    """

    ks: tuple[int, ...]
    accuracy: Floats
    error: Floats

    @property
    def mean(self) -> Floats:
        """Mean over problems, [len(ks)]."""
        return np.asarray(self.accuracy.mean(axis=1))

    @property
    def mean_error(self) -> Floats:
        """Monte-Carlo standard error of `mean`, [len(ks)]; problems are sampled independently."""
        return np.asarray(np.sqrt((self.error**2).sum(axis=1)) / self.error.shape[1])


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """Coverage: the probability that k of n samples, c of them right, hold a right one.

    1 − C(n−c, k) / C(n, k), the unbiased estimator of Chen et al. (2021), Codex. n, c, k: any shapes that broadcast;
    the result has their common shape. Raises InputError unless 0 ≤ c ≤ n and 1 ≤ k ≤ n everywhere.
    """
    n, c, k = (np.asarray(a, dtype=np.float64) for a in (n, c, k))
    if np.any((c < 0) | (c > n) | (k < 1) | (k > n)):
        raise InputError(f"pass@k: expected 0 ≤ c ≤ n and 1 ≤ k ≤ n, got n={n}, c={c}, k={k}")
    from scipy.special import gammaln  # which every run would wait for

    wrong = n - c
    missing = np.minimum(k, wrong)  # keeps the logarithms finite where the answer is 1
    log_miss = (gammaln(wrong + 1) - gammaln(wrong - missing + 1)) - (gammaln(n + 1) - gammaln(n - k + 1))
    return np.asarray(np.where(wrong < k, 1.0, -np.expm1(np.minimum(log_miss, 0.0))))


def best_of_k(scores: ArrayLike, correct: ArrayLike, ks: Sequence[int]) -> AtK:
    """Accuracy of the sample with the highest score among k; exact. scores, correct: [problems, samples].

    A sample with `lower` samples below it and `equal` at its score (itself included) is chosen with
    probability [C(lower+equal, k) − C(lower, k)] / [C(N, k) · equal]: the k-subsets whose maximum is
    its score, shared evenly. Raises InputError for shapes that differ or k outside 1 … N.
    """
    scores, correct = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=bool)
    _check(ks, scores, correct)
    lower, equal = standing(scores)
    unscored = np.isnan(scores)
    lower = lower + unscored.sum(axis=1, keepdims=True)
    share = np.where(correct & ~unscored, 1.0 / np.maximum(equal, 1), 0.0)
    rows = []
    for k in ks:
        below = subset_share(scores.shape[1], k)
        rows.append((share * (below[lower + equal] - below[lower])).sum(axis=1, where=~unscored))
    return AtK(tuple(ks), np.stack(rows), np.zeros((len(ks), len(scores))))


def best_of_k_by_verdicts(
    verdicts: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    v: int,
    rng: np.random.Generator,
    draws: int = 64,
) -> AtK:
    """Best-of-k(s, v): accuracy of the best of s samples by a score that is the mean of v verdicts each, for s in ks.

    verdicts: [problems, samples, V], the recorded ones of each sample, NaN for none. correct: [problems, samples]. Of
    the V places v are drawn without replacement, `draws` times, and `best_of_k` is exact for each; a sample whose v
    verdicts are all NaN has no score. error: of the mean over draws; 0 for v = V, where there is one draw alone. Raises
    InputError for shapes that do not fit, v outside 1 … V, and fewer than 2 draws.
    """
    given, right = np.asarray(verdicts, dtype=np.float64), np.asarray(correct, dtype=bool)
    if given.ndim != 3 or given.shape[:2] != right.shape or not 1 <= v <= given.shape[-1] or draws < 2:
        raise InputError(
            f"verdicts {given.shape} of samples {right.shape}, v={v!r}, draws={draws!r}: expected [problems, samples, "
            "V] and [problems, samples], 1 ≤ v ≤ V, and at least 2 draws"
        )

    def once() -> Floats:
        some = given if v == given.shape[-1] else rng.permuted(given, axis=-1)[..., :v]
        said = (~np.isnan(some)).sum(axis=-1)
        # In one order, so that equal verdicts have equal means; NaN goes last.
        score = np.nansum(np.sort(some, axis=-1), axis=-1) / np.where(said, said, np.nan)
        return best_of_k(score, right, ks).accuracy

    found = np.stack([once() for _ in range(1 if v == given.shape[-1] else draws)])
    error = found.std(axis=0, ddof=1) / draws**0.5 if len(found) > 1 else np.zeros(found.shape[1:])
    return AtK(tuple(ks), found.mean(axis=0), error)


def mean_best_of_k(scores: ArrayLike, values: ArrayLike, ks: Sequence[int]) -> Floats:
    """Mean of `values` (a gold reward, a length) of the sample with the highest score among k; exact.

    The result is [len(ks), problems]. scores, values: [problems, samples]. The mean is over the subsets in which a
    sample has a score; NaN for a problem without scores. With `correct` as values, and no score missing, it is
    `best_of_k`. Raises InputError for shapes that differ, k outside 1 … N, or a scored sample without a finite value.
    """
    scores, values = np.asarray(scores, dtype=np.float64), np.asarray(values, dtype=np.float64)
    _check(ks, scores, values)
    known = _has_score(scores, values)
    lower, equal = standing(scores)
    lower = lower + (~known).sum(axis=1, keepdims=True)
    rows = []
    for k in ks:
        below = subset_share(scores.shape[1], k)
        share = np.where(known, (below[lower + equal] - below[lower]) / np.maximum(equal, 1), 0.0)
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is known
            rows.append((share * np.where(known, values, 0.0)).sum(axis=1) / share.sum(axis=1))
    return np.stack(rows)


def majority_at_k(
    classes: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    rng: np.random.Generator,
    subsets: int | None = None,
    *,
    exact: bool | None = None,
) -> AtK:
    """Accuracy of the most frequent class among k samples (self-consistency, Wang et al. 2022).

    classes, correct: [problems, samples]. exact: by the closed form of `subset_votes.majority_exact`; by default where
    it takes a second or so at most and `subsets` is not given. Otherwise over at most `subsets` random subsets for each
    k (by default 64 to 512, the more the fewer the problems), and exact where there are no more subsets than that (or
    than samples). The same state of `rng` draws the same subsets for majority and weighted votes, and those of a k that
    divides another lie within its subsets, so that curves compare. A class whose members differ in `correct` is right
    at their mean. Raises InputError for shapes that differ, k outside 1 … N, and `subsets` beside exact=True.
    """
    return _votes(classes, correct, ks, rng, {"": None}, subsets, exact)[""]


def weighted_at_k(
    classes: ArrayLike,
    scores: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    rng: np.random.Generator,
    subsets: int | None = None,
    *,
    exact: bool | None = None,
) -> AtK:
    """Accuracy of the class with the largest sum of scores among k samples (weighted voting).

    classes, scores, correct: [problems, samples]. With equal scores this is `majority_at_k`; the rest is as there.
    exact: for scores that are equal within each problem, and above 0. Raises InputError also for scores that are
    negative or infinite: a vote's weight is in [0, ∞).
    """
    return _votes(classes, correct, ks, rng, {"": scores}, subsets, exact)[""]


def votes_at_k(
    classes: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    rng: np.random.Generator,
    *,
    weights: Mapping[str, ArrayLike | None],
    subsets: int | None = None,
) -> dict[str, AtK]:
    """Several votes over the same subsets, by name: `weighted_at_k`, or `majority_at_k` where weights are None.

    classes, correct, and each of weights: [problems, samples]. Raises InputError as these two.
    """
    return _votes(classes, correct, ks, rng, weights, subsets, None)


def soft_best_at_k(
    scores: ArrayLike,
    values: ArrayLike,
    ks: Sequence[int],
    beta: float,
    rng: np.random.Generator,
    subsets: int | None = None,
) -> AtK:
    """Mean of `values` under soft best-of-k: of k samples, i is chosen with probability ∝ exp(scores_i / beta).

    scores, values: [problems, samples]. beta → 0 is `mean_best_of_k`, beta → ∞ the mean. Over subsets as
    `majority_at_k`, of those in which a sample has a score; NaN for a problem without scores. (Verdun et al. 2025, Soft
    Best-of-n Sampling.) Raises InputError for shapes that differ, k outside 1 … N, beta ≤ 0, an infinite score, or a
    scored sample without a finite value.
    """
    scores, values = np.asarray(scores, dtype=np.float64), np.asarray(values, dtype=np.float64)
    _check(ks, scores, values)
    if not 0.0 < beta < np.inf or np.isinf(scores).any():
        what = f"beta={beta!r}" if not 0.0 < beta < np.inf else "a score is infinite"
        raise InputError(f"soft best-of-k: {what}; expected 0 < beta < ∞ and finite scores, NaN for none")
    known = _has_score(scores, values)

    def outcome(entries: tuple[NDArray[Any], ...], rows: slice) -> Floats:
        score, value = (np.asarray(a, dtype=np.float64) for a in entries)
        top = score.max(axis=-1, keepdims=True)
        share = np.exp((score - np.where(np.isinf(top), 0.0, top)) / beta)
        total = share.sum(axis=-1)
        return np.asarray((share * value).sum(axis=-1) / np.where(total > 0.0, total, np.nan))

    arrays = np.where(known, scores, -np.inf), np.where(known, values, 0.0)
    return _average(Job(arrays, outcome, ks), scores.shape, rng, subsets)


def mbr_at_k(
    utility: ArrayLike, correct: ArrayLike, ks: Sequence[int], rng: np.random.Generator, subsets: int = 200
) -> AtK:
    """Accuracy of minimum Bayes risk decoding among k samples: argmax_i∈S Σ_j∈S u(y_i, y_j) of each subset S.

    utility: [problems, n, n], u(y, y′) of hypothesis and reference (itself included). correct: [problems, n]. Over
    subsets as `majority_at_k`; samples that tie share the win. Raises InputError for shapes that do not fit, k outside
    1 … N, or utilities that are NaN or infinite.
    """
    u, right = np.asarray(utility), np.asarray(correct, dtype=np.float64)
    _check(ks, right)
    problems, n = right.shape
    if u.shape != (problems, n, n) or not np.isfinite(u).all():
        raise InputError(
            f"MBR with utility {u.shape}, {int((~np.isfinite(u)).sum())} of it not finite, and correct {right.shape}: "
            "expected finite [problems, n, n] and [problems, n]"
        )

    def outcome(entries: tuple[NDArray[Any], ...], rows: slice) -> Floats:
        place, value = np.asarray(entries[0], dtype=np.int64), np.asarray(entries[1], dtype=np.float64)
        inside = np.zeros((*place.shape[:2], n))
        np.put_along_axis(inside, place, 1.0, axis=-1)
        gathered = np.take_along_axis(inside @ u[rows].transpose(0, 2, 1).astype(np.float64), place, axis=-1)
        slack = TIE * np.abs(gathered).max(axis=-1, keepdims=True)
        best = gathered >= gathered.max(axis=-1, keepdims=True) - slack
        return np.asarray((best * value).sum(axis=-1) / best.sum(axis=-1))

    places = np.broadcast_to(np.arange(n), right.shape)
    return _average(Job((places, right), outcome, ks), right.shape, rng, subsets)


def subset_share(n: int, k: int) -> Floats:
    """C(m, k) / C(n, k) for m = 0 … n, [n + 1]: the share of k-subsets that lie within m given samples."""
    from scipy.special import gammaln  # which every run would wait for

    m = np.arange(n + 1, dtype=np.float64)
    inside = np.maximum(m - k, 0.0)
    log_share = (gammaln(m + 1) - gammaln(inside + 1)) - (gammaln(n + 1) - gammaln(n - k + 1))
    return np.asarray(np.where(m < k, 0.0, np.exp(log_share)))


def _votes(
    classes: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    rng: np.random.Generator,
    weights: Mapping[str, ArrayLike | None],
    subsets: int | None,
    exact: bool | None,
) -> dict[str, AtK]:
    """Votes by name: plain ones in closed form where that is wanted, the others over the same subsets."""
    if exact and subsets is not None:
        raise InputError(f"subsets={subsets!r}: exact=True draws no subsets; leave one of both out")
    ids, right = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=bool)
    given = {name: None if w is None else np.asarray(w, dtype=np.float64) for name, w in weights.items()}
    _check(ks, ids, right, *(w for w in given.values() if w is not None))
    problems, n = ids.shape
    draws = Draws.of(problems, subsets)
    many = [k for k in ks if not draws.enumerates(n, k)]
    found = {name: (np.zeros((len(ks), problems)), np.zeros((len(ks), problems))) for name in given}
    jobs, width = {}, 1
    for name, w in given.items():
        ballots = Ballots.of(ids, right, w)
        width = max(width, ballots.none)
        closed = exact if exact is not None else subsets is None and ballots.equal
        if exact and many and not ballots.equal:
            raise InputError(
                "exact=True: the scores of a problem differ, or are 0, and the closed form counts votes alone; leave "
                "exact out, or give equal scores"
            )
        if closed and many and (exact or majority_work(ballots) <= WORK):
            found[name][0][[k in many for k in ks]] = majority_exact(ballots, many)
            jobs[name] = ballots.job([k for k in ks if k not in many])
        else:
            jobs[name] = ballots.job(ks)
    for name, (accuracy, error) in averages(jobs, problems, n, draws, rng, width).items():
        at = [i for i, k in enumerate(ks) if k in jobs[name].ks]
        found[name][0][at], found[name][1][at] = accuracy, error
    return {name: AtK(tuple(ks), *both) for name, both in found.items()}


def _average(job: Job, shape: tuple[int, ...], rng: np.random.Generator, subsets: int | None) -> AtK:
    problems, n = shape
    return AtK(tuple(job.ks), *averages({"": job}, problems, n, Draws.of(problems, subsets), rng)[""])


def _has_score(scores: Floats, values: Floats) -> Bools:
    """Which samples have a score. InputError if one of them has no finite value."""
    known = ~np.isnan(scores)
    lost = known & ~np.isfinite(values)
    if lost.any():
        problem, sample = (int(i) for i in np.argwhere(lost)[0])
        raise InputError(
            f"{int(lost.sum())} samples have a score and no finite value, such as problem {problem}, sample {sample}; "
            "give them NaN as score to leave them out"
        )
    return known


def _check(ks: Sequence[int], *arrays: NDArray[np.generic]) -> None:
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1 or any(len(s) != 2 or 0 in s for s in shapes):
        raise InputError(
            f"expected arrays of one shape [problems, samples], none empty; got {sorted(shapes)}"
        )
    n = arrays[0].shape[1]
    if not ks or any(not 1 <= k <= n for k in ks):
        raise InputError(f"ks={list(ks)!r}: expected subset sizes between 1 and the pool's {n} samples")
