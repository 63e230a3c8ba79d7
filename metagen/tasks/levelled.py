"""Tasks that make their own problems, at levels of difficulty, in three disjoint spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property
from itertools import islice
from math import ceil
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from metagen.errors import InputError
from metagen.parts import part
from metagen.tasks.base import Problem, Task
from metagen.values import Count, EachOnce, Expects

#: From 1 to 8, and to 4.
EightLevels = Annotated[
    abc.Sequence[Annotated[int, Ge(1), Le(8), Expects("a level from 1 to 8")]], EachOnce()
]
FourLevels = Annotated[abc.Sequence[Annotated[int, Ge(1), Le(4), Expects("a level from 1 to 4")]], EachOnce()]


@part
class LevelledTask(Task):
    """`per_level` problems of each of `levels`, from one of three disjoint spaces.

    seed: another seed, other problems. limit: the first problems only. Levels take turns, so that the first problems
    are a fair picture. split: the space. levels: of difficulty, from easy to hard. per_level: problems of each.
    Raises InputError for what is out of range.
    """

    split: Literal["train", "validation", "test"] = field(default="validation", kw_only=False)
    levels: abc.Sequence[int]
    per_level: Count = 20
    seed: int = 0
    limit: Count | None = None

    def __post_init__(self) -> None:
        try:
            self.levels = EachOnce.check(tuple(self.levels))
        except ValueError as error:
            raise InputError(f"{type(self).__name__}: levels={list(self.levels)}: {error}") from None

    def problems(self) -> Iterator[Problem]:
        return islice(self._all(), self.limit)

    @abstractmethod
    def draw(self, level: int, count: int) -> Iterable[Any]:
        """The first `count` problems of a level. ValueError if there are not so many."""

    @abstractmethod
    def as_problem(self, drawn: Any, name: str) -> Problem:
        """One of them as any task has them; `name` is its id."""

    @cached_property
    def _draws(self) -> list[tuple[Any, ...]]:
        """One problem of each level in a row; drawn once, and no more of them than `limit` leaves."""
        rows = self.per_level
        if self.limit is not None:
            rows = min(rows, ceil(self.limit / len(self.levels)))
        try:
            drawn = [self.draw(level, rows) for level in self.levels]
        except ValueError as error:
            raise InputError(f"per_level={self.per_level!r}: {error}") from None
        return list(zip(*drawn, strict=True))

    def _all(self) -> Iterator[Problem]:
        for index, row in enumerate(self._draws):
            for level, one in zip(self.levels, row, strict=True):
                yield self.as_problem(one, f"{self.name}/{self.split}/{level}/{index}")
