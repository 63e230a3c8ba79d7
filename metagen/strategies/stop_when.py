"""Stopping by a function: what has been written is looked at every so often, and left as it is once that is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from metagen.border import call_or_await, checked
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Tokens, Until
from metagen.strategies.base import Strategy
from metagen.values import Count

#: Whether a sequence, prompt and completion, is long enough.
Stops = Callable[[Sequence], bool | Awaitable[bool]]


@checked
@dataclass(frozen=True, slots=True)
class Steps:
    """Whether a completion has so many steps, those of its prefix included. What a step's length has cut is none."""

    count: Count

    def __call__(self, sequence: Sequence) -> bool:
        return len(sequence.steps) >= self.count


@part
class StopWhen(Strategy):
    """Goes on by blocks until `stops(sequence)` says so, or the generator ends.

    every: what a block is, `Tokens(count)` or `Step(delimiter)`; the text may go on behind what the function looked for
    by a block. name: part of the fingerprint, since a function has none; change it when the function changes its mind.
    `Steps(count)` has a name of its own, and wants every=Step(…). A sequence that the function stops has finish="stop".
    Blocks are leaf calls of the generator: they are recorded, and a run that is resumed asks the function again.

    Raises InputError without a name, and UnsupportedError for a generator that cannot go on from a block.
    """

    generator: Generator = field(kw_only=False)
    stops: Stops = field(kw_only=False)
    name: str = ""
    every: Step | Tokens | None = None

    def __post_init__(self) -> None:
        counts = isinstance(self.stops, Steps)
        if counts and not isinstance(self.every, Step):
            raise InputError(
                f"every={self.every!r}: blocks of tokens end no steps; give every=Step(delimiter)"
            )
        if not (self.name or counts):
            raise InputError(
                f"name={self.name!r}: a function has no fingerprint of its own; name what it looks for"
            )
        if not (self.generator.accepts_prefix and self.generator.accepts_until):
            raise UnsupportedError(
                f"{self.generator!r} cannot be stopped and gone on with; StopWhen needs a generator that can, such as "
                "one over an engine with token ids"
            )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        done, block = prefix, 0
        while done.finish is None and not await self._enough(done, prefix):
            (done,) = await self.generator.generate(
                done, until=self.every or Tokens(16), scope=scope.child(f"block/{block}")
            )
            scope.offers.clear()
            scope.offer(done)
            block += 1
        return done if done.finish is not None else replace(done, finish="stop")

    async def _enough(self, done: Sequence, prefix: Sequence) -> bool:
        """What there was before is never looked at alone: something is written in any case."""
        if done.text == prefix.text:
            return False
        return bool(await call_or_await(self, self.stops, done, hint=bool))
