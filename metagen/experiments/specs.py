"""An experiment as a value: one pydantic model for each kind of part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from metagen.budget import Budget
from metagen.experiments import registry
from metagen.experiments.registry import Section
from metagen.experiments.source import nearest
from metagen.generators import tiny
from metagen.generators.engine import SamplingParams
from metagen.tasks.records import Hub
from metagen.verifiers.published import LAYOUTS
from metagen.verifiers.reward import Aggregation, Tags

SECTIONS: Final = ("engines", "generators", "verifiers", "strategies")


# ------------------------------------------------------------------------------------- fields with a meaning


@dataclass(frozen=True, slots=True)
class Expects:
    """Says in a field's type what is expected of it; messages repeat it."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="expected", custom_error_message=f"expected {self.what}"
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What a field is checked against: the names defined in each section, and where relative paths begin."""

    names: Mapping[str, tuple[str, ...]]
    base: File


def _reference(section: str) -> AfterValidator:
    def check(name: str, info: ValidationInfo) -> str:
        if isinstance(info.context, Context):
            known = info.context.names.get(section, ())
            if name not in known:
                raise ValueError(
                    f"expected one of the {section} {', '.join(known) or '(none)'}{nearest(name, known)}"
                )
        return name

    return AfterValidator(check)


def _model(name: str, info: ValidationInfo) -> str:
    """An embedded model's name as it is; a directory as an absolute path."""
    known = tiny.names()
    if name in known:
        return name
    base = info.context.base if isinstance(info.context, Context) else File()
    directory = base / File(name).expanduser()
    if (directory / "config.json").is_file():
        return str(directory.resolve())
    what = "has no config.json" if directory.is_dir() else "is not there"
    raise ValueError(
        f"the directory {what}; expected one with a model, or one of {', '.join(known) or '(no embedded model)'}"
        + nearest(name, known)
    )


def _file(path: str, info: ValidationInfo) -> str:
    base = info.context.base if isinstance(info.context, Context) else File()
    file = (base / File(path).expanduser()).resolve()
    if not file.is_file():
        raise ValueError(f"there is no file {str(file)!r}; expected a path, relative to the experiment file")
    return str(file)


T = TypeVar("T", tuple[Any, ...], dict[str, Any])


