"""One finished run, read into the arrays of a study.

What lies in pools is measured at every n by averages over subsets, what ran by itself by what it returned, as in
`experiments.results`; here problem by problem, over all problems of the run. What a problem lacks is NaN.
"""

from __future__ import annotations

import json
import re
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from metagen.cost import ModelShape
from metagen.errors import DataError, MetagenError
from metagen.generators.decoding.parameters import OFF as EVERY
from metagen.generators.decoding.parameters import ORDER
from metagen.runs.curves import checks
from metagen.runs.curves import curve_costs as costs
from metagen.runs.curves.recorded import HALVES, halves
from metagen.runs.curves.study import Curve, Floats, Ints, Model, StudyResult, Votes
from metagen.runs.declare import source
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.note import Note
from metagen.runs.table import audit
from metagen.runs.table.called import count_calls, read_calls
from metagen.runs.table.pools import Pool, Stored
from metagen.runs.table.tables import floats, integers, read, read_outcomes
from metagen.runs.work.progress import Phase

if TYPE_CHECKING:
    from metagen.runs.curves.curve_costs import Accelerator
    from metagen.runs.curves.efficiency.called import Shapes
    from metagen.runs.declare.study import SizeSpec

#: A variant as the run calls it, `generator/strategy` → its model, its strategy, and what was set, as words.
Names = Mapping[str, tuple[str, str, str]]

#: Columns of candidates beside what is in a pool.
TOKENS, LOGPROB = "generated", "logprob"
#: Settings that change what is drawn, with what turns them off.
OFF: Final[Mapping[str, Any]] = {
    name: EVERY[name] for name in (*ORDER, "healing", "search") if name != "temperature"
}
_BLOCK = re.compile(r"(?:^|/)block/(\d+)(?:/|$)")
POOLED_SECONDS = (
    "of pools are unknown, because all samples were drawn side by side; roofline:NAME and latency:NAME "
    "model them"
)


@dataclass(frozen=True)
class Problems:
    """Of a run, in the order of the task: ids, places in the task, levels."""

    ids: tuple[str, ...]
    places: Ints
    levels: Ints

    @classmethod
    def of(cls, directory: RunDirectory) -> Problems:
        table = read(directory.table("problems"), ["problem", "place", "level"]).sort_by("place")
        return cls(tuple(table["problem"].to_pylist()), integers(table["place"]), integers(table["level"]))

    def columns(self, places: Any) -> Ints:
        """Where in our arrays these places of the task stand, [places]."""
        return np.asarray(np.searchsorted(self.places, np.asarray(places, dtype=np.int64)), dtype=np.int64)

    def spread(self, values: Floats, columns: Ints) -> Floats:
        """[points, some problems] → [points, problems], NaN elsewhere."""
        whole = np.full((len(values), len(self.ids)), np.nan)
        whole[:, columns] = values
        return whole


@dataclass(frozen=True)
class Sampled:
    """The pool of one generator, and which problems it has."""

    pool: Pool
    columns: Ints
    tokens: Floats
    logprob: Floats

    @classmethod
    def of(cls, directory: RunDirectory, problems: Problems, generator: str) -> Sampled:
        """DataError for a score that is infinite."""
        with Stored(directory, generator, (TOKENS, LOGPROB)) as stored:
            pool, beside = stored.pool_beside(range(len(stored.places)))
            for name, scores in pool.scores.items():
                _finite(name, scores, stored.ids)
            return cls(pool, problems.columns(stored.places), beside[TOKENS], beside[LOGPROB])

    def halves(self, seed: int) -> tuple[Sampled, Sampled]:
        """Two random halves of each problem's samples; tokens and log-probabilities go along as if they were scores."""
        # No name of a verifier has such characters.
        beside = {"<tokens>": self.tokens, "<logprob>": self.logprob}
        first, rest = (
            Sampled(
                replace(half, scores={k: v for k, v in half.scores.items() if k not in beside}),
                self.columns, half.scores["<tokens>"], half.scores["<logprob>"],
            )
            for half in halves(replace(self.pool, scores={**self.pool.scores, **beside}), seed)
        )  # fmt: skip
        return first, rest


