r"""The embedded task: quantities defined one from another, then a question.

A problem is a handful of definitions and the name that is asked for. The prompt's form says how to answer it:

    Q:a=12+7;b=a*3;b?\nS:\n        step by step:   a=12+7=19\nb=19*3=57\nA:57\n
    Q:a=12+7;b=a*3;b?\nA:          directly:       57\n

A *step* is a line ended by `DELIMITER`. Numbers occur in equivalent forms (`3/2`, `6/4`, `1.5`, `150%`), so that
answers must be compared by value. All functions are pure; the standard library suffices.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Final

from metagen.verifiers.numbers import parse

DELIMITER: Final = "\n"
NAMES: Final = "abcdefgh"
LEVELS: Final = (1, 2, 3, 4, 5, 6)


class Form(StrEnum):
    """How a prompt asks to be answered."""

    STEPS = "steps"
    DIRECT = "direct"


class Split(StrEnum):
    """The three disjoint spaces of problems; `split_of` says where a problem belongs."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Definition:
    """`name = left op right`; an operand is a name defined elsewhere or a number as written (`3/2`, `-4`, `50%`)."""

    name: str
    left: str
    op: str
    right: str

    def __str__(self) -> str:
        return f"{self.name}={_operand(self.left)}{self.op}{_operand(self.right)}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Definitions in the order shown (any order), and the name whose value is asked for."""

    definitions: tuple[Definition, ...]
    target: str
    level: int = 0

    def __str__(self) -> str:
        return ";".join(map(str, self.definitions)) + f";{self.target}?"


# ------------------------------------------------------------------------------------------------ the problem space


@dataclass(frozen=True, slots=True)
class Difficulty:
    """What a level is made of."""

    definitions: tuple[int, ...]
    """How many definitions, drawn evenly."""
    negatives: bool = False
    denominators: tuple[int, ...] = ()
    """Values may be fractions with these denominators; none: integers only."""
    decimals: bool = False
    """Literals may be decimals and percentages."""
    fractions: float = 0.2
    """Share of the literals that are fractions, where there are denominators."""
    branching: float = 0.0
    """How often a definition joins two earlier ones or starts a new branch: 0 gives a chain."""
    shuffled: bool = False
    """Names carry no order and definitions are shown in any."""


DIFFICULTY: Final[dict[int, Difficulty]] = {
    1: Difficulty((2,)),
    2: Difficulty((3,), negatives=True),
    3: Difficulty((4,), negatives=True, denominators=(2,), fractions=0.1, branching=0.2),
    4: Difficulty((4, 5), negatives=True, denominators=(2, 4), decimals=True, fractions=0.1, branching=0.3),
    5: Difficulty((5, 6), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.4),
    6: Difficulty((6, 7), negatives=True, denominators=(2, 4, 5), decimals=True, branching=0.5),
}

_OPS: Final = "+-*/"
#: Draws without a new problem after which a level counts as exhausted.
_IN_VAIN: Final = 2_000
_LARGEST_INTEGER: Final = 99
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


def canonical(problem: Problem) -> str:
    """The target written out in full: the same for any naming and any order of the definitions."""
    by_name = {d.name: d for d in problem.definitions}

    def expand(operand: str) -> str:
        d = by_name.get(operand)
        return operand if d is None else f"({expand(d.left)}{d.op}{expand(d.right)})"

    return expand(problem.target)


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
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
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
            op = rng.choice(_OPS)
            value = _apply(op, values.get(left) or _literal(left), values.get(right) or _literal(right))
            if value is not None and _allowed(value, difficulty) and not _trivial(left, op, right):
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
        return _shuffled(definitions, rng, level)
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
        return rng.choice([text for text in written if _literal(text).denominator in difficulty.denominators])
    if difficulty.negatives and kind > 0.92:
        return str(-rng.randint(2, 12))
    return str(rng.randint(2, 12) if rng.random() < 0.6 else rng.randint(2, 49))


@cache
def _literal(text: str) -> Fraction:
    value = parse(text)
    assert value is not None, text
    return value


def _apply(op: str, left: Fraction, right: Fraction) -> Fraction | None:
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


