"""Single mutations of a module: small faults of the kind that people make in formulas.

A mutant is the source with one expression or statement changed; the rest stays as it is, byte by byte. Texts of errors
and of logs, assertions, annotations and decorators are left alone: a fault there is no wrong figure.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}
#: Calls whose first two arguments may change places, or whose result nobody works with.
SYMMETRIC = {
    "_add",
    "min",
    "max",
    "minimum",
    "maximum",
    "logaddexp",
    "gcd",
    "isclose",
    "zip",
    "print",
    "warn",
}
#: Tables of what others state, such as data sheets: nothing here could contradict a fault in them.
DATA = {"HARDWARE"}
#: What is called to tell people something.
LOGS = {"debug", "info", "warning", "warn", "expect", "error", "exception"}


@dataclass(frozen=True)
class Mutant:
    """One change of one place. `line`: number of the line; `context`: that line, by which lists name it.

    `lines`: all of the place, as far as Python tells when it runs them; `nth` tells apart those of one name.
    """

    path: str
    line: int
    context: str
    before: str
    after: str
    source: str
    lines: frozenset[int] = frozenset()
    nth: int = 1

    @property
    def name(self) -> str:
        one = f"{self.context} :: {self.before} → {self.after}"
        return one if self.nth == 1 else f"{one} #{self.nth}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before} → {self.after}"


def mutants(path: str, source: str) -> list[Mutant]:
    """All single mutations of a module, in the order of the source."""
    data, lines = source.encode(), source.splitlines()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    made, told = [], _lines(compile(source, path, "exec"))
    for node, new in _changes(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        before, after = ast.unparse(node), ast.unparse(new)
        # Within brackets: an operator outside may bind more tightly than the new one.
        written = f"({after})" if isinstance(new, ast.expr) else after
        mutated = (data[:begin] + written.encode() + data[end:]).decode()
        ast.parse(mutated)
        # Of what Python has folded away it tells nothing: all that runs the module may run it.
        own = told & {*range(node.lineno, node.end_lineno + 1)} or told
        context = lines[node.lineno - 1].strip()
        made.append(Mutant(path, node.lineno, context, before, after, mutated, frozenset(own)))
    made.sort(key=lambda m: (m.line, m.before, m.after))
    names = Counter[str]()
    for i, mutant in enumerate(made):
        names[mutant.name] += 1
        made[i] = replace(mutant, nth=names[mutant.name])
    return made


def _lines(code: CodeType) -> set[int]:
    """All lines of which a trace tells."""
    own = {line for *_, line in code.co_lines() if line is not None}
    return own.union(*(_lines(one) for one in code.co_consts if isinstance(one, CodeType)))


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Nodes with what they become."""
    if isinstance(tree, ast.stmt) and not isinstance(
        tree, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom
    ):
        yield from ((tree, new) for new in _statement(tree))
    if isinstance(tree, ast.expr):
        yield from ((tree, new) for new in _expression(tree))
    for child in _children(tree):
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Call) and _name(node.func) in LOGS:
        return
    if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__"):
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        return
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        return
    skipped: set[int] = set()
    for name in ("annotation", "returns", "decorator_list", "type_params"):
        value = getattr(node, name, None)
        skipped |= {id(v) for v in (value if isinstance(value, list) else [value])}
    if isinstance(node, ast.Assign) and any(_name(t) in ("__all__", "__slots__") for t in node.targets):
        return
    if isinstance(node, ast.AnnAssign) and _name(node.target) in DATA:
        return
    for child in ast.iter_child_nodes(node):
        if id(child) not in skipped:
            yield child


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _with(node: ast.expr, **fields: object) -> ast.expr:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _statement(node: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    elif isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and _name(call.func) not in LOGS:
            yield ast.Pass()


def _expression(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield _with(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BinOp):
        if type(node.op) in ARITHMETIC and not _text(node):
            yield _with(node, op=ARITHMETIC[type(node.op)]())
        if isinstance(node.op, ast.Sub | ast.Div) or (isinstance(node.op, ast.Add) and _lists(node)):
            yield _with(node, left=node.right, right=node.left)
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield node.operand
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield ast.Constant(not value)
        elif isinstance(value, int):
            yield ast.Constant(value + 1)
        elif isinstance(value, float):
            yield ast.Constant(value + 0.5 if abs(value) < 10 else value * 1.5)
    elif isinstance(node, ast.Call):
        name, plain = _name(node.func), [a for a in node.args if not isinstance(a, ast.Starred)]
        if name in FUNCTIONS:
            func = copy.copy(node.func)
            setattr(func, "id" if isinstance(func, ast.Name) else "attr", FUNCTIONS[name])
            yield _with(node, func=func)
        elif len(plain) == len(node.args) == 2 and name not in SYMMETRIC | {"isinstance", "getattr", "range"}:
            yield _with(node, args=plain[::-1])


def _text(node: ast.BinOp) -> bool:
    """Texts and lists, which only add, and types."""
    return any(
        isinstance(side, ast.List | ast.Tuple | ast.ListComp | ast.JoinedStr)
        or (isinstance(side, ast.Constant) and (side.value is None or isinstance(side.value, str)))
        for side in (node.left, node.right)
    )


def _lists(node: ast.BinOp) -> bool:
    return any(isinstance(side, ast.List | ast.Tuple | ast.ListComp) for side in (node.left, node.right))
