"""Plain values, as a sandbox answers them, seen from outside: their keys, equal for equal values, and their text.

Outside, they stay JSON (`inside/values.py` has the form): nothing that a candidate says becomes a set or a
dict in this process, where crafted hashes would make it slow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from metagen.sequence import digest

_DEEPEST = 110
#: Characters of a key.
_LONGEST = 1_000


def key(data: Any) -> str | None:
    """A text that is equal for values that Python's `==` holds equal; None for what is not plain.

    1, 1.0 and True are one, and so are set and frozenset; nan equals nan; iterators are equal when what
    they yield is. Long texts are replaced by a digest.
    """
    try:
        text = _key(data, 0)
        return text if len(text) <= _LONGEST else f"long {digest(text).hex()}"
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError):  # a reference, or no value at all
        return None


def _key(data: Any, depth: int) -> str:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    match data:
        case None:
            return "None"
        case bool() | int() | float():
            return _ratio(data)
        case str():
            return json.dumps(data)
        case list():
            return "[" + ",".join(_key(v, depth + 1) for v in data) + "]"
        case dict():
            ((tag, content),) = data.items()
            return _tag_key(tag, content, depth + 1)
    raise ValueError(type(data).__name__)


def _tag_key(tag: str, content: Any, depth: int) -> str:
    match tag:
        case "int":
            return _ratio(int(content, 16))
        case "float":
            return str(float(content))
        case "fraction":
            return _ratio(Fraction(int(_plain_int(content[0])), int(_plain_int(content[1]))))
        case "decimal":
            number = _decimal(content)
            return (
                _ratio(number) if number.is_finite() and abs(number.adjusted()) < 400 else f"decimal {number}"
            )
        case "complex":
            return (
                f"{_key(content[0], depth)}+{_key(content[1], depth)}j"
                if content[1]
                else _key(content[0], depth)
            )
        case "of":
            return _key(content[1], depth)
        case "named":
            return "tuple" + _key(content[2], depth)
        case "numpy":
            return _key(content[1], depth)
        case "defaultdict":
            return _tag_key("dict", content[1], depth)
        case "made":
            return _library_key(content[0], content[1], content[2], depth)
        case "tuple" | "values" | "iterator":
            return tag + _key(content, depth)
        case "set" | "frozenset" | "keys" | "items":
            pairs = tag == "items"
            members = [_key({"tuple": v} if pairs else v, depth) for v in content]
            return "{" + ",".join(sorted(members)) + "}"
        case "dict":
            return "dict{" + ",".join(sorted(f"{_key(k, depth)}:{_key(v, depth)}" for k, v in content)) + "}"
        case "type":
            return f"type {json.dumps(content)}"
        case "bytes" | "bytearray":
            return f"bytes {bytes.fromhex(content).hex()}"
        case "range":
            start, stop, step = map(_plain_int, content)
            size = max(0, -((start - stop) // step))
            return f"range {size} {start if size else 0} {step if size > 1 else 0}"
    raise KeyError(tag)


def _library_key(module: str, name: str, args: list[Any], depth: int) -> str:
    """Dictionaries of all kinds are equal to one another."""
    if name == "Counter":
        return _key(args[0], depth)
    if name == "OrderedDict":
        return _tag_key("dict", [pair["tuple"] for pair in args[0]], depth)
    return f"{json.dumps(module)}.{json.dumps(name)}{_key(args, depth)}"


def _ratio(number: float | Fraction | Decimal) -> str:
    top, bottom = number.as_integer_ratio()
    return hex(top) if bottom == 1 else f"{hex(top)}/{hex(bottom)}"


def _decimal(text: Any) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("no decimal") from None


def _plain_int(data: Any) -> int:
    if isinstance(data, dict):
        return int(data["int"], 16)
    if type(data) is not int:
        raise ValueError("no integer")
    return data


def literal(data: Any, room: int = 300) -> str:
    """The value as Python would write it, cut where it is longer than `room`; whatever the data, never an error."""
    written: list[str] = []
    for part in _parts(data, 0):
        written.append(part if len(part) <= room else f"{part[:room]} …")
        room -= len(part)
        if room < 0:
            return "".join(written).removesuffix(" …") + " …"
    return "".join(written)


def _parts(data: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        yield "…"
    elif isinstance(data, list):
        yield from _list_parts("[", data, "]", depth)
    elif not isinstance(data, dict):
        yield repr(data)
    else:
        yield from _tag_parts(data, depth)


def _tag_parts(data: dict[str, Any], depth: int) -> Iterator[str]:
    match data:
        case {"tuple": list(content)}:
            yield from _list_parts("(", content, ",)" if len(content) == 1 else ")", depth)
        case {"set": [_, *_] as content}:
            yield from _list_parts("{", content, "}", depth)
        case {"dict": list(pairs)}:
            yield "{"
            for i, pair in enumerate(pairs):
                yield ", " if i else ""
                yield from _list_parts("", pair if isinstance(pair, list) else [pair], "", depth, ": ")
            yield "}"
        case {"int": str(digits)}:
            yield digits
        case {"float": str(digits)}:
            yield f"float({digits!r})"
        case {"bytes": str(digits)}:
            yield f"bytes.fromhex({digits[:1000]!r})"
        case {"type": str(name)} | {"function": [_, str(name)]}:
            yield name
        case {"of": [_, plain, _]} | {"numpy": [_, plain]} | {"defaultdict": [_, plain]}:
            yield from _parts({"dict": plain} if "defaultdict" in data else plain, depth + 1)
        case {"named": [str(name), _, list(content), _]} | {"made": [_, str(name), list(content)]}:
            yield from _list_parts(f"{name}(", content, ")", depth)
        case {"ref": [_, str(name)]} | {"lazy": [_, str(name)]}:
            yield f"<{name} object>"
        case _:
            for tag, content in data.items():
                yield f"{tag}("
                yield from _parts(content, depth + 1)
                yield ")"


def _list_parts(left: str, content: list[Any], right: str, depth: int, between: str = ", ") -> Iterator[str]:
    yield left
    for i, value in enumerate(content):
        yield between if i else ""
        yield from _parts(value, depth + 1)
    yield right
