"""Rejection sampling: draw until the verifier accepts, up to a cap."""

from __future__ import annotations

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.aggregators import Best
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, judged
from metagen.verifiers.base import AnswerRule, Verifier


class RejectionSampling(Strategy):
    """The first of at most n samples, by number, with v(y) ≥ threshold; if there is none, the best by v.

    Accepted samples are draws of g conditioned on v ≥ threshold; the expected number of draws is 1/P(v ≥ threshold),
    if n does not bind. With a perfect verifier it is right as often as pass@n.

    batch: how many are drawn and scored at a time, so that engines are busy; up to batch − 1 are drawn in vain, and
    which one is returned does not depend on it. A candidate that is cut or has no answer (with `answer`) is never
    accepted. Raises InputError for n or batch < 1 and for a threshold outside [0, 1], UnsupportedError for joint draws.
    """

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        verifier: Verifier,
        threshold: float = 0.5,
        batch: int = 1,
        answer: AnswerRule | None = None,
    ) -> None:
        for name, value in (("n", n), ("batch", batch)):
            if value < 1:
                raise InputError(
                    f"rejection sampling: {name}={value!r}; expected a number of samples, at least 1"
                )
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"rejection sampling: threshold={threshold!r}; expected a score in [0, 1]")
        if not generator.independent:
            raise UnsupportedError(f"rejection sampling needs independent draws; {generator!r} draws jointly")
        self.generator, self.n, self.threshold, self.batch = generator, n, threshold, batch
        self.verifier, self.answer = verifier, answer

    @property
    def fingerprint(self) -> str:
        options = (str(self.n), repr(float(self.threshold)), str(self.batch))
        rule = self.answer.fingerprint if self.answer else ""
        return digest(
            "rejection", *options, self.generator.fingerprint, self.verifier.fingerprint, rule
        ).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        sampling, scoring = scope.child("sample"), scope.child("score")
        seen: list[Candidate] = []
        while len(seen) < self.n:
            n, start = min(self.batch, self.n - len(seen)), len(seen)
            sequences = await self.generator.generate(prefix, n=n, start=start, scope=sampling)
            drawn = await judged(
                sequences, scope, answer=self.answer, verifier=self.verifier, scoring=scoring
            )
            seen += drawn
            for one in drawn:
                if one.eligible and one.value is not None and one.value >= self.threshold:
                    return one.sequence.scored(self.verifier.name, one.score) if one.score else one.sequence
            if len(sequences) < n:
                break
        return await Best(self.verifier, answer=self.answer).aggregate(seen, prefix, scope)
