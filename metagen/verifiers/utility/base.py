"""Utility: the expected utility of each candidate, and the matrix on request, computed at once."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metagen.border import Part, ours, promises
from metagen.errors import InputError, UnsupportedError, install
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import AnswerRule

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = abc.Sequence[float | None]


def _shape(matrix: Matrix, given: Mapping[str, Any]) -> str | None:
    references = given["candidates"] if given["references"] is None else given["references"]
    shape = len(given["candidates"]), len(references)
    return None if matrix.shape == shape else f"its shape is {matrix.shape}, expected {shape}"


class Utility(Part, ABC):
    """u(y, y'): how good the candidate y is if the reference y' were right. Larger is better, 1 is perfect.

    Minimum Bayes risk decoding returns argmax_y E_{y' ~ p} u(y, y'); the samples themselves stand for p.
    """

    name: str = "utility"
    #: u(y, y') = u(y', y): candidates that are their own references are compared once.
    symmetric: bool = False

    @property
    def spends(self) -> bool:
        """Whether comparing makes calls (of a model, a sandbox), which take a part of a budget."""
        return True

    @property
    def fingerprint(self) -> str:
        """Names the utility: equal fingerprints promise equal values. By default its class and its fields."""
        return fingerprint(self, recorded=True)

    @abstractmethod
    @promises(_shape)
    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        """`[i, j]` is u(candidate i, reference j), float64. Without references, the candidates are their own.

        NaN: not known, because a budget ended or a judge said nothing that can be read. A limit's refusal is
        raised where it left nothing of it.
        """

    async def expected(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        weights: Weights | None = None,
        *,
        scope: Scope,
    ) -> Vector:
        """Σ_j w_j u(y_i, y'_j) / Σ_j w_j, [candidates]; the mean without weights, which are [references].

        See `expected_utility` for what is unknown, and for the errors.
        """
        return expected_utility(await self.matrix(candidates, references, scope=scope), weights)


def expected_utility(matrix: Matrix, weights: Weights | None = None) -> Vector:
    """The weighted mean of each row over the references; the sums are exact before rounding, so that order is nothing.

    matrix: (candidates × references). NaN in it is left out of both sums; a row of nothing else is NaN. A weight of
    None (no score) counts nothing; where weights sum to zero, so does the utility.
    Raises InputError for no candidates, no references, infinite utilities, and weights that are no numbers, negative,
    infinite, or too many or few.
    """
    some(*matrix.shape)
    if np.isinf(matrix).any():
        raise InputError(
            "an infinite utility has no mean; expected finite numbers, or nan where one is not known"
        )
    w = weight_array(weights, matrix.shape[1])
    known = ~np.isnan(matrix)
    if known.all():
        total = math.fsum(w)
        sums = [math.fsum(row) for row in (matrix * w).tolist()]
        return np.array(sums) / total if total else np.zeros(len(sums))
    return np.array([_mean(row[k], w[k]) for row, k in zip(matrix, known, strict=True)])


def some(candidates: int, references: int) -> None:
    """InputError unless there is at least one of each."""
    if not candidates or not references:
        raise InputError(
            f"{candidates} candidates and {references} references; expected at least one of each"
        )


def weight_array(weights: Weights | None, references: int) -> Vector:
    """The weights up to a common factor, [references], None read as 0. Raises InputError as `expected_utility` says."""
    if weights is None:
        return np.ones(references)
    if len(weights) != references:
        raise InputError(f"{len(weights)} weights for {references} references; expected one each")
    for weight in weights:
        if weight is not None and not (isinstance(weight, Real) and 0 <= weight < math.inf):
            raise InputError(
                f"a reference has the weight {weight!r}; expected a number ≥ 0, or None for no score"
            )
    w = np.array([value or 0.0 for value in weights], dtype=np.float64)
    # By a power of two, so that nothing but overflow and underflow changes.
    return w if not w.any() else np.ldexp(w, -math.frexp(float(w.max()))[1])


def _mean(row: Vector, weights: Vector) -> float:
    total = math.fsum(weights)
    if not row.size:
        return math.nan
    return math.fsum(row * weights) / total if total else 0.0


@part
class TextUtility(Utility):
    """A utility that is a pure function of two texts. It makes no calls; equal texts are compared once.

    answer: compares what this rule reads (nothing is the empty text) instead of the whole completions.
    """

    spends = False

    answer: AnswerRule | None = None

    @property
    def fingerprint(self) -> str:
        rule = self.answer.fingerprint if self.answer else ""
        cls = type(self)
        name = cls.__qualname__ if ours(cls) else f"{cls.__module__}.{cls.__qualname__}"
        return digest(name, self.options(), rule).hex()

    def options(self) -> str:
        """What tells two utilities of this class apart: by default its fields."""
        fields = [one.name for one in dataclasses.fields(self) if one.init and one.name != "answer"]
        return " ".join(str(getattr(self, name)) for name in fields)

    @abstractmethod
    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        """The matrix of distinct texts, [candidates, references], in their natural order.

        references: None for the candidates.
        """

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        if (nothing := without_pairs(candidates, references)) is not None:
            return nothing
        texts, rows = distinct(await self.texts(candidates))
        if references is None:
            values, columns = await asyncio.to_thread(self.compare, texts, None), rows
        else:
            others, columns = distinct(await self.texts(references))
            values = await asyncio.to_thread(self.compare, texts, others)
        return values[np.ix_(rows, columns)]

    async def texts(self, sequences: abc.Sequence[Sequence]) -> list[str]:
        """What is compared."""
        return await texts_of(sequences, self.answer)


def without_pairs(candidates: abc.Sequence[object], references: abc.Sequence[object] | None) -> Matrix | None:
    """The matrix (candidates × references), if it has no entries; else None."""
    shape = len(candidates), len(candidates if references is None else references)
    return np.empty(shape) if 0 in shape else None


async def texts_of(sequences: abc.Sequence[Sequence], answer: AnswerRule | None) -> list[str]:
    """The completions; with a rule, the answers that it reads in them, nothing being the empty text."""
    if answer is None:
        return [s.text for s in sequences]
    return [found.text or "" for found in await answer.read(sequences)]


def distinct(texts: abc.Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The distinct texts, sorted, and the place of each text among them, [texts]."""
    kept = sorted(set(texts))
    place = {text: i for i, text in enumerate(kept)}
    return kept, np.array([place[text] for text in texts], dtype=np.intp)


def merge_weights(weights: Vector, place: NDArray[np.intp]) -> Vector:
    """The weights of distinct texts, [distinct], from those of all texts and the place of each, [texts] both.

    The sums are exact, and rounded once.
    """
    return np.array([math.fsum(weights[place == i]) for i in range(int(place.max()) + 1)])


def library(name: str, needed_by: str) -> Any:
    """An optional library, when the utility is made; UnsupportedError that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{needed_by} needs {name!r}, which cannot be imported ({error}); {install('text')}"
        ) from error
