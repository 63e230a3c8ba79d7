"""The laws of what engines begin: nothing that somebody may have computed is handed back to a limit."""

from __future__ import annotations

import asyncio
from collections import abc
from dataclasses import replace

import pytest

from metagen.attempts import Attempt, Lost
from metagen.budget import Budget
from metagen.errors import BudgetExhausted, EngineError
from metagen.generators.engine import Engine
from metagen.generators.primitive import EngineGenerator
from metagen.scope import Scope
from metagen.testing.asking import EngineTrial


class AttemptLaws(EngineTrial):
    """What an engine tells of its attempts, and what a scope makes of work that is cut off."""

    def test_attempts_are_told_before_they_begin_or_not_at_all(self, engine: Engine) -> None:
        """Each sample belongs to an attempt by then, and one that ended is not called free."""
        begun: list[int] = []
        free: list[abc.Sequence[int]] = []

        async def begin(numbers: abc.Sequence[int]) -> Attempt:
            begun.extend(numbers)
            return Attempt(lambda state: free.append(numbers) if state == "free" else None)

        request = replace(self.request(8), begin=begin)
        self.ask(engine, request)
        tells = getattr(engine, "tells_attempts", False)
        assert set(begun) == set(range(8) if tells else ()), "told of all samples, or of none"
        assert not set(request.ended) & {number for numbers in free for number in numbers}

    def test_without_leave_nothing_begins(self, engine: Engine) -> None:
        if not getattr(engine, "tells_attempts", False):
            return

        async def begin(numbers: abc.Sequence[int]) -> Attempt:
            raise BudgetExhausted("calls", 0, len(numbers), 0)

        before = engine.stats.samples
        with pytest.raises(BudgetExhausted):
            self.ask(engine, replace(self.request(4), begin=begin))
        assert engine.stats.samples == before

    def test_what_is_cut_off_stays_charged(self, engine: Engine) -> None:
        """Each sample is a call that ended or one that was lost, however many turns the call had."""
        generator = EngineGenerator(engine, self.request(1).params.replace(max_tokens=self.most))

        async def cut(turns: int) -> None:
            scope = Scope.root("law", budget=Budget(calls=20))
            work = asyncio.ensure_future(generator.generate(self.prefixes[0], n=8, scope=scope))
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            self._check_account(scope, engine, begun=turns > 1)

        for turns in (0, 1, 3, 10, 50):
            asyncio.run(asyncio.wait_for(cut(turns), self.patience))

    def test_what_an_engine_fails_at_stays_charged(self, engine: Engine) -> None:
        """It is closed while it works."""

        async def fail(other: Engine) -> None:
            generator = EngineGenerator(other, self.request(1).params.replace(max_tokens=self.most))
            scope = Scope.root("law", budget=Budget(calls=20))
            work = asyncio.ensure_future(generator.generate(self.prefixes[0], n=8, scope=scope))
            for _ in range(5):
                await asyncio.sleep(0)
            await asyncio.to_thread(other.__exit__, None, None, None)
            (outcome,) = await asyncio.gather(work, return_exceptions=True)
            assert isinstance(outcome, list | EngineError)
            self._check_account(scope, other, begun=True)

        with self.make() as other:
            asyncio.run(asyncio.wait_for(fail(other), self.patience))

    def _check_account(self, scope: Scope, engine: Engine, *, begun: bool) -> None:
        rows = scope.trace.rows
        lost = sum(row.physical.calls for row in rows if isinstance(row, Lost))
        used = 20 - (scope.left().calls or 0)
        ended = sum(not isinstance(row, Lost) for row in rows)
        assert used == ended + lost <= 8, "what is charged is what ended and what was lost"
        if begun and not getattr(engine, "tells_attempts", False):
            assert used == 8, "all of it had begun"
