"""The baselines of a study: greedy decoding, and one sample at a tuned temperature.

Whatever draws many samples has to beat both. A study that leaves them out can praise a strategy that loses to the
cheapest way to use its model, so that a file without them is given them (`study.baselines: false` stops that).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from metagen.runs.declare.specs import EngineGeneratorSpec, Experiment, ReplaySpec
from metagen.runs.declare.study import GENERATOR, Setting, StudySpec
from metagen.runs.note import Note

#: By kind of strategy, what a baseline is called.
NAMES: Final = {"greedy": "greedy", "sample": "single"}
#: Temperatures that one sample is tuned over, where no other strategy of the file says which.
TEMPERATURES: Final = (0.7, 0.4)
_TEMPERATURE: Final = f"{GENERATOR}temperature"


def add_baselines(experiment: Experiment, spec: StudySpec) -> tuple[dict[str, Any], StudySpec]:
    """The experiment as plain data with both baselines of every model that can have them, and the study's section.

    What the file has stays as it is; its own single sample is tuned as well, unless the file says how.
    """
    data: dict[str, Any] = experiment.model_dump(mode="json", exclude_none=True)
    if not spec.baselines:
        return data, spec
    for kind, name in NAMES.items():
        missing = [model for model in experiment.grid.generators if not _has(experiment, model, kind)]
        missing = [model for model in missing if _decodes(experiment, model, kind)]
        if missing:
            _add(data, kind, _free(name, data["strategies"]), missing)
    return data, _tune_single_samples(data, experiment, spec)


def notes(experiment: Experiment, spec: StudySpec) -> Iterator[Note]:
    """Models that a baseline is missing of, and why."""
    for model in experiment.grid.generators:
        lacking = [kind for kind in NAMES if not _has(experiment, model, kind)]
        if not lacking or (lacking == ["greedy"] and _cold(experiment, model)):
            continue
        what = " and ".join({"greedy": "greedy decoding", "sample": "one sample"}[kind] for kind in lacking)
        if isinstance(experiment.generators[model], ReplaySpec):
            why = "its samples were recorded; compare with the greedy accuracy of the same model, where it is known"
        elif not spec.baselines:
            why = "study.baselines is false; a strategy that is best here may lose to it"
        else:
            why = "it is not sampled by an engine; give it a strategy of that kind"
        yield Note(model, f"there is no {what} to compare with: {why}")


def is_single_sample(experiment: Experiment, model: str, strategy: str) -> bool:
    """Whether the strategy is one sample of a model that can draw any number of them."""
    spec = experiment.generators[model]
    independent = isinstance(spec, EngineGeneratorSpec) and not spec.searches
    return independent and experiment.strategies[strategy].kind == "sample"


def _has(experiment: Experiment, model: str, kind: str) -> bool:
    return any(experiment.strategies[s].kind == kind for g, s in experiment.grid.cells if g == model)


def _cold(experiment: Experiment, model: str) -> bool:
    """Whether the model's own samples are greedy, or are found by a search."""
    spec = experiment.generators[model]
    return isinstance(spec, EngineGeneratorSpec) and (spec.params.temperature == 0 or spec.searches)


def _decodes(experiment: Experiment, model: str, kind: str) -> bool:
    spec = experiment.generators[model]
    return isinstance(spec, EngineGeneratorSpec) and not (kind == "greedy" and _cold(experiment, model))


def _add(data: dict[str, Any], kind: str, name: str, models: list[str]) -> None:
    """A strategy, first in the grid of these models."""
    grid = data["grid"]
    every = [[g, s] for g in grid["generators"] for s in grid["strategies"]]
    pairs = grid.get("pairs", every)
    data["strategies"] = {name: {"kind": kind}, **data["strategies"]}
    grid["strategies"] = [name, *grid["strategies"]]
    whole = [[g, s] for g in grid["generators"] for s in grid["strategies"]]
    pairs = [*([model, name] for model in models), *pairs]
    grid.pop("pairs", None)
    if sorted(pairs) != sorted(whole):
        grid["pairs"] = pairs


def _tune_single_samples(data: Mapping[str, Any], experiment: Experiment, spec: StudySpec) -> StudySpec:
    """The section, in which single samples are tuned where other strategies are."""
    part = spec.development
    if part is None:
        return spec
    settings = dict(part.settings)
    pairs = data["grid"].get("pairs")
    for name in data["grid"]["strategies"]:
        models = data["grid"]["generators"] if pairs is None else [g for g, s in pairs if s == name]
        warm = all(_decodes(experiment, m, "greedy") for m in models)
        if data["strategies"][name]["kind"] == "sample" and name not in settings and warm and part.trials > 1:
            settings[name] = _settings_to_try(experiment, models, spec)[: part.trials]
    return spec.model_copy(update={"development": part.model_copy(update={"settings": settings})})


def _settings_to_try(experiment: Experiment, models: list[str], spec: StudySpec) -> tuple[Setting, ...]:
    """The setting as written, and the temperatures that other strategies try: their pools serve this one too."""
    assert spec.development is not None
    others = [
        one for tried in spec.development.settings.values() for one in tried if set(one) == {_TEMPERATURE}
    ]
    found = dict.fromkeys(float(one[_TEMPERATURE]) for one in others) or dict.fromkeys(TEMPERATURES)
    own = {getattr(experiment.generators[model], "temperature", None) for model in models}
    return ({}, *({_TEMPERATURE: value} for value in found if value > 0 and own != {value}))


def _free(name: str, taken: Mapping[str, Any]) -> str:
    return name if name not in taken else _free(f"{name}-baseline", taken)
