"""Fields with a meaning: what is expected of a value, and what a name or a path refers to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema

from metagen.errors import InputError
from metagen.generators.models import sources
from metagen.generators.pool import FIELDS
from metagen.runs.declare.source import nearest
from metagen.runs.directory import RunDirectory
from metagen.values import Expects, Text

#: Stands in schemas for the definition of a section.
DEFINED: Final = "x-defined"


@dataclass(frozen=True, slots=True)
class Context:
    """What a field is checked against: the names defined in each section, and where relative paths begin."""

    names: Mapping[str, tuple[str, ...]]
    base: File


def _reference(section: str) -> AfterValidator:
    def check(name: str, info: ValidationInfo) -> str:
        if isinstance(info.context, Context):
            known = info.context.names.get(section, ())
            if name not in known:
                raise ValueError(
                    f"expected one of the {section} {', '.join(known) or '(none)'}{nearest(name, known)}"
                )
        return name

    return AfterValidator(check)


def at_home(path: str) -> File:
    """A path with the home directory in place of `~`. ValueError for the home of a user that there is not."""
    try:
        return File(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{error}; write ~/… for your own home directory, or the whole path") from None


def local_model(name: str, info: ValidationInfo) -> str:
    """A model's name as it is; a directory, an adapter's too, or a GGUF file as an absolute path.

    Raises ValueError for what is none.
    """
    known = sources.names()
    if name in known:
        return name
    base = info.context.base if isinstance(info.context, Context) else File()
    directory = base / at_home(name)
    if any((directory / name).is_file() for name in ("config.json", "adapter_config.json")):
        return str(directory.resolve())
    if directory.suffix.lower() == ".gguf" and directory.is_file():
        return str(directory.resolve())
    what = "the directory has no config.json" if directory.is_dir() else "there is no such file or directory"
    raise ValueError(
        f"{what}; expected a model directory, a GGUF file, or one of {', '.join(known)}"
        + nearest(name, known)
    )


def _file(path: str, info: ValidationInfo) -> str:
    base = info.context.base if isinstance(info.context, Context) else File()
    file = (base / at_home(path)).resolve()
    if not file.is_file():
        raise ValueError(f"there is no file {str(file)!r}; expected a path, relative to the experiment file")
    return str(file)


def _folder(path: str, info: ValidationInfo) -> str:
    """A directory that need not exist yet, as an absolute path."""
    base = info.context.base if isinstance(info.context, Context) else File()
    folder = (base / at_home(path)).resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no directory; expected one, or a path where one can be made")
    return str(folder)


def _run(path: str, info: ValidationInfo) -> str:
    """A run as an absolute path: relative to the file, or as commands find it."""
    base = info.context.base if isinstance(info.context, Context) else File()
    beside = base / at_home(path)
    try:
        found = beside if (beside / "experiment.yaml").is_file() else RunDirectory.find(path).root
    except InputError as error:
        raise ValueError(str(error)) from None
    return str(found.resolve())


def _points(path: str, info: ValidationInfo) -> str:
    """The file itself, or the table of samples of a run's directory, as an absolute path."""
    base = info.context.base if isinstance(info.context, Context) else File()
    given = (base / at_home(path)).resolve()
    file = given / "candidates.parquet" if given.is_dir() else given
    if not file.is_file():
        raise ValueError(
            f"there is no file {str(file)!r}; expected the directory of a finished run with pools, or a file, relative "
            "to the experiment file"
        )
    return str(file)


def _score(name: str | None, info: ValidationInfo) -> str | None:
    """What points call the score of a verifier, where the file does not say it: as the file calls the verifier."""
    return name if name or info.data.get("points") is None else info.data.get("verifier")


T = TypeVar("T", tuple[Any, ...], dict[str, Any])


def some(values: T) -> T:
    """At least one value. Raises ValueError for none."""
    if not values:
        raise ValueError("expected at least one")
    return values


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """No value twice. Raises ValueError for equal ones."""
    twice = sorted({str(v) for v in values if values.count(v) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given more than once; name each once")
    return values


def pool_field(name: str) -> str:
    """A name that a recorded pool maps to one of its fields. Raises ValueError for another name."""
    if name not in FIELDS and not name.startswith("scores."):
        raise ValueError(f"expected one of {', '.join(FIELDS)}, scores.NAME{nearest(name, FIELDS)}")
    return name


def _regex(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"not a regular expression ({error}); expected one with one group") from None
    if groups != 1:
        raise ValueError(f"expected a regular expression with one group, what it captures; it has {groups}")
    return pattern


EngineName = Annotated[str, Expects("the name of an engine"), _reference("engines")]
VerifierName = Annotated[str, Expects("the name of a verifier"), _reference("verifiers")]
#: A verifier's name, or its definition, which `nested` gives a name before it is read.
AnyVerifier = Annotated[
    str,
    Expects("the name of a verifier, or its definition"),
    _reference("verifiers"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {DEFINED: "verifiers"}]}),
]
GeneratorName = Annotated[str, Expects("the name of a generator"), _reference("generators")]
StrategyName = Annotated[str, Expects("the name of a strategy"), _reference("strategies")]
#: Names stand in paths and in `generator/strategy@n`.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"), Expects("a name of letters, digits and . _ + -")
]
ModelName = Annotated[
    str, Expects("a model directory, or the name of an embedded model"), AfterValidator(local_model)
]
FileName = Annotated[str, Expects("the path of a file"), AfterValidator(_file)]
FolderName = Annotated[str, Expects("the path of a directory"), AfterValidator(_folder)]
PointsName = Annotated[str, Expects("the path of a run or a file"), AfterValidator(_points)]
ScoreName = Annotated[Text | None, Field(validate_default=True), AfterValidator(_score)]
RunName = Annotated[str, Expects("a run's directory, or its name"), AfterValidator(_run)]
Pattern = Annotated[str, Expects("a regular expression with one group"), AfterValidator(_regex)]
RuleName = Annotated[
    str | dict[str, Any],
    Expects("the name of an answer rule, module:attribute, or a mapping with kind: and options"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {DEFINED: "answers"}]}),
]
#: What a judge may answer, and what each is worth.
Labels = Annotated[dict[Text, Annotated[float, Expects("a number")]], AfterValidator(some)]
