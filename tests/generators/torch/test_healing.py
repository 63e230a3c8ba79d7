"""Token healing on the torch engine: a prompt that ends within a token goes on as if it did not."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metagen.errors import UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence

PROMPT = "Q:a=12+7;b=a*3;b?\nS:\na=1"


@pytest.fixture(scope="module")
def pairs() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-bpe") as engine:
        yield engine


def ask(engine: TorchEngine, prefix: str | Sequence, n: int = 16, most: int = 48, **params: Any) -> Generated:
    given = SamplingParams(max_tokens=most, **params)
    whole = Sequence.of(prefix) if isinstance(prefix, str) else prefix
    ranks = tuple(range(n)) if given.search is not None else ()
    return asyncio.run(
        engine.generate(GenerateRequest(whole, tuple(range(n)), given, max_tokens=most, ranks=ranks))
    )


def test_the_text_begins_behind_the_prompt_and_may_begin_within_a_token(pairs: TorchEngine) -> None:
    """The prompt ends with the token "a=1". Healed, its "=1" may belong to "=12", and its "a" be a token of its own."""
    ids = pairs.render(Sequence.of(PROMPT))
    healed = ask(pairs, PROMPT, 64, healing=True)
    assert healed.prefix_ids == ids[:-1] and pairs.encode("a=1") == ids[-1:]
    assert all(s.text.startswith(("2+7=", "7", "1")) or s.text[0] in "0123456789" for s in healed.samples)
    for sample in healed.samples:
        assert sample.generated is not None
        if sample.ids is not None:
            assert len(sample.ids) == sample.generated - 1 - (sample.finish == "eos")
            assert pairs._tokenizer.decode(list(sample.ids)) == sample.text


@pytest.mark.parametrize("search", [None, BeamSearch(4)])
def test_numbers_by_token_are_those_of_the_tokens_behind_the_prompt(
    pairs: TorchEngine, search: BeamSearch | None
) -> None:
    given: dict[str, Any] = {"healing": True, "logprobs": True, "top_logprobs": 2, "search": search}
    found = [s for s in ask(pairs, PROMPT, 4, **given).samples if s.ids]
    assert found
    head = pairs.render(Sequence.of(PROMPT)) or ()
    every = tuple(range(pairs._tokenizer.vocab_size))
    for sample in found:
        ids = sample.ids or ()
        at = tuple(range(len(head) - 1, len(head) + len(ids) - 1))
        (own,) = asyncio.run(pairs.evaluate([EvaluateRequest(head + ids, at)]))
        (whole,) = asyncio.run(pairs.evaluate([EvaluateRequest(head + ids, at, every)]))
        best = [-np.maximum(np.sort(row)[-2:], -100.0).mean() for row in whole.values]
        logprobs, sure = sample.token_logprobs or (), sample.token_confidences or ()
        assert len(logprobs) == len(sure) == len(ids) + (sample.finish == "eos")
        assert logprobs[: len(ids)] == pytest.approx([v for (v,) in own.values], abs=1e-4)
        assert sure[: len(ids)] == pytest.approx(best, abs=1e-4)


def test_where_nothing_can_be_healed_nothing_changes() -> None:
    with TorchEngine("tiny-0.1m") as letters:
        healed, plain = ask(letters, PROMPT, 4, healing=True), ask(letters, PROMPT, 4)
    assert healed.samples == plain.samples and healed.prefix_ids == plain.prefix_ids


def test_a_prefix_that_has_begun_is_not_healed(pairs: TorchEngine) -> None:
    """Its tokens are the model's own."""
    begun = Sequence.of(PROMPT).extend("2+7=1")
    healed, plain = ask(pairs, begun, 4, healing=True).samples, ask(pairs, begun, 4).samples
    assert [(s.text, s.ids, s.finish) for s in healed] == [(s.text, s.ids, s.finish) for s in plain]
    # What shares a batch rounds otherwise.
    assert [s.logprob for s in healed] == pytest.approx([s.logprob for s in plain], abs=1e-4)


def test_a_grammar_begins_behind_the_prompt(pairs: TorchEngine) -> None:
    grammar = Grammar.regex(r"2\+7=[0-9]{2}\n")
    for sample in ask(pairs, PROMPT, 8, healing=True, grammar=grammar).samples:
        assert sample.finish == "eos" and re.fullmatch(grammar.source, sample.text)


def test_the_first_token_has_the_distribution_of_local_masks(pairs: TorchEngine) -> None:
    """Chi-square over fixed seeds, false alarm 1e-6: the tokens that begin with "=1", renormalised."""
    prompt, n = PROMPT + "2+7=1", 2000
    boundaries = Boundaries(pairs._tokenizer.constraints().texts)
    kept, dropped = boundaries.heal(pairs.render(Sequence.of(prompt)) or ())
    assert [boundaries.texts[i] for i in dropped] == [b"=1"]
    labels = tuple(np.flatnonzero(ForcedBytes(boundaries, b"=1").allowed_tokens()).tolist())
    (found,) = asyncio.run(pairs.evaluate([EvaluateRequest(kept, (len(kept) - 1,), labels)]))
    p = np.exp(np.array(found.values[0]) / 2)
    counts = Counter(s.text for s in ask(pairs, prompt, n, most=1, healing=True, temperature=2.0).samples)
    expected: Counter[str] = Counter()
    for token, share in zip(labels, p / p.sum(), strict=True):
        # A token that writes no more than the bytes leaves nothing.
        expected[boundaries.texts[token].decode()[2:]] += n * share
    common = [text for text, count in expected.items() if count >= 5]
    assert len(common) >= 4 and set(counts) <= set(expected)
    seen = [counts[text] for text in common]
    wanted = [expected[text] for text in common]
    if len(common) < len(expected):  # the rare ones together
        seen.append(n - sum(seen))
        wanted.append(n - sum(wanted))
    assert stats.chisquare(seen, wanted).pvalue > 1e-6


def test_an_engine_that_cannot_heal_is_refused_when_the_generator_is_made() -> None:
    engine = EnumerableEngine(("a", "<end>"), {(): (0.5, 0.5)}, name="two")
    with pytest.raises(UnsupportedError, match="heals no prompts"):
        EngineGenerator(engine, SamplingParams(healing=True))
