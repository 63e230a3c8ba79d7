"""A part says what it is, once: its annotated fields.

From them come its constructor, the checks of what that is given, its fingerprint and its repr; and, by its signature,
the kind that experiment files know, with fields, defaults and errors.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
import re
import sys
import uuid
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from numbers import Real
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    UnionType,
)
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin

from metagen.border import call, checked
from metagen.errors import InputError, MetagenError
from metagen.sequence import digest
from metagen.values import annotations_of, fits, read, show, spell, unaliased

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def part(cls: type[T]) -> type[T]:
    """Make a class a part: give it a constructor that takes its annotated fields by name, and checks them.

    A field is given by place, too, if it is `field(kw_only=False)`. A class method `conflict(given)` says what is wrong
    between fields; then the constructor raises InputError, and so does the reading of an experiment file.
    `__post_init__` looks at the parts themselves, and keeps what is derived from fields.
    """
    if hasattr(cls, "conflict"):
        setattr(cls, "__post_init__", _asks_for_conflicts(cls, getattr(cls, "__post_init__", None)))  # noqa: B010
    made = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__.__annotations__.update(hints_of(made))
    setattr(made, "__init__", checked(made.__init__, first=True))  # noqa: B010 - mypy: not to be set
    shows = next(one for one in made.__mro__ if "__repr__" in vars(one))
    if "__dataclass_fields__" not in vars(shows):
        setattr(made, "__repr__", _repr)  # noqa: B010 - as above
    return made


def _asks_for_conflicts(cls: type, after: Callable[..., None] | None) -> Callable[..., None]:
    """A `__post_init__` that asks for conflicts between the fields of this class, and then does what it did."""

    def ask(self: Any, *given: Any) -> None:
        nearest = next(one for one in type(self).__mro__ if "__dataclass_fields__" in vars(one))
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(cls) if one.init}
        if nearest is cls and (odd := call(self, self.conflict, fields, hint=str | None)):
            raise InputError(f"{type(self).__name__}: {odd}")
        if after is not None:
            after(self, *given)

    return ask


def unused(cls: Any, given: Mapping[str, Any], *cases: tuple[str, bool, str]) -> str | None:
    """For a `conflict`: the first field that does nothing beside the others and is not as by default, and why.

    cases: a field, whether it does nothing, and what is said of it behind its name and value.
    """
    for name, nothing, why in cases:
        if nothing and given.get(name, usual := getattr(cls, name)) != usual:
            return f"{name}={given[name]!r} {why}"
    return None


def arguments_of(thing: object) -> Iterator[tuple[str, Any]]:
    """The arguments that a part was made with, by name: its fields, and those of a constructor of its own.

    Raises MetagenError for an argument that it does not keep under its name.
    """
    names = (
        [one.name for one in dataclasses.fields(thing) if one.init] if dataclasses.is_dataclass(thing) else []
    )
    owner = next(cls for cls in type(thing).__mro__ if "__init__" in vars(cls))
    if "__dataclass_fields__" not in vars(owner):
        taken = inspect.signature(type(thing)).parameters.values()
        names += [p.name for p in taken if p.name not in names and not (names and p.kind is p.VAR_KEYWORD)]
    for name in names:
        if not hasattr(thing, name):
            cls = type(thing).__name__
            raise MetagenError(
                f"{cls} is made with {name!r} and has no such attribute, so that nothing tells two of them apart; keep "
                f"it as self.{name}, declare the fields of {cls} with @part, or give it a property `fingerprint`"
            )
        yield name, getattr(thing, name)


def fingerprint(thing: object, *, recorded: bool = False) -> str:
    """Names a part by its class and all that it was made with: equal fingerprints promise equal behaviour.

    recorded: records are found by it, in other processes too. Raises MetagenError then for what it was made with that
    would have another name there.
    """
    cls, named = type(thing), []
    for name, value in arguments_of(thing):
        if recorded and _nameless(value):
            raise MetagenError(
                f"{cls.__name__} is made with {name}={show(value)}, which has another name in each process, so that "
                f"what is recorded would be paid for again; give {type(value).__name__} a property `fingerprint`, or "
                f"{cls.__name__} one that says what it is made with"
            )
        named += [name, identity(value)]
    return digest(f"{cls.__module__}.{cls.__qualname__}", *named).hex()


def _nameless(value: object) -> bool:
    """Whether nothing names a value but its place in memory."""
    if isinstance(value, Mapping):
        return any(map(_nameless, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_nameless, value))
    plain = type(value).__repr__ is object.__repr__ and not isinstance(value, FunctionType)
    return plain and not isinstance(getattr(value, "fingerprint", None), str)


def identity(value: Any) -> str:
    """A text that tells a value from all that behave otherwise."""
    if isinstance(known := getattr(value, "fingerprint", None), str):
        return known
    if isinstance(value, Real) and not isinstance(value, bool):
        return repr(float(value))
    if isinstance(value, Mapping):
        return digest(*(identity(one) for pair in value.items() for one in pair)).hex()
    if isinstance(value, list | tuple):
        return digest(*map(identity, value)).hex()
    if isinstance(value, re.Pattern):
        return repr((value.pattern, value.flags))
    if isinstance(value, FunctionType | MethodType | partial):
        return name_of(value)
    return _repr_or_own(value)


def name_of(function: Callable[..., Any]) -> str:
    """Where a function is defined; of a lambda, or one inside of another, what it does, is given and reads as well.

    Two of these that may do something else never have the same name; a function of a module has one, whatever it reads.
    A method is named by its function and its object, a partial by its parts, and other callables by their
    `fingerprint`, else by what they hold. What nothing names has another name in each process, as an object does that
    is given or read: then no record is found, and none is wrong.
    """
    if (known := getattr(function, "fingerprint", None)) is not None:
        return str(known)
    if isinstance(function, partial):
        return f"partial {digest(*map(_given, (function.func, function.args, function.keywords))).hex()}"
    if isinstance(function, MethodType):
        return f"{name_of(function.__func__)} of {_given(function.__self__)}"
    if not isinstance(function, FunctionType):
        return _given(function)
    place = f"{function.__module__}.{function.__qualname__}"
    if (
        "<" not in place and "<" not in function.__code__.co_qualname
    ):  # which a wrapper's is, whatever it is called
        return place
    cells = [_given(cell.cell_contents) for cell in function.__closure__ or ()]
    given = (_given(function.__defaults__), _given(function.__kwdefaults__), *cells)
    space = function.__globals__
    read = [f"{name}={_given(space[name])}" for name in sorted(_globals(function.__code__)) if name in space]
    return f"{place} {digest(*_code(function.__code__), *given, *read).hex()}"


#: The name of functions that are given none.
UNNAMED = "function"


#: Fingerprints that another process would make otherwise, each with the class of an object that nothing names.
PASSING: dict[str, str] = {}


def fingerprint_of_functions(kind: str, name: str, *functions: Callable[..., Any]) -> str:
    """What tells such functions from others: the name that they are given, and without one their own (`name_of`)."""
    if name != UNNAMED:
        return digest(kind, name).hex()
    met: list[str] = []
    before = _MET.set(met)
    try:
        found = digest(kind, name, *map(name_of, functions)).hex()
    finally:
        _MET.reset(before)
    if met:
        PASSING[found] = met[0]
    return found


#: Values whose repr tells them in full, and modules that have nothing but such.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice)
_OF_VALUES = {"datetime", "decimal", "fractions", "logging", "pathlib", "uuid"}
_MAPPINGS, _LISTS, _SETS = (
    (dict, OrderedDict, Counter, MappingProxyType),
    (list, tuple, deque),
    (set, frozenset),
)
#: Objects that are being named around this one, by their places in memory.
_NAMING: ContextVar[tuple[int, ...]] = ContextVar("naming", default=())
#: Classes of objects that nothing names, and that were met while functions were named.
_MET: ContextVar[list[str]] = ContextVar("met")
#: Names of objects that nothing else names, by their places in memory, while they live.
_OWN: dict[int, tuple[object, str]] = {}


def _given(value: Any) -> str:
    """A text for what a function is given or reads, which no object has that may be another."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, type) and "<" not in value.__qualname__:
        return repr(value)
    if id(value) in _NAMING.get():
        return "itself"
    naming = _NAMING.set((*_NAMING.get(), id(value)))
    try:
        return _inner(value)
    finally:
        _NAMING.reset(naming)


