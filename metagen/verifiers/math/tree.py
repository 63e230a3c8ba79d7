"""An answer as a tree of data: nothing in it can be called or evaluated by accident."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple


class Unreadable(ValueError):
    """The answer is not in the grammar, or breaks a limit of size or shape."""


class Node(NamedTuple):
    """One operation and its arguments.

    Values: `number` (value: a Fraction), `symbol` (value: its name), `constant` (`pi`, `e`, `i`, `oo`), `add`, `mul`,
    `div`, `neg`, `pow`, `root` (degree, radicand), `call` (value: the function), `choice` (± as its two readings).
    Collections: `tuple`, `set`, `list` (value: `,`, `and` or `or`), `matrix` of `row`s, `interval` (value: its two
    brackets), `union`, `meet`, `without`, `reals`, `empty`, `ratio`. Statements: `relation` (value: its signs, joined
    by blanks). Operations that bind a variable, which is the symbol `bound …` that their value names: `sum` and
    `product` (of what, from, to), `integral` (of what, and perhaps from, to), `limit` (of what, where).
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Fraction | str | None = None


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


ZERO: Final = Node("number", (), Fraction(0))
ONE: Final = Node("number", (), Fraction(1))
HUNDRED: Final = Node("number", (), Fraction(100))
PI: Final = Node("constant", (), "pi")
INFINITY: Final = Node("constant", (), "oo")


def number(value: int | Fraction) -> Node:
    """A rational number."""
    return Node("number", (), Fraction(value))


BINDERS: Final = names("sum product integral limit")


def minus(left: Node, right: Node) -> Node:
    """The difference."""
    return Node("add", (left, Node("neg", (right,))))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.args)


def symbols(node: Node) -> frozenset[str]:
    """Names of the free variables in it."""
    return frozenset(
        str(n.value) for n in walk(node) if n.op == "symbol" and not str(n.value).startswith("bound ")
    )


def substitute(node: Node, name: str, by: Node) -> Node:
    """The tree with a variable replaced; `i` and `e` may be variables of sums."""
    if node.op in ("symbol", "constant"):
        return by if node.value == name else node
    if not node.args:
        return node
    return node._replace(args=tuple(substitute(a, name, by) for a in node.args))


def choose(node: Node, side: int) -> Node:
    """The tree with each ± read as plus (side 0) or as minus (side 1), and each ∓ the other way round."""
    if node.op == "choice":
        return choose(node.args[side], side)
    return node._replace(args=tuple(choose(a, side) for a in node.args)) if node.args else node


def structure(node: Node) -> str:
    """The tree as text, sums and products in one order: equal for equal trees, whatever their values."""
    inner = [structure(a) for a in node.args]
    if node.op in ("add", "mul", "set", "union", "meet") or node.value in ("max", "min", "gcd", "lcm"):
        inner.sort()
    value = "" if node.value is None else str(node.value) if isinstance(node.value, str) else _hex(node.value)
    return f"{node.op}:{value}({','.join(inner)})"


def _hex(value: Fraction) -> str:
    # Hexadecimal: decimal text of long integers takes quadratic time, and Python limits it.
    return f"{value.numerator:x}/{value.denominator:x}"


def whole(node: Node) -> int | None:
    """The value of a written integer, with its sign."""
    if node.op == "neg":
        return None if (value := whole(node.args[0])) is None else -value
    exact = node.value if node.op == "number" and isinstance(node.value, Fraction) else Fraction(1, 2)
    return exact.numerator if exact.denominator == 1 else None
