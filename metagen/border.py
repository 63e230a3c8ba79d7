"""The border between metagen and what others plug in: whose fault it is, is said here and nowhere else.

Annotations are the contract. A class of another package that gives a method of one of metagen's parts (`Part`), or of
its protocols, is watched: what its method returns must be what metagen's own method promises, and what it raises is a
`PluginError` that names object, method and line. Constructors of metagen's parts look at what they are given.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from reprlib import Repr
from types import CodeType, FrameType, FunctionType, MethodType, NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin
from weakref import WeakSet

from metagen import threads, values
from metagen.errors import BudgetExhausted, InputError, MetagenError, PluginError, ScopeError

F = TypeVar("F", bound=Callable[..., Any])
#: What is wrong with a result; None if nothing is. `Promise`: of a method, with its arguments by name.
Broken = Callable[[Any], str | None]
Promise = Callable[[Any, Mapping[str, Any]], str | None]
HOME: Final = Path(__file__).parent
#: Annotations of several things in order.
SEVERAL: Final = (list, tuple, Sequence, Iterable, Collection)
PACKAGE: Final = __name__.partition(".")[0]
#: What to give where a part is expected: an example, and what makes one of a function.
EXAMPLES: Final = {
    "Generator": ("engine.generator(), or a strategy", "FunctionGenerator(function)"),
    "Verifier": ("ProcessRewardModel(engine)", "FunctionVerifier(function)"),
    "AnswerRule": ("MathRule() or NumberRule()", "FunctionRule(function)"),
    "Engine": ("TorchEngine('tiny-0.5m')", ""),
    "Utility": ("ExactAnswer(MathRule())", "FunctionUtility(function)"),
    "Aggregator": ("Majority(MathRule())", ""),
    "Journal": ("SQLiteJournal('records.sqlite', seed=0)", ""),
    "Budget": ("{'generated': 4000}", ""),
    "Scope": ("Scope.root() or scope.child('role')", ""),
    "Sequence": ("Sequence.of('the prompt')", ""),
    "SamplingParams": ("SamplingParams(temperature=0.8)", ""),
    "Step": ("Step('\\n') or Tokens(16)", ""),
    "Tool": ("Tool(function)", "Tool(function)"),
    "PairwiseJudge": ("PairwiseJudge(engine)", ""),
}


def promises(promise: Promise) -> Callable[[F], F]:
    """What a method of a contract promises beyond its annotation."""

    def note(method: F) -> F:
        method.__promise__ = promise  # type: ignore[attr-defined]
        return method

    return note


def one_each(name: str) -> Promise:
    """One result for each of the things in this argument."""

    def check(result: Any, given: Mapping[str, Any]) -> str | None:
        if len(result) == len(given[name]):
            return None
        return f"expected one for each, and there are {len(result)} for {len(given[name])} {name}"

    return check


class Part:
    """Base of what can be plugged in: a subclass of another package is watched; metagen's own check what they get."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not ours(cls):
            watch(cls)
            return
        for name, given in list(vars(cls).items()):
            if name == "__init__" and isinstance(given, FunctionType):
                setattr(cls, name, checked(given))
            elif hasattr(_promised(cls.__mro__[1:], name), "__promise__") and isinstance(given, FunctionType):
                setattr(cls, name, explained(given))

    @property
    def oracle(self) -> bool:
        """Whether a part of it, however deep, knows the reference answer: what it makes is an upper bound.

        An answer rule that knows tells nothing to what does not look at which answers are the same (`groups`).
        """
        parts, groups = getattr(self, "__dict__", {}), getattr(self, "groups", True)
        return any(_knows(part) for name, part in parts.items() if groups or name != "answer")


def _knows(thing: object) -> bool:
    if isinstance(thing, Mapping):
        thing = tuple(thing.values())
    if isinstance(thing, list | tuple):
        return any(map(_knows, thing))
    return bool(getattr(thing, "oracle", False))


