"""Problems at random: eight levels of difficulty, three splits that share no problem."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metagen.tasks.arithmetic.definitions import (
    NAMES,
    OPERATIONS,
    Definition,
    Problem,
    apply,
    canonical,
    literal,
)
from metagen.tasks.split import Split

#: The levels that the embedded models were trained on.
LEVELS: Final = (1, 2, 3, 4, 5, 6)
#: Levels that no embedded model has seen: longer problems, and definitions in any order.
HARDER: Final = (7, 8)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The ingredients of a level."""

    definitions: tuple[int, ...]
    """Numbers of definitions, drawn evenly."""
    negatives: bool = False
    denominators: tuple[int, ...] = ()
    """Values may be fractions with these denominators; none: integers only."""
    decimals: bool = False
    """Literals may be decimals and percentages."""
    fractions: float = 0.2
    """Share of the literals that are fractions, where there are denominators."""
    branching: float = 0.0
    """The chance that a definition joins two earlier ones or starts a new branch: 0 gives a chain."""
    shuffled: bool = False
    """Names carry no order and definitions are shown in any."""


DIFFICULTY: Final[dict[int, Difficulty]] = {
    1: Difficulty((2,)),
    2: Difficulty((3,), negatives=True),
    3: Difficulty((4,), negatives=True, denominators=(2,), fractions=0.1, branching=0.2),
    4: Difficulty((4, 5), negatives=True, denominators=(2, 4), decimals=True, fractions=0.1, branching=0.3),
    5: Difficulty((5, 6), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.4),
    6: Difficulty((6, 7), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.5),
    7: Difficulty((8,), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.5),
    8: Difficulty(
        (4, 5), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.3, shuffled=True
    ),
}

#: Draws without a new problem after which a level counts as exhausted.
_IN_VAIN: Final = 2_000
LARGEST_INTEGER: Final = 99
_LARGEST_NUMERATOR: Final = 20
_FRACTIONS: Final = ("1/2", "3/2", "5/2", "7/2", "1/4", "3/4", "5/4", "1/5", "2/5", "3/5", "4/5", "6/5")
_DECIMALS: Final = (
    "0.5",
    "1.5",
    "2.5",
    "0.25",
    "0.75",
    "0.2",
    "0.4",
    "0.6",
    "1.2",
    "20%",
    "25%",
    "50%",
    "75%",
    "150%",
)


def split_of(problem: Problem) -> Split:
    """The one split that a problem belongs to, decided by a hash of its canonical form."""
    share = hashlib.blake2b(canonical(problem).encode(), digest_size=2).digest()[0]
    if share < 32:
        return Split.TEST
    return Split.VALIDATION if share < 64 else Split.TRAIN


def problems(split: Split, level: int, count: int, seed: int = 0) -> list[Problem]:
    """`count` different problems of a level from one split; a longer list begins with the shorter one.

    Raises ValueError for an unknown level, a negative count, or more problems than a level has.
    """
    if level not in DIFFICULTY:
        raise ValueError(f"level must be one of {tuple(DIFFICULTY)}, not {level!r}")
    if count < 0:
        raise ValueError(f"count must not be negative, not {count!r}")
    found: dict[str, Problem] = {}
    rng = random.Random(f"{seed}/{split}/{level}")
    in_vain = 0
    while len(found) < count:
        problem = draw(DIFFICULTY[level], rng, split, level)
        known = len(found)
        found.setdefault(canonical(problem), problem)
        in_vain = 0 if len(found) > known else in_vain + 1
        if in_vain == _IN_VAIN:
            raise ValueError(
                f"level {level} has hardly more than {len(found):,} different {split} problems, "
                f"and {count:,} were asked for"
            )
    return list(found.values())


def draw(difficulty: Difficulty, rng: random.Random, split: Split, level: int = 0) -> Problem:
    """One random problem of `split`, by rejection."""
    while True:
        problem = _attempt(difficulty, rng, level)
        if problem is not None and split_of(problem) is split:
            return problem


def _attempt(difficulty: Difficulty, rng: random.Random, level: int) -> Problem | None:
    """Definitions in order of computation, then renamed and shuffled if so asked; `None` at a dead end."""
    count = rng.choice(difficulty.definitions)
    values: dict[str, Fraction] = {}
    unused: list[str] = []
    definitions: list[Definition] = []
    for index in range(count):
        remaining = count - index
        found = None
        for _ in range(30):
            left, right = _operands(difficulty, rng, values, unused, remaining)
            op = rng.choice(OPERATIONS)
            value = apply(op, values.get(left) or literal(left), values.get(right) or literal(right))
            if value is not None and _is_small(value, difficulty) and not _trivial(left, op, right):
                found = Definition(NAMES[index], left, op, right), value
                break
        if found is None:
            return None
        definition, value = found
        definitions.append(definition)
        values[definition.name] = value
        unused = [name for name in unused if name not in (definition.left, definition.right)] + [
            definition.name
        ]
    if len(unused) > 1:
        return None
    if difficulty.shuffled:
        return _shuffle_names(definitions, rng, level)
    return Problem(tuple(definitions), definitions[-1].name, level)


def _operands(
    difficulty: Difficulty, rng: random.Random, values: dict[str, Fraction], unused: list[str], remaining: int
) -> tuple[str, str]:
    """Two operands such that all definitions can still meet in the last one."""
    if not values or (len(unused) < remaining - 1 and rng.random() < difficulty.branching / 2):
        return _draw_literal(difficulty, rng), _draw_literal(difficulty, rng)
    left = rng.choice(unused)
    others = [name for name in values if name != left]
    if len(unused) >= remaining and len(unused) > 1:
        right = rng.choice([name for name in unused if name != left])
    elif others and rng.random() < difficulty.branching:
        right = rng.choice(others)
    else:
        right = _draw_literal(difficulty, rng)
    return (left, right) if rng.random() < 0.75 else (right, left)


def _draw_literal(difficulty: Difficulty, rng: random.Random) -> str:
    kind = rng.random()
    if difficulty.denominators and kind < difficulty.fractions:
        written = _DECIMALS if difficulty.decimals and kind < difficulty.fractions / 2 else _FRACTIONS
        return rng.choice([text for text in written if literal(text).denominator in difficulty.denominators])
    if difficulty.negatives and kind > 0.92:
        return str(-rng.randint(2, 12))
    return str(rng.randint(2, 12) if rng.random() < 0.6 else rng.randint(2, 49))


def _is_small(value: Fraction, difficulty: Difficulty) -> bool:
    """Small enough that a small model can know its arithmetic: this is what makes checking learnable."""
    if value == 0 or (value < 0 and not difficulty.negatives):
        return False
    if value.denominator == 1:
        return abs(value.numerator) <= LARGEST_INTEGER
    return value.denominator in difficulty.denominators and abs(value.numerator) <= _LARGEST_NUMERATOR


def _trivial(left: str, op: str, right: str) -> bool:
    return left == right or (op in "*/" and right == "1")


def _shuffle_names(definitions: list[Definition], rng: random.Random, level: int) -> Problem:
    fresh = rng.sample(NAMES, len(definitions))
    rename = {d.name: name for d, name in zip(definitions, fresh, strict=True)}
    target = rename[definitions[-1].name]
    renamed = [
        Definition(rename[d.name], rename.get(d.left, d.left), d.op, rename.get(d.right, d.right))
        for d in definitions
    ]
    rng.shuffle(renamed)
    return Problem(tuple(renamed), target, level)
