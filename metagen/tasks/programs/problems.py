"""Problems: a hidden program, shown by what it does to a few lists.

The prompt holds the public examples, one a line (`>` before a list, `=` before a number), and the answer is a function
that does the same to other lists:

     5 1 7 2 > 7 5
     3 9 > 9

    def f(x):
     x=[a for a in x if a>3] # 5 7 > 7 5 ; 9 > 9
     return sorted(x)[::-1]

A solution may show its work in comments (`trace`). `DIFFICULTY` says what a level is made of. Everything follows
from a seed.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from metagen.tasks.programs import grammar
from metagen.tasks.programs.cases import Case, prompt
from metagen.tasks.programs.grammar import Program
from metagen.tasks.programs.trace import add_trace
from metagen.tasks.split import Split

DELIMITER: Final = "\n"
LEVELS: Final = (1, 2, 3, 4)
#: Of each level: how many operations, and whether all are of the easy kinds; otherwise one at least is not.
DIFFICULTY: Final = {1: (1, True), 2: (1, False), 3: (2, True), 4: (2, False)}
PUBLIC, HIDDEN, UNLABELLED = 5, 10, 8
_LARGEST: Final = 99
_LONGEST: Final = 10
#: Draws of examples for one program, and draws without a new problem after which a level counts as exhausted.
_TRIES, _IN_VAIN = 6, 3_000


@dataclass(frozen=True, slots=True)
class Problem:
    """public: cases that the prompt shows; hidden: cases that decide; unlabelled: inputs for comparing answers."""

    program: Program
    public: tuple[Case, ...]
    hidden: tuple[Case, ...]
    unlabelled: tuple[tuple[int, ...], ...]
    level: int

    @property
    def prompt(self) -> str:
        """The text a generator continues with a program."""
        return prompt(self.public)

    @property
    def source(self) -> str:
        """A right answer."""
        return str(self.program)

    @property
    def solution(self) -> str:
        """A right answer that shows its work, as generators learn to write it."""
        return add_trace(self.program, self.public)


# ---------------------------------------------------------------------------------------------------- the three spaces


@cache
def _probes() -> tuple[list[int], ...]:
    """Lists on which functions are told apart: every integer from −12 to 25 occurs, and the lengths 0 to 9."""
    rng = random.Random("probes")
    lists = [_list(rng, length, -9, 12) for length in (0, 1, 2, 3, 5, 6, 7, 9)]
    return (*lists, list(range(10)), list(range(25, 9, -1)), list(range(-12, 0)))


def behaviour(program: Program) -> bytes:
    """Names the function that a program computes: equal for programs that agree on the probes, however written."""
    shown = repr([program(x) for x in _probes()])
    return hashlib.blake2b(shown.encode(), digest_size=16).digest()


def split_of(program: Program, public: tuple[Case, ...]) -> Split:
    """The one split that a problem belongs to, decided by a hash of what its function does.

    What one operation can do is too little to be divided. There the hash is that of the examples: such functions are in
    all splits, and no problem is in two.
    """
    name = behaviour(program)
    if name in _single():
        name = hashlib.blake2b(prompt(public).encode(), digest_size=16).digest()
    if name[0] >= 96:
        return Split.TRAIN
    return Split.TEST if name[0] < 48 else Split.VALIDATION


@cache
def _single() -> frozenset[bytes]:
    return frozenset(map(behaviour, grammar.single()))


# ------------------------------------------------------------------------------------------------------------ drawing


def problems(split: Split, level: int, count: int, seed: int = 0) -> list[Problem]:
    """`count` problems of a level from one split, no function twice; a longer list begins with the shorter one.

    Raises ValueError for an unknown level, a negative count, or more problems than a level has.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
    if count < 0:
        raise ValueError(f"count must not be negative, not {count!r}")
    found: dict[bytes, Problem] = {}
    rng = random.Random(f"programs/{seed}/{split}/{level}")
    in_vain = 0
    while len(found) < count:
        length, easy = DIFFICULTY[level]
        program = grammar.draw(rng, length, easy)
        in_vain += 1
        if in_vain == _IN_VAIN:
            raise ValueError(
                f"level {level} has hardly more than {len(found):,} different {split} problems, "
                f"and {count:,} were asked for"
            )
        if grammar.easy(program) is not easy or behaviour(program) in found:
            continue
        problem = _single_out(program, rng, split, level)
        if problem is not None:
            found[behaviour(program)] = problem
            in_vain = 0
    return list(found.values())