def ours(thing: object) -> bool:
    """Whether a class or a function is defined in metagen."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] == PACKAGE


# -- what is returned and raised -------------------------------------------------------------------


def watch(cls: type, contract: type | None = None) -> None:
    """Watch the methods that a class, and those of its bases that are not metagen's, give in place of metagen's own.

    contract: a protocol that it need not derive from; by default metagen's classes among its bases.
    """
    for one in cls.__mro__:
        if ours(one) or one is object:
            continue
        for name, given in list(vars(one).items()):
            promised = _promised((one if contract is None else contract).__mro__, name)
            if promised is not None and (watched := _watched(given, promised)) is not None:
                # A class that cannot be changed stays unwatched.
                with suppress(AttributeError, TypeError):
                    setattr(one, name, watched)


def _promised(bases: Iterable[type], name: str) -> Any:
    """The method, or the function behind the property, by which one of metagen's classes promises something."""
    if name.startswith("_"):
        return None
    for base in bases:
        if ours(base) and name in vars(base):
            found = vars(base)[name]
            return found.fget if isinstance(found, property) else found
    return None


def _watched(given: Any, promised: Any) -> Any:
    """A method that is watched; None for what is none, or is watched already."""
    if not isinstance(promised, FunctionType):
        return None
    if isinstance(given, property):
        getter = _watched(given.fget, promised)
        return getter and property(getter, given.fset, given.fdel, given.__doc__)
    if not isinstance(given, FunctionType) or hasattr(given, "__promised__"):
        return None
    hint = hints(promised).get("return", Any)
    watched: Any
    if inspect.iscoroutinefunction(promised):

        async def watched(self: Any, /, *args: Any, **named: Any) -> Any:
            name = f"{type(self).__name__}.{given.__name__}"
            with blamed(name, given):
                made = given(self, *args, **named)
                if not inspect.isawaitable(made):
                    raise _fault(
                        name, given, f"returned {shown(made)} at once; it is awaited: write async def"
                    )
                return _kept(name, given, await made, hint, _bound(promised, self, *args, **named))

    elif get_origin(hint) in (Iterator, Iterable):

        def watched(self: Any, /, *args: Any, **named: Any) -> Any:
            return _items(f"{type(self).__name__}.{given.__name__}", given, hint, self, *args, **named)

    else:

        def watched(self: Any, /, *args: Any, **named: Any) -> Any:
            name = f"{type(self).__name__}.{given.__name__}"
            with blamed(name, given):
                made = given(self, *args, **named)
                return _kept(name, given, made, hint, _bound(promised, self, *args, **named))

    watched = wraps(given)(watched)
    watched.__promised__ = promised
    return watched


def _items(name: str, given: Any, hint: Any, /, *args: Any, **named: Any) -> Iterator[Any]:
    """What a method yields, one by one."""
    (item_hint,) = get_args(hint)
    with blamed(name, given):
        made = given(*args, **named)
        if not isinstance(made, Iterable):
            raise _fault(name, given, f"returned {shown(made)}; expected {spelt(hint)}")
        for item in made:
            if not fits(item, item_hint, strict=False):
                raise _fault(name, given, f"yields {shown(item)}; expected {spelt(item_hint)}")
            yield item


def _bound(promised: Any, /, *args: Any, **named: Any) -> Broken | None:
    """The promise of a method, of these arguments."""
    promise: Promise | None = getattr(promised, "__promise__", None)
    if promise is None:
        return None
    given = inspect.signature(promised).bind(*args, **named)
    given.apply_defaults()
    return lambda result: promise(result, given.arguments)


def called(
    owner: object, function: Callable[..., Any], *args: Any, hint: Any = Any, broken: Broken | None = None
) -> Any:
    """What a function that `owner` was given returns: as the hint says, and by no means `broken`."""
    if ours(function):
        return function(*args)
    name = f"the function {_name(function)!r} of {type(owner).__name__}"
    with blamed(name, function):
        return _kept(name, function, function(*args), hint, broken)


