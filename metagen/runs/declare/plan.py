"""A study as ordinary experiments, one for each role: which cells each runs, and what they are called in the study.

Frozen settings differ by model and strategy, so that every role names its pairs; a generator or a strategy under a
setting is one of its own, `0.5M.temperature-0.7`, and its records are found whatever it is called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from metagen.errors import ConfigError
from metagen.runs.declare import baselines, registry
from metagen.runs.declare import parts as definitions
from metagen.runs.declare import schema as experiments
from metagen.runs.declare.cells import sizes
from metagen.runs.declare.settings import overlay, split, variant, words
from metagen.runs.declare.source import Source
from metagen.runs.declare.specs import SECTIONS, Experiment, ReplaySpec, Spec
from metagen.runs.declare.study import Setting, Study
from metagen.runs.directory import Role
from metagen.tasks.base import Problem

__all__ = [
    "Frozen",
    "Part",
    "apart",
    "check",
    "development",
    "limit",
    "parts",
    "splitting",
    "temperature",
    "test",
    "variant",
]

#: Model and strategy → the setting that it is run with; what has nothing to tune is missing.
Frozen = Mapping[tuple[str, str], Setting]
#: The fact whether the pools of the role `temperature` are of other problems than the test.
APART = "temperature_apart"


@dataclass(frozen=True, slots=True)
class Part:
    """One role: its experiment, and what its `generator/strategy` are called in the study.

    names: → model, strategy, and the setting in words. only: of a place and its problem, whether it is worked on.
    """

    role: Role
    experiment: Experiment
    names: Mapping[str, tuple[str, str, str]]
    only: Callable[[int, Problem], bool] | None = None


@dataclass
class _Cells:
    """Cells being gathered for a role: definitions of variants, pairs, names."""

    study: Study
    data: dict[str, Any] = field(init=False)
    pairs: list[list[str]] = field(default_factory=list)
    names: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = self.study.experiment.model_dump(mode="json", exclude_none=True)

    def generator(self, model: str, setting: Mapping[str, Any]) -> str:
        name = self._unused("generators", model, variant(model, setting))
        self.data["generators"][name] = overlay(self.data["generators"][model], setting)
        return name

    def strategy(self, strategy: str, setting: Mapping[str, Any]) -> str:
        name = self._unused("strategies", strategy, variant(strategy, setting))
        self.data["strategies"][name] = overlay(self.data["strategies"][strategy], setting)
        return name

    def _unused(self, section: Literal["generators", "strategies"], base: str, name: str) -> str:
        """The name of a variant. ConfigError where the file calls another part so."""
        if name != base and name in getattr(self.study.experiment, section):
            raise ConfigError(
                f"{section}.{name}: a setting of {base!r} that the study tries is called so, too; give {name!r} "
                "another name"
            )
        return name

    def add(self, generator: str, strategy: str, model: str, called: str, setting: str) -> None:
        if [generator, strategy] not in self.pairs:
            self.pairs.append([generator, strategy])
            self.names[f"{generator}/{strategy}"] = (model, called, setting)

    def cell(self, model: str, strategy: str, setting: Mapping[str, Any], called: str) -> tuple[str, str]:
        """A strategy on a model under a setting."""
        own, of_generator = split(setting)
        pair = self.generator(model, of_generator), self.strategy(strategy, own)
        self.add(*pair, model, strategy, called)
        return pair

    def part(
        self,
        role: Role,
        *,
        task: Mapping[str, Any] | None = None,
        seed: int | None = None,
        only: Callable[[int, Problem], bool] | None = None,
        limited: bool = True,
    ) -> Part:
        """The role's experiment. limited: it keeps the budget of a problem; pools have none."""
        data = {**self.data, "name": f"{self.study.experiment.name}-{role}", "grid": {"pairs": self.pairs}}
        data["grid"]["n"] = self.data["grid"]["n"]
        data["task"] = {**data["task"], **(task or {})}
        if seed is not None:
            data["seed"] = seed
        if not limited:
            data.pop("budget", None)
        source = Source(f"the role {role} of the study {self.study.experiment.name!r}", data)
        return Part(role, experiments.parse_experiment(source, self.study.base), self.names, only)


def parts(study: Study, frozen: Frozen) -> Iterator[Part]:
    """Every role behind development, in their order."""
    yield test(study, frozen)
    for made in (limit(study, frozen), splitting(study), temperature(study)):
        if made is not None:
            yield made


