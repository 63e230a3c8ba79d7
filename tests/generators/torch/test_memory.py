"""Long prompts that many rows read: the right numbers, and no more memory than was counted, at every step."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.kv.slots import IN_PLACE
from metagen.sequence import Sequence

PARAMS = SamplingParams(ignore_eos=True, logprobs=True)
WORDS = ("fox", "dog", "19", "abc", "jumps", "Step one", "数学", "7", "café", "lazy", "over", "12 + 7")


def text(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def request(prefix: str, seeds: Any, most: int = 20) -> GenerateRequest:
    return GenerateRequest(Sequence.of(prefix), tuple(seeds), PARAMS, most)


@contextmanager
def watched(
    engine: TorchEngine, held: Callable[[], int], look: Callable[[], None] = lambda: None
) -> Iterator[list[int]]:
    """Open the engine; after each of its steps, segments hold what the tree counts and, at most, what was promised.

    `look` is called then, in the engine's thread. Gives the tokens held beyond the tree, step by step. What is raised
    there fails the engine, hence the test.
    """
    step, model, tree, beyond = engine._scheduler.step, engine._model, engine._tree, []

    def checked() -> None:
        step()
        tokens, rest = divmod(held(), model.token_bytes)
        assert rest == 0
        assert tree.tokens + tree.reserved <= tree.capacity
        assert tree.tokens <= tokens <= tree.tokens + tree.reserved
        beyond.append(tokens - tree.tokens)
        look()

    engine._scheduler.step = checked  # type: ignore[method-assign] # to look on after each step
    with engine:
        yield beyond
    assert held() == tree.tokens * model.token_bytes, "what ran has left nothing but the tree"


def check(engine: TorchEngine, answers: list[Generated]) -> None:
    """The log-probabilities of all samples against transformers."""
    reference = AutoModelForCausalLM.from_pretrained(engine.directory, dtype=torch.float32).eval()
    for answer in answers:
        prefix = answer.prefix_ids
        assert prefix is not None
        for sample in answer.samples:
            assert sample.ids and sample.token_logprobs
            with torch.inference_mode():
                logits = reference(torch.tensor([prefix + sample.ids])).logits[0, len(prefix) - 1 : -1]
            want = torch.log_softmax(logits, -1).gather(1, torch.tensor(sample.ids)[:, None])[:, 0]
            assert list(sample.token_logprobs) == pytest.approx(want.tolist(), abs=2e-3)


def read_in_place(engine: TorchEngine) -> list[int]:
    """Lengths of the segments, all of them the tree's, that running rows read in place."""
    nodes, segments = [engine._tree.root], []
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        segments.append(node.segment)
    found = {id(p): p for row in engine._model._kv._chains.in_place for s in row for p in s.pieces()}
    assert all(any(piece is segment for segment in segments) for piece in found.values())
    return sorted(map(len, found.values()))


def test_long_prompts_that_diverge_after_a_few_tokens(model_dir: Any, held: Any) -> None:
    """The first splits the others' tree under rows that run; each is read in place by rows of several requests."""
    prompts = [f"Q: {i} {text(i, 120)}" for i in range(5)]
    engine = TorchEngine(model_dir("llama"), threads=1, max_batch=40)
    started, arrived = threading.Event(), threading.Event()
    seen: list[int] = []

    def look() -> None:
        if engine._rows.count == 3 and not started.is_set():
            started.set()
            assert arrived.wait(60)
        if engine._rows.count == 3 + 30 and not seen:
            seen.extend(read_in_place(engine))

    async def ask() -> list[Generated]:
        first = asyncio.create_task(engine.generate(request(prompts[0], range(3), 100)))
        await asyncio.to_thread(started.wait, 60)
        rest = [
            asyncio.create_task(engine.generate(request(p, range(i, i + 2), 60)))
            for p in prompts
            for i in (0, 10, 20)
        ]
        await asyncio.sleep(0)  # each of them reaches the engine
        arrived.set()
        return list(await asyncio.gather(first, *rest))

    with watched(engine, held, look) as beyond:
        answers = asyncio.run(ask())
    check(engine, answers[:1] + answers[1::3])
    assert len(seen) == len(prompts), "one segment for each prompt, whoever reads it"
    assert all(n >= IN_PLACE for n in seen)
    assert not any(beyond), "short tails: rows hold nothing of their own"


def test_few_shot_prefix_with_short_questions(model_dir: Any, held: Any) -> None:
    """A long prefix, of which others share the beginning, then a short question, many samples of each."""
    shots = text(7, 150)
    questions = [f"{shots} Q: {i}?" for i in range(6)]
    engine = TorchEngine(model_dir("llama"), threads=1, max_batch=48)
    seen: list[int] = []

    def look() -> None:
        if engine._rows.count == 48 and not seen:
            seen.extend(read_in_place(engine))
            slots = engine._model._kv._chains.slots
            assert len(slots._free) == len(slots.users) - len(questions), "a question has one slot"

    async def ask() -> list[Generated]:
        await engine.generate(request(shots[:5], (0,)))
        return list(await asyncio.gather(*(engine.generate(request(q, range(8), 50)) for q in questions)))

    with watched(engine, held, look):
        answers = asyncio.run(ask())
    check(engine, answers[::2])
    assert len(seen) == 1, "all read the one prefix"
    assert seen[0] > 300


def test_memory_is_counted_whatever_happens(model_dir: Any, held: Any) -> None:
    """Little memory; prompts that branch anywhere, rows that outgrow their tails, cancelled waits, evaluations."""
    base = text(3, 100)
    rng = random.Random(0)

    async def ask(engine: TorchEngine) -> list[Generated]:
        async def one(i: int) -> Generated | None:
            await asyncio.sleep(rng.random() * 0.4)
            prompt = base[: rng.randrange(1, len(base))] + text(i, rng.choice((1, 40)))
            call = engine.generate(request(prompt, range(rng.choice((1, 6))), rng.choice((5, 40, 150))))
            if i % 4:
                return await call
            if i % 8:
                tokens = engine.render(Sequence.of(prompt))
                await engine.evaluate([EvaluateRequest(tokens, (len(tokens) - 1,), (7,))])
            try:
                return await asyncio.wait_for(call, 0.05)
            except TimeoutError:
                return None

        answers = await asyncio.gather(*map(one, range(24)))
        await engine.generate(request("last", (0,)))  # by then all that was cancelled before is gone
        return [a for a in answers if a is not None]

    engine = TorchEngine(model_dir("llama"), threads=1, max_batch=8, kv_memory_bytes=1700 * 512)
    assert engine._model.token_bytes == 512
    with watched(engine, held) as beyond:
        answers = asyncio.run(ask(engine))
        assert engine._tree.evicted > 0, "memory was scarce"
    check(engine, answers[::5])
    assert max(beyond) > 0, "rows had frozen tails"