def _inner(value: Any) -> str:
    cls = type(value)
    kind = f"{cls.__module__}.{cls.__qualname__}"
    with suppress(MetagenError):  # it is made with something that nothing names
        if isinstance(known := getattr(value, "fingerprint", None), str):
            if known in PASSING:
                _MET.get([]).append(PASSING[known])
            return known
    if isinstance(value, FunctionType | MethodType | partial):
        return name_of(value)
    if isinstance(value, re.Pattern):
        return identity(value)
    # What is made of these may behave otherwise, and hold more.
    if cls in _MAPPINGS:
        return digest(kind, *(_given(one) for pair in value.items() for one in pair)).hex()
    if cls in _LISTS or hasattr(cls, "_fields"):
        return digest(kind, *map(_given, value)).hex()
    if cls in _SETS:
        return digest(kind, *sorted(map(_given, value))).hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return digest(
            kind, *(_given(getattr(value, one.name, None)) for one in dataclasses.fields(value))
        ).hex()
    # An array: its repr leaves out what is in the middle; of objects it has their places in memory.
    with suppress(TypeError, ValueError, BufferError):
        view = memoryview(value)
        if "O" not in view.format:
            return digest(view.format, repr(view.shape), view.tobytes()).hex()
    plain = isinstance(value, Enum | BuiltinFunctionType) or cls.__module__.partition(".")[0] in _OF_VALUES
    return _repr_or_own(value) if plain else _own(value)