def development(study: Study) -> Part | None:
    """Every setting as a cell, at the n that settings are judged at; None for a study that tunes nothing.

    One sample is judged by the mean over a pool of as many: by a single draw, chance would choose its temperature.
    """
    spec = study.spec.development
    if spec is None:
        return None
    cells = _Cells(study)
    pool = _free("pool", cells.data["strategies"])
    for name in spec.settings:
        if sizes := _sizes(study, name):
            kept = [n for n in sizes if n <= spec.n] or [min(sizes)]
            # What another strategy stands over has one n, not a list of them.
            single = isinstance(cells.data["strategies"][name].get("n"), int)
            cells.data["strategies"][name]["n"] = kept[0] if single else kept
    for model, strategy in study.experiment.grid.cells:
        for setting in spec.settings.get(strategy, ()):
            generator, _ = cells.cell(model, strategy, setting, words(setting))
            if baselines.is_single_sample(study.experiment, model, strategy):
                cells.data["strategies"][pool] = {"kind": "majority", "n": [spec.n]}
                cells.add(generator, pool, generator, pool, "")
    return cells.part("development", task=spec.task, only=worked_on(study, "development"))


def test(study: Study, frozen: Frozen) -> Part:
    """The cells of the grid under their frozen settings; the model as written has its pool in any case."""
    return _test_cells(study, frozen)[0].part("test", only=worked_on(study, "test"))


def limit(study: Study, frozen: Frozen) -> Part | None:
    """An independent pool of each generator that votes are taken of, as large as is said."""
    spec = study.spec.limit
    if spec is None or spec.n is None:
        return None
    tested, pairs = _test_cells(study, frozen)
    cells = _Cells(study)
    cells.data = tested.data
    cells.data["grid"]["n"] = [spec.n]
    voted = set()
    for g, s in pairs.values():
        data = cells.data["strategies"][s]
        if registry.says(data["kind"], "votes") and not data.keys() & {"over", "answer"}:
            data["n"] = spec.n
            cells.add(g, s, *tested.names[f"{g}/{s}"])
            voted.add(g)
    votes = _free("votes", cells.data["strategies"])
    for model in study.experiment.grid.generators:
        if model not in voted:
            cells.data["strategies"][votes] = {"kind": "majority", "n": spec.n}
            cells.add(model, votes, model, votes, "")
    return cells.part("limit", seed=spec.seed, only=worked_on(study, "limit"), limited=False)


def splitting(study: Study) -> Part | None:
    """Pools that are as large as the most samples of a split, scored with every number of critiques."""
    spec = study.spec.splitting
    if spec is None:
        return None
    cells, ns = _Cells(study), list(spec.n)
    made: dict[str, tuple[dict[str, Any], str]] = {
        "split-majority": ({"kind": "majority", "n": ns}, "no critique")
    }
    for k, verifier in sorted(spec.critiques.items()):
        made[f"split-{k}"] = {"kind": spec.aggregate, "verifier": verifier, "n": ns}, f"critiques={k}"
    for name, (data, _) in made.items():
        cells.data["strategies"][name] = data
    for model in spec.models:
        if (score := _verification_score(study, model)) is not None:
            cells.data["generators"][model]["scored"] = score
        for name, (_, called) in made.items():
            cells.add(model, name, model, name, called)
    return cells.part("splitting", only=worked_on(study, "splitting"), limited=False)


def _verification_score(study: Study, model: str) -> str | None:
    """The recorded score that tells whether a recorded sample was verified: that of the most critiques.

    One critique may lack a verdict, which is then its lot; a sample without any was not verified.
    """
    experiment, spec = study.experiment, study.spec.splitting
    generator = experiment.generators[model]
    if spec is None or not isinstance(generator, ReplaySpec) or generator.scored is not None:
        return None
    judges: list[Any] = [experiment.verifiers[name] for _, name in sorted(spec.critiques.items())]
    scores = [judge.score for judge in judges if judge.kind == "recorded"]
    return scores[-1] if scores else None


def temperature(study: Study) -> Part | None:
    """Pools of each model at each temperature, and with each adapter as written; every one is a model of its own."""
    spec = study.spec.temperature
    if spec is None:
        return None
    cells = _Cells(study)
    ladder = sorted({*(2**i for i in range(spec.n.bit_length()) if 2**i <= spec.n), spec.n})
    majority, single = (_free(name, cells.data["strategies"]) for name in ("votes", "one"))
    cells.data["strategies"] |= {majority: {"kind": "majority", "n": ladder}, single: {"kind": "sample"}}
    for one in variants(study).values():
        generator = cells.generator(one["model"], one["setting"])
        for strategy in (majority, single):
            cells.add(generator, strategy, generator, strategy, words(one["setting"]))
    only = worked_on(study, "temperature")
    return cells.part("temperature", task=_warm(study), only=only, limited=False)


def has_own_temperature_problems(study: Study) -> bool:
    """Whether the role `temperature` has other problems than the test."""
    return _warm(study) is not None