def _some(values: T) -> T:
    if not values:
        raise ValueError("expected at least one")
    return values


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = sorted({str(v) for v in values if values.count(v) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given more than once; name each once")
    return values


def _pool_field(name: str) -> str:
    if name not in ("id", "texts", "generated") and not name.startswith("scores."):
        raise ValueError(
            "expected one of id, texts, generated, scores.NAME" + nearest(name, ("id", "texts", "generated"))
        )
    return name


def _regex(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"not a regular expression ({error}); expected one with one group") from None
    if groups != 1:
        raise ValueError(f"expected a regular expression with one group, what it captures; it has {groups}")
    return pattern


def _template(text: str) -> str:
    if "{question}" not in text:
        raise ValueError("expected a text with {question} in it")
    return text


EngineName = Annotated[str, Expects("the name of an engine"), _reference("engines")]
VerifierName = Annotated[str, Expects("the name of a verifier"), _reference("verifiers")]
GeneratorName = Annotated[str, Expects("the name of a generator"), _reference("generators")]
StrategyName = Annotated[str, Expects("the name of a strategy"), _reference("strategies")]
#: Names stand in paths and in `generator/strategy@n`.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"), Expects("a name of letters, digits and . _ + -")
]
ModelName = Annotated[
    str, Expects("a model directory, or the name of an embedded model"), AfterValidator(_model)
]
FileName = Annotated[str, Expects("the path of a file"), AfterValidator(_file)]
Pattern = Annotated[str, Expects("a regular expression with one group"), AfterValidator(_regex)]
Text = Annotated[str, Expects("a text")]
Integer = Annotated[int, Expects("an integer")]
Count = Annotated[int, Field(ge=1), Expects("an integer ≥ 1")]
Amount = Annotated[int, Field(ge=0), Expects("an integer ≥ 0")]
Quantity = Annotated[float, Field(ge=0), Expects("a number ≥ 0")]
Switch = Annotated[bool, Expects("true or false")]


# ------------------------------------------------------------------------------------------ parts


class Spec(BaseModel):
    """What all parts of an experiment share: frozen, strict, nothing unknown, no infinities."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class PartSpec(Spec):
    """A definition of some kind. `options` are what its class is made with, besides other parts."""

    kind: str
    #: Fields that name other parts, or are dealt with by hand.
    references: ClassVar[frozenset[str]] = frozenset({"kind"})

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name not in self.references}


class PluginSpec(PartSpec):
    """A part that another package brings; its options are checked against its class's parameters."""

    model_config = ConfigDict(extra="allow")
    kind: Annotated[str, Expects("a kind's name, or package.module:Class")]

    def options(self) -> dict[str, Any]:
        return super().options() | (self.model_extra or {})


# -------------------------------------------------------------------------------------------------- engines


class TorchSpec(PartSpec):
    """A local model on the torch engine."""

    kind: Literal["torch"]
    model: ModelName
    device: Annotated[str, Expects("a torch device, such as cpu or cuda:0")] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    max_batch: Count | None = None
    kv_memory_bytes: Count | None = None
    max_context: Count | None = None
    threads: Count | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        return given | {"model": tiny.resolve(self.model)}


# ----------------------------------------------------------------------------------------------- generators


class EngineGeneratorSpec(PartSpec):
    """An engine under sampling parameters: the fields of SamplingParams."""

    references = frozenset({"kind", "engine"})
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
    fields: dict[Annotated[str, AfterValidator(_pool_field)], Text] = {}


class PluginGeneratorSpec(PluginSpec):
    """A generator of another package."""

    references = frozenset({"kind", "engine"})
    engine: EngineName | None = None


# ------------------------------------------------------------------------------------------------ verifiers


LayoutName = Annotated[Literal[*LAYOUTS], Expects(f"one of the layouts {', '.join(LAYOUTS)}")]  # type: ignore[valid-type]  # the names of a table
Delimiter = Annotated[str, Field(min_length=1), Expects("the text that ends a step")]


class TagsSpec(Spec):
    """The tokens by which a reward model speaks; by default those that its config.json names."""

    tag: Text
    positive: Text
    negative: Text
    delimiter: Text = "\n"

    @property
    def tags(self) -> Tags:
        return Tags(**self.model_dump())


class OrmSpec(PartSpec):
    """An outcome reward model. layout: by default, what its config.json names."""

    references = frozenset({"kind", "engine", "tags"})
    kind: Literal["orm"]
    engine: EngineName
    tags: TagsSpec | None = None
    layout: LayoutName | None = None


class PrmSpec(PartSpec):
    """A process reward model; `aggregation` makes one value of those of the steps.

    layout: by default, what its config.json names. delimiter: what ends a step, if not what the layout has.
    """

    references = frozenset({"kind", "engine", "tags"})
    kind: Literal["prm"]
    engine: EngineName
    tags: TagsSpec | None = None
    layout: LayoutName | None = None
    delimiter: Delimiter | None = None
    aggregation: Aggregation = "last"


class ImplicitSpec(PartSpec):
    """A process reward that is the log-ratio of two language models."""

    references = frozenset({"kind", "engine", "reference"})
    kind: Literal["implicit"]
    engine: EngineName
    reference: EngineName
    beta: Annotated[float, Field(gt=0), Expects("a number > 0")]
    delimiter: Delimiter = "\n"
    cumulative: Switch = False
    aggregation: Aggregation = "last"


class OracleSpec(PartSpec):
    """The task's grader as a verifier: for upper bounds."""

    kind: Literal["oracle"]


class RecordedSpec(PartSpec):
    """Scores that were recorded with a pool, under `scores.NAME` of the generator's fields."""

    kind: Literal["recorded"]
    score: Text

    def options(self) -> dict[str, Any]:
        return {"name": self.score}


class PublicTestsSpec(PartSpec):
    """The share of a problem's public tests that a program passes, in a sandbox; with words on what failed."""

    kind: Literal["public_tests"]
    #: Of one execution: seconds of wall clock, and bytes.
    wall: Annotated[float, Field(gt=0), Expects("a number of seconds > 0")] | None = None
    memory: Count | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name in ("wall", "memory") if (value := getattr(self, name)) is not None}
        if not given:
            return {}
        from metagen.verifiers.code.limits import Limits

        return {"limits": Limits(**given)}