async def answered(
    owner: object, function: Callable[..., Any], *args: Any, hint: Any = Any, broken: Broken | None = None
) -> Any:
    """`called` for a function that may be async; a plain one runs in a thread."""
    name = f"the function {_name(function)!r} of {type(owner).__name__}"
    if ours(function):
        made = function(*args)
        return await made if inspect.isawaitable(made) else made
    with blamed(name, function):
        made = function(*args) if is_async(function) else await threads.run(owner, function, *args)
        return _kept(name, function, await made if inspect.isawaitable(made) else made, hint, broken)


def is_async(function: object) -> bool:
    """Whether a function runs in the loop, and gives way to others where it waits."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


class blamed:  # noqa: N801 - a context manager, as those of contextlib, at a quarter of the time
    """What is raised inside is a fault of this function, unless metagen has said already what it is."""

    __slots__ = ("_function", "_name")

    def __init__(self, name: str, function: object) -> None:
        self._name, self._function = name, function

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, Exception):
            _blame(self._name, self._function, error)


def _blame(name: str, function: object, error: Exception) -> None:
    if isinstance(error, PluginError | BudgetExhausted):
        return
    at = _raised(function, error)
    if isinstance(error, ScopeError):
        raise PluginError(f"{name} ({at}): {error}") from error
    if isinstance(error, MetagenError):
        error.through = error.through or f"{name}, {at}"
        return
    what = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
    frames = [at for at in traceback.walk_tb(error.__traceback__) if not _between(at[0])]
    last, line = frames[-1]
    theirs = len(frames) > 1  # else it could not even be called
    inside = theirs and Path(last.f_code.co_filename).is_relative_to(HOME)
    where = f"at metagen's {Path(last.f_code.co_filename).relative_to(HOME)}:{line}" if inside else ""
    mend = (
        f"{where}, which it calls: look at that call"
        if inside
        else "; it is no part of metagen: mend it there"
    )
    raise PluginError(f"{name} ({at}) raised {what}{' ' if inside else ''}{mend}") from error


def _between(frame: FrameType) -> bool:
    """Whether it only leads from one thread to another."""
    return frame.f_code.co_filename == threads.__file__


def _kept(name: str, function: object, result: Any, hint: Any, broken: Broken | None) -> Any:
    """The result, if it is as the hint says and not `broken`; else PluginError."""
    if inspect.iscoroutine(result):
        result.close()
        raise _fault(
            name,
            function,
            f"returned a coroutine that was never awaited; expected {spelt(hint)}: write await",
        )
    if not fits(result, hint, strict=False):
        raise _fault(name, function, f"returned {shown(result)}; expected {spelt(hint)}")
    if broken is not None and (wrong := broken(result)) is not None:
        raise _fault(name, function, f"returned {shown(result)}; {wrong}")
    return result


def _fault(name: str, function: object, what: str) -> PluginError:
    return PluginError(f"{name} ({place(function)}) {what}")


def told(error: BaseException) -> str:
    """The traceback of what a plug-in raised, from its own code on; empty where it raised nothing."""
    cause = error.__cause__
    if not isinstance(error, PluginError) or cause is None:
        return ""
    frames = traceback.extract_tb(cause.__traceback__)
    theirs = next((i for i, one in enumerate(frames) if not Path(one.filename).is_relative_to(HOME)), None)
    if theirs is None:  # it could not even be called
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[theirs:])]
    return "".join([*lines, *traceback.format_exception_only(cause)]).rstrip()


def place(function: object) -> str:
    """The file and the line at which a function or a class begins, as far as that is known."""
    code = _code(function)
    return _name(function) if code is None else f"{_file(code.co_filename)}:{code.co_firstlineno}"


def _raised(function: object, error: BaseException) -> str:
    """The file and the last line of a function's own file on the way of an error."""
    code = _code(function)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [
        line for frame, line in frames if code is not None and frame.f_code.co_filename == code.co_filename
    ]
    return place(function) if code is None or not lines else f"{_file(code.co_filename)}:{lines[-1]}"


