"""A real language model in vLLM, from its directory and with the adapter that ships, beside the torch engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.sequence import Message, Prompt, Sequence
from metagen.strategies.parallel import MajorityVote
from metagen.verifiers.math.rule import MathRule
from tests.fetched import fetch_or_skip
from tests.generators.vllm.test_engine import EPSILON, SHARE, ask, evaluate, gap, what

BASE, SOLVER = "smollm2-135m", "smollm2-135m-solver"
QUESTIONS = (
    "Tom has 5 apples and buys 7 more. How many apples does he have?",
    "A box holds 12 eggs. How many eggs do 4 boxes hold?",
    "Mia reads 9 pages a day. How many pages does she read in a week?",
    "What is the capital of France?",
    "Write a Python function that reverses a list.",
    "There are 30 birds on a tree, and 11 fly away. How many are left?",
)
PREFIXES = [
    Sequence.of(Prompt(f"q{i}", messages=(Message("user", question),)))
    for i, question in enumerate(QUESTIONS)
]
GREEDY = SamplingParams(temperature=0.0, logprobs=True)


@pytest.fixture(scope="module")
def directory() -> Path:
    return fetch_or_skip(BASE)


@pytest.fixture(scope="module", params=["directory", SOLVER])
def engines(
    request: pytest.FixtureRequest, directory: Path, small: dict[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """What is loaded, in vLLM and in the torch engine, in one precision."""
    from metagen.generators.torch import TorchEngine
    from metagen.generators.vllm import VLLMEngine

    model = directory if request.param == "directory" else request.param
    with (
        VLLMEngine(model, dtype="float32", max_context=1024, **small) as ours,
        TorchEngine(model, dtype="float32", threads=1, max_batch=8) as theirs,
    ):
        yield request.param, ours, theirs


def test_greedy_answers_of_a_chat_are_those_of_the_torch_engine(engines: tuple[str, Any, Any]) -> None:
    """Ids of the prompt by the chat template, texts, ends and log-probabilities."""
    name, ours, theirs = engines
    wanted = [GenerateRequest(prefix, (0,), GREEDY, 48) for prefix in PREFIXES]
    parted = 0
    for one, other in zip(ask(ours, *wanted), ask(theirs, *wanted), strict=True):
        assert one.prefix_ids == other.prefix_ids
        (a,), (b,) = one.samples, other.samples
        if what(a) == what(b):
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=2e-3)
        else:
            parted += 1
            assert gap(theirs, other.prefix_ids or (), a, b) < EPSILON
    assert parted <= SHARE * len(wanted) + 1, name


def test_labels_are_read_as_the_torch_engine_reads_them(engines: tuple[str, Any, Any]) -> None:
    _, ours, theirs = engines
    ids = theirs.render(PREFIXES[0].extend("He has 5 + 7 = 12 apples."))
    wanted = EvaluateRequest(ids, (len(ids) - 2, len(ids) - 1), (0, 1, 2, 100, 30_000))
    for a, b in zip(evaluate(ours, wanted)[0].values, evaluate(theirs, wanted)[0].values, strict=True):
        assert a == pytest.approx(b, abs=5e-3)


def test_the_adapter_answers_with_its_own_form_and_votes(engines: tuple[str, Any, Any]) -> None:
    """The solver ends with `The answer is N.`; the base model hardly ever does."""
    name, ours, _ = engines
    wanted = [GenerateRequest(prefix, (0,), GREEDY, 100) for prefix in PREFIXES[:3]]
    ends = ["The answer is" in answer.samples[0].text for answer in ask(ours, *wanted)]
    assert all(ends) if name == SOLVER else not all(ends)
    if name == SOLVER:
        vote = MajorityVote(ours.generator(temperature=0.7, max_tokens=100), n=16, answer=MathRule())
        result = vote.solve(PREFIXES[0].prompt, seed=1)
        assert result.answer is not None and result.answer.text == "12"
