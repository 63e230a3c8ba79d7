"""A model behind HTTP is the model: the same samples, ends, counts and log-probabilities as in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from metagen.errors import UnsupportedError
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine
from metagen.generators.torch import TorchEngine
from metagen.sequence import Message, Prompt, Sequence, Step, Tokens
from metagen.tasks.arithmetic.task import ArithmeticTask
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Server

PROMPT = next(iter(ArithmeticTask("validation", levels=[2], per_level=1).problems())).prompt
MODEL = "tiny-0.1m"


@pytest.fixture(scope="module")
def torch() -> Iterator[TorchEngine]:
    with TorchEngine(MODEL, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(torch: TorchEngine) -> Iterator[Server]:
    with Server(serves(torch)).open() as server:
        yield server


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[OpenAIEngine]:
    """With ids: completions of vLLM's dialect, and the tokenizer."""
    with OpenAIEngine(
        MODEL, base_url=server.url, api="completions", dialect="vllm", tokenizer=MODEL, n_per_request=1
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def bare(server: Server) -> Iterator[OpenAIEngine]:
    """Without: what any server gives."""
    with OpenAIEngine(MODEL, base_url=server.url, api="completions") as engine:
        yield engine


def asked(
    prefix: Sequence | None = None, n: int = 4, most: int = 60, until: Any = None, **params: Any
) -> GenerateRequest:
    prefix = prefix or Sequence.of(PROMPT)
    return GenerateRequest(prefix, tuple(range(11, 11 + n)), SamplingParams(**params), most, until)


def both(one: Any, other: Any, request: GenerateRequest) -> tuple[Generated, Generated]:
    async def main() -> tuple[Generated, Generated]:
        return await one.generate(request), await other.generate(request)

    return asyncio.run(main())


REQUESTS = {
    "to the end": {},
    "cut by length": {"most": 7},
    "greedy": {"temperature": 0.0, "n": 2},
    "top k and top p": {"top_k": 3, "top_p": 0.8},
    "a stop string": {"stop": ("A:", "zzz")},
    "a step": {"until": Step("\n")},
    "a step cut by its length": {"until": Step("\n", 3)},
    "a step cut by the request": {"until": Step("\n"), "most": 3},
    "a step beside a stop string": {"until": Step("\n"), "stop": ("=",)},
    "a block": {"until": Tokens(5)},
    "log-probabilities": {"logprobs": True},
    "confidences": {"top_logprobs": 3, "logprobs": True},
    "no end token": {"ignore_eos": True, "most": 80},
    "an end token of the caller's": {"stop_token_ids": (5,)},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_the_torch_engine_gives_comes_over_http_with_all_its_parts(
    torch: TorchEngine, http: OpenAIEngine, name: str
) -> None:
    options = dict(REQUESTS[name])
    ours, theirs = both(http, torch, asked(**options))
    for a, b in zip(ours.samples, theirs.samples, strict=True):
        assert (a.text, a.ids, a.finish, a.cut, a.step_end) == (b.text, b.ids, b.finish, b.cut, b.step_end)
        assert a.generated is not None and b.generated is not None
        assert a.generated == b.generated or options.get("stop"), "a stop is noticed where its text ends"
        if options.get("logprobs"):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-4)
        else:
            assert a.logprob is None, "not asked for, so unknown"
        if options.get("top_logprobs"):
            assert a.token_confidences == pytest.approx(b.token_confidences, abs=1e-3)
    assert (ours.prefix_ids, ours.prefix_tokens) == (theirs.prefix_ids, theirs.prefix_tokens)
    assert ours.prefilled is not None and ours.cached is not None
    assert ours.prefilled + ours.cached == len(ours.samples) * len(theirs.prefix_ids or ())


@pytest.mark.parametrize("name", ["to the end", "cut by length", "greedy", "log-probabilities"])
def test_without_a_tokenizer_texts_and_counts_are_the_same_and_ids_are_unknown(
    torch: TorchEngine, bare: OpenAIEngine, name: str
) -> None:
    ours, theirs = both(bare, torch, asked(**REQUESTS[name]))
    for a, b in zip(ours.samples, theirs.samples, strict=True):
        assert (a.text, a.generated, a.finish) == (b.text, b.generated, b.finish)
        assert a.ids is None and ours.prefix_ids is None
    assert ours.prefix_tokens == theirs.prefix_tokens


def test_a_search_that_goes_on_step_by_step_writes_what_one_go_writes(
    torch: TorchEngine, http: OpenAIEngine
) -> None:
    async def main() -> tuple[str, str]:
        whole = (await torch.generate(asked(n=1, temperature=0.0))).samples[0]
        prefix = Sequence.of(PROMPT)
        while prefix.finish is None:
            one = (await http.generate(asked(prefix, n=1, until=Step("\n"), temperature=0.0))).samples[0]
            assert one.ids is not None and http.tokenizer_fingerprint is not None
            prefix = prefix.extend(one.text, tokens=torch._tokenizer.token_ids(one.ids), finish=one.finish,
                                   step_end=one.step_end)  # fmt: skip
        return whole.text, prefix.text

    whole, stepped = asyncio.run(main())
    assert stepped == whole and "\n" in whole


def test_steps_without_ids_of_the_server_end_and_are_encoded_the_same(
    server: Server, torch: TorchEngine
) -> None:
    with OpenAIEngine(
        MODEL, base_url=server.url, api="completions", dialect="vllm", tokenizer=MODEL,
        extra_body={"return_token_ids": False}, n_per_request=1,
    ) as engine:  # fmt: skip
        for options in (
            {"until": Step("\n")},
            {"until": Step("\n", 3)},
            {"until": Tokens(5)},
            {"stop": ("A:",)},
            {},
        ):
            ours, theirs = both(engine, torch, asked(**options))
            for a, b in zip(ours.samples, theirs.samples, strict=True):
                assert (a.text, a.ids, a.finish, a.cut, a.step_end) == (
                    b.text,
                    b.ids,
                    b.finish,
                    b.cut,
                    b.step_end,
                )


def test_a_chat_says_the_same_and_goes_on_with_a_partial_turn(torch: TorchEngine, server: Server) -> None:
    begun = Sequence.of(PROMPT).extend("a=")
    said = Prompt("p", messages=(Message("user", PROMPT.text or ""), Message("assistant", "a=")))
    with OpenAIEngine(MODEL, base_url=server.url, dialect="vllm", n_per_request=1) as engine:
        ours = asyncio.run(engine.generate(asked(begun, logprobs=True)))
        # Where a server draws the first token of a turn that was begun, is where it draws first.
        joined = Sequence.of(Prompt("p", text=f"{PROMPT.text}a="))
        theirs = asyncio.run(torch.generate(asked(joined, logprobs=True)))
        assert [s.text for s in ours.samples] == [s.text for s in theirs.samples]
        assert ours.samples[0].logprob == pytest.approx(theirs.samples[0].logprob, abs=1e-4)
        last = server.asked[-1].body
        assert last["messages"][-1] == {"role": "assistant", "content": "a="}
        assert last["continue_final_message"] is True and last["add_generation_prompt"] is False
        again = asyncio.run(engine.generate(asked(Sequence.of(said), logprobs=True)))
        assert [s.text for s in again.samples] == [s.text for s in ours.samples]
        assert server.asked[-1].body["messages"] == last["messages"]
    with (
        OpenAIEngine(MODEL, base_url=server.url) as plain,
        pytest.raises(UnsupportedError, match="partial turn"),
    ):
        asyncio.run(plain.generate(asked(begun)))


def test_one_request_for_several_samples_has_one_seed_and_shares_its_counts(server: Server) -> None:
    with OpenAIEngine(MODEL, base_url=server.url, api="completions", n_per_request=3) as engine:
        before = len(server.asked)
        made = asyncio.run(engine.generate(asked(n=7, max_tokens=60)))
    sent = [a.body for a in server.asked[before:]]
    assert sorted(body.get("n", 1) for body in sent) == [1, 3, 3]
    assert all(body["seed"] % body.get("n", 1) == 0 for body in sent), (
        "seeds that follow on one another never overlap"
    )
    assert len({s.text for s in made.samples}) > 1
    assert made.samples[0].generated is None, "of three samples the server counts the sum"
    assert made.samples[6].generated is not None
    assert engine.stats.generated > 0 and engine.stats.samples == 7


def test_labels_and_tokens_that_follow_are_read_as_the_torch_engine_reads_them(
    torch: TorchEngine, http: OpenAIEngine
) -> None:
    ids = torch.render(Sequence.of(PROMPT))
    requests = [
        EvaluateRequest(ids, (3, len(ids) - 1), (7, 9, 7)),
        EvaluateRequest(ids, (0, 5, len(ids) - 2)),
    ]
    ours, theirs = asyncio.run(http.evaluate(requests)), asyncio.run(torch.evaluate(requests))
    for a, b in zip(ours, theirs, strict=True):
        for row, expected in zip(a.values, b.values, strict=True):
            assert row == pytest.approx(expected, abs=1e-4)
    assert ours[0].prefilled is not None and ours[0].cached is not None
    assert asyncio.run(http.evaluate([])) == []


def test_what_cannot_be_read_is_refused(http: OpenAIEngine, bare: OpenAIEngine) -> None:
    request = EvaluateRequest((5, 6, 7), (0,), (5,))
    with pytest.raises(UnsupportedError, match="dialect='vllm'"):
        asyncio.run(bare.evaluate([request]))
    with pytest.raises(UnsupportedError, match="TorchEngine"):
        asyncio.run(http.evaluate([EvaluateRequest((5, 6), (0,), outputs=True)]))