class WordingSpec(PartSpec):
    """What judges are asked, in other words than their own, and how they come to a verdict."""

    references = frozenset({"kind", "engine"})
    engine: EngineName
    template: Text | None = None
    labels: Annotated[dict[Text, Annotated[float, Expects("a number")]], AfterValidator(_some)] | None = None
    cue: Text | None = None
    join: Text | None = None
    chat: Switch | None = None
    #: Written before the verdict, which is averaged over them.
    critiques: Amount = 0
    temperature: Annotated[float, Field(ge=0), Expects("a number ≥ 0 (0 is greedy)")] = 1.0
    max_tokens: Count = 512
    normalise: Switch = True

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if value is not None}


class JudgeSpec(WordingSpec):
    """A generative verifier: the probability of a label, or a rating from 1 to 5."""

    kind: Literal["judge"]
    ask: Literal["correct", "rubric"] = "correct"


class TournamentSpec(WordingSpec):
    """Candidates compared in pairs, in both orders."""

    kind: Literal["tournament"]
    meetings: Count | None = None
    merge: Literal["mean", "log-odds"] = "mean"
    strengths: Literal["win_rate", "bradley_terry"] = "win_rate"


class EnsembleSpec(PartSpec):
    """Several verifiers as one."""

    references = frozenset({"kind", "members"})
    kind: Literal["ensemble"]
    members: Annotated[tuple[VerifierName, ...], AfterValidator(_some), AfterValidator(_distinct)]
    combine: Literal["mean", "worst", "uncertainty"] = "mean"
    penalty: Quantity = 1.0
    weights: tuple[Quantity, ...] | None = None


class CalibratedSpec(PartSpec):
    """A verifier whose scores p become σ(logit(p) / temperature + bias)."""

    references = frozenset({"kind", "verifier"})
    kind: Literal["calibrated"]
    verifier: VerifierName
    temperature: Annotated[float, Field(gt=0), Expects("a number > 0")] = 1.0
    bias: Annotated[float, Expects("a number")] = 0.0
    steps: Switch = False


class PluginVerifierSpec(PluginSpec):
    """A verifier of another package."""

    references = frozenset({"kind", "engine"})
    engine: EngineName | None = None


def made_of(spec: PartSpec | None) -> tuple[str, ...]:
    """The verifiers that a verifier is made of, by name."""
    if isinstance(spec, EnsembleSpec):
        return spec.members
    return (spec.verifier,) if isinstance(spec, CalibratedSpec) else ()


# ----------------------------------------------------------------------------------------------- strategies


class PlainStrategySpec(PartSpec):
    """A strategy without a verifier."""

    kind: Literal["sample", "greedy", "majority"]


class ScoredStrategySpec(PartSpec):
    """A strategy that selects by a verifier's scores."""

    references = frozenset({"kind", "verifier"})
    kind: Literal["best_of_n", "weighted"]
    verifier: VerifierName


class PluginStrategySpec(PluginSpec):
    """A strategy of another package."""

    references = frozenset({"kind", "verifier"})
    verifier: VerifierName | None = None


# ----------------------------------------------------------------------------------------------------- tasks


class ArithmeticSpec(PartSpec):
    """The embedded task: `per_level` problems of each level."""

    kind: Literal["arithmetic"]
    split: Literal["train", "validation", "test"] = "test"
    levels: Annotated[
        tuple[Annotated[int, Field(ge=1, le=6), Expects("a level from 1 to 6")], ...],
        AfterValidator(_some),
        AfterValidator(_distinct),
    ] = (1, 2, 3, 4, 5, 6)
    per_level: Count = 20
    form: Literal["steps", "direct"] = "steps"
    seed: Integer = 0
    limit: Count | None = None


