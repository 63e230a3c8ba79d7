"""Drawing candidates: in waves, where a limit binds generating and scoring alike."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable

from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.candidates import Candidate, judged
from metagen.verifiers.base import AnswerRule, Verifier


class Drawing:
    """The candidates of one call, as they are drawn, read and scored. They are offered in `scope`.

    sampling, scoring: the scopes in which the generator and the verifier run. Equal texts are scored, and paid for,
    once. `candidates` are those that there are so far.
    """

    def __init__(
        self,
        generator: Generator,
        prefix: Sequence,
        scope: Scope,
        sampling: Scope,
        scoring: Scope,
        *,
        answer: AnswerRule | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.generator, self.prefix, self.answer, self.verifier = generator, prefix, answer, verifier
        self.scope, self.sampling, self.scoring = scope, sampling, scoring
        self.candidates: list[Candidate] = []
        self._known: dict[bytes, Score] = {}
        self._pace = sampling.pace()

    async def to(
        self,
        n: int,
        *,
        step: int | None = None,
        enough: Callable[[abc.Sequence[Candidate]], bool] | None = None,
    ) -> list[Candidate]:
        """All candidates, once there are n, or fewer: if a budget ends, or `enough` says so.

        enough: asked after every `step` candidates, also where a limit makes the waves smaller. The refusal is raised
        if there is not even one.
        """
        step = step or n
        while (start := len(self.candidates)) < n and (
            start % step or not start or enough is None or not enough(self.candidates)
        ):
            wave = n if self.verifier is None else self._pace.wave(start, n)
            size = min(wave, n - start, step - start % step)
            drawing = self._drawn(size, start)
            drawn = await (self.scope.attempt(drawing) if start else drawing)
            self.candidates += drawn or []
            if drawn is None or len(drawn) < size:
                break
        return self.candidates

    async def _drawn(self, n: int, start: int) -> list[Candidate]:
        drawn = await self.generator.generate(self.prefix, n=n, start=start, scope=self.sampling)
        return await self._judged(drawn)

    async def _judged(self, drawn: list[Sequence]) -> list[Candidate]:
        return await judged(
            drawn,
            self.scope,
            answer=self.answer,
            verifier=self.verifier,
            scoring=self.scoring,
            known=self._known,
        )
