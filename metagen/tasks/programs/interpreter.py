"""Runs the Python that this task is written in, by walking its syntax tree: nothing is ever given to `exec`.

The subset: one function of one argument; assignments, `return` and `if`; integers, lists and what is built of them by
arithmetic, comparisons, conditional expressions, indices, slices, comprehensions and a few builtins. Inside the subset,
values and errors are Python's own. Other code is `unsupported`, and a sandbox may be asked.
All work is bounded: there are no loops but comprehensions, whose turns are counted, and sizes are checked before use.
"""

from __future__ import annotations

import ast
import builtins
import operator
import warnings
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_SOURCE: Final = 2_000
"""Characters of a program."""
MAX_TURNS: Final = 2_000
"""Turns of all comprehensions of one call together."""
MAX_ITEMS: Final = 200
"""Values within a value, at all depths."""
MAX_INTEGER: Final = 1 << 128

#: Of an output: `returned`; `raised`; `limit`, it was stopped; `syntax`, it is no Python; `unsupported`.
Status = Literal["returned", "raised", "limit", "syntax", "unsupported"]


@dataclass(frozen=True, slots=True)
class Output:
    """The outcome of a call. value: returned; error: the name of the exception, or the fault in words."""

    status: Status
    value: Any = None
    error: str = ""

    def equals(self, expected: Any) -> bool:
        """Whether it returned a value that Python's `==` holds equal to `expected`."""
        return self.status == "returned" and bool(self.value == expected)


class Unsupported(Exception):
    """The program is outside of the subset."""


class _Limit(Exception):
    pass


Names = dict[str, Any]
Evaluate = Callable[[Names], Any]
#: The variable in which a call counts its turns; no program can name it.
_TURNS: Final = " turns"
_RAISED: Final = (
    TypeError,
    ValueError,
    IndexError,
    ZeroDivisionError,
    NameError,
    OverflowError,
    AttributeError,
)


class Function:
    """A program that is ready to be called. Raises SyntaxError, or Unsupported, for what can't be."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise Unsupported(f"longer than {MAX_SOURCE} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
            match tree.body:
                case [ast.FunctionDef(decorator_list=[]) as function]:
                    self.name, self._argument = function.name, _argument(function)
                    self._run = _Compiler({self._argument, *_bound_names(function)}).block(function.body)
                case _:
                    raise Unsupported("expected one function and nothing else")
        except (RecursionError, MemoryError):
            raise Unsupported("nested too deeply") from None
        except ValueError as error:  # a null byte, an integer of thousands of digits
            raise SyntaxError(str(error)) from None

    def __call__(self, argument: Any) -> Output:
        """The output for one argument, which is left as it is."""
        names = {self._argument: argument, _TURNS: 0}
        try:
            _, value = self._run(names) or (True, None)
            return Output("returned", _plain(value))
        except _Limit:
            return Output("limit", error="limit")
        except _RAISED as error:
            return Output("raised", error=type(error).__name__)
        except Unsupported as what:
            return Output("unsupported", error=str(what))
        except RecursionError:
            return Output("unsupported", error="nested too deeply")


def outputs(source: str, entry_point: str, inputs: abc.Sequence[abc.Sequence[Any]]) -> list[Output]:
    """One output for each list of arguments in `inputs`."""
    try:
        function = Function(source)
    except SyntaxError:
        return [Output("syntax", error="SyntaxError")] * len(inputs)
    except Unsupported as what:
        return [Output("unsupported", error=str(what))] * len(inputs)
    if function.name != entry_point:
        return [Output("raised", error="NameError")] * len(inputs)
    return [function(*args) if len(args) == 1 else Output("raised", error="TypeError") for args in inputs]


def _argument(function: ast.FunctionDef) -> str:
    match function.args:
        case ast.arguments(
            posonlyargs=[], args=[argument], vararg=None, kwonlyargs=[], kwarg=None, defaults=[]
        ):
            return argument.arg
    raise Unsupported("expected one argument")


def _bound_names(function: ast.FunctionDef) -> Iterator[str]:
    """The names that statements bind; those of comprehensions are their own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _plain(value: Any) -> Any:
    """Only what can be compared by looking at it leaves a call."""
    if isinstance(value, list | tuple | set):
        for item in value:
            _plain(item)
    elif value is not None and not isinstance(value, int):
        raise Unsupported(f"returns a {type(value).__name__}")
    return value


