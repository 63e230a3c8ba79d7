"""Plain values as JSON, and back. Sent into sandboxes as text, so it uses nothing but builtins.

JSON's own types stand for themselves; all else is an object with one key, which names the type:
`{"tuple": [1, 2]}`, `{"dict": [["a", 1]]}`, `{"float": "nan"}`. Of the standard library, some are made again by
their constructors: `{"made": ["datetime", "date", [2026, 1, 2]]}`. An instance of a subclass is its base's value with
a reference to ask for the rest: `{"of": ["Colour", 3, n]}`. A value that is not plain becomes
`{"ref": [n, "TypeName"]}` where references are kept, else `NotPlain` is raised.
"""

from __future__ import annotations

# The C halves of `collections` and `json`: the whole would cost a tenth of the start.
import _collections  # type: ignore[import-not-found]  # has no stub
from _json import encode_basestring_ascii
from _json import make_scanner as _make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

quoted = encode_basestring_ascii
_DEEPEST = 100
#: Bytes that a list, a dict's item and so on count for: empty ones are short to write, and not to keep.
CONTAINER = 16
_DIGITS = 10**15
# Taken before anything else runs, so that a patched builtin reaches no further than its patcher.
_type, _isinstance, _hasattr, _str, _len, _iter = type, isinstance, hasattr, str, len, iter
_issubclass = issubclass
_int, _float, _list, _tuple, _dict, _set, _range = int, float, list, tuple, dict, set, range
_frozenset, _bytes, _bytearray, _complex, _hex, _enumerate, _getattr, _repr = (
    frozenset, bytes, bytearray, complex, hex, enumerate, getattr, repr,
)  # fmt: skip
_deque, _defaultdict = _collections.deque, _collections.defaultdict
_BUILTIN, _METHOD, _MODULE = type(len), type(str.upper), type(_collections)
_VIEWS: Any = (_type({}.keys()), _type({}.values()), _type({}.items()))


class NotPlain(TypeError):
    """A value that cannot leave its process."""


class TooLarge(ValueError):
    """A value of more bytes than may be sent."""


class _Scanner:
    strict, memo = True, {}  # type: ignore[var-annotated]  # what json.JSONDecoder gives the scanner
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


_context: Any = _Scanner
_scan = _make_scanner(_context)


def parse(text: str) -> Any:
    """JSON text as lists, dicts with string keys, strings and numbers."""
    return _scan(text, 0)[0]


