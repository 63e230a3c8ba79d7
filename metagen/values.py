"""What is expected of a value, by an annotation: whether it fits, and what to say of one that does not.

A type such as `Count` says once what is expected beyond its type: constructors, experiment files and the pages of
reference read it there.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from reprlib import Repr
from types import FunctionType, MethodType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: Samples of one call, candidates of one strategy, tokens of one sample: beyond that it is a slip.
MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Expects:
    """Says in words what a type expects; messages repeat it."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.custom_error_schema(
            handler(source), custom_error_type="expected", custom_error_message=f"expected {self.what}"
        )


@dataclass(frozen=True, slots=True)
class AtMost:
    """The largest value that anybody can mean: what is larger has a message of its own."""

    value: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        def check(given: Any) -> Any:
            if given > self.value:
                raise ValueError(self.what)
            return given

        return core_schema.no_info_after_validator_function(check, handler(source))

    @property
    def what(self) -> str:
        return f"expected at most {self.value:,}"


@dataclass(frozen=True, slots=True)
class EachOnce:
    """Of a list: it has at least one value, and none twice."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))

    @staticmethod
    def check(values: Any) -> Any:
        """The values. Raises ValueError for none, and for one that stands twice."""
        if not values:
            raise ValueError("expected at least one")
        if twice := [one for i, one in enumerate(values) if one in values[:i]]:
            raise ValueError(f"{twice[0]} is given more than once; name each once")
        return values


Text = Annotated[str, Expects("a text")]
Filled = Annotated[str, MinLen(1), Expects("a text that is not empty")]
Switch = Annotated[bool, Expects("true or false")]
Integer = Annotated[int, Expects("an integer")]
Number = Annotated[float, Expects("a number")]
Count = Annotated[int, Ge(1), Expects("an integer ≥ 1"), AtMost(MOST)]
Amount = Annotated[int, Ge(0), Expects("an integer ≥ 0"), AtMost(MOST)]
#: What may be larger than any number of samples, steps or tokens of a text: bytes, contexts, totals.
Size = Annotated[int, Ge(1), Expects("an integer ≥ 1")]
Total = Annotated[int, Ge(0), Expects("an integer ≥ 0")]
Quantity = Annotated[float, Ge(0), Lt(float("inf")), Expects("a number ≥ 0")]
Positive = Annotated[float, Gt(0), Lt(float("inf")), Expects("a number > 0")]
#: Of scores, probabilities and parts of a whole.
Share = Annotated[float, Ge(0), Le(1), Expects("a number in [0, 1]")]
#: A part of a whole that is not nothing.
Fraction = Annotated[float, Gt(0), Le(1), Expects("a number in (0, 1]")]
#: More likely than not, and not certain.
Certainty = Annotated[float, Gt(0.5), Lt(1), Expects("a probability in (0.5, 1)")]

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
#: Annotations of several things in order.
SEVERAL: Final = (list, tuple, Sequence, Iterable, Collection)
#: Annotations in words; other classes are named.
WORDS: Final = {
    Any: "anything",
    None: "None",
    NoneType: "None",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    Callable: "a function",
    Mapping: "a dictionary",
    dict: "a dictionary",
}


def read(text: object, module: str) -> Any:
    """An annotation as its module means it; Any for what only a type checker can read there."""
    if not isinstance(text, str):
        return text
    try:
        return eval(text, vars(sys.modules[module]))  # of source that is imported already
    except (NameError, AttributeError):
        return Any


def annotations_of(thing: Any) -> dict[str, Any]:
    """The annotations of a function, or a class's own, as they are written: objects, or texts that are yet to be read.

    Python 3.14 makes objects of them when they are asked for; what cannot be made one, stays a text.
    """
    if sys.version_info < (3, 14):
        return inspect.get_annotations(thing)
    from annotationlib import Format, ForwardRef, get_annotations  # type: ignore[import-not-found,unused-ignore]

    found = get_annotations(thing, format=Format.FORWARDREF)
    return {name: one.__forward_arg__ if isinstance(one, ForwardRef) else one for name, one in found.items()}


def unaliased(hint: Any) -> Any:
    """What an annotation stands for, where it is an alias by a `type` statement, as numpy's are."""
    while hasattr(alias := get_origin(hint) or hint, "__value__") and hasattr(alias, "__type_params__"):
        value, given = alias.__value__, get_args(hint)
        hint = value[given] if given else value
    return hint


