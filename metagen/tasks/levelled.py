"""Tasks that make their own problems, at levels of difficulty, in three disjoint spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar

from metagen.errors import InputError
from metagen.generators.base import is_count
from metagen.tasks.base import Problem, Task
from metagen.tasks.split import Split


class LevelledTask(Task):
    """`per_level` problems of each of `levels`, from one of three disjoint spaces.

    seed: another seed, other problems. limit: the first problems only. Levels take turns, so that the first problems
    are a fair picture. Raises InputError for what is out of range.
    """

    #: All levels that there are.
    LEVELS: ClassVar[Collection[int]]

    def __init__(
        self, split: str, levels: Iterable[int], per_level: int, seed: int, limit: int | None
    ) -> None:
        if split not in tuple(Split):
            raise InputError(f"split={split!r}: expected one of {', '.join(Split)}")
        try:
            chosen = tuple(levels)
        except TypeError:
            chosen = ()
        known = [level for level in chosen if is_count(level, 1) and level in self.LEVELS]
        if not chosen or len(set(known)) < len(chosen):
            raise InputError(
                f"levels={list(chosen) or levels!r}: expected some of {', '.join(map(str, self.LEVELS))}, each once"
            )
        self.split, self.levels = Split(split), chosen
        self.per_level, self.seed, self.limit = per_level, seed, limit
        if not is_count(per_level, 1):
            raise InputError(
                f"per_level={per_level!r}: expected the number of problems of a level, at least 1"
            )
        if limit is not None and not is_count(limit, 1):
            raise InputError(f"limit={limit!r}: expected a number of problems, at least 1, or None for all")

    def problems(self) -> Iterator[Problem]:
        return islice(self._all(), self.limit)

    @abstractmethod
    def draw(self, level: int) -> Iterable[Any]:
        """The `per_level` problems of a level. ValueError if there are not so many."""

    @abstractmethod
    def as_problem(self, drawn: Any, name: str) -> Problem:
        """One of them as any task has them; `name` is its id."""

    def _all(self) -> Iterator[Problem]:
        try:
            drawn = [self.draw(level) for level in self.levels]
        except ValueError as error:
            raise InputError(f"per_level={self.per_level!r}: {error}") from None
        for index, row in enumerate(zip(*drawn, strict=True)):
            for level, one in zip(self.levels, row, strict=True):
                yield self.as_problem(one, f"{self.name}/{self.split}/{level}/{index}")