class ProgramsSpec(PartSpec):
    """The embedded task of programs from examples."""

    kind: Literal["programs"]
    split: Literal["train", "validation", "test"] = "test"
    levels: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4), Expects("a level from 1 to 4")], ...],
        AfterValidator(_some),
        AfterValidator(_distinct),
    ] = (1, 2, 3, 4)
    per_level: Count = 20
    seed: Integer = 0
    limit: Count | None = None


class AnswersSpec(PartSpec):
    """How the answers of a task are read and told apart: as numbers, or as mathematics of any kind."""

    references = frozenset({"kind", "answer", "percent"})
    answer: Literal["number", "math"] = "number"
    percent: Literal["hundredths", "dropped"] = "hundredths"
    pattern: Pattern | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        if self.answer == "number":
            return given
        from metagen.verifiers.math import MathRule

        return given | {"answer": MathRule(given.pop("pattern", None), percent=self.percent)}


class JsonlSpec(AnswersSpec):
    """Problems from a JSONL file, one a line; the fields are those of JsonlTask."""

    kind: Literal["jsonl"]
    path: FileName
    fields: dict[Literal["id", "question", "answer", "level"], Text] = {}
    prompt: Annotated[Text, AfterValidator(_template)] = "{question}\n"
    reference: Pattern | None = None
    delimiter: Text = "\n"
    limit: Count | None = None


class HubSpec(Spec):
    """A data set that the library `datasets` loads."""

    name: Text
    config: Text | None = None
    split: Text = "test"
    revision: Text | None = None


class SourceSpec(PartSpec):
    """A task whose problems come from a local file (`path`), or from a data set on the hub."""

    references = frozenset({"kind", "path", "hub", "answer", "percent"})
    path: FileName | None = None
    hub: HubSpec | None = None
    limit: Count | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        source = self.path if self.hub is None else Hub(**self.hub.model_dump())
        return given if source is None else given | {"source": source}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path is not None and self.hub is not None:
            raise ValueError("there are a path and a hub; give one of them")
        return self


class TableSpec(SourceSpec, AnswersSpec):
    """Problems from a Parquet, CSV or TSV file, one a row; the other fields are those of JsonlSpec."""

    kind: Literal["table"]
    fields: dict[Literal["id", "question", "answer", "level"], Text] = {}
    prompt: Annotated[Text, AfterValidator(_template)] = "{question}\n"
    reference: Pattern | None = None
    delimiter: Text = "\n"

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if self.path is None and self.hub is None:
            raise ValueError("there is no source; give path, a file, or hub, a data set")
        return self


class PublicSpec(SourceSpec):
    """A public data set; without a source it is fetched from where it is published."""

    kind: Literal["gsm8k", "math", "aime", "humaneval"]
    form: Literal["chat", "few_shot"] = "chat"


class MBPPSpec(SourceSpec):
    """MBPP; `shown` of its assertions are public tests."""

    kind: Literal["mbpp"]
    form: Literal["chat", "few_shot"] = "chat"
    shown: Amount = 3
    challenge: Switch = False


class CRUXEvalSpec(SourceSpec):
    """CRUXEval: predict the output of a function, or an input."""

    kind: Literal["cruxeval"]
    form: Literal["chat", "few_shot"] = "chat"
    mode: Literal["output", "input"] = "output"


# ---------------------------------------------------------------------------------------------- the experiment


def _kind(section: Section, default: str | None = None) -> Callable[[Any], str | None]:
    """The tag of a definition: its kind, or `plugin`."""

    def tag(value: Any) -> str | None:
        kind = value.get("kind", default) if isinstance(value, Mapping) else getattr(value, "kind", None)
        if not isinstance(kind, str):
            return None
        return "plugin" if registry.external(section, kind) else kind

    return tag


