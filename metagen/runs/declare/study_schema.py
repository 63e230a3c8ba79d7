"""Study files: an experiment file with a section `study:`, read and checked as a whole before anything runs.

Faults of the experiment and of the section come at once, each with its place in the file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError

from metagen.runs.declare import baselines, registry, settings
from metagen.runs.declare import schema as experiments
from metagen.runs.declare.cells import sizes
from metagen.runs.declare.explain import fault
from metagen.runs.declare.source import Fault, Source, nearest, spell_assignment, spell_path, write
from metagen.runs.declare.source import Path as Place
from metagen.runs.declare.specs import Context, Definition, Experiment, PartSpec, ReplaySpec
from metagen.runs.declare.study import Study, StudySpec

__all__ = ["Study", "dump", "load"]

#: Kinds of strategies that have nothing to tune.
PLAIN: Final = ("greedy",)


def load(
    path: str | Path, *, sets: Sequence[str] = (), limit: int | None = None, rehearse: bool = False
) -> Study:
    """Read and check a study file; without a section `study:` it is its experiment alone.

    sets, limit, rehearse: as in `experiments.schema.load`. Raises ConfigError that lists all faults.
    """
    source, base = (
        experiments.read_source(path, sets=sets, limit=limit, rehearse=rehearse),
        Path(path).parent,
    )
    section = source.data.pop("study", None) or {}
    experiment, faults = experiments.parse_with_faults(source, base)
    context = experiments.context_of(source, base)
    spec = None
    try:
        spec = StudySpec.model_validate_json(json.dumps(section), context=context)
    except ValidationError as errors:
        faults += (fault(source, e, StudySpec, ("study",)) for e in errors.errors(include_url=False))
    if spec is not None and experiment is not None:
        faults += _Checks(source, context, experiment, spec).faults()
    if experiment is None or spec is None or faults:
        raise experiments.config_error(source, faults, "study")
    data, spec = baselines.add_baselines(experiment, _resolve_paths(spec, experiment, context))
    return Study(experiments.parse_experiment(Source(source.name, data), base), spec, base)


def dump(study: Study) -> str:
    """YAML that loads back, from any directory, as an equal study."""
    section = study.spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return write({**study.experiment.model_dump(mode="json", exclude_none=True), "study": section})


def _resolve_paths(spec: StudySpec, experiment: Experiment, context: Context) -> StudySpec:
    """Make the paths of other problems absolute, as those of the experiment are."""
    found = {}
    for name in ("development", "temperature"):
        part = getattr(spec, name)
        if part is not None and part.task is not None:
            whole = _validate("task", _over(experiment, part.task), context).model_dump(
                mode="json", exclude_none=True
            )
            found[name] = part.model_copy(update={"task": {key: whole.get(key) for key in part.task}})
    return spec.model_copy(update=found)


def scoring(experiment: Experiment, spec: StudySpec) -> dict[str, None]:
    """The verifiers whose scores of pools a study records, as written or under a setting, in the order of the grid.

    Of best-of-n and of weighted votes; searches score other things, and what knows the answers is no reward.
    """
    tried = spec.development.settings if spec.development else {}
    found: dict[str, None] = {}
    for _, name in experiment.grid.cells:
        strategy = experiment.strategies[name]
        if not registry.says(strategy.kind, "poolable") or not strategy.plain:
            continue
        under = [setting["verifier"] for setting in tried.get(name, ()) if "verifier" in setting]
        found |= dict.fromkeys(
            str(one) for one in (getattr(strategy, "verifier", None), *under) if one is not None
        )
    return {name: None for name in found if getattr(experiment.verifiers.get(name), "kind", "") != "oracle"}


def _one_of(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"one of {listed}" if listed else "a verifier of a best_of_n or a weighted vote"


def _over(experiment: Experiment, data: Mapping[str, Any]) -> dict[str, Any]:
    return {**experiment.task.model_dump(mode="json", exclude_none=True), **data}


def _validate(section: registry.Section, data: Mapping[str, Any], context: Context) -> Any:
    """A definition of a section, strictly; pydantic's ValidationError for faults."""
    return TypeAdapter(Annotated[PartSpec, Definition(section)]).validate_json(
        json.dumps(data), context=context
    )


