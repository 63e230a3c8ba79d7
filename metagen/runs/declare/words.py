"""The fields of a kind in words, as its class declares them: for pages of reference, and for new files."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from metagen.generators.decoding.parameters import SamplingParams
from metagen.parts import hints_of
from metagen.runs.declare import registry
from metagen.runs.declare.registry import Section
from metagen.runs.declare.specs.definition import Definition, model_of, parameters_of
from metagen.values import annotations_of, describe, members, spell

#: Where a sentence ends: not behind `et al.` and its like.
_END: Final = re.compile(r"(?<!\bal)(?<!\beq)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|$)")
#: A work that a docstring names: by its authors and year, by its number at arXiv, or both.
_CITED: Final = re.compile(
    r"(?:[A-Z][\w'-]+(?: (?:and|&) [A-Z][\w'-]+| et al\.)? (?:19|20)\d\d)(?:, arXiv:\d{4}\.\d{5})?|arXiv:\d{4}\.\d{5}"
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field. what: is expected of it. default: as YAML; None for a field that is needed. says: what it is for.

    inside: the models of the mappings that it may hold.
    """

    name: str
    what: str
    default: str | None
    says: str
    inside: tuple[type, ...] = ()

    @property
    def needed(self) -> bool:
        return self.default is None


def fields_of(section: Section, kind: str) -> list[Field]:
    """The fields of a kind's definitions, without `kind`."""
    model = model_of(section, kind)
    assert model is not None
    return describe_fields(model, *_makers(section, kind))


def describe_fields(model: Any, *makers: Any) -> list[Field]:
    """The fields of a model, or of what makes something. makers: whose docstrings come first.

    Without `kind`, which names the model itself, unless the model leaves a choice (`executor`).
    """
    declared = _fields_of(model)
    known = sentences(declared, *makers, model, *filter(None, [getattr(model, "makes", None)]))
    found = []
    for name, info in declared.items():
        inside = tuple(_inside(Annotated[info.annotation, None]))
        says = known.get(name) or (summary(inside[0]) if len(inside) == 1 else "")
        found.append(Field(name, what(info), _default(info), says, inside))
    return [one for one in found if _is_field(one.name, declared[one.name])]


def summary(thing: Any) -> str:
    """The first paragraph of a docstring, without what it says of fields."""
    text = next(iter(_paragraphs(inspect.getdoc(thing) or "")), "")
    return text[: found.start()].strip() if (found := _naming(_fields_of(thing)).search(text)) else text


def works(section: Section, kind: str) -> list[str]:
    """The works that the docstrings of what makes a kind, and of its module, name."""
    target = maker(section, kind)
    texts = [inspect.getdoc(target) or "", sys.modules[target.__module__].__doc__ or ""]
    found = [one for text in texts for one in _CITED.findall(" ".join(text.split()))]
    return [one for one in dict.fromkeys(found) if not any(one in other for other in found if other != one)]


def values_of(*models: type) -> list[type]:
    """The models and dataclasses of several fields that stand in the fields of models, however deep, each once."""
    found = dict.fromkeys(models)
    left = list(models)
    while left:
        for info in _fields_of(left.pop()).values():
            inside = [one for one in _inside(Annotated[info.annotation, None]) if one not in found]
            found |= dict.fromkeys(inside)
            left += inside
    return [one for one in found if one not in models]


def sentences(names: Collection[str], *things: Any) -> dict[str, str]:
    """What docstrings say of fields by `name: text.` or `name, other: text.`; the first docstring counts.

    One that says `as of` another class leaves the word to it, if it is there.
    """
    found: dict[str, str] = {}
    for thing in things:
        for one in thing.__mro__ if isinstance(thing, type) else (thing,):
            text = (vars(one).get("__doc__") if isinstance(one, type) else inspect.getdoc(one)) or ""
            if one not in (object, BaseModel) and text:
                for name, says in _parse_sentences(inspect.cleandoc(text), names):
                    if name not in found or found[name].startswith("as of "):
                        found[name] = says
    return found


