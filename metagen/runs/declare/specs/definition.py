"""The model of each kind's definitions, which nothing imports before it is asked for.

Those of most strategies are derived from what makes them: a parameter of a class or a function is a field of the file
under the same name, with the same default. What is a part there is named here, or defined in its place; what is a
function is named by package.module:function; what the experiment itself provides is left out.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from metagen import trust
from metagen.cost import Price
from metagen.errors import ConfigError
from metagen.generators.base import Generator
from metagen.generators.decoding.adapters import XTC, Adapter, Dry, Mirostat
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.parameters import OFF, SamplingParams
from metagen.generators.decoding.search import SEARCHES
from metagen.generators.engine import Engine
from metagen.parts import hints_of
from metagen.runs.declare import registry
from metagen.runs.declare.registry import PROVIDED, Section
from metagen.runs.declare.specs import engines, generators, tasks, verifiers
from metagen.runs.declare.specs.drafts import DraftSpec
from metagen.runs.declare.specs.fields import (
    AnyVerifier,
    EngineName,
    GeneratorName,
    RuleName,
    StrategyName,
    distinct,
)
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, ValueSpec, naming
from metagen.runs.declare.specs.searches import SearchFields
from metagen.runs.declare.specs.strategies import (
    Asked,
    AskSpec,
    Ladder,
    OptionSpec,
    PluginStrategySpec,
    StepSpec,
)
from metagen.sequence import Step
from metagen.strategies.adaptive.by_difficulty import Option
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.chain.steps import ChainStep
from metagen.strategies.prompts import Correction
from metagen.strategies.tree.split import Split
from metagen.values import Count, Expects, Fraction, Integer, Number, Switch, Text, hints
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.generative.way import WORDING
from metagen.verifiers.layouts import TaggedSteps
from metagen.verifiers.rules import USUAL, answer_rule
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.pruning import ConfidencePruning

#: Kinds of which some fields mean more than what makes them says; the others are derived, as those of all other kinds.
COMPLETED: Final[Mapping[Section, Mapping[str, type[PartSpec]]]] = {
    "engines": {"torch": engines.LocalSpec, "vllm": engines.VLLMSpec, "openai": engines.OpenAISpec},
    "generators": {"replay": generators.ReplaySpec},
    "task": {
        "game24": tasks.Game24Spec,
        "jsonl": tasks.JsonlSpec,
        "table": tasks.TableSpec,
        "recorded": tasks.RecordedTaskSpec,
        **dict.fromkeys(("gsm8k", "svamp", "asdiv", "mawps", "math", "aime"), tasks.SolutionsSpec),
        "bbh": tasks.BBHSpec,
        "humaneval": tasks.PublicSpec,
        "mbpp": tasks.MBPPSpec,
        "cruxeval": tasks.CRUXEvalSpec,
        **dict.fromkeys(("livecodebench", "apps", "code_contests"), tasks.ContestSpec),
    },
}
#: Of kinds that other packages bring.
PLUGINS: Final[Mapping[Section, type[PartSpec]]] = {
    "engines": PluginSpec,
    "generators": generators.PluginGeneratorSpec,
    "adapters": PluginSpec,
    "verifiers": verifiers.PluginVerifierSpec,
    "strategies": PluginStrategySpec,
    "steps": PluginSpec,
    "aggregators": PluginSpec,
    "utilities": PluginSpec,
    "answers": PluginSpec,
    "task": PluginSpec,
}
#: The type of the error for a kind that there is not, or that is missing.
UNKNOWN: Final = "unknown_kind"
#: The kind of a definition that names none.
DEFAULTS: Final[Mapping[Section, str]] = {"generators": "engine"}


def model_of(section: Section, kind: object) -> type[PartSpec] | None:
    """The model of a kind's definitions; None if there is no such kind."""
    if not isinstance(kind, str):
        return None
    if registry.external(section, kind):
        return _foreign_model(section, kind) or PLUGINS[section]
    if (section, kind) == ("generators", "engine"):
        return EngineGeneratorSpec
    if (base := COMPLETED.get(section, {}).get(kind)) is not None:
        return _complete(section, kind, base)
    return derive_model(section, kind) if kind in registry.KINDS[section] else None


