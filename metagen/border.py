"""The border between metagen and what others plug in: whose fault it is, is said here and nowhere else.

Annotations are the contract. A class of another package that gives a method of one of metagen's parts (`Part`), or of
its protocols, is watched: what its method returns must be what metagen's own method promises, and what it raises is a
`PluginError` that names object, method and line. Constructors of metagen's parts look at what they are given.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, cast, get_args, get_origin

from metagen import threads
from metagen.errors import BudgetExhausted, InputError, MetagenError, PluginError, ScopeError
from metagen.values import fits, hints, is_protocol, members, remedy, show, spell

F = TypeVar("F", bound=Callable[..., Any])
#: What is wrong with a result; None if nothing is. `Promise`: of a method, with its arguments by name.
Broken = Callable[[Any], str | None]
Promise = Callable[[Any, Mapping[str, Any]], str | None]
HOME: Final = Path(__file__).parent
PACKAGE: Final = __name__.partition(".")[0]
#: Most combinations of classes that are remembered for a function.
KNOWN: Final = 1000


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
            elif hasattr(_promise_of(cls.__mro__[1:], name), "__promise__") and isinstance(
                given, FunctionType
            ):
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
            promised = _promise_of((one if contract is None else contract).__mro__, name)
            if promised is not None and (watched := _wrap(given, promised)) is not None:
                # A class that cannot be changed stays unwatched.
                with suppress(AttributeError, TypeError):
                    setattr(one, name, watched)


def _promise_of(bases: Iterable[type], name: str) -> Any:
    """The method, or the function behind the property, by which one of metagen's classes promises something."""
    if name.startswith("_"):
        return None
    for base in bases:
        if ours(base) and name in vars(base):
            found = vars(base)[name]
            return found.fget if isinstance(found, property) else found
    return None


def _wrap(given: Any, promised: Any) -> Any:
    """A method that is watched; None for what is none, or is watched already."""
    if not isinstance(promised, FunctionType):
        return None
    if isinstance(given, property):
        getter = _wrap(given.fget, promised)
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
                        name, given, f"returned {show(made)} at once; it is awaited: write async def"
                    )
                return _keep(name, given, await made, hint, _bind_promise(promised, self, *args, **named))

    else:
        yields = get_origin(hint) in (Iterator, Iterable)

        def watched(self: Any, /, *args: Any, **named: Any) -> Any:
            name = f"{type(self).__name__}.{given.__name__}"
            if yields:
                return _items(name, given, hint, self, *args, **named)
            with blamed(name, given):
                made = given(self, *args, **named)
                return _keep(name, given, made, hint, _bind_promise(promised, self, *args, **named))

    watched = wraps(given)(watched)
    watched.__promised__ = promised
    return watched


def _items(name: str, given: Any, hint: Any, /, *args: Any, **named: Any) -> Iterator[Any]:
    """What a method yields, one by one."""
    (item_hint,) = get_args(hint)
    with blamed(name, given):
        made = given(*args, **named)
        if not isinstance(made, Iterable):
            raise _fault(name, given, f"returned {show(made)}; expected {spell(hint)}")
        for item in made:
            if not fits(item, item_hint, strict=False):
                raise _fault(name, given, f"yields {show(item)}; expected {spell(item_hint)}")
            yield item


def _bind_promise(promised: Any, /, *args: Any, **named: Any) -> Broken | None:
    """The promise of a method, of these arguments."""
    promise: Promise | None = getattr(promised, "__promise__", None)
    if promise is None:
        return None
    given = inspect.signature(promised).bind(*args, **named)
    given.apply_defaults()
    return lambda result: promise(result, given.arguments)


def call(
    owner: object, function: Callable[..., Any], *args: Any, hint: Any = Any, broken: Broken | None = None
) -> Any:
    """Call a function that `owner` was given. Its result must be as the hint says, and not `broken`."""
    if ours(function):
        return function(*args)
    name = f"the function {_name(function)!r} of {type(owner).__name__}"
    with blamed(name, function):
        return _keep(name, function, function(*args), hint, broken)


async def call_or_await(
    owner: object, function: Callable[..., Any], *args: Any, hint: Any = Any, broken: Broken | None = None
) -> Any:
    """`call` for a function that may be async; a plain one runs in a thread."""
    if ours(function):
        made = function(*args)
        return await made if inspect.isawaitable(made) else made
    name = f"the function {_name(function)!r} of {type(owner).__name__}"
    with blamed(name, function):
        made = function(*args) if is_async(function) else await threads.run(owner, function, *args)
        return _keep(name, function, await made if inspect.isawaitable(made) else made, hint, broken)


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
    at = _line_of(function, error)
    if isinstance(error, ScopeError):
        raise PluginError(f"{name} ({at}): {error}") from error
    if isinstance(error, MetagenError):
        error.through = error.through or f"{name}, {at}"
        return
    what = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
    # Those of `threads` only lead from one thread to another.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != threads.__file__]
    last = Path(frames[-1].filename)
    mend = "; it is no part of metagen: mend it there"
    if len(frames) > 1 and last.is_relative_to(HOME):  # where it is the only one, it could not even be called
        where = f"{last.relative_to(HOME)}:{frames[-1].lineno}"
        mend = f" at metagen's {where}, which it calls: look at that call"
    raise PluginError(f"{name} ({at}) raised {what}{mend}") from error


