"""An engine that does not count what it generates, under a budget: each sample is paid for once, at its worst."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from metagen.budget import Budget
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Thought


class Uncounted(EnumerableEngine):
    asked = 0

    async def generate(self, request: GenerateRequest) -> Generated:
        self.asked += 1
        answer = await super().generate(request)
        return replace(answer, samples=tuple(replace(s, generated=None) for s in answer.samples))


def test_a_thought_takes_what_it_has_tokens_or_else_bytes() -> None:
    table, empty = {("a",) * i: (0.5, 0.5) for i in range(8)}, Sequence.of("?")
    for counted in (True, False):
        engine = EnumerableEngine(("a", "$"), table)
        if not counted:
            engine.tokenizer_fingerprint = None  # type: ignore[assignment]
        generator = engine.generator(max_tokens=9)
        for thought, size in ((None, 0), (Thought("é", tokens=1), 1), (Thought("é"), 2), (Thought(), 0)):
            begun = replace(empty.extend("aa"), thought=thought)
            assert generator.most(begun, None) == 9 - 2 - size


def test_a_record_of_one_answers_no_tighter_limit_and_is_not_taken_for_whole() -> None:
    """Whichever comes first, with a budget and without: under it the text is cut, and without it is whole."""
    table = {("a",) * i: (1.0, 0.0) for i in range(8)} | {("a",) * 8: (0.0, 1.0)}

    async def drawn(budget: Budget | None) -> Sequence:
        scope = Scope.root("p", budget=budget, journal=journal)
        (found,) = await generator.generate(Sequence.of(Prompt("p", text="?")), scope=scope)
        return found

    for order in ((None, Budget(generated=4)), (Budget(generated=4), None)):
        journal = MemoryJournal()
        with Uncounted(("a", "$"), table) as engine:
            generator = EngineGenerator(engine, SamplingParams(max_tokens=12))
            found = {budget: asyncio.run(drawn(budget)) for budget in order}
        assert (found[None].text, found[None].finish) == ("a" * 8, "eos")
        cut = found[Budget(generated=4)]
        assert (cut.text, cut.exhausted) == ("aaaa", True)


def test_a_sample_that_nobody_counted_ends_a_call_that_a_budget_has_cut_short() -> None:
    with Uncounted(("a", "$"), {(): (0.5, 0.5), ("a",): (0.5, 0.5), ("a", "a"): (0.0, 1.0)}) as engine:
        generator = EngineGenerator(engine, SamplingParams(max_tokens=8))
        scope = Scope.root("p", budget=Budget(generated=5))
        call = generator.generate(Sequence.of(Prompt("p", text="?")), scope=scope)
        (found,) = asyncio.run(asyncio.wait_for(call, 20))
    assert found.text in ("", "a", "aa") and engine.asked == 1
