"""Short ways to ask a utility."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import pytest

from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.utility.base import Matrix, Utility, Vector, Weights

T = TypeVar("T")
PROMPT = Prompt("p", text="What?")


class Ask(Protocol):
    def matrix(
        self, utility: Utility, ours: abc.Sequence[str], theirs: abc.Sequence[str] | None = None
    ) -> Matrix: ...

    def expected(
        self,
        utility: Utility,
        ours: abc.Sequence[str],
        theirs: abc.Sequence[str] | None = None,
        weights: Weights | None = None,
    ) -> Vector: ...

    def sequences(self, texts: abc.Sequence[str]) -> list[Sequence]: ...

    def run(self, work: Callable[[Scope], Awaitable[T]]) -> T: ...


class _Ask:
    def run(self, work: Callable[[Scope], Awaitable[T]]) -> T:
        async def main() -> T:
            return await work(Scope.root("p"))

        return asyncio.run(main())

    def sequences(self, texts: abc.Sequence[str]) -> list[Sequence]:
        return [Sequence(PROMPT, text, finish="eos") for text in texts]

    def matrix(
        self, utility: Utility, ours: abc.Sequence[str], theirs: abc.Sequence[str] | None = None
    ) -> Matrix:
        references = None if theirs is None else self.sequences(theirs)
        return self.run(lambda scope: utility.matrix(self.sequences(ours), references, scope=scope))

    def expected(
        self,
        utility: Utility,
        ours: abc.Sequence[str],
        theirs: abc.Sequence[str] | None = None,
        weights: Weights | None = None,
    ) -> Vector:
        references = None if theirs is None else self.sequences(theirs)
        return self.run(
            lambda scope: utility.expected(self.sequences(ours), references, weights, scope=scope)
        )


@pytest.fixture(scope="session")
def ask() -> Ask:
    return _Ask()
