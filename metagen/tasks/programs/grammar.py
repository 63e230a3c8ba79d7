"""The programs that problems are made of: a list goes in, and each line does one thing to it.

    def f(x):
     x=[a for a in x if a>3]
     x=x[::-1]
     return sum(x)

An *operation* is the right side of a line: a Python expression over the list `x`, which never fails. Only the last may
give a number. Operations belong to *kinds*, such as "keep the elements greater than k"; kinds, then members, are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

ENTRY_POINT: Final = "f"

_CONDITIONS: Final = (*(f"a>{k}" for k in range(1, 8)), *(f"a<{k}" for k in range(2, 9)), "a%2==0", "a%2==1")


def _each(*changes: str) -> tuple[str, ...]:
    return tuple(f"[{change} for a in x]" for change in changes)


def _with(pattern: str, numbers: range) -> tuple[str, ...]:
    """The pattern with each of the numbers in place of k."""
    return tuple(pattern.replace("k", str(number)) for number in numbers)


#: List → list, by kind: the weight with which the kind is drawn, and its members.
LISTS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "sort": (2.0, ("sorted(x)", "sorted(x)[::-1]", "sorted(set(x))")),
    "reverse": (1.0, ("x[::-1]",)),
    "drop": (1.5, (*_with("x[k:]", range(1, 4)), *_with("x[:-k]", range(1, 4)))),
    "take": (1.5, (*_with("x[:k]", range(1, 4)), *_with("x[-k:]", range(1, 4)))),
    "stride": (0.7, ("x[::2]", "x[1::2]", "x[::3]")),
    "join": (1.5, ("x+x", "x+x[::-1]", "x[::-1]+x", "x[1:]+x[:1]", "x[-1:]+x[:-1]")),
    "add": (2.0, _each(*_with("a+k", range(1, 10)), *_with("a-k", range(1, 10)))),
    "from": (0.7, _each("-a", *_with("k-a", range(1, 10)))),
    "times": (1.5, _each(*_with("a*k", range(2, 6)), "a*a", "a*2+1", "a*2-1", "a*3+1")),
    "divide": (1.0, _each("a//2", "a//3", *_with("a%k", range(2, 6)))),
    "size": (1.0, _each("abs(a)", *_with("min(a,k)", range(2, 8)), *_with("max(a,k)", range(2, 8)))),
    "keep": (2.5, tuple(f"[a for a in x if {c}]" for c in _CONDITIONS)),
    "choose": (1.5, _each(*_with("0 if a>k else a", range(2, 9)), *_with("0 if a<k else a", range(2, 9)),
                          *_with("9 if a>k else a", range(2, 8)), *_with("-a if a>k else a", range(2, 7)),
                          *_with("a*2 if a<k else a", range(3, 8)), *_with("a+k if a%2==1 else a", range(1, 5)),
                          "-a if a%2==0 else a", "a*2 if a%2==1 else a")),
    "place": (0.8, ("[a+i for i,a in enumerate(x)]", "[a-i for i,a in enumerate(x)]", "[a*i for i,a in enumerate(x)]",
                    "[a for i,a in enumerate(x) if a>i]")),
    "pairs": (1.0, ("[a+b for a,b in zip(x,x[1:])]", "[b-a for a,b in zip(x,x[1:])]",
                    "[max(a,b) for a,b in zip(x,x[1:])]", "[a+b for a,b in zip(x,x[::-1])]")),
    "running": (0.8, ("[sum(x[:i+1]) for i in range(len(x))]", "[max(x[:i+1]) for i in range(len(x))]")),
    "whole": (1.0, ("[a-min(x) for a in x]", "[max(x)-a for a in x]", "[a+len(x) for a in x]",
                    "[a for a in x if a!=max(x)]", "[a for a in x if a>x[0]]")),
    "counts": (0.7, ("[a for a in x if x.count(a)==1]", "[a for i,a in enumerate(x) if a not in x[:i]]")),
    "decide": (0.7, ("x[::-1] if sum(x)%2 else x", "x[1:] if sum(x)>15 else x", "x if x[:1]<x[-1:] else sorted(x)")),
}  # fmt: skip

#: List → number.
NUMBERS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "total": (2.0, ("sum(x)", "sum(x)%10", "sum(x)*2", "sum(a*a for a in x)", *_with("sum(x)+k", range(1, 6)))),
    "length": (1.0, ("len(x)", "len(set(x))", "len(x)*2", "len(x)+1")),
    "extreme": (2.0, ("max(x,default=0)", "min(x,default=0)", "max(x,default=0)-min(x,default=0)",
                      "max(x,default=0)+min(x,default=0)")),
    "how many": (1.5, tuple(f"sum({c} for a in x)" for c in _CONDITIONS)),
    "at": (1.0, ("x[0] if x else 0", "x[-1] if x else 0", "x[0]+x[-1] if x else 0")),
    "part": (1.0, ("sum(x[::2])", "sum(x[:2])", "sum(x[1:])", "sum(sorted(x)[-2:])", "sum(x[::2])-sum(x[1::2])")),
    "combined": (0.8, ("sum(x)-max(x,default=0)", "sum(x)*len(x)", "sum(a<b for a,b in zip(x,x[1:]))")),
}  # fmt: skip

#: Kinds that are easy to see in examples.
EASY: Final = frozenset({
    "sort", "reverse", "drop", "take", "join", "add", "times", "size", "keep", "total", "length", "extreme", "how many",
    "at",
})  # fmt: skip
#: Share of the programs that end with a number.
NUMBER_SHARE: Final = 0.3
KIND: Final = {operation: kind for kinds in (LISTS, NUMBERS) for kind, (_, members) in kinds.items()
               for operation in members}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in order; all but the last give a list."""

    operations: tuple[str, ...]

    def __str__(self) -> str:
        """The source."""
        *lines, last = self.operations
        return f"def {ENTRY_POINT}(x):\n" + "".join(f" x={line}\n" for line in lines) + f" return {last}\n"

    def __call__(self, x: list[int]) -> Any:
        """The result of the source. Raises KeyError for an operation that is not of this module."""
        *_, value = self.values(x)
        return value

    def values(self, x: list[int]) -> Iterator[Any]:
        """The value of each line, in order. Raises KeyError for an operation that is not of this module."""
        value: Any = x
        for operation in self.operations:
            value = _functions()[operation](value)
            yield value


