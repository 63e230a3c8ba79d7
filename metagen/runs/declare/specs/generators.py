"""Generators."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from metagen.generators.decoding.adapters import XTC, Dry, Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.presets import PRESETS, Preset, preset
from metagen.generators.engine import SamplingParams
from metagen.generators.unit import UnitMap
from metagen.runs.declare.specs.engines import PriceSpec
from metagen.runs.declare.specs.fields import EngineName, FileName, pool_field
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, Spec, naming
from metagen.runs.declare.specs.searches import SearchFields
from metagen.values import Amount, Count, Expects, Switch, Text

KINDS = ("regex", "choice", "json_schema", "lark")


class GrammarSpec(Spec):
    """What completions are held to: one of a regular expression, a list of texts, a JSON schema, a Lark grammar."""

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
    def grammar(self) -> Grammar:
        """As generators take it."""
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


class MirostatSpec(Spec):
    """The surprise to keep near, in bits, and how fast the cut follows."""

    tau: Annotated[float, Field(gt=0), Expects("a number > 0, in bits")] = 5.0
    eta: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.1


class DrySpec(Spec):
    """How much a token loses that goes on with a repetition, and what no repetition runs across."""

    multiplier: Annotated[float, Field(gt=0), Expects("a number > 0")] = 0.8
    base: Annotated[float, Field(ge=1, le=4), Expects("a number from 1 to 4")] = 1.75
    allowed_length: Count = 2
    breakers: Annotated[tuple[Text, ...], Expects("a list of texts")] = Dry().breakers
    last: Amount = 0


class XTCSpec(Spec):
    """How often the best tokens are cut, and from which probability on a token is one of them."""

    probability: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.5
    threshold: Annotated[float, Field(gt=0, le=0.5), Expects("a number in (0, 0.5]")] = 0.1


Share = Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1] (1 is off)")]
Threshold = Annotated[float, Field(ge=0, lt=1), Expects("a number in [0, 1) (0 is off)")]
Penalty = Annotated[float, Expects("a number (0 is off)")]
Filled = Annotated[str, Field(min_length=1), Expects("a text that is not empty")]
Ids = tuple[Amount, ...]


class EngineGeneratorSpec(PartSpec):
    """An engine under sampling parameters: the fields of SamplingParams, and a preset for those that are left out."""

    uses = naming(engine="engines")
    by_hand = frozenset({"preset"})
    kind: Literal["engine"] = "engine"
    engine: EngineName
    preset: Annotated[Preset, Expects(f"one of {', '.join(PRESETS)}")] | None = None
    temperature: Annotated[float, Field(ge=0), Expects("a number ≥ 0 (0 is greedy)")] = 1.0
    top_k: Annotated[int, Field(ge=0), Expects("an integer ≥ 0 (0 is off)")] = 0
    top_p: Share = 1.0
    max_tokens: Count = 256
    stop: tuple[Filled, ...] = ()
    stop_token_ids: tuple[Amount, ...] = ()
    ignore_eos: Switch = False
    logprobs: Switch = False
    grammar: GrammarSpec | None = None
    top_logprobs: Annotated[
        Literal[0] | Annotated[int, Field(ge=2)], Expects("an integer ≥ 2, or 0 (off)")
    ] = 0
    min_tokens_to_keep: Count = 1
    top_n_sigma: Annotated[float, Field(ge=0), Expects("a number ≥ 0 (0 is off)")] = 0.0
    top_h: Share = 1.0
    min_p: Annotated[float, Field(ge=0, le=1), Expects("a number in [0, 1] (0 is off)")] = 0.0
    typical_p: Share = 1.0
    epsilon_cutoff: Threshold = 0.0
    eta_cutoff: Threshold = 0.0
    xtc: XTCSpec | None = None
    mirostat: MirostatSpec | None = None
    repetition_penalty: Annotated[float, Field(gt=0), Expects("a number > 0 (1 is off)")] = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    dry: DrySpec | None = None
    no_repeat_ngram: Amount = 0
    logit_bias: Annotated[
        tuple[tuple[Amount | Filled, float], ...], Expects("a list of pairs [id or text, number]")
    ] = ()
    sequence_bias: Annotated[
        tuple[tuple[Filled | Annotated[Ids, Field(min_length=1)], float], ...],
        Expects("a list of pairs [text or list of ids, number]"),
    ] = ()
    banned: Annotated[
        tuple[Filled | Annotated[Ids, Field(min_length=1)], ...],
        Expects("a list of texts, or of lists of ids, none of them empty"),
    ] = ()
    min_tokens: Amount = 0
    forced: Annotated[Filled | Ids, Expects("a text that is not empty, or a list of ids")] = ()
    healing: Switch = False
    log_mass: Switch = False
    thought_end: Text = ""
    search: SearchFields | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        """What is left out is the preset's, so that a definition says all that it stands for; and what single fields
        cannot know is checked.
        """
        for name, value in (preset(self.preset) if self.preset else {}).items():
            if name not in self.model_fields_set:
                object.__setattr__(self, name, value)
        self.params  # noqa: B018 - it raises what is wrong
        return self

    @property
    def params(self) -> SamplingParams:
        made = {
            "grammar": self.grammar.grammar if self.grammar else None,
            "dry": Dry(**self.dry.model_dump()) if self.dry else None,
            "xtc": XTC(**self.xtc.model_dump()) if self.xtc else None,
            "mirostat": Mirostat(**self.mirostat.model_dump()) if self.mirostat else None,
            "search": self.search.search if self.search else None,
        }
        return SamplingParams(**super().options() | made)

    def options(self) -> dict[str, Any]:
        return {"params": self.params}


def _unit(written: str) -> str:
    UnitMap.of(written)
    return written


class ReplaySpec(PartSpec):
    """Recorded samples from a JSONL file, one problem a line; `fields` maps names as ReplayGenerator does.

    where: only records in which fields have these values. scored: only the samples with this score; problems
    without any are left out. unknown: what becomes of samples without a verdict where verdicts are recorded, and of
    calls that failed. maps: how scores outside [0, 1] become weights of votes, by score. price: of a million
    tokens. thought_end: the text that ends a thought within a sample.
    """

    kind: Literal["replay"]
    path: FileName
    fields: dict[Annotated[str, AfterValidator(pool_field)], Text] = Field(default={})
    where: dict[Text, Any] = Field(default={})
    scored: Text | None = None
    unknown: Literal["exclude", "wrong", "error"] = "exclude"
    maps: dict[
        Text, Annotated[str, Expects("ranks, minmax, softmax(T) or sigmoid(T)"), AfterValidator(_unit)]
    ] = Field(default={})
    price: PriceSpec | None = None
    thought_end: Text = ""

    @model_validator(mode="after")
    def _mapped(self) -> Self:
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
