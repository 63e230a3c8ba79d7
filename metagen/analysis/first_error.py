"""The place of the first wrong step, and how well a process reward model finds it (ProcessBench, Zheng et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError

Ints = NDArray[np.int64]
#: The place of the first error where there is none.
NONE = -1


@dataclass(frozen=True, slots=True)
class FirstError:
    """Accuracies of naming the first error.

    erroneous: share of solutions with an error whose right place is named; correct: share of those without an error
    for which no place is named; NaN without such solutions. within_one: of those with an error, the share in which the
    place is missed by one step at most. counts: numbers of solutions of both kinds.
    """

    threshold: float
    erroneous: float
    correct: float
    within_one: float
    counts: tuple[int, int]

    @property
    def f1(self) -> float:
        """The harmonic mean of the two accuracies: ProcessBench's figure."""
        both = self.erroneous + self.correct
        return 2.0 * self.erroneous * self.correct / both if both else 0.0 if both == 0.0 else float("nan")


def first_below(steps: Sequence[ArrayLike], threshold: float) -> Ints:
    """The first step of each solution, from 0, that scores below the threshold, [solutions]; −1 if none does.

    steps: the scores of each solution's steps, [steps] each. NaN is never below the threshold.
    """
    marks = [np.flatnonzero(np.asarray(s, dtype=np.float64) < threshold) for s in steps]
    return np.array([m[0] if m.size else NONE for m in marks], dtype=np.int64)


def first_error(steps: Sequence[ArrayLike], truth: ArrayLike, *, threshold: float = 0.5) -> FirstError:
    """Compare the first step below the threshold with the first wrong step of each solution.

    steps: the scores of each solution's steps, [steps] each. truth: [solutions], the place of the first wrong step,
    from 0; −1 if all are right. Raises InputError for lengths that differ, no solutions, and places that a solution
    does not have.
    """
    places = _truth(steps, truth)
    named = first_below(steps, threshold)
    wrong = places != NONE
    near = wrong & (named != NONE) & (np.abs(named - places) <= 1)
    return FirstError(
        threshold,
        _share(named == places, wrong),
        _share(named == NONE, ~wrong),
        _share(near, wrong),
        (int(wrong.sum()), int((~wrong).sum())),
    )


def best_threshold(steps: Sequence[ArrayLike], truth: ArrayLike) -> float:
    """The threshold of the highest F1, in the middle between two scores; of several the lowest.

    steps, truth: as of `first_error`, [steps] of each solution and [solutions]. Choose it on other solutions than those
    that are reported. Raises InputError as `first_error`, and where solutions with and without errors are not both
    there, or no step has a score.
    """
    places = _truth(steps, truth)
    wrong = places != NONE
    if wrong.all() or not wrong.any():
        raise InputError("a threshold needs solutions with and without errors, and all are alike; give more")
    # The first step below a threshold moves only where the running minimum does: each step is first over one interval.
    found, clean = [], []
    for scores, place in zip(steps, places, strict=True):
        s = np.asarray(scores, dtype=np.float64)
        if place == NONE:
            clean.append(np.nanmin(s, initial=np.inf))
        else:
            found.append((s[place], np.nanmin(s[:place], initial=np.inf)))
    opens, closes = (np.sort([pair[i] for pair in found if pair[0] < pair[1]]) for i in (0, 1))
    seen = np.unique(np.concatenate([np.asarray(s, dtype=np.float64) for s in steps]))
    seen = seen[np.isfinite(seen)]
    if not seen.size:
        raise InputError(
            "a threshold needs steps with scores, and none has a finite one; score the steps first"
        )
    cuts = np.concatenate(([seen[0]], (seen[:-1] + seen[1:]) / 2.0, [np.nextafter(seen[-1], np.inf)]))
    hits = np.searchsorted(opens, cuts, side="left") - np.searchsorted(closes, cuts, side="left")
    erroneous = hits / wrong.sum()
    correct = 1.0 - np.searchsorted(np.sort(clean), cuts, side="left") / (~wrong).sum()
    both = erroneous + correct
    f1 = np.where(both > 0.0, 2.0 * erroneous * correct / np.where(both > 0.0, both, 1.0), 0.0)
    return float(cuts[int(np.argmax(f1))])


def _truth(steps: Sequence[ArrayLike], truth: ArrayLike) -> Ints:
    places = np.asarray(truth, dtype=np.int64)
    lengths = np.array([np.size(s) for s in steps], dtype=np.int64)
    if places.shape != lengths.shape or not lengths.size:
        raise InputError(
            f"{lengths.size} solutions and {places.size} places of first errors; expected one each"
        )
    if ((places < NONE) | (places >= lengths)).any():
        i = int(np.flatnonzero((places < NONE) | (places >= lengths))[0])
        raise InputError(
            f"solution {i} has {lengths[i]} steps, and its first error is said to be at {places[i]}; "
            "expected a place from 0, or -1 for none"
        )
    return places


def _share(hit: NDArray[np.bool_], among: NDArray[np.bool_]) -> float:
    return float(hit[among].mean()) if among.any() else float("nan")
