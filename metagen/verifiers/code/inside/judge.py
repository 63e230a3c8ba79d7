"""The inside of the other sandbox: runs tests whose calls are answered by the candidate, elsewhere.

Joined with `values.py`, and with a start: `language.ALONE` or `server.py`. The tests' code is executed here,
and the names that it does not define are asked of the candidate's process, through the process outside of both.
Plain values come back, and references to objects that stay there; so nothing of the candidate's can
patch a test, an operator or an expected value.
"""

from __future__ import annotations

import _ast
import builtins
import os
import sys

from metagen.verifiers.code.inside.values import (
    TYPE_CHECKING,
    Encoder,
    NotPlain,
    TooLarge,
    decode,
    parse,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NoReturn


class Channel:
    """Lines of JSON over a socket: questions to the candidate go out here, and its answers come in."""

    def __init__(self, number: int) -> None:
        self.number, self.rest = number, b""
        hello = self.receive()
        self.nonce, self.room, self.asked = hello["nonce"], hello["room"], 0
        #: Types of the candidate's objects that the running test has met.
        self.foreign: set[str] = set()
        #: Functions and objects of the tests' that the candidate was given, and their numbers, from −1 downwards.
        self.lent: list[Any] = []
        self.numbers: dict[int, int] = {}
        #: Whether it asked for something of these that it may not have, in the running test.
        self.limited = False
        self.send('"ready":true')

    def receive(self) -> Any:
        while b"\n" not in self.rest:
            data = os.read(self.number, 65536)
            if not data:
                os._exit(0)
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return parse(line.decode())

    def send(self, text: str) -> None:
        data = f'{{"nonce":"{self.nonce}",{text}}}\n'.encode()
        while data:
            data = data[os.write(self.number, data) :]

    def ask(self, op: str, **parts: str) -> Any:
        """The candidate's answer; parts: of the question, as JSON. Raises the candidate's error."""
        fields = ",".join(f"{quoted(k)}:{v}" for k, v in {"op": quoted(op), **parts}.items())
        self.asked += 1
        self.send(f'"ask":{{{fields}}}')
        answer = self.receive()
        while "back" in answer:
            self.send(f'"given":{{{self.lend_use(answer["back"])}}}')
            answer = self.receive()
        if "raised" in answer:
            raise _make_error(*answer["raised"])
        if "unrepresentable" in answer:
            raise NotPlain(answer["unrepresentable"])
        return answer

    def lend_use(self, back: dict[str, Any]) -> str:
        """The result of the candidate's use of a lent object, as the inside of a JSON object."""
        try:
            args = [decode(data, Received) for data in back["args"]]
            kwargs = {name: decode(data, Received) for name, data in back["kwargs"].items()}
            permit(back["function"], args)
            value = USES[back["function"]](*args, **kwargs)
            return f'"returned":{Encoder(self.room, _reference).text(value)}'
        except (NotPlain, TooLarge) as error:
            self.limited = True
            return f'"unrepresentable":{quoted(str(error))}'
        except BaseException as error:  # noqa: BLE001  whatever the tests' code raises is the candidate's to handle
            builtin = next(
                (k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins"), "Exception"
            )
            parts = (type(error).__name__, str(error)[:1000], "", builtin)
            return f'"raised":[{",".join(map(quoted, parts))}]'

    def lend(self, value: Any) -> int:
        """The number of an object of the tests'; NotPlain for what may not be lent."""
        if not lendable(value):
            raise NotPlain(
                f"a value of type {type(value).__name__!r} is passed as an argument, and is not plain"
            )
        if id(value) not in self.numbers:
            self.lent.append(value)
            self.numbers[id(value)] = -len(self.lent)
        return self.numbers[id(value)]

    def call(self, target: str, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        encoder = Encoder(self.room, _reference)
        answer = self.ask(
            "call",
            target=target,
            args=f"[{','.join(map(encoder.text, args))}]",
            kwargs=f"{{{','.join(f'{quoted(k)}:{encoder.text(v)}' for k, v in (kwargs or {}).items())}}}",
        )
        for place, data in answer.get("changed", ()):
            _become((kwargs or {})[place] if isinstance(place, str) else args[place], decode(data, Received))
        return decode(answer["returned"], Received)

    def more(self, number: int, count: int) -> tuple[list[Any], bool]:
        """The next items of an iterator of the candidate's, at least one; and whether these are the last."""
        answer = self.ask("more", ref=str(number), count=str(count))
        return [decode(data, Received) for data in answer["returned"]], "done" in answer

    def apply(self, function: str, *args: Any) -> Any:
        """A builtin function, applied there."""
        return self.call(f'["function",{quoted(function)}]', args)


class FromCandidate:
    """Marks what the candidate raised."""


class Failed(AssertionError):
    """An assertion that does not hold, with its two sides and the operator, where it has them."""

    def __init__(self, place: str, message: Any = None, sides: tuple[Any, Any, str] | None = None) -> None:
        super().__init__(message)
        self.place, self.sides = place, sides


class Remote:
    """An object that lives with the candidate. To compare it with anything but itself is an error.

    What its methods say, and whether it is true, is its own word: an error as well, but in tests of classes.
    """

    __slots__ = ("_method", "_number", "_type")

    def __init__(self, number: int, name: str) -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_type", name)
        object.__setattr__(self, "_method", False)

    @property  # type: ignore[misc]  # what `isinstance` asks for
    def __class__(self) -> Any:
        """Asked by `isinstance`, where this is no type that it could be told by."""
        raise NotPlain(
            f"the test asks whether an object of the candidate's (type {self._type!r}) is of some type"
        )

    def __instancecheck__(self, instance: Any) -> bool:
        self._trust("what is an instance")
        return bool(channel.apply("isinstance", instance, self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._method:
            self._trust("a method")
        return channel.call(f'["ref",{self._number}]', args, kwargs)

    def __getattr__(self, name: str) -> Any:
        value = channel.apply("getattr", self, name)
        if type(value) is Remote:
            object.__setattr__(value, "_method", True)
        return value

    def __bool__(self) -> bool:
        self._trust("the truth")
        return bool(channel.apply("bool", self))

    def _trust(self, what: str) -> None:
        if not namespace.objects:
            raise NotPlain(
                f"{what} of an object of the candidate's (type {self._type!r}) would decide the test; say objects=True "
                "in the suite if the tests are of classes, and import in the setup what the tests use"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        channel.apply("setattr", self, name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        channel.apply("setitem", self, key, value)

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Remote) and other._number == self._number):
            self._refuse(other)
        return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _refuse(self, other: object) -> NoReturn:
        raise NotPlain(f"a value of type {self._type!r} is not plain, so it cannot be compared")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __hash__(self) -> int:
        self._trust("the hash")
        return object.__hash__(self)


def _forward(name: str) -> Callable[..., Any]:
    return lambda *args: channel.apply(name, *args)


for _name in ("len", "str", "repr", "iter", "getitem", "abs", "float", "int"):
    setattr(Remote, f"__{_name}__", _forward(_name))


class Received:
    """The references in an answer: `Received(number, name)` is an object of the candidate's, `pull` an iterator."""

    def __new__(cls, number: int, name: str) -> Any:
        if number < 0:
            return channel.lent[-number - 1]
        channel.foreign.add(name)
        return Remote(number, name)

    @staticmethod
    def pull(number: int, name: str) -> Any:
        """Nothing is asked of it before the test wants it."""
        found = Items(number, name)
        return generate(found) if name == "generator" else found


class Items:
    """An iterator of the candidate's: items come when they are wanted, more at a time the more are wanted."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name, self.count = number, name, 1
        self.waiting: list[Any] = []
        self.done = False

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Any:
        if not self.waiting and not self.done:
            found, self.done = channel.more(self.number, self.count)
            self.count = min(2 * self.count, 1024)
            self.waiting = found[::-1]
        if not self.waiting:
            raise StopIteration
        return self.waiting.pop()

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return getattr(Remote(self.number, self.name), name)


def generate(items: Items) -> Iterator[Any]:
    """The same as a generator: tests may ask for one."""
    yield from items


class Function:
    """A function of the candidate's, by name, whatever the tests define under that name."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return channel.call(f'["name",{quoted(self.__name__)}]', args, kwargs)


class Namespace(dict):  # type: ignore[type-arg]  # dict[str, Any] would be evaluated at run time
    """The namespace of the tests: names that it lacks are the candidate's; only `names`, unless that is None."""

    entry_points: frozenset[str] = frozenset()
    names: frozenset[str] | None = None
    objects = False

    def __missing__(self, name: str) -> Any:
        if name in self.entry_points:
            return Function(name)
        if not self.is_asked(name) or (hasattr(builtins, name) and name not in (self.names or ())):
            raise KeyError(name)
        answer = channel.ask("name", name=quoted(name))
        if "missing" in answer:
            if not hasattr(builtins, name):
                raise KeyError(name)  # the interpreter asks so for `__annotations__`, and makes it
            raise NameError(
                f"name {name!r} is not defined", name=name
            )  # a builtin would answer for the candidate
        return decode(answer["returned"], Remote)

    def is_asked(self, name: str) -> bool:
        """Whether the candidate is asked for it."""
        return self.names is None or name in self.names or name in self.entry_points


#: Of comparisons other than `==`, for the words about what was expected.
SIGNS = {
    "Eq": "", "NotEq": "!= ", "Lt": "< ", "LtE": "<= ", "Gt": "> ", "GtE": ">= ",
    "Is": "is ", "IsNot": "is not ", "In": "in ", "NotIn": "not in ",
}  # fmt: skip


class Rewrite:
    """Makes assertions say both sides: `assert a == b` → evaluate a and b, compare, raise Failed with both.

    By the C half of `ast`: the whole would take as long as the start of the interpreter.
    """

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.tree: Any = compile(source, "<test>", "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
        self.visit(self.tree)

    def visit(self, node: Any) -> None:
        """Replace the assertions among the statements below a node."""
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, part, None), list):
                setattr(node, part, [new for statement in statements for new in self.replace(statement)])
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self.visit(inner)

    def replace(self, node: Any) -> list[Any]:
        if not isinstance(node, _ast.Assert):
            self.visit(node)
            return [node]
        place = "\n".join(self.lines[node.lineno - 1 : node.end_lineno]).strip()[:500]
        at = {name: getattr(node, name) for name in node._attributes}
        test, before, sides = node.test, [], _ast.Constant(None, **at)  # type: tuple[Any, list[Any], Any]
        load = _ast.Load()
        if isinstance(test, _ast.Compare) and len(test.ops) == 1:
            values = (test.left, test.comparators[0])
            names = [_ast.Name(n, load, **at) for n in ("@left", "@right")]
            before = [
                _ast.Assign([_ast.Name(names[i].id, _ast.Store(), **at)], values[i], **at) for i in (0, 1)
            ]
            # The side with a call is tested; the other side was expected.
            order = names[::-1] if [calls(v) for v in values] == [False, True] else names
            sides = _ast.Tuple([*order, _ast.Constant(type(test.ops[0]).__name__, **at)], load, **at)
            if isinstance(test.ops[0], _ast.Is | _ast.IsNot):
                told = _ast.Call(_ast.Name("@identity", load, **at), [*names], [], **at)
                before.append(_ast.Expr(told, **at))
            test = _ast.Compare(names[0], test.ops, [names[1]], **at)
        words = [_ast.Constant(place, **at), node.msg or _ast.Constant(None, **at), sides]
        error = _ast.Raise(_ast.Call(_ast.Name("@Failed", load, **at), words, [], **at), **at)
        return [*before, _ast.If(_ast.UnaryOp(_ast.Not(), test, **at), [error], [], **at)]


def identity(left: Any, right: Any) -> None:
    """NotPlain where `is` would be asked of what has crossed as a copy."""
    single = (type(None), bool, type(Ellipsis), type, Remote)
    kinds = (type(left), type(right))
    # These two stay where they are, behind a reference that is not the tests' own.
    hidden = Remote in kinds and (type(Ellipsis) in kinds or type(NotImplemented) in kinds)
    if channel.asked and (hidden or not any(kind in single for kind in kinds)):
        raise NotPlain("the test asks whether two are one object, and values cross as copies")


def calls(node: Any) -> bool:
    """Whether there is a call in an expression."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ast.Call):
            return True
        for name in node._fields:
            value = getattr(node, name, None)
            waiting += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, _ast.AST)]
    return False


def _reference(value: Any) -> int:
    """The number of an object of the candidate's that is passed back to it."""
    original = getattr(type(value), "@original", value)
    if type(original) is not Remote:
        return channel.lend(value)
    number: int = original._number
    return number


def lendable(value: Any) -> bool:
    """Whether it is of the tests' own: a function, a class, an instance, or one of its methods.

    Nothing else: through a module, a frame or a function of the library a candidate would reach this process.
    """
    kind = type(value)
    if kind is type(lendable):
        return value.__globals__ is namespace
    if kind is type(channel.send):
        return lendable(value.__self__)
    if kind.__module__ == "functools" and kind.__name__ == "partial":
        return lendable(value.func)
    own = value.__module__ if isinstance(value, type) else kind.__module__
    return bool(own == "tests") and kind is not Remote


def permit(function: str, args: list[Any]) -> None:
    """NotPlain unless it is lent objects of the tests' that are used, by names that are not private."""
    subject = args[0]
    instance = [type(value).__module__ == "tests" for value in args]
    if function == "call":
        allowed = lendable(subject)
    elif function in ("getattr", "setattr"):
        allowed = (instance[0] or isinstance(subject, type)) and lendable(subject) and args[1][:1] != "_"
        # A method that the candidate has replaced would decide tests.
        if function == "setattr":
            allowed = allowed and instance[0] and not callable(getattr(type(subject), args[1], None))
    else:
        allowed = any(instance)
    if not allowed:
        raise NotPlain(f"{function} of a value of type {type(subject).__name__!r} of the tests'")


def _uses() -> dict[str, Callable[..., Any]]:
    """The operations that a candidate may apply to an object of the tests', by name."""
    import _operator as operators

    plain = "eq ne lt le gt ge getitem setitem delitem contains neg add sub mul truediv floordiv mod pow xor"
    uses: dict[str, Callable[..., Any]] = {name: getattr(operators, name) for name in plain.split()}
    uses |= {"and": operators.and_, "or": operators.or_, "call": lambda f, *a, **k: f(*a, **k)}
    return uses | {
        "getattr": getattr, "setattr": setattr, "hash": hash, "len": len, "iter": iter, "bool": bool, "str": str,
        "repr": repr, "abs": abs, "int": int, "float": float,
    }  # fmt: skip


USES = _uses()
Encoder.names = True


def _become(old: Any, new: Any) -> None:
    """Change an argument in place, as the candidate did."""
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif isinstance(old, tuple):
        for one, other in zip(old, new, strict=True):
            _become(one, other)
    elif hasattr(old, "extend"):
        old.clear()
        old.extend(new)


def _make_error(name: str, message: str, trace: str, builtin: str) -> BaseException:
    base = getattr(builtins, builtin, Exception)
    if not (isinstance(base, type) and issubclass(base, BaseException)):
        base = Exception
    if issubclass(base, (StopIteration, StopAsyncIteration)):
        base = RuntimeError  # it would end a loop over calls in the tests, as if all had been made
    kind: Any = type(name, (FromCandidate, base), {})
    error: BaseException = kind.__new__(kind)
    error.args = (message,)
    return error


def _judge(source: str, namespace: Namespace) -> str:
    """The verdict on a piece of the tests; no bad one where the candidate could not use something of theirs."""
    channel.limited = False
    verdict = _verdict(source, namespace)
    if channel.limited and not verdict.startswith('"verdict":"passed"'):
        return _fault(
            "unrepresentable", NotPlain("the program used something of the tests' that cannot be lent")
        )
    return verdict


def _verdict(source: str, namespace: Namespace) -> str:
    """Run a piece of the tests: how it went, as the inside of a JSON object."""
    try:
        code = compile(Rewrite(source).tree, "<test>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _fault("broken", error)
    try:
        exec(code, namespace)
        return '"verdict":"passed"'
    except Failed as error:
        verdict = "failed" if channel.asked else "broken"
        parts = {"case": error.place}
        if error.sides is not None:
            got, expected, operator = error.sides
            parts |= {"got": _show(got), "expected": SIGNS[operator] + _show(expected)}
        if error.args[0] is not None:
            parts["message"] = _show(error.args[0])
        return f'"verdict":"{verdict}",' + _fields(parts)
    except NotPlain as error:
        return '"verdict":"unrepresentable",' + _fields({"message": str(error)})
    except TooLarge:
        return '"verdict":"unrepresentable","message":"an argument is larger than the limit on answers"'
    except BaseException as error:  # noqa: BLE001  whatever the tests raise, exits included: they have not passed
        of_candidate = isinstance(error, FromCandidate)
        if channel.foreign and not of_candidate and not _is_broken(error, namespace):
            met = ", ".join(sorted(channel.foreign))
            return _fault("unrepresentable", error, f" (with objects of the candidate's: {met})")
        return _fault(
            "raised" if of_candidate else "broken" if _is_broken(error, namespace) else "failed", error
        )


def _fault(verdict: str, error: BaseException, more: str = "") -> str:
    return f'"verdict":"{verdict}",' + _fields({"message": f"{type(error).__name__}: {error}{more}"})


def _is_broken(error: BaseException, namespace: Namespace) -> bool:
    """Whether no candidate can be to blame for what the tests raised."""
    if not channel.asked or isinstance(error, ImportError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Not in what the tests evaluate of a candidate's words.
    inside = trace is not None and trace.tb_frame.f_code.co_filename == "<test>"
    return inside and isinstance(error, NameError) and not namespace.is_asked(error.name or "")


def _fields(parts: dict[str, str]) -> str:
    return ",".join(f'"{k}":{quoted(str(v)[:2000])}' for k, v in parts.items())


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  an integer of too many digits, or a type of the tests' own
        text = f"<a {type(value).__name__} without repr: {type(error).__name__}>"
    return text if len(text) <= 500 else f"{text[:400]} … {text[-80:]}"


channel: Channel
namespace: Namespace


def serve(number: int) -> None:
    """Run the tests that come over socket `number`, one at a time, and say of each how it went."""
    global channel, namespace
    channel = Channel(number)
    request = channel.receive()
    sys.modules["tests"] = type(sys)("tests")
    namespace = Namespace(
        {"__name__": "tests", "__builtins__": builtins, "@Failed": Failed, "@identity": identity}
    )
    namespace.entry_points = frozenset(request["entry_points"])
    namespace.names = None if request["names"] is None else frozenset(request["names"])
    namespace.objects = request["objects"]
    channel.send(f'"setup":true,{_judge(request["setup"], namespace)}')
    for point in request["entry_points"]:
        namespace.pop(point, None)
    met = frozenset(channel.foreign)
    while True:
        number, test = channel.receive()["test"]
        channel.foreign = set(met)
        channel.send(f'"test":{number},{_judge(test, namespace)}')