def _code(function: Any) -> CodeType | None:
    inner = getattr(function, "__init__", None) if isinstance(function, type) else function
    return getattr(inspect.unwrap(inner), "__code__", None) if callable(inner) else None


def _file(name: str) -> str:
    """A path as seen from here, where it lies below."""
    with suppress(ValueError, OSError):
        return str(Path(name).relative_to(Path.cwd()))
    return name


def _name(function: object) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


# -- what is given ---------------------------------------------------------------------------------


def checked(function: F, *, first: bool = False) -> F:
    """The function, or the class with its constructor; InputError with a remedy for arguments not as annotated.

    A function looks at them first. A constructor looks when it is through: what it says of its arguments itself comes
    first, and a class that is made inside leaves the word to the one outside. first: it looks as a function does.
    """
    if isinstance(function, type):
        init: Any = vars(function)["__init__"]
        setattr(function, "__init__", checked(init))  # noqa: B010 - mypy: not to be set
        return function
    if first or function.__name__ != "__init__":

        @wraps(function)
        def before(*args: Any, **named: Any) -> Any:
            _look(function, args, named)
            return function(*args, **named)

        return cast(F, before)

    @wraps(function)
    def last(*args: Any, **named: Any) -> Any:
        try:
            function(*args, **named)
        except Exception as error:
            _explain(function, args, named, error)
            raise
        _look(function, args, named)

    return cast(F, last)


