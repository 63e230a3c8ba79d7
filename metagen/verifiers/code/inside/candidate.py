"""The inside of a sandbox: answers calls to a candidate's functions with plain values, over one socket.

Joined with `values.py`, and with a start: `language.ALONE` or `server.py`. The candidate shares this interpreter
and may patch all of it; so nothing here judges, and no expected value comes here.
"""

from __future__ import annotations

import os as _os
import sys as _sys
from _thread import RLock as _RLock

from metagen.verifiers.code.inside.values import (
    TYPE_CHECKING,
    Encoder,
    NotPlain,
    TooLarge,
    _bytearray,
    _defaultdict,
    _deque,
    _dict,
    _enumerate,
    _int,
    _isinstance,
    _len,
    _list,
    _number,
    _range,
    _set,
    _str,
    _tuple,
    _type,
    decode,
    parse,
    quoted,
)

if TYPE_CHECKING:
    from typing import Any

_read, _write, _getpid = _os.read, _os.write, _os.getpid
_set_attribute = object.__setattr__
_compile, _exec, _eval, _getattr = compile, exec, eval, getattr
_BaseException, _MemoryError = BaseException, MemoryError
_PROGRAM = "<program>"
#: Arguments that a program may change in place; of a tuple, its items.
_MUTABLE = (_list, _dict, _set, _bytearray, _tuple, _deque, _defaultdict)
#: Bytes of items that are sent ahead of being asked for.
_CHUNK = 4096


class _Channel:
    """Lines of JSON over a socket."""

    def __init__(self, number: int) -> None:
        self.number, self.rest = number, b""

    def receive(self) -> Any:
        """The next line, parsed; None when the other end has closed."""
        while b"\n" not in self.rest:
            data = _read(self.number, 65536)
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return parse(line.decode())

    def send(self, text: str) -> None:
        data = text.encode() + b"\n"
        while data:
            data = data[_write(self.number, data) :]


