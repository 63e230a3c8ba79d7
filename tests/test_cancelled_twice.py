"""A call that is cancelled, and cancelled again while it writes what had ended, loses nothing of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.generators.engine import Generated, GenerateRequest
from metagen.generators.enumerable import EnumerableEngine
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

TOKENS = ("a", "b", "$")


class Steps(EnumerableEngine):
    """Tells of each sample when it ends, one step of the loop after the other or all at once."""

    def __init__(self, together: bool) -> None:
        super().__init__(TOKENS, lambda prompt, done: [0.4, 0.4, 0.2], name="steps")
        self.together, self.finished = together, list[str]()

    async def generate(self, request: GenerateRequest) -> Generated:
        async def one(number: int, seed: int) -> Generated:
            for _ in range(1 if self.together else number + 1):
                await asyncio.sleep(0)
            alone = replace(request, seeds=(seed,), heard=None, ended={})
            made = await super(Steps, self).generate(alone)
            self.finished.append(made.samples[0].text)
            request.note(number, made.samples[0])
            return made

        made = await asyncio.gather(*(one(i, seed) for i, seed in enumerate(request.seeds)))
        return replace(made[0], samples=tuple(one.samples[0] for one in made))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("n", [1, 4])
def test_what_had_ended_is_recorded_however_often_the_call_is_cancelled(
    n: int, together: bool, tmp_path: Path
) -> None:
    ended: dict[str, list[str]] = {}
    path = tmp_path / "journal.sqlite"
    with SQLiteJournal(path) as journal:

        async def main(engine: Steps, problem: str, waits: tuple[int, ...]) -> None:
            scope = Scope.root(problem, journal=journal)
            work = engine.generator(max_tokens=9).generate(
                Sequence(Prompt(problem, text="?")), n=n, scope=scope
            )
            task = asyncio.ensure_future(work)
            for wait in waits:
                for _ in range(wait):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])

        for step in range(16):
            for gaps in ((), (0,), (1,), (2,), (0, 0, 1)):
                with Steps(together) as engine:
                    problem = f"{step}-{gaps}"
                    asyncio.run(main(engine, problem, (step, *gaps)))
                    ended[problem] = engine.finished
    with SQLiteJournal(path, read_only=True) as journal:
        for problem, finished in ended.items():
            kept = {row.payload["text"] for row in journal.of_problem(problem) if row.payload}
            assert set(finished) <= kept, problem
    assert any(ended.values())
