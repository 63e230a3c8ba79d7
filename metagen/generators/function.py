"""A generator made of a function: for tests, for plug-in authors, for anything that writes text."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from metagen.cost import Usage
from metagen.generators.engine import Sample
from metagen.generators.primitive import Primitive, payload
from metagen.scope import Item, Outcome, Scope
from metagen.sequence import Sequence, Until, digest

#: (prefix, seed, index) → the text that continues the prefix, or a whole Sample.
Function = Callable[[Sequence, int, int], str | Sample | Awaitable[str | Sample]]


class FunctionGenerator(Primitive):
    """Calls `function(prefix, seed, index)` once per sample; it may be async.

    A returned string is a finished continuation (`eos`); return a `Sample` to say more.
    name: part of the fingerprint; change it when the function changes its mind.
    count: tokens of a text, for the accounting; without it token counts are unknown.
    max_tokens: the most that the function ever writes, by `count`; needed under a token budget.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = "function",
        count: Callable[[str], int] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._function, self._count, self._max_tokens = function, count, max_tokens
        self._fingerprint = digest("function", name).hex()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope
    ) -> list[Outcome]:
        return [await self._one(prefix, item, scope) for item in items]

    async def _one(self, prefix: Sequence, item: Item, scope: Scope) -> Outcome:
        result = self._function(prefix, scope.seed(item), item.index)
        written = await result if inspect.isawaitable(result) else result
        sample = written if isinstance(written, Sample) else Sample(written, None, None, finish="eos")
        generated = sample.generated
        if generated is None and self._count is not None:
            generated = self._count(sample.text)
        prefilled = self._count(prefix.prompt.text or "") if self._count else None
        usage = Usage(prefilled=prefilled, generated=generated, flops=None, flops_2n=None)
        return Outcome(payload(sample), usage, Usage(prefilled=prefilled, generated=generated, calls=1))

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        prefilled = n * self._count(prefix.prompt.text or "") if self._count else None
        generated = None if self._max_tokens is None or self._count is None else n * self._max_tokens
        return Usage(prefilled=prefilled, generated=generated, calls=n, flops=None, flops_2n=None)
