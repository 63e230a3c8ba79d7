"""Earlier attempts in the prompt: bounded, and forgotten where they do not fit."""

from __future__ import annotations

import pytest

from metagen.errors import PromptError
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.parallel import BestOfN
from metagen.strategies.refine.feedback import Critique
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import texts_by_round
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.refine.toys import LINE, PROMPT, chain_of, values, writes


def test_memory_carries_earlier_attempts_with_what_was_said_and_is_bounded() -> None:
    def prompts(memory: int, corrector: tuple[str, ...] = ("b", "c", "d")) -> list[str]:
        asked: list[str] = []
        given = iter(corrector)

        def mend(prefix: Sequence, seed: int, index: int) -> str:
            asked.append((prefix.prompt.text or "").removeprefix("Count:").replace("\n\n", ""))
            return next(given)

        verifier = FunctionVerifier(lambda s: Score(0.1, feedback=s.text.upper()))
        strategy = Refinement(
            writes("a"), FunctionGenerator(mend), verifier=verifier, rounds=3, ask=LINE, memory=memory
        )
        chain_of(strategy)
        return asked

    assert prompts(0) == ["a|A", "b|B", "c|C"]
    assert prompts(1) == ["a|A", "a|Ab|B", "b|Bc|C"]
    assert prompts(9) == ["a|A", "a|Ab|B", "a|Ab|Bc|C"]
    assert prompts(9, ("b", "a", "d")) == ["a|A", "a|Ab|B", "b|Ba|A"], "an attempt is told once"


def test_what_does_not_fit_the_context_is_forgotten_the_earliest_first() -> None:
    """A model with room for 40 characters; every attempt with its feedback takes 9 of them."""
    asked: list[str] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        if len(text) > 40:
            raise PromptError(f"{len(text)} characters exceed the context of 40")
        asked.append(text)
        return "bcdefgh"[len(asked) - 1]

    def make(feedback: str, memory: int) -> Refinement:
        verifier = FunctionVerifier(lambda s: Score(0.1, feedback=feedback))
        corrector = FunctionGenerator(mend)
        return Refinement(writes("a"), corrector, verifier=verifier, rounds=6, ask=LINE, memory=memory)

    chain = chain_of(make("123", 9))
    assert len(chain.rounds) == 7 and [one.count("|") for one in asked] == [1, 2, 3, 3, 3, 3]
    assert asked[-1].replace("\n", "") == "Count:d|123e|123f|123"
    asked.clear()
    corrector = BestOfN(FunctionGenerator(mend), 1, verifier=FunctionVerifier(lambda s: 0.0, name="zero"))
    told = FunctionVerifier(lambda s: Score(0.1, feedback="123"), name="told")
    nested = Refinement(writes("a"), corrector, verifier=told, rounds=5, ask=LINE, memory=9)
    result = nested.solve(PROMPT)
    assert [one.count("|") for one in asked] == [1, 2, 3, 3, 3], (
        "a strategy is asked again in a place of its own"
    )
    places = {row.path for row in result.trace.rows if row.kind == "generate"}
    assert "0/revise/5/memory/2/0/sample" in places
    asked.clear()
    plain = Refinement(writes("a"), FunctionGenerator(mend), verifier=told, rounds=5, ask=LINE, memory=9)
    assert texts_by_round(plain.solve(PROMPT).trace) == {"0": ["a", "b", "c", "d", "e", "f"]}
    asked.clear()
    chain = chain_of(make("1" * 40, 9))
    assert (chain.ended, len(chain.rounds), asked) == ("room", 1, [])
    assert make("1" * 40, 0).solve(PROMPT).text == "a"

    def too_long(prefix: Sequence, seed: int, index: int) -> str:
        raise PromptError("exceeds the context")

    blind = Refinement(writes("a"), writes("b"), feedback=Critique(FunctionGenerator(too_long)), rounds=1)
    assert blind.solve(PROMPT).text == "b"
    empty = Refinement(writes("a"), verifier=values({"a": 0.0}), ask=lambda p, c, f: Prompt("p", text=""))
    with pytest.raises(PromptError, match="is empty"):
        empty.solve(PROMPT)