class Encoder:
    """Writes values as JSON text of at most `room` bytes in all.

    refer: gives a number to a value that is not plain; without it, NotPlain is raised. lazy: an iterator stays where
    it is, behind a reference; otherwise all that it yields is written.
    """

    #: Whether builtin functions are written by their names: a program has those that tests pass.
    names = False

    def __init__(self, room: int, refer: Callable[[Any], int] | None = None) -> None:
        self.room, self.refer, self.lazy = room, refer, False

    def text(self, v: Any, depth: int = 0) -> str:
        """The value as JSON. Raises TooLarge, and NotPlain, also for what is nested too deeply."""
        kind = _type(v)
        if v is None or v is True or v is False:
            return self._spend("null" if v is None else "true" if v is True else "false")
        if kind is _int or kind is _float:
            return self._spend(_number(v, kind))
        if kind is _str:
            self._fits(_len(v))
            return self._spend(quoted(v))
        if depth >= _DEEPEST:
            raise NotPlain(f"the value is nested deeper than {_DEEPEST} levels")
        if kind is _list:
            return self._items(v, depth)
        if kind is _tuple:
            return f'{{"tuple":{self._items(v, depth)}}}'
        if kind is _dict:
            return f'{{"dict":{self._items(_dict.items(v), depth, pairs=True)}}}'
        if kind is _set or kind is _frozenset:
            return f'{{"{"set" if kind is _set else "frozenset"}":{self._items(v, depth)}}}'
        if kind is _bytes or kind is _bytearray:
            self._fits(2 * _len(v))
            return self._spend(f'{{"{"bytes" if kind is _bytes else "bytearray"}":"{v.hex()}"}}')
        return self._rare(v, kind, depth)

    def _rare(self, v: Any, kind: type, depth: int) -> str:
        if kind is _complex:
            return f'{{"complex":[{_number(v.real, _float)},{_number(v.imag, _float)}]}}'
        if kind is _range:
            return f'{{"range":{self._items((v.start, v.stop, v.step), depth)}}}'
        if kind in _VIEWS:
            name = ("keys", "values", "items")[_VIEWS.index(kind)]
            return f'{{"{name}":{self._items(v, depth, pairs=name == "items")}}}'
        module, name = kind.__module__, kind.__qualname__
        if _str.split(_str(module), ".")[0] == "numpy" and _hasattr(v, "tolist"):
            return (
                f'{{"numpy":[{quoted(_str(v.dtype))},{Encoder.text(self._strict(), v.tolist(), depth + 1)}]}}'
            )
        if (made := _MADE.get((module, name))) is not None:
            self._take(CONTAINER)
            return f'{{"made":["{module}","{name}",{self._items(made(v), depth + 1)}]}}'
        if kind is _defaultdict:
            factory = v.default_factory
            known = factory is None or (_type(factory) is _type and factory.__module__ == "builtins")
            told = "null" if factory is None else quoted(factory.__name__ if known else "?")
            return f'{{"defaultdict":[{told},{self._items(_dict.items(v), depth, pairs=True)}]}}'
        for base, plain in _BASES:
            if _issubclass(kind, base):
                return self._subclass(v, kind, name, plain(v), depth)
        if module == "fractions" and name == "Fraction":
            return f'{{"fraction":[{self.text(v.numerator)},{self.text(v.denominator)}]}}'
        if module == "decimal" and name == "Decimal":
            return f'{{"decimal":{self._spend(quoted(_str(v)))}}}'
        if self.names and kind is _BUILTIN and _type(v.__self__) is _MODULE:
            return self._spend(f'{{"function":[{quoted(v.__module__)},{quoted(v.__name__)}]}}')
        if self.names and kind is _METHOD:
            return self._spend(
                f'{{"function":["builtins",{quoted(f"{v.__objclass__.__name__}.{v.__name__}")}]}}'
            )
        if kind is _type and v.__module__ == "builtins":
            return f'{{"type":{self._spend(quoted(v.__name__))}}}'
        if _hasattr(kind, "__next__"):
            if self.lazy and self.refer is not None:
                return self._spend(f'{{"lazy":[{self.refer(v)},{quoted(_str(name))}]}}')
            return f'{{"iterator":{self._items(v, depth)}}}'
        if self.refer is None:
            raise NotPlain(f"a value of type {name!r} is not plain")
        return self._spend(f'{{"ref":[{self.refer(v)},{quoted(_str(name))}]}}')

    def _subclass(self, v: Any, kind: type, name: str, plain: Any, depth: int) -> str:
        """An instance of a subclass: named tuples with the names of their fields."""
        asked = "null"
        if self.refer is not None:
            try:  # noqa: SIM105  contextlib is an import that each start would pay for
                asked = _str(self.refer(v))
            except NotPlain:  # of nobody's whom the other side could ask
                pass
        self._take(CONTAINER)
        told = self._spend(quoted(_str(name)))
        fields: Any = _getattr(kind, "_fields", None)
        if _type(plain) is _tuple and _type(fields) is _tuple and _len(fields) == _len(plain):
            return f'{{"named":[{told},{self._items(fields, depth)},{self._items(plain, depth)},{asked}]}}'
        return f'{{"of":[{told},{self.text(plain, depth)},{asked}]}}'

    def _strict(self) -> Encoder:
        """An encoder in the same room that keeps no references."""
        return Encoder(self.room)

    def _items(self, values: Iterable[Any], depth: int, pairs: bool = False) -> str:
        parts = []
        self._take(CONTAINER)
        for v in values:
            self._take(CONTAINER if pairs else 1)
            parts.append(
                f"[{self.text(v[0], depth + 1)},{self.text(v[1], depth + 1)}]"
                if pairs
                else self.text(v, depth + 1)
            )
        return f"[{','.join(parts)}]"

    def _spend(self, text: str) -> str:
        self._take(_len(text))
        return text

    def _take(self, size: int) -> None:
        self._fits(size)
        self.room -= size

    def _fits(self, size: int) -> None:
        if size > self.room:
            raise TooLarge("the value is larger than the limit on answers")