def _warm(study: Study) -> Mapping[str, Any] | None:
    """What the role `temperature` lays over the task; None: it has the problems of the test."""
    if study.spec.temperature is not None and study.spec.temperature.task is not None:
        return study.spec.temperature.task
    return None if study.spec.development is None else study.spec.development.task


def variants(study: Study) -> dict[str, dict[str, Any]]:
    """The generators of the role `temperature`: → their model, and what was set."""
    spec = study.spec.temperature
    if spec is None:
        return {}
    return {
        variant(model, setting): {"model": model, "setting": dict(setting)}
        for model in spec.models
        for _, setting in spec.settings_of(model)
    }


def check(study: Study) -> None:
    """ConfigError for what would stop a role before it begins: parts that do not fit, problems that are not apart."""
    for _ in parts(study, {}):
        pass
    development(study)
    apart(study)


def apart(study: Study) -> None:
    """ConfigError where a task of development or of temperature has problems of the test, whatever their ids."""
    spec, tested = study.spec, worked_on(study, "test")
    asked = []
    if spec.development is not None and spec.development.task is not None:
        asked.append((development(study), "a share in place of the task"))
    if spec.temperature is not None and spec.temperature.task is not None:
        asked.append((temperature(study), "no task of its own"))
    known = {
        problem.prompt.digest
        for place, problem in enumerate(_problems(study.experiment) if asked else ())
        if tested is None or tested(place, problem)
    }
    for part, remedy in asked:
        assert part is not None
        problems = _problems(part.experiment)
        if shared := [problem.id for problem in problems if problem.prompt.digest in known]:
            raise ConfigError(
                f"study.{part.role}.task: {len(shared)} problems of {part.role} are test problems ({shared[0]!r}, …); "
                f"give another split or seed, or {remedy}"
            )


def developing(share: float) -> Callable[[int, Problem], bool]:
    """Whether a problem is one of development, by its prompt alone.

    So more problems change none of the others, and a prompt that is there twice is on one side.
    """

    def is_chosen(place: int, problem: Problem) -> bool:
        drawn = hashlib.sha256(b"development/" + problem.prompt.digest).digest()
        return int.from_bytes(drawn[:8], "big") < share * 2**64

    return is_chosen


def prune_definitions(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain data, without the definitions that no cell of it needs."""
    data = plain(experiment)
    for name in ("cache", "serve"):  # change no result
        data.pop(name, None)
    kept = definitions.definitions_of(experiment, *definitions.of_cells(experiment.grid.cells))
    for section in SECTIONS:
        of = data.get(section, {})
        data[section] = {name: part for name, part in of.items() if (section, name) in kept}
    return data


def definitions_of(experiment: Experiment, *roots: definitions.Part) -> dict[str, dict[str, Any]]:
    """The definitions of these parts, as `section.name`, and of all that they name: plain data."""
    found = definitions.definitions_of(experiment, *roots)
    return {f"{section}.{name}": plain(spec) for (section, name), spec in found.items()}


def plain(spec: Spec) -> dict[str, Any]:
    """A definition as its file would have it, with defaults."""
    return spec.model_dump(mode="json", exclude_none=True)


# ------------------------------------------------------------------------------------------------ in common


def _test_cells(study: Study, frozen: Frozen) -> tuple[_Cells, dict[tuple[str, str], tuple[str, str]]]:
    """The cells of the test, and for each model and strategy its generator and strategy there."""
    cells, pairs = _Cells(study), {}
    for model, strategy in study.experiment.grid.cells:
        setting = frozen.get((model, strategy))
        called = "" if setting is None else words(setting)
        pairs[model, strategy] = cells.cell(model, strategy, setting or {}, called)
    return cells, pairs


def worked_on(study: Study, role: Role) -> Callable[[int, Problem], bool] | None:
    """Of a place of a role's task and its problem, whether the role works on it; None where it does on all."""
    spec = study.spec.development
    if spec is None or spec.share is None or (role == "temperature" and _warm(study) is not None):
        return None
    held = developing(spec.share)
    return held if role == "development" else lambda place, problem: not held(place, problem)


def _sizes(study: Study, strategy: str) -> list[int]:
    """The n of a strategy; none for one without n."""
    found = sizes(study.experiment.strategies[strategy], study.experiment.grid.n)
    return [n for n in found if n is not None]


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A name that the file has not."""
    while name in taken:
        name += "-"
    return name


def _problems(experiment: Experiment) -> Iterator[Problem]:
    task = registry.make("task", experiment.task.kind, experiment.task.options(), {})
    found: Iterator[Problem] = task.problems()
    return found
