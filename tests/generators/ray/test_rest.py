"""What a lost replica had told of is not bought again where engines bill."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Numbers
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.attempts import UNTOLD, Attempt
from metagen.generators.engine import EngineStats, Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.ray.crew import Crew, Policy
from metagen.generators.ray.link import Lost
from metagen.generators.routing import Router
from metagen.sequence import Sequence

SEEDS = (10, 11, 12, 13)


def made(seed: int) -> Sample:
    return Sample(f"text {seed}", None, 1, finish="eos")


class Paper(Crew):
    """Replicas without processes: all but the last are lost, each when the first sample of its request has ended."""

    over = None

    def __init__(self, replicas: int, **facts: bool) -> None:
        super().__init__(Policy(), Router())
        self.facts = SimpleNamespace(**facts)  # type: ignore[assignment]  # all that is asked of them
        self.asked: list[tuple[int, ...]] = []
        for name in map(str, range(replicas)):
            self.links[name] = SimpleNamespace(  # type: ignore[assignment]  # all that a crew asks of a link
                name=name, stats=EngineStats(), ask=self._answer, admit=self._admit, clear=lambda: None
            )
            self._router.join(name)

    async def _admit(self) -> bool:
        return True

    async def _answer(self, request: GenerateRequest) -> Generated:
        self.asked.append(request.seeds)
        await request.attempt(range(len(request.seeds)))
        request.note(0, made(request.seeds[0]), 7, share=(7, 0, 7, 1))
        if len(self.links) > 1:
            self._forget(self.links[str(len(self.asked) - 1)])
            raise Lost("was killed")
        return Generated(tuple(map(made, request.seeds)), None, 7, 7, 0)


@pytest.mark.parametrize("bills", [True, False])
def test_samples_that_had_ended_are_asked_for_again_only_where_nobody_bills(bills: bool) -> None:
    begun: list[tuple[int, ...]] = []
    heard: list[int] = []

    async def begin(numbers: Numbers[int]) -> Attempt:
        begun.append(tuple(numbers))
        return UNTOLD

    def hear(number: int, sample: Sample, tokens: int | None) -> None:
        heard.append(number)

    async def main() -> tuple[Paper, GenerateRequest, Any]:
        crew = Paper(3, bills=bills, tells_attempts=True)
        request = GenerateRequest(Sequence.of("x"), SEEDS, SamplingParams(), 5, heard=hear, begin=begin)
        # A sample in the middle ended first.
        request.note(2, made(12), 7, share=(0, 7, 7, 1))
        return crew, request, await crew.ask(request, None, 4)

    crew, request, answer = asyncio.run(main())
    assert answer.samples == tuple(map(made, SEEDS)) and request.told == [7]
    if not bills:
        assert crew.asked == [SEEDS] * 3 and begun == [(0, 1, 2, 3)] * 3
        return
    assert crew.asked == [SEEDS, (11, 13), (13,)] and begun == [(0, 1, 2, 3), (1, 3), (3,)]
    assert heard == [2, 0, 1] and sorted(request.ended) == [0, 1, 2, 3]
    assert request.shares == {i: (0, 7, 7, 1) if i == 2 else (7, 0, 7, 1) for i in range(4)}
