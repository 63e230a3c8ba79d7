"""A budget of thought: how long a problem may, and must, be thought about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metagen.border import checked
from metagen.errors import InputError
from metagen.sequence import Prompt
from metagen.values import Amount


@checked
@dataclass(frozen=True, slots=True)
class Thinking:
    """Tokens of thought, the end of thought not included.

    most: the thought is cut there; 0 answers directly; None, it ends by itself. least: a thought that ends
    before is sent on, at most `waits` times. Raises InputError for what contradicts itself.
    """

    most: Amount | None = None
    least: Amount = 0
    waits: Amount = 1

    def __post_init__(self) -> None:
        if self.most is not None and self.least > self.most:
            raise InputError(
                f"Thinking: least={self.least!r}: expected tokens of thought, from 0 to most={self.most!r}"
            )


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
