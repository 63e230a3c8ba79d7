"""What a run will take, before anything is spent: tokens, FLOPs, time and money, part by part.

Known: problems, prompts as the engine's tokenizer counts them, samples (the largest n of a pool), and what the
journal holds already. Assumed, and said so: how long completions are. Unknown without `probe`: the calls of a strategy
that decides by itself what it asks for, and so every total. FLOPs are those of `metagen.cost`. Engines stay closed
without `probe`.
"""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from metagen.budget import DIMENSIONS, Budget
from metagen.cost import (
    FREE,
    Hardware,
    ModelShape,
    Price,
    Usage,
    decode_flops,
    flops_2n,
    prefill_flops,
    roofline_seconds,
)
from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.generators.primitive import EngineGenerator, Primitive, letters
from metagen.generators.replay import ReplayGenerator
from metagen.journal import Row
from metagen.runs.declare import registry
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.work import build
from metagen.runs.work.allocation.shares import Shares
from metagen.runs.work.forecast.beyond import Beyond, Pool, scale, sift
from metagen.runs.work.forecast.books import Book, contents, earlier
from metagen.runs.work.forecast.judging import FIGURES, Judging, Length, Sums
from metagen.runs.work.forecast.pace import Pace
from metagen.runs.work.forecast.probe import PROBE, Only, Trial, choose, restrict, run_probe
from metagen.runs.work.offline import with_stand_ins
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.parallel import ParallelStrategy
from metagen.tasks.base import Problem
from metagen.verifiers.base import PrimitiveVerifier, Verifier

#: Rows that an engine is taken to decode at once.
BATCH = 256


