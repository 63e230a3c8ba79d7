"""What arithmetic must offer so that trees can be evaluated in it, and the evaluation itself."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final, Protocol

from metagen.verifiers.math.tree import Node


class TooLarge(ArithmeticError):
    """A value, or the work for it, is beyond the limits."""


class Undefined(ArithmeticError):
    """There is no value: a division by zero, the logarithm of zero, a function of the wrong arguments."""


class Beyond(ArithmeticError):
    """This arithmetic cannot do it; a wider one may."""


#: Numbers of a field: exact ones, decimals, or mpmath's. What they are is the field's own business.
Number = Any


class Field(Protocol):
    """Numbers of one kind. Operations raise TooLarge, Undefined or Beyond."""

    def rational(self, value: Fraction) -> Number: ...
    def constant(self, name: str) -> Number: ...
    def add(self, left: Number, right: Number) -> Number: ...
    def multiply(self, left: Number, right: Number) -> Number: ...
    def divide(self, left: Number, right: Number) -> Number: ...
    def power(self, base: Number, exponent: Number) -> Number: ...
    def root(self, degree: Number, radicand: Number) -> Number: ...
    def call(self, name: str, arguments: list[Number]) -> Number: ...
    def digits(self, value: Number) -> str:
        """Its first digits, the same in all fields: what an unknown function's value hangs on."""
        ...


MINUS_ONE: Final = Fraction(-1)


def evaluate(node: Node, field: Field, values: Mapping[str, Fraction]) -> Number:
    """The value of a tree, with `values` for its variables."""
    match node.op:
        case "number":
            return field.rational(_fraction(node))
        case "symbol":
            return field.rational(values[str(node.value)])
        case "constant":
            return field.constant(str(node.value))
    inner = [evaluate(a, field, values) for a in node.args]
    match node.op:
        case "add":
            return _fold(field.add, inner)
        case "mul":
            return _fold(field.multiply, inner)
        case "neg":
            return field.multiply(field.rational(MINUS_ONE), inner[0])
        case "div":
            return field.divide(*inner)
        case "pow":
            return field.power(*inner)
        case "root":
            return field.root(*inner)
        case "ratio" if len(inner) == 2:
            return field.divide(*inner)
        case "call":
            name = str(node.value)
            if name.startswith("given "):
                # An unknown function: some number, the same wherever its arguments are the same.
                # With too many digits for a fraction of small numbers, so that it is like no number that is written.
                return field.rational(Fraction(_draw(name, *map(field.digits, inner)), 2**256))
            return field.call(name, inner)
    raise Beyond(node.op)


def point(name: str, number: int) -> Fraction:
    """Value number 0 … 3 of a variable: all positive, all negative, then of mixed signs.

    Two of the four are just above 1, so that high powers neither vanish nor grow out of bounds; two are below.
    """
    low, width = (
        (Fraction(105, 100), Fraction(10, 100))
        if number in (0, 1)
        else (Fraction(40, 100), Fraction(55, 100))
    )
    magnitude = low + width * Fraction(_draw(name, str(number)) % 10**5, 10**5)
    negative = number == 1 or (number > 1 and _draw("sign", name, str(number)) % 2)
    return -magnitude if negative else magnitude


def _draw(*parts: str) -> int:
    """A number of 256 bits that `parts` name."""
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=32).digest())


def _fold(operation: Any, numbers: list[Number]) -> Number:
    total = numbers[0]
    for value in numbers[1:]:
        total = operation(total, value)
    return total


def _fraction(node: Node) -> Fraction:
    assert isinstance(node.value, Fraction)
    return node.value