def explained(function: F) -> F:
    """The function; where it breaks, InputError for arguments that are not as annotated. It costs nothing else."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def later(*args: Any, **named: Any) -> Any:
            try:
                return await function(*args, **named)
            except Exception as error:
                _explain(function, args, named, error)
                raise

        return cast(F, later)

    @wraps(function)
    def now(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except Exception as error:
            _explain(function, args, named, error)
            raise

    return cast(F, now)


def _explain(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], error: Exception
) -> None:
    """ArgumentError where arguments are not as annotated, and metagen has not said yet what the fault is."""
    if isinstance(error, ArgumentError) or not isinstance(error, MetagenError):
        _look(function, args, named, error)


class ArgumentError(InputError):
    """An argument is of the wrong kind, missing, or one too many."""


def _look(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    error: Exception | None = None,
) -> None:
    """ArgumentError for the first argument that is not as annotated, and for those that are missing or too many."""
    if error is None and _plain(function).fits(args, named):
        return
    signature, name = _signature(function), _called(function, args)
    wanted = hints(function)
    try:
        given = signature.bind_partial(*args, **named).arguments
    except TypeError as odd:
        raise ArgumentError(
            f"{name}: {odd}{_near(named, signature)}; it takes {_takes(signature, wanted)}"
        ) from error
    for what, value, hint in _each(signature, given, wanted):
        if not fits(value, hint, strict=True):
            raise ArgumentError(
                f"{name}: {what}={shown(value)}; expected {spelt(hint, value)}{remedy(value, hint)}"
            ) from error
        if type(value) is not hint:
            _watch_protocols(value, hint)
            _plain(function).met(what, value, hint)
    lacking = [
        p.name
        for p in signature.parameters.values()
        if p.default is p.empty and p.name not in given and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if lacking:
        raise ArgumentError(
            f"{name}: {', '.join(lacking)} missing; it takes {_takes(signature, wanted)}"
        ) from error


class _Plain:
    """The arguments of a function that are told by their class alone: most of those of most calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters, wanted = _signature(function).parameters.values(), hints(function)
        self._kinds = {p.name: _classes(wanted.get(p.name, Any)) for p in parameters}
        self._placed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = (p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        self._required = {p.name for p in named if p.default is p.empty}
        self._odd = len(self._kinds) > len(self._placed) + sum(p.kind is p.KEYWORD_ONLY for p in parameters)
        #: Classes whose objects were found to keep to the protocol of a parameter.
        self._met: dict[str, WeakSet[type]] = {p.name: WeakSet() for p in parameters}

    def met(self, name: str, value: object, hint: Any) -> None:
        """A value was as annotated; so is all of its class where a protocol of metagen's is asked for."""
        several = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if name in self._met and any(_protocol(one) and fits(value, one, strict=True) for one in several):
            self._met[name].add(type(value))

    def fits(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Whether all are there, and of a class that an annotation names; False is not known."""
        if self._odd or len(args) > len(self._placed):
            return False
        given = dict(zip(self._placed, args, strict=False))
        if given.keys() & named.keys():
            return False
        given |= named
        return self._required <= given.keys() and all(
            (isinstance(value, self._kinds.get(name, ())) and type(value) is not bool)
            or type(value) in self._met.get(name, ())
            for name, value in given.items()
        )


@cache
def _plain(function: Callable[..., Any]) -> _Plain:
    return _Plain(function)


def _classes(hint: Any) -> tuple[type, ...]:
    """The classes whose objects are as annotated whatever they hold."""
    if hint is Any:
        return (object,)
    if hint is None:
        return (NoneType,)
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for one in get_args(hint) for kind in _classes(one))
    plain = isinstance(hint, type) and get_origin(hint) is None and not _protocol(hint)
    return (hint,) if plain and hint is not float else ()


def _protocol(hint: Any) -> bool:
    return getattr(hint, "_is_protocol", False) and ours(hint)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _each(
    signature: inspect.Signature, given: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Arguments, by the names that people know, each with its annotation."""
    for name, value in given.items():
        kind, hint = signature.parameters[name].kind, wanted.get(name, Any)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{i}]", one, hint) for i, one in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((key, one, hint) for key, one in value.items())
        else:
            yield name, value, hint


def _near(named: Mapping[str, Any], signature: inspect.Signature) -> str:
    """`; did you mean 'x'?` for a name that is none of the parameters'."""
    known = list(signature.parameters)
    near = [get_close_matches(name, known, n=1) for name in named if name not in known]
    return f"; did you mean {near[0][0]!r}?" if near and near[0] else ""


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """As people call it: a constructor by its class."""
    name = function.__name__
    if "." not in function.__qualname__ or not args:
        return name
    owner = args[0] if isinstance(args[0], type) else type(args[0])
    return owner.__name__ if name == "__init__" else f"{owner.__name__}.{name}"


def _takes(signature: inspect.Signature, wanted: Mapping[str, Any]) -> str:
    """The parameters, with what is expected of those without which it does not go."""
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return ", ".join(
        f"{p.name} ({spelt(wanted.get(p.name, Any))})" if p.default is p.empty else p.name for p in parameters
    )


def _watch_protocols(value: object, hint: Any) -> None:
    """A class that keeps to a protocol of metagen's without deriving from it is watched as if it did."""
    for one in (hint, *get_args(hint)):
        if _protocol(one) and not ours(type(value)):
            watch(type(value), one)


def remedy(value: object, hint: Any) -> str:
    """`; give …` where something else is to be given, and one knows what."""
    if isinstance(value, str) and (near := get_close_matches(value, _words(hint), n=1)):
        return f"; did you mean {near[0]!r}?"
    options = [one for one in (hint, *get_args(hint)) if isinstance(one, type)]
    for one in options:
        name = one.__name__
        if isinstance(value, type) and (one in value.__mro__ or getattr(one, "_is_protocol", False)):
            return f"; it is the class: make one, {value.__name__}(…)"
        example, function = EXAMPLES.get(name, ("", ""))
        if name == "Generator" and callable(getattr(value, "generator", None)):
            return "; it is an engine: give engine.generator()"
        if isinstance(value, FunctionType | MethodType) and function:
            return f"; give {function}"
        if example:
            return f"; give {example}"
    return ""


def _words(hint: Any) -> list[str]:
    """The texts that an annotation allows."""
    if get_origin(hint) is typing.Literal:
        return [one for one in get_args(hint) if isinstance(one, str)]
    return [word for one in get_args(hint) if not isinstance(one, str) for word in _words(one)]


# -- hints -----------------------------------------------------------------------------------------


@cache
def hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of one of metagen's functions; what only a type checker can read is Any."""
    inner = inspect.unwrap(function)
    names = vars(sys.modules[inner.__module__])
    found = {}
    for name, text in inner.__annotations__.items():
        try:
            # Source of this package alone, one by one: typing.get_type_hints gives up all where one cannot be read.
            found[name] = eval(text, names) if isinstance(text, str) else text
        except (NameError, AttributeError):
            found[name] = Any
    return found


def fits(value: object, hint: Any, *, strict: bool) -> bool:
    """Whether a value is as an annotation says.

    strict: of an argument, where True is no number, and nan none either.
    """
    if type(value) is hint and hint is not float:
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar | str):
        return True
    if origin is typing.Literal:
        return any(
            isinstance(value, type(one)) and isinstance(value, bool) == isinstance(one, bool) and value == one
            for one in inner
        )
    if hint is None or hint is NoneType:
        return value is None
    if origin is Annotated:
        return fits(value, inner[0], strict=strict) and values.within(value, inner[1:])
    if origin in (Union, UnionType):
        return any(fits(value, one, strict=strict) for one in inner)
    if hint is float or hint is int:
        number = isinstance(value, Real if hint is float else Integral)
        return number and not (strict and (isinstance(value, bool) or value != value))
    if hint is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
    kind = origin or hint
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type) or kind is object:
        return True
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, type) and all(
            callable(getattr(value, name, None)) for name in _methods(kind)
        )
    if origin in SEVERAL:
        if isinstance(value, str) and origin not in (list, tuple) and inner[0] is str:
            return True
        if isinstance(value, str | bytes | Mapping | type) or not isinstance(value, Iterable):
            return False
        if not isinstance(value, list | tuple):  # what can be read once only is left to its reader
            return True
        each = inner if origin is tuple and Ellipsis not in inner else inner[:1] * len(value)
        return len(each) == len(value) and all(
            fits(one, of, strict=strict) for one, of in zip(value, each, strict=True)
        )
    return isinstance(value, kind)


