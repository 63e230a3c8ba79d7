"""Steps that a function ends, where neither a delimiter nor a number of tokens says enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from metagen.border import checked
from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Tokens
from metagen.values import Count

#: The end of the first step in a text that begins with a step, in characters; None if it goes on.
Find = Callable[[str], int | None]


@checked
@dataclass(frozen=True, slots=True)
class Split:
    """A step ends where `find` says; it grows by blocks of `block` tokens until then, and is cut after `blocks` of
    them.

    Like a delimiter, the end leaves the rest of its block to the next step: nothing that was generated is thrown away.
    name: enters fingerprints; change it when the function changes its mind.
    """

    find: Find
    name: str
    block: Count = 16
    blocks: Count = 16

    def __repr__(self) -> str:
        return f"Split({self.name!r}, block={self.block}, blocks={self.blocks})"

    async def generate(
        self, generator: Generator, prefix: Sequence, *, n: int, start: int, scope: Scope
    ) -> list[Sequence]:
        """Steps number start … start + n − 1 that continue `prefix`; what `Generator.generate` says holds here too."""
        begun = await generator.generate(prefix, n=n, start=start, until=Tokens(self.block), scope=scope)
        before = len(prefix.text)
        numbered = list(enumerate(begun, start))
        ended = await scope.batch(numbered, lambda one: self._whole(generator, before, scope, one[1], one[0]))
        return ended.whole()

    async def _whole(
        self, generator: Generator, before: int, scope: Scope, begun: Sequence, number: int
    ) -> Sequence:
        """The step that begins after `before` characters, to its end. A budget that ends on the way leaves it open."""
        for block in range(1, self.blocks + 1):
            if (ended := self._mark_ends(begun)).steps and ended.steps[-1] > before:
                return ended
            if begun.finish is not None:
                return begun
            if block == self.blocks:
                break
            place = scope.child(f"more/{number}.{block}")
            more = await scope.attempt(generator.generate(begun, until=Tokens(self.block), scope=place))
            if more is None:
                return begun
            (begun,) = more
        return replace(begun, cut=True)

    def _mark_ends(self, sequence: Sequence) -> Sequence:
        """The sequence with the ends of the steps that it now has."""
        ends, start = list(sequence.steps), max(sequence.steps, default=0)
        while start < len(sequence.text) and (length := self.find(sequence.text[start:])) is not None:
            if not 0 < length <= len(sequence.text) - start:
                raise InputError(
                    f"{self!r}: find() says that a step of {len(sequence.text) - start} characters ends after "
                    f"{length!r}; expected a number from 1 on, or None while it goes on"
                )
            start += length
            ends.append(start)
        return replace(sequence, steps=tuple(ends))


#: How a search cuts sequences into steps: by a delimiter, by a number of tokens, or by a function.
Steps = Step | Tokens | Split


async def steps(
    generator: Generator, prefix: Sequence, until: Steps | None, *, n: int, start: int = 0, scope: Scope
) -> list[Sequence]:
    """`Generator.generate`, for steps of any kind."""
    if isinstance(until, Split):
        return await until.generate(generator, prefix, n=n, start=start, scope=scope)
    return await generator.generate(prefix, n=n, start=start, until=until, scope=scope)
