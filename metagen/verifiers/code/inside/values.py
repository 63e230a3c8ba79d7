"""Plain values as JSON, and back. Sent into sandboxes as text, so it uses nothing but builtins.

JSON's own types stand for themselves; all else is an object with one key, which names the type:
`{"tuple": [1, 2]}`, `{"dict": [["a", 1]]}`, `{"float": "nan"}`. Subclasses lose what they add. A value
that is not plain becomes `{"ref": [n, "TypeName"]}` where references are kept, else `NotPlain` is raised.
"""

from __future__ import annotations

# The C halves of `json`: the whole would cost a tenth of the start.
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
_int, _float, _list, _tuple, _dict, _set, _range = int, float, list, tuple, dict, set, range
_frozenset, _bytes, _bytearray, _complex, _hex, _enumerate = (
    frozenset, bytes, bytearray, complex, hex, enumerate,
)  # fmt: skip
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

    refer: gives a number to a value that is not plain; without it, NotPlain is raised.
    """

    def __init__(self, room: int, refer: Callable[[Any], int] | None = None) -> None:
        self.room, self.refer = room, refer

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
        for base, plain in _BASES:
            if _isinstance(v, base):
                return self.text(plain(v), depth)
        module, name = kind.__module__, kind.__qualname__
        if module == "fractions" and name == "Fraction":
            return f'{{"fraction":[{self.text(v.numerator)},{self.text(v.denominator)}]}}'
        if module == "decimal" and name == "Decimal":
            return f'{{"decimal":{self._spend(quoted(_str(v)))}}}'
        if kind is _type and v.__module__ == "builtins":
            return f'{{"type":{self._spend(quoted(v.__name__))}}}'
        if _hasattr(kind, "__next__"):
            return f'{{"iterator":{self._items(v, depth)}}}'
        if self.refer is None:
            raise NotPlain(f"a value of type {name!r} is not plain")
        return self._spend(f'{{"ref":[{self.refer(v)},{quoted(_str(name))}]}}')

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


# Unbound methods of the base: what a subclass overrides is not asked.
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


def decode(data: Any, refer: Callable[[int, str], Any] | None = None) -> Any:
    """The value that parsed JSON stands for. refer: makes a value of a reference's number and type name."""
    if _type(data) is _list:
        return [decode(v, refer) for v in data]
    if _type(data) is not _dict:
        return data
    ((tag, content),) = data.items()
    if tag == "ref":
        if refer is None:
            raise NotPlain(f"a value of type {content[1]!r} is not plain")
        return refer(_int(content[0]), content[1])
    if tag in ("dict", "items"):
        pairs = {decode(k, refer): decode(v, refer) for k, v in content}
        return pairs if tag == "dict" else pairs.items()
    return _MAKERS[tag](decode(content, refer))


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
