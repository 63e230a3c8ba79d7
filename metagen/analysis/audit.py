"""What recorded samples look like: repeats, ties, classes that verdicts contradict, and the order of the file.

Arrays in, counts out; each array has one entry a sample, problems one after another or in any order. Everything is
counted in one pass of sorts, O(N log N) for N samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError

Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: From so many characters on, two equal texts are hardly two draws.
LONG: Final = 80
#: |z| from which a trend is told: two-sided p < 0.001.
TOLD: Final = 3.29
#: A share of problems, or of scores, that is nearly all, and one that is much.
NEARLY: Final = 0.9
MUCH: Final = 0.5
#: Samples of a problem, and problems, below which an order says nothing.
ORDERED: Final = 4
PROBLEMS: Final = 8


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of recorded pools, one entry each.

    problem: its number, from 0. key: the class of its answer, equal for equal answers of a problem; −1 without one.
    correct: its verdict. text: equal for equal texts. length: of the text, in characters, 0 for an empty one.
    position: in its problem's part of the file, from 0. scores: by name, NaN for none.
    Raises InputError for arrays of different lengths.
    """

    problem: Ints
    key: Ints
    correct: Bools
    text: Ints
    length: Ints
    position: Ints
    scores: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = (self.key, self.correct, self.text, self.length, self.position, *self.scores.values())
        if {len(one) for one in arrays} - {len(self.problem)}:
            raise InputError(
                f"arrays of {len(self.problem)} and {sorted({len(one) for one in arrays})} samples; expected one entry "
                "a sample in each"
            )


@dataclass(frozen=True, slots=True)
class Trend:
    """How verdicts go along the file. first, last: shares of right samples in the first and last quarters of problems.

    z: Σ (position − mean)·(verdict − mean), summed over problems, in standard deviations under all orders of each
    problem's samples; negative where right samples come first.
    """

    z: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Scores:
    """What one recorded score can tell apart.

    missing: samples without it. distinct: different values. top, highest: the share of scores that are the highest
    value of all, and that value; bottom, lowest alike. tied: problems whose highest score several samples share;
    contested: of these, problems in which right and wrong samples do. order: +1 where problems are sorted by it,
    lowest first, −1 highest first, 0 otherwise.
    """

    missing: int
    distinct: int
    top: float
    highest: float
    bottom: float
    lowest: float
    tied: int
    contested: int
    order: int

    @property
    def saturated(self) -> bool:
        """Whether much of it stands at one end, although it has more than two values."""
        return self.distinct > 2 and max(self.top, self.bottom) >= MUCH


@dataclass(frozen=True, slots=True)
class Audit:
    """Counts of what a reader of the figures should know.

    unread: samples with a text and without an answer. empty: samples without a text. mixed: classes of answers with
    right and wrong samples, in mixed_problems; split: problems whose right samples are of several classes. repeated:
    samples whose text an earlier one of their problem has; repeated_long: of these, with `LONG` characters or more.
    fewest, most: samples of a problem; fewer: problems with fewer than most. by_length: as `Scores.order`, of lengths.
    unread_at: up to three samples without an answer, of different problems where there are. mixed_at: a sample of the
    largest mixed class. Places in the arrays.
    """

    problems: int
    samples: int
    unread: int
    empty: int
    mixed: int
    mixed_problems: int
    split: int
    repeated: int
    repeated_long: int
    fewest: int
    most: int
    fewer: int
    trend: Trend | None
    by_length: int
    scores: Mapping[str, Scores]
    unread_at: tuple[int, ...] = ()
    mixed_at: int | None = None


def audit(samples: Samples) -> Audit:
    """The counts of one pool. InputError for no samples."""
    if not len(samples.problem):
        raise InputError("there are no samples to look at; expected at least one")
    sizes = np.bincount(samples.problem)
    sizes = sizes[sizes > 0]
    unread = (samples.key < 0) & (samples.length > 0)
    mixed, mixed_problems, mixed_at, split = _classes(samples)
    repeated = _repeated(samples)
    order = np.lexsort((samples.position, samples.problem))
    return Audit(
        problems=len(sizes),
        samples=len(samples.problem),
        unread=int(unread.sum()),
        empty=int((samples.length == 0).sum()),
        mixed=mixed,
        mixed_problems=mixed_problems,
        split=split,
        repeated=int(repeated.sum()),
        repeated_long=int((repeated & (samples.length >= LONG)).sum()),
        fewest=int(sizes.min()),
        most=int(sizes.max()),
        fewer=int((sizes < sizes.max()).sum()),
        trend=_trend(samples, order),
        by_length=_sorted_by(samples.length.astype(np.float64), samples.problem, order),
        scores={name: _score(values, samples, order) for name, values in samples.scores.items()},
        unread_at=_examples(unread, samples.problem),
        mixed_at=mixed_at,
    )