@cache
def _complete(section: Section, kind: str, base: type[PartSpec]) -> type[PartSpec]:
    """A model with the parameters of what makes the kind for fields that it does not have."""
    target = registry.declaration(section, kind)
    wanted, fields = parameters_of(target), dict[str, Any](kind=(Literal[kind], ...))
    if (answer := base.model_fields.get("answer")) is not None:
        rule: Any = Annotated
        fields["answer"] = (
            rule[answer.annotation, *answer.metadata, RuleDefinition("answers")],
            answer.default,
        )
    for name, parameter in inspect.signature(target).parameters.items():
        known = name in base.model_fields or name in base.filled
        if not known and parameter.kind is not parameter.VAR_KEYWORD:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (spelling(wanted[name]), default)
    return _travels(create_model(_title(kind), __base__=base, __doc__=base.__doc__, **fields), section)


def _travels(made: type[PartSpec], section: Section) -> type[PartSpec]:
    """Let definitions of a model that stands in no module go to other processes, which make the model anew."""

    def reduce(self: PartSpec) -> tuple[Any, ...]:
        return _restore, (section, self.kind, self.__getstate__())

    made.__reduce__ = reduce  # type: ignore[method-assign,assignment]  # of this class alone
    return made


def _restore(section: Section, kind: str, state: dict[Any, Any]) -> PartSpec:
    """A definition from another process."""
    model = model_of(section, kind)
    assert model is not None
    made = model.__new__(model)
    made.__setstate__(state)
    return made


def _title(kind: str) -> str:
    return f"{kind.title().replace('_', '')}Spec"


def _foreign_model(section: Section, kind: str) -> type[PartSpec] | None:
    """The model of a kind of another package, if its fields can be told from its class."""
    try:
        return derive_model(section, kind)
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
        """For editors: the definitions of all kinds that have names, and of any other package's class."""
        kinds = {kind: model_of(self.section, kind) for kind in registry.kinds(self.section)}
        known = {kind: one for kind, one in kinds.items() if one is not PLUGINS[self.section]}
        models = [handler(one.__pydantic_core_schema__) for one in dict.fromkeys(known.values()) if one]
        brought = [{"pattern": ":"}, {"enum": sorted(kinds.keys() - known.keys())}]
        other = handler(PLUGINS[self.section].__pydantic_core_schema__)
        return {"anyOf": [*models, {"allOf": [other, {"properties": {"kind": {"anyOf": brought}}}]}]}

    def _read(self, value: Any, info: ValidationInfo) -> PartSpec:
        return value if isinstance(value, PartSpec) else self._validate(value, info)

    def _validate(self, value: Any, info: ValidationInfo) -> PartSpec:
        kind = self.kind(value)
        if (model := model_of(self.section, kind)) is None:
            raise PydanticCustomError(UNKNOWN, "no such kind", {"kinds": registry.kinds(self.section)})
        former: Mapping[str, str | None] = getattr(model, "former", {})
        for name in value.keys() & former.keys():
            if (instead := former[name]) is not None:
                raise ValueError(f"{name} is no field any more: {instead}")
        said = {name: one for name, one in value.items() if name not in former}
        # As JSON: strictly, but lists become tuples.
        return model.model_validate_json(json.dumps({"kind": kind, **said}), context=info.context)

    def kind(self, value: Any) -> str | None:
        """What a definition says its kind is."""
        if not isinstance(value, Mapping):
            return None
        kind = value.get("kind", DEFAULTS.get(self.section))
        return kind if isinstance(kind, str) else None


