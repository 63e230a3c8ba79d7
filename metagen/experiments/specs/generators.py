"""Generators."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

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
from metagen.experiments.specs.parts import PartSpec, PluginSpec, Spec, naming
from metagen.generators.engine import SamplingParams
from metagen.generators.grammar import Grammar


class GrammarSpec(Spec):
    """What completions are held to: one of a regular expression, a list of texts, a JSON schema, a Lark grammar."""

    regex: Text | None = None
    choice: tuple[Text, ...] | None = None
    json_schema: dict[str, Any] | None = None
    lark: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of regex, choice, json_schema, lark; there are {given or 'none'}")
        return self

    @property
    def grammar(self) -> Grammar:
        """As generators take it."""
        if self.choice is not None:
            return Grammar.choice(self.choice)
        if self.json_schema is not None:
            return Grammar.json(self.json_schema)
        return Grammar.lark(self.lark) if self.lark is not None else Grammar.regex(self.regex or "")


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
    grammar: GrammarSpec | None = None
    top_logprobs: Annotated[
        Literal[0] | Annotated[int, Field(ge=2)], Expects("an integer ≥ 2, or 0 (off)")
    ] = 0

    @property
    def params(self) -> SamplingParams:
        given = super().options()
        return SamplingParams(**given | {"grammar": self.grammar.grammar if self.grammar else None})

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