@dataclass(frozen=True, slots=True)
class Part:
    """What one generator or verifier is expected to spend; None is unknown.

    calls: samples or scores that are to be made; unknown in a total only. recorded: those that the journal answers.
    seconds: the least time on the hardware that was named. how: where the figures come from.
    """

    name: str
    role: Literal["generation", "verification"]
    calls: int | None
    recorded: int = 0
    prefilled: float | None = 0.0
    generated: float | None = 0.0
    flops: float | None = 0.0
    flops_2n: float | None = 0.0
    seconds: float | None = None
    money: float | None = None
    how: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will take.

    bounds: the lengths of completions are the most that is allowed, so figures are upper bounds. missing: what could
    not be estimated; then totals are unknown. notes: what holds for all parts. seconds: expected, at the pace of
    a probe or of an earlier run; hardware: of the least time. probed: a part was run, to measure by.
    """

    name: str
    problems: int
    parts: tuple[Part, ...]
    bounds: bool = False
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    hardware: str | None = None
    probed: bool = False

    @property
    def counted(self) -> Part:
        """The sum of the parts; a figure is unknown where that of a part is."""
        sums = {name: _sum(getattr(part, name) for part in self.parts) for name in SUMMED}
        return Part("counted", "generation", **sums)  # type: ignore[arg-type]  # sums by name

    @property
    def total(self) -> Part:
        """What is counted, if that is all; otherwise unknown, since a sum of a part of the work would be too low."""
        whole = replace(self.counted, name="total")
        unknown = [name for name in SUMMED if name != "recorded"]
        return replace(whole, **dict.fromkeys(unknown)) if self.missing else whole  # type: ignore[arg-type]

    @property
    def uncounted(self) -> str:
        """What could not be counted, in words: three names at most."""
        names = list(dict.fromkeys(what.partition(":")[0] for what in self.missing))
        rest = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        return f"{', '.join(names[:3])}{rest}"

    def to_dict(self) -> dict[str, Any]:
        total, counted = ({name: getattr(one, name) for name in SUMMED} for one in (self.total, self.counted))
        return {
            "name": self.name, "problems": self.problems, "upper_bounds": self.bounds,
            "expected_seconds": self.seconds, "hardware": self.hardware, "total": total, "counted": counted,
            "parts": [asdict(part) for part in self.parts], "missing": list(self.missing), "notes": list(self.notes),
        }  # fmt: skip


#: Figures of a part that add up.
SUMMED = tuple(f.name for f in fields(Part) if f.name not in ("name", "role", "how"))


def estimate(
    experiment: Experiment,
    out: Path | None = None,
    *,
    hardware: str | None = None,
    probe: int | None = None,
    seconds: float | None = None,
    only: Only = None,
) -> Estimate:
    """What `metagen run` would spend in the directory `out`, or in a new one.

    hardware: a name of `metagen.cost.HARDWARE`; gives the least time. probe: run so many problems now, in a
    directory that is thrown away; gives lengths and time, as earlier runs of the same name do, and the calls of
    strategies that decide by themselves. seconds: a limit of the probe, see `run_probe`. only: the problems that the
    run works on. Raises InputError for what would keep the run from beginning.
    """
    machine = None if hardware is None else Hardware.find(hardware)
    with run_probe(experiment, probe, seconds=seconds, only=only) as trial:
        journals = [RunDirectory(out).journal] if out else []
        journals += [trial.journal] if trial else []
        journals += [] if trial else earlier(experiment.name)
        books = [Book.read(path) for path in dict.fromkeys(journals) if path.is_file()]
        known = books[0] if out and books and books[0].path == RunDirectory(out).journal else Book(Path())
        if out and known.rows:
            _same_seed(RunDirectory(out), experiment)
        with build.open_setup(with_stand_ins(experiment, fingerprints=bool(books))) as setup:
            estimator = _Estimator(restrict(setup, choose(setup, only)), known, books, machine)
            found = estimator.all()
            if trial:
                found = estimator.with_probe(found, trial)
        if trial:
            return found
        pace = None if found.missing else Pace.of_runs(books, estimator.still_to_ask())
        return _add_seconds(found, pace)


def _same_seed(directory: RunDirectory, experiment: Experiment) -> None:
    try:
        seed = directory.state().seed
    except InputError:
        return
    if seed != experiment.seed:
        raise InputError(
            f"{str(directory.root)!r} was written with seed {seed}, this experiment has {experiment.seed}: "
            f"go on with --set seed={seed}, or give another directory"
        )


# ------------------------------------------------------------------------------------------------- estimating


@dataclass(frozen=True)
class Ask:
    """What configurations ask of one generator: its largest n, and who scores the samples. bare: of some, nobody."""

    name: str
    generator: Generator
    n: int
    verifiers: tuple[str, ...]
    bare: bool = False


class _Estimator:
    """The work of one call of `estimate`."""

    def __init__(
        self, setup: build.Setup, book: Book, books: abc.Sequence[Book], hardware: Hardware | None
    ) -> None:
        self.setup, self.book, self.books, self.hardware = setup, book, books, hardware
        self.problems = list(setup.task.problems())
        self.budget = Shares(setup.experiment, setup.problems).largest
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.bound = False
        self.made: dict[str, Sums] = {}
        self.judging = Judging(setup.verifiers, book, self.problems)
        self.times: dict[str, float | None] = {}

    def all(self) -> Estimate:
        asks = list(self._asks())
        for ask in asks:
            self._ask(ask)
        parts = [self._part(ask.name, "generation", self.made[ask.name], ask.generator) for ask in asks]
        parts += [
            self._part(name, "verification", sums, self.judging.verifiers[name])
            for name, sums in self.judging.sums.items()
        ]
        notes = [*build.cautions(self.setup), *self.notes]
        if self.hardware:
            notes.append(
                f"seconds: the least that {self.hardware.name} can take (roofline), one part after the other"
            )
        if self.budget:
            notes.append("cut to the budget of a problem; configurations share what they have in common")
        return Estimate(
            self.setup.experiment.name, len(self.problems), tuple(parts), self.bound,
            tuple(dict.fromkeys([*self.missing, *self.judging.missing])), tuple(notes),
            hardware=self.hardware.name if self.hardware else None,
        )  # fmt: skip

    def still_to_ask(self) -> list[Generator]:
        """The generators of which samples are to be made, after `all`."""
        return [ask.generator for ask in self._asks() if self.made[ask.name].calls]

    def _asks(self) -> Iterator[Ask]:
        """The pools that the run will draw: configurations of one generator share samples and scores."""
        found: dict[str, Ask] = {}
        for c in self.setup.configurations:
            generator, name = self.setup.generators[c.generator], c.generator
            if c.kind == "greedy":
                generator, name = generator.replace(temperature=0.0), f"{name}, greedy"
            elif (unknown := self._unknown(c)) is not None:
                self.missing.append(f"{c.name}: {unknown}")
                continue
            elif (beside := self._beside(c)) is not None:
                self.missing.append(f"{c.name}: {beside}")
            elif c.kind == "rejection":
                self.notes.append(f"{c.name}: at most n samples are counted; it ends with the first accepted")
            # A generator that is greedy already makes the same samples.
            known = found.get(generator.fingerprint) or Ask(name, generator, 0, ())
            judges = dict.fromkeys((*known.verifiers, *([c.verifier] if c.verifier else [])))
            bare = known.bare or c.verifier is None
            n = max(known.n, c.n or 1)
            found[generator.fingerprint] = Ask(known.name, generator, n, tuple(judges), bare)
        yield from found.values()

    def _stands_over(self, c: Cell) -> bool:
        return getattr(self.setup.experiment.strategies[c.strategy], "over", None) is not None

    def _unknown(self, c: Cell) -> str | None:
        """Why nothing of a configuration's work is known before it runs; None if its n samples are."""
        if self._stands_over(c):
            return "what stands over another strategy asks for as much as that one does, many times"
        if not (registry.says(c.kind, "chooses") or registry.says(c.kind, "poolable")):
            return f"a strategy of kind {c.kind!r} decides by itself what it asks for"
        return None

    def _beside(self, c: Cell) -> str | None:
        """What is not known of a configuration's work beside its n samples and their scores; None if all is."""
        strategy = self.setup.strategy(c)
        if isinstance(strategy, ParallelStrategy) and strategy.chooser.spends:
            return "its n samples are counted, what a model is asked in order to choose among them is not"
        if (
            isinstance(strategy, ParallelStrategy)
            and strategy.chooser.verifier is not None
            and not c.verifier
        ):
            return "its n samples are counted, the scores that its aggregator reads are not"
        return None

    def _ask(self, ask: Ask) -> None:
        """Samples and scores of one generator, problem by problem."""
        length = self._length(ask)
        replayed = isinstance(ask.generator, ReplayGenerator)
        made = self.made[ask.name] = Sums(how=[length.how])
        self.bound = self.bound or (length.bound and not replayed)
        judges = self.judging.of(ask.verifiers)
        sizes: list[int] = []
        for problem in self.problems:
            recorded = self.book.samples(ask.generator, problem, ask.n)
            new, tokens = ask.n - len(recorded), length.tokens(problem)
            prompt = self._prompt(ask.generator, problem)
            rows = 0 if replayed or not new else (length.bound and _rows(ask.generator)) or new
            # The rows of a search read the prompt together.
            readers = 1 if _rows(ask.generator) else new
            figures = _generation(_shape(ask.generator), prompt, tokens, rows, readers)
            scores = [
                (name, self.judging.scores(verifier, problem, length, tokens, recorded, new))
                for name, verifier in judges
            ]
            # Each configuration has the budget for itself: its samples, and the scores of its own verifier. What is
            # recorded is charged to it again.
            cuts = [row for row in self.book.cuts(ask.generator, problem, ask.n) if self._binds(row)]
            drawn = recorded + cuts if self.budget else []
            spent = {name: drawn + self._scored(verifier, problem, recorded) for name, verifier in judges}
            shares = {name: self._share(figures, [one], new, spent[name]) for name, one in scores}
            most = [
                *shares.values(),
                *([self._share(figures, [], new, drawn)] if ask.bare or not scores else []),
            ]
            made.add(_left(max(most), len(recorded), new), calls=new, **figures)
            made.recorded += len(recorded)
            for name, (calls, before, one) in scores:
                self.judging.sums[name].add(_left(shares[name], before, calls), calls=calls, **one)
                self.judging.sums[name].recorded += before
            sizes.append(prompt or 0)
        if replayed:
            made.how = ["a recorded pool: nothing is computed"]
        elif sizes and any(sizes):
            size = fmean(sizes)
            made.how.insert(0, f"prompts: {size:,.1f} tokens on average, {self._how_counted(ask.generator)}")
        asked = {problem.prompt for problem in self.problems}
        if isinstance(ask.generator, EngineGenerator) and not replayed:
            made.how += dict.fromkeys(said for prompt in asked if (said := ask.generator.sends(prompt)))
        self.times[ask.name] = self._decoding(ask, made, fmean(sizes) if sizes else 0.0)

    # -- what a probe adds -------------------------------------------------------------------------

    def with_probe(self, found: Estimate, trial: Trial) -> Estimate:
        """With the calls that no pool accounts for, and the time, as the probe measured them."""
        found = replace(found, probed=True)
        if trial.failure:
            told = f"the probe failed in part, so it tells neither time nor calls: {trial.failure}"
            return replace(found, notes=(*found.notes, told))
        asked, makers, pools = set(trial.asked), self._makers(), self._pools()
        rows = list(sift(trial.journal, pools, [p for p in self.problems if p.id in asked]))
        known = list(sift(self.book.path, pools, self.problems)) if self.book.rows else []
        names = {by: name for by, (name, _) in makers.items()}
        parts = [
            self._beyond(one, dict(makers.values()).get(one.name))
            for one in scale(rows, known, trial, len(self.problems), names)
        ]
        found = replace(
            found, parts=(*found.parts, *parts), missing=(), notes=(*found.notes, *_probed(found, trial))
        )
        return _add_seconds(found, Pace.of_probe(trial, _samples(found, recorded=True) / len(self.problems)))

    def _makers(self) -> dict[str, tuple[str, Generator | Verifier]]:
        """The name of each generator and verifier, and itself, by what records say of it."""
        found: dict[str, tuple[str, Generator | Verifier]] = {
            verifier.records: (name, verifier)
            for name, verifier in self.judging.verifiers.items()
            if isinstance(verifier, PrimitiveVerifier)
        }
        return found | {g.fingerprint: (name, g) for name, g in self.setup.generators.items()}

    def _pools(self) -> list[Pool]:
        return [
            Pool(ask.generator, ask.n, {verifier.records for _, verifier in self.judging.of(ask.verifiers)})
            for ask in self._asks()
        ]

    def _beyond(self, one: Beyond, maker: Generator | Verifier | None) -> Part:
        """Calls of a maker that no pool accounts for."""
        sums = Sums(
            one.calls, one.recorded, how=[one.how], **{figure: one.usage[figure] for figure in FIGURES}
        )
        part = self._part(one.name, "generation" if one.generates else "verification", sums, maker)
        seconds = self._scoring(sums, maker)
        if one.generates:
            seconds = _plus(seconds, self._writing(sums, maker))
        return replace(part, name=f"{one.name}, beyond pools", seconds=seconds)

    # -- lengths -----------------------------------------------------------------------------------

    def _length(self, ask: Ask) -> Length:
        """Of recorded samples of this very generator, else the most that is allowed."""
        for book in self.books:
            rows = [row for row in book.all_of(ask.generator) if row.usage.generated is not None]
            if rows:
                mean = fmean(row.usage.generated or 0 for row in rows)
                texts = tuple(str((row.payload or {}).get("text", "")) for row in rows)
                folder = book.path.parent
                where = "in the probe" if folder.name.startswith(PROBE) else f"in {folder}"
                how = f"completions: {mean:,.1f} tokens, the mean of {len(rows):,} samples recorded {where}"
                return Length(partial(_same, mean), how, False, texts, book, ask.generator.fingerprint)
        return self._longest(ask.generator)

    def _longest(self, generator: Generator) -> Length:
        if isinstance(generator, EngineGenerator):
            most, context = generator.params.max_tokens, generator.engine.max_context

            def tokens(problem: Problem) -> float:
                room = most if context is None else context - (self._prompt(generator, problem) or 0)
                return max(1, min(most, room))

            how = f"completions: {most:,} tokens, the most that max_tokens allows (most are shorter)"
            if (search := generator.params.search) is not None:
                how += f", in each of {search.rows} rows of a {search.kind} search, which finds all samples at once"
            return Length(tokens, how)

        def worst(problem: Problem) -> float | None:
            if not isinstance(generator, Primitive):
                return None
            prefix = Sequence.of(problem.prompt)
            return generator.worst(prefix, 1, generator.most(prefix, None), Scope.root(problem.id)).generated

        return Length(worst, "completions: the most that the generator declares")

    def _prompt(self, generator: Generator, problem: Problem) -> int | None:
        """Tokens of a problem's prompt; without a tokenizer its bytes, which bound them."""
        prefix = Sequence.of(problem.prompt)
        if isinstance(generator, EngineGenerator):
            ids = generator.engine.render(prefix)
            return len(letters(prefix)) if ids is None else len(ids)
        if isinstance(generator, Primitive):
            return generator.worst(prefix, 1, generator.most(prefix, None), Scope.root(problem.id)).prefilled
        return None

    def _how_counted(self, generator: Generator) -> str:
        if not isinstance(generator, EngineGenerator):
            return "as the generator counts"
        if generator.tokenizer_fingerprint is None:
            return "at most: their bytes, since the tokenizer is not here"
        directory = generator.engine.directory
        return f"by the tokenizer of {directory.name if directory else generator.engine}"

    # -- figures -----------------------------------------------------------------------------------

    def _share(
        self,
        made: Mapping[str, float | None],
        judged: Iterable[tuple[float, int, dict[str, float | None]]],
        new: int,
        spent: abc.Sequence[Row],
    ) -> float:
        """The part of a problem's work that its budget affords, at most 1; spent: what of it is recorded."""
        if not self.budget:
            return 1.0
        whole: dict[str, float | None] = {"calls": float(new), **made}
        for calls, _, one in judged:
            whole = {name: _plus(value, one.get(name, calls)) for name, value in whole.items()}
        return min([1.0, *_shares(self.budget, whole, Usage.sum(row.usage for row in spent))])

    def _binds(self, row: Row) -> bool:
        """Whether the limit that cut a record is that of this budget: records under others are not served."""
        limit = row.limit
        return limit is not None and getattr(self.budget, limit.dimension, None) == limit.amount

    def _scored(self, verifier: PrimitiveVerifier, problem: Problem, samples: list[Row]) -> list[Row]:
        """The recorded scores of samples, where a budget is charged for them."""
        wanted = contents(problem, samples) if self.budget else set[bytes]()
        return [
            row for row in self.book.rows.get((verifier.records, problem.id), ()) if row.content in wanted
        ]

    def _part(
        self,
        name: str,
        role: Literal["generation", "verification"],
        sums: Sums,
        maker: Generator | Verifier | None,
    ) -> Part:
        usage = Usage(
            prefilled=_whole(sums.prefilled), cached=_whole(sums.cached), generated=_whole(sums.generated)
        )
        price = _price(maker)
        money = price.of(usage) if price else None
        seconds = self.times.get(name) if role == "generation" else self._scoring(sums, maker)
        return Part(
            name, role, round(sums.calls), sums.recorded, sums.prefilled, sums.generated, sums.flops,
            sums.flops_2n, seconds, money, tuple(sums.how),
        )  # fmt: skip

    # -- time --------------------------------------------------------------------------------------

    def _decoding(self, ask: Ask, made: Sums, prompt: float) -> float | None:
        """The least seconds for all samples, in batches that are as large as engine and concurrency allow."""
        shape = _shape(ask.generator)
        if self.hardware is None or shape is None or made.generated is None:
            return None
        if not made.calls:
            return 0.0
        batch = self._batch(made.calls, ask.n)
        each = max(1, round(made.generated / made.calls))
        size, prompts = max(1, round(prompt)), made.calls / ask.n
        reading = prompts * roofline_seconds(shape, self.hardware, size, 0, size)
        writing = roofline_seconds(shape, self.hardware, 0, each, size, batch)
        return reading + made.calls / batch * writing

    def _writing(self, sums: Sums, maker: Any) -> float | None:
        """The least seconds for the tokens that are generated, without their prompts."""
        shape = _shape(maker)
        if self.hardware is None or shape is None or sums.generated is None:
            return None
        if not sums.calls:
            return 0.0
        each, batch = round(sums.generated / sums.calls), self._batch(sums.calls, 1)
        return sums.calls / batch * roofline_seconds(shape, self.hardware, 0, each, 0, batch)

    def _scoring(self, sums: Sums, maker: Any) -> float | None:
        shape = _shape(maker)
        if self.hardware is None or shape is None or sums.prefilled is None:
            return None
        if not sums.calls:
            return 0.0
        each, batch = max(1, round(sums.prefilled / sums.calls)), self._batch(sums.calls, 1)
        return sums.calls / batch * roofline_seconds(shape, self.hardware, each, 0, each, batch)

    def _batch(self, calls: float, n: int) -> int:
        together = min(self.setup.experiment.executor.concurrency, len(self.problems)) * n
        return max(1, min(BATCH, together, round(calls)))


