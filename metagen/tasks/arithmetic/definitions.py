"""Quantities defined one from another: problems, and the values of their names."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

from metagen.verifiers.numbers import parse

NAMES: Final = "abcdefgh"
OPERATIONS: Final = "+-*/"


@dataclass(frozen=True, slots=True)
class Definition:
    """`name = left op right`; an operand is a name defined elsewhere or a number as written (`3/2`, `-4`, `50%`)."""

    name: str
    left: str
    op: str
    right: str

    def __str__(self) -> str:
        return f"{self.name}={operand(self.left)}{self.op}{operand(self.right)}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Definitions in the order shown (any order), and the name whose value is asked for."""

    definitions: tuple[Definition, ...]
    target: str
    level: int = 0

    def __str__(self) -> str:
        return ";".join(map(str, self.definitions)) + f";{self.target}?"


def canonical(problem: Problem) -> str:
    """The target written out in full: the same for any naming and any order of the definitions."""
    by_name = {d.name: d for d in problem.definitions}

    def expand(operand: str) -> str:
        d = by_name.get(operand)
        return operand if d is None else f"({expand(d.left)}{d.op}{expand(d.right)})"

    return expand(problem.target)


def in_order(problem: Problem) -> list[Definition]:
    """The definitions in an order of computation: the first shown whose operands are known comes next.

    Raises ValueError for definitions that go in a circle, or use a name that is not defined.
    """
    names = {d.name for d in problem.definitions}
    waiting, done, order = list(problem.definitions), set[str](), list[Definition]()
    while waiting:
        ready = [d for d in waiting if all(o in done or o not in names for o in (d.left, d.right))]
        if not ready:
            raise ValueError(f"definitions go in a circle or lack one another: {problem}")
        order.append(ready[0])
        done.add(ready[0].name)
        waiting.remove(ready[0])
    return order


def values(problem: Problem) -> dict[str, Fraction]:
    """The true value of every name.

    Raises ValueError as `in_order` does, and for a division by zero.
    """
    known: dict[str, Fraction] = {}
    for d in in_order(problem):
        left, right = known.get(d.left), known.get(d.right)
        value = apply(
            d.op, literal(d.left) if left is None else left, literal(d.right) if right is None else right
        )
        if value is None:
            raise ValueError(f"division by zero in {d} of {problem}")
        known[d.name] = value
    return known


@cache
def literal(text: str) -> Fraction:
    """The value of a number as a problem writes it."""
    value = parse(text)
    assert value is not None, text
    return value


def apply(op: str, left: Fraction, right: Fraction) -> Fraction | None:
    """`left op right`; None for a division by zero."""
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right else None
    return None


def operand(text: str) -> str:
    """Fractions and negative numbers stand in parentheses inside an expression."""
    return f"({text})" if "/" in text or text.startswith("-") else text
