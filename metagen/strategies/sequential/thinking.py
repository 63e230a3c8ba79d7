"""A budget of thought: how long a problem may, and must, be thought about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.sequence import Prompt


@dataclass(frozen=True, slots=True)
class Thinking:
    """Tokens of thought, the end of thought not included.

    most: the thought is cut there; 0 answers directly; None, it ends by itself. least: a thought that ends
    before is sent on, at most `waits` times. Raises InputError for what contradicts itself.
    """

    most: int | None = None
    least: int = 0
    waits: int = 1

    def __post_init__(self) -> None:
        if self.most is not None and not is_count(self.most, 0):
            raise InputError(
                f"most={self.most!r}: expected tokens of thought, at least 0, or None for no limit"
            )
        if not is_count(self.least, 0) or (self.most is not None and self.least > self.most):
            raise InputError(
                f"least={self.least!r}: expected tokens of thought, from 0 to most={self.most!r}"
            )
        if not is_count(self.waits, 0):
            raise InputError(f"waits={self.waits!r}: expected how often a thought is sent on, at least 0")


def thinking_of(prompt: Prompt, thinking: Thinking | Mapping[str, Thinking]) -> Thinking:
    """The budget of one problem; InputError for a problem that a mapping does not know."""
    if isinstance(thinking, Thinking):
        return thinking
    if prompt.problem_id not in thinking:
        raise InputError(
            f"there is no thinking budget for the problem {prompt.problem_id!r}; "
            f"there is one for {len(thinking)} others: add it, or give one Thinking for all"
        )
    return thinking[prompt.problem_id]
