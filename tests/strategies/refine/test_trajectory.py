"""Rounds as arrays, and what theory expects of them."""

from __future__ import annotations

import random

import numpy as np

from metagen.generators.function import FunctionGenerator
from metagen.sequence import Score, Sequence
from metagen.strategies.prompts import FollowUp
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import by_round
from metagen.testing import run
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.refine.toys import PROMPT, chain_of, values, writes


def test_values_and_copies_by_round_as_arrays() -> None:
    chains = [
        chain_of(Refinement(writes("a"), writes("a", "b"), verifier=values({"a": 0.5, "b": 1.0}), rounds=3)),
        chain_of(
            Refinement(
                writes("a"),
                writes("", "c"),
                verifier=values({"a": 0.5, "c": Score(None, verdict="odd")}),
                rounds=2,
            )
        ),
    ]
    found, copies = by_round(chains, 3)
    nan = np.nan
    np.testing.assert_array_equal(found, [[0.5, 0.5, 1.0, nan], [0.5, 0.5, nan, nan]])
    np.testing.assert_array_equal(copies, [[nan, 1, 0, nan], [nan, 0, 0, nan]])


def test_named_wrong_characters_come_right_at_the_rate_of_chance() -> None:
    """Each wrong character is drawn again, right with 1/4: after k rounds it is right with 1 − (3/4)^(k+1)."""
    target, rounds = "ABCDABCDABCDABCD", 4

    def draw(prefix: Sequence, seed: int, index: int) -> str:
        rng = random.Random(seed)
        draft, _, said = (prefix.prompt.text or "").removeprefix("Count:").partition("|")
        old = draft.strip() or "?" * len(target)
        named = {int(i) for i in said.split()} if said.strip() else set(range(len(target)))
        return "".join(rng.choice("ABCD") if i in named else c for i, c in enumerate(old))

    def spelt(sequence: Sequence) -> Score:
        wrong = [i for i, (a, b) in enumerate(zip(sequence.text, target, strict=True)) if a != b]
        return Score(1 - len(wrong) / len(target), feedback=" ".join(map(str, wrong)))

    strategy = Refinement(
        FunctionGenerator(draw), verifier=FunctionVerifier(spelt), rounds=rounds, ask=FollowUp("|{feedback}")
    )
    n = 100
    prefix = Sequence.of(PROMPT)
    chains, _ = run(lambda s: s.gather(*(strategy.trajectory(prefix, s.child(str(i))) for i in range(n))))
    found, _ = by_round(chains, rounds)
    # An accepted chain stays right. 1,600 characters: five standard errors are false once in 350,000 runs of five.
    filled = np.where(np.isnan(found), 1.0, found).mean(axis=0)
    expected = 1 - 0.75 ** np.arange(1, rounds + 2)
    assert np.all(np.abs(filled - expected) < 5 * np.sqrt(expected * (1 - expected) / (n * len(target))))
