"""Length control by rejection: draw until the length is the one that was asked for (s1, Muennighoff et al. 2025)."""

from __future__ import annotations

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.sequential.length import Count, counter, counting, written
from metagen.verifiers.base import AnswerRule


class LengthControl(Strategy):
    """The first of at most `tries` samples that has from `least` to `most` new tokens; else the closest to that.

    What is cut or has no readable answer is taken only if there is nothing else. Among equals the first drawn wins.
    The samples are those of every parallel strategy over the generator. count: tokens of a text, for generators
    without ids. The length that a model finds by itself goes with how hard the problem is: choosing the
    short samples chooses among other things the easy lines of thought, and that is what s1 found wanting in it.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        least: int = 0,
        most: int,
        tries: int = 8,
        answer: AnswerRule | None = None,
        count: Count | None = None,
    ) -> None:
        if not (is_count(least, 0) and is_count(most, least) and is_count(tries, 1)):
            raise InputError(
                f"least={least!r}, most={most!r}, tries={tries!r}: expected 0 ≤ least ≤ most, and at least 1 try"
            )
        if not generator.independent:
            raise UnsupportedError(f"LengthControl draws until one fits; {generator!r} draws jointly")
        self.generator, self.answer = generator, answer
        self.least, self.most, self.tries = least, most, tries
        self._count, self._counting = counter(generator, count, type(self).__name__), counting(count)

    @property
    def fingerprint(self) -> str:
        rule = self.answer.fingerprint if self.answer else ""
        sizes = (str(self.least), str(self.most), str(self.tries))
        return digest("length control", self.generator.fingerprint, *sizes, rule, self._counting).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        drawing, best, least_off = scope.child("sample"), prefix, float("inf")
        for i in range(self.tries):
            (sample,) = await self.generator.generate(prefix, start=i, scope=drawing)
            (answer,) = await self.answer.read([sample]) if self.answer else (None,)
            tokens = written(prefix, sample, self._count)
            off = max(self.least - tokens, tokens - self.most, 0)
            whole = sample.finish in ("eos", "stop") and (answer is None or answer.key is not None)
            rank = off if whole else off + 1e9
            scope.offer(sample, -float(rank), answer.key if answer else None)
            if rank < least_off:
                best, least_off = sample, rank
            if rank == 0:
                break
        return best