def _limit(value: Any) -> Any:
    if isinstance(value, int):
        if not -MAX_INTEGER < value < MAX_INTEGER:
            raise _Limit
    elif isinstance(value, list | tuple | set):
        # Values within values can be shared, so that few lines make a value too large to be written.
        waiting, count = [value], 0
        while waiting:
            within = waiting.pop()
            count += len(within)
            if count > MAX_ITEMS:
                raise _Limit
            waiting += [v for v in within if isinstance(v, list | tuple)]
    return value


def _times(left: Any, right: Any) -> Any:
    for many, count in ((left, right), (right, left)):
        if isinstance(many, list | tuple) and isinstance(count, int) and len(many) * count > MAX_ITEMS:
            raise _Limit
    return left * right


_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def _range(*bounds: Any) -> range:
    if any(isinstance(b, int) and abs(b) > MAX_ITEMS for b in bounds):
        raise _Limit
    return range(*bounds)


#: Name → the function, how many arguments it may have here, and which keywords.
_CALLS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...], frozenset[str]]]] = {
    "abs": (abs, (1,), frozenset()),
    "enumerate": (enumerate, (1,), frozenset()),
    "len": (len, (1,), frozenset()),
    "list": (list, (1,), frozenset()),
    "max": (max, (1, 2), frozenset({"default"})),
    "min": (min, (1, 2), frozenset({"default"})),
    "range": (_range, (1, 2, 3), frozenset()),
    "set": (set, (1,), frozenset()),
    "sorted": (sorted, (1,), frozenset({"reverse"})),
    "sum": (sum, (1,), frozenset()),
    "zip": (zip, (2,), frozenset()),
}
#: A generator expression is worked off before the call, so it may stand only where the call would do that at once.
_CONSUMES: Final = frozenset({"list", "max", "min", "set", "sorted", "sum"})
_METHODS: Final = frozenset({"count", "index"})