class RuleDefinition(Definition):
    """Says of a field's type that it holds the definition of an answer rule, or the name of one."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema)

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            self._validate(value, info)
        return value


# -- derived ------------------------------------------------------------------------------------------

#: A function of another module.
Imported = Annotated[str, Field(pattern=":"), Expects("a function, as package.module:function")]
#: A class of another module.
ImportedClass = Annotated[str, Field(pattern=":"), Expects("a class, as package.module:Class")]
PLAIN: Final[Mapping[Any, Any]] = {str: Text, int: Integer, float: Number, bool: Switch, NoneType: None}
#: What is named in a file, with the section where it is defined.
NAMED: Final[Mapping[type, tuple[Any, Section]]] = {
    Engine: (EngineName, "engines"),
    Generator: (GeneratorName, "generators"),
    Verifier: (AnyVerifier, "verifiers"),
}
#: What parameters without an annotation are, by their names.
ROLES: Final[Mapping[str, type]] = {
    "engine": Engine, "generator": Generator, "verifier": Verifier, "answer": AnswerRule,
}  # fmt: skip


def _rule(given: Any) -> Any:
    """Makes the rule once, so that faults are found before anything runs."""
    answer_rule(given)
    return given


#: An answer rule in place of the task's.
OwnRule = Annotated[RuleName, RuleDefinition("answers"), AfterValidator(_rule)]
#: Values that are defined in their place.
VALUES: Final[Mapping[type, type[ValueSpec]]] = {
    Draft: DraftSpec,
    TaggedSteps: verifiers.TagsSpec,
    Grammar: generators.GrammarSpec,
    **dict.fromkeys(SEARCHES.values(), SearchFields),
}
#: What is defined in its place, with its section.
NESTED: Final[Mapping[type, Section]] = {
    ChainStep: "steps",
    Adapter: "adapters",
    Aggregator: "aggregators",
    Utility: "utilities",
}
#: Values of several fields, which pydantic reads off their annotations.
DATA: Final = frozenset({Mirostat, Dry, XTC, Price})


class Unspeakable(Exception):
    """What makes a part takes something that no file can say, or does not say what it takes."""


class DerivedSpec(PartSpec):
    """A definition whose fields are those of what it makes."""

    #: Parameters that have another name in a file.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: Fields that hold functions.
    imported: ClassVar[frozenset[str]] = frozenset()
    #: Fields that name answer rules, or define them.
    ruled: ClassVar[frozenset[str]] = frozenset()
    #: Fields without a value in a file whose parameter has one.
    unsaid: ClassVar[frozenset[str]] = frozenset()
    #: Of what it defines; for definitions within others.
    section: ClassVar[Section] = "strategies"
    #: What their values cannot be to each other: see `Strategy.conflict`.
    conflict: ClassVar[Callable[[Mapping[str, Any]], str | None] | None] = None
    #: Fields of earlier versions, with what to do in place of each; None for one that is left out in silence.
    former: ClassVar[Mapping[str, str | None]] = {}

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        check = type(self).conflict
        if check is not None and (
            odd := check({name: getattr(self, name) for name in type(self).model_fields})
        ):
            raise ValueError(odd)
        return self

    def options(self) -> dict[str, Any]:
        given = super().options()
        found = {}
        for name, value in given.items():
            if name == "over" or (value is None and name in self.unsaid):
                continue
            if name in self.imported:
                try:
                    value = _load(value)
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from error
            found[self.renamed.get(name, name)] = (
                answer_rule(value) if name in self.ruled and value else value
            )
        return found

    def build(
        self, make: Callable[..., Any], available: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        """The part, of its options and of the parts that are there; make: as of `registry`."""
        return make(self.section, self.kind, options, available)

    def names_in(self, section: Section) -> tuple[str, ...]:
        own = (getattr(self, name) for name in type(self).model_fields)
        below = [one for value in own for one in nested_definitions(value)]
        return (*super().names_in(section), *(name for one in below for name in one.names_in(section)))


def nested_definitions(value: Any) -> Iterator[PartSpec | OptionSpec]:
    """The definitions, and the ways to go on, that stand within a field."""
    if isinstance(value, PartSpec | OptionSpec):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from nested_definitions(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from nested_definitions(one)


def _load(value: Any) -> Any:
    """The functions that names stand for; a word stays as it is."""
    if isinstance(value, tuple):
        return [_load(one) for one in value]
    if isinstance(value, AskSpec):
        return value.make()
    return trust.load(value) if isinstance(value, str) and ":" in value else value


class DerivedStrategySpec(DerivedSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid.

    n: candidates, or what the strategy counts in their place; those of the grid by default. verifier: what scores.
    step: what ends a step; by default what the task says. answer: the rule by which it reads answers, in place of the
    task's.
    """

    over: StrategyName | None = None