def _repr_or_own(value: object) -> str:
    """A repr, unless it has a place in memory, where another object may be soon."""
    text = repr(value)
    if isinstance(value, str | bytes) or " at 0x" not in text:
        return text
    return _given(value) if dataclasses.is_dataclass(value) or isinstance(value, _SETS) else _own(value)


def _own(value: object) -> str:
    """A name that no other object has, in this process or another one."""
    place = id(value)
    _MET.get([]).append(type(value).__qualname__)
    if (known := _OWN.get(place)) is None:
        try:
            held: object = weakref.ref(value, lambda gone: _OWN.pop(place, None))
        except TypeError:
            held = value  # it lives on, so that no other one takes its place
        known = _OWN.setdefault(place, (held, uuid.uuid4().hex))
    return known[1]


def _globals(code: CodeType) -> set[str]:
    """The names that a function, and those inside of it, look up in their module."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals(one) for one in code.co_consts if isinstance(one, CodeType)))


def _code(code: CodeType) -> list[str | bytes]:
    """Instructions, names and constants, those of inner functions too."""
    parts: list[str | bytes] = [code.co_code, repr(code.co_names), repr(code.co_varnames)]
    for constant in code.co_consts:
        parts += _code(constant) if isinstance(constant, CodeType) else [repr(constant)]
    return parts


def _repr(self: Any) -> str:
    """As it would be made; what is as by default is left out."""
    fields = {one.name: one for one in dataclasses.fields(self)}
    said = [
        f"{name}={value!r}"
        for name, value in arguments_of(self)
        if fields[name].default is dataclasses.MISSING or value is not fields[name].default
    ]
    return f"{type(self).__name__}({', '.join(said)})"


def check(value: object, of: str = "") -> None:
    """Check the fields of a frozen dataclass against their annotations; floats are kept as such, however written.

    of: what messages begin with. Raises InputError for the first field that does not fit, and for a list or an array's
    number, which would give equal values other fingerprints.
    """
    cls: Any = type(value)
    settled = _settled(cls)
    for name, hint in hints_of(cls).items():
        one = getattr(value, name)
        if one is settled.get(name, dataclasses.MISSING):
            continue
        if _mutable(one):
            raise InputError(f"{of}{name}={one!r}: expected a tuple in place of a list")
        strange = isinstance(one, Real) and not isinstance(one, int | float)
        if strange or not fits(one, hint, strict=True):
            raise InputError(f"{of}{name}={one!r}: expected {spell(hint, one)}")
        if isinstance(one, int | float | tuple):
            object.__setattr__(value, name, _floats(one, hint))


@cache
def _settled(cls: Any) -> Mapping[str, Any]:
    """Defaults that fit as they are, by field: most values are these, and `check` need not look at them again."""
    found = {}
    for one in dataclasses.fields(cls):
        default, hint = one.default, hints_of(cls)[one.name]
        plain = default is None or isinstance(default, str | int | float | tuple)
        if plain and not _mutable(default) and fits(default, hint, strict=True):
            kept = _floats(default, hint) if isinstance(default, int | float | tuple) else default
            if kept is default:
                found[one.name] = default
    return found


def _floats(value: Any, hint: Any) -> Any:
    """A value that fits its annotation, with floats where that has them: 1 and 1.0 are equal, and named alike."""
    hint = unaliased(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _floats(value, inner[0])
    if origin in (Union, UnionType):
        return _floats(value, next(one for one in inner if fits(value, one, strict=True)))
    if origin is tuple and inner[1:] == (Ellipsis,):
        return tuple(_floats(one, inner[0]) for one in value)
    held = hint is float and (isinstance(value, float) or abs(value) <= sys.float_info.max)
    return float(value) if held else value


def _mutable(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, tuple) and any(map(_mutable, value)))


def hints_of(cls: Any) -> Mapping[str, Any]:
    """The annotations of a dataclass's fields, read where each was written; what cannot be read there is Any."""
    return _hints(cls)


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for one in dataclasses.fields(cls):
        own = ((base, annotations_of(base)) for base in cls.__mro__ if base is not object)
        owner, texts = next((base, texts) for base, texts in own if one.name in texts)
        found[one.name] = read(texts[one.name], owner.__module__)
    return found
