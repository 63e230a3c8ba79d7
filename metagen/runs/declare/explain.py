"""From pydantic's errors to faults in a user's words."""

from __future__ import annotations

from dataclasses import is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from metagen.parts import hints_of
from metagen.runs.declare.registry import Section, kinds
from metagen.runs.declare.source import Fault, Path, Source, nearest, spell_assignment, spell_path
from metagen.runs.declare.specs import SECTIONS, Definition, Experiment, model_of
from metagen.runs.declare.specs.definition import UNKNOWN, section_in
from metagen.runs.declare.words import what

#: What pydantic's own types expect, where no field says it better.
_SHAPES: Final = {
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
}


def fault(source: Source, error: ErrorDetails, whole: type = Experiment, at: Path = ()) -> Fault:
    """One error of `Experiment`, or of another model that stands at a path of the source, with its place there."""
    owner, path = _locate(error["loc"], whole, source, at)
    value, missing = error["input"], error["type"] == "missing"
    if error["type"] == UNKNOWN and isinstance(value, dict):
        path, missing, value = (*path, "kind"), "kind" not in value, value.get("kind")
    alike = _misspelt(error, missing)
    expected = ("missing; " if missing else "") + _expectation(error, owner, path, value) + alike
    path = source.path_in_file((*at, *path))
    field = spell_path(path) if missing else spell_assignment(path, value)
    return Fault(source.place(path), field, expected)


def _misspelt(error: ErrorDetails, missing: bool) -> str:
    """Where `kind` is missing: the field that may be meant for it."""
    fields = error["input"] if missing and error["type"] == UNKNOWN else {}
    close = get_close_matches("kind", map(str, fields), n=1, cutoff=0.5)
    return f"; is {close[0]!r} meant for it?" if close else ""


def _locate(loc: tuple[int | str, ...], whole: type, source: Source, at: Path) -> tuple[type | None, Path]:
    """The model that the field belongs to, and its path as the file has it."""
    path: Path = loc[:-1] if loc[-1:] == ("[key]",) else loc
    depth = 1 if path[:1] == ("task",) else 2 if path[:1] and path[0] in SECTIONS else 0
    owner: type | None = whole
    if depth and len(path) > depth:
        section = cast(Section, path[0])
        owner = model_of(section, Definition(section).kind(_at(source.data, (*at, *path[:depth]))))
    nested: Section | None = None
    for end, key in enumerate(path[depth:-1], depth + 1):
        field = _fields(owner).get(str(key))
        nested = section_in(field) or nested
        owner = _model_of(field) or owner
        if nested and (kind := Definition(nested).kind(_at(source.data, (*at, *path[:end])))):
            owner, nested = model_of(nested, kind), None
    return owner, path


def _at(data: Any, path: Path) -> Any:
    """What stands at a path; None where nothing does."""
    for key in path:
        if isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            data = data.get(key) if isinstance(data, dict) else None
    return data


def _fields(owner: type | None) -> dict[str, Any]:
    """The annotations of a model's fields, by name."""
    if owner is None:
        return {}
    if issubclass(owner, BaseModel):
        return {
            name: Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            for name, info in owner.model_fields.items()
        }
    return dict(hints_of(owner))


def _model_of(annotation: Any) -> type | None:
    """The model in an annotation such as `Model | None`, or `tuple[Model, ...]`."""
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple):
        return next((found for part in get_args(annotation) if (found := _model_of(part))), None)
    known = isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation))
    return annotation if known else None


def _expectation(error: ErrorDetails, owner: type | None, path: Path, value: Any) -> str:
    known = list(_fields(owner))
    match error["type"]:
        case "missing":
            return f"expected {_requirement(owner, path)}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"no such field; expected one of {', '.join(known)}{nearest(path[-1], known)}"
        case "unknown_kind":
            names = error["ctx"]["kinds"]
            if path[-1] == "kind":
                return f"expected one of {', '.join(names)}{nearest(value, names)}"
            close = get_close_matches(str(value), names, n=1)
            meant = f"; did you mean {{kind: {close[0]}}}?" if close else ""
            return f"expected a mapping with kind: one of {', '.join(names)}{meant}"
        case "literal_error":
            words = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
            words = [word.strip("'") for word in words]
            return f"expected one of {', '.join(words)}{nearest(value, words)}"
        case "expected":
            return error["msg"]
        case "value_error":
            return str(error["ctx"]["error"])
    return f"expected {_SHAPES[error['type']]}" if error["type"] in _SHAPES else error["msg"]


def _requirement(owner: type | None, path: Path) -> str:
    """The value that a missing field should have had, in words."""
    if owner is not None and issubclass(owner, BaseModel) and path[-1] in owner.model_fields:
        info = owner.model_fields[str(path[-1])]
        direct = next((note.section for note in info.metadata if type(note) is Definition), None)
        return f"a mapping with kind: one of {', '.join(kinds(direct))}" if direct else what(info)
    return "a value"