def _allowed(value: Fraction, difficulty: Difficulty) -> bool:
    """Small enough that a small model can know its arithmetic: this is what makes checking learnable."""
    if value == 0 or (value < 0 and not difficulty.negatives):
        return False
    if value.denominator == 1:
        return abs(value.numerator) <= _LARGEST_INTEGER
    return value.denominator in difficulty.denominators and abs(value.numerator) <= _LARGEST_NUMERATOR


def _trivial(left: str, op: str, right: str) -> bool:
    return left == right or (op in "*/" and right == "1")


def _shuffled(definitions: list[Definition], rng: random.Random, level: int) -> Problem:
    fresh = rng.sample(NAMES, len(definitions))
    rename = {d.name: name for d, name in zip(definitions, fresh, strict=True)}
    target = rename[definitions[-1].name]
    renamed = [
        Definition(rename[d.name], rename.get(d.left, d.left), d.op, rename.get(d.right, d.right))
        for d in definitions
    ]
    rng.shuffle(renamed)
    return Problem(tuple(renamed), target, level)


# ------------------------------------------------------------------------------------------- prompts and references


def prompt(problem: Problem, form: Form = Form.STEPS) -> str:
    """The text a generator continues."""
    return f"Q:{problem}\n" + ("S:\n" if form is Form.STEPS else "A:")


_PROBLEM: Final = re.compile(r"Q:(.*);([a-h])\?\n(S:\n|A:)")
_OPERAND_TEXT: Final = r"(?:[a-h]|\([^()]+\)|[0-9.]+%?)"
_DEFINITION: Final = re.compile(rf"([a-h])=({_OPERAND_TEXT})([-+*/])({_OPERAND_TEXT})")


def read_prompt(text: str) -> tuple[Problem, Form]:
    """The problem and the form that a prompt was made of; ValueError when it is not one of ours."""
    match = _PROBLEM.fullmatch(text)
    parts = [_DEFINITION.fullmatch(part) for part in match[1].split(";")] if match else []
    if match is None or None in parts:
        raise ValueError(f"not a prompt of this task: {text!r}")
    definitions = tuple(Definition(p[1], p[2].strip("()"), p[3], p[4].strip("()")) for p in parts if p)
    return Problem(definitions, match[2]), Form.STEPS if match[3].startswith("S") else Form.DIRECT


def in_order(problem: Problem) -> list[Definition]:
    """The definitions in an order of computation: the first shown whose operands are known comes next."""
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
    """The true value of every name."""
    known: dict[str, Fraction] = {}
    for d in in_order(problem):
        left, right = known.get(d.left), known.get(d.right)
        value = _apply(
            d.op, _literal(d.left) if left is None else left, _literal(d.right) if right is None else right
        )
        if value is None:
            raise ValueError(f"division by zero in {d} of {problem}")
        known[d.name] = value
    return known


def reference_answer(problem: Problem) -> str:
    """The reduced form of the answer, such as `3/2`."""
    return str(values(problem)[problem.target])


def reference_solution(problem: Problem, form: Form = Form.STEPS, rng: random.Random | None = None) -> str:
    """A right completion of `prompt(problem, form)`; with `rng`, numbers take any of their equivalent forms."""
    known = values(problem)
    if form is Form.DIRECT:
        return write_number(known[problem.target], rng, answer=True) + DELIMITER
    written: dict[str, str] = {}
    lines = []
    for d in in_order(problem):
        written[d.name] = write_number(known[d.name], rng)
        left, right = written.get(d.left, d.left), written.get(d.right, d.right)
        lines.append(f"{d.name}={_operand(left)}{d.op}{_operand(right)}={written[d.name]}")
    again = rng is None or rng.random() < 0.6
    answer = written[problem.target] if again else write_number(known[problem.target], rng, answer=True)
    return DELIMITER.join([*lines, f"A:{answer}"]) + DELIMITER