def _parse_sentences(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    begin = _naming(names)
    for paragraph in _paragraphs(text):
        found = list(begin.finditer(paragraph))
        for here, after in zip(found, [*found[1:], None], strict=False):
            rest = paragraph[here.end() : after.start() if after else None].strip()
            end = _END.search(rest)
            for name in re.findall(r"\w+", here["names"]):
                yield name, (rest[: end.end()] if end else rest).rstrip(";")


def _naming(names: Collection[str]) -> re.Pattern[str]:
    """Where a paragraph begins to speak of fields."""
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    return re.compile(rf"(?:^|(?<=[.;] ))(?P<names>(?:{one})(?:, (?:{one}))*): ")


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n|\n(?=- )", text):
        yield from (
            " ".join(one.split())
            for one in re.split(r"\n(?=\w+(?:, \w+)*: )", block)
        )  # fmt: skip


def _makers(section: Section, kind: str) -> list[Any]:
    """What makes a kind, the class of what a function makes, and the classes that their docstrings refer to."""
    target = maker(section, kind)
    found, about = [target, registry.declaration(section, kind)], vars(sys.modules[target.__module__])
    if not isinstance(target, type):
        made = annotations_of(target).get("return")
        found.append(about.get(made) if isinstance(made, str) else made)
    for one in tuple(found):
        found += (about.get(name) for name in re.findall(r"`([A-Z]\w+)`", inspect.getdoc(one) or ""))
    if (section, kind) == ("generators", "engine"):
        found.append(SamplingParams)
    return [one for one in found if isinstance(one, type) or one is target]


def maker(section: Section, kind: str) -> Any:
    """What makes a kind; of engines on torch, what can be read of them without torch."""
    return (registry.declaration if section == "engines" else registry.find)(section, kind)


def _model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _fields_of(thing: Any) -> Mapping[str, FieldInfo]:
    """The fields of a model, of a dataclass that pydantic reads, or the parameters of what makes something."""
    if _model(thing):
        found: Mapping[str, FieldInfo] = thing.model_fields
        return found
    hints = hints_of(thing) if is_dataclass(thing) else parameters_of(thing)
    infos = {}
    for name, parameter in inspect.signature(thing).parameters.items():
        infos[name] = FieldInfo.from_annotation(hints.get(name, Any))
        if parameter.default is not parameter.empty:
            infos[name].default = parameter.default
    return infos


def _inside(hint: Any) -> Iterator[type]:
    for one in get_args(hint) or (hint,):
        if _model(one) or (isinstance(one, type) and is_dataclass(one)):
            yield one
        elif get_origin(one) is not None:
            yield from _inside(one)


def what(info: FieldInfo) -> str:
    """What is expected of a field."""
    if (noted := describe(info.metadata)) is not None:
        return noted
    nested = any(type(note) is Definition for note in info.metadata)
    return "a definition" if nested else _spell(info.annotation)


def _spell(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if _model(hint) or (isinstance(hint, type) and is_dataclass(hint)):
        return fields_in(hint)
    if origin is Annotated:
        return what(FieldInfo.from_annotation(hint))
    if origin in (dict, Mapping):
        value = _spell(inner[1])
        return f"a mapping, each value {value}" if value != "anything" else "a mapping"
    if origin is tuple and Ellipsis in inner and (inside := list(_inside(hint))):
        return f"a list of {fields_in(inside[0])}"
    each = [one for one in members(hint) if one is not NoneType and one is not None]
    return spell(hint) if each == [hint] else " or ".join(dict.fromkeys(map(_spell, each)))


def fields_in(model: type) -> str:
    """The fields of a mapping; of a definition of any kind, in words."""
    names = [name for name, info in _fields_of(model).items() if _is_field(name, info)]
    return f"{{{', '.join(names)}}}" if names else "definitions (a kind and its fields)"


def _is_field(name: str, info: FieldInfo) -> bool:
    return name != "kind" or len(get_args(info.annotation)) > 1


def _default(info: FieldInfo) -> str | None:
    if info.is_required():
        return None
    default = info.get_default(call_default_factory=True)
    if default is None or isinstance(default, BaseModel) or is_dataclass(default):
        return ""
    return json.dumps(default, ensure_ascii=False)
