"""Drawing candidates: in waves, where a limit binds generating and scoring alike."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered

from metagen.budget import Budget
from metagen.errors import BudgetExhausted
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.candidates import Candidate, judged
from metagen.verifiers.base import AnswerRule, Verifier

#: What generating and scoring spend alike.
SHARED = ("prefilled", "calls", "flops", "money")


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
        self._before = sampling.left()

    async def to(
        self,
        n: int,
        *,
        step: int | None = None,
        enough: Callable[[Ordered[Candidate]], bool] | None = None,
    ) -> list[Candidate]:
        """All candidates, once there are n, or fewer: if a budget ends, or `enough` says so.

        enough: asked after every `step` candidates, also where a limit makes the waves smaller. Raises BudgetExhausted
        if there is not even one.
        """
        step = step or n
        while (start := len(self.candidates)) < n and (
            start % step or not start or enough is None or not enough(self.candidates)
        ):
            size = min(self._wave(start, n), n - start, step - start % step)
            try:
                drawn = await self.generator.generate(self.prefix, n=size, start=start, scope=self.sampling)
                self.candidates += await self._judged(drawn)
            except BudgetExhausted:
                if not self.candidates:
                    raise
                break
            if len(drawn) < size:
                break
        return self.candidates

    async def _judged(self, drawn: list[Sequence]) -> list[Candidate]:
        return await judged(
            drawn,
            self.scope,
            answer=self.answer,
            verifier=self.verifier,
            scoring=self.scoring,
            known=self._known,
        )

    def _wave(self, done: int, n: int) -> int:
        """How many to draw before scoring: half of what the rest affords, going by the candidates so far.

        So a limit that binds generating and scoring alike never ends with a pool that nobody judged.
        """
        if self.verifier is None:
            return n
        before, left = self._before, self.sampling.left()
        limits = [d for d in SHARED if getattr(left, d) is not None]
        timed = left.seconds is not None
        if not limits and not timed:
            return n
        if not done:
            return 1
        half = max(1, int(_affords(before, left, limits, done, n) / 2))
        return min(half, done) if timed else half


def _affords(before: Budget, left: Budget, limits: list[str], done: int, n: int) -> float:
    """How many more candidates, at the mean cost of those so far."""
    spent = {d: (getattr(before, d) - getattr(left, d)) / done for d in limits}
    return min((getattr(left, d) / spent[d] for d in limits if spent[d] > 0), default=n)
