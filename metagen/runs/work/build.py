"""From an experiment to live objects: engines opened, generators, verifiers and strategies made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

from metagen.budget import DIMENSIONS, Budget
from metagen.errors import DataError, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.generators.primitive import Primitive
from metagen.generators.replay import ReplayGenerator
from metagen.runs.declare import registry
from metagen.runs.declare.cells import configurations, sizes
from metagen.runs.declare.parts import definitions_of, of_cells
from metagen.runs.declare.specs import (
    AdapterSpec,
    ExecutorSpec,
    Experiment,
    OptionSpec,
    PartSpec,
    PluginSpec,
    ReplaySpec,
)
from metagen.runs.declare.specs.derived import DerivedSpec
from metagen.runs.declare.specs.strategies import StepSpec
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.work import offline
from metagen.runs.work.allocation.allocate import Difficulty
from metagen.runs.work.allocation.held_out import apart, learn_difficulties
from metagen.runs.work.allocation.shares import Shares
from metagen.runs.work.asked import Asked
from metagen.runs.work.survey import survey
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.adaptive.adaptive import AdaptiveStrategy
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.base import Strategy
from metagen.strategies.rewrite import draws_alike
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.oracle import Grade

if TYPE_CHECKING:
    from metagen.generators.ray import RayPool
    from metagen.generators.ray.messages import Roster

#: With an oracle it is pass@n, an upper bound by definition.
COVERAGE = "best_of_n"


@dataclass(frozen=True, slots=True)
class Setup:
    """An experiment ready to run, while its engines are open.

    engines, generators, verifiers: those that a configuration uses, by name. problems: how many the task holds.
    asked: those that are being worked on, which verifiers that know the reference look up. difficulties: by the name of
    a configuration whose shares of the total go by them, what was learned on held-out problems.
    """

    experiment: Experiment
    task: Task
    engines: Mapping[str, Engine]
    generators: Mapping[str, Generator]
    verifiers: Mapping[str, Verifier]
    configurations: tuple[Cell, ...]
    problems: int
    asked: Asked
    difficulties: Mapping[str, Difficulty]

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """By generator, what readers of figures should know of it: what a recorded pool lacks, and how it is read."""
        return tuple(
            (name, text) for name, made in self.generators.items() for text in getattr(made, "notes", ())
        ) + tuple(self.alike)

    @property
    def alike(self) -> list[tuple[str, str]]:
        """By generator, which strategies choose among equal samples of it."""
        found: dict[str, dict[str, None]] = {}
        for cell in self.configurations:
            if draws_alike(self.strategy(cell)):
                found.setdefault(cell.generator, {})[cell.strategy] = None
        return [
            (
                name,
                f"at temperature 0 all samples are equal, so {', '.join(those)} cannot gain from more of them",
            )
            for name, those in found.items()
        ]

    @property
    def journaled(self) -> bool:
        """Whether the journal holds all samples: none of them is read where it was recorded."""
        return not any(getattr(made, "recorded", False) for made in self.generators.values())

    def strategy(self, configuration: Cell) -> Strategy:
        """A configuration's strategy, with its generator, n, other parts and the task's answer rule filled in."""
        return self._strategy(
            configuration.strategy, self.generators[configuration.generator], configuration.n
        )

    def _strategy(self, name: str, generator: Generator, n: int | None) -> Strategy:
        spec = self.experiment.strategies[name]
        over = getattr(spec, "over", None)
        below = generator if over is None else self._strategy(over, generator, self._own_n(over))
        parts: dict[str, Any] = {
            "generator": below, "answer": self.task.answer, "delimiter": self.task.delimiter,
            "mark": self.task.mark,
        }  # fmt: skip
        if n is not None:
            parts["n"] = n
        made: Mapping[str, Mapping[str, Any]] = {"verifiers": self.verifiers, "generators": self.generators}
        parts |= _named_parts(spec, made)
        options = {name: value for name, value in spec.options().items() if name != "n"}
        parts |= _own_rule(options)
        options = {name: self._make(value, parts, generator) for name, value in options.items()}
        options = self._fit_options(spec.kind, options, n)
        if "sandbox" in registry.parameters("strategies", spec.kind):
            parts["sandbox"] = _shared_sandbox()
        strategy: Strategy = registry.make("strategies", spec.kind, options, parts)
        return strategy

    def _make(self, value: Any, parts: Mapping[str, Any], drawn: Generator) -> Any:
        """A value of a field, with what is defined within it made. parts: of the strategy around it.

        drawn: the generator of the grid.
        """
        if isinstance(value, OptionSpec):
            return self._option(value, drawn)
        if isinstance(value, DerivedSpec):
            own = _named_parts(value, {"verifiers": self.verifiers, "generators": self.generators})
            given = value.options()
            parts = {**parts, **_own_rule(given)}
            options = {name: self._make(one, parts, drawn) for name, one in given.items()}
            available = {**parts, **own}
            if "sandbox" in registry.parameters(value.section, value.kind):
                available["sandbox"] = _shared_sandbox()
            return value.build(registry.make, available, options)
        if isinstance(value, PluginSpec):
            return registry.make(value.section, value.kind, value.options(), parts)
        if isinstance(value, Mapping):
            return {name: self._make(one, parts, drawn) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._make(one, parts, drawn) for one in value)
        return value

    def _fit_options(self, kind: str, options: dict[str, Any], n: int | None) -> dict[str, Any]:
        """The options at this n, with the task's steps where the file says nothing else of them."""
        narrows = getattr(registry.find("strategies", kind), "narrows", ())
        fitted = {name: min(value, n) if n and name in narrows else value for name, value in options.items()}
        return {
            name: value.until(self.task.delimiter, self.task.mark) if isinstance(value, StepSpec) else value
            for name, value in fitted.items()
        }

    def _option(self, option: OptionSpec, generator: Generator) -> Generator:
        below = generator if option.generator is None else self.generators[option.generator]
        if option.strategy is None:
            return below
        return self._strategy(option.strategy, below, option.n or self._own_n(option.strategy))

    def _own_n(self, name: str) -> int | None:
        own = getattr(self.experiment.strategies[name], "n", None)
        if own is None or isinstance(own, int):
            return own
        raise InputError(f"strategies.{name}.n = {list(own)}: another strategy runs it; expected one integer")