def _methods(protocol: type) -> tuple[str, ...]:
    """What a protocol of metagen's can be asked to do; what else it has may have been added later."""
    return tuple(
        name for name, one in vars(protocol).items() if isinstance(one, FunctionType) and name[0] != "_"
    )


def spelt(hint: Any, value: object = None) -> str:
    """An annotation in words. value: what was given in its place."""
    origin, inner = get_origin(hint), get_args(hint)
    plain = {
        Any: "anything",
        None: "None",
        NoneType: "None",
        str: "a text",
        int: "an integer",
        float: "a number",
    }
    plain |= {bool: "True or False"}
    if hint in plain:
        return plain[hint]
    if origin is Annotated:
        return values.said(inner[1:], value) or spelt(inner[0], value)
    if origin in (Union, UnionType):
        # A number is an integer as well.
        shown = [spelt(one, value) for one in inner if not (one is int and float in inner)]
        return " or ".join(dict.fromkeys(shown))
    if origin is tuple and inner and Ellipsis not in inner:
        return f"({', '.join(map(spelt, inner))})"
    if origin in SEVERAL:
        return f"a list of {spelt(inner[0]).removeprefix('a ').removeprefix('an ')}"
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else repr(*inner)
    kind = origin or hint
    if kind is Callable:
        return "a function"
    name = getattr(kind, "__name__", str(kind))
    return {"ndarray": "an array", "Mapping": "a dictionary", "dict": "a dictionary"}.get(
        name, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    )


def shown(value: object) -> str:
    """A value, cut short."""
    short = Repr()
    short.maxstring = short.maxother = 60
    if isinstance(value, type | FunctionType):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    return short.repr(value)
