"""Functions that may differ have different names, and the same function keeps its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

from metagen.naming import name_of


def adder(n: int) -> Callable[[int], int]:
    return lambda x: x + n


class Known:
    fingerprint = "known"

    def __call__(self, x: int) -> int:
        return x


def test_what_is_defined_in_a_module_is_named_by_its_place() -> None:
    assert name_of(adder) == f"{__name__}.adder" and name_of(Known()) == "known"
    assert name_of(operator.add) != name_of(operator.sub)


def test_lambdas_are_told_apart_by_what_they_do_and_are_given() -> None:
    def inner(n: int) -> Callable[[int], int]:
        return lambda x: (lambda y: y + n)(x)

    several = [
        adder(1),
        adder(2),
        lambda x: x * 2,
        lambda x: x * 3,
        lambda x, k=1: x * k,
        lambda x, k=2: x * k,
    ]
    several += [
        lambda x: abs(x),
        lambda x: hash(x),
        inner(1),
        inner(2),
        partial(operator.add, 1),
        partial(operator.add, 2),
    ]
    assert len({name_of(f) for f in several}) == len(several)
    assert name_of(adder(1)) == name_of(adder(1))
