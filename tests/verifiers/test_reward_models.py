"""Reward models on the torch engine, with the embedded process reward model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence
from metagen.testing import VerifierLaws, run
from metagen.verifiers.base import Verifier
from metagen.verifiers.reward import OutcomeRewardModel, ProcessRewardModel


def test_an_empty_completion_scores_nothing_and_harms_nobody() -> None:
    with TorchEngine("tiny-prm", threads=1) as judge:
        prompt = Sequence.of(Prompt("p", text="Q:a=12+7;a?\nS:\n"))
        sequences = [prompt, prompt.extend("a=12+7=19\nA:19\n", finish="eos")]
        (empty, full), rows = run(
            lambda s: ProcessRewardModel(judge).score(sequences, scope=s.child("score"))
        )
    assert (empty.value, empty.steps) == (0.0, ())
    assert full.steps is not None
    assert len(full.steps) == 2
    assert rows[0].usage.prefilled == 0


def test_a_completion_beyond_the_context_gets_a_verdict_and_harms_nobody() -> None:
    with TorchEngine("tiny-prm", threads=1, max_context=40) as judge:
        prompt = Sequence.of(Prompt("p", text="Q:a=12+7;a?\nS:\n"))
        sequences = [prompt.extend("a=1\n" * 20, finish="eos"), prompt.extend("a=1\n", finish="eos")]
        (long, short), _ = run(lambda s: ProcessRewardModel(judge).score(sequences, scope=s.child("score")))
    assert (long.value, long.verdict) == (None, "too long")
    assert short.value is not None


SOLVED = ("a=12+7=19\nA:19\n", "a=12+7=18\nA:18\n", "a=12")


class TestProcessRewardModel(VerifierLaws):
    prompt = Prompt("p", text="Q:a=12+7;a?\nS:\n")
    texts = SOLVED

    @contextmanager
    def make(self) -> Iterator[Verifier]:
        with TorchEngine("tiny-prm", threads=1) as engine:
            yield ProcessRewardModel(engine, aggregation="min")


class TestOutcomeRewardModel(TestProcessRewardModel):
    @contextmanager
    def make(self) -> Iterator[Verifier]:
        with TorchEngine("tiny-prm", threads=1) as engine:
            yield OutcomeRewardModel(engine)