def write_number(value: Fraction, rng: random.Random | None = None, *, answer: bool = False) -> str:
    """`value` reduced, or with `rng` in a random one of its forms; integers vary only as an `answer`."""
    if rng is None:
        return str(value)
    kind = rng.random()
    if value.denominator == 1:
        if not answer or kind < 0.7:
            return str(value)
        even = abs(value) * 2 <= _LARGEST_INTEGER
        return f"{value.numerator * 2}/2" if kind < 0.85 and even else f"{value}.0"
    decimal = _decimal(value)
    if decimal is not None and kind < 0.3:
        return decimal
    if kind < 0.45:
        return f"{value.numerator * 2}/{value.denominator * 2}"
    if kind > 0.88 and 100 % value.denominator == 0 and abs(value) <= 3:
        return f"{value * 100}%"
    return str(value)


def _decimal(value: Fraction) -> str | None:
    """The finite decimal expansion, if it has at most three places."""
    if 1000 % value.denominator:
        return None
    digits = f"{abs(value.numerator) * (1000 // value.denominator):04d}"
    return ("-" if value < 0 else "") + f"{digits[:-3]}.{digits[-3:].rstrip('0') or '0'}"


def _operand(text: str) -> str:
    """Fractions and negative numbers stand in parentheses inside an expression."""
    return f"({text})" if "/" in text or text.startswith("-") else text


# ---------------------------------------------------------------------------------------------------- the checker


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found in a completion.

    `steps[i]`: line i follows from the problem, and so do all lines before it. A tail without its delimiter is a step
    that is not right. `answer`: the final answer as written, if there is one. `correct`: the answer has the right
    value (whatever the steps).
    """

    steps: tuple[bool, ...]
    answer: str | None
    correct: bool


_STEP: Final = re.compile(rf"([a-h])=({_OPERAND_TEXT})([-+*/])({_OPERAND_TEXT})=([^=]+)")


def steps_of(text: str) -> list[str]:
    """`text` cut after each delimiter; joined, the steps give the text back. The last may lack its delimiter."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def extract_answer(text: str, form: Form = Form.STEPS, *, finished: bool = True) -> str | None:
    """The answer as written. A last line without its delimiter counts only if the text is `finished` (not cut off)."""
    lines = text.split(DELIMITER)
    if not finished:
        lines.pop()
    if form is Form.DIRECT:
        return (lines[0].strip() or None) if lines else None
    answers = [line[2:].strip() for line in lines if line.startswith("A:")]
    return (answers[-1] or None) if answers else None


def check(problem: Problem, text: str, form: Form = Form.STEPS, *, finished: bool = True) -> Verdict:
    """Judge a completion of `prompt(problem, form)`, finished or partial."""
    truth = values(problem)
    answer = extract_answer(text, form, finished=finished)
    correct = answer is not None and parse(answer) == truth[problem.target]
    return Verdict(tuple(_check_steps(problem, truth, text, form)), answer, correct)


def _check_steps(problem: Problem, truth: dict[str, Fraction], text: str, form: Form) -> Iterator[bool]:
    by_name = {d.name: d for d in problem.definitions}
    derived: set[str] = set()
    answered, right = False, True
    for line in steps_of(text):
        body = line.removesuffix(DELIMITER)
        right = right and not answered and line.endswith(DELIMITER)
        if right and (form is Form.DIRECT or body.startswith("A:")):
            answered = True
            known = form is Form.DIRECT or problem.target in derived
            right = (
                known
                and parse(body.removeprefix("A:") if form is Form.STEPS else body) == truth[problem.target]
            )
        elif right:
            name = _follows(body, by_name, truth, derived)
            right = name is not None
            derived.add(name or "")
        yield right


def _follows(
    line: str, by_name: dict[str, Definition], truth: dict[str, Fraction], derived: set[str]
) -> str | None:
    """The name that a line derives, or `None` if it doesn't follow from the definitions and what is derived."""
    match = _STEP.fullmatch(line)
    definition = by_name.get(match[1]) if match else None
    if match is None or definition is None or match[3] != definition.op:
        return None

    def agrees(operand: str, written: str) -> bool:
        if operand in by_name:
            return operand in derived and (written == operand or parse(written.strip("()")) == truth[operand])
        return parse(written.strip("()")) == _literal(operand)

    straight = agrees(definition.left, match[2]) and agrees(definition.right, match[4])
    swapped = (
        definition.op in "+*" and agrees(definition.left, match[4]) and agrees(definition.right, match[2])
    )
    if (straight or swapped) and parse(match[5]) == truth[definition.name]:
        return definition.name
    return None
