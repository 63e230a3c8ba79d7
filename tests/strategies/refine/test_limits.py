"""Refinement under limits: calls, tokens, deadlines, journals that end, cancellation, chains at equal budget."""

from __future__ import annotations

import asyncio

import pytest

from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence
from metagen.strategies.base import Result
from metagen.strategies.parallel import BestOfN
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import texts_by_round
from metagen.testing import CountingJournal, first_word, numbers
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.recorded import RecordedVerifier
from tests.strategies.refine.toys import PROMPT, tool, values, writes


@pytest.mark.parametrize("calls", range(9))
def test_wherever_calls_run_out_the_best_so_far_stands(calls: int) -> None:
    """Draft, score, tool, revision, score, tool, revision, score: the budget ends before, between and after each."""
    drafts = {"a": 0.2, "b": 0.6, "c": 0.4}
    strategy = Refinement(
        writes("a"),
        writes("b", "c"),
        verifier=values(dict(drafts)),
        feedback=tool(lambda: "no"),
        rounds=2,
    )
    journal = MemoryJournal()
    result = strategy.solve(PROMPT, budget={"calls": calls}, journal=journal)
    assert result.text == ["", "a", "a", "a", "a", "b", "b", "b", "b"][calls]
    assert result.usage.calls == calls and result.exhausted == (calls < 8)
    again = strategy.solve(
        PROMPT, budget={"calls": calls}, journal=journal
    )  # writes() has nothing more to give
    assert (again.text, again.candidates) == (result.text, result.candidates)
    score = result.sequence.scores["function"]
    assert (
        (score.value, score.verdict) == (drafts.get(result.text), None) if calls > 1 else score.value is None
    )


def test_a_draft_or_a_revision_that_the_budget_cuts_is_not_scored() -> None:
    def word(prefix: Sequence, seed: int, index: int) -> str:
        return "four"

    generator = FunctionGenerator(word, count=len, max_tokens=4)
    strategy = Refinement(generator, verifier=FunctionVerifier(lambda s: 0.5), rounds=3)
    result = strategy.solve(PROMPT, budget={"generated": 3})
    assert result.exhausted and result.text == "" and result.usage.generated == 0


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.08, 0.13])
def test_a_deadline_anywhere_leaves_the_best_and_a_replay_ends_alike(seconds: float) -> None:
    calls: list[str] = []

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        calls.append("write")
        await asyncio.sleep(0.02)
        return str(seed % 1000)

    async def remark(candidate: str) -> str:
        calls.append("remark")
        await asyncio.sleep(0.02)
        return "greater"

    measure = FunctionVerifier(lambda s: int(s.text) / 1000)
    strategy = Refinement(FunctionGenerator(write), verifier=measure, feedback=tool(remark), rounds=50)
    journal = MemoryJournal()
    first = strategy.solve(PROMPT, budget={"seconds": seconds}, journal=journal)
    calls.clear()
    again = strategy.solve(PROMPT, budget={"seconds": seconds}, journal=journal)
    assert first.exhausted and (again.text, again.candidates) == (first.text, first.candidates) and not calls
    found = [o.value for o in first.candidates if o.value is not None]
    assert not found or first.sequence.scores["function"].value == max(found)


def test_journal_cut_short_anywhere_resumes_to_the_same_end() -> None:
    strategy = Refinement(
        numbers(), verifier=first_word, feedback=tool(lambda candidate: candidate[:4]), rounds=3, memory=2
    )
    whole = CountingJournal()
    first = strategy.solve(PROMPT, journal=whole)
    rows = list(first.trace.rows)
    assert len(rows) == 4 + 4 + 3
    for kept in range(len(rows) + 1):

        async def resumed(kept: int = kept) -> tuple[Result, int]:
            journal = CountingJournal()
            await journal.record(rows[:kept])
            journal.recorded = 0
            return await strategy.asolve(PROMPT, journal=journal), journal.recorded

        again, paid = asyncio.run(resumed())
        assert again.text == first.text and again.candidates == first.candidates
        assert paid == len(rows) - kept


def test_cancelled_in_a_revision_it_ends_and_keeps_what_was_paid_for() -> None:
    async def main() -> int:
        waiting = asyncio.Event()

        async def mend(prefix: Sequence, seed: int, index: int) -> str:
            waiting.set()
            await asyncio.sleep(60)
            return "never"

        journal = CountingJournal()
        strategy = Refinement(writes("a"), FunctionGenerator(mend), verifier=values({"a": 0.1}))
        task = asyncio.create_task(strategy.asolve(PROMPT, journal=journal))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return journal.recorded

    assert asyncio.run(main()) == 2


def test_chains_side_by_side_at_equal_budget_and_what_they_cost() -> None:
    """n chains of depth d by nesting: the scores that the chains have paid for choose among them."""
    inner = Refinement(numbers(), verifier=first_word, rounds=2)
    chains = BestOfN(inner, 3, verifier=RecordedVerifier(first_word.name))
    samples = BestOfN(numbers(), 9, verifier=first_word)
    deep, wide = chains.solve(PROMPT), samples.solve(PROMPT)
    assert deep.usage.calls == wide.usage.calls == 18
    rows = [r for r in deep.trace.rows if r.kind == "generate" and r.payload]
    best = max(
        (r.payload["text"] for r in rows if r.payload),
        key=lambda text: float(text.splitlines()[-1].split()[0]),
    )
    assert deep.text == best
    assert {place: len(found) for place, found in texts_by_round(deep.trace).items()} == {
        f"0/sample/{i}": 3 for i in range(3)
    }
    for calls in range(19):
        result = chains.solve(PROMPT, budget={"calls": calls})
        assert result.usage.calls <= calls and result.exhausted == (calls < 18)