def _generation(
    shape: ModelShape | None, prompt: int | None, tokens: float | None, rows: int, readers: int
) -> dict[str, float | None]:
    """Figures of so many rows of tokens behind a prompt, which is read once; other readers have it from a cache."""
    if not rows:
        return dict.fromkeys(FIGURES, 0.0)
    generated = None if tokens is None else rows * tokens
    cached = None if prompt is None else float((readers - 1) * prompt)
    if shape is None or prompt is None or tokens is None or generated is None:
        unknown = {"flops": None, "flops_2n": None}
        return {"prefilled": prompt, "cached": cached, "generated": generated, **unknown}
    flops = prefill_flops(shape, prompt) + rows * decode_flops(shape, round(tokens), prompt)
    return {
        "prefilled": prompt, "cached": cached, "generated": generated, "flops": flops,
        "flops_2n": flops_2n(shape, 1) * (prompt + generated),
    }  # fmt: skip


def _rows(generator: Generator) -> int:
    """Rows that decode for all samples of a problem together; 0 where each sample has its own."""
    search = generator.params.search if isinstance(generator, EngineGenerator) else None
    return 0 if search is None else search.rows


def _shape(maker: Any) -> ModelShape | None:
    shape = getattr(getattr(maker, "engine", None), "shape", None)
    return shape if isinstance(shape, ModelShape) else None