@dataclass(frozen=True, slots=True)
class Needed:
    """Names of what the grid needs: engines and generators in the order of the file, verifiers after their parts.

    Adapters stand after the engines that they are on.
    """

    engines: tuple[str, ...]
    generators: tuple[str, ...]
    verifiers: tuple[str, ...]
    #: Of the verifiers, those that strategies name.
    judging: frozenset[str]

    @classmethod
    def of(cls, experiment: Experiment, cells: Iterable[Cell]) -> Self:
        """Whatever a cell names, and whatever that is made of."""
        needed = definitions_of(experiment, *of_cells((cell.generator, cell.strategy) for cell in cells))
        engines = [name for name in experiment.engines if ("engines", name) in needed]
        return cls(
            tuple(sorted(engines, key=lambda name: isinstance(experiment.engines[name], AdapterSpec))),
            tuple(name for name in experiment.generators if ("generators", name) in needed),
            tuple(name for section, name in needed if section == "verifiers"),
            frozenset(
                verifier
                for (section, _), spec in needed.items()
                if section == "strategies"
                for verifier in spec.names_in("verifiers")
            ),
        )


@contextmanager
def about(*path: str) -> Iterator[None]:
    """What is raised inside is about this part of the experiment, and says so."""
    try:
        yield
    except InputError as error:
        if error.path:
            raise
        error.args = (f"{'.'.join(path)}: {error.args[0]}", *error.args[1:])
        error.path = path
        raise


def _task(experiment: Experiment) -> Task:
    with about("task"):
        task: Task = registry.make("task", experiment.task.kind, experiment.task.options(), {})
    return task