def _number(v: Any, kind: type) -> str:
    if kind is _float:
        return _float.__repr__(v) if v - v == 0 else f'{{"float":"{_float.__repr__(v)}"}}'
    return _int.__repr__(v) if -_DIGITS < v < _DIGITS else f'{{"int":"{_hex(v)}"}}'


# Unbound methods of the base: overrides of a subclass are not called.
_BASES: Any = (
    (_int, lambda v: _int.__add__(v, 0)),
    (_float, lambda v: _float.__mul__(v, 1.0)),
    (_str, lambda v: _str.__add__(v, "")),
    (_list, lambda v: _list.__getitem__(v, slice(None))),
    (_tuple, lambda v: _tuple.__add__((), _tuple.__getitem__(v, slice(None)))),
    (_dict, lambda v: _dict(_list(_dict.items(v)))),
    (_frozenset, lambda v: _frozenset(_frozenset.__iter__(v))),
    (_set, lambda v: _set(_set.__iter__(v))),
    (_bytes, lambda v: _bytes.__getitem__(v, slice(None))),
    (_bytearray, lambda v: _bytearray.__getitem__(v, slice(None))),
    (_complex, lambda v: _complex.__add__(v, 0j)),
)


#: Constructors that make a value of the standard library again: by module and name, their arguments.
_MADE: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("datetime", "date"): lambda v: (v.year, v.month, v.day),
    ("datetime", "time"): lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo),
    ("datetime", "datetime"): lambda v: (
        v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo,
    ),
    ("datetime", "timedelta"): lambda v: (v.days, v.seconds, v.microseconds),
    ("datetime", "timezone"): lambda v: (v.utcoffset(None),),
    ("collections", "deque"): lambda v: (_list(_deque.__iter__(v)), v.maxlen),
    ("collections", "Counter"): lambda v: (_dict(_list(_dict.items(v))),),
    ("collections", "OrderedDict"): lambda v: (_list(v.items()),),
    ("pathlib", "PosixPath"): lambda v: (_str(v),),
    ("pathlib", "PurePosixPath"): lambda v: (_str(v),),
    ("uuid", "UUID"): lambda v: (v.hex,),
    ("array", "array"): lambda v: (v.typecode, _list(v)),
}  # fmt: skip


def decode(data: Any, refer: Callable[[int, str], Any] | None = None) -> Any:
    """The value that parsed JSON stands for.

    refer: makes a value of a reference's number and type name. An iterator's is made by `refer.pull`, and what a
    subclass adds is asked of a reference too.
    """
    if _type(data) is _list:
        return [decode(v, refer) for v in data]
    if _type(data) is not _dict:
        return data
    ((tag, content),) = data.items()
    if tag == "ref":
        if refer is None:
            raise NotPlain(f"a value of type {content[1]!r} is not plain")
        return refer(_int(content[0]), content[1])
    if tag == "function" and not _hasattr(refer, "pull"):
        return _find(*content)
    if tag in _RICH:
        return _rich(tag, content, refer)
    if tag in ("dict", "items"):
        pairs = {decode(k, refer): decode(v, refer) for k, v in content}
        return pairs if tag == "dict" else pairs.items()
    return _MAKERS[tag](decode(content, refer))


_RICH = ("made", "defaultdict", "of", "named", "lazy", "numpy")