class _Compiler:
    """From syntax tree to closures. `assigned`: names that statements of the function bind somewhere."""

    def __init__(self, assigned: set[str]) -> None:
        #: And those of the comprehensions around.
        self._local = frozenset(assigned)

    # A block's value is (True, the returned value), or None if it came to its end.
    def block(self, body: list[ast.stmt]) -> Callable[[Names], tuple[bool, Any] | None]:
        parts = [self._statement(s) for s in body]

        def run(names: Names) -> tuple[bool, Any] | None:
            for part in parts:
                result = part(names)
                if result is not None:
                    return result
            return None

        return run

    def _statement(self, node: ast.stmt) -> Callable[[Names], tuple[bool, Any] | None]:
        match node:
            case ast.Return(value=value):
                returned = self.expression(value) if value else lambda names: None
                return lambda names: (True, returned(names))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                assigned = self.expression(value)
                return lambda names: names.__setitem__(name, assigned(names))
            case ast.If(test=test, body=body, orelse=orelse):
                condition, yes, no = self.expression(test), self.block(body), self.block(orelse)
                return lambda names: yes(names) if condition(names) else no(names)
        raise Unsupported(f"{type(node).__name__} at line {node.lineno}")

    def expression(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Constant(value=bool() | int() | None as value):
                if isinstance(value, int) and value >= MAX_INTEGER:
                    raise Unsupported(f"an integer of {value.bit_length()} bits")
                return lambda names: value
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                apply, a, b = _BINARY[type(op)], self.expression(left), self.expression(right)
                return lambda names: _limit(apply(a(names), b(names)))
            case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
                change, inner = _UNARY[type(sign)], self.expression(operand)
                return lambda names: change(inner(names))
            case ast.Compare():
                return self._comparison(node)
            case ast.BoolOp(op=both, values=values):
                return self._either([self.expression(v) for v in values], isinstance(both, ast.And))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                t, yes, no = self.expression(test), self.expression(body), self.expression(orelse)
                return lambda names: yes(names) if t(names) else no(names)
            case ast.Subscript(value=value, slice=at):
                whole, index = self.expression(value), self._index(at)
                return lambda names: whole(names)[index(names)]
            case ast.List(elts=items):
                parts = [self.expression(i) for i in items]
                return lambda names: _limit([part(names) for part in parts])
            case ast.Tuple(elts=items):
                parts = [self.expression(i) for i in items]
                return lambda names: _limit(tuple(part(names) for part in parts))
            case ast.ListComp(elt=each, generators=generators):
                return self._comprehension(each, generators)
            case ast.Call():
                return self._call(node)
        raise Unsupported(f"{type(node).__name__} at line {node.lineno}")

    def _name(self, name: str) -> Evaluate:
        known = name in self._local
        if not known and hasattr(builtins, name):
            raise Unsupported(f"the name {name}")

        def look_up(names: Names) -> Any:
            try:
                return names[name]
            except KeyError:
                raise (UnboundLocalError if known else NameError)(name) from None

        return look_up

    def _comparison(self, node: ast.Compare) -> Evaluate:
        first = self.expression(node.left)
        if not all(type(op) in _COMPARE for op in node.ops):
            raise Unsupported(f"a comparison at line {node.lineno}")
        rest = [
            (_COMPARE[type(op)], self.expression(e)) for op, e in zip(node.ops, node.comparators, strict=True)
        ]

        def compare(names: Names) -> Any:
            left, result = first(names), True
            for holds, other in rest:
                right = other(names)
                result = holds(left, right)
                if not result:
                    return result
                left = right
            return result

        return compare

    def _either(self, parts: list[Evaluate], both: bool) -> Evaluate:
        def decide(names: Names) -> Any:
            value = None
            for part in parts:
                value = part(names)
                if bool(value) is not both:
                    return value
            return value

        return decide

    def _index(self, node: ast.expr) -> Evaluate:
        if not isinstance(node, ast.Slice):
            return self.expression(node)
        bounds = [self.expression(b) if b else None for b in (node.lower, node.upper, node.step)]
        return lambda names: slice(*(b(names) if b else None for b in bounds))

    def _comprehension(self, each: ast.expr, generators: list[ast.comprehension]) -> Evaluate:
        outside, parts = self._local, []
        first = self.expression(generators[0].iter)
        for generator in generators:
            iterable = self.expression(generator.iter)
            variables, whole = _targets(generator.target)
            self._local |= set(variables)
            parts.append((iterable, variables, whole, [self.expression(c) for c in generator.ifs]))
        value = self.expression(each)
        self._local = outside
        own = {name for _, variables, _, _ in parts for name in variables}

        def turns(names: Names, depth: int, items: Any) -> Iterator[Any]:
            _, variables, whole, conditions = parts[depth]
            for item in items:
                names[_TURNS] += 1
                if names[_TURNS] > MAX_TURNS:
                    raise _Limit
                names.update(zip(variables, [item] if whole else _unpack(item, len(variables)), strict=True))
                if not all(condition(names) for condition in conditions):
                    continue
                if depth + 1 == len(parts):
                    yield value(names)
                else:
                    yield from turns(names, depth + 1, iter(parts[depth + 1][0](names)))

        def comprehend(names: Names) -> Any:
            items = iter(first(names))
            hidden = {name: names.pop(name) for name in own & names.keys()}
            result = list(turns(names, 0, items))
            for name in own & names.keys():
                del names[name]
            names.update(hidden)
            return _limit(result)

        return comprehend

    def _call(self, node: ast.Call) -> Evaluate:
        match node.func:
            case ast.Attribute(value=owner, attr=method) if method in _METHODS and len(node.args) == 1:
                if node.keywords:
                    raise Unsupported(f"keywords of {method}")
                whole, argument = self.expression(owner), self.expression(node.args[0])
                return lambda names: getattr(whole(names), method)(argument(names))
            case ast.Name(id=name) if name in _CALLS and name not in self._local:
                call, counts, keywords = _CALLS[name]
                given = {k.arg: self.expression(k.value) for k in node.keywords if k.arg in keywords}
                if len(node.args) not in counts or len(given) < len(node.keywords):
                    raise Unsupported(f"these arguments of {name}")
                arguments = [self._argument_of(name, a) for a in node.args]
                return lambda names: _limit(
                    call(*[a(names) for a in arguments], **{str(k): v(names) for k, v in given.items()})
                )
        raise Unsupported(f"a call at line {node.lineno}")

    def _argument_of(self, name: str, node: ast.expr) -> Evaluate:
        if isinstance(node, ast.GeneratorExp):
            if name not in _CONSUMES:
                raise Unsupported(f"a generator expression in {name}")
            return self._comprehension(node.elt, node.generators)
        return self.expression(node)


def _targets(node: ast.expr) -> tuple[list[str], bool]:
    """Names that a turn binds, and whether it is a single one, which takes the item as a whole."""
    match node:
        case ast.Name(id=name):
            return [name], True
        case ast.Tuple(elts=items) if all(isinstance(i, ast.Name) for i in items):
            return [i.id for i in items if isinstance(i, ast.Name)], False
    raise Unsupported(f"a target at line {node.lineno}")


def _unpack(item: Any, count: int) -> Any:
    values = tuple(item)
    if len(values) != count:
        raise ValueError("wrong number of values to unpack")
    return values
