"""Values that are defined in their place: a frozen dataclass as a mapping of its fields."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import create_model, model_validator

from metagen.parts import hints_of
from metagen.runs.declare.specs.parts import ValueSpec


class MadeSpec(ValueSpec):
    """A mapping of the fields of a class, which checks them together."""

    makes: ClassVar[type]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _ = self.value
        return self

    @property
    def value(self) -> Any:
        return self.makes(**{name: self.option(name) for name in type(self).model_fields})

    def option(self, name: str) -> Any:
        """A field as the class takes it."""
        return getattr(self, name)


M = TypeVar("M", bound=MadeSpec)


def dataclass_model(target: type, base: type[M], said: dict[Any, Any] | None = None) -> type[M]:
    """The model of a dataclass. base: has fields that a file says otherwise. said: what a file says for a type."""
    hints, found = hints_of(target), dict[str, Any]()
    for one in fields(target):
        if one.name not in base.model_fields:
            hint = _plain(hints[one.name])
            found[one.name] = (
                (said or {}).get(hint, hint), ... if one.default is MISSING else one.default,
            )  # fmt: skip
    name = f"{target.__name__}Spec"
    made = create_model(
        name, __base__=base, __module__=base.__module__, __doc__=inspect.getdoc(target), **found
    )
    made.makes = target
    return made


def _plain(hint: Any) -> Any:
    """Without words for None, which a file does not say."""
    inner = get_args(hint)
    return inner[0] if get_origin(hint) is Annotated and type(None) in get_args(inner[0]) else hint
