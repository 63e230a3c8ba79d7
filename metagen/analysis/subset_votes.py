"""Averages over k-subsets of a pool: how subsets are drawn, how a vote in each is counted, and majority in closed form.

A random permutation of a pool, cut into blocks of k, gives disjoint k-subsets: each is as random as any, blocks of a k
that divides another lie within its blocks, and one permutation serves every k and every rule. Independent permutations
tell the error.
Arrays are those of `estimators`, [problems, samples].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Cells of the largest temporary array (8 bytes each).
CELLS = 2_000_000
#: Totals of votes closer than this, relative to the winner's, are a tie: sums of floats differ by order.
TIE = 1e-9
#: Permutations of a pool, at least; and blocks of one permutation that are used for one k, about.
PERMUTATIONS = 8
#: Multiplications beyond which a closed form is not worth its time.
WORK = 1e9
#: Samples beyond which numbers of subsets leave the range of floats.
MOST_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Draws:
    """The number of random subsets: at most `subsets` for each k, from as few permutations as still tell the error."""

    permutations: int
    subsets: int

    @classmethod
    def of(cls, problems: int, subsets: int | None) -> Draws:
        """subsets=None: 64 for very many problems, whose errors average out, up to 512 for few.

        Raises InputError for fewer than 2 subsets.
        """
        if subsets is None:
            subsets = max(64, min(512, 2**19 // problems))
        elif subsets < 2:
            raise InputError(f"subsets={subsets!r}: expected at least 2, to know the Monte-Carlo error")
        return cls(min(subsets, max(PERMUTATIONS, subsets // PERMUTATIONS)), subsets)

    def enumerates(self, n: int, k: int) -> bool:
        """Whether there are so few subsets that all are counted."""
        return comb(n, k) <= max(self.subsets, n)

    def blocks(self, n: int, k: int) -> int:
        """Disjoint subsets of size k that one permutation gives."""
        return min(n // k, self.subsets // self.permutations)


@dataclass(frozen=True, slots=True)
class Job:
    """Values to average. arrays: [problems, n] each. outcome: their entries in subsets, [rows, subsets, k] each, and
    the rows → a number for each subset, [rows, subsets]; NaN if there is none. ks: sizes.
    """

    arrays: tuple[NDArray[Any], ...]
    outcome: Callable[[tuple[NDArray[Any], ...], slice], Floats]
    ks: Sequence[int]


def averages(
    jobs: Mapping[str, Job], problems: int, n: int, draws: Draws, rng: np.random.Generator, width: int = 1
) -> dict[str, tuple[Floats, Floats]]:
    """Mean outcome over subsets and its standard error, [len(job.ks), problems] each; all jobs share the subsets.

    Subsets without an outcome are left out; NaN where none has one. width: of what an outcome builds for a subset.
    """
    found = {
        name: (np.zeros((len(j.ks), problems)), np.zeros((len(j.ks), problems))) for name, j in jobs.items()
    }
    every = {k for job in jobs.values() for k in job.ks}
    listed = {k: _all_subsets(n, k) for k in every if draws.enumerates(n, k)}
    step = max(1, CELLS // (max(draws.subsets, n) * max(width, n)))
    for start in range(0, problems, step):
        rows = slice(start, min(start + step, problems))
        size = rows.stop - start
        # Places of the chunk's samples in one line, shuffled within each pool.
        places = rng.permuted(
            np.broadcast_to(np.arange(n), (size, 0 if len(listed) == len(every) else draws.permutations, n)),
            axis=-1,
        )
        places += np.arange(size)[:, None, None] * n
        for name, job in jobs.items():
            pools = [array[rows] for array in job.arrays]
            shuffled = [pool.reshape(-1)[places] for pool in pools]
            for i, k in enumerate(job.ks):
                if k in listed:
                    got = job.outcome(tuple(pool[:, listed[k]] for pool in pools), rows)[:, None, :]
                else:
                    blocks = draws.blocks(n, k)
                    shape = (size, draws.permutations * blocks, k)
                    got = job.outcome(tuple(a[..., : blocks * k].reshape(shape) for a in shuffled), rows)
                    got = got.reshape(size, draws.permutations, blocks)
                found[name][0][i, rows], found[name][1][i, rows] = _mean(got)
    return found


def _all_subsets(n: int, k: int) -> Ints:
    """[C(n, k), k]."""
    return np.array(list(combinations(range(n), k)), dtype=np.int64)


def _mean(outcomes: Floats) -> tuple[Floats, Floats]:
    """Mean of [rows, permutations, blocks] and its error from independent permutations; 0 for one, which is all."""
    there = ~np.isnan(outcomes)
    total = np.where(there, outcomes, 0.0).mean(axis=2)
    share = there.mean(axis=2)
    known = share.mean(axis=1)
    with np.errstate(invalid="ignore"):
        mean = total.mean(axis=1) / known
    repeats = outcomes.shape[1]
    if repeats == 1:
        return mean, np.where(known > 0.0, 0.0, np.nan)
    rest = total - mean[:, None] * share  # the error of a ratio, linearised; the share is 1 as a rule
    with np.errstate(invalid="ignore"):
        return mean, rest.std(axis=1, ddof=1) / known / np.sqrt(repeats)


# ----------------------------------------------------------------------------------------------- counting votes


@dataclass(frozen=True, slots=True, eq=False)
class Ballots:
    """Classes of each problem as 0, 1, …; the last id, `none`, is "no answer".

    ids: [problems, samples]. right: [problems, none], how right the members of a class are on average.
    weights: [problems, samples], or None where every vote counts one.
    """

    ids: Ints
    right: Floats
    weights: Floats | None = None

    @classmethod
    def of(cls, classes: Ints, correct: NDArray[np.generic], weights: Floats | None = None) -> Ballots:
        """From arrays [problems, samples]. weights: NaN is "no vote".

        Raises InputError for weights that are negative or infinite.
        """
        if weights is not None:
            bad = (weights < 0) | np.isinf(weights)
            if bad.any():
                raise InputError(
                    f"weighted voting: a score of {weights[bad][0]!r}; map scores to [0, 1], NaN where there is none"
                )
            classes, weights = np.where(np.isnan(weights), -1, classes), np.nan_to_num(weights)
        classes = np.maximum(classes, -1)
        order = np.argsort(classes, axis=1, kind="stable")
        ranked = np.take_along_axis(classes, order, axis=1)
        dense = np.cumsum(np.diff(ranked, axis=1, prepend=-1) != 0, axis=1)  # from 1; 0 is "no answer"
        none = max(int(dense.max()), 1)  # one class at least, even if nobody votes
        ids = np.empty_like(order)
        np.put_along_axis(ids, order, np.where(dense > 0, dense - 1, none), axis=1)
        members = _totals(ids, None, none)
        hits = _totals(ids, np.asarray(correct, dtype=np.float64), none)
        return cls(ids, hits / np.maximum(members, 1), weights)

    @property
    def none(self) -> int:
        return int(self.right.shape[1])

    @property
    def counts(self) -> Ints:
        """Members of each class, [problems, none]."""
        return _totals(self.ids, None, self.none).astype(np.int64)

    @property
    def equal(self) -> bool:
        """Whether every vote of a problem has the same weight, above 0, so that the vote is a plain one."""
        if self.weights is None:
            return True
        votes = self.ids < self.none
        lightest = np.where(votes, self.weights, np.inf).min(axis=1)
        heaviest = np.where(votes, self.weights, -np.inf).max(axis=1)
        return bool((heaviest <= lightest).all() and lightest.min() > 0.0)

    def job(self, ks: Sequence[int]) -> Job:
        """The accuracy of the class with the largest total, [rows, subsets]."""
        if self.weights is None:
            return Job((self.ids,), lambda a, rows: _tally(a[0], None, self.right[rows]), ks)
        return Job((self.ids, self.weights), lambda a, rows: _tally(a[0], a[1], self.right[rows]), ks)


def winners(voted: Ints, weights: Floats | None, none: int) -> Bools:
    """Which classes tie for the largest total along the last axis, [..., none]; no class where nobody votes.

    Where all weights are 0, the classes that are there tie.
    """
    totals = _totals(voted, weights, none)
    top = totals.max(axis=-1, keepdims=True)
    if weights is not None and (idle := top[..., 0] == 0.0).any():
        totals[idle] = _totals(voted[idle], None, none) > 0
        top = totals.max(axis=-1, keepdims=True)
    return np.asarray(totals >= np.where(top > 0, top * (1.0 - TIE), np.inf))


def _tally(voted: Ints, weights: Floats | None, right: Floats) -> Floats:
    """Expected accuracy of the vote in each subset, [rows, subsets]; voted [rows, subsets, k], right [rows, none]."""
    none = right.shape[1]
    if voted.shape[-1] ** 2 <= none:  # fewer pairs of votes than classes
        return _tally_pairs(voted, weights, right)
    won = winners(voted, weights, none).astype(np.float64)
    both = won @ np.stack([right, np.ones_like(right)], axis=-1)  # what is right of them, and how many
    return np.asarray(both[..., 0] / np.maximum(both[..., 1], 1.0))


def _tally_pairs(voted: Ints, weights: Floats | None, right: Floats) -> Floats:
    """As `_tally`, by comparing each vote with each: every vote knows the total of its class."""
    none = right.shape[1]
    votes = voted < none
    same = (voted[..., :, None] == voted[..., None, :]) & votes[..., None, :]
    members = same.sum(axis=-1)
    totals = members.astype(np.float64) if weights is None else (same * weights[..., None, :]).sum(axis=-1)
    totals[~votes] = 0.0
    top = totals.max(axis=-1, keepdims=True)
    if weights is not None:
        totals = np.where(top > 0.0, totals, votes)
        top = totals.max(axis=-1, keepdims=True)
    share = (totals >= np.where(top > 0, top * (1.0 - TIE), np.inf)) / np.maximum(members, 1)
    value = np.take_along_axis(right[:, None, :], np.minimum(voted, none - 1), axis=-1)
    return np.asarray((share * value).sum(axis=-1) / np.maximum(share.sum(axis=-1), 0.5))


def _totals(voted: Ints, weights: Floats | None, none: int) -> Floats:
    """Sum of weights of each id along the last axis, without the last id, "no answer"."""
    lines = voted.reshape(-1, voted.shape[-1])
    cells = (lines + (np.arange(len(lines)) * (none + 1))[:, None]).ravel()
    given = None if weights is None else weights.ravel()
    totals = np.bincount(cells, weights=given, minlength=len(lines) * (none + 1))
    return np.asarray(totals.reshape(*voted.shape[:-1], none + 1)[..., :-1])


# ----------------------------------------------------------------------------------------- majority in closed form


def majority_work(ballots: Ballots) -> float:
    """Multiplications that `majority_exact` takes, about; infinite for pools that are too large for floats."""
    n = ballots.ids.shape[1]
    if n > MOST_SAMPLES:
        return float("inf")
    own, others, _ = _races(ballots)
    return _work(own, others, n)


def _work(own: Ints, others: Ints, n: int) -> float:
    work = 0.0
    for t in range(1, int(own.max(initial=0)) + 1):
        rivals = (others[own >= t] >= t).sum(axis=1)
        work += float(((rivals * (t + 1) + 2) * (rivals // 2 + 1)).sum()) * (n - t + 1)
    return work


class InClosedForm:
    """Whether votes over many problems, told in parts, are plain and their closed form is worth its time.

    As `estimators.majority_at_k` decides it of all at once.
    """

    def __init__(self) -> None:
        self.possible = True
        self._work, self._seen = 0.0, set[bytes]()

    def add(self, ballots: Ballots) -> None:
        """Votes of other problems, with as many samples each."""
        n = ballots.ids.shape[1]
        if not self.possible or not ballots.equal or n > MOST_SAMPLES:
            self.possible = False
            return
        own, others, _ = _races(ballots)
        new = []
        for race, (ours, theirs) in enumerate(zip(own, others, strict=True)):
            name = ours.tobytes() + theirs[theirs > 0].tobytes()
            if name not in self._seen:
                self._seen.add(name)
                new.append(race)
        self._work += _work(own[new], others[new], n)
        self.possible = self._work <= WORK


def majority_exact(ballots: Ballots, ks: Sequence[int]) -> Floats:
    """Expected accuracy of the plain majority among k samples, over all subsets, [len(ks), problems].

    A class with c members wins with t votes if every other class has at most t; ties are split evenly. Of the subsets
    with t of it, rival b with N_b members contributes Σ_{j<t} C(N_b, j) xʲ + u·C(N_b, t) xᵗ; the coefficient of
    x^(k−t) in the product over all rivals, integrated over u from 0 to 1, is the number of won subsets, each with
    1/(1 + ties) since ∫uʲdu = 1/(1+j). Gauss–Legendre quadrature is exact for these polynomials, and no term is
    negative. Raises InputError for more than MOST_SAMPLES samples.
    """
    n = ballots.ids.shape[1]
    if n > MOST_SAMPLES:
        raise InputError(
            f"majority in closed form of {n} samples: expected at most {MOST_SAMPLES}; use exact=False"
        )
    own, others, (problem, label, race) = _races(ballots)
    value = _wins(own, others, n, ks)[:, race] * ballots.right[problem, label]
    size = len(ballots.ids)
    return np.clip([np.bincount(problem, weights=row, minlength=size) for row in value], 0.0, 1.0)


def _races(ballots: Ballots) -> tuple[Ints, Ints, tuple[Ints, Ints, Ints]]:
    """Races of a class that is ever right, each of its kind once: its members, and those of the others, descending.

    And where they are run: problem, class, and number of the race.
    """
    counts = ballots.counts
    problem, label = np.nonzero(ballots.right > 0.0)
    others = counts[problem]
    own = others[np.arange(len(problem)), label]
    others[np.arange(len(problem)), label] = 0
    table, race = np.unique(np.column_stack([own, -np.sort(-others, axis=1)]), axis=0, return_inverse=True)
    return table[:, 0], table[:, 1:], (problem, label, race.reshape(-1))


def _wins(own: Ints, others: Ints, n: int, ks: Sequence[int]) -> Floats:
    """Share of k-subsets that each race is won in, ties split, [len(ks), races]."""
    choose = _pascal(n)
    won = np.zeros((len(ks), len(own)))
    for t in range(1, min(int(own.max(initial=0)), max(ks)) + 1):
        rivals = (others >= t).sum(axis=1)
        for m in np.unique(rivals[own >= t]):
            races = np.flatnonzero((own >= t) & (rivals == m))
            step = max(1, CELLS // ((m // 2 + 1) * (n + 1)))
            for chunk in (races[i : i + step] for i in range(0, len(races), step)):
                inside = _subsets_within(own[chunk], others[chunk, :m], t, n, max(ks) - t, choose)
                for i, k in enumerate(ks):
                    if k >= t:
                        won[i, chunk] += choose[own[chunk], t] * inside[:, k - t] / choose[n, k]
    return won


def _subsets_within(own: Ints, rivals: Ints, t: int, n: int, degree: int, choose: Floats) -> Floats:
    """Numbers of ways to add 0 … degree other samples, none of which has more than t, ties split; [races, degree + 1].

    rivals: members of those with at least t. All others are free: too few to reach t, or without an answer.
    """
    u, share = np.polynomial.legendre.leggauss(rivals.shape[1] // 2 + 1)
    u, share = (u + 1.0) / 2.0, share / 2.0
    free = n - own - rivals.sum(axis=1)
    ways = np.repeat(choose[free, : degree + 1][:, None, :], len(u), axis=1)
    for members in rivals.T:
        new = ways.copy()
        for j in range(1, min(t, degree) + 1):
            factor = choose[members, j][:, None, None] * (u[:, None] if j == t else 1.0)
            new[..., j:] += factor * ways[..., : degree + 1 - j]
        ways = new
    return np.asarray(np.einsum("q,rqd->rd", share, ways))


def _pascal(n: int) -> Floats:
    """C(i, j) for i, j = 0 … n; relative errors of 1e-13 at most."""
    table = np.zeros((n + 1, n + 1))
    table[:, 0] = 1.0
    for i in range(1, n + 1):
        table[i, 1:] = table[i - 1, 1:] + table[i - 1, :-1]
    return table
