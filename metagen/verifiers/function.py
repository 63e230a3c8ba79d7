"""A verifier and an answer rule made of functions: for tests and for plug-in authors."""

from __future__ import annotations

from collections import abc
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import cached_property

from metagen.border import call, call_or_await, is_async, ours
from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.parts import UNNAMED, fingerprint_of_functions, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.verifiers.base import Answer, AnswerRule, PrimitiveVerifier, score_payload


def _out_of_range(score: float | Score) -> str | None:
    inside = isinstance(score, Score) or 0.0 <= score <= 1.0
    return (
        None
        if inside
        else "expected a number in [0, 1]; give Score(value, raw=…) for a reward of another scale"
    )


def _outcome(result: float | Score) -> Outcome:
    return Outcome(score_payload(result if isinstance(result, Score) else Score(result)), Usage(calls=1))


@part
class FunctionVerifier(PrimitiveVerifier):
    """Scores by `function(sequence)`: a number in [0, 1], or a Score. Charged one call per score.

    An async function scores candidates side by side; a plain one in a thread, one candidate after the other. Each score
    is recorded when it is there.

    name: part of the fingerprint, by which scores are found again; change it when the function changes its mind.
    Without one, what the function is called, does, closes over and reads stands in its place; with an object that
    nothing names among that, such as a model, scores are found again within the process only, and a warning says so
    where the journal is a file.

    The function sees the thought of a sequence, where there is one: `sequence.thought`.
    """

    sees_thoughts = True

    function: Callable[[Sequence], float | Score | Awaitable[float | Score]] = field(kw_only=False)
    name: str = UNNAMED

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_functions("function verifier", self.name, self.function)

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        if ours(self.function) and not is_async(self.function):
            return [_outcome(self.function(s)) for s in sequences]  # type: ignore[arg-type]

        async def one(place: int, sequence: Sequence) -> Outcome:
            result = await call_or_await(
                self, self.function, sequence, hint=float | Score, broken=_out_of_range
            )
            ended[place] = outcome = _outcome(result)
            return outcome

        return await scope.gather(*(one(i, sequence) for i, sequence in enumerate(sequences)))

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))


class FunctionRule(AnswerRule):
    """Reads an answer by `read(text)` → the answer or None, and its key by `key(answer)` (the answer itself).

    name: part of the fingerprint; change it when the functions change their mind. Without one,
    what they are called and do stands in its place.
    """

    def __init__(
        self,
        read: Callable[[str], str | None],
        key: Callable[[str], str | None] = lambda answer: answer,
        *,
        name: str = UNNAMED,
    ) -> None:
        self._read, self._key, self._name = read, key, name

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_functions("function rule", self._name, self._read, self._key)

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [self._answer(s.text) for s in sequences]

    async def key(self, answer: str) -> str | None:
        found: str | None = call(self, self._key, answer, hint=str | None)
        return found

    def _answer(self, text: str) -> Answer:
        answer = call(self, self._read, text, hint=str | None)
        if answer is None:
            return Answer(verdict="missing")
        key = call(self, self._key, answer, hint=str | None)
        return Answer(answer, key, None if key is not None else "unparsable")