@contextmanager
def open_setup(
    experiment: Experiment, *, cores: int | None = None, rosters: Mapping[str, Roster] | None = None
) -> Iterator[Setup]:
    """Everything that the grid needs, for as long as the context lasts.

    The data are read and checked first, then the engines open, one after the other; on the way out, and
    after an error, all that are open are closed. cores: of this machine, which the engines divide among them; by
    default those that this process may use. rosters: by engine, the replicas of another process, which are asked.
    With shards the engines stay closed: `open_pools` opens them for the drivers.

    Raises InputError for data, models and combinations that do not fit, for a budget that a generator cannot keep, for
    held-out problems that are not, and for shards where a total is dealt out by difficulty, or with a cache on a
    cluster of other machines.
    """
    task = _task(experiment)
    sharded = experiment.executor.shards is not None
    if sharded and experiment.executor.elsewhere:
        refuse_cache(experiment)
    here = offline.with_stand_ins(experiment, fingerprints=False) if sharded else experiment
    cells = configurations(experiment)
    found, asked = survey(task), Asked(task)
    difficulties = learn_difficulties(experiment, cells, task)
    if sharded and difficulties:
        raise InputError(
            "executor.shards: shares by difficulty begin with the first samples of all problems, which no driver of "
            "some of them has; leave out shards, or allocation.strategies"
        )
    with ExitStack() as stack:
        needed = Needed.of(experiment, cells)
        pools = {name: {"roster": roster} for name, roster in (rosters or {}).items()}
        engines = _engines(here, needed, cores or usable_cores(), stack, pools)
        generators = {name: _generator(experiment, name, engines) for name in needed.generators}
        limits = Shares(experiment, found.problems).largest
        plain = frozenset(name for name, one in experiment.strategies.items() if one.plain and limits is None)
        _enough(generators, cells, task, plain)
        _check_bounds(generators, limits, found.first)
        verifiers = _verifiers(here, needed, engines, generators, task, _grade(task, asked))
        setup = Setup(
            experiment, task, engines, generators, verifiers, cells, found.problems, asked, difficulties
        )
        for cell in cells:
            with about("strategies", cell.strategy):
                setup.strategy(cell)
        yield setup


def refuse_cache(experiment: Experiment) -> None:
    """Where drivers may be on other machines: InputError for a cache."""
    if experiment.cache is not None:
        raise InputError(
            f"cache and executor.shards on the cluster {experiment.executor.cluster!r}: drivers on other machines "
            "cannot share a file of SQLite; leave out one of them"
        )


@contextmanager
def open_pools(experiment: Experiment) -> Iterator[dict[str, RayPool]]:
    """The engines of an experiment in shards, for its drivers: no process but these needs a tokenizer."""
    needed, lent = Needed.of(experiment, configurations(experiment)), {"lent": True}
    with ExitStack() as stack:
        engines = _engines(experiment, needed, usable_cores(), stack, dict.fromkeys(needed.engines, lent))
        yield cast("dict[str, RayPool]", engines)


@contextmanager
def open_for_prompts(experiment: Experiment, *, cores: int | None = None) -> Iterator[Setup]:
    """What the grid needs to answer prompts that are no problems of its task, whose data are not read.

    The task says how answers are read, and where steps end. Cells that replay recorded samples have none for new
    prompts: they are left out. The rest is as in `open_setup`.
    """
    task = _task(experiment)
    cells = tuple(
        cell
        for cell in configurations(experiment)
        if not isinstance(experiment.generators[cell.generator], ReplaySpec)
    )
    with ExitStack() as stack:
        needed, asked = Needed.of(experiment, cells), Asked(task)
        engines = _engines(experiment, needed, cores or usable_cores(), stack)
        generators = {name: _generator(experiment, name, engines) for name in needed.generators}
        verifiers = _verifiers(experiment, needed, engines, generators, task, _grade(task, asked))
        yield Setup(experiment, task, engines, generators, verifiers, cells, 0, asked, {})


