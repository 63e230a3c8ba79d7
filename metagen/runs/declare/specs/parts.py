"""What all definitions of an experiment share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from metagen.runs.declare.registry import Section
from metagen.values import Expects


class Spec(BaseModel):
    """What all parts of an experiment share: frozen, strict, nothing unknown, no infinities."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _keep_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A null that stands in place of another default is said also where other nulls are left out."""
        said = handler(self)
        for name, field in type(self).model_fields.items():
            if getattr(self, name) is None and field.get_default(call_default_factory=True) is not None:
                said[name] = None
        return {**said, **{name: None for name, value in (self.model_extra or {}).items() if value is None}}


class ValueSpec(Spec):
    """A value that is defined in its place, and is no part."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """What the part is made with."""


def naming(**fields: Section) -> Mapping[str, Section]:
    """Fields that name parts, each with the section of these."""
    return MappingProxyType(fields)


class PartSpec(Spec):
    """A definition of some kind. `options` are what its class is made with, besides other parts.

    engine: what runs the model. generator: what writes; by default what the part around it writes with. verifier:
    what scores. judge: the verifier whose model is asked. price: of tokens; by default what the engine bills. chat:
    ask by messages in place of a text. path: the file.
    """

    kind: str
    #: Fields that name parts, one or several, and the section of these; a class gets the parts under the same names.
    uses: ClassVar[Mapping[str, Section]] = naming()
    #: Parameters of what makes it that no file says.
    filled: ClassVar[frozenset[str]] = frozenset()
    #: Fields that are dealt with by hand.
    by_hand: ClassVar[frozenset[str]] = frozenset()

    @property
    def plain(self) -> bool:
        """Whether a strategy works on the samples of the generator, and on answers as the task reads them."""
        return getattr(self, "over", None) is None and getattr(self, "answer", None) is None

    def options(self) -> dict[str, Any]:
        """The other fields, with values that are defined in their place."""
        left_out = {"kind", *self.uses, *self.by_hand}
        given = {name: getattr(self, name) for name in type(self).model_fields if name not in left_out}
        return {name: one.value if isinstance(one, ValueSpec) else one for name, one in given.items()}

    def names_in(self, section: Section) -> tuple[str, ...]:
        """The parts of a section that it names."""
        values = [getattr(self, field) for field, of in self.uses.items() if of == section]
        return tuple(
            name for value in values for name in ((value,) if isinstance(value, str) else value or ())
        )


class PluginSpec(PartSpec):
    """A part that another package brings; its options are checked against its class's parameters."""

    model_config = ConfigDict(extra="allow")
    kind: Annotated[str, Expects("a kind's name, or package.module:Class")]

    _section: Section = PrivateAttr("task")

    @property
    def section(self) -> Section:
        """Of what it defines."""
        return self._section

    def stand_in(self, section: Section) -> None:
        """Note the section of what it defines."""
        self._section = section

    def options(self) -> dict[str, Any]:
        return super().options() | (self.model_extra or {})
