"""A strategy made of an async function: for those who prefer code to a graph."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, cast

from metagen.border import call_or_await, checked
from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, offer
from metagen.verifiers.base import AnswerRule

#: (prefix, scope) → the sequence, under whatever prompt, or the text that answers.
Program = Callable[[Sequence, Scope], Awaitable[Sequence | str]]


class FunctionStrategy(Strategy):
    """Runs `program(prefix, scope)`, and re-roots what it returns on the prefix.

    The program calls generators, verifiers, strategies and tools under `scope.child(role)`, and may offer candidates.
    The parts that it refers to by name, in its closure or its module, enter the fingerprint, and an oracle among
    them marks the strategy as one; what it reaches in other ways belongs into `uses`.

    name: part of the fingerprint; change it when the program changes its mind. By default the function's name. Raises
    InputError for a program that is not async, or has no name.
    """

    def __init__(
        self,
        program: Program,
        *,
        name: str | None = None,
        uses: Iterable[object] = (),
        answer: AnswerRule | None = None,
    ) -> None:
        name = name or str(getattr(program, "__name__", ""))
        if not inspect.iscoroutinefunction(program):
            raise InputError(
                f"the program {name!r} is no async function; write async def {name}(prefix, scope)"
            )
        if name in ("", "<lambda>"):
            raise InputError(f"the program is called {name!r}; give it name=, which tells it from others")
        self.program, self.name, self.answer = program, name, answer
        self.uses = (
            *uses,
            *(p for p in _references(program) if isinstance(getattr(p, "fingerprint", None), str)),
        )

    @property
    def fingerprint(self) -> str:
        parts = sorted({cast(Any, part).fingerprint for part in self.uses})
        return digest(
            "function strategy", self.name, *parts, self.answer.fingerprint if self.answer else ""
        ).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        written = await call_or_await(self, self.program, prefix, scope, hint=Sequence | str)
        sequence = (
            prefix.extend(written, finish="eos") if isinstance(written, str) else written.reroot(prefix)
        )
        (answer,) = await self.answer.read([sequence]) if self.answer else (None,)
        offer(Candidate(sequence, answer), scope)  # beside what the program has offered
        return sequence


def _references(program: Any) -> Iterator[object]:
    """What the code of a function refers to by name, functions and comprehensions inside of it included."""
    for cell in program.__closure__ or ():
        with suppress(ValueError):  # empty, as that of the function's own name while it is being decorated
            yield cell.cell_contents
    codes = [program.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield from (program.__globals__[name] for name in code.co_names if name in program.__globals__)


@checked
def strategy(
    *, name: str | None = None, uses: Iterable[object] = (), answer: AnswerRule | None = None
) -> Callable[[Program], FunctionStrategy]:
    """Decorator: `@strategy()` makes a FunctionStrategy of an async function (prefix, scope)."""
    return lambda program: FunctionStrategy(program, name=name, uses=uses, answer=answer)