def _rich(tag: str, content: list[Any], refer: Any) -> Any:
    """A value that is more than JSON and its tag; NotPlain if it cannot be made."""
    try:
        if tag == "made":
            return _make(content[0], content[1], decode(content[2], refer))
        if tag == "defaultdict":
            pairs = {decode(k, refer): decode(v, refer) for k, v in content[1]}
            return _defaultdict(_factory(content[0]), pairs)
        if tag == "numpy":
            return _numpy(content[0], decode(content[1], refer))
        if tag == "lazy":
            return refer.pull(_int(content[0]), content[1])
        asked = None if content[-1] is None or refer is None else refer(_int(content[-1]), content[0])
        own = content[-1] is not None and content[-1] >= 0 and not _hasattr(refer, "pull")
        if own and _type(asked).__hash__ is not None:
            return asked  # back where it came from, and unchanged
        if tag == "of":
            plain = decode(content[1], refer)
            return _type(content[0], (_type(plain),), _ask(asked, content[0]))(plain)
        from collections import namedtuple

        base = namedtuple(content[0], content[1])  # type: ignore[misc]  # its name is what came
        return _type(content[0], (base,), _ask(asked, content[0]))(*decode(content[2], refer))
    except (NotPlain, TooLarge):
        raise
    except Exception as error:  # noqa: BLE001  whatever a constructor says against a forger's arguments
        raise NotPlain(f"a value of type {content[0]!r} cannot be made again: {error}") from None


def _make(module: str, name: str, args: list[Any]) -> Any:
    if (module, name) not in _MADE:
        raise NotPlain(f"{module}.{name} is not made here")
    return _getattr(__import__(module), name)(*args)


def _find(module: str, name: str) -> Any:
    """A builtin function that was passed to the program: its own one does the same."""
    found: Any = __import__(module)
    for part in [*module.split(".")[1:], *name.split(".")]:
        found = _getattr(found, part)
    return found


def _factory(name: str | None) -> Any:
    """The factory of a default dictionary: a builtin type; anything else is not known here."""
    if name is None:
        return None
    if name != "?":
        return _builtin_type(name)

    def unknown() -> Any:
        raise NotPlain("what a defaultdict makes of a missing key is the program's own")

    return unknown


def _numpy(dtype: str, data: Any) -> Any:
    """An array, or a scalar; where there is no numpy, a scalar is Python's."""
    try:
        import numpy
    except ImportError:
        if _type(data) is _list:
            raise NotPlain(
                "an array of numpy, which the tests' sandbox has not got; give it as judge="
            ) from None
        return data
    kind = dtype.rstrip("0123456789")
    if kind not in ("bool", "int", "uint", "float", "complex"):
        return numpy.array(data)
    return numpy.array(data, dtype) if _type(data) is _list else numpy.dtype(dtype).type(data)


def _ask(asked: Any, name: str) -> dict[str, Any]:
    """The attributes of a value that stands for one of a subclass: missing ones are asked of the original."""

    def missing(self: Any, attribute: str) -> Any:
        if attribute[:2] == "__":
            raise AttributeError(attribute)
        if asked is None:
            raise NotPlain(f"{attribute!r} of a value of type {name!r} did not come with it")
        return _getattr(asked, attribute)

    # `asked` is looked for by what passes the value back to where it came from.
    return {"__getattr__": missing, "@original": asked, "__module__": "builtins"}


def _builtin_type(name: str) -> type:
    import builtins

    found: Any = getattr(builtins, name, None)
    if not _isinstance(found, _type):
        raise NotPlain(f"{name!r} is no builtin type")
    kind: type = found
    return kind


def _fraction(parts: list[int]) -> Any:
    from fractions import Fraction

    return Fraction(*parts)


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "tuple": _tuple,
    "set": _set,
    "frozenset": _frozenset,
    "bytes": _bytes.fromhex,
    "bytearray": _bytearray.fromhex,
    "int": lambda text: _int(text, 16),
    "float": _float,
    "complex": lambda parts: _complex(*parts),
    "range": lambda parts: _range(*parts),
    "keys": lambda keys: _dict.fromkeys(keys).keys(),
    "values": lambda values: _dict(_enumerate(values)).values(),
    "iterator": _iter,
    "type": _builtin_type,
    "fraction": _fraction,
    "decimal": _decimal,
}
