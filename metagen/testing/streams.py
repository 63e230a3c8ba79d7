"""The laws of texts that are told while they are written."""

from __future__ import annotations

import asyncio
from collections import abc, defaultdict
from dataclasses import replace
from typing import Any

import pytest

from metagen.generators.engine import Engine, GenerateRequest
from metagen.testing.asking import EngineTrial, inside, seeds

#: Seconds in which an engine that goes on telling would tell more.
PAUSE = 0.1


class StreamLaws(EngineTrial):
    """What an engine tells of samples on their way, where a request asks for it (`GenerateRequest.written`)."""

    def test_a_text_grows_while_it_is_told_and_becomes_the_samples(self, engine: Engine) -> None:
        """Of a single sample if the engine can; of several under their numbers, if at all."""
        ends = dict(inside(self.greedy(engine), 2))
        numbers = range(len(self.prompts))
        asked = [self.request(seeds(1, 1), i) for i in numbers]
        asked += [self.request(3, i) for i in numbers]
        asked += [self.request(1, i, temperature=0.0, stop=(stop,)) for i, stop in ends.items()]
        heard = [_Heard(request) for request in asked]

        async def gather() -> list[Any]:
            answers = await asyncio.gather(*(engine.generate(one.request) for one in heard))
            for one in heard:
                one.over = True
            await asyncio.sleep(PAUSE)
            return answers

        answers = asyncio.run(asyncio.wait_for(gather(), self.patience))
        for answer, one in zip(answers, heard, strict=True):
            assert not one.late, f"told of samples that had ended: {one.late}"
            assert set(one.texts) <= set(range(len(answer.samples)))
            for number, texts in one.texts.items():
                for shorter, longer in zip(texts, [*texts[1:], answer.samples[number].text], strict=True):
                    assert longer.startswith(shorter), f"{shorter!r} was told, and became {longer!r}"
        told = any(any(texts) for one in heard if len(one.request.seeds) == 1 for texts in one.texts.values())
        assert told or "written" in self.without, "no text was told; call `written`, or add it to `without`"
        assert not (told and "written" in self.without), "texts were told; take 'written' out of `without`"

    @pytest.mark.parametrize("told", [1, 3])
    def test_nothing_is_told_once_a_request_is_cancelled(self, engine: Engine, told: int) -> None:
        """All are cancelled when so many texts have been told."""
        self.need("written")
        heard = [
            _Heard(self.request(seeds(1, i), i % len(self.prompts))) for i in range(4 * len(self.prompts))
        ]

        async def cancel() -> None:
            loop, enough = asyncio.get_running_loop(), asyncio.Event()
            for one in heard:
                one.enough = lambda: loop.call_soon_threadsafe(enough.set) if _count(heard) >= told else None
            tasks = [asyncio.ensure_future(engine.generate(one.request)) for one in heard]
            begun = asyncio.ensure_future(enough.wait())
            ended = asyncio.ensure_future(asyncio.wait(tasks))
            await asyncio.wait({begun, ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
            assert enough.is_set(), (
                f"{_count(heard)} texts were told; add 'written' to `without` if it tells none"
            )
            ended.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for one in heard:
                one.over = True
            await asyncio.sleep(PAUSE)

        asyncio.run(asyncio.wait_for(cancel(), self.patience))
        late = [text for one in heard for text in one.late]
        assert not late, f"told when nobody waited any more: {late}"


class _Heard:
    """A request, and what is told of its texts. late: what was told when its sample had ended, or all was over."""

    def __init__(self, request: GenerateRequest) -> None:
        self.request = replace(request, written=self._hear)
        self.texts: defaultdict[int, list[str]] = defaultdict(list)
        self.late: list[tuple[int, str]] = []
        self.over = False
        self.enough: abc.Callable[[], object] = lambda: None

    def _hear(self, number: int, text: str) -> None:
        if self.over or number in self.request.ended:
            self.late.append((number, text))
        self.texts[number].append(text)
        self.enough()


def _count(heard: abc.Sequence[_Heard]) -> int:
    return sum(len(texts) for one in heard for texts in one.texts.values())
