"""Refinement on an embedded model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt
from metagen.strategies.refine.refinement import Refinement
from metagen.testing import CountingJournal
from metagen.verifiers.reward import ProcessRewardModel


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[TorchEngine, TorchEngine]]:
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        yield model, judge


def test_on_an_embedded_model_drafts_are_redrawn_until_the_reward_model_is_sure(
    engines: tuple[TorchEngine, TorchEngine],
) -> None:
    """The corrector gets the problem itself again, so that revisions keep their ids and log-probabilities."""
    model, judge = engines
    question = Prompt("q", text="Q:a=12+7;b=a*3;c=b-8;c?\nS:\n")
    strategy = Refinement(
        model.generator(max_tokens=120), verifier=ProcessRewardModel(judge), rounds=2,
        ask=lambda prompt, candidate, feedback: prompt,
    )  # fmt: skip
    journal = CountingJournal()
    result = strategy.solve(question, journal=journal)
    paid = journal.recorded
    assert 2 <= paid <= 6 and result.sequence.logprob is not None and result.sequence.tokens is not None
    found = [o.value for o in result.candidates if o.value is not None]
    assert result.sequence.scores["prm"].value == max(found)
    assert strategy.solve(question, journal=journal) == result and journal.recorded == paid
    for tokens in (20, 50):
        short = strategy.solve(question, budget={"generated": tokens})
        assert short.exhausted and short.usage.generated is not None and 0 < short.usage.generated <= tokens
        kinds = [row.kind for row in short.trace.rows if row.status != "refused"]
        assert kinds == (["generate"] if tokens == 20 else ["generate", "score", "generate"]), (
            "what is cut is not scored"
        )
        assert result.candidates[0].sequence.text.startswith(short.text) and short.text
