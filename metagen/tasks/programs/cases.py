"""Examples of what a function does: a list that goes in, and what comes out, as prompts write them.

5 1 7 2 > 7 5
3 9 = 12
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Case:
    """A list that goes in, and what must come out."""

    x: tuple[int, ...]
    expected: int | tuple[int, ...]

    def __str__(self) -> str:
        """As in prompts: ` 3 1 > 1 3`."""
        return list_text(self.x) + result_text(self.expected)

    @property
    def plain(self) -> tuple[list[list[int]], Any]:
        """Arguments and expected value as JSON has them."""
        return [list(self.x)], list(self.expected) if isinstance(self.expected, tuple) else self.expected


def list_text(x: Iterable[int]) -> str:
    """A list as prompts have it: a blank before each number, so that a number is the same token everywhere."""
    return "".join(f" {v}" for v in x)


def result_text(value: int | Iterable[int]) -> str:
    """The result, as prompts have it."""
    return f" = {value}" if isinstance(value, int) else " >" + list_text(value)


def prompt(public: tuple[Case, ...]) -> str:
    """The public examples, one a line."""
    return "".join(f"{case}\n" for case in public)


_NUMBERS: Final = r"(?: -?[0-9]+)*"
_CASE: Final = re.compile(rf"({_NUMBERS}) (?:>({_NUMBERS})|= (-?[0-9]+))")


def read_prompt(text: str) -> tuple[Case, ...]:
    """The public examples that a prompt shows; ValueError when it is not one of ours."""
    parts = [_CASE.fullmatch(line) for line in text.splitlines()]
    if not parts or None in parts:
        raise ValueError(f"not a prompt of this task: {text!r}")
    return tuple(
        Case(_numbers(part[1]), int(part[3]) if part[3] is not None else _numbers(part[2]))
        for part in parts
        if part
    )


def _numbers(numbers: str) -> tuple[int, ...]:
    return tuple(int(n) for n in numbers.split())


def case(x: list[int], expected: Any) -> Case:
    """From JSON."""
    return Case(tuple(x), tuple(expected) if isinstance(expected, list) else expected)
