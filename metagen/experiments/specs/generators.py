"""Generators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from metagen.experiments.specs.fields import (
    Amount,
    Count,
    EngineName,
    Expects,
    FileName,
    Switch,
    Text,
    pool_field,
)
from metagen.experiments.specs.parts import PartSpec, PluginSpec, naming
from metagen.generators.engine import SamplingParams


class EngineGeneratorSpec(PartSpec):
    """An engine under sampling parameters: the fields of SamplingParams."""

    uses = naming(engine="engines")
    kind: Literal["engine"] = "engine"
    engine: EngineName
    temperature: Annotated[float, Field(ge=0), Expects("a number ≥ 0 (0 is greedy)")] = 1.0
    top_k: Annotated[int, Field(ge=0), Expects("an integer ≥ 0 (0 is off)")] = 0
    top_p: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1] (1 is off)")] = 1.0
    max_tokens: Count = 256
    stop: tuple[Annotated[str, Field(min_length=1), Expects("a text that is not empty")], ...] = ()
    stop_token_ids: tuple[Amount, ...] = ()
    ignore_eos: Switch = False
    logprobs: Switch = False

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(**super().options())

    def options(self) -> dict[str, Any]:
        return {"params": self.params}


class ReplaySpec(PartSpec):
    """Recorded samples from a JSONL file, one problem a line; `fields` maps names as ReplayGenerator does."""

    kind: Literal["replay"]
    path: FileName
    fields: dict[Annotated[str, AfterValidator(pool_field)], Text] = Field(default={})


class PluginGeneratorSpec(PluginSpec):
    """A generator of another package."""

    uses = naming(engine="engines")
    engine: EngineName | None = None