def _engines(
    experiment: Experiment,
    needed: Needed,
    cores: int,
    stack: ExitStack,
    pools: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Engine]:
    """The engines that are needed, opened. Those of this machine divide its cores among them.

    pools: what else the pool of an engine is told.
    """
    executor = experiment.executor
    alone = [name for name in needed.engines if not isinstance(experiment.engines[name], AdapterSpec)]
    count = sum(executor.pool(name).most for name in alone)
    # On other machines an engine takes what it finds.
    elsewhere = executor.kind == "ray" and executor.cluster
    parts = {} if elsewhere else {"threads": max(1, cores // max(1, count))}
    engines: dict[str, Engine] = {}
    for name in needed.engines:
        spec = experiment.engines[name]
        made_of = _named_parts(spec, {"engines": engines})
        with about("engines", name):
            engine: Engine = (
                _pool(executor, name, spec, parts, pools.get(name, {}))
                if executor.kind == "ray"
                else registry.make("engines", spec.kind, spec.options(), {**parts, **made_of})
            )
            engines[name] = stack.enter_context(engine)
    return engines


def _pool(
    executor: ExecutorSpec, name: str, spec: PartSpec, parts: Mapping[str, Any], more: Mapping[str, Any]
) -> RayPool:
    """The engine as a pool of replicas."""
    from metagen.generators.ray import Placement, Policy, RayPool, Scaling

    takes, pool = registry.parameters("engines", spec.kind), executor.pool(name)
    options = {part: value for part, value in parts.items() if part in takes} | spec.options()
    # Who asks the replicas of another process makes no engine, and need not wait for torch.
    make = (registry.declaration if "roster" in more else registry.find)("engines", spec.kind)
    return RayPool(
        make,
        options,
        replicas=pool.replicas,
        address=executor.address,
        placement=Placement(**pool.needs),
        policy=Policy(deadline=executor.deadline, replacements=executor.replacements),
        scaling=None if pool.scaling is None else Scaling(**pool.scaling.model_dump()),
        **more,
    )


def usable_cores() -> int:
    """Those that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _generator(experiment: Experiment, name: str, engines: Mapping[str, Engine]) -> Generator:
    spec = experiment.generators[name]
    engine = getattr(spec, "engine", None)
    parts = {} if engine is None else {"engine": engines[engine]}
    with about("generators", name):
        generator: Generator = registry.make("generators", spec.kind, spec.options(), parts)
    return generator


def _verifiers(
    experiment: Experiment,
    needed: Needed,
    engines: Mapping[str, Engine],
    generators: Mapping[str, Generator],
    task: Task,
    grade: Grade,
) -> dict[str, Verifier]:
    """Those that strategies name, in the order of the file."""
    made: dict[str, Verifier] = {}
    parts: dict[str, Any] = {"grade": grade, "program": getattr(task, "program", None)}
    for name in needed.verifiers:
        if "sandbox" in registry.parameters("verifiers", experiment.verifiers[name].kind):
            parts.setdefault("sandbox", _sandbox())
        made[name] = _verifier(experiment, name, engines, generators, parts, made)
    return {name: made[name] for name in experiment.verifiers if name in needed.judging}


def _own_rule(options: Mapping[str, Any]) -> dict[str, Any]:
    """The rule of a definition that reads answers by its own, for what is defined within it."""
    own = options.get("answer")
    return {"answer": own} if isinstance(own, AnswerRule) else {}


def _named_parts(spec: PartSpec, made: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The parts that the fields of a definition name, of those that are made: by section, and by name."""
    found: dict[str, Any] = {}
    for field, section in spec.uses.items():
        named = getattr(spec, field)
        if section in made and named is not None:
            several = isinstance(named, tuple)
            found[field] = [made[section][one] for one in named] if several else made[section][named]
    return found


def _verifier(
    experiment: Experiment,
    name: str,
    engines: Mapping[str, Engine],
    generators: Mapping[str, Generator],
    given: Mapping[str, Any],
    made: Mapping[str, Verifier],
) -> Verifier:
    spec = experiment.verifiers[name]
    made_of = _named_parts(spec, {"engines": engines, "generators": generators, "verifiers": made})
    parts = {**given, "name": name, **made_of}
    with about("verifiers", name):
        verifier: Verifier = registry.make("verifiers", spec.kind, spec.options(), parts)
    return verifier


def _sandbox() -> Any:
    """One for all verifiers of a run. Raises IsolationError, with the remedy, where there can be none."""
    from metagen.verifiers.code.sandbox import Sandbox

    return Sandbox()


@cache
def _shared_sandbox() -> Any:
    """That of strategies that run programs."""
    return _sandbox()


def cautions(setup: Setup, *, grid: bool = True) -> list[str]:
    """What a reader of the results should know before they are made.

    Which strategies an oracle steers, which choose among equal samples, which never stop early, which scores are mapped
    by what these very problems have taught, and an n of the grid that nothing is run with. grid: whether the grid is as
    somebody wrote it, and no part of a study's.
    """
    knowing = {c.strategy for c in setup.configurations if c.kind != COVERAGE and setup.strategy(c).oracle}
    return [
        f"strategies.{name}: a verifier that knows the answers steers it; its results are upper bounds, marked "
        "(oracle), and never recommended"
        for name in setup.experiment.strategies
        if name in knowing
    ] + [
        *(f"generators.{name}: {text}" for name, text in setup.alike),
        *_never_early(setup),
        *_learned_here(setup),
        *(_unused_sizes(setup.experiment) if grid else ()),
    ]


def _never_early(setup: Setup) -> Iterator[str]:
    """Strategies that draw all n before they would ask whether fewer are enough, whatever n they are run with."""
    first: dict[str, dict[str, None]] = {}
    for cell in setup.configurations:
        first.setdefault(cell.strategy, {})[_drawn_first(setup.strategy(cell))] = None
    for name, (said, *others) in first.items():
        if said and not others:
            yield f"strategies.{name}: all n ≤ {said}, so every sample is drawn whole and nothing is stopped early"


def _drawn_first(strategy: Strategy) -> str:
    """What says that all n are drawn before anything is asked; empty if some are not."""
    match strategy:
        case OnlineConfidence(n=n, warmup=most) if n <= most:
            return f"warmup={most}"
        case AdaptiveStrategy(n=n, step=int(most)) if n <= most:
            return f"{most}, the samples drawn between two looks"
    return ""


def _learned_here(setup: Setup) -> Iterator[str]:
    """Maps of scores that are fitted on problems of this task."""
    for name, spec in setup.experiment.verifiers.items():
        points = Path(getattr(spec, "points", None) or "")
        run = RunDirectory(points.parent)
        if points == run.table("candidates") and run.table("problems").exists():
            try:
                apart(run, setup.task, f"verifiers.{name}.points")
            except InputError as error:
                yield str(error)


def _unused_sizes(experiment: Experiment) -> Iterator[str]:
    """An n of the grid that none of its strategies takes."""
    given = experiment.grid.n
    own = {name: sizes(experiment.strategies[name], given) for name in experiment.grid.strategies}
    if given and not any(one is given for one in own.values()):
        those = ", ".join(
            f"{name} has {'no n' if list(one) == [None] else 'its own'}" for name, one in own.items()
        )
        yield f"grid.n = {list(given)}: nothing runs with it: {those}"


def _enough(
    generators: Mapping[str, Generator], cells: tuple[Cell, ...], task: Task, plain: frozenset[str]
) -> None:
    """Recorded pools hold as many samples as configurations ask for.

    What only samples and aggregates needs them of some problem, since it is measured at n over the problems that have
    n; what runs by itself needs them of every problem. plain: strategies that need not run by themselves.
    """
    for name, generator in generators.items():
        if not isinstance(generator, ReplayGenerator):
            continue
        ours = [cell for cell in cells if cell.generator == name]
        sizes = {problem.id: generator.size(problem.id) for problem in task.problems()}
        # What no configuration names by itself, a strategy asks for one sample.
        strict = [
            cell.n or 1
            for cell in ours
            if cell.strategy not in plain or not registry.says(cell.kind, "poolable")
        ]
        if not strict:
            # Problems of which no sample is left (without a score, without a verdict) are left out.
            left = {problem: size for problem, size in sizes.items() if problem not in generator.emptied}
            sizes = left or sizes
        least, most = (pick(sizes, key=sizes.__getitem__) for pick in (min, max))
        for problem, n in (
            (least, max([1, *strict])),
            (most, max((cell.n or 1 for cell in ours), default=1)),
        ):
            if sizes[problem] < n:
                raise DataError(
                    f"generator {name!r} holds {sizes[problem]} samples of problem {problem!r}, "
                    f"the grid asks for {n}; ask for at most that many, or give a larger pool"
                )


def _check_bounds(generators: Mapping[str, Generator], budget: Budget | None, problem: Problem) -> None:
    """Check that every generator knows its worst case in all that the budget limits, on the first problem."""
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