@cache
def hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function, by the names of its parameters.

    One by one: `typing.get_type_hints` gives up all where one cannot be read.
    """
    inner = inspect.unwrap(function)
    return {name: read(text, inner.__module__) for name, text in annotations_of(inner).items()}


def members(hint: Any) -> tuple[Any, ...]:
    """The annotations of a union; else the one."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def fits(value: object, hint: Any, *, strict: bool) -> bool:
    """Whether a value is as an annotation says.

    strict: of an argument, where True is no number, and nan none either.
    """
    if type(value) is hint and hint is not float:
        return True
    hint = unaliased(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar | str):
        return True
    if origin is Literal:
        same = (one for one in inner if isinstance(value, type(one)) and value == one)
        return any(isinstance(value, bool) == isinstance(one, bool) for one in same)
    if hint is None or hint is NoneType:
        return value is None
    if origin is Annotated:
        return fits(value, inner[0], strict=strict) and within(value, inner[1:])
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
    if is_protocol(kind):
        # What else it has than methods may have been added later.
        methods = (
            name for name, one in vars(kind).items() if isinstance(one, FunctionType) and name[0] != "_"
        )
        return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
    if origin not in SEVERAL:
        return isinstance(value, kind)
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


def is_protocol(hint: Any) -> bool:
    """Whether it is a protocol, from which nobody need derive."""
    return getattr(hint, "_is_protocol", False)


def spell(hint: Any, value: object = None) -> str:
    """An annotation in words. value: what was given in its place."""
    hint = unaliased(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if words := WORDS.get(origin or hint):
        return words
    if origin is Annotated:
        return describe(inner[1:], value) or spell(inner[0], value)
    if origin in (Union, UnionType):
        # A number is an integer as well.
        each = [spell(one, value) for one in inner if not (one is int and float in inner)]
        return " or ".join(dict.fromkeys(each))
    if origin is type:
        base = getattr(inner[0], "__bound__", None) or inner[0]
        return f"a class that derives from {getattr(base, '__name__', base)}"
    if origin is tuple and inner and Ellipsis not in inner:
        return f"({', '.join(map(spell, inner))})"
    if origin in SEVERAL:
        return f"a list, each {spell(inner[0])}"
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else repr(*inner)
    name = getattr(origin or hint, "__name__", str(hint))
    return "an array" if name == "ndarray" else f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def show(value: object) -> str:
    """A value, cut short."""
    if isinstance(value, type | FunctionType):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    short = Repr()
    short.maxstring = short.maxother = 60
    return short.repr(value)


def remedy(value: object, hint: Any) -> str:
    """`; give …` where something else is to be given, and one knows what."""
    if isinstance(value, str) and (near := get_close_matches(value, _words(hint), n=1)):
        return f"; did you mean {near[0]!r}?"
    for one in (hint, *get_args(hint)):
        if not isinstance(one, type):
            continue
        if isinstance(value, type) and (one in value.__mro__ or is_protocol(one)):
            return f"; it is the class: make one, {value.__name__}(…)"
        example, function = EXAMPLES.get(one.__name__, ("", ""))
        if one.__name__ == "Generator" and callable(getattr(value, "generator", None)):
            return "; it is an engine: give engine.generator()"
        if isinstance(value, FunctionType | MethodType) and function:
            return f"; give {function}"
        if example:
            return f"; give {example}"
    return ""


def _words(hint: Any) -> list[str]:
    """The texts that an annotation allows."""
    if get_origin(hint) is Literal:
        return [one for one in get_args(hint) if isinstance(one, str)]
    return [word for one in get_args(hint) if not isinstance(one, str) for word in _words(one)]


def within(value: Any, notes: Sequence[Any]) -> bool:
    """Whether a value of the right type keeps to what is noted beside the type."""
    for note in notes:
        match note:
            case Ge(ge=bound) if not value >= bound:
                return False
            case Gt(gt=bound) if not value > bound:
                return False
            case Le(le=bound) | AtMost(value=bound) if not value <= bound:
                return False
            case Lt(lt=bound) if not value < bound:
                return False
            case MinLen(min_length=least) if len(value) < least:
                return False
    return True


def describe(notes: Sequence[Any], value: Any = None) -> str | None:
    """The expectation noted beside a type, in words; for a value beyond its bound, only the bound."""
    for note in notes:
        if isinstance(note, AtMost) and isinstance(value, int) and value > note.value:
            return note.what.removeprefix("expected ")
    what = next((note.what for note in notes if isinstance(note, Expects)), None)
    endless = isinstance(value, float) and math.isinf(value)
    return what.replace("a number", "a finite number") if what and endless else what
