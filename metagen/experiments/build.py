"""From an experiment to live objects: engines opened, generators, verifiers and strategies made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from metagen.budget import DIMENSIONS, Budget
from metagen.errors import DataError, UnsupportedError
from metagen.experiments import registry
from metagen.experiments.asked import Asked
from metagen.experiments.specs import (
    Experiment,
    OrmSpec,
    PartSpec,
    PrmSpec,
    made_of,
)
from metagen.experiments.survey import survey
from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.generators.primitive import Primitive
from metagen.generators.replay import ReplayGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import Sample
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.oracle import Grade


@dataclass(frozen=True, slots=True)
class Configuration:
    """One cell of the grid. name: such as `mid/weighted@32`, or `mid/single` for a strategy without n.

    generator, strategy, verifier: names in the experiment. kind: of the strategy.
    """

    name: str
    generator: str
    strategy: str
    kind: str
    n: int | None = None
    verifier: str | None = None


def configurations(experiment: Experiment) -> tuple[Configuration, ...]:
    """The grid, cell by cell: generators, of each the strategies, of each every n. Opens nothing."""
    cells = []
    for generator, strategy in product(experiment.grid.generators, experiment.grid.strategies):
        spec = experiment.strategies[strategy]
        takes_n = "n" in registry.parameters("strategies", spec.kind)
        for n in experiment.grid.n if takes_n else [None]:
            name = f"{generator}/{strategy}" + (f"@{n}" if n is not None else "")
            verifier = getattr(spec, "verifier", None)
            cells.append(Configuration(name, generator, strategy, spec.kind, n, verifier))
    return tuple(cells)


@dataclass(frozen=True, slots=True)
class Setup:
    """An experiment ready to run, while its engines are open.

    engines, generators, verifiers: those that a configuration uses, by name. problems: how many the task holds.
    asked: those that are being worked on, which verifiers that know the reference look up.
    """

    experiment: Experiment
    task: Task
    engines: Mapping[str, Engine]
    generators: Mapping[str, Generator]
    verifiers: Mapping[str, Verifier]
    configurations: tuple[Configuration, ...]
    problems: int
    asked: Asked

    def strategy(self, configuration: Configuration) -> Strategy:
        """A configuration's strategy, with its generator, n, verifier and the task's answer rule filled in."""
        spec = self.experiment.strategies[configuration.strategy]
        parts: dict[str, Any] = {
            "generator": self.generators[configuration.generator],
            "answer": self.task.answer,
        }
        if configuration.n is not None:
            parts["n"] = configuration.n
        if configuration.verifier is not None:
            parts["verifier"] = self.verifiers[configuration.verifier]
        strategy: Strategy = registry.make("strategies", spec.kind, spec.options(), parts)
        return strategy


@contextmanager
def opened(experiment: Experiment) -> Iterator[Setup]:
    """Everything that the grid needs, for as long as the context lasts.

    The data are read and checked first, then the engines open, one after the other; on the way out, and
    after an error, all that are open are closed. Raises InputError for data, models and combinations
    that do not fit, and for a budget that a generator cannot keep.
    """
    cells = configurations(experiment)
    task: Task = registry.make("task", experiment.task.kind, experiment.task.options(), {})
    found, asked = survey(task), Asked(task)
    with ExitStack() as stack:
        engines = _engines(experiment, cells, stack)
        generators = {
            name: _generator(experiment, name, engines)
            for name in experiment.generators
            if any(cell.generator == name for cell in cells)
        }
        _enough(generators, cells, task)
        _bounded(generators, experiment.budget, found.first)
        verifiers = _verifiers(experiment, cells, engines, task, _grade(task, asked))
        setup = Setup(experiment, task, engines, generators, verifiers, cells, found.problems, asked)
        for cell in cells:
            setup.strategy(cell)
        yield setup


def _engines(experiment: Experiment, cells: tuple[Configuration, ...], stack: ExitStack) -> dict[str, Engine]:
    """The engines that the cells use, opened. Those of this machine divide its cores among them."""
    users: list[PartSpec] = [experiment.generators[cell.generator] for cell in cells]
    users += [experiment.verifiers[name] for name in _judging(experiment, cells)]
    used = {getattr(user, field, None) for user in users for field in ("engine", "reference")}
    names = [name for name in experiment.engines if name in used]
    threads = max(1, _cores() // max(1, len(names)))
    engines = {}
    for name in names:
        spec = experiment.engines[name]
        engine: Engine = registry.make("engines", spec.kind, spec.options(), {"threads": threads})
        engines[name] = stack.enter_context(engine)
    return engines


def _cores() -> int:
    """Those that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _generator(experiment: Experiment, name: str, engines: Mapping[str, Engine]) -> Generator:
    spec = experiment.generators[name]
    engine = getattr(spec, "engine", None)
    parts = {} if engine is None else {"engine": engines[engine]}
    generator: Generator = registry.make("generators", spec.kind, spec.options(), parts)
    return generator


