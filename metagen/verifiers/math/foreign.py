"""LaTeX that our grammar lacks (sums, integrals, limits, products of matrices), by math-verify's parser and sympy.

For worker processes only. What sympy returns becomes a tree of ours, so that both ways lead to the same keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.math_normalization import normalize_latex
from math_verify.grader import should_treat_as_complex
from math_verify.parser import LatexExtractionConfig, get_last_eq

from metagen.verifiers.math import literals
from metagen.verifiers.math.tokens import clean
from metagen.verifiers.math.tree import INFINITY, Node, Unreadable, names, number

logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)

_CONVERSION: Final = ConversionConfig(lowercase_symbols=False)
_NORMALIZATION: Final = LatexExtractionConfig().normalization_config
_CONSTANTS: Final = {"Pi": "pi", "Exp1": "e", "ImaginaryUnit": "i"}
_OPERATIONS: Final = {"Add": "add", "Mul": "mul", "Pow": "pow", "MatAdd": "add", "MatMul": "mul"}
_SAME: Final = names("sin cos tan cot sec csc sinh cosh tanh coth")
_CALLS: Final = {
    "log": "ln", "exp": "exp", "Abs": "abs", "factorial": "factorial", "binomial": "binomial", "floor": "floor",
    "ceiling": "ceil", "Max": "max", "Min": "min", "re": "Re", "im": "Im", "arg": "arg", "sign": "sign",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "acot": "arccot", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh",
} | {name: name for name in sorted(_SAME)}  # fmt: skip
_COLLECTIONS: Final = {
    "FiniteSet": "set", "Tuple": "tuple", "Union": "union", "Intersection": "meet", "Complement": "without",
}  # fmt: skip
_SIGNS: Final = {
    "Equality": "=", "Unequality": "≠", "StrictLessThan": "<", "LessThan": "≤", "StrictGreaterThan": ">",
    "GreaterThan": "≥",
}  # fmt: skip
_UNSOLVED: Final = names("Sum Product Integral Limit Derivative Mod")


@contextmanager
def _faults() -> Iterator[None]:
    """Sympy and its parsers report faults by exceptions of any kind; all mean that there is no tree.

    Their texts are left alone: to print an expression may take longer than anything else.
    """
    try:
        yield
    except (MemoryError, Unreadable):
        raise
    except Exception as error:
        raise Unreadable(type(error).__name__) from error


def parse(answer: str, *, percent: bool) -> Node:
    """The tree of an answer by math-verify's parser; Unreadable if it cannot, or gives what has no tree."""
    text = clean(answer)
    if not percent:
        text = text.replace("%", "")
    text = normalize_latex(text, _NORMALIZATION)
    last = get_last_eq(text)
    try:
        return _parse(text)
    except Unreadable:
        if last == text:
            raise
        return _parse(last)


def _parse(text: str) -> Node:
    with _faults():
        return tree(_latex(text).doit())


def _latex(text: str) -> Any:
    return latex2sympy(
        text,
        is_real=not should_treat_as_complex(text),
        convert_degrees=False,
        normalization_config=None,
        conversion_config=_CONVERSION,
    )


def tree(given: Any) -> Node:
    """Our tree of a sympy object; Unreadable for what we have no node for."""
    name = type(given).__name__
    if isinstance(given, sympy.Rational):
        return number(Fraction(int(given.p), int(given.q)))
    if isinstance(given, sympy.Float):
        value = literals.decimal(f"{abs(given):f}") if "e" not in str(given) else Fraction(str(abs(given)))
        return number(-value if given < 0 else value)
    if isinstance(given, sympy.Symbol):
        return Node("symbol", (), given.name.replace("{", "").replace("}", ""))
    if isinstance(given, sympy.MatrixBase):
        rows = given.tolist()
        return Node("matrix", tuple(Node("row", tuple(map(tree, row))) for row in rows))
    if name in _CONSTANTS:
        return Node("constant", (), _CONSTANTS[name])
    if name in ("Infinity", "NegativeInfinity"):
        return INFINITY if name == "Infinity" else Node("neg", (INFINITY,))
    if name in ("Reals", "EmptySet"):
        return Node({"Reals": "reals", "EmptySet": "empty"}[name])
    if isinstance(given, sympy.Interval):
        brackets = ("(" if given.left_open else "[") + (")" if given.right_open else "]")
        ends = (tree(given.start), tree(given.end))
        return Node("tuple", ends) if brackets == "()" else Node("interval", ends, brackets)
    if not isinstance(given, sympy.Basic):
        raise Unreadable(f"sympy's {name}")
    inner = tuple(map(tree, getattr(given, "_unsorted_args", given.args)))
    if name == "UnevaluatedExpr":
        return inner[0]
    if name in _OPERATIONS:
        return Node(_OPERATIONS[name], inner)
    if name in _CALLS:
        return Node("call", inner, _CALLS[name])
    if name in _COLLECTIONS:
        return Node(_COLLECTIONS[name], inner)
    if name in _SIGNS:
        return Node("relation", inner, _SIGNS[name])
    if name in ("And", "Or"):
        return Node("list", inner, name.lower())
    if name in _UNSOLVED or isinstance(given, sympy.core.function.AppliedUndef):
        flat = tuple(a for i in inner for a in (i.args if i.op == "tuple" else (i,)))
        return Node("call", flat, f"given {name}")
    raise Unreadable(f"sympy's {name}")


def solutions(left: Node, sign: str, right: Node, unknown: str) -> Node:
    """The real solutions of a comparison in one unknown, by sympy; Unreadable if it finds none in closed form."""
    if sign == "=":
        raise Unreadable("an equation that is not linear")
    variable = sympy.Symbol(unknown, real=True)
    with _faults():
        relation = _RELATIONS[sign](_sympy(left, variable), _sympy(right, variable))
        if relation in (sympy.true, sympy.false):
            return Node("reals" if relation == sympy.true else "empty")
        return tree(relation.as_set())


_RELATIONS: Final[dict[str, Any]] = {
    "<": sympy.Lt,
    "≤": sympy.Le,
    ">": sympy.Gt,
    "≥": sympy.Ge,
    "≠": sympy.Ne,
    "=": sympy.Eq,
}


def _sympy(node: Node, variable: Any) -> Any:
    inner = [_sympy(a, variable) for a in node.args]
    match node.op:
        case "number":
            assert isinstance(node.value, Fraction)
            return sympy.Rational(node.value.numerator, node.value.denominator)
        case "symbol":
            return variable
        case "constant" if node.value in ("pi", "e"):
            return sympy.pi if node.value == "pi" else sympy.E
        case "add":
            return sympy.Add(*inner)
        case "mul":
            return sympy.Mul(*inner)
        case "neg":
            return -inner[0]
        case "div":
            return inner[0] / inner[1]
        case "pow" if abs(inner[1]) <= 64:
            return inner[0] ** inner[1]
        case "root":
            return sympy.root(inner[1], inner[0])
        case "call" if node.value in ("abs", "exp", "ln"):
            return {"abs": sympy.Abs, "exp": sympy.exp, "ln": sympy.log}[str(node.value)](*inner)
    raise Unreadable(node.op)
