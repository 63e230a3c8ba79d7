"""What a recorded pool leaves unsaid, counted problem by problem: silent samples, unknown amounts, scales of scores."""

from __future__ import annotations

import json
from array import array
from collections import Counter, abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from math import fsum, inf
from statistics import fmean
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from metagen.errors import DataError, InputError
from metagen.generators.pool import AMOUNTS, COUNTS, Recorded
from metagen.generators.unit import UnitMap
from metagen.sequence import digest

Floats = NDArray[np.float64]
#: What becomes of a sample without a verdict where others have one, and of a call that failed.
Unknown = Literal["exclude", "wrong", "error"]
UNIT: Final = UnitMap("identity")
USUAL: Final = UnitMap("ranks")
#: What most models write around a thought.
MARKS: Final = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which samples of a pool count, and as what. judged: whether verdicts are recorded."""

    judged: bool
    unknown: Unknown = "exclude"
    scored: str | None = None

    def silent(self, r: Recorded) -> bool:
        """Whether it is a failed call, or lacks the verdict that others have."""
        return r.failed or (self.judged and r.correct is None)

    def select(self, samples: abc.Sequence[Recorded]) -> tuple[abc.Sequence[Recorded], abc.Sequence[int]]:
        """The samples that count, each with a verdict where verdicts are recorded, and their numbers."""
        plain = {id(r): not self.silent(r) for r in samples}
        numbers: abc.Sequence[int] = range(len(samples))
        if not all(plain.values()):
            if self.unknown == "wrong":
                wrong = {one: replace(r, correct=0.0) for r in samples if not plain[one := id(r)]}
                samples = [wrong.get(id(r), r) if self.judged else r for r in samples]
            else:
                numbers = [i for i, r in enumerate(samples) if plain[id(r)]]
                samples = [samples[i] for i in numbers]
        if self.scored is not None:
            there = [i for i, r in enumerate(samples) if r.scores.get(self.scored) is not None]
            numbers, samples = [numbers[i] for i in there], [samples[i] for i in there]
        return samples, numbers


@dataclass(slots=True)
class Amount:
    """A count or amount that a pool tells of its samples: of how many, and the sum of each problem."""

    known: int = 0
    sums: array[float] = field(default_factory=lambda: array("d"))
    some: bool = False

    def add(self, values: Iterable[Any]) -> None:
        known = [v for v in values if v is not None]
        if known:
            self.known += len(known)
            self.sums.append(fsum(known))
            self.some = self.some or any(known)


@dataclass(slots=True)
class Scale:
    """What a pool tells of one score. lost: different values that its map makes equal, of so many."""

    low: float = inf
    high: float = -inf
    lost: int = 0
    different: int = 0

    def add(self, known: Floats, given: UnitMap | None) -> None:
        if known.size:
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
        if given is not None:
            self.lost += given.count_ties(known)
            self.different += len(np.unique(known))


class Facts:
    """Counts over the problems of a pool, each of which is told once; little is kept of any.

    sizes: by problem, samples that count. left: the numbers of these, where others are left out. maps: those that were
    chosen, by score. thoughts: as of `PoolFile`.
    """

    def __init__(
        self, rule: Rule, maps: Mapping[str, UnitMap], thoughts: Mapping[str, str] | None = None
    ) -> None:
        self.rule, self._chosen, self._thoughts = rule, dict(maps), thoughts or {}
        self.sizes: dict[str, int] = {}
        self.left: dict[str, abc.Sequence[int]] = {}
        self.emptied: set[str] = set()
        self._every = self._known = self._failed = self._untold = 0
        self._first: tuple[str, int] | None = None
        self._rates, self._all_rates = array("d"), array("d")
        self._part = self._textless = self._kept = 0
        self._thoughtless = self._marked = self._thoughtful = 0
        self.amounts = {amount: Amount() for amount in (*COUNTS, *AMOUNTS)}
        self.scales: dict[str, Scale] = {}
        self._digests: list[bytes] = []

    def add(self, problem: str, samples: abc.Sequence[Recorded]) -> None:
        silent = {id(r): self.rule.silent(r) for r in samples}
        kept, numbers = self.rule.select(samples)
        self._tell(problem, samples, silent)
        self.sizes[problem] = len(kept)
        if len(kept) < len(samples):
            self.left[problem] = array("q", numbers)
        if samples and not kept:
            self.emptied.add(problem)
        times = Counter(map(id, kept))
        distinct = list({id(r): r for r in kept}.values())
        for r in distinct:
            self._textless += times[id(r)] if r.text is None else 0
            self._part += times[id(r)] if r.correct is not None and 0.0 < r.correct < 1.0 else 0
            self._thoughtful += times[id(r)] if r.thought is not None else 0
            if r.text and r.thought is None:
                self._thoughtless += times[id(r)]
                self._marked += times[id(r)] if any(mark in r.text for mark in MARKS) else 0
            for name in r.scores:
                self.scales.setdefault(name, Scale())
        self._kept += len(kept)
        for name, amount in self.amounts.items():
            if any(getattr(r, name) is not None for r in distinct):
                amount.add([getattr(r, name) for r in kept])
        for name, scale in self.scales.items():
            values = np.array([r.scores.get(name) for r in kept], dtype=np.float64)
            scale.add(values[~np.isnan(values)], self._chosen.get(name))
        rows = {id(r): _row(r) for r in distinct}
        self._digests.append(digest(problem, "\n".join(rows[id(r)] for r in kept)))

    def _tell(self, problem: str, samples: abc.Sequence[Recorded], silent: Mapping[int, bool]) -> None:
        """Count what is silent, and how many are right with it and without."""
        right = {id(r): (r.correct or 0.0) > 0.5 for r in samples}
        told = [right[id(r)] for r in samples if not silent[id(r)]]
        self._every += len(samples)
        self._known += len(told)
        self._untold += not told
        if len(told) < len(samples):
            self._failed += sum(r.failed for r in samples)
            first = next(i for i, r in enumerate(samples) if silent[id(r)])
            self._first = self._first or (problem, first)
        if told:
            self._rates.append(sum(told) / len(told))
        if samples:
            self._all_rates.append(sum(right[id(r)] for r in samples) / len(samples))

    def check(self, pool: str) -> None:
        """DataError for silent samples that are an error, and where no sample is left; InputError for strange maps.

        pool: its name.
        """
        if self.rule.unknown == "error" and self._first is not None:
            problem, number = self._first
            raise DataError(
                f"the pool {pool!r} has {self._silent}, the first is sample {number} of problem {problem!r}; give them "
                "verdicts, or choose unknown: exclude or wrong"
            )
        if self.rule.scored is not None and not self._kept:
            raise DataError(
                f"no sample of the pool {pool!r} has a score {self.rule.scored!r}; leave out scored"
            )
        if self._thoughts and self._kept and not self._thoughtful:
            raise DataError(
                f"no sample of the pool {pool!r} has a thought ({', '.join(self._thoughts.values())}); leave out "
                f"{' and '.join(self._thoughts)}"
            )
        if strange := sorted(set(self._chosen) - set(self.scales)):
            raise InputError(
                f"maps names {strange[0]!r}, and the pool {pool!r} has the scores {', '.join(self.scales) or '(none)'}"
            )

    @property
    def digest(self) -> str:
        """Names the samples that count, whatever the order of the problems."""
        return digest(*sorted(self._digests)).hex()

    def unit_map(self, name: str) -> UnitMap:
        """The map of a score into [0, 1]."""
        scale = self.scales[name]
        # Of no score at all there is nothing to map.
        return self._chosen.get(name) or (UNIT if scale.low >= 0.0 and scale.high <= 1.0 else USUAL)

    def guess(self, name: str) -> float | None:
        """What an unknown count or amount is where its problem knows none; None where none is to be guessed."""
        amount = self.amounts[name]
        return fsum(amount.sums) / amount.known if 0 < amount.known < self._kept else None

    @property
    def notes(self) -> Iterator[str]:
        """For people, but for money that cannot be known."""
        if self._first is not None:
            yield self._silence()
        if self._part:
            yield f"{self._part:,} of {self._kept:,} verdicts lie between 0 and 1: right above ½"
        if self._textless == self._kept:
            yield "no sample has a text: none has a vote"
        elif self._textless:
            yield f"{self._textless:,} of {self._kept:,} samples are null: they abstain, and have no vote"
        if self._thoughts and self._thoughtless:
            where = ", ".join(self._thoughts.values())
            yield (
                f"{self._thoughtless:,} of {self._kept:,} samples have no thought ({where}): "
                "each is read as an answer; the file does not say whether it is a thought that was cut"
            )
        if self._marked and "thought_end" not in self._thoughts:
            yield (
                f"{self._marked:,} of {self._kept:,} samples hold {' or '.join(MARKS)}, which is read as part of the "
                f"answer; thought_end: {MARKS[1]!r} (--thought-end) tells the thought apart"
            )
        for name, amount in self.amounts.items():
            if self.guess(name) is not None:
                yield (
                    f"{self._kept - amount.known:,} of {self._kept:,} samples have no {name} (null): each counts as "
                    "the mean of the others of its problem, or of the pool"
                )

    @property
    def scale_notes(self) -> Iterator[str]:
        """For each score that is mapped: its map, and the values whose order is lost."""
        for name, scale in self.scales.items():
            if (given := self.unit_map(name)) == UNIT:
                continue
            how = f"mapped into [0, 1] by {given}{'' if name in self._chosen else ', the default'}"
            low, high = (scale.low, scale.high) if scale.low <= scale.high else (0.0, 0.0)
            yield (
                f"scores {name!r} run from {low:g} to {high:g}: best-of-n goes by them as they are; for weighted votes "
                f"they are {how}, over the samples of a problem"
            )
            if scale.lost:
                yield (
                    f"{given} makes {scale.lost:,} scores {name!r} equal to others that they differ from, of "
                    f"{scale.different:,}: weighted votes cannot tell them apart; ranks can, and so may a higher "
                    "temperature"
                )

    @property
    def _silent(self) -> str:
        failed, every, known = self._failed, self._every, self._known
        parts = {
            "failed call" if failed == 1 else "failed calls": failed,
            "without a verdict (null)": every - known - failed,
        }
        return f"{' and '.join(f'{n:,} {part}' for part, n in parts.items() if n)} among {every:,} samples"

    def _silence(self) -> str:
        unknown = self.rule.unknown
        kept = (
            "counted as wrong"
            if self.rule.judged
            else "kept as samples without an answer, for want of verdicts"
        )
        text = f"{self._silent}: {'left out' if unknown == 'exclude' else kept} (unknown: {unknown})"
        if self._untold:
            text += f"; {self._untold:,} of {len(self.sizes):,} problems have no other sample"
        if self.rule.judged:
            without, wrong = (fmean(rates or [0.0]) for rates in (self._rates, self._all_rates))
            text += f"; a sample is right in {without:.1%} without them, in {wrong:.1%} if they are wrong"
        return text


def _row(r: Recorded) -> str:
    said: list[Any] = [] if r.answer is None else [r.answer]
    said += [] if r.thought is None else [{"thought": astuple(r.thought)}]
    known = [r.text, r.correct, dict(r.scores), r.prefilled, r.generated, r.money, r.seconds, *said]
    return json.dumps(known, sort_keys=True)
