"""Searches of generators."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Self

from pydantic import Field, create_model, model_serializer, model_validator

from metagen.generators.decoding.search import SEARCHES, SearchSpec
from metagen.parts import hints_of
from metagen.runs.declare.specs.parts import ValueSpec
from metagen.values import Amount, Expects

Phrase = Annotated[str | tuple[Amount, ...], Expects("a text, or a list of token ids")]


class AnySearch(ValueSpec):
    """A search by its kind, and what it has of these fields; the others are as the search has them."""

    kind: Annotated[Literal[tuple(SEARCHES)], Expects(f"one of {', '.join(SEARCHES)}")]  # type: ignore[valid-type]
    phrases: Annotated[tuple[Phrase, ...], Field(min_length=1), Expects("a list of phrases")] = ()

    @model_validator(mode="after")
    def _sound(self) -> Self:
        known = {f.name: f.default for f in fields(SEARCHES[self.kind])}
        given = [name for name in self.model_fields_set if name != "kind"]
        if foreign := sorted(set(given) - known.keys()):
            raise ValueError(f"a {self.kind} search has no {foreign[0]}; it has {', '.join(known)}")
        for name, default in known.items():
            if name not in given and default is not MISSING:
                # So that a definition says all that it stands for.
                object.__setattr__(self, name, default)
        self.value  # noqa: B018 - it raises what is wrong
        return self

    @model_serializer
    def _own(self) -> dict[str, Any]:
        """Without the fields that other kinds have."""
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(SEARCHES[self.kind])}

    @property
    def value(self) -> SearchSpec:
        made = SEARCHES[self.kind]
        return made(**{f.name: getattr(self, f.name) for f in fields(made)})


#: A field that several searches have is as the first has it; each checks its own.
_FIELDS: dict[str, Any] = {
    f.name: (hints_of(search)[f.name], f.default)
    for search in reversed(SEARCHES.values())
    for f in fields(search)
    if f.name not in AnySearch.model_fields
}
SearchFields = create_model("SearchFields", __base__=AnySearch, __doc__=AnySearch.__doc__, **_FIELDS)