class Run:
    """One run being read. notes grow while it is.

    names, accelerators, sizes: as in `collect.of_run`. halves: a seed; curves are measured on a random half of each
    pool, and the other half is the independent pool of limits. phase: is told of the curves that are measured. Raises
    InputError for a run that is not finished.
    """

    def __init__(
        self,
        directory: RunDirectory,
        names: Names | None = None,
        accelerators: Iterable[Accelerator] = (),
        sizes: Mapping[str, SizeSpec] | None = None,
        *,
        halves: int | None = None,
        phase: Phase | None = None,
    ) -> None:
        self.directory, self.state = directory, directory.final_state()
        self.phase = phase or Phase()
        self.names, self.sizes, self.halves = names or {}, sizes or {}, halves
        self.accelerators = {one.name: one for one in accelerators}
        self.problems = Problems.of(directory)
        self.notes: list[Note] = []
        self._pools: dict[str, tuple[Sampled, Sampled]] = {}

    def result(self) -> StudyResult:
        audited = audit.of_run(self.directory, self.state.lines)
        self.notes.extend(Note(self._model(one.generator), line) for one in audited for line in one.lines)
        curves = tuple(self._curves())
        votes = (*self.votes("test"), *(self.votes("limit") if self.halves is not None else ()))
        self._failures()
        self.notes.extend(Note(self._model(name), text) for name, text in self.state.notes)
        self.notes.extend(checks.note_duplicates(self.directory))
        return StudyResult(
            self.state.name, self.state.seed, self.problems.ids, self.problems.levels, self._models(), curves, votes,
            notes=tuple(dict.fromkeys(self.notes)),
            facts=self._facts() | ({"audit": {a.generator: a.to_dict() for a in audited}} if audited else {}),
        )  # fmt: skip

    # -- curves ------------------------------------------------------------------------------------

    def _curves(self) -> Iterable[Curve]:
        groups = [
            sorted(same, key=lambda line: line.n or 0)
            for _, same in groupby(self.state.lines, key=lambda line: (line.generator, line.strategy))
        ]
        work = [self._work(lines) for lines in groups]
        self.phase.begin(f"curves of {self.directory.root.name}", len(groups), "curves", sum(work))
        for lines, share in zip(groups, work, strict=True):
            found = self._pool_curve(lines) if lines[0].pooled else self._direct(lines)
            self.phase.advance(share)
            if found is not None:
                yield found

    def _work(self, lines: abc.Sequence[Cell]) -> int:
        """How many calls are read for a curve, or problems, where there are no calls."""
        path = self.directory.table("calls")
        counts = count_calls(path) if path.exists() else {}
        names = {lines[0].generator} if lines[0].pooled else {line.name for line in lines}
        return len(self.problems.ids) + sum(counts.get(name, 0) for name in names)

    def _pool_curve(self, lines: abc.Sequence[Cell]) -> Curve | None:
        """Averages over subsets of the generator's pool; nothing for a verifier that scored nothing."""
        line = lines[0]
        made = self._pool(line.generator)
        if not len(made.columns):
            self._note(line, "no problem has samples: it is left out")
            return None
        if line.verifier is not None and not self._has_scores(line, made.pool):
            return None
        ns = [1] if line.kind == "sample" else [one.n or 1 for one in lines]
        if short := [n for n in ns if not (made.pool.sizes >= n).any()]:
            self._note(line, f"no problem has {short[0]} samples: larger n are left out")
            ns = [n for n in ns if n not in short]
        for n in ns:
            if fewer := int((made.pool.sizes < n).sum()):
                count = len(made.pool.sizes)
                self.notes.append(
                    Note(
                        self._names_of(line)[0],
                        f"n = {n} is measured on {count - fewer} of {count} problems, those with as many samples",
                    )
                )
        accuracy, error = (
            self.problems.spread(values, made.columns)
            for values in made.pool.curve(line.kind, ns, line.verifier)
        )
        samples = np.repeat(np.array(ns, dtype=np.float64)[:, None], len(self.problems.ids), axis=1)
        stated = partial(self._by_size, self._names_of(line)[0], samples)
        spent, judged = costs.pool_costs(
            self.directory,
            line.generator,
            line.verifier,
            ns,
            self.accelerators,
            self._modelled_shapes,
            stated,
        )
        return self._curve(line, ns, accuracy, error, {**spent, "samples": samples}, judged)

    def _direct(self, lines: abc.Sequence[Cell]) -> Curve | None:
        """What configurations that ran by themselves returned; those without a finished problem are left out."""
        rows, kept = [], []
        for line in lines:
            table = read_outcomes(self.directory.table("outcomes"), line.name)
            if not len(table):
                self._note(line, f"{line.name} finished no problem: it is left out")
                continue
            columns = self.problems.columns(table["place"])
            correct = floats(table["correct"])
            spent, judged = costs.direct(self.directory, line.name, self.accelerators, self._modelled_shapes)
            rows.append((self.problems.spread(correct[None], columns)[0], spent, judged))
            kept.append(line)
        if not kept:
            return None
        first = kept[0]
        ns = [1 if first.kind == "sample" else line.n or 0 for line in kept]
        accuracy = np.stack([row[0] for row in rows])
        shared = [name for name in rows[0][1] if all(name in row[1] for row in rows)]
        total = {name: np.stack([row[1][name] for row in rows]) for name in shared}
        judged = np.stack([row[2] for row in rows])
        if (judged[np.isfinite(accuracy)] == 0.0).all():
            total = self._by_size(self._names_of(first)[0], total["samples"], total)
        elif self._names_of(first)[0] in self.sizes and np.isnan(total["flops_2n"]).all():
            self._note(
                first,
                "verifiers spent a part of its costs: `study.sizes` cannot tell what is unknown of them",
            )
        return self._curve(first, ns, accuracy, np.where(np.isnan(accuracy), np.nan, 0.0), total, judged)

    def _curve(
        self,
        line: Cell,
        ns: abc.Sequence[int],
        accuracy: Floats,
        error: Floats,
        spent: Mapping[str, Floats],
        verification: Floats,
    ) -> Curve:
        model, strategy, setting = self._names_of(line)
        total = dict(spent)
        written = self._definitions.get(line.generator, {})
        if written.get("kind") == "replay" and "seconds" in written.get("fields", {}):
            text = f"of {model} are those that were recorded with its samples, one call after the other"
            self.notes.append(Note("seconds", text))
        elif written.get("kind") == "replay":
            # What was measured is the time of looking samples up.
            total["seconds"] = np.full(accuracy.shape, np.nan)
            self.notes.append(
                Note("seconds", f"of {model} are unknown, because its samples were recorded elsewhere")
            )
        elif line.pooled and np.isfinite(total["seconds"]).any():
            # All samples of a pool were drawn side by side: how long n of them take was not measured.
            total["seconds"] = np.full(accuracy.shape, np.nan)
            self.notes.append(Note("seconds", POOLED_SECONDS))
        return Curve(
            model, strategy, line.kind, np.array(ns, dtype=np.int64), accuracy, error, total, verification,
            source="pool" if line.pooled else "run", verifier=line.verifier, oracle=line.oracle, setting=setting,
            generator=line.generator,
        )  # fmt: skip

    # -- costs -------------------------------------------------------------------------------------

    def _by_size(self, model: str, samples: Floats, spent: dict[str, Floats]) -> dict[str, Floats]:
        """2N for every token of a model whose size was given, where the run does not know better.

        spent: on samples alone, since a verifier is another model. Tokens that were counted beat those that are stated,
        though nobody has counted the prompts.
        """
        if (size := self.sizes.get(model)) is None:
            return spent
        found = dict(spent)
        if np.isnan(found["tokens"]).all() and not np.isnan(found["generated"]).all():
            found["tokens"] = found["generated"]
            self.notes.append(
                Note("tokens", f"of {model} are the written ones; the tokens of its prompts are unknown")
            )
        for name in ("generated", "tokens"):
            if size.tokens is not None and np.isnan(found[name]).all():
                found[name] = samples * size.tokens
                text = f"of {model} are unknown: {size.tokens:g} a sample, as `study.sizes` says"
                self.notes.append(
                    Note(name, f"{name} {text}" if name == "tokens" else f"{name} tokens {text}")
                )
        if np.isnan(found["flops_2n"]).all():
            found["flops_2n"] = 2.0 * size.parameters * found["generated"]
            self.notes.append(
                Note("flops_2n", f"of {model}: 2N for each token written, with N of `study.sizes`")
            )
        return found

    # -- samples -----------------------------------------------------------------------------------

    def votes(self, role: str) -> Iterable[Votes]:
        """Every pool as arrays over all problems; those without samples have none. Models as written come first."""
        pooled = dict.fromkeys(line.generator for line in self.state.lines if line.pooled)
        for generator in sorted(pooled, key=lambda name: name != self._model(name)):
            made = self._pool(generator, rest=role == "limit" and self.halves is not None)
            pool, spread = made.pool, partial(self._pad, made)
            sizes = np.zeros(len(self.problems.ids), dtype=np.int64)
            sizes[made.columns] = pool.sizes
            # Verifiers of other pools have scored nothing here.
            scores = {name: s for name, s in pool.scores.items() if np.isfinite(s).any()}
            yield Votes(
                self._model(generator), role, spread(pool.classes, -1), spread(pool.correct, False),
                spread(pool.eligible, False), {name: spread(s, np.nan) for name, s in scores.items()},
                spread(made.tokens, np.nan), spread(made.logprob, np.nan), sizes, generator,
            )  # fmt: skip

    def _pad(self, made: Sampled, values: Any, missing: Any) -> Any:
        width = int(max(made.pool.sizes, default=0))
        if np.array_equal(made.columns, np.arange(len(self.problems.ids))) and width == values.shape[1]:
            return values
        whole = np.full((len(self.problems.ids), width), missing, dtype=np.asarray(values).dtype)
        whole[made.columns] = values[:, :width]
        return whole

    def _pool(self, generator: str, *, rest: bool = False) -> Sampled:
        """The pool of a generator; of halves the one for curves, or the rest."""
        if generator not in self._pools:
            whole = Sampled.of(self.directory, self.problems, generator)
            self._pools[generator] = (whole, whole) if self.halves is None else whole.halves(self.halves)
        return self._pools[generator][rest]

    def _has_scores(self, line: Cell, pool: Pool) -> bool:
        """Whether a verifier has scored anything; what it left out is noted."""
        there = np.arange(pool.classes.shape[1]) < pool.sizes[:, None]
        missing = int((np.isnan(pool.scores[line.verifier or ""]) & there).sum())
        if missing == (count := int(there.sum())):
            self._note(line, f"{line.verifier} scored no sample: it is left out")
            return False
        if missing:
            text = "they come last" if line.kind == "best_of_n" else "they have no vote"
            self._note(line, f"{missing:,} of {count:,} samples have no score of {line.verifier}: {text}")
        return True

    # -- what else is known ------------------------------------------------------------------------

    def _names_of(self, line: Cell) -> tuple[str, str, str]:
        return self.names.get(f"{line.generator}/{line.strategy}", (line.generator, line.strategy, ""))

    def _model(self, generator: str) -> str:
        ours = (line for line in self.state.lines if line.generator == generator)
        return next(self._names_of(line)[0] for line in ours)

    @property
    def labels(self) -> dict[str, str]:
        """The run's configurations → what curves call their points."""
        found = {}
        for line in self.state.lines:
            model, strategy, _ = self._names_of(line)
            n = 1 if line.kind == "sample" else line.n
            found[line.name] = f"{model}/{strategy}" + (f"@{n}" if n else "")
        return found

    def _note(self, line: Cell, text: str) -> None:
        model, strategy, _ = self._names_of(line)
        self.notes.append(Note(f"{model}/{strategy}", text))

    def _failures(self) -> None:
        """Problems that ended in an error, part by part."""
        for part, same in groupby(sorted(self.state.failures, key=lambda f: f.part), key=lambda f: f.part):
            failed = list(same)
            count = len({failure.problem for failure in failed})
            text = f"{count} of {self.state.problems} problems failed ({failed[0].kind}: {failed[0].message})"
            self.notes.append(Note(part, text))

    def _models(self) -> tuple[Model, ...]:
        found: dict[str, Model] = {}
        for generator in dict.fromkeys(line.generator for line in self.state.lines):
            name = self._model(generator)
            spec = self._definitions.get(generator, {})
            given = self.sizes.get(name)
            shape = self.shapes.get(generator)
            size = float(shape.parameters) if shape else given.parameters if given else None
            if given and size != given.parameters:
                text = f"has {size:,.0f} parameters by its engine; study.sizes says {given.parameters:,.0f}"
                self.notes.append(Note(name, f"{text}, which is left out"))
            temperature = spec.get("temperature")
            model = Model(name, size, None if temperature is None else float(temperature))
            if (before := found.setdefault(name, model)).temperature != model.temperature:
                found[name] = Model(name, before.size, None)
        return tuple(found.values())

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "roles": {
                "test": {
                    "problems": self.state.problems, "seconds": self.state.seconds,
                    "samples": self.state.samples,
                }
            },
            "temperatures": {
                name: float(spec["temperature"])
                for name, spec in self._definitions.items()
                if isinstance(spec.get("temperature"), int | float)
            },
            "adapters": {name: words for name, spec in self._definitions.items() if (words := adapter_settings(spec))},
            "shapes": {name: costs.plain(shape) for name, shape in self.shapes.items() if shape is not None},
        }  # fmt: skip
        if self.halves is not None:
            facts[HALVES] = True
        if blocks := expected_blocks(self.directory, self.state.lines):
            facts["blocks"] = {label: blocks[name] for name, label in self.labels.items() if name in blocks}
        try:
            known = json.loads(self.directory.environment.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return facts
        own = {key: value for key, value in known.items() if key not in ("makers", "engines")}
        return {**facts, "environment": own}

    @cached_property
    def _definitions(self) -> dict[str, dict[str, Any]]:
        """The generators, as the run's experiment defines them."""
        found = source.read(self.directory.experiment).data.get("generators")
        return found if isinstance(found, dict) else {}

    @property
    def _modelled_shapes(self) -> Shapes:
        """Shapes, where times are modelled."""
        return self.shapes if self.accelerators else {}

    @cached_property
    def shapes(self) -> dict[str, ModelShape | None]:
        """Of generators and verifiers, by name; nothing where the experiment's parts lie on this machine no more."""
        try:
            return costs.shapes(self.directory)
        except MetagenError as error:
            self.notes.append(Note("sizes", f"models are of unknown size: {error}"))
            return {}


def _finite(name: str, scores: Floats, ids: abc.Sequence[str]) -> None:
    """DataError for an infinite score; NaN is none."""
    if (found := np.argwhere(np.isinf(scores))).size:
        row, sample = found[0]
        raise DataError(
            f"the score of {name!r} for sample {sample} of problem {ids[row]!r} is {scores[row, sample]}; "
            "expected a finite number, or none"
        )


def expected_blocks(directory: RunDirectory, lines: Iterable[Cell]) -> dict[str, float]:
    """The mean over problems of the blocks that each configuration of kind `blockwise` committed to, by its name.

    The bound on its KL divergence is made of it. From the table `calls`; empty for a run that has none.
    """
    path = directory.table("calls")
    if not path.exists():
        return {}
    found: dict[str, float] = {}
    for line in lines:
        if line.kind != "blockwise":
            continue
        last: dict[int, int] = {}
        for table in read_calls(path, line.name):
            for place, where in zip(table["place"].to_pylist(), table["path"].to_pylist(), strict=True):
                block = _BLOCK.search(where)
                # The first block's calls stand where those of parallel strategies do.
                last[place] = max(last.get(place, 0), int(block[1]) if block else 0)
        if last:
            found[line.name] = 1.0 + sum(last.values()) / len(last)
    return found


def adapter_settings(definition: Mapping[str, Any]) -> str:
    """The settings of a generator's definition that are on, as words: `top_p=0.9, grammar`. Empty: none are.

    With any of them samples are no draws of the model, whatever the temperature.
    """
    on = {name: definition.get(name) for name, off in OFF.items() if definition.get(name, off) != off}
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float | int) and value is not True else name
        for name, value in on.items()
        if value
    )
