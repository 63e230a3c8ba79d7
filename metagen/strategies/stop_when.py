"""Stopping by a function: what has been written is looked at every so often, and left as it is once that is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from metagen.border import answered
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Tokens, Until, digest
from metagen.strategies.base import Strategy

#: Whether a sequence, prompt and completion, is long enough.
Stops = Callable[[Sequence], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Steps:
    """Whether a completion has so many steps, those of its prefix included. What a step's length has cut is none."""

    count: int

    def __post_init__(self) -> None:
        if not is_count(self.count, 1):
            raise InputError(f"Steps({self.count!r}): expected the number of steps, at least 1")

    def __call__(self, sequence: Sequence) -> bool:
        return len(sequence.steps) >= self.count


class StopWhen(Strategy):
    """Goes on by blocks until `stops(sequence)` says so, or the generator ends.

    every: what a block is, `Tokens(count)` or `Step(delimiter)`; the text may go on behind what the function looked for
    by a block. name: part of the fingerprint, since a function has none; change it when the function changes its mind.
    `Steps(count)` has a name of its own, and wants every=Step(…). A sequence that the function stops has finish="stop".
    Blocks are leaf calls of the generator: they are recorded, and a run that is resumed asks the function again.

    Raises InputError without a name, and UnsupportedError for a generator that cannot go on from a block.
    """

    def __init__(
        self, generator: Generator, stops: Stops, *, name: str = "", every: Step | Tokens | None = None
    ) -> None:
        counts = isinstance(stops, Steps)
        if counts and not isinstance(every, Step):
            raise InputError(f"every={every!r}: blocks of tokens end no steps; give every=Step(delimiter)")
        if not (name or counts):
            raise InputError(
                f"name={name!r}: a function has no fingerprint of its own; name what it looks for"
            )
        if not (generator.accepts_prefix and generator.accepts_until):
            raise UnsupportedError(
                f"{generator!r} cannot be stopped and gone on with; StopWhen needs a generator that can, such as one "
                "over an engine with token ids"
            )
        self.generator, self.name, self.every = generator, name or repr(stops), every or Tokens(16)
        self._stops = stops

    @property
    def fingerprint(self) -> str:
        counts = (repr(self._stops),) if isinstance(self._stops, Steps) else ()
        return digest("stop_when", self.generator.fingerprint, self.name, repr(self.every), *counts).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        done, block = prefix, 0
        while done.finish is None and not await self._enough(done, prefix):
            (done,) = await self.generator.generate(
                done, until=self.every, scope=scope.child(f"block/{block}")
            )
            scope.offer(done)
            block += 1
        return done if done.finish is not None else replace(done, finish="stop")

    async def _enough(self, done: Sequence, prefix: Sequence) -> bool:
        """What there was before is never looked at alone: something is written in any case."""
        if done.text == prefix.text:
            return False
        return bool(await answered(self, self._stops, done, hint=bool))
