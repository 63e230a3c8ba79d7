"""Embedding cosine: how near two texts lie in the space of an embedding model."""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections import abc
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metagen.border import call_or_await
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import InputError
from metagen.parts import UNNAMED, fingerprint_of_functions, part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.utility.base import Matrix, Utility, distinct, texts_of, without_pairs


class Embedder(Protocol):
    """Gives each text a vector."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names the model: equal fingerprints promise equal vectors."""

    @abstractmethod
    async def embed(self, texts: list[str]) -> NDArray[Any]:
        """(texts × dimensions), finite."""

    @abstractmethod
    def usage(self, text: str) -> Usage:
        """What embedding this text takes, known before it is done."""


@part
class EmbeddingCosine(Utility):
    """The cosine of the angle between the embeddings, in [−1, 1]; 0 with a vector of zeros.

    Each distinct text is embedded once: a leaf call, recorded in single precision and charged.
    answer: compares what this rule reads instead of the whole completions.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.utility.embedding import EmbeddingCosine, FunctionEmbedder
        >>> counts = FunctionEmbedder(lambda texts: [[t.count("a"), t.count("b")] for t in texts], name="letters")
        >>> texts = [mg.Sequence(mg.Prompt("1", text="?"), t, finish="eos") for t in ("aa", "ab")]
        >>> asyncio.run(EmbeddingCosine(counts).matrix(texts, scope=mg.Scope.root("1"))).round(2).tolist()
        [[1.0, 0.71], [0.71, 1.0]]
    """

    name = "embedding"
    symmetric = True

    embedder: Embedder = field(kw_only=False)
    answer: AnswerRule | None = None

    @property
    def fingerprint(self) -> str:
        rule = self.answer.fingerprint if self.answer else ""
        return digest("embedding cosine", self.embedder.fingerprint, rule).hex()

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        if (nothing := without_pairs(candidates, references)) is not None:
            return nothing
        sequences, first = [*candidates, *(references or ())], len(candidates)
        texts, place = distinct(await texts_of(sequences, self.answer))
        vectors = await self._vectors(texts, scope)
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = vectors / np.where(length == 0, 1.0, length)
        cosines: Matrix = np.clip(unit @ unit.T, -1.0, 1.0)
        return cosines[np.ix_(place[:first], place if references is None else place[first:])]

    async def _vectors(self, texts: list[str], scope: Scope) -> Matrix:
        """One row per text; NaN for those that a budget left out."""
        items = tuple(Item(digest(text)) for text in texts)

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            found = np.asarray(await self.embedder.embed([texts[i] for i in positions]), dtype="<f4")
            if found.ndim != 2 or len(found) != len(positions) or not np.isfinite(found).all():
                raise InputError(
                    f"an embedding of {len(positions)} texts has the shape {found.shape}, or is not finite; "
                    "expected one vector of numbers for each text"
                )
            usages = [self.embedder.usage(texts[i]) for i in positions]
            return [Outcome({"vector": _pack(v)}, u, u) for v, u in zip(found, usages, strict=True)]

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            return Usage.sum(self.embedder.usage(texts[i]) for i in positions)

        rows = await scope.call(Request("embed", self.embedder.fingerprint, items), execute, worst)
        known = {row.content: _unpack((row.payload or {})["vector"]) for row in rows}
        nothing = np.full_like(next(iter(known.values())), np.nan)
        return np.array([known.get(item.content, nothing) for item in items])


@part
class FunctionEmbedder(Embedder):
    """Embeds by `function(texts)`, which may be async. Charged one call per text.

    name: part of the fingerprint; change it when the function changes its mind. Without one,
    its own name and code stand in its place.

    Examples:
        >>> import asyncio
        >>> from metagen.verifiers.utility.embedding import FunctionEmbedder
        >>> counts = FunctionEmbedder(lambda texts: [[t.count("a"), t.count("b")] for t in texts], name="letters")
        >>> asyncio.run(counts.embed(["aab", "b"])).tolist()
        [[2, 1], [0, 1]]
    """

    function: Callable[[list[str]], Any | Awaitable[Any]] = field(kw_only=False)
    name: str = UNNAMED

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_functions("function embedder", self.name, self.function)

    async def embed(self, texts: list[str]) -> NDArray[Any]:
        return np.asarray(await call_or_await(self, self.function, texts))

    def usage(self, text: str) -> Usage:
        return Usage(calls=1)


def _pack(vector: NDArray[Any]) -> str:
    return base64.b64encode(vector.tobytes()).decode("ascii")


def _unpack(text: str) -> Matrix:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)
