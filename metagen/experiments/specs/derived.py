"""Definitions that are derived from what makes the parts: the fields of a class, or the parameters of a function.

A parameter is a field of the file under the same name, with the same default. What is a part there is named here; what
is a function is named by package.module:function; what the experiment itself provides is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model, model_validator

from metagen import trust
from metagen.border import hints
from metagen.experiments import registry
from metagen.experiments.registry import PROVIDED, Section
from metagen.experiments.specs.fields import GeneratorName, StrategyName, VerifierName
from metagen.experiments.specs.parts import PartSpec, naming
from metagen.experiments.specs.strategies import Ladder, StepSpec
from metagen.generators.base import Generator
from metagen.sequence import Step, Tokens
from metagen.strategies.tree.split import Split
from metagen.values import Expects, Integer, Number, Switch, Text
from metagen.verifiers.base import Verifier

#: A function of another module.
Imported = Annotated[str, Expects("a function, as package.module:function")]
PLAIN: Final[Mapping[Any, Any]] = {str: Text, int: Integer, float: Number, bool: Switch, NoneType: None}
#: What is named in a file, with the section where it is defined.
NAMED: Final[Mapping[type, tuple[Any, Section]]] = {
    Generator: (GeneratorName, "generators"),
    Verifier: (VerifierName, "verifiers"),
}
STEPS: Final = frozenset({Step, Tokens, Split})


class Unspeakable(Exception):
    """What makes a part takes something that no file can say, or does not say what it takes."""


class DerivedSpec(PartSpec):
    """A definition whose fields are those of what it makes."""

    #: Parameters that have another name in a file.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: Fields that hold functions.
    imported: ClassVar[frozenset[str]] = frozenset()
    #: Fields without a value in a file whose parameter has one.
    unsaid: ClassVar[frozenset[str]] = frozenset()

    #: What their values cannot be to each other: see `Strategy.conflict`.
    conflict: ClassVar[Callable[[Mapping[str, Any]], str | None] | None] = None

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
            imports = name in self.imported and isinstance(value, str)
            found[self.renamed.get(name, name)] = trust.load(value) if imports else value
        return found


class DerivedStrategySpec(DerivedSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid."""

    over: StrategyName | None = None


@cache
def derived(section: Section, kind: str) -> type[PartSpec]:
    """The model of a kind's definitions."""
    target = registry.find(section, kind)
    wanted, fields = taken(target), dict[str, Any]()
    uses: dict[str, Section] = {}
    renamed: dict[str, str] = {}
    imported, unsaid = set[str](), set[str]()
    base = DerivedStrategySpec if section == "strategies" else DerivedSpec
    if section == "strategies":
        uses["over"] = "strategies"
    for name, parameter in inspect.signature(target).parameters.items():
        if name == "n" and section == "strategies":
            fields[name] = (Ladder | None, None)
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Unspeakable(f"{kind}: {target!r} takes whatever it is given as {name}")
        if name in _given(section):
            continue
        hint = wanted.get(name, Any)
        if any(one in STEPS for one in get_args(hint) if isinstance(one, type)):
            renamed["step"] = name
            fields["step"] = (StepSpec, StepSpec())
            continue
        field = spelling(hint)
        if field is None:
            if parameter.default is parameter.empty:
                raise Unspeakable(f"{kind}: no file can say {name}: {hint!r}, which {target!r} needs")
            continue
        for part, (_, where) in NAMED.items():
            if part in _members(hint):
                uses[name] = where
        if Callable in _members(hint):
            imported.add(name)
        default = parameter.default
        if default is not parameter.empty and not _sayable(default):
            field, default = field | None, None
            unsaid.add(name)
        fields[name] = (field, ... if default is parameter.empty else default)
    name = f"{kind.title().replace('_', '')}Spec"
    fields["kind"] = (Literal[kind], ...)
    made = create_model(name, __base__=base, __doc__=inspect.getdoc(target), **fields)
    made.uses, made.renamed = naming(**uses), renamed
    made.conflict = getattr(target, "conflict", None)
    made.imported, made.unsaid = frozenset(imported), frozenset(unsaid)
    return made


def taken(target: Any) -> Mapping[str, Any]:
    """The annotations of what a class or a function takes."""
    return hints(_init(target) if isinstance(target, type) else target)


def _given(section: Section) -> frozenset[str]:
    """Parameters that the experiment fills in by itself."""
    own = {"strategies": frozenset({"verifier", "n"}), "generators": frozenset({"engine"})}
    return PROVIDED[section] - own.get(section, frozenset())


def spelling(hint: Any) -> Any:
    """How a file says what a parameter takes, as a type for pydantic; None if it cannot."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return Any
    if isinstance(hint, type | NoneType) and hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated or origin is Literal:
        return hint
    if origin in (Union, UnionType):
        said = [
            one for one in map(spelling, (one for one in inner if one is not NoneType)) if one is not None
        ]
        if not said:
            return None
        return Union[(*dict.fromkeys(said), *([None] if NoneType in inner else []))]
    if origin in (tuple, list, Sequence, Iterable) and (each := spelling(inner[0])) is not None:
        several: Any = tuple.__class_getitem__((each, ...))
        return Annotated[several, Field(min_length=1)]
    if origin is Callable or hint is Callable:
        return Imported
    for part, (name, _) in NAMED.items():
        if isinstance(hint, type) and issubclass(hint, part):
            return name
    return hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None


def _init(cls: type) -> Any:
    return next(vars(one)["__init__"] for one in cls.__mro__ if "__init__" in vars(one))


def _members(hint: Any) -> set[Any]:
    """The types that stand in an annotation, however deep; of functions, that there is one."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Callable or hint is Callable:
        return {Callable}
    if origin in (Annotated, Literal):
        return set()
    return {one for each in inner for one in _members(each)} if inner else {hint}


def _sayable(value: Any) -> bool:
    """Whether a file can say a default."""
    if isinstance(value, tuple):
        return all(map(_sayable, value))
    return value is None or isinstance(value, str | int | float | bool | BaseModel)
