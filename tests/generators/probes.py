"""What an engine or a generator can do, found by asking it, in the words of the table in docs/engines.md."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from metagen.errors import UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.engine import Engine, EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step, Tokens

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
SCHEMA = json.dumps({"type": "object", "properties": {}, "additionalProperties": False})


def table() -> dict[str, dict[str, bool]]:
    """What the page says: column, row, whether it can."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for row in rows:
        assert len(row) == len(head), f"{row[0]!r} has {len(row)} cells of {len(head)}"
        assert all(cell.split(",")[0] in ("yes", "no") for cell in row[1:]), row
    return {
        name: {row[0]: row[i].split(",")[0] == "yes" for row in rows} for i, name in enumerate(head) if name
    }


class Probe:
    """Asks for one thing at a time. prompt: one that most completions end soon of; begun: what one begins with.

    A refusal is an UnsupportedError; what is not refused must be there in the answer.
    """

    def __init__(self, generator: Generator, prompt: str, begun: str, engine: Engine | None = None) -> None:
        self.generator, self.engine = generator.replace(max_tokens=64) if engine else generator, engine
        self.prefix = Sequence.of(Prompt("probe", text=prompt))
        self.begun = self.prefix.extend(begun)

    def found(self) -> dict[str, bool]:
        """Row, whether it can."""
        return {name: bool(self._answered(ask)) for name, ask in self._asks().items()}

    def _answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            try:
                return await asyncio.wait_for(ask(), 300)
            except UnsupportedError:
                return False

        return asyncio.run(asked())

    def _asks(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        return {
            "several samples of one prefix": self._several,
            "a seed gives its sample again": self._again,
            "token ids": self._ids,
            "a completion that was begun is gone on with": self._goes_on,
            "blocks of so many tokens": self._block,
            "steps up to a delimiter": self._step,
            "temperature, `top_p`": lambda: self._draw(temperature=0.7, top_p=0.9),
            "`top_k`": lambda: self._draw(top_k=2),
            "stop strings": lambda: self._draw(stop=("5",)),
            "`stop_token_ids`, `ignore_eos`": self._ends,
            "a [thought](how-to/http.md#models-that-think) is told apart from the answer": self._thinks,
            "log-probabilities of samples": self._logprobs,
            "best-k confidences (`top_logprobs`)": self._confidences,
            "other adapters": self._adapted,
            "grammars": self._held,
            "grammars that close in time (`close`), or allow every spelling": self._closes,
            "token healing": lambda: self._draw(healing=True),
            "what masks leave is kept (`log_mass`)": self._masses,
            "[searches](decoding/beam.md)": lambda: self._draw(search=BeamSearch(2)),
            "[drafts](decoding/speculative.md) (`draft`)": self._drafts,
            "log-probabilities of labels, or of given tokens": self._read,
            "entropies, and distributions behind adapters": self._distributions,
            "outputs of a head that scores": self._outputs,
            "tokens generated are counted": self._generated,
            "tokens of the prefix are counted": self._prefilled,
            "tokens read from a prefix cache are counted": self._cached,
            "a cancelled request frees what it holds": self._cancelled,
            "tokens cost money": self._bills,
        }

    async def _draw(self, n: int = 1, until: Any = None, **params: Any) -> list[Sequence]:
        generator = self.generator.replace(**params) if params else self.generator
        return await generator.generate(self.prefix, n=n, until=until, scope=Scope.root("probe", seed=1))

    async def _several(self) -> bool:
        return len(await self._draw(3)) == 3

    async def _again(self) -> bool:
        first, second = await self._draw(4), await self._draw(4)
        return [one.text for one in first] == [one.text for one in second]

    async def _ids(self) -> bool:
        (one,) = await self._draw()
        return one.tokens is not None

    async def _goes_on(self) -> bool:
        (one,) = await self.generator.generate(self.begun, scope=Scope.root("probe"))
        return one.text.startswith(self.begun.text)

    async def _block(self) -> bool:
        (one,) = await self._draw(until=Tokens(2))
        return one.tokens is not None and len(one.tokens.ids) <= 2

    async def _step(self) -> bool:
        (one,) = await self._draw(until=Step("\n"))
        return "\n" not in one.text[:-1]

    async def _ends(self) -> bool:
        await self._draw(ignore_eos=True)
        return bool(await self._draw(stop_token_ids=(3,)))

    async def _thinks(self) -> bool:
        generator = self.generator.replace(thought_end="5") if self.engine else self.generator
        some = await generator.generate(self.prefix, n=6, scope=Scope.root("probe"))
        return any(one.thought is not None for one in some)

    async def _logprobs(self) -> bool:
        generator = self.generator.replace(logprobs=True) if self.engine else self.generator
        (one,) = await generator.generate(self.prefix, scope=Scope.root("probe"))
        return one.logprob is not None

    async def _confidences(self) -> bool:
        (one,) = await self._draw(top_logprobs=2)
        return bool(one.token_confidences)

    async def _adapted(self) -> bool:
        return bool(await self._draw(logit_bias={0: -1.0}))

    async def _held(self) -> bool:
        return bool(await self._draw(grammar=Grammar.json(SCHEMA)))

    async def _closes(self) -> bool:
        await self._draw(grammar=Grammar.json(SCHEMA, close=True))
        return bool(await self._draw(grammar=Grammar.json(SCHEMA, canonical=False)))

    async def _masses(self) -> bool:
        (one,) = await self._draw(log_mass=True, grammar=Grammar.json(SCHEMA))
        return one.log_mass is not None

    async def _drafts(self) -> bool:
        """Of an engine that was given one."""
        await self._draw()
        return bool(self.engine and self.engine.stats.extra.get("blocks"))

    async def _read(self) -> bool:
        if self.engine is None:
            return False
        ids = self.engine.render(self.prefix) or (0, 1)
        following, labels = EvaluateRequest(ids, (0,)), EvaluateRequest(ids, (len(ids) - 1,), (0, 1))
        return len(await self.engine.evaluate([following, labels])) == 2

    async def _distributions(self) -> bool:
        if self.engine is None or (head := self.engine.render(self.prefix)) is None:
            return False
        params = SamplingParams(temperature=0.5)
        (read,) = await self.engine.evaluate(
            [EvaluateRequest(head, (len(head) - 1,), (3,), entropies=True, params=params, start=len(head))]
        )
        return read.entropies is not None

    async def _outputs(self) -> bool:
        if self.engine is None:
            return False
        return bool(await self.engine.evaluate([EvaluateRequest((0, 1), (0,), outputs=True)]))

    async def _answer(self) -> Generated:
        assert self.engine is not None
        params = SamplingParams(max_tokens=64)
        return await self.engine.generate(GenerateRequest(self.prefix, (1, 2), params, 64))

    async def _used(self) -> Scope:
        scope = Scope.root("probe")
        await self.generator.generate(self.prefix, scope=scope)
        return scope

    async def _generated(self) -> bool:
        return (await self._used()).usage.generated is not None

    async def _prefilled(self) -> bool:
        return (await self._used()).usage.prefilled is not None

    async def _cached(self) -> bool:
        return self.engine is not None and (await self._answer()).cached is not None

    async def _cancelled(self) -> bool:
        """It is given up; that nothing is left of it is for the laws of engines."""
        drawing = asyncio.create_task(self._draw(4))
        for _ in range(3):
            await asyncio.sleep(0.001)
        drawing.cancel()
        (outcome,) = await asyncio.gather(drawing, return_exceptions=True)
        return isinstance(outcome, asyncio.CancelledError)

    async def _bills(self) -> bool:
        return bool(getattr(self.engine, "bills", False))
