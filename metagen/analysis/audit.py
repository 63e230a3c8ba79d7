"""Counts over recorded samples: repeats, ties, classes that verdicts contradict, and the order of the file.

Arrays are [samples], problems one after another or in any order. Problems may be added part by part (`Auditing`); of a
part only counts and some numbers of each problem are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import fsum, inf, nan, sqrt
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
#: Different values of a score up to which they are counted.
MANY: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of recorded pools; all arrays are [samples].

    problem: its number, from 0. key: the class of its answer, equal for equal answers of a problem; −1 without one.
    correct: its verdict. text: equal for equal texts. length: of the text, in characters, 0 for an empty one.
    position: in its problem's part of the file, from 0. scores: by name, NaN for none. cut: whether the sample reached
    its length limit within its thought, so that its text is empty; None if no sample did. written: length of thought
    and text together, in characters, where `text` names both; None where samples have no thought.
    Raises InputError for arrays of different lengths.
    """

    problem: Ints
    key: Ints
    correct: Bools
    text: Ints
    length: Ints
    position: Ints
    scores: Mapping[str, Floats] = field(default_factory=dict)
    cut: Bools | None = None
    written: Ints | None = None

    def __post_init__(self) -> None:
        known = [one for one in (self.cut, self.written) if one is not None]
        arrays = (
            *known,
            self.key,
            self.correct,
            self.text,
            self.length,
            self.position,
            *self.scores.values(),
        )
        if {len(one) for one in arrays} - {len(self.problem)}:
            raise InputError(
                f"arrays of {len(self.problem)} and {sorted({len(one) for one in arrays})} samples; expected one entry "
                "a sample in each"
            )


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of verdicts along the file.

    first, last: shares of right samples in the first and last quarters of problems.

    z: Σ (position − mean)·(verdict − mean), summed over problems, in standard deviations under all orders of each
    problem's samples; negative where right samples come first.
    """

    z: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Scores:
    """The values of one recorded score.

    missing: samples without it. distinct: different values; None for more than `MANY`. top, highest: the share of
    scores that are the highest of all, and that value; bottom, lowest alike. tied: problems whose highest score several
    samples share; contested: of these, problems in which right and wrong samples do. order: +1 where problems are
    sorted by it, lowest first, −1 highest first, 0 otherwise.
    """

    missing: int
    distinct: int | None
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
        return (self.distinct is None or self.distinct > 2) and max(self.top, self.bottom) >= MUCH


@dataclass(frozen=True, slots=True)
class Audit:
    """Counts that a reader of the figures should know.

    unread: samples with a text and without an answer. empty: samples without a text. cut: samples that ended within
    their thought; they count in neither. mixed: classes of answers with right and wrong samples; mixed_problems: the
    problems that have one; split: problems whose right samples are of several classes. repeated:
    samples whose text an earlier one of their problem has; repeated_long: of these, with `LONG` characters or more.
    fewest, most: samples of a problem; fewer: problems with fewer than most. by_length: as `Scores.order`, of lengths.
    unread_at: up to three samples without an answer, of different problems where there are. mixed_at: a sample of the
    largest mixed class. fewest_at: a sample of a problem with the fewest. Places in the arrays, part after part.
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
    fewest_at: int = 0
    cut: int = 0


def audit(samples: Samples) -> Audit:
    """The counts of one pool. InputError for no samples."""
    auditing = Auditing()
    auditing.add(samples)
    return auditing.result


