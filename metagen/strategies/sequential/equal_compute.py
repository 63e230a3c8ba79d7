"""More tokens in one line of thought, or in several: both at the same compute, problem by problem."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from metagen.errors import InputError, UnsupportedError
from metagen.journal import Journal
from metagen.sequence import Prompt
from metagen.strategies.base import Result, Strategy

#: What may be held equal.
Dimension = Literal["generated", "flops", "money", "calls"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One problem solved twice. share: compute of the parallel strategy over that of the sequential one, at most 1."""

    prompt: Prompt
    sequential: Result
    parallel: Result
    share: float


async def at_equal_compute(
    sequential: Strategy,
    parallel: Strategy,
    prompts: Iterable[Prompt],
    *,
    dimension: Dimension = "generated",
    seed: int = 0,
    journal: Journal | None = None,
) -> list[Pair]:
    """Solve each prompt sequentially, then let the parallel strategy spend as much on it, and no more.

    parallel: one that takes what it gets, such as a vote with a large n; where it needs less, `share` says so, and
    the comparison is not at equal compute. Whatever is spent on a sample that the budget cuts is counted against the
    parallel side: `share` close to 1 with few samples favours the sequential one. Grading is the caller's: a
    strategy never sees a reference. Raises UnsupportedError where the usage of the dimension is unknown.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_pair(sequential, parallel, prompt, dimension, seed, journal))
                for prompt in prompts
            ]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return [task.result() for task in tasks]


async def _pair(
    sequential: Strategy,
    parallel: Strategy,
    prompt: Prompt,
    dimension: Dimension,
    seed: int,
    journal: Journal | None,
) -> Pair:
    first = await sequential.asolve(prompt, seed=seed, journal=journal)
    spent = getattr(first.usage, dimension)
    if spent is None:
        raise UnsupportedError(
            f"the {dimension} of {type(sequential).__name__} on {prompt.problem_id!r} are unknown; "
            "compare another dimension, or give the generator a count, a shape or a price"
        )
    if not spent:
        raise InputError(
            f"{type(sequential).__name__} spent no {dimension} on {prompt.problem_id!r}: nothing to equal"
        )
    second = await parallel.asolve(prompt, seed=seed, journal=journal, budget={dimension: spent})
    return Pair(prompt, first, second, getattr(second.usage, dimension) / spent)