def _classes(samples: Samples) -> tuple[int, int, int | None, int]:
    """Mixed classes, the problems that have one, a sample of the largest, and problems with several right classes."""
    there = np.flatnonzero(samples.key >= 0)
    if not there.size:
        return 0, 0, None, 0
    there = there[np.lexsort((samples.key[there], samples.problem[there]))]
    problem, key = samples.problem[there], samples.key[there]
    begins = np.flatnonzero(np.r_[True, (problem[1:] != problem[:-1]) | (key[1:] != key[:-1])])
    size = np.diff(np.r_[begins, len(there)])
    right = np.add.reduceat(samples.correct[there].astype(np.int64), begins)
    both = (right > 0) & (right < size)
    largest = int(there[begins[np.argmax(np.where(both, size, 0))]]) if both.any() else None
    classes = np.bincount(problem[begins[right > 0]])
    return int(both.sum()), len(np.unique(problem[begins[both]])), largest, int((classes > 1).sum())


def _repeated(samples: Samples) -> Bools:
    """Samples whose text an earlier one of their problem has; an empty text repeats nothing."""
    order = np.lexsort((samples.position, samples.text, samples.problem))
    same = np.zeros(len(order), dtype=bool)
    problem, text = samples.problem[order], samples.text[order]
    same[1:] = (problem[1:] == problem[:-1]) & (text[1:] == text[:-1])
    found = np.zeros(len(order), dtype=bool)
    found[order] = same
    return np.asarray(found & (samples.length > 0))


def _trend(samples: Samples, order: Ints) -> Trend | None:
    """None where no problem has right and wrong samples."""
    problem, correct = samples.problem[order], samples.correct[order].astype(np.float64)
    _, row, sizes = np.unique(problem, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(len(row)) - starts[row]
    centred = place - (sizes[row] - 1) / 2
    means = np.bincount(row, weights=correct) / sizes
    sums = np.bincount(row, weights=centred * (correct - means[row]))
    spread = np.bincount(row, weights=centred**2) * sizes * means * (1 - means) / np.maximum(sizes - 1, 1)
    variance = float(spread.sum())
    if not variance > 0:
        return None
    relative = (place + 0.5) / sizes[row]
    first, last = correct[relative <= 0.25], correct[relative >= 0.75]
    return Trend(float(sums.sum() / np.sqrt(variance)), _mean(first), _mean(last))


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _sorted_by(values: Floats, problem: Ints, order: Ints) -> int:
    """+1 where nearly all problems are sorted by these values, lowest first; −1 highest first; 0 otherwise.

    Problems with fewer than `ORDERED` known values, or with fewer than three different ones in a row, say nothing; nor
    do fewer than `PROBLEMS` problems.
    """
    kept = order[~np.isnan(values[order])]
    ours, known = problem[kept], values[kept]
    step = np.diff(known)
    within = ours[1:] == ours[:-1]
    size = np.bincount(ours, minlength=1)
    width = len(size)
    up, down = (np.bincount(ours[1:][within & there], minlength=width) for there in (step > 0, step < 0))
    telling = (size >= ORDERED) & (up + down > 1)
    if telling.sum() < PROBLEMS:
        return 0
    shares = [float(((other == 0) & telling).sum() / telling.sum()) for other in (down, up)]
    return 1 if shares[0] >= NEARLY else -1 if shares[1] >= NEARLY else 0


def _score(values: Floats, samples: Samples, order: Ints) -> Scores:
    there = ~np.isnan(values)
    known, problem, correct = values[there], samples.problem[there], samples.correct[there]
    if not known.size:
        nan = float("nan")
        return Scores(len(values), 0, nan, nan, nan, nan, 0, 0, 0)
    best = np.full(int(problem.max()) + 1, -np.inf)
    np.maximum.at(best, problem, known)
    at_best = known == best[problem]
    sharing = np.bincount(problem[at_best], minlength=len(best))
    right = np.bincount(problem[at_best], weights=correct[at_best], minlength=len(best))
    high, low = float(known.max()), float(known.min())
    return Scores(
        missing=int((~there).sum()),
        distinct=len(np.unique(known)),
        top=float((known == high).mean()),
        highest=high,
        bottom=float((known == low).mean()),
        lowest=low,
        tied=int((sharing > 1).sum()),
        contested=int(((right > 0) & (right < sharing)).sum()),
        order=_sorted_by(values, samples.problem, order),
    )


def _examples(there: Bools, problem: Ints) -> tuple[int, ...]:
    """Up to three samples, the first of different problems where there are so many."""
    at = np.flatnonzero(there)
    _, first = np.unique(problem[at], return_index=True)
    chosen: list[Any] = [*at[first][:3].tolist()]
    chosen += [one for one in at[:3].tolist() if one not in chosen]
    return tuple(chosen[:3])
