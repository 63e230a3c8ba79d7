"""Sets of real numbers, as intervals and as what satisfies an inequality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metagen.verifiers.math import reals
from metagen.verifiers.math.arithmetic import Beyond
from metagen.verifiers.math.reals import LINE, Piece, Reals, complement, meet, normal
from metagen.verifiers.math.scalars import SCALARS, Scalars
from metagen.verifiers.math.tree import Node, Unreadable, minus, symbols

#: The same comparison from the other side.
MIRROR: Final = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}
#: (left, sign, right, unknown) → the tree of a set; Unreadable if there is no closed form.
Solve = Callable[[Node, str, Node, str], Node]


def unsolved(left: Node, sign: str, right: Node, unknown: str) -> Node:
    """Leaves what is not linear to wider arithmetic."""
    raise Beyond("a comparison that is not linear")


class Regions:
    """Sets of real numbers from trees; Unreadable for what is no such set."""

    def __init__(self, scalars: Scalars, solve: Solve = unsolved) -> None:
        self.scalars, self._solve = scalars, solve

    def of(self, node: Node) -> Reals:
        """The set that a tree describes."""
        match node.op:
            case "interval" | "tuple" if len(node.args) == 2:
                closed = str(node.value or "()")
                low, high = (self._end(a) for a in node.args)
                if low.value > high.value:
                    raise Unreadable("an interval that ends before it begins")
                ends = closed[0] == "[" and low.key != "-oo", closed[1] == "]" and high.key != "oo"
                return normal((Piece(low, high, ends),))
            case "reals":
                return LINE
            case "empty":
                return ()
            case "set" | "list":
                return normal(tuple(reals.point(self._end(a)) for a in node.args))
            case "union":
                return normal(tuple(p for a in node.args for p in self.of(a)))
            case "meet":
                return meet(self.of(node.args[0]), self.of(node.args[1]))
            case "without":
                return meet(self.of(node.args[0]), complement(self.of(node.args[1])))
            case "relation":
                return self.inequality(node)
        raise Unreadable("no set of real numbers")

    def _end(self, node: Node) -> reals.End:
        if node.op not in SCALARS or symbols(node):
            raise Unreadable("no real number")
        return self.scalars.end(node)

    def inequality(self, node: Node) -> Reals:
        """The real numbers that satisfy a chain of comparisons in one unknown."""
        if node.op != "relation":
            raise Unreadable("no comparison")
        node, unknown = _unknown(node)
        result = LINE
        for left, sign, right in zip(node.args, str(node.value).split(), node.args[1:], strict=False):
            if sign not in MIRROR:
                raise Unreadable(sign)
            difference = minus(left, right)
            if not symbols(difference):
                raise Unreadable("a comparison of numbers")
            line = self.scalars.linear(difference, unknown)
            result = meet(
                result, self._half(*line, sign) if line else self.of(self._solve(left, sign, right, unknown))
            )
        return result

    def _half(self, slope: Node, at_zero: Node, sign: str) -> Reals:
        bound = self.scalars.end(Node("neg", (Node("div", (at_zero, slope)),)))
        if sign in "=≠":
            only = (reals.point(bound),)
            return only if sign == "=" else complement(only)
        sign = MIRROR[sign] if self.scalars.end(slope).value < 0 else sign
        if sign in "<≤":
            return (Piece(reals.MINUS_INFINITY, bound, (False, sign == "≤")),)
        return (Piece(bound, reals.PLUS_INFINITY, (sign == "≥", False)),)


def _unknown(node: Node) -> tuple[Node, str]:
    """The chain with one variable for its unknown, which may also be written f(x)."""
    calls = {a for a in node.args if a.op == "call" and str(a.value).startswith("given ")}
    if len(calls) == 1 and not any(symbols(a) for a in node.args if a not in calls):
        (call,) = calls
        args = tuple(Node("symbol", (), "f(x)") if a == call else a for a in node.args)
        return node._replace(args=args), "f(x)"
    variables = symbols(node)
    if len(variables) != 1 or any(a.op not in SCALARS for a in node.args):
        raise Unreadable("not one unknown")
    return node, next(iter(variables))
