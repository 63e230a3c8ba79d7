"""YAML with places: the data of an experiment file, and where in the file each value stands.

A file is bounded before and while it is parsed (bytes, depth, nodes with aliases expanded), so that a
hostile one costs no more than a large one. Plain scalars follow the JSON-like core schema of YAML 1.2:
`no` is a text, and `1e12` a number.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path as File
from reprlib import Repr
from typing import Any, Final

import yaml

from metagen import trust
from metagen.errors import ConfigError
from metagen.generators.openai.keys import HIDDEN, names_key, without_keys

MAX_BYTES: Final = 1_000_000
MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 32

#: From the top of the file down to a value: names in mappings, positions in lists.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a value was given: a file with line and column (from 1), or an option without them (line 0)."""

    origin: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}" if self.line else self.origin


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, which field, and what was expected."""

    place: Place
    field: str
    expected: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.field}: {self.expected}" if self.field else f"{self.place}: {self.expected}"
        )


def spell_path(path: Path) -> str:
    """A path as people write it: `grid.n`."""
    return ".".join(map(str, path))


def spell_assignment(path: Path, value: object) -> str:
    """`path = value`, with long values cut short, and nothing that may be a key."""
    short = Repr()
    short.maxstring = short.maxother = 60
    shown = HIDDEN if any(map(names_key, path)) else short.repr(without_keys(value))
    return f"{spell_path(path)} = {shown}"


def place_of(option: str, assignment: str) -> Place:
    """The place of an option, without its value where that may hold a key: among an engine's, or named as one."""
    words = re.split(r"[^\w-]+", assignment)
    if words[0] == "engines" or any(map(names_key, words)):
        assignment = re.split(r"[^\w.-]", assignment, maxsplit=1)[0]
    return Place(f"{option} {assignment}")


def nearest(name: object, known: Container[str]) -> str:
    """`; did you mean 'x'?` when one of the known names is near, else nothing."""
    found = get_close_matches(str(name), list(known), n=1, cutoff=0.6)  # type: ignore[call-overload]  # any container of names
    return f"; did you mean {found[0]!r}?" if found else ""


