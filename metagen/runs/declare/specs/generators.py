"""Generators."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.presets import PRESETS, Preset, preset
from metagen.generators.engine import SamplingParams
from metagen.generators.unit import UnitMap
from metagen.runs.declare import registry
from metagen.runs.declare.specs.fields import EngineName, FileName, pool_field
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, ValueSpec, naming
from metagen.values import Expects, Switch, Text

KINDS = ("regex", "choice", "json_schema", "lark")


class GrammarSpec(ValueSpec):
    """What completions are held to: one of a regular expression, a list of texts, a JSON schema, a Lark grammar.

    regex: a regular expression. choice: texts, one of which is written. json_schema: a JSON schema. lark: a grammar
    in the Lark format. canonical: where there is one way to go on, write it in the tokens of the tokenizer. close:
    near max_tokens allow only what can still end in time. compact: JSON without white space.
    """

    regex: Text | None = None
    choice: tuple[Text, ...] | None = None
    json_schema: dict[str, Any] | None = None
    lark: Text | None = None
    canonical: Switch = True
    close: Switch = False
    compact: Switch = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of regex, choice, json_schema, lark; there are {given or 'none'}")
        if self.compact and self.json_schema is None:
            raise ValueError(f"compact is of json_schema, and there is {given[0]}; leave it out")
        return self

    @property
    def value(self) -> Grammar:
        how = {"canonical": self.canonical, "close": self.close}
        if self.choice is not None:
            return Grammar.choice(self.choice, **how)
        if self.json_schema is not None:
            return Grammar.json(self.json_schema, compact=self.compact, **how)
        return (
            Grammar.lark(self.lark, **how)
            if self.lark is not None
            else Grammar.regex(self.regex or "", **how)
        )


class EngineGenerator(PartSpec):
    """An engine under sampling parameters; a preset has those that are left out.

    `definition.EngineGeneratorSpec` has a field for each of SamplingParams. engine: what runs the model. preset:
    values of temperature and top_p for a kind of text, where the definition gives none.
    """

    uses = naming(engine="engines")
    by_hand = frozenset({"preset"})
    kind: Literal["engine"] = "engine"
    engine: EngineName
    preset: Annotated[Preset, Expects(f"one of {', '.join(PRESETS)}")] | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Take from the preset what is left out, so that a definition says all that it stands for; then check what
        single fields cannot know.
        """
        for name, value in (preset(self.preset) if self.preset else {}).items():
            if name not in self.model_fields_set:
                object.__setattr__(self, name, value)
        self.params  # noqa: B018 - it raises what is wrong
        return self

    @property
    def params(self) -> SamplingParams:
        """As generators take them."""
        return SamplingParams(**{name: make(value) for name, value in super().options().items()})

    @property
    def searches(self) -> bool:
        """Whether a search of the engine draws its samples jointly. It is asked often, and `params` are made anew."""
        return getattr(self, "search", None) is not None

    def options(self) -> dict[str, Any]:
        return {"params": self.params}


def make(value: Any) -> Any:
    """The value of a parameter from its definition."""
    if isinstance(value, ValueSpec):
        return value.value
    if isinstance(value, PartSpec):
        return registry.make("adapters", value.kind, value.options(), {})
    return tuple(map(make, value)) if isinstance(value, tuple) else value


def _unit(written: str) -> str:
    UnitMap.of(written)
    return written


class ReplaySpec(PartSpec):
    """Recorded samples from a JSONL file, one problem a line. Further fields: those of `ReplayGenerator.from_jsonl`.

    fields: maps names as ReplayGenerator does. where: only records in which fields have these values. scored: only
    the samples with this score; problems without any are left out. unknown: what becomes of samples without a verdict
    where verdicts are recorded, and of calls that failed. maps: how scores outside [0, 1] become weights of votes, by
    score. price: of a million tokens. thought_end: the text that ends a thought within a sample. path: the file.
    """

    kind: Literal["replay"]
    path: FileName
    fields: dict[Annotated[str, AfterValidator(pool_field)], Text] = Field(default={})
    where: dict[Text, Any] = Field(default={})
    scored: Text | None = None
    maps: dict[
        Text, Annotated[str, Expects("ranks, minmax, softmax(T) or sigmoid(T)"), AfterValidator(_unit)]
    ] = Field(default={})

    @model_validator(mode="after")
    def _check_maps(self) -> Self:
        if strange := [name for name in self.maps if f"scores.{name}" not in self.fields]:
            raise ValueError(
                f"maps.{strange[0]}: fields maps no scores.{strange[0]}; expected one that it maps"
            )
        if self.scored is not None and f"scores.{self.scored}" not in self.fields:
            raise ValueError(
                f"scored = {self.scored!r}: fields maps no scores.{self.scored}; expected one that it maps"
            )
        return self


class PluginGeneratorSpec(PluginSpec):
    """A generator of another package."""

    uses = naming(engine="engines")
    engine: EngineName | None = None