def _judging(experiment: Experiment, cells: tuple[Configuration, ...]) -> list[str]:
    """The verifiers that the cells need, after those that they are made of."""
    found: list[str] = []

    def need(name: str) -> None:
        for member in made_of(experiment.verifiers[name]):
            need(member)
        if name not in found:
            found.append(name)

    for cell in cells:
        if cell.verifier is not None:
            need(cell.verifier)
    return found


def _verifiers(
    experiment: Experiment,
    cells: tuple[Configuration, ...],
    engines: Mapping[str, Engine],
    task: Task,
    grade: Grade,
) -> dict[str, Verifier]:
    """Those that a configuration uses, in the order of the file."""
    made: dict[str, Verifier] = {}
    parts: dict[str, Any] = {"grade": grade, "program": getattr(task, "program", None)}
    for name in _judging(experiment, cells):
        if "sandbox" in registry.parameters("verifiers", experiment.verifiers[name].kind):
            parts.setdefault("sandbox", _sandbox())
        made[name] = _verifier(experiment, name, engines, parts, made)
    chosen = {cell.verifier for cell in cells}
    return {name: made[name] for name in experiment.verifiers if name in chosen}


def _verifier(
    experiment: Experiment,
    name: str,
    engines: Mapping[str, Engine],
    given: Mapping[str, Any],
    made: Mapping[str, Verifier],
) -> Verifier:
    spec = experiment.verifiers[name]
    parts = {**given, "name": name, "members": [made[member] for member in made_of(spec)]}
    for field in ("engine", "reference"):
        if (engine := getattr(spec, field, None)) is not None:
            parts[field] = engines[engine]
    if isinstance(spec, PrmSpec | OrmSpec):
        # None: as the model's config.json names them.
        parts["tags"] = spec.tags.tags if spec.tags else None
    verifier: Verifier = registry.make("verifiers", spec.kind, spec.options(), parts)
    return verifier


def _sandbox() -> Any:
    """One for all verifiers of a run. Raises IsolationError, with the remedy, where there can be none."""
    from metagen.verifiers.code.sandbox import Sandbox

    return Sandbox()


def _enough(generators: Mapping[str, Generator], cells: tuple[Configuration, ...], task: Task) -> None:
    """Recorded pools hold as many samples of every problem as some configuration asks for."""
    for name, generator in generators.items():
        if not isinstance(generator, ReplayGenerator):
            continue
        n = max(cell.n or 1 for cell in cells if cell.generator == name)
        for problem in task.problems():
            if generator.size(problem.id) < n:
                raise DataError(
                    f"generator {name!r} holds {generator.size(problem.id)} samples of problem {problem.id!r}, "
                    f"the grid asks for {n}; ask for at most that many, or give a larger pool"
                )


def _bounded(generators: Mapping[str, Generator], budget: Budget | None, problem: Problem) -> None:
    """Every generator knows its worst case in what the budget limits, going by the first problem."""
    limits = {d: getattr(budget, d) for d in DIMENSIONS if getattr(budget, d, None) is not None}
    for name, generator in generators.items():
        if not limits or not isinstance(generator, Primitive):
            continue
        prefix = Sequence.of(problem.prompt)
        worst = generator.worst(prefix, 1, generator.most(prefix, None), Scope.root(problem.id))
        for dimension, limit in limits.items():
            if getattr(worst, dimension) is None:
                raise UnsupportedError(
                    f"budget.{dimension} = {limit:g} cannot be kept: generators.{name} does not know the most "
                    f"that a sample of problem {problem.id!r} takes; give it a count of tokens (a recorded pool: "
                    "fields: {generated: …}), a price or a model shape, or limit something else, such as calls"
                )


def _grade(task: Task, asked: Asked) -> Grade:
    async def grade(sequence: Sequence) -> float:
        (value,) = await task.grade(asked[sequence.prompt.problem_id], [sequence])
        return value

    return grade


def greedy(generator: Generator, *, answer: AnswerRule | None = None) -> Strategy:
    """The most likely token at every place: one sample at temperature 0."""
    return Sample(generator.replace(temperature=0.0), answer=answer)