class _Checks:
    """What a study's parts must be to the experiment's."""

    def __init__(self, source: Source, context: Context, experiment: Experiment, spec: StudySpec) -> None:
        self.source, self.context, self.experiment, self.spec = source, context, experiment, spec

    def faults(self) -> Iterator[Fault]:
        yield from self._models()
        yield from self._development()
        yield from self._limit()
        yield from self._budgets()
        yield from self._accelerators()
        yield from self._alignment()

    def _fault(self, path: Place, expected: str, *, value: object = None) -> Fault:
        path = ("study", *path)
        field = spell_path(path) if value is None else spell_assignment(path, value)
        return Fault(self.source.place(path), field, expected)

    def _models(self) -> Iterator[Fault]:
        """Models that are looked into are models of the study."""
        for name in ("temperature", "splitting", "alignment"):
            part = getattr(self.spec, name)
            for at, model in enumerate(part.models if part else ()):
                if model not in (known := self.experiment.grid.generators):
                    yield self._fault(
                        (name, "models", at),
                        f"expected one of the grid's generators {', '.join(known)}{nearest(model, known)}",
                        value=model,
                    )
        if (part := self.spec.temperature) is not None:
            for model in part.models:
                for where, setting in part.settings_of(model):
                    yield from self._fits("generators", model, setting, ("temperature", *where))
            for model in part.engines:
                if model not in part.models:
                    named = f"{', '.join(part.models)}{nearest(model, part.models)}"
                    reason = f"expected one of study.temperature.models, {named}"
                    yield self._fault(("temperature", "engines", model), reason)

    def _development(self) -> Iterator[Fault]:
        if (part := self.spec.development) is None:
            return
        if part.share is not None and self.experiment.executor.shards is not None:
            yield self._fault(
                ("development", "share"), "drivers of shards work on all problems; leave out executor.shards, or "
                "give development a task of its own", value=part.share,
            )  # fmt: skip
        if part.task is not None:
            yield from self._task(part.task, ("development", "task"))
        for name, tried in part.settings.items():
            path: Place = ("development", "settings", name)
            if name not in self.experiment.grid.strategies:
                known = self.experiment.grid.strategies
                yield self._fault(path, f"expected one of the grid's strategies {', '.join(known)}")
                continue
            if len(tried) > part.trials:
                reason = f"{len(tried)} settings; expected at most {part.trials}, as study.development.trials has it"
                yield self._fault(path, reason)
            if (fixed := self._why_fixed(name)) is not None:
                yield self._fault(path, fixed)
                continue
            if twice := [at for at, one in enumerate(tried) if one in tried[:at]]:
                yield self._fault(
                    (*path, twice[0]), "is there twice; name each setting once", value=tried[twice[0]]
                )
            for at, setting in enumerate(tried):
                own, of_generator = settings.split(setting)
                yield from self._fits("strategies", name, own, (*path, at))
                for model in self._models_of(name) if of_generator else ():
                    yield from self._fits("generators", model, of_generator, (*path, at))

    def _models_of(self, strategy: str) -> list[str]:
        return [g for g, s in self.experiment.grid.cells if s == strategy]

    def _why_fixed(self, strategy: str) -> str | None:
        """Why a strategy has nothing to tune, if so."""
        spec = self.experiment.strategies[strategy]
        if spec.kind in PLAIN:
            return f"a strategy of kind {spec.kind} is run as written; leave it out"
        if any(
            getattr(self.experiment.verifiers.get(v), "kind", "") == "oracle"
            for v in spec.names_in("verifiers")
        ):
            return "an oracle knows the answers and is not tuned; leave it out"
        return None

    def _fits(
        self, section: registry.Section, name: str, setting: Mapping[str, Any], path: Place
    ) -> Iterator[Fault]:
        """The part with this setting is sound, and has every key of it."""
        before = getattr(self.experiment, section)[name].model_dump(mode="json", exclude_none=True)
        data = settings.overlay(before, setting)
        if "n" in setting:
            yield self._fault(path, "n is no setting: strategies are compared at each n", value=dict(setting))
            return
        yield from self._check_options(section, str(data["kind"]), setting, path)
        try:
            _validate(section, data, self.context)
        except ValidationError as errors:
            for error in errors.errors(include_url=False):
                found = fault(self.source, {**error, "loc": (section, name, *error["loc"])})
                yield self._fault(path, f"{found.field}: {found.expected}", value=dict(setting))

    def _check_options(
        self, section: registry.Section, kind: str, setting: Mapping[str, Any], path: Place
    ) -> Iterator[Fault]:
        """Report every option that a part of another package does not take; for metagen's own, definitions do so."""
        if not registry.external(section, kind):
            return
        takes = registry.parameters(section, kind)
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()):
            return
        for name in setting:
            if name.split(".")[0] not in takes:
                known = f"{', '.join(takes)}{nearest(name, list(takes))}"
                yield self._fault(
                    path, f"{kind} takes no option {name!r}; it takes {known}", value=dict(setting)
                )

    def _task(self, over: Mapping[str, Any], path: Place) -> Iterator[Fault]:
        """The task with other problems is sound."""
        try:
            _validate("task", _over(self.experiment, over), self.context)
        except ValidationError as errors:
            for error in errors.errors(include_url=False):
                found = fault(self.source, {**error, "loc": ("task", *error["loc"])})
                yield self._fault(path, f"{found.field}: {found.expected}")

    def _limit(self) -> Iterator[Fault]:
        """Samples of limits are other samples."""
        part = self.spec.limit
        if part is not None and part.n is not None:
            if part.seed == self.experiment.seed:
                reason = "the same seed draws the same samples; expected another than the study's"
                yield self._fault(("limit", "seed"), reason, value=part.seed)
            for model in self.experiment.grid.generators:
                if isinstance(self.experiment.generators[model], ReplaySpec):
                    reason = f"{model!r} replays its samples whatever the seed is; expected halves: true"
                    yield self._fault(("limit", "n"), reason, value=part.n)
            if part.n <= (most := self._largest_vote()):
                reason = f"votes go up to n = {most}, and their limit is that of a larger pool; expected more"
                yield self._fault(("limit", "n"), reason, value=part.n)
        if self.experiment.allocation is not None and self.spec != StudySpec():
            reason = "a study compares strategies at equal cost by itself; leave this section out"
            yield Fault(self.source.place(("allocation",)), "allocation", reason)
        if self.spec.temperature is not None and self.spec.temperature.task is not None:
            yield from self._task(self.spec.temperature.task, ("temperature", "task"))

    def _largest_vote(self) -> int:
        """The largest n of a vote; 0 without any."""
        used = {strategy for _, strategy in self.experiment.grid.cells}
        votes = [self.experiment.strategies[name] for name in used]
        ladders = [sizes(v, self.experiment.grid.n) for v in votes if registry.says(v.kind, "votes")]
        return max((n for ladder in ladders for n in ladder if n is not None), default=0)

    def _alignment(self) -> Iterator[Fault]:
        """Rewards are scores of pools, which strategies of the study ask for."""
        part = self.spec.alignment
        if part is None:
            return
        scored = scoring(self.experiment, self.spec)
        known = ("correct", *self.experiment.verifiers)
        if part.gold not in known:
            reason = f"expected one of {', '.join(known)}{nearest(part.gold, known)}"
            yield self._fault(("alignment", "gold"), reason, value=part.gold)
        elif part.gold == part.proxy:
            reason = "is the proxy itself; expected correct, or a verifier that does not choose"
            yield self._fault(("alignment", "gold"), reason, value=part.gold)
        for name in ("proxy", "gold"):
            verifier = getattr(part, name)
            if verifier in self.experiment.verifiers and verifier not in scored:
                reason = (
                    f"no strategy of the study scores samples by it; expected {_one_of(scored)}, or add a strategy "
                    f"such as {{kind: best_of_n, verifier: {verifier}}} to the grid"
                )
                yield self._fault(("alignment", name), reason, value=verifier)

    def _accelerators(self) -> Iterator[Fault]:
        if self.spec.accelerators and self.experiment.executor.shards is not None:
            reason = "drivers of shards keep no table of calls, of which times are modelled; leave out executor.shards"
            yield self._fault(("accelerators",), reason)

    def _budgets(self) -> Iterator[Fault]:
        for cost in self.spec.budgets:
            name = cost.partition(":")[2]
            if name and name not in (known := self.spec.accelerators):
                yield self._fault(
                    ("budgets", cost),
                    f"there is no accelerator {name!r} in study.accelerators{nearest(name, known)}",
                )
