r"""The notation of problems and solutions.

    Q:3 5 7 2=24\nS:\n          the numbers, and the target
    7*3=21;2 5 21\n             a step: a move, and what is then on the table
    5-2=3;3 21\n
    21+3=24;24\n                the last one leaves the target

A solution is complete when one number is left. The rest may be written in any order.
"""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metagen.tasks.countdown.game import COUNTDOWN, Move, Number, Rules, Table, after, reachable, table, whole

DELIMITER: Final = "\n"
_NUMBER: Final = r"-?\d{1,9}(?:/\d{1,9})?"
_PROMPT: Final = re.compile(rf"Q:({_NUMBER}(?: {_NUMBER})*)=({_NUMBER})\nS:\n", re.ASCII)
_STEP: Final = re.compile(rf"({_NUMBER})([-+*/])({_NUMBER})=({_NUMBER});({_NUMBER}(?: {_NUMBER})*)", re.ASCII)


def prompt(numbers: abc.Sequence[int], target: int) -> str:
    """The text that a generator continues with steps."""
    return f"Q:{' '.join(map(str, numbers))}={target}\nS:\n"


def read_prompt(text: str) -> tuple[Table, Number]:
    """Numbers and target; ValueError when it is not one of ours."""
    found = _PROMPT.fullmatch(text)
    if found is None:
        raise ValueError(f"not a prompt of this task: {text!r:.80}")
    return _table(found[1]), whole(Fraction(found[2]))


def step(move: Move, left: Table) -> str:
    """A line of a solution, with its delimiter."""
    return f"{move};{' '.join(map(str, left))}{DELIMITER}"


@dataclass(frozen=True, slots=True)
class Replay:
    """A solution played: the moves that are right as written, and the table after the last of them.

    steps: of each line, whether it and all before it are allowed moves, rightly calculated. complete: nothing is wrong,
    and one number is left.
    """

    moves: tuple[Move, ...]
    table: Table
    steps: tuple[bool, ...]
    complete: bool


def replay(numbers: Table, text: str, rules: Rules = COUNTDOWN, *, finished: bool = True) -> Replay:
    """Play the lines of a solution. finished: a last line without delimiter is whole; else it is left out."""
    lines = text.split(DELIMITER)
    if lines[-1] == "" or not finished:
        lines.pop()
    left, played, steps = numbers, list[Move](), list[bool]()
    for line in lines:
        move = read_step(line, left, rules) if all(steps) else None
        steps.append(move is not None)
        if move is not None:
            left = after(left, move, rules) or left
            played.append(move)
    return Replay(tuple(played), left, tuple(steps), all(steps) and len(left) == 1)


def read_step(line: str, numbers: Table, rules: Rules = COUNTDOWN) -> Move | None:
    """The move of a line, if it is allowed there and says what comes of it."""
    found = _STEP.fullmatch(line)
    if found is None:
        return None
    try:
        move = Move(whole(Fraction(found[1])), found[2], whole(Fraction(found[3])))
        said, left = whole(Fraction(found[4])), _table(found[5])
    except ZeroDivisionError:
        return None
    right = after(numbers, move, rules)
    return move if right is not None and move.result == said and right == left else None


def check(
    numbers: Table, target: Number, text: str, rules: Rules = COUNTDOWN, *, finished: bool
) -> list[bool]:
    """Of each line: it and all before it are right, and the target can still be reached after it."""
    found, left = list[bool](), numbers
    played = replay(numbers, text, rules, finished=finished)
    for k, right in enumerate(played.steps):
        if right:
            left = after(left, played.moves[k], rules) or left
        # Nothing may follow when one number is left, so that a right last line leaves the target.
        found.append(right and all(found) and reachable(left, target, rules))
    return found


def expression(numbers: Table, played: abc.Sequence[Move]) -> str:
    """The moves as one expression; the same for any order of moves, and of summands and factors.

    Chains of + and − are one sum, chains of × and ÷ one product: a−(b−c) is a+c−b.
    """
    forms: list[tuple[Number, _Form]] = [(n, _Form("", ((str(n), True),))) for n in numbers]
    for move in played:
        left, right = _take(forms, move.left), _take(forms, move.right)
        result = move.result
        assert result is not None
        forms.append((result, _join(left, right, "+" if move.op in "+-" else "*", move.op in "+*")))
    return ",".join(sorted(str(form) for _, form in forms))


@dataclass(frozen=True, slots=True)
class _Form:
    """A sum or a product of parts, each taken or taken away; op is empty for a number."""

    op: str
    parts: tuple[tuple[str, bool], ...]

    def __str__(self) -> str:
        if not self.op:
            return self.parts[0][0]
        minus = {"+": "-", "*": "/"}[self.op]
        # Parts that are taken come first, each in order of text.
        ordered = sorted(self.parts, key=lambda part: (not part[1], part[0]))
        first, *rest = ordered
        return f"({first[0]}{''.join((self.op if given else minus) + text for text, given in rest)})"


def _join(left: _Form, right: _Form, op: str, given: bool) -> _Form:
    """One chain of both, of the parts of what is a chain of this kind already."""

    def parts(form: _Form, taken: bool) -> Iterator[tuple[str, bool]]:
        if form.op == op:
            yield from ((text, own == taken) for text, own in form.parts)
        else:
            yield str(form), taken

    return _Form(op, (*parts(left, True), *parts(right, given)))


def _take(forms: list[tuple[Number, _Form]], value: Number) -> _Form:
    """One way in which the value came about, the first in order of text, so that equal numbers are exchangeable."""
    one = min((form for form in forms if form[0] == value), key=lambda form: str(form[1]))
    forms.remove(one)
    return one[1]


def _table(text: str) -> Table:
    return table(Fraction(n) for n in text.split())