class DerivedUtilitySpec(DerivedSpec):
    """of: what is compared, the whole completions or the answers that are read in them. aggregate: compare with the
    mean of all. prune: drop candidates that will not win, with this confidence.

    answer: the rule by which it reads answers, in place of the task's.
    """

    of: Literal["text", "answer"] = "text"
    aggregate: Switch = False
    prune: Fraction | None = None

    @model_validator(mode="before")
    @classmethod
    def _wording(cls, given: Any) -> Any:
        fields = cls.model_fields
        odd = next((name for name in WORDING if name in given and name not in fields), None)
        if odd is not None:
            raise ValueError(f"{odd} words what a judge is asked; give it with kind: judge")
        return given

    @model_validator(mode="after")
    def _answering(self) -> Self:
        if self.of == "text" and getattr(self, "answer", None) is not None and self._whole:
            raise ValueError("answer is a rule for answers, and texts are compared; give of: answer")
        return self

    @property
    def _whole(self) -> bool:
        """Whether whole texts may be compared; exact answers are all that some compare."""
        rule = registry.parameters(self.section, self.kind).get("answer")
        return rule is not None and rule.default is None

    @model_validator(mode="after")
    def _aggregating(self) -> Self:
        if self.aggregate and not self._takes("aggregate"):
            raise ValueError(f"a utility of kind {self.kind} cannot aggregate; leave aggregate out")
        return self

    def _takes(self, name: str) -> bool:
        return name in registry.parameters(self.section, self.kind)

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if self._takes(name)}

    def build(
        self, make: Callable[..., Any], available: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        if self.of == "text" and self._whole:
            available = {name: value for name, value in available.items() if name != "answer"}
        utility: Utility = super().build(make, available, options)
        return utility if self.prune is None else ConfidencePruning(utility, alpha=self.prune)


def derive_model(section: Section, kind: str) -> type[PartSpec]:
    """The model of a kind's definitions. Raises ConfigError for what cannot be imported, and Unspeakable."""
    return _derive_model(section, kind, registry.find(section, kind))


@cache
def _derive_model(section: Section, kind: str, target: Any) -> type[PartSpec]:
    wanted, fields = parameters_of(target), dict[str, Any]()
    uses: dict[str, Section] = {}
    renamed: dict[str, str] = {}
    imported, unsaid, ruled = set[str](), set[str](), set[str]()
    bases: Mapping[str, type[DerivedSpec]] = {
        "strategies": DerivedStrategySpec, "utilities": DerivedUtilitySpec
    }  # fmt: skip
    base = bases.get(section, DerivedSpec)
    if section == "strategies":
        uses["over"] = "strategies"
    for name, parameter in inspect.signature(target).parameters.items():
        if name == "n" and section == "strategies":
            fields[name] = (Ladder | None, None)
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Unspeakable(f"{kind}: {target!r} takes whatever it is given as {name}")
        if name.startswith("_") or hasattr(base, name):
            raise Unspeakable(f"{kind}: {name} means something else in a definition")
        hint = wanted.get(name, Any)
        provided = name in _automatic_parameters(section)
        if provided and (not registry.external(section, kind) or NAMED.keys() & _members(hint)):
            continue
        if Step in get_args(hint):
            # A search cuts steps in any case; what may do without them does so by default.
            renamed["step"] = name
            searches = Split in get_args(hint)
            fields["step"] = (StepSpec, StepSpec()) if searches else (StepSpec | None, None)
            continue
        if hint is Any and name in ROLES:
            hint = ROLES[name]
        if AnswerRule in _members(hint) and str not in _members(
            hint
        ):  # else it makes a rule of a name itself
            ruled.add(name)
        field = spelling(hint)
        if field is None and registry.external(section, kind):
            field = spelling(Any)  # its class may make of it what it needs
        if field is None:
            if parameter.default is parameter.empty:
                raise Unspeakable(f"{kind}: no file can say {name}: {hint!r}, which {target!r} needs")
            continue
        for part, (_, where) in NAMED.items():
            if part in _members(hint) and Option not in get_args(hint):
                uses[name] = where
        if Callable in _members(hint):
            imported.add(name)
        default = (
            USUAL.get(kind, {}).get(name, parameter.default) if section == "answers" else parameter.default
        )
        several = any(get_origin(one) is tuple for one in (field, *get_args(field)))
        if several and default is parameter.empty:
            field = Annotated[field, Field(min_length=1)]
        if provided or (name in PROVIDED[section] and (section == "steps" or name in ruled)):
            # What is provided may be said all the same.
            default = None
            field = field | None
            unsaid.add(name)
        if default is not parameter.empty and not _sayable(default):
            field, default = field | None, None
            unsaid.add(name)
        fields[name] = (field, ... if default is parameter.empty else default)
    fields["kind"] = (Literal[kind], ...)
    made = create_model(_title(kind), __base__=base, __doc__=inspect.getdoc(target), **fields)
    made.uses, made.renamed = naming(**uses), renamed
    made.section = section
    made.conflict = getattr(target, "conflict", None)
    made.former = getattr(target, "former", {})
    made.imported, made.unsaid, made.ruled = frozenset(imported), frozenset(unsaid), frozenset(ruled)
    return _travels(made, section)


def parameters_of(target: Any) -> Mapping[str, Any]:
    """The annotations of what a class or a function takes."""
    return hints(_init(target) if isinstance(target, type) else target)


def _automatic_parameters(section: Section) -> frozenset[str]:
    """Parameters that the experiment fills in by itself."""
    own: Mapping[Section, frozenset[str]] = {
        "strategies": frozenset({"verifier", "n", "answer"}),
        "aggregators": frozenset({"answer"}),
        "utilities": frozenset({"answer"}),
        "steps": frozenset({"generator"}),
        "generators": frozenset({"engine"}),
        "verifiers": frozenset({"engine", "generator", "verifier"}),
    }
    return PROVIDED[section] - own.get(section, frozenset())


def spelling(hint: Any) -> Any:
    """How a file says what a parameter takes, as a type for pydantic; None if it cannot."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return Annotated[Any, Expects("a value")]
    if hint == Option:
        return Count | OptionSpec
    if hint == Correction:
        return Asked
    if isinstance(hint, type | NoneType) and hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated and inner[0] not in PLAIN:
        said, nested = spelling(inner[0]), _members(inner[0]) - {*PLAIN, ...}
        # What is wrong within a mapping has a place of its own there.
        notes = [note for note in inner[1:] if not (nested and isinstance(note, Expects))]
        return None if said is None else Annotated.__class_getitem__((said, *notes)) if notes else said
    if origin is Annotated or origin is Literal:
        return hint
    if origin in (Union, UnionType):
        said = [
            one for one in map(spelling, (one for one in inner if one is not NoneType)) if one is not None
        ]
        if not said:
            return None
        found: Any = Union[(*dict.fromkeys(said), *([None] if NoneType in inner else []))]
        words = [word for one in said if get_origin(one) is Literal for word in get_args(one)]
        if words and Imported in said:
            either = Expects(f"one of {', '.join(words)}, or a function, as package.module:function")
            return Annotated[found, either]
        return found
    if origin in (Mapping, dict):
        # Keys of a file are texts.
        each = spelling(inner[1]) if inner[0] is str else None
        return None if each is None else dict.__class_getitem__((Text, each))
    if origin is type:
        return ImportedClass
    if origin is tuple and Ellipsis not in inner:
        parts = _members(hint) - {*PLAIN, ...}
        return None if parts else tuple.__class_getitem__(tuple(map(spelling, inner)))
    if origin in (tuple, list, Sequence, Iterable) and (each := spelling(inner[0])) is not None:
        several = tuple.__class_getitem__((each, ...))
        return Annotated[several, AfterValidator(distinct)] if each is AnyVerifier else several
    if origin is Callable or hint is Callable:
        return Imported
    for part, (name, _) in NAMED.items():
        if isinstance(hint, type) and part in hint.__mro__:
            return name
    if isinstance(hint, type) and AnswerRule in hint.__mro__:
        return OwnRule
    if hint in VALUES:
        return VALUES[hint]
    for part, section in NESTED.items():
        if isinstance(hint, type) and part in hint.__mro__:
            return Annotated[PartSpec, Definition(section)]
    # A dataclass whose fields are annotated by `metagen.values` is a mapping of them.
    known = isinstance(hint, type) and (issubclass(hint, BaseModel) or hint in DATA)
    return hint if known else None


def section_in(annotation: Any) -> Section | None:
    """The section of the definitions in an annotation such as `dict[str, Annotated[PartSpec, Definition(…)]]`."""
    inner = get_args(annotation)
    own = next((one.section for one in inner if isinstance(one, Definition)), None)
    return own or next((found for one in inner if (found := section_in(one))), None)


def _init(cls: type) -> Any:
    return next(vars(one)["__init__"] for one in cls.__mro__ if "__init__" in vars(one))


def _members(hint: Any) -> set[Any]:
    """The types that stand in an annotation, however deep; of functions, that there is one."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Callable, type) or hint is Callable:
        return {Callable}
    if origin in (Annotated, Literal):
        return set()
    return {one for each in inner for one in _members(each)} if inner else {hint}


def _sayable(value: Any) -> bool:
    """Whether a file can say a default."""
    if isinstance(value, tuple):
        return all(map(_sayable, value))
    return value is None or isinstance(value, str | int | float | bool | BaseModel)


_SAMPLING: dict[str, Any] = {
    name: (spelling(hint), OFF[name]) for name, hint in hints_of(SamplingParams).items()
}
EngineGeneratorSpec = create_model(
    "EngineGeneratorSpec",
    __base__=generators.EngineGenerator,
    __doc__=generators.EngineGenerator.__doc__,
    **_SAMPLING,
)