def draw(rng: random.Random, length: int, easy: bool = False, split: Split = Split.TRAIN) -> Problem:
    """One random problem of `split`, of a program of `length` operations (`easy` ones), to train on.

    It has public examples only, and nobody has asked whether similar programs fit them as well.
    """
    while True:
        program = grammar.draw(rng, length, easy)
        problem = _examples(program, rng, split, 0, hidden=0, unlabelled=0)
        if problem is not None:
            return problem


def _single_out(program: Program, rng: random.Random, split: Split, level: int) -> Problem | None:
    """A problem whose public examples rule out what the hidden tests would: None if none was found.

    Asked of all programs of one operation, and of those that differ from this one in a member of a kind or
    lack one of its lines. None also if one with fewer operations does the same.
    """
    rivals = [*grammar.siblings(program), *grammar.without_one(program), *grammar.single()]
    for _ in range(_TRIES):
        problem = _examples(program, rng, split, level)
        if problem is None:
            continue
        fitting = [r for r in rivals if agrees(r, problem.public)]
        if any(not agrees(r, problem.hidden) for r in fitting):
            continue
        simpler = [r for r in fitting if len(r.operations) < len(program.operations)]
        return None if simpler else problem
    return None


def agrees(program: Program, cases: tuple[Case, ...]) -> bool:
    """Whether a program does what the cases ask."""
    return all(program(list(c.x)) == c.plain[1] for c in cases)


def _examples(
    program: Program,
    rng: random.Random,
    split: Split,
    level: int,
    hidden: int = HIDDEN,
    unlabelled: int = UNLABELLED,
) -> Problem | None:
    """The program with examples, if they show enough of it and the problem is of the split."""
    low = -9 if rng.random() < 0.3 else 0
    lengths = [rng.choice((2, 3, 3, 4, 4, 5)) for _ in range(PUBLIC)]
    if hidden:
        lengths += [0, 1, *(rng.randint(2, 7) for _ in range(hidden + unlabelled - 2))]
    seen: dict[tuple[int, ...], Any] = {}
    for length in lengths:
        x = _list(rng, length, low, 9)
        values = list(program.values(x))
        if tuple(x) in seen or not all(map(_small, values)):
            return None
        seen[tuple(x)] = tuple(values[-1]) if isinstance(values[-1], list) else values[-1]
    cases = [Case(x, value) for x, value in seen.items()]
    public, rest = tuple(cases[:PUBLIC]), cases[PUBLIC:]
    if split_of(program, public) is not split or not _telling(public):
        return None
    if any(agrees(p, public) for p in grammar.without_one(program)):
        return None
    return Problem(program, public, tuple(rest[:hidden]), tuple(c.x for c in rest[hidden:]), level)


def _list(rng: random.Random, length: int, low: int, high: int) -> list[int]:
    return [rng.randint(low, high) for _ in range(length)]


def _small(value: Any) -> bool:
    """Short enough to be read and written by a small model."""
    items = value if isinstance(value, list) else [value]
    return len(items) <= _LONGEST and all(abs(item) <= _LARGEST for item in items)


def _telling(public: tuple[Case, ...]) -> bool:
    """Three different outcomes at least, and most of them something."""
    return len({c.expected for c in public}) >= 3 and sum(c.expected not in ((), 0) for c in public) >= 3
