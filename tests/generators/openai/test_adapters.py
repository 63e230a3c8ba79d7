"""Adapters over HTTP: what a kind of server has under the same meaning is sent, and all else refused by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metagen.errors import UnsupportedError
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine
from metagen.sequence import Prompt, Sequence
from tests.generators.openai.serving import Reply, Server, always, answer

PREFIX = Sequence.of(Prompt.of("What is it?"))


def sent(dialect: Any, prefix: Sequence = PREFIX, **params: Any) -> dict[str, Any]:
    """The body that a server gets."""
    with (
        Server(always(Reply(body=answer()))).open() as server,
        OpenAIEngine("m", base_url=server.url, dialect=dialect) as engine,
    ):
        generator = engine.generator(**params)
        request = GenerateRequest(prefix, (1,), generator.params, 16)
        asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))
        (asked,) = server.asked
        return asked.body


def test_what_the_api_has_is_sent() -> None:
    body = sent("openai", presence_penalty=0.5, frequency_penalty=-1.0, logit_bias={13: -100.0})
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, -1.0)
    assert body["logit_bias"] == {"13": -100.0}
    assert not {"min_p", "repetition_penalty"} & set(body)
    body = sent("vllm", min_p=0.1, repetition_penalty=1.2)
    assert (body["min_p"], body["repetition_penalty"]) == (0.1, 1.2)
    assert sent("vllm")["min_p"] == 0


@pytest.mark.parametrize("name", ["min_p", "typical_p", "no_repeat_ngram", "banned"])
def test_what_it_has_not_is_refused_by_name_before_anything_is_sent(name: str) -> None:
    value: Any = {"no_repeat_ngram": 2, "banned": ("no",)}.get(name, 0.5)
    with pytest.raises(UnsupportedError, match=f"{name}=.*TorchEngine"):
        OpenAIEngine("m", base_url="http://127.0.0.1:9/v1").generator(**{name: value})


@pytest.mark.parametrize(
    ("dialect", "params", "says"),
    [
        ("openai", {"top_k": 5}, "top_k=5.*leave it out"), ("openai", {"ignore_eos": True}, "ignore_eos"),
        ("llamacpp", {"stop_token_ids": (3,)}, "stop_token_ids"), ("vllm", {"min_p": 0.1, "top_p": 0.9}, "leave one"),
    ],
)  # fmt: skip
def test_what_a_dialect_cannot_say_is_refused_where_the_generator_is_made(
    dialect: Any, params: dict[str, Any], says: str
) -> None:
    """A run would find out only after it has begun."""
    with pytest.raises(UnsupportedError, match=says):
        OpenAIEngine("m", base_url="http://127.0.0.1:9/v1", dialect=dialect).generator(**params)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"min_p": 0.1, "top_p": 0.9}, "leave one of them out"), ({"logit_bias": {"A": 1.0}}, "give the token's id"),
        ({"logit_bias": {3: 200.0}}, "−100 to 100"),
    ],
)  # fmt: skip
def test_what_it_would_read_otherwise_is_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        sent("vllm", **params)


def test_a_server_does_not_count_the_tokens_of_a_prefix() -> None:
    with pytest.raises(UnsupportedError, match=r"presence_penalty=0\.5.*before"):
        sent("vllm", PREFIX.extend("It is"), presence_penalty=0.5)
    assert sent("vllm", PREFIX.extend("It is"), repetition_penalty=1.5)["repetition_penalty"] == 1.5


def test_the_parameters_of_a_request_are_checked_too() -> None:
    """An engine may be asked without a generator."""
    with OpenAIEngine("m", base_url="http://127.0.0.1:9/v1") as engine:
        request = GenerateRequest(PREFIX, (1,), SamplingParams(top_h=0.5), 16)
        with pytest.raises(UnsupportedError, match=r"top_h=0\.5"):
            asyncio.run(engine.generate(request))
