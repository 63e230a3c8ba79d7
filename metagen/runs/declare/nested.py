"""Verifiers that are defined where they are used: `verifier: {kind: prm, engine: judge}` in place of a name.

Such a definition moves into the section of verifiers, under a name that is made of it; its place in the file stays
known. So whatever walks over names, such as an estimate or a table, finds it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from metagen.runs.declare.registry import Section
from metagen.runs.declare.source import Path, Source
from metagen.runs.declare.specs.definition import Definition, model_of, section_in
from metagen.sequence import digest

#: Where definitions have fields that name verifiers.
HOLDERS: Final[tuple[Section, ...]] = ("verifiers", "strategies")


def name_of(definition: dict[str, Any]) -> str:
    """Its kind, and a few digits of all that it says: the same for the same definition, wherever it stands.

    Of `package.module:Class` it is the class.
    """
    text = json.dumps(definition, sort_keys=True, ensure_ascii=False, default=str)
    kind = str(definition.get("kind", "verifier")).rpartition(":")[2]
    return f"{re.sub(r'[^A-Za-z0-9._+-]', '-', kind).lstrip('._+-') or 'verifier'}-{digest(text).hex()[:6]}"


def move_out(source: Source) -> None:
    """Give each verifier that is defined in its place a definition of its own, and its name to the field."""
    for section in HOLDERS:
        definitions = source.data.get(section)
        for name, one in list(definitions.items()) if isinstance(definitions, dict) else ():
            _move_out_of(source, section, one, (section, name))


def _move_out_of(source: Source, section: Section, definition: Any, path: Path) -> None:
    model = model_of(section, Definition(section).kind(definition))
    if model is None:
        return
    for holder, key, at in list(_verifiers(definition, model.uses, path)):
        below = holder[key]
        # From the inside out: a name is made of names.
        _move_out_of(source, "verifiers", below, at)
        name = name_of(below)
        known = source.data.setdefault("verifiers", {})
        if isinstance(known, dict):
            known.setdefault(name, below)
            source.move(at, ("verifiers", name))
            holder[key] = name
    for field, value in definition.items():
        if field not in model.uses:
            info = model.model_fields.get(field)
            within = None if info is None else section_in(Annotated[info.annotation, *info.metadata, None])
            if within is not None:
                for one, at in _definitions(value, (*path, field)):
                    _move_out_of(source, within, one, at)


def _definitions(value: Any, path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The definitions in a field, with their paths."""
    if isinstance(value, dict) and "kind" in value:
        yield value, path
    elif isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _definitions(one, (*path, key))


def _verifiers(definition: dict[str, Any], uses: Any, path: Path) -> Iterator[tuple[Any, Any, Path]]:
    """What holds a definition in place of a verifier's name, under which key, and the definition's path."""
    for field, section in uses.items():
        value = definition.get(field) if section == "verifiers" else None
        if isinstance(value, dict):
            yield definition, field, (*path, field)
        elif isinstance(value, list):
            yield from ((value, i, (*path, field, i)) for i, one in enumerate(value) if isinstance(one, dict))
