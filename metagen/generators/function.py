"""A generator made of a function: for tests, for plug-in authors, for anything that writes text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property

from metagen.border import call, call_or_await
from metagen.call import Ended, Item, Outcome
from metagen.cost import Usage
from metagen.errors import EngineError, InputError
from metagen.generators.engine import Sample
from metagen.generators.primitive import Primitive, letters, payload
from metagen.journal import Row
from metagen.parts import UNNAMED, fingerprint_of_functions
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Until

#: (prefix, seed, index) → the text that continues the prefix, or a whole Sample.
Function = Callable[[Sequence, int, int], str | Sample | Awaitable[str | Sample]]


class FunctionGenerator(Primitive):
    """Calls `function(prefix, seed, index)` once per sample; it may be async.

    A returned string is a finished continuation (`eos`); return a `Sample` to say more. Where a step is asked for, a
    string ends with its first step, and the function is called again for the next: it should go on from the text of the
    prefix. A block of tokens is not cut, since only the function knows its tokens.

    name: part of the fingerprint, by which samples are found again; change it when the function changes its mind.
    Without one, what the function is called, does, closes over and reads stands in its place; with an object that
    nothing names among that, such as a client, samples are found again within the process only, and a warning says so
    where the journal is a file.
    count: tokens of a text, for the accounting; without it token counts are unknown.
    max_tokens: the most that the function ever writes, by `count`; needed under a token budget.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = UNNAMED,
        count: Callable[[str], int] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._function, self._name = function, name
        self._count, self._max_tokens = count, max_tokens
        self._counted: tuple[Sequence, bytes, int] | None = None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_functions("function", self._name, self._function)

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        if len(items) == 1:
            return [await self._one(prefix, items[0], until, scope)]

        async def run_item(place: int, item: Item) -> Outcome:
            ended[place] = outcome = await self._one(prefix, item, until, scope)
            return outcome

        return await scope.gather(*(run_item(i, item) for i, item in enumerate(items)))

    async def _one(self, prefix: Sequence, item: Item, until: Until, scope: Scope) -> Outcome:
        written = await call_or_await(
            self, self._function, prefix, scope.seed(item), item.index, hint=str | Sample
        )
        sample = written if isinstance(written, Sample) else _first_step(written, until)
        generated = sample.generated
        if generated is None and self._count is not None:
            generated = self._tokens(sample.text)
        if self._max_tokens is not None and generated is None:
            raise InputError(
                f"FunctionGenerator: max_tokens={self._max_tokens!r} is counted by count, which is missing; give "
                "count, or leave max_tokens out"
            )
        if self._max_tokens is not None and generated is not None and generated > self._max_tokens:
            raise EngineError(
                f"the function of problem {prefix.prompt.problem_id!r} wrote {generated} tokens and may write "
                f"{self._max_tokens}: {sample.text[:60]!r}; raise max_tokens, or let it write less"
            )
        total, prefilled = self._prompt_tokens(prefix, scope.prefixes(self.fingerprint).add)
        cached = None if total is None or prefilled is None else total - prefilled
        usage = Usage(prefilled=prefilled, cached=cached, generated=generated, flops=None, flops_2n=None)
        return Outcome(payload(sample), usage, Usage(prefilled=total, generated=generated, calls=1))

    def _prompt_tokens(
        self, prefix: Sequence, count_known: Callable[[bytes], int]
    ) -> tuple[int | None, int | None]:
        """Tokens of a prefix, and those of them that are not paid for; None without `count`.

        Samples of one prefix follow each other, so that it is counted once for all of them.
        """
        if self._count is None:
            return None, None
        counted = self._counted
        if counted is None or counted[0] is not prefix:
            text = letters(prefix)
            self._counted = counted = (prefix, text, self._tokens(text.decode("utf-8", "surrogatepass")))
        _, text, total = counted
        return total, total - total * count_known(text) // len(text)

    def _tokens(self, text: str) -> int:
        assert self._count is not None
        return int(call(self, self._count, text, hint=int))

    def remember(self, prefix: Sequence, scope: Scope, rows: list[Row]) -> None:
        scope.prefixes(self.fingerprint).note(letters(prefix))

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        _, prefilled = self._prompt_tokens(prefix, scope.prefixes(self.fingerprint).count_known)
        generated = None if self._max_tokens is None or self._count is None else n * self._max_tokens
        return Usage(prefilled=prefilled, generated=generated, calls=n, flops=None, flops_2n=None)


def _first_step(text: str, until: Until) -> Sample:
    """A returned text, without what follows the step that was asked for."""
    end = text.find(until.delimiter) + len(until.delimiter) if isinstance(until, Step) else len(text)
    if isinstance(until, Step) and until.delimiter in text and end < len(text):
        return Sample(text[:end], None, None, step_end=end)
    return Sample(text, None, None, finish="eos")