@cache
def _functions() -> dict[str, Callable[[Any], Any]]:
    """Python's own functions of the operations: all are constants of this module, and no text of a model comes here."""
    return {operation: eval(f"lambda x: {operation}") for operation in ("x", *KIND)}


def draw(rng: random.Random, length: int, only_easy: bool = False) -> Program:
    """A random program of `length` operations, all of the `EASY` kinds if so asked."""
    operations = [_member(rng, LISTS, only_easy) for _ in range(length - 1)]
    last = NUMBERS if rng.random() < NUMBER_SHARE else LISTS
    return Program((*operations, _member(rng, last, only_easy)))


def _member(rng: random.Random, kinds: dict[str, tuple[float, tuple[str, ...]]], only_easy: bool) -> str:
    weights = [0.0 if only_easy and name not in EASY else weight for name, (weight, _) in kinds.items()]
    (name,) = rng.choices(list(kinds), weights)
    return rng.choice(kinds[name][1])


def easy(program: Program) -> bool:
    """Whether all its operations are of the easy kinds."""
    return {KIND[operation] for operation in program.operations} <= EASY


@cache
def single() -> tuple[Program, ...]:
    """All programs of one operation."""
    return tuple(Program((operation,)) for operation in KIND)


def without_one(program: Program) -> list[Program]:
    """The program less each of its lines; what only a number can follow is left."""
    found = [program.operations[:i] + program.operations[i + 1 :] for i in range(len(program.operations))]
    return [Program(operations or ("x",)) for operations in found]


def siblings(program: Program) -> list[Program]:
    """All programs with one operation replaced by another of its kind."""
    found = []
    for i, operation in enumerate(program.operations):
        kinds = NUMBERS if operation in _numbers() else LISTS
        for other in kinds[KIND[operation]][1]:
            if other != operation:
                found.append(Program((*program.operations[:i], other, *program.operations[i + 1 :])))
    return found


@cache
def _numbers() -> frozenset[str]:
    return frozenset(operation for _, members in NUMBERS.values() for operation in members)
