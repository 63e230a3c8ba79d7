"""The laws of engines against a server that is not ours: llama.cpp's, over a small random model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metagen.generators.decoding.parameters import SamplingParams
from metagen.generators.engine import Engine, GenerateRequest, Sample
from metagen.generators.openai import OpenAIEngine
from metagen.sequence import Prompt, Sequence
from metagen.testing import EngineLaws
from metagen.testing.asking import seeds
from tests.generators.openai.llama_cpp import serves

FILE = Path(__file__).parents[1] / "models" / "gguf" / "llama3.gguf"


#: Texts alone: ids, steps and readings need a server that tells ids.
WITHOUT = frozenset({"ids", "until", "evaluate", "stop_token_ids", "ignore_eos"})


INSIDE = "most tokens of a random model end within a character, of which this server tells no log-probability"
#: Laws that do not hold here, and why.
LEFT_OUT = {
    "test_log_probabilities_add_up_and_are_those_of_the_raw_model": INSIDE,
    "test_confidences_change_nothing_that_is_drawn": INSIDE,
    "test_what_was_read_once_is_read_from_the_cache": "which of this server's slots still holds a prompt is chance",
}


class Served(EngineLaws):
    prompts = ("the quick brown fox", "12 + 7 = ", "abcabc", "Step")
    flips = 0.1
    many = 40
    url = ""

    def _first(
        self, engine: Engine, number: int, first: int, temperature: float, **params: Any
    ) -> list[tuple[int, ...]]:
        request = self.request(seeds(60, first), number, most=1, temperature=temperature, **params)
        return [sample.ids for sample in self.draw(engine, request) if sample.ids]

    @pytest.fixture(autouse=True)
    def left_out(self, request: pytest.FixtureRequest) -> None:
        if (law := request.function.__name__) in LEFT_OUT:
            pytest.skip(LEFT_OUT[law])

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls) -> Iterator[None]:
        with serves(FILE) as cls.url:
            yield


class TestTexts(Served):
    without = WITHOUT

    def make(self) -> Engine:
        return OpenAIEngine("llama3", base_url=self.url, api="completions", dialect="llamacpp")


class TestChats(Served):
    without = WITHOUT

    def make(self) -> Engine:
        return OpenAIEngine("llama3", base_url=self.url, dialect="llamacpp")


def draw(engine: OpenAIEngine, n: int, most: int = 60, **params: Any) -> list[Sample]:
    """Samples of a random model, most of whose tokens are parts of characters."""
    asked = SamplingParams(max_tokens=most, temperature=1.3, **params)
    request = GenerateRequest(Sequence.of(Prompt("p", "the quick")), tuple(range(n)), asked, most)
    return asyncio.run(engine.generate(request)).samples


def test_a_sum_that_lacks_tokens_is_unknown_and_counted() -> None:
    with (
        serves(FILE) as url,
        OpenAIEngine("x", base_url=url, api="completions", dialect="llamacpp") as engine,
    ):
        with pytest.warns(UserWarning, match="fewer log-probabilities than it was"):
            samples = draw(engine, 12, logprobs=True)
        lacking = [sample for sample in samples if sample.logprob is None]
        assert len(lacking) == engine.stats.extra["no_logprobs"]
        assert len(lacking) > 6
        assert all(sample.token_logprobs is None and sample.generated for sample in lacking)


def test_tokens_of_several_choices_are_not_those_of_one() -> None:
    with (
        serves(FILE) as url,
        OpenAIEngine("x", base_url=url, api="completions", dialect="llamacpp", n_per_request=3) as engine,
    ):
        samples = draw(engine, 3, most=5)
        assert [sample.generated for sample in samples] == [None] * 3
        assert engine.stats.extra["wrong_counts"] == 1
