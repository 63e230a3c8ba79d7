"""Utilities that are asked pair by pair: functions of the user's, and judges."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections import abc
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metagen.border import call_or_await, one_each, promises
from metagen.errors import InputError
from metagen.parts import UNNAMED, fingerprint_of_functions, part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.verifiers.utility.base import Matrix, Utility

Pair = tuple[Sequence, Sequence]


class PairUtility(Utility):
    """Rates distinct pairs: all candidates with the first reference, then all with the second, and so on.

    So where a budget ends, the candidates have been compared with about the same references.
    """

    @abstractmethod
    @promises(one_each("pairs"))
    async def rate(self, pairs: list[Pair], scope: Scope) -> list[float]:
        """u(y, y') of each pair (y, y'), in order; NaN where it is not known."""

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        ours, rows = distinct_sequences(candidates)
        theirs, columns = (ours, rows) if references is None else distinct_sequences(references)
        half = self.symmetric and references is None
        places = [(i, j) for j in range(len(theirs)) for i in range(j if half else 0, len(ours))]
        values = await self.rate([(ours[i], theirs[j]) for i, j in places], scope)
        result = np.full((len(ours), len(theirs)), np.nan)
        for (i, j), value in zip(places, values, strict=True):
            result[i, j] = value
            if half:
                result[j, i] = value
        return result[np.ix_(rows, columns)]


@part
class FunctionUtility(PairUtility):
    """Rates by `function(candidate, reference)`; it may be async. It is neither recorded nor charged.

    It gives a finite number, or None or nan where it knows none. name: part of the fingerprint; change it when the
    function changes its mind; without one, its own name and code stand in its place. symmetric: the function is;
    half of the pairs are asked, and those with the first candidate again the other way round. function: of two
    sequences. Raises InputError for infinite values, and where a function is not symmetric.
    """

    spends = False

    function: Callable[[Sequence, Sequence], float | Awaitable[float | None] | None] = field(kw_only=False)
    name: str = UNNAMED
    symmetric: bool = False

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_functions("function utility", self.name, self.function)

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        result = await super().matrix(candidates, references, scope=scope)
        ours, rows = distinct_sequences(candidates)
        if self.symmetric and references is None and len(ours) > 1:
            again = await self.rate([(ours[0], other) for other in ours], scope)
            there = result[rows.tolist().index(0)]
            for k, place in enumerate(rows):
                unknown = math.isnan(there[k]) or math.isnan(again[place])
                if not unknown and not math.isclose(there[k], again[place], rel_tol=1e-9, abs_tol=1e-12):
                    raise InputError(
                        f"the utility {self.name!r} is not symmetric: {float(there[k])!r} one way and "
                        f"{again[place]!r} the other, for {ours[0].text!r:.60} and {ours[place].text!r:.60}; "
                        "leave symmetric=True out"
                    )
        return result

    async def rate(self, pairs: list[Pair], scope: Scope) -> list[float]:
        async def one(pair: Pair) -> float:
            found = await call_or_await(self, self.function, *pair, hint=float | None)
            return math.nan if found is None else float(found)

        values = await asyncio.gather(*map(one, pairs))
        for pair, value in zip(pairs, values, strict=True):
            if math.isinf(value):
                raise InputError(
                    f"the utility {self.name!r} is {value!r} for {pair[0].text!r:.60} against {pair[1].text!r:.60}; "
                    "expected a finite number, or nan where it is not known"
                )
        return values


def distinct_sequences(sequences: abc.Sequence[Sequence]) -> tuple[list[Sequence], NDArray[np.intp]]:
    """Sequences that differ in text, or in how they ended, as they come; and each one's place there, [sequences]."""
    kept: dict[tuple[str, str | None], int] = {}
    place = [kept.setdefault((s.text, s.finish), len(kept)) for s in sequences]
    first = {index: sequence for sequence, index in zip(reversed(sequences), reversed(place), strict=True)}
    return [first[i] for i in range(len(kept))], np.array(place, dtype=np.intp)
