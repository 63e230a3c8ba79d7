"""Read by mkdocstrings: a class with `@part` has a constructor, which takes its annotated fields.

Griffe knows that of the standard library's dataclasses alone; without this, the reference shows no field of any part.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import griffe

PART = "metagen.parts.part"
MEANT = ast.parse("dataclasses.dataclass(kw_only=True)", mode="eval").body


class Parts(griffe.Extension):
    """Parts are dataclasses while griffe makes constructors, and are shown as they were written."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        parts = [(cls, at) for cls in classes(pkg) if (at := place_of_part(cls)) is not None]
        written = [cls.decorators[at].value for cls, at in parts]
        for cls, at in parts:
            meant = griffe.safe_get_expression(MEANT, parent=cls.module)
            assert meant is not None
            cls.decorators[at].value = meant
        own = {cls.path for cls, _ in parts if "__init__" in cls.members}
        griffe.DataclassesExtension().on_package(pkg=pkg)
        for (cls, at), value in zip(parts, written, strict=True):
            cls.decorators[at].value = value
            if cls.path not in own:
                give_places(cls)


def classes(within: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    for member in within.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Module | griffe.Class):
            yield from classes(member)


def place_of_part(cls: griffe.Class) -> int | None:
    """Which of its decorators makes it a part."""
    found = [i for i, one in enumerate(cls.decorators) if one.callable_path == PART]
    return found[0] if found else None


def give_places(cls: griffe.Class) -> None:
    """Fields with `kw_only=False` are given by place, and stand before the others."""
    made = cls.members["__init__"]
    assert isinstance(made, griffe.Function)
    owners = [cls, *cls.mro()]

    def placed(name: str) -> bool:
        first = next(one.members[name] for one in owners if name in one.members)
        return "kw_only=False" in str(getattr(first, "value", ""))

    itself, *fields = made.parameters
    for one in fields:
        one.kind = griffe.ParameterKind["positional_or_keyword" if placed(one.name) else "keyword_only"]
        if str(one.default) == "field()":
            one.default = None
    fields.sort(key=lambda one: not placed(one.name))
    made.parameters = griffe.Parameters(itself, *fields)