class Auditing:
    """The counts of a pool that is added part by part; each part has all samples of its problems."""

    def __init__(self) -> None:
        self._samples = self._unread = self._empty = self._cut = 0
        self._mixed = self._mixed_problems = self._split = self._repeated = self._repeated_long = 0
        self._sizes: Counter[int] = Counter()
        #: A sample of the first problem with the fewest, and of the first of the largest mixed classes; each with what
        #: it is chosen by.
        self._least: tuple[int, int, int] | None = None
        self._largest: tuple[int, int, int] | None = None
        #: Of the first problems with an unread sample their first ones, and the first of all.
        self._unread_first: dict[int, int] = {}
        self._unread_any: list[int] = []
        self._trend = _Trend()
        self._by_length = _Order()
        self._scores: dict[str, _Score] = {}

    def add(self, samples: Samples, at: Ints | None = None) -> None:
        """Add samples of other problems. at: [samples], ascending names for the places of these samples."""
        if not len(samples.problem):
            return
        places = np.arange(self._samples, self._samples + len(samples.problem)) if at is None else at
        numbers, dense, sizes = np.unique(samples.problem, return_inverse=True, return_counts=True)
        samples = replace(samples, problem=dense.reshape(-1))
        self._samples += len(dense)
        self._sizes.update(sizes.tolist())
        smallest = int(np.argmin(sizes))
        least = (int(sizes[smallest]), int(numbers[smallest]), int(places[np.argmax(dense == smallest)]))
        self._least = least if self._least is None else min(self._least, least)
        unread = (samples.key < 0) & (samples.length > 0)
        self._examples(np.flatnonzero(unread), numbers[samples.problem], places)
        self._unread += int(unread.sum())
        cut = 0 if samples.cut is None else int(samples.cut.sum())
        self._cut += cut
        self._empty += int((samples.length == 0).sum()) - cut
        mixed, mixed_problems, largest, split = _classes(samples)
        self._mixed += mixed
        self._mixed_problems += mixed_problems
        self._split += split
        if largest is not None:
            size, sample = largest
            found = (-size, int(numbers[samples.problem[sample]]), int(places[sample]))
            self._largest = found if self._largest is None else min(self._largest, found)
        repeated = _repeats(samples)
        self._repeated += int(repeated.sum())
        self._repeated_long += int((repeated & (_lengths(samples) >= LONG)).sum())
        order = np.lexsort((samples.position, samples.problem))
        self._trend.add(samples, order)
        self._by_length.add(samples.length.astype(np.float64), samples.problem, order)
        for name, values in samples.scores.items():
            self._scores.setdefault(name, _Score()).add(values, samples, order)

    @property
    def result(self) -> Audit:
        """The counts so far. InputError for no samples."""
        if self._least is None:
            raise InputError("there are no samples to look at; expected at least one")
        most = max(self._sizes)
        chosen = [self._unread_first[problem] for problem in sorted(self._unread_first)]
        chosen += [one for one in self._unread_any if one not in chosen]
        return Audit(
            problems=self._sizes.total(),
            samples=self._samples,
            unread=self._unread,
            empty=self._empty,
            mixed=self._mixed,
            mixed_problems=self._mixed_problems,
            split=self._split,
            repeated=self._repeated,
            repeated_long=self._repeated_long,
            fewest=min(self._sizes),
            most=most,
            fewer=self._sizes.total() - self._sizes[most],
            trend=self._trend.result,
            by_length=self._by_length.result,
            scores={name: score.result for name, score in self._scores.items()},
            unread_at=tuple(chosen[:3]),
            mixed_at=None if self._largest is None else self._largest[2],
            fewest_at=self._least[2],
            cut=self._cut,
        )

    def _examples(self, unread: Ints, problems: Ints, places: Ints) -> None:
        """Keep the first unread samples, and the first of each of the first problems that have one."""
        numbers, first = np.unique(problems[unread], return_index=True)
        for number, one in zip(numbers[:3].tolist(), places[unread[first[:3]]].tolist(), strict=True):
            self._unread_first[number] = one
        self._unread_first = {number: self._unread_first[number] for number in sorted(self._unread_first)[:3]}
        self._unread_any = [*self._unread_any, *places[unread[:3]].tolist()][:3]


class _Trend:
    """Sums over problems, and verdicts of their first and last quarters."""

    def __init__(self) -> None:
        self._sums, self._spread = array("d"), array("d")
        self._ends = [[0, 0], [0, 0]]

    def add(self, samples: Samples, order: Ints) -> None:
        row, correct = samples.problem[order], samples.correct[order].astype(np.float64)
        sizes = np.bincount(row)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        place = np.arange(len(row)) - starts[row]
        centred = place - (sizes[row] - 1) / 2
        means = np.bincount(row, weights=correct) / sizes
        self._sums.extend(np.bincount(row, weights=centred * (correct - means[row])))
        self._spread.extend(
            np.bincount(row, weights=centred**2) * sizes * means * (1 - means) / np.maximum(sizes - 1, 1)
        )
        relative = (place + 0.5) / sizes[row]
        for end, there in zip(self._ends, (relative <= 0.25, relative >= 0.75), strict=True):
            end[0] += int(correct[there].sum())
            end[1] += int(there.sum())

    @property
    def result(self) -> Trend | None:
        """None where no problem has right and wrong samples."""
        variance = fsum(self._spread)
        if not variance > 0:
            return None
        first, last = (right / count if count else nan for right, count in self._ends)
        return Trend(fsum(self._sums) / sqrt(variance), first, last)