def _same(tokens: float, problem: Problem) -> float:
    return tokens


def _price(maker: Any) -> Price | None:
    """What a generator or verifier, or its engine, asks for tokens; None where nothing says so."""
    for owner in (maker, getattr(maker, "engine", None)):
        price = getattr(owner, "price", None)
        if isinstance(price, Price) and price != FREE:
            return price
    return None


def _shares(budget: Budget, whole: Mapping[str, float | None], before: Usage) -> Iterator[float]:
    for dimension in DIMENSIONS:
        limit, spent = getattr(budget, dimension, None), whole.get(dimension)
        if limit is not None and spent:
            yield limit / (spent + (getattr(before, dimension, None) or 0))


def _left(share: float, before: float, more: float) -> float:
    """Of `more` that is to be made, the part that belongs to this share of all, beside what there is."""
    return min(1.0, max(0.0, share * (before + more) - before) / more) if more else 0.0


def _sum(values: Iterable[float | None]) -> float | None:
    values = list(values)
    return None if None in values else sum(v for v in values if v is not None)


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _whole(value: float | None) -> int | None:
    return None if value is None else math.ceil(value)


def _samples(found: Estimate, *, recorded: bool = False) -> float:
    """Samples that are to be made, and those that are recorded."""
    drawn = (part for part in found.parts if part.role == "generation")
    return sum((part.calls or 0) + (part.recorded if recorded else 0) for part in drawn)


def _probed(found: Estimate, trial: Trial) -> list[str]:
    """What a probe measured, and where its limit ended it."""
    notes = []
    if found.missing:
        notes.append(f"the probe measured what cannot be counted before it runs: {found.uncounted}")
    if trial.problems < trial.wanted:
        notes.append(f"the limit of the probe ended it after {trial.problems:,} of {trial.wanted:,} problems")
    return notes


def _add_seconds(found: Estimate, pace: Pace | None) -> Estimate:
    """Add the seconds that the samples take at this pace."""
    calls = _samples(found)
    if pace is None or not calls:
        return found
    return replace(found, seconds=pace.of(calls), notes=(*found.notes, pace.how))