@dataclass(slots=True)
class Source:
    """The top-level mapping of a file, the places of its values, and the faults found while reading."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    #: Where parts stand in the file that have moved: by their path in `data`.
    moved: dict[Path, Path] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """Of the value, or of the nearest thing around it that the file has."""
        path = self.path_in_file(path)
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(self.name, 1, 1))

    def path_in_file(self, path: Path) -> Path:
        """The path at which the file has what stands at a path of `data`."""
        end = next((end for end in range(len(path), 0, -1) if path[:end] in self.moved), None)
        return path if end is None else self.path_in_file((*self.moved[path[:end]], *path[end:]))

    def move(self, path: Path, to: Path) -> None:
        """Note that the part at a path now stands at another one."""
        self.moved.setdefault(to, path)

    def assign(self, assignment: str, *, option: str = "--set", named: Container[str] = ()) -> None:
        """Override one value: `grid.n=[1, 4]`, the value in YAML; names may have dots in them.

        named: top-level sections whose names must exist before something inside them is set.
        What is wrong is noted in `faults`, under the place `--set …`; so is what an option of another name has said
        before. Of the same option the last counts.
        """
        target, equals, text = assignment.partition("=")
        place = place_of(option, assignment)
        if not equals or not target.strip():
            self.faults.append(Fault(place, "", "expected key=value, such as --set grid.n=[1,4]"))
            return
        try:
            value = _plain(_Reader(text, place.origin), self.faults)
        except ConfigError as error:
            self.faults.append(Fault(place, "", f"the value is not YAML: {error}"))
            return
        path = self._make_path(target.strip(), place, named)
        if path is not None:
            told = (at for p, at in self.places.items() if p[: len(path)] == path and not at.line)
            if other := next((at for at in told if at.origin.split()[0] != option), None):
                self.faults.append(Fault(place, spell_path(path), f"{other} says it, too; give one of them"))
            node = self.data
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = value
            self.places = {p: at for p, at in self.places.items() if p[: len(path)] != path}
            self.places[path] = place

    def lay_over(self, section: str) -> None:
        """Lay what stands in a section over the rest of the file: `rehearsal: {grid: {n: [2]}}` sets `grid.n`.

        Mappings meet key by key; one with a `kind` takes the place of what is there, and so does any other value.
        Null takes something out. What is wrong is noted in `faults`.
        """
        self._lay(self.data, self.data.pop(section), (), (section,))

    def _lay(self, node: dict[str, Any], over: object, path: Path, at: Path) -> None:
        if not isinstance(over, dict):
            self.faults.append(
                Fault(self.place(at), spell_assignment(at, over), "expected a mapping of what is otherwise")
            )
            return
        for key, value in over.items():
            here, there, inner = (*path, key), (*at, key), node.get(key)
            if isinstance(value, dict) and isinstance(inner, dict) and "kind" not in value:
                self._lay(inner, value, here, there)
                continue
            self.places = {p: place for p, place in self.places.items() if p[: len(here)] != here}
            if value is not None:
                node[key] = value
                self.move(there, here)
            elif node.pop(key, None) is None:
                self.faults.append(
                    Fault(self.place(there), spell_path(there), "there is nothing to leave out")
                )

    def _make_path(self, target: str, place: Place, named: Container[str]) -> tuple[str, ...] | None:
        """The path that a dotted text means, with the mappings above it made where they may be new."""
        node = self.data
        path: tuple[str, ...] = ()
        while True:
            known = [k for k in node if target == k or target.startswith(f"{k}.")]
            key = max(known, key=len) if known else target.split(".")[0]
            if target == key:
                return (*path, key)
            if key not in node and len(path) == 1 and path[0] in named:
                what = f"there is no {key!r} in {path[0]!r} to set this in (there is {', '.join(node) or 'nothing'})"
                self.faults.append(Fault(place, spell_path((*path, key)), what + nearest(key, node)))
                return None
            if node.get(key) is None:
                node[key], self.places[(*path, key)] = {}, place
            inner = node[key]
            path, target = (*path, key), target.removeprefix(f"{key}.")
            if not isinstance(inner, dict):
                self.faults.append(
                    Fault(place, spell_assignment(path, inner), "is no mapping; set it as a whole")
                )
                return None
            node = inner


def read(path: str | File) -> Source:
    """Read a file. ConfigError, with its place, if it is too large, not UTF-8, not YAML or no mapping.

    Faults that leave the rest readable (a key given twice, a tag) are collected in `Source.faults`.
    """
    file, name = File(path), str(path)
    trust.reading(file)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
            size = max(len(data), file.stat().st_size)
    except OSError as error:
        raise ConfigError(
            f"cannot read {name!r}: {error.strerror}; give the path of an experiment file"
        ) from error
    if size > MAX_BYTES:
        raise ConfigError(
            f"{name} has {size:,} bytes, an experiment file may have {MAX_BYTES:,}; "
            "keep data in files of their own and name them"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{name}:{line}: byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        ) from None
    return parse(text, name)


def parse(text: str, name: str = "<text>") -> Source:
    """`read` for a text that is already here. Raises ConfigError for a file that is no mapping."""
    source = Source(name)
    data = _plain(_Reader(text, name), source.faults, source.places)
    if not isinstance(data, dict):
        found = "is empty" if data is None else f"holds a {type(data).__name__}"
        raise ConfigError(f"{name}:1: the file {found}; expected a mapping with name:, task:, generators:, …")
    source.data = data
    return source


def write(data: object) -> str:
    """YAML that `parse` reads back as equal data."""
    text: str = yaml.dump(data, Dumper=_Writer, sort_keys=False, width=110)
    return text


# ------------------------------------------------------------------------------------------- between YAML and data

#: Tag, what a plain scalar of it looks like, the characters it may begin with, and its Python value.
_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", "~nN\0", lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789", int),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
        lambda text: float(re.sub(r"\.(?=[in])", "", text.lower())),
    ),
    ("merge", r"<<", "<", str),
)
_TAG: Final = "tag:yaml.org,2002:"
_VALUES: Final = {_TAG + "str": str} | {_TAG + tag: value for tag, _, _, value in _SCALARS}


class _Core:
    """The scalars above, for a reader and a writer that agree."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern, _first, _ in _SCALARS:
    for _character in _first:
        _resolvers = _Core.yaml_implicit_resolvers.setdefault(_character.strip("\0"), [])
        _resolvers.append((_TAG + _tag, re.compile(rf"(?:{_pattern})\Z")))


