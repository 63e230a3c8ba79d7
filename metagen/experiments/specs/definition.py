"""A part's definition in a file: read by the model of its kind, which nothing imports before it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from metagen.errors import ConfigError
from metagen.experiments import registry
from metagen.experiments.registry import Section
from metagen.experiments.specs import engines, generators, tasks, verifiers
from metagen.experiments.specs.derived import Unspeakable, derived
from metagen.experiments.specs.parts import PartSpec, PluginSpec
from metagen.experiments.specs.strategies import ByDifficultySpec, PluginStrategySpec

#: Kinds whose fields are written down; those of others are derived from what makes them.
WRITTEN: Final[Mapping[Section, Mapping[str, type[PartSpec]]]] = {
    "engines": {"torch": engines.TorchSpec, "vllm": engines.VLLMSpec, "openai": engines.OpenAISpec},
    "generators": {"engine": generators.EngineGeneratorSpec, "replay": generators.ReplaySpec},
    "verifiers": {
        "prm": verifiers.PrmSpec,
        "implicit": verifiers.ImplicitSpec,
        "orm": verifiers.OrmSpec,
        "oracle": verifiers.OracleSpec,
        "recorded": verifiers.RecordedSpec,
        "constraint_mass": verifiers.ConstraintMassSpec,
        "examples": verifiers.ExamplesSpec,
        "dual_agreement": verifiers.DualAgreementSpec,
        "public_tests": verifiers.PublicTestsSpec,
        "judge": verifiers.JudgeSpec,
        "tournament": verifiers.TournamentSpec,
        "ensemble": verifiers.EnsembleSpec,
        "with_thought": verifiers.WithThoughtSpec,
        "calibrated": verifiers.CalibratedSpec,
    },
    "strategies": {"by_difficulty": ByDifficultySpec},
    "task": {
        "arithmetic": tasks.ArithmeticSpec,
        "programs": tasks.ProgramsSpec,
        "countdown": tasks.CountdownSpec,
        "game24": tasks.Game24Spec,
        "jsonl": tasks.JsonlSpec,
        "table": tasks.TableSpec,
        "recorded": tasks.RecordedTaskSpec,
        "gsm8k": tasks.SolutionsSpec,
        "math": tasks.SolutionsSpec,
        "aime": tasks.SolutionsSpec,
        "humaneval": tasks.PublicSpec,
        "mbpp": tasks.MBPPSpec,
        "cruxeval": tasks.CRUXEvalSpec,
        "livecodebench": tasks.LiveCodeBenchSpec,
        "apps": tasks.APPSSpec,
        "code_contests": tasks.CodeContestsSpec,
    },
}
#: Of kinds that other packages bring.
PLUGINS: Final[Mapping[Section, type[PartSpec]]] = {
    "engines": PluginSpec,
    "generators": generators.PluginGeneratorSpec,
    "verifiers": verifiers.PluginVerifierSpec,
    "strategies": PluginStrategySpec,
    "task": PluginSpec,
}
#: The kind of a definition that names none.
DEFAULTS: Final[Mapping[Section, str]] = {"generators": "engine"}


def model_of(section: Section, kind: object) -> type[PartSpec] | None:
    """The model of a kind's definitions; None if there is no such kind."""
    if not isinstance(kind, str):
        return None
    if registry.external(section, kind):
        return _brought(section, kind) or PLUGINS[section]
    if kind in WRITTEN[section]:
        return WRITTEN[section][kind]
    return derived(section, kind) if kind in registry.KINDS[section] else None


def _brought(section: Section, kind: str) -> type[PartSpec] | None:
    """The model of a kind of another package, if its fields can be told from its class."""
    if section != "strategies":
        return None
    try:
        return derived(section, kind)
    except (ConfigError, Unspeakable):
        return None


@dataclass(frozen=True, slots=True)
class Definition:
    """Says of a field's type that it holds the definition of a part of this section."""

    section: Section

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For editors: the definitions of all kinds that have names, and whatever other packages bring."""
        kinds = [model_of(self.section, kind) for kind in registry.KINDS[self.section]]
        models = dict.fromkeys([*(model for model in kinds if model is not None), PLUGINS[self.section]])
        return {"anyOf": [handler(model.__pydantic_core_schema__) for model in models]}

    def _read(self, value: Any, info: ValidationInfo) -> PartSpec:
        if isinstance(value, PartSpec):
            return value
        kind = self.kind(value)
        if kind is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        if (model := model_of(self.section, kind)) is None:
            known = ", ".join(registry.kinds(self.section))
            raise PydanticKnownError(
                "union_tag_invalid", {"discriminator": "'kind'", "tag": kind, "expected_tags": known}
            )
        # As JSON: strictly, but lists become tuples.
        return model.model_validate_json(json.dumps({"kind": kind, **value}), context=info.context)

    def kind(self, value: Any) -> str | None:
        """What a definition says its kind is."""
        if not isinstance(value, Mapping):
            return None
        kind = value.get("kind", DEFAULTS.get(self.section))
        return kind if isinstance(kind, str) else None
