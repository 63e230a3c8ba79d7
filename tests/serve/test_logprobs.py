"""Log-probabilities as the API has them: the legacy form of texts, and that of chats."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.chat.chat_completion import ChoiceLogprobs
from openai.types.completion_choice import Logprobs

import metagen as mg
from metagen.generators.engine import EvaluateRequest
from metagen.serve.logprobs import spell
from tests.serve.serving import QUESTION, Running, serving_made

ASKED: list[Any] = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        draw = engine.generator(max_tokens=120)
        vote = mg.MajorityVote(draw, 4, answer=mg.NumberRule())
        with serving_made({"one": mg.Sample(draw), "vote": vote}) as running:
            yield running


def text_logprobs(running: Running, model: str, logprobs: int, **how: Any) -> tuple[str, Logprobs]:
    choice = running.client.completions.create(
        model=model, prompt=QUESTION, logprobs=logprobs, seed=2, **how
    ).choices[0]
    assert choice.logprobs is not None
    return choice.text, choice.logprobs


@pytest.mark.parametrize("model", ["one", "vote"])
@pytest.mark.parametrize("how", [{}, {"stop": "\nb"}, {"max_tokens": 7}])
def test_a_text_has_the_whole_legacy_form(served: Running, model: str, how: dict[str, Any]) -> None:
    text, found = text_logprobs(served, model, 0, **how)
    assert found.tokens and found.token_logprobs and found.text_offset and found.top_logprobs
    sizes = {len(found.tokens), len(found.token_logprobs), len(found.text_offset), len(found.top_logprobs)}
    assert len(sizes) == 1
    # Offsets are counted from the beginning of the prompt, as OpenAI counts them.
    for token, offset in zip(found.tokens, found.text_offset, strict=True):
        assert (QUESTION + text)[offset:].startswith(token)
    assert found.text_offset[0] == len(QUESTION)
    # With 0 the drawn token stands alone.
    drawn = zip(found.tokens, found.token_logprobs, strict=True)
    assert found.top_logprobs == [{token: value} for token, value in drawn]
    # OpenAI's own type takes it, checks and all.
    Logprobs.model_validate(found.model_dump(), strict=True)


def test_the_most_likely_token_is_told_where_it_is_known() -> None:
    """One that has more than half of the probability is it; nobody has kept any other."""
    table = {(): [0.45, 0.55, 0.0]} | {(one,): [0.55, 0.45, 0.0] for one in "ab"}
    table |= {(one, two): [0.0, 0.0, 1.0] for one in "ab" for two in "ab"}
    seen = set()
    with (
        mg.EnumerableEngine(["a", "b", "end"], table) as engine,
        serving_made({"one": mg.Sample(engine.generator())}) as running,
    ):
        for seed in range(12):
            found: Any = (
                running.client.completions.create(model="one", prompt="?", logprobs=1, seed=seed)
                .choices[0]
                .logprobs
            )
            for token, value, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
                assert top == ({token: value} if math.exp(value) > 0.5 else None)
                seen.add(top is None)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        # A character in two tokens, one in four, and one whose first byte ends another token.
        (["a", 0xC3, 0xA9, "b"], "aéb", [0, 1, 1, 2]),
        ([0xF0, 0x9F, 0x99, 0x82, "!"], "🙂!", [0, 0, 0, 0, 1]),
        (["a", 0xC3, 0xA9], "aé", [0, 1, 1]),
        # Bytes that are no character, in the middle and at the end.
        ([0xFF, "a", 0xC3], "\ufffda\ufffd", [0, 1, 2]),
        # The text ends before the tokens do not spell it, as at a stop.
        (["ab", "c"], "abcd", [0, 2]),
        # From where they spell another text, nobody knows.
        (["a", "x", "b"], "a xb", [0, None, None]),
        (["x"], " x", [None]),
    ],
)
def test_where_tokens_begin(pieces: list[str | int], text: str, expected: list[int | None]) -> None:
    written = [one.encode() if isinstance(one, str) else bytes([one]) for one in pieces]

    def decode(ids: tuple[int, ...]) -> str:
        return b"".join(written[i] for i in ids).decode("utf-8", "replace")

    found = spell(decode, tuple(range(len(pieces))), text)
    assert [at for _, at in found] == expected
    assert [token for token, _ in found] == [decode((i,)) for i in range(len(pieces))]


def test_tokens_of_a_thought_are_not_those_of_the_answer() -> None:
    mark = "</think>"
    table = {(): [0.0, 1.0, 0.0, 0.0], ("b",): [0.0, 0.0, 1.0, 0.0], ("b", mark): [0.6, 0.4, 0.0, 0.0]}
    table |= {("b", mark, one): [0.0, 0.0, 0.0, 1.0] for one in "ab"}
    with (
        mg.EnumerableEngine(["a", "b", mark, "end"], table) as engine,
        serving_made({"one": mg.Sample(engine.generator(thought_end=mark))}) as running,
    ):
        choice: Any = running.client.chat.completions.create(
            model="one", messages=[{"role": "user", "content": "?"}], logprobs=True, seed=1
        ).choices[0]
    assert choice.message.reasoning_content == "b" and choice.message.content in ("a", "b")
    (only,) = choice.logprobs.content
    assert only.token == choice.message.content
    assert math.exp(only.logprob) == pytest.approx(0.6 if only.token == "a" else 0.4)


def test_behind_a_healed_prompt_each_token_has_its_own_number() -> None:
    """The prompt's last token is drawn anew, and is no part of the answer."""
    prompt, told = "Q:a=12+7;b=a*3;b?\nS:\na=1", 0
    with (
        mg.TorchEngine("tiny-bpe", threads=1) as engine,
        serving_made({"one": mg.Sample(engine.generator(healing=True, max_tokens=40))}) as running,
    ):
        head = engine.render(mg.Sequence.of(prompt)) or ()
        number = {engine.decode((i,)): i for i in range(len(engine._tokenizer.constraints().texts))}
        for seed in range(4):
            found: Any = (
                running.client.completions.create(model="one", prompt=prompt, logprobs=0, seed=seed)
                .choices[0]
                .logprobs
            )
            if found is None:  # the end of the prompt was written otherwise
                continue
            ids = head + tuple(number[text] for text in found.tokens)
            asked = EvaluateRequest(ids, tuple(range(len(head) - 1, len(ids) - 1)))
            (read,) = asyncio.run(engine.evaluate([asked]))
            assert found.token_logprobs == pytest.approx([v for (v,) in read.values], abs=1e-4)
            told += 1
    assert told