class _Writer(_Core, yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


class _Reader(_Core, yaml.SafeLoader):
    """Composes nodes within the bounds; never constructs."""

    def __init__(self, text: str, origin: str) -> None:
        self.origin, self.depth, self.nodes = origin, 0, 0
        try:
            super().__init__(text)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigError(
                f"{origin}:{line}: character {error.character:#x} is not allowed in YAML"
            ) from None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        with self.count_node(self.peek_event().start_mark):  # type: ignore[no-untyped-call]
            return super().compose_node(parent, index)

    @contextmanager
    def count_node(self, mark: yaml.Mark) -> Iterator[None]:
        """One more node, inside those that are being counted; ConfigError beyond a bound."""
        self.nodes += 1
        if self.depth >= MAX_DEPTH:
            raise ConfigError(f"{self.place(mark)}: values are nested deeper than {MAX_DEPTH}; flatten them")
        if self.nodes > MAX_NODES:
            raise ConfigError(
                f"{self.place(mark)}: more than {MAX_NODES:,} values, with aliases written out; "
                "use fewer anchors and aliases, and keep data in files of their own"
            )
        self.depth += 1
        yield
        self.depth -= 1

    def place(self, mark: yaml.Mark) -> Place:
        return Place(self.origin, mark.line + 1, mark.column + 1)

    def root(self) -> yaml.Node | None:
        """The document's node; ConfigError with file, line and column for a syntax error."""
        try:
            node: yaml.Node | None = self.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = f"{self.origin}:{mark.line + 1}:{mark.column + 1}" if mark else self.origin
            what = ", ".join(part for part in (error.context, error.problem) if part)
            raise ConfigError(f"{at}: not YAML: {what}") from None
        except ConfigError:  # has its place already, and is a ValueError as well
            raise
        except (ValueError, OverflowError) as error:  # numbers in escapes and directives that are none
            raise ConfigError(f"{self.origin}:{self.line + 1}: not YAML: {error}") from None
        finally:
            self.dispose()
        self.nodes = 0
        return node


def _plain(reader: _Reader, faults: list[Fault], places: dict[Path, Place] | None = None) -> Any:
    """The document as Python data; places of keys and items go into `places`."""
    node = reader.root()
    return (
        None if node is None else _Converter(reader, faults, {} if places is None else places).value(node, ())
    )


@dataclass(frozen=True, slots=True)
class _Converter:
    reader: _Reader
    faults: list[Fault]
    places: dict[Path, Place]

    def value(self, node: yaml.Node, path: Path) -> Any:
        with self.reader.count_node(node.start_mark):
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self._item(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        convert = _VALUES.get(node.tag)
        if convert is None:
            self._fault(node, path, f"tag {node.tag!r} is unknown; remove it")
            return node.value
        try:
            return convert(node.value)
        except ValueError:
            self._fault(
                node, path, f"expected {node.tag.removeprefix(_TAG)}, cannot read {node.value[:40]!r} as one"
            )
            return node.value

    def _item(self, node: yaml.Node, path: Path) -> Any:
        self.places[path] = self.reader.place(node.start_mark)
        return self.value(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            place = self.reader.place(key.start_mark)
            if key.tag == _TAG + "merge":
                for part in self._merge(value, path):
                    merged = part | merged
            elif not isinstance(key, yaml.ScalarNode):
                self._fault(key, path, "a key is a list or a mapping; expected a name")
            elif key.value in result:
                first = self.places[(*path, key.value)]
                self._fault(key, (*path, key.value), f"given twice, first on line {first.line}; remove one")
            else:
                self.places[(*path, key.value)] = place
                result[key.value] = self.value(value, (*path, key.value))
        return merged | result

    def _merge(self, node: yaml.Node, path: Path) -> Iterator[dict[str, Any]]:
        """Read the mappings that `<<` brings in: one, or a list of them, of which the first wins."""
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(part, yaml.MappingNode):
                yield self.value(part, path)
            else:
                self._fault(part, path, "'<<' merges a mapping, or a list of mappings")

    def _fault(self, node: yaml.Node, path: Path, expected: str) -> None:
        self.faults.append(Fault(self.reader.place(node.start_mark), spell_path(path), expected))