EngineSpec = Annotated[
    Annotated[TorchSpec, Tag("torch")] | Annotated[PluginSpec, Tag("plugin")],
    Discriminator(_kind("engines")),
]
GeneratorSpec = Annotated[
    Annotated[EngineGeneratorSpec, Tag("engine")]
    | Annotated[ReplaySpec, Tag("replay")]
    | Annotated[PluginGeneratorSpec, Tag("plugin")],
    Discriminator(_kind("generators", default="engine")),
]
VerifierSpec = Annotated[
    Annotated[PrmSpec, Tag("prm")]
    | Annotated[ImplicitSpec, Tag("implicit")]
    | Annotated[OrmSpec, Tag("orm")]
    | Annotated[OracleSpec, Tag("oracle")]
    | Annotated[RecordedSpec, Tag("recorded")]
    | Annotated[PublicTestsSpec, Tag("public_tests")]
    | Annotated[JudgeSpec, Tag("judge")]
    | Annotated[TournamentSpec, Tag("tournament")]
    | Annotated[EnsembleSpec, Tag("ensemble")]
    | Annotated[CalibratedSpec, Tag("calibrated")]
    | Annotated[PluginVerifierSpec, Tag("plugin")],
    Discriminator(_kind("verifiers")),
]
StrategySpec = Annotated[
    Annotated[PlainStrategySpec, Tag("sample")]
    | Annotated[PlainStrategySpec, Tag("greedy")]
    | Annotated[PlainStrategySpec, Tag("majority")]
    | Annotated[ScoredStrategySpec, Tag("best_of_n")]
    | Annotated[ScoredStrategySpec, Tag("weighted")]
    | Annotated[PluginStrategySpec, Tag("plugin")],
    Discriminator(_kind("strategies")),
]
TaskSpec = Annotated[
    Annotated[ArithmeticSpec, Tag("arithmetic")]
    | Annotated[ProgramsSpec, Tag("programs")]
    | Annotated[JsonlSpec, Tag("jsonl")]
    | Annotated[TableSpec, Tag("table")]
    | Annotated[PublicSpec, Tag("gsm8k")]
    | Annotated[PublicSpec, Tag("math")]
    | Annotated[PublicSpec, Tag("aime")]
    | Annotated[PublicSpec, Tag("humaneval")]
    | Annotated[MBPPSpec, Tag("mbpp")]
    | Annotated[CRUXEvalSpec, Tag("cruxeval")]
    | Annotated[PluginSpec, Tag("plugin")],
    Discriminator(_kind("task")),
]
UNIONS: Final[Mapping[Section, Any]] = {
    "engines": EngineSpec,
    "generators": GeneratorSpec,
    "verifiers": VerifierSpec,
    "strategies": StrategySpec,
    "task": TaskSpec,
}


class GridSpec(Spec):
    """What is run: every generator with every strategy, at every n. Without names, all that are defined."""

    generators: Annotated[tuple[GeneratorName, ...], AfterValidator(_some), AfterValidator(_distinct)]
    strategies: Annotated[tuple[StrategyName, ...], AfterValidator(_some), AfterValidator(_distinct)]
    n: Annotated[tuple[Count, ...], AfterValidator(_distinct)] = ()


class ExecutorSpec(Spec):
    """How the experiment is run; none of it changes a result."""

    #: Problems in work at a time.
    concurrency: Count = 64


@dataclass(frozen=True, slots=True)
class BudgetSpec(Budget):
    """A Budget as read from outside."""

    generated: Amount | None = None
    prefilled: Amount | None = None
    calls: Amount | None = None
    flops: Quantity | None = None
    money: Quantity | None = None
    seconds: Quantity | None = None


class Experiment(Spec):
    """One experiment: what is asked, of what, how, and at which cost. `budget` is for each problem."""

    name: Name
    seed: Integer = 0
    task: TaskSpec
    engines: dict[Name, EngineSpec] = {}
    generators: Annotated[dict[Name, GeneratorSpec], AfterValidator(_some)]
    verifiers: dict[Name, VerifierSpec] = {}
    strategies: Annotated[dict[Name, StrategySpec], AfterValidator(_some)]
    grid: GridSpec
    budget: BudgetSpec | None = None
    executor: ExecutorSpec = ExecutorSpec()