class Stripping(mg.EnumerableEngine):
    """As tokenizers that leave out the space before the first of the tokens that they decode."""

    def decode(self, ids: Any) -> str:
        return super().decode(ids).removeprefix(" ")


def test_tokens_that_do_not_spell_the_text_have_no_offsets_and_no_bytes() -> None:
    with (
        Stripping(
            [" a", "end"], lambda prompt, done: [float(len(done) < 3), float(len(done) == 3)], name="a"
        ) as engine,
        serving_made({"one": mg.Sample(engine.generator())}) as running,
    ):
        text: Any = running.client.completions.create(model="one", prompt="?", logprobs=0).choices[0]
        chat: Any = running.client.chat.completions.create(
            model="one", messages=[{"role": "user", "content": "?"}], logprobs=True
        ).choices[0]
    assert text.logprobs.tokens == ["a"] * 3 and text.text.count(" a") >= 2
    assert text.logprobs.text_offset is None and len(text.logprobs.token_logprobs) == 3
    assert [one.bytes for one in chat.logprobs.content][1:] == [None, None]


def test_bytes_of_a_chat_are_those_of_its_text(served: Running) -> None:
    choice = served.client.chat.completions.create(
        model="vote", messages=ASKED, logprobs=True, seed=2
    ).choices[0]
    found = choice.logprobs
    assert found is not None and found.content
    written = b"".join(bytes(one.bytes or ()) for one in found.content)
    assert written.decode() == choice.message.content
    assert all(one.top_logprobs == [] for one in found.content)
    ChoiceLogprobs.model_validate(found.model_dump(), strict=True)
