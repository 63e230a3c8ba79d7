"""A verifier and an answer rule made of functions: for tests and for plug-in authors."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered

from metagen.call import Outcome
from metagen.cost import Usage
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule, PrimitiveVerifier, score_payload


class FunctionVerifier(PrimitiveVerifier):
    """Scores by `function(sequence)`: a number in [0, 1], or a Score. Charged one call per score."""

    def __init__(self, function: Callable[[Sequence], float | Score], *, name: str = "function") -> None:
        self._function, self.name = function, name

    @property
    def fingerprint(self) -> str:
        return digest("function verifier", self.name).hex()

    async def evaluate(self, sequences: Ordered[Sequence], scope: Scope) -> list[Outcome]:
        results = [self._function(s) for s in sequences]
        scores = [r if isinstance(r, Score) else Score(r) for r in results]
        return [Outcome(score_payload(score), Usage(calls=1)) for score in scores]

    def worst(self, sequences: Ordered[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))


class FunctionRule(AnswerRule):
    """Reads an answer by `read(text)` → the answer or None, and its key by `key(answer)` (the answer itself).

    name: part of the fingerprint; change it when the functions change their mind.
    """

    def __init__(
        self,
        read: Callable[[str], str | None],
        key: Callable[[str], str | None] = lambda answer: answer,
        *,
        name: str = "function",
    ) -> None:
        self._read, self._key, self._name = read, key, name

    @property
    def fingerprint(self) -> str:
        return digest("function rule", self._name).hex()

    async def read(self, sequences: Ordered[Sequence]) -> list[Answer]:
        return [self._answer(s.text) for s in sequences]

    async def key(self, answer: str) -> str | None:
        return self._key(answer)

    def _answer(self, text: str) -> Answer:
        answer = self._read(text)
        if answer is None:
            return Answer(verdict="missing")
        key = self._key(answer)
        return Answer(answer, key, None if key is not None else "unparsable")
