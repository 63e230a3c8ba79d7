"""The model of each kind's definitions, which nothing imports before it is asked for.

Those of most strategies are derived from what makes them: a parameter of a class or a function is a field of the file
under the same name, with the same default. What is a part there is named here, or defined in its place; what is a
function is named by package.module:function; what the experiment itself provides is left out.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

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
from metagen.runs.declare.specs.derived import DerivedSpec, DerivedStrategySpec, DerivedUtilitySpec
from metagen.runs.declare.specs.drafts import DraftSpec
from metagen.runs.declare.specs.fields import (
    DEFINED,
    AnyVerifier,
    EngineName,
    GeneratorName,
    RuleName,
    distinct,
    some,
)
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, ValueSpec, naming
from metagen.runs.declare.specs.searches import SearchFields
from metagen.runs.declare.specs.strategies import (
    Asked,
    Ladder,
    PluginStrategySpec,
    StepSpec,
    Way,
)
from metagen.sequence import Step
from metagen.strategies.adaptive.by_difficulty import Option
from metagen.strategies.adaptive.stopping import StoppingRule
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.chain.steps import ChainStep
from metagen.strategies.prompts import Correction
from metagen.strategies.tree.split import Split
from metagen.values import Expects, Integer, Number, Switch, Text, hints
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.layouts import TaggedSteps
from metagen.verifiers.rules import USUAL, answer_rule
from metagen.verifiers.utility.base import Utility

#: Kinds of which some fields mean more than what makes them says; the others are derived, as those of all other kinds.
COMPLETED: Final[Mapping[Section, Mapping[str, type[PartSpec]]]] = {
    "engines": {
        "torch": engines.LocalSpec,
        "adapter": engines.AdapterSpec,
        "vllm": engines.VLLMSpec,
        "openai": engines.OpenAISpec,
    },
    "generators": {"replay": generators.ReplaySpec},
    "task": {
        "game24": tasks.Game24Spec,
        "jsonl": tasks.JsonlSpec,
        "table": tasks.TableSpec,
        "recorded": tasks.RecordedTaskSpec,
        "lm_eval": tasks.LMEvalSpec,
        "lighteval": tasks.LightevalSpec,
        "verifiers": tasks.VerifiersSpec,
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
    "stopping": PluginSpec,
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
        """For editors: what stands for the definitions of the section, which `editor` describes once."""
        return {DEFINED: self.section}

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
        made = model.model_validate_json(json.dumps({"kind": kind, **said}), context=info.context)
        if isinstance(made, PluginSpec):
            made.stand_in(self.section)
        return made

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
    StoppingRule: "stopping",
}
#: Values of several fields, which pydantic reads off their annotations.
DATA: Final = frozenset({Mirostat, Dry, XTC, Price})


class Unspeakable(Exception):
    """What makes a part takes something that no file can say, or does not say what it takes."""


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
            field = Annotated[field, AfterValidator(some), Field(json_schema_extra={"minItems": 1})]
        if provided or (name in PROVIDED[section] and (section in ("steps", "stopping") or name in ruled)):
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
    made.conflict = _conflict_of(target)
    made.former = getattr(target, "former", {})
    made.imported, made.unsaid, made.ruled = frozenset(imported), frozenset(unsaid), frozenset(ruled)
    return _travels(made, section)


def _conflict_of(target: Any) -> Callable[[Mapping[str, Any]], str | None] | None:
    """What asks for conflicts between fields, if all of these can be given; else they are asked for at the making."""
    for one in target.__mro__ if isinstance(target, type) else ():
        if "conflict" in vars(one):
            own = {field.name for field in fields_of(one) if field.init} if is_dataclass(one) else set()
            return target.conflict if own <= parameters_of(target).keys() else None
    return getattr(target, "conflict", None)


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
        "stopping": frozenset({"n"}),
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
        return Way
    if hint == Correction:
        return Asked
    if isinstance(hint, type | NoneType) and hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated and inner[0] not in PLAIN:
        said, nested = spelling(inner[0]), _members(inner[0]) - {*PLAIN, ...}
        # What is wrong within a mapping has a place of its own there.
        notes = [note for note in inner[1:] if not (nested and isinstance(note, Expects))]
        return None if said is None else Annotated[(said, *notes)] if notes else said
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