class _Order:
    """Whether nearly all problems are sorted by some values.

    Problems with fewer than `ORDERED` known values, or with fewer than three different ones in a row, say nothing; nor
    do fewer than `PROBLEMS` problems.
    """

    def __init__(self) -> None:
        self._telling = self._up = self._down = 0

    def add(self, values: Floats, problem: Ints, order: Ints) -> None:
        kept = order[~np.isnan(values[order])]
        ours, known = problem[kept], values[kept]
        step = np.diff(known)
        within = ours[1:] == ours[:-1]
        size = np.bincount(ours, minlength=1)
        width = len(size)
        up, down = (np.bincount(ours[1:][within & there], minlength=width) for there in (step > 0, step < 0))
        telling = (size >= ORDERED) & (up + down > 1)
        self._telling += int(telling.sum())
        self._up += int(((down == 0) & telling).sum())
        self._down += int(((up == 0) & telling).sum())

    @property
    def result(self) -> int:
        """+1 where they are sorted lowest first; −1 highest first; 0 otherwise."""
        if self._telling < PROBLEMS:
            return 0
        shares = self._up / self._telling, self._down / self._telling
        return 1 if shares[0] >= NEARLY else -1 if shares[1] >= NEARLY else 0


class _Score:
    """Counts over the values of one score."""

    def __init__(self) -> None:
        self._missing = self._known = self._tied = self._contested = 0
        self._high, self._low, self._at_high, self._at_low = -inf, inf, 0, 0
        self._values: Floats | None = np.zeros(0)
        self._order = _Order()

    def add(self, values: Floats, samples: Samples, order: Ints) -> None:
        there = ~np.isnan(values)
        known, problem, correct = values[there], samples.problem[there], samples.correct[there]
        self._missing += int((~there).sum())
        self._order.add(values, samples.problem, order)
        if not known.size:
            return
        self._known += known.size
        best = np.full(int(problem.max()) + 1, -np.inf)
        np.maximum.at(best, problem, known)
        at_best = known == best[problem]
        sharing = np.bincount(problem[at_best], minlength=len(best))
        right = np.bincount(problem[at_best], weights=correct[at_best], minlength=len(best))
        self._tied += int((sharing > 1).sum())
        self._contested += int(((right > 0) & (right < sharing)).sum())
        high, low = float(known.max()), float(known.min())
        if high >= self._high:
            self._at_high = int((known == high).sum()) + (self._at_high if high == self._high else 0)
            self._high = high
        if low <= self._low:
            self._at_low = int((known == low).sum()) + (self._at_low if low == self._low else 0)
            self._low = low
        if self._values is not None:
            values = np.union1d(self._values, known)
            self._values = values if len(values) <= MANY else None

    @property
    def result(self) -> Scores:
        if not self._known:
            return Scores(self._missing, 0, nan, nan, nan, nan, 0, 0, 0)
        return Scores(
            missing=self._missing,
            distinct=None if self._values is None else len(self._values),
            top=self._at_high / self._known,
            highest=self._high,
            bottom=self._at_low / self._known,
            lowest=self._low,
            tied=self._tied,
            contested=self._contested,
            order=self._order.result,
        )


def _classes(samples: Samples) -> tuple[int, int, tuple[int, int] | None, int]:
    """Mixed classes, the problems that have one, the largest, and problems with several right classes.

    The largest: its size, and a sample of it.
    """
    there = np.flatnonzero(samples.key >= 0)
    if not there.size:
        return 0, 0, None, 0
    there = there[np.lexsort((samples.key[there], samples.problem[there]))]
    problem, key = samples.problem[there], samples.key[there]
    begins = np.flatnonzero(np.r_[True, (problem[1:] != problem[:-1]) | (key[1:] != key[:-1])])
    size = np.diff(np.r_[begins, len(there)])
    right = np.add.reduceat(samples.correct[there].astype(np.int64), begins)
    both = (right > 0) & (right < size)
    largest = None
    if both.any():
        at = int(np.argmax(np.where(both, size, 0)))
        largest = int(size[at]), int(there[begins[at]])
    classes = np.bincount(problem[begins[right > 0]])
    return int(both.sum()), len(np.unique(problem[begins[both]])), largest, int((classes > 1).sum())


def _repeats(samples: Samples) -> Bools:
    """Samples whose text, with its thought, an earlier one of their problem has; an empty one repeats nothing."""
    order = np.lexsort((samples.position, samples.text, samples.problem))
    same = np.zeros(len(order), dtype=bool)
    problem, text = samples.problem[order], samples.text[order]
    same[1:] = (problem[1:] == problem[:-1]) & (text[1:] == text[:-1])
    found = np.zeros(len(order), dtype=bool)
    found[order] = same
    return np.asarray(found & (_lengths(samples) > 0))


def _lengths(samples: Samples) -> Ints:
    return samples.length if samples.written is None else samples.written