def _keep(name: str, function: object, result: Any, hint: Any, broken: Broken | None) -> Any:
    """The result, if it is as the hint says and not `broken`; else PluginError."""
    if inspect.iscoroutine(result):
        result.close()
        never = f"returned a coroutine that was never awaited; expected {spell(hint)}: write await"
        raise _fault(name, function, never)
    if not fits(result, hint, strict=False):
        raise _fault(name, function, f"returned {show(result)}; expected {spell(hint)}")
    if broken is not None and (wrong := broken(result)) is not None:
        raise _fault(name, function, f"returned {show(result)}; {wrong}")
    return result


def _fault(name: str, function: object, what: str) -> PluginError:
    return PluginError(f"{name} ({place(function)}) {what}")


def traceback_of(error: BaseException) -> str:
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
    begins = _begins(function)
    return _name(function) if begins is None else f"{_file(begins[0])}:{begins[1]}"


def _line_of(function: object, error: BaseException) -> str:
    """The file and the last line of a function's own file on the way of an error."""
    begins = _begins(function)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if begins is not None and frame.filename == begins[0]]
    return f"{_file(begins[0])}:{lines[-1]}" if begins is not None and lines else place(function)


def _begins(function: Any) -> tuple[str, int] | None:
    """The file and the line at which a function or a class begins."""
    code = _code(function)
    if isinstance(function, type) and (code is None or code.co_filename.startswith("<")):
        # The constructor of a part stands in no file.
        with suppress(OSError, TypeError):
            return inspect.getfile(function), inspect.findsource(function)[1] + 1
    return None if code is None else (code.co_filename, code.co_firstlineno)


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
        setattr(function, "__init__", checked(init, first=first))  # noqa: B010 - mypy: not to be set
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
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **named: Any) -> Any:
            try:
                return await function(*args, **named)
            except Exception as error:
                _explain(function, args, named, error)
                raise

    else:

        def wrapper(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except Exception as error:
                _explain(function, args, named, error)
                raise

    return cast(F, wraps(function)(wrapper))


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
    known = _accepted_classes(function)
    classes = (*map(type, args), *named, *map(type, named.values()))
    if error is None and classes in known:
        return
    signature, name = _signature(function), _title_of(function, args)
    wanted, plain = hints(function), True
    try:
        given = signature.bind_partial(*args, **named).arguments
    except TypeError as odd:
        raise ArgumentError(
            f"{name}: {odd}{_near(named, signature)}; it takes {_takes(signature, wanted)}"
            f"{_by_name(signature, args)}"
        ) from error
    for what, value, hint in _each(signature, given, wanted):
        if not fits(value, hint, strict=True):
            raise ArgumentError(
                f"{name}: {what}={show(value)}; expected {spell(hint, value)}{remedy(value, hint)}"
            ) from error
        _watch_protocols(value, hint)
        plain = plain and any(_class_tells(value, one) for one in members(hint))
    lacking = [
        p.name
        for p in signature.parameters.values()
        if p.default is p.empty and p.name not in given and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if lacking:
        raise ArgumentError(
            f"{name}: {', '.join(lacking)} missing; it takes {_takes(signature, wanted)}"
        ) from error
    if plain:
        if len(known) >= KNOWN:
            known.clear()
        known.add(classes)


@cache
def _accepted_classes(function: Callable[..., Any]) -> set[tuple[object, ...]]:
    """Classes of arguments, and names of those by name, that a function was found to take whatever they hold."""
    return set()


def _class_tells(value: object, hint: Any) -> bool:
    """Whether a value is as annotated, and so is whatever else is of its class."""
    plain = isinstance(hint, type) and get_origin(hint) is None and hint is not float
    return (plain or hint is Any or hint is None) and fits(value, hint, strict=True)


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


def _by_name(signature: inspect.Signature, args: tuple[Any, ...]) -> str:
    """`; give answer by name` where more arguments are given by place than have one."""
    parameters = signature.parameters.values()
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return f"; give {', '.join(named)} by name" if named and not several and len(args) > len(placed) else ""


def _title_of(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
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
        f"{p.name} ({spell(wanted.get(p.name, Any))})" if p.default is p.empty else p.name for p in parameters
    )


def _watch_protocols(value: object, hint: Any) -> None:
    """A class that keeps to a protocol of metagen's without deriving from it is watched as if it did."""
    for one in (hint, *get_args(hint)):
        if is_protocol(one) and ours(one) and not ours(type(value)):
            watch(type(value), one)