class Lent:
    """A function or an object of the tests', which stays with them: every operation on it is done there."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        _set_attribute(self, "_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return candidate.back("call", (self, *args), kwargs)

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_":
            raise AttributeError(name)
        return candidate.back("getattr", (self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        candidate.back("setattr", (self, name, value))

    def __hash__(self) -> int:
        return _int(candidate.back("hash", (self,)))


def _forward(name: str) -> Any:
    return lambda *args: candidate.back(name, args)


def _forward_in_reverse(name: str) -> Any:
    return lambda one, other: candidate.back(name, (other, one))


_ARITHMETIC = "add sub mul truediv floordiv mod pow and or xor".split()  # noqa: SIM905  short
_COMPARISONS = "eq ne lt le gt ge contains".split()  # noqa: SIM905
_OTHERS = "len iter getitem setitem delitem bool str repr neg abs int float".split()  # noqa: SIM905
for _name in _ARITHMETIC + _COMPARISONS + _OTHERS:
    setattr(Lent, f"__{_name}__", _forward(_name))
for _name in _ARITHMETIC:
    setattr(Lent, f"__r{_name}__", _forward_in_reverse(_name))


class _Candidate:
    """A loaded program: its namespace, and what it returned that is not plain."""

    def __init__(self, room: int) -> None:
        self.source = ""
        self.kept: list[Any] = []
        self.namespace: dict[str, Any] = {}
        self.encoder = Encoder(room, self.keep)
        self.functions: dict[str, Any] = {
            "getattr": getattr, "setattr": setattr, "bool": bool, "len": len, "str": str, "repr": repr,
            "iter": iter, "getitem": lambda x, k: x[k], "contains": lambda x, k: k in x,
            "setitem": lambda x, k, v: x.__setitem__(k, v), "abs": abs, "float": float, "int": int,
            "isinstance": isinstance,
        }  # fmt: skip
        #: By the number of an iterator: its error, which comes after the items that have been sent.
        self.late: dict[int, BaseException] = {}
        #: Of the tests', by number: the same object is the same again.
        self.lent: dict[int, Lent] = {}
        #: The request that is being answered, by whom; one thread at a time may ask the tests for something.
        self.serving, self.process, self.turn = 0, _getpid(), _RLock()

    def keep(self, value: Any) -> int:
        if _type(value) is Lent:
            number: int = value._number
            return number
        self.kept.append(value)
        return _len(self.kept) - 1

    def find(self, number: int, name: str) -> Any:
        if number < 0:
            return self.lent.setdefault(number, Lent(number))
        return self.kept[number]

    def serve(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        before, self.serving = self.serving, request["id"]
        channel.send(f'{nonce}"id":{request["id"]},{self.answer(request)}}}')
        self.serving = before

    def back(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Apply a function to what is lent, where it lives; meanwhile its code may call the program again."""
        if _getpid() != self.process:
            raise NotPlain("a process that the program started uses a function or an object of the tests'")
        with self.turn:
            texts = [self.encoder.text(value) for value in args]
            named = [f"{quoted(name)}:{self.encoder.text(value)}" for name, value in (kwargs or {}).items()]
            asked = f'"function":{quoted(function)},"args":[{",".join(texts)}],"kwargs":{{{",".join(named)}}}'
            channel.send(f'{nonce}"id":{self.serving},"back":{{{asked}}}}}')
            while "given" not in (message := channel.receive() or {"given": {"unrepresentable": "gone"}}):
                self.serve(message)
        given = message["given"]
        if "raised" in given:
            raise _of_tests(*given["raised"])
        if "unrepresentable" in given:
            raise NotPlain(given["unrepresentable"])
        return decode(given["returned"], self.find)

    def answer(self, request: dict[str, Any]) -> str:
        """The answer to one request, as the inside of a JSON object."""
        try:
            answer: str = _getattr(self, request["op"])(request)
            return answer
        except NotPlain as error:
            return '"unrepresentable":' + quoted(_str(error))
        except TooLarge:
            return '"oversized":true'
        except _MemoryError:
            return '"raised":["MemoryError","MemoryError","","MemoryError"]'
        except _BaseException as error:  # whatever the candidate raises, exits included, is its answer
            return f'"raised":[{",".join(map(quoted, _describe(error, self.source)))}]'

    def load(self, request: dict[str, Any]) -> str:
        module = _type(_sys)(request["name"])
        _sys.modules[request["name"]] = module
        self.namespace, self.source = module.__dict__, request["source"]
        _exec(_compile(self.source, _PROGRAM, "exec", dont_inherit=True), self.namespace)
        return '"returned":null'

    def call(self, request: dict[str, Any]) -> str:
        kind, name = request["target"]
        if kind == "name":
            target = _eval(name, self.namespace)
        else:
            target = self.kept[name] if kind == "ref" else self.functions[name]
        given = [*_enumerate(request["args"]), *_dict.items(request["kwargs"])]
        values = {place: decode(data, self.find) for place, data in given}
        args = [values[i] for i in _range(_len(request["args"]))]
        value = target(*args, **{k: values[k] for k in request["kwargs"]})
        self.encoder.lazy = True
        answer = f'"returned":{self.encoder.text(value)}'
        self.encoder.lazy = False
        changed = [
            f"[{_number(place, _int) if _type(place) is _int else quoted(place)},{self.encoder.text(values[place])}]"
            for place, data in given
            if _type(values[place]) in _MUTABLE and values[place] != decode(data, self.find)
        ]
        return f'{answer},"changed":[{",".join(changed)}]' if changed else answer

    def more(self, request: dict[str, Any]) -> str:
        """The next items of an iterator, `count` at most, and fewer where they are large; whether it has ended."""
        number, size = request["ref"], 0
        parts: list[str] = []
        if number in self.late:
            raise self.late.pop(number)
        try:
            while _len(parts) < request["count"] and size < _CHUNK:
                parts.append(self.encoder.text(next(self.kept[number])))
                size += _len(parts[-1])
        except StopIteration:
            return f'"returned":[{",".join(parts)}],"done":true'
        except _BaseException as error:
            if not parts:
                raise
            self.late[number] = error
        return f'"returned":[{",".join(parts)}]'

    def eval(self, request: dict[str, Any]) -> str:
        return f'"returned":{self.encoder.text(_eval(request["code"], self.namespace))}'

    def name(self, request: dict[str, Any]) -> str:
        if request["name"] not in self.namespace:
            return '"missing":true'
        return f'"returned":{self.encoder.text(self.namespace[request["name"]])}'


def _of_tests(name: str, message: str, trace: str, builtin: str) -> BaseException:
    """The error that the tests raised while the program used one of their objects."""
    import builtins

    kind = _getattr(builtins, builtin, Exception)
    error: BaseException = (kind if _isinstance(kind, _type) else Exception)(message)
    return error


def _describe(error: BaseException, source: str) -> tuple[str, str, str, str]:
    """Type, message, traceback, and the builtin type that it is a kind of."""
    kind = _type(error)
    builtin = next((k.__name__ for k in kind.__mro__ if k.__module__ == "builtins"), "Exception")
    try:
        message = _str(error)[:1000]
    except _BaseException:  # its own __str__
        message = ""
    return kind.__name__, message, _format_trace(error, source), builtin


def _format_trace(error: BaseException, source: str) -> str:
    """The traceback below this file, with the program's lines."""
    import linecache
    import traceback

    linecache.cache[_PROGRAM] = (_len(source), None, source.splitlines(True), _PROGRAM)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _PROGRAM:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(_type(error), error, trace, limit=-8))
    except _BaseException:  # its own __str__ again, or a patched module
        text = ""
    return text if _len(text) <= 4000 else f"{text[:2000]}\n…\n{text[-2000:]}"


channel: _Channel
candidate: _Candidate
#: Beginning of each answer.
nonce: str


def serve(number: int) -> None:
    """Answer the requests that come over socket `number`, until its other end has closed."""
    global candidate, channel, nonce
    channel = _Channel(number)
    _sys.argv[:] = ["solution.py"]
    hello = channel.receive()
    nonce = f'{{"nonce":"{hello["nonce"]}",'
    channel.send(nonce + '"ready":true}')
    candidate = _Candidate(hello["room"])
    while (request := channel.receive()) is not None:
        candidate.serve(request)
