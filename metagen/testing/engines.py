"""The laws of engines, as tests: subclass `EngineLaws` in a test module and give `make`.

class TestMine(EngineLaws):
    prompts = ("Q: 1+1=", "Q: 2+2=", "Q: 3+3=", "Q: 4+4=")

    def make(self):
        return MyEngine("model")
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from metagen.errors import EngineError, InputError, UnsupportedError
from metagen.generators.decoding.parameters import BEYOND
from metagen.generators.engine import (
    Engine,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
)
from metagen.generators.primitive import EngineGenerator
from metagen.scope import Scope
from metagen.sequence import Tokens
from metagen.testing.asking import FEATURES, seeds
from metagen.testing.attempts import AttemptLaws
from metagen.testing.evaluation import EvaluationLaws
from metagen.testing.generation import GenerationLaws
from metagen.testing.streams import StreamLaws

#: When a storm of requests is cancelled, as shares of the time that it takes to its end.
SHARES = (0.0, 0.2, 0.5, 0.8)


class EngineLaws(GenerationLaws, EvaluationLaws, AttemptLaws, StreamLaws):
    """What every Engine promises. What yours is, and what it is without, is said by the attributes of `EngineTrial`.

    Steps, blocks, budgets and records of a generator that decodes with it are the matter of `GeneratorLaws`.
    """

    # -- neighbours ------------------------------------------------------------------------------

    def test_thousands_ask_at_once(self, engine: Engine) -> None:
        known = 20 * len(self.prompts)
        expected = self.draw(engine, *self._short(range(known)))
        found = self.draw(engine, *self._short(range(self.many)))
        assert len(found) == self.many
        assert all(sample.generated is None or sample.generated <= 2 for sample in found)
        if "seeds" not in self.without:
            self.same(found, [expected[i % known] for i in range(self.many)])

    def _short(self, numbers: range) -> list[GenerateRequest]:
        """Requests of two tokens, which come again and again: 20 seeds of each prompt."""
        prompts = len(self.prompts)
        return [self.request(seeds(1, i // prompts % 20), i % prompts, most=2) for i in numbers]

    def test_event_loops_of_several_threads_ask_at_once(self, engine: Engine) -> None:
        wanted = [self.request(2, i) for i in range(len(self.prompts))]
        expected = self.draw(engine, *wanted)
        with ThreadPoolExecutor(3) as threads:
            loops = [threads.submit(self.draw, engine, *wanted) for _ in range(3)]
        for loop in loops:
            found = loop.result()
            assert len(found) == len(expected)
            if "seeds" not in self.without:
                self.same(found, expected)

    def test_a_bad_request_harms_no_other(self, engine: Engine) -> None:
        good = [self.request(2, i) for i in range(len(self.prompts))]
        alone = self.draw(engine, *good)
        bad = [GenerateRequest(self.prefixes[0], (), good[0].params, 5), self.request(1, most=0)]
        if engine.max_context is not None:
            bad.append(self.request(1, most=engine.max_context))
        if not {"ids", "stop_token_ids"} & self.without:
            bad.append(self.request(1, stop_token_ids=(10**9,)))
        answers = self._outcomes(engine, good, bad)
        found = [sample for answer in answers[: len(good)] for sample in answer.samples]
        assert len(found) == len(alone)
        if "seeds" not in self.without:
            self.same(found, alone)
        for request, error in zip(bad, answers[len(good) :], strict=True):
            assert isinstance(error, InputError), f"{request} is no request, and got {error!r}"

    def _outcomes(self, engine: Engine, good: list[GenerateRequest], bad: list[GenerateRequest]) -> list[Any]:
        """Answers and errors, of all at once and of an Evaluate request that is none among them."""

        async def gather() -> list[Any]:
            calls = [engine.generate(request) for request in (*good, *bad)]
            return await asyncio.gather(
                *calls, engine.evaluate([EvaluateRequest((1,), ())]), return_exceptions=True
            )

        *answers, refused = asyncio.run(asyncio.wait_for(gather(), self.patience))
        assert isinstance(refused, InputError), (
            f"positions=() is no request, and evaluate came to {refused!r}"
        )
        return answers

    # -- cancelling ------------------------------------------------------------------------------

    def test_cancelled_requests_free_what_they_held_and_keep_what_had_ended(self, engine: Engine) -> None:
        began = time.monotonic()
        whole = self.ask(engine, *self._storm())
        took = time.monotonic() - began
        cut = [one for share in SHARES for one in self._cancel(engine, share * took)]
        after = self.draw(engine, *self._storm())
        kept = [(number, i, sample) for number, r in cut for i, sample in r.ended.items()]
        assert all(0 <= i < 8 for _, i, _ in kept)
        assert all(sample.finish is not None for _, _, sample in kept), "what had not ended is no sample"
        assert len(after) == 8 * len(whole)
        if "seeds" not in self.without:
            self.same(after, [sample for answer in whole for sample in answer.samples])
            self.same([s for _, _, s in kept], [whole[number].samples[i] for number, i, _ in kept])

    def test_samples_are_told_of_as_they_end_and_the_last_by_the_answer(self, engine: Engine) -> None:
        """Or none is, by an engine whose samples end together."""
        told: list[tuple[int, Sample]] = []
        request = replace(self.request(8), heard=lambda i, sample, tokens: told.append((i, sample)))
        (made,) = self.ask(engine, request)
        assert len(told) in (0, 7), "each of them but one"
        assert len({i for i, _ in told}) == len(told)
        assert all(made.samples[i] == sample for i, sample in told)

    def _storm(self) -> list[GenerateRequest]:
        return [self.request(seeds(8, 8 * i), i % len(self.prompts)) for i in range(12)]

    def _cancel(self, engine: Engine, pause: float) -> list[tuple[int, GenerateRequest]]:
        """The requests of a storm, by number, that had no answer when all were cancelled after so many seconds."""
        requests = self._storm()

        async def storm() -> list[tuple[int, GenerateRequest]]:
            tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
            await asyncio.sleep(pause)
            cut = [(number, requests[number]) for number, task in enumerate(tasks) if task.cancel()]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            kinds = Counter(type(one) for one in outcomes)
            assert kinds[asyncio.CancelledError] == len(cut), f"{len(cut)} were cancelled: {kinds}"
            assert kinds[Generated] == len(tasks) - len(cut)
            return cut

        return asyncio.run(asyncio.wait_for(storm(), self.patience))

    def test_one_of_two_equal_requests_may_be_cancelled(self, engine: Engine) -> None:
        calm = self.draw(engine, self.request(4))

        async def one_of_two(turns: int) -> Any:
            gone, stays = (asyncio.create_task(engine.generate(self.request(4))) for _ in range(2))
            for _ in range(turns):
                await asyncio.sleep(0)
            gone.cancel()
            return (await asyncio.gather(gone, stays, return_exceptions=True))[1]

        for turns in (0, 1, 3):
            left = asyncio.run(asyncio.wait_for(one_of_two(turns), self.patience))
            assert isinstance(left, Generated), f"the one that stays came to {left!r}"
            assert len(left.samples) == len(calm)
            if "seeds" not in self.without:
                self.same(left.samples, calm)

    # -- what it says of itself ------------------------------------------------------------------

    def test_what_it_is_without_it_refuses_or_leaves_unknown(self, engine: Engine) -> None:
        assert self.without <= set(FEATURES), f"expected some of {', '.join(FEATURES)}"
        assert engine.supports <= BEYOND
        assert ("ids" in self.without) == (engine.tokenizer_fingerprint is None), (
            f"tokenizer_fingerprint is {engine.tokenizer_fingerprint!r}; expected None exactly if 'ids' is in `without`"
        )
        assert not ("ids" in self.without and {"until", "evaluate"} - self.without), "both need ids"
        (sample,) = self.draw(engine, self.request(1))
        assert ("ids" in self.without) == (engine.render(self.prefixes[0]) is None) == (sample.ids is None), (
            "expected render and sample.ids to be None exactly if 'ids' is in `without`"
        )
        for name, params in (
            ("stop_token_ids", {"stop_token_ids": (1,)}),
            ("ignore_eos", {"ignore_eos": True}),
            ("logprobs", {"logprobs": True}),
        ):
            if name in self.without:
                with pytest.raises(UnsupportedError):
                    self.draw(engine, self.request(1, **params))
        if "until" in self.without:
            generator = EngineGenerator(engine, SamplingParams(max_tokens=self.most))
            step = generator.generate(self.prefixes[0], until=Tokens(2), scope=Scope.root("law"))
            with pytest.raises(UnsupportedError):
                self.together(step)

    def test_another_of_the_same_model_is_the_same_engine(self, engine: Engine) -> None:
        """And it may be used from its opening to its closing, which wakes whoever still waits."""
        other = self.make()
        with pytest.raises(EngineError):
            self.draw(other, self.request(1))
        with other:
            assert (other.fingerprint, other.tokenizer_fingerprint) == (
                engine.fingerprint, engine.tokenizer_fingerprint,
            )  # fmt: skip
            found = self.draw(other, self.request(8))
            if "seeds" not in self.without:
                self.same(found, self.draw(engine, self.request(8)))
            outcomes = asyncio.run(asyncio.wait_for(self._close(other), self.patience))
        kinds = Counter(type(one) for one in outcomes)
        assert set(kinds) <= {Generated, EngineError}, f"whoever waits gets an EngineError, not {kinds}"
        with pytest.raises(EngineError):
            self.draw(other, self.request(1))
        if "evaluate" not in self.without:
            with pytest.raises(EngineError):
                self.evaluate(other, EvaluateRequest((0, 1), (0,)))
        other.__exit__(None, None, None)

    async def _close(self, engine: Engine) -> list[Any]:
        """What requests come to while the engine is closed."""
        tasks = [
            asyncio.create_task(engine.generate(self.request(8, i % len(self.prompts)))) for i in range(16)
        ]
        await asyncio.sleep(0.005)
        await asyncio.to_thread(engine.__exit__, None, None, None)
        return await asyncio.gather(*tasks, return_exceptions=True)
