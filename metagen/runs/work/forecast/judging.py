"""What verifiers are expected to spend: how many scores, of what length, and what recorded scores tell of both."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from metagen.cost import ModelShape, Usage, flops_2n, prefill_flops
from metagen.journal import Row
from metagen.runs.work.forecast.books import Book, contents, is_step
from metagen.runs.work.offline import Unknown
from metagen.sequence import Sequence
from metagen.tasks.base import Problem
from metagen.verifiers.base import PrimitiveVerifier, Verifier
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier
from metagen.verifiers.recorded import RecordedVerifier
from metagen.verifiers.reward import ProcessRewardModel, RewardModel

#: How judges come to verdicts (`Judge.way`).
WAYS = {"labels": " (it reads the labels' probabilities)", "samples": " (it writes its verdicts)"}
FIGURES = ("prefilled", "cached", "generated", "flops", "flops_2n")


@dataclass(frozen=True, slots=True)
class Length:
    """How long completions are taken to be, and where this comes from.

    texts: recorded completions of the generator `by`, those of `book`, if there are any. bound: the most allowed.
    """

    tokens: Callable[[Problem], float | None]
    how: str
    bound: bool = True
    texts: tuple[str, ...] = ()
    book: Book | None = None
    by: str = ""


@dataclass
class Sums:
    """Figures that add up over problems; None is unknown, and remains so."""

    calls: float = 0
    recorded: int = 0
    prefilled: float | None = 0.0
    cached: float | None = 0.0
    generated: float | None = 0.0
    flops: float | None = 0.0
    flops_2n: float | None = 0.0
    how: list[str] = field(default_factory=list)

    def add(self, share: float, **figures: float | None) -> None:
        for name, value in figures.items():
            old = getattr(self, name)
            setattr(self, name, None if old is None or value is None else old + share * value)


class Judging:
    """The scores of all pools.

    verifiers: by name. book: what is recorded, and therefore free. sums: what each verifier is expected to spend.
    missing: what cannot be counted.
    """

    def __init__(
        self, verifiers: Mapping[str, Verifier], book: Book, problems: abc.Sequence[Problem]
    ) -> None:
        self.verifiers, self.book, self.problems = dict(verifiers), book, problems
        self.sums: dict[str, Sums] = {}
        self.missing: list[str] = []
        #: By verifier's records and problem: the digests of candidates that are counted.
        self.counted: dict[tuple[str, str], set[bytes]] = {}
        #: Of recorded completions as a reward model reads them: tokens, and tags among them.
        self.lengths: dict[tuple[str, str], tuple[float, float]] = {}
        #: Of a verifier and a generator: what a sample's score has cost.
        self.rates: dict[tuple[str, str], Sums | None] = {}

    def of(self, names: Iterable[str]) -> list[tuple[str, PrimitiveVerifier]]:
        """The verifiers whose scores are paid for; those that share their records are paid for once."""
        judges: dict[str, tuple[str, PrimitiveVerifier]] = {}
        for name, verifier in self._parts(names):
            if isinstance(verifier, PrimitiveVerifier):
                first = next((n for n in self.sums if self._records(n) == verifier.records), name)
                judges.setdefault(verifier.records, (first, verifier))
                sums = self.sums.setdefault(first, Sums())
                if first != name:
                    sums.how = list(dict.fromkeys([*sums.how, f"{name} uses the same scores"]))
            elif isinstance(verifier, Unknown):
                self.missing.append(f"{name}: its model is not on this machine, so it cannot be counted")
            elif not isinstance(verifier, OracleVerifier | RecordedVerifier):
                way = WAYS.get(getattr(verifier, "way", ""), "")
                self.missing.append(
                    f"{name}: what it asks is not known before it runs; --probe measures it{way}"
                )
        return list(judges.values())

    def _parts(self, names: Iterable[str]) -> Iterator[tuple[str, Verifier]]:
        """The verifiers that score by themselves; the members of an ensemble take its place."""
        waiting = [(name, self.verifiers[name]) for name in names]
        while waiting:
            name, verifier = waiting.pop(0)
            if verifier.members:
                waiting = [(member.name, member) for member in verifier.members] + waiting
            else:
                self.verifiers.setdefault(name, verifier)
                yield name, verifier

    def _records(self, name: str) -> str:
        verifier = self.verifiers[name]
        return verifier.records if isinstance(verifier, PrimitiveVerifier) else ""

    def scores(
        self, verifier: PrimitiveVerifier, problem: Problem, length: Length, tokens: float | None,
        recorded: abc.Sequence[Row], new: int,
    ) -> tuple[float, int, dict[str, float | None]]:  # fmt: skip
        """Scores to be made, those that are recorded, and what the former cost; equal candidates count once."""
        # What another generator wrote as well is scored, and counted, once.
        counted = self.counted.setdefault((verifier.records, problem.id), set())
        samples, known = contents(problem, recorded) - counted, self.book.score_digests(verifier, problem.id)
        counted |= samples
        have = len(samples & known)
        calls = new + len(samples) - have
        if length.book is not None and (rate := self._rate(verifier, length)):
            self._say(
                verifier, f"{rate.calls:.2f} scores a sample, as recorded: equal samples are scored once"
            )
            return calls * rate.calls, have, {
                name: _times(getattr(rate, name), calls) for name in FIGURES
            }  # fmt: skip
        if isinstance(verifier, FunctionVerifier):
            return calls, have, dict.fromkeys(FIGURES, 0.0)
        if not isinstance(verifier, RewardModel) or tokens is None:
            return calls, have, dict.fromkeys(FIGURES)
        prompt = len(verifier.engine.render(Sequence.of(problem.prompt)) or ())
        own, tags = self._count_with_tags(verifier, length, tokens)
        return calls, have, _figures(verifier.engine.shape, prompt, own, tags, calls)

    def _count_with_tags(self, verifier: RewardModel, length: Length, tokens: float) -> tuple[float, float]:
        """Tokens of a completion as a reward model reads it, tags included, and how many of them are tags."""
        steps = isinstance(verifier, ProcessRewardModel)
        if not length.texts:
            how = "as long as the completions" + (", and a tag after each token at most" if steps else "")
            self._say(verifier, how)
            return (2 * tokens, tokens) if steps else (tokens + 1, 1)
        self._say(verifier, "as long as the recorded completions, by its own tokenizer, with its tags")
        return self._measure(verifier, length)

    def _measure(self, verifier: RewardModel, length: Length) -> tuple[float, float]:
        key = (verifier.records, length.how)
        if key not in self.lengths:
            split = verifier.split if isinstance(verifier, ProcessRewardModel) else lambda text: [text]
            pieces = [split(text) for text in length.texts]
            tags = fmean(map(len, pieces))
            own = fmean(sum(len(verifier.engine.encode(piece)) for piece in one) for one in pieces)
            self.lengths[key] = (own + tags, tags)
        return self.lengths[key]

    def _rate(self, verifier: PrimitiveVerifier, length: Length) -> Sums | None:
        """What scoring has cost a recorded sample, on average over the pools that were scored whole."""
        key = (verifier.records, length.by)
        if key not in self.rates:
            assert length.book is not None
            samples, usages = 0, list[Usage]()
            for problem in self.problems:
                rows = [r for r in length.book.rows.get((length.by, problem.id), ()) if not is_step(r)]
                scored = contents(problem, rows)
                scores = length.book.rows.get((verifier.records, problem.id), ())
                found = [row for row in scores if row.content in scored]
                if len(found) == len(scored):
                    samples += len(rows)
                    usages += [row.usage for row in found]
            total, rate = Usage.sum(usages), Sums()
            if samples:
                rate.add(1 / samples, calls=len(usages), **{name: getattr(total, name) for name in FIGURES})
            self.rates[key] = rate if samples else None
        return self.rates[key]

    def _say(self, verifier: PrimitiveVerifier, how: str) -> None:
        name = next(n for n in self.sums if self._records(n) == verifier.records)
        if how not in self.sums[name].how:
            self.sums[name].how.append(how)


def _figures(
    shape: ModelShape | None, prompt: int, own: float, tags: float, calls: int
) -> dict[str, float | None]:
    """Figures of `calls` scores of one problem, whose prompt is read once."""
    if not calls:
        return dict.fromkeys(FIGURES, 0.0)
    prefilled, cached = prompt + calls * own, float((calls - 1) * prompt)
    if shape is None:
        return {"prefilled": prefilled, "cached": cached, "generated": 0.0, "flops": None, "flops_2n": None}
    whole, logits = prompt + round(own), round(tags)
    flops = prefill_flops(shape, whole, 0, logits)
    flops += (calls - 1) * prefill_flops(shape, whole, prompt, logits)
    return {
        "prefilled": prefilled, "cached": cached, "generated": 0.0, "flops": flops,
        "flops_2n": flops_2n(shape, 1) * prefilled,
    }  # fmt: skip


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
