"""Whose key goes where: to the server that it is meant for, and to no other, whatever the environment holds."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.keys import HOSTED, Key, names_key, without_keys
from metagen.sequence import Prompt, Sequence
from tests.generators.openai.serving import KEY, Reply, Server, always, answer

ELSEWHERE = "https://models.example.org/v1"
REQUEST = GenerateRequest(Sequence.of(Prompt.of("What is it?")), (0,), SamplingParams(), 16)


@pytest.fixture(autouse=True)
def _set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("MY_KEY", raising=False)


def headers(status: int = 200, host: str = "127.0.0.1", **options: Any) -> dict[str, str]:
    """Those of one request. InputError for what the server refuses."""
    with Server(always(Reply(status, answer()))).open() as server:
        url = server.url.replace("127.0.0.1", host)
        with OpenAIEngine("m", base_url=url, **options) as engine:
            asyncio.run(engine.generate(REQUEST))
        return server.asked[0].headers


@pytest.mark.parametrize("url", [HOSTED, "https://API.openai.com:443/v1"])
def test_the_hosted_server_gets_the_key_that_is_its_own(url: str) -> None:
    key = Key(None, url)
    assert key.reveal() == KEY and key.variable == "OPENAI_API_KEY" and not key.withheld


@pytest.mark.parametrize(
    "url",
    [
        ELSEWHERE, "http://api.openai.com/v1", "https://api.openai.com:8443/v1", "https://api.openai.com.example.org/v1",
        "https://openai.com/v1", "https://example.org/api.openai.com/v1", "http://10.0.0.7:8000/v1",
    ],
)  # fmt: skip
def test_no_other_server_gets_it_unless_it_is_named(url: str) -> None:
    key = Key(None, url)
    assert not key.set and key.reveal() == "" and key.withheld
    named = Key("OPENAI_API_KEY", url)
    assert named.reveal() == KEY and not named.withheld


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8000/v1", "http://127.0.0.1:80/v1", "http://[::1]:8/v1", "http://a.localhost/v1"],
)
def test_a_server_on_this_machine_gets_none_without_a_word(url: str) -> None:
    key = Key(None, url)
    assert not key.set and not key.withheld


def test_a_variable_that_is_named_has_to_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    for variable, url in ((None, HOSTED), ("OPENAI_API_KEY", ELSEWHERE), ("MY_KEY", HOSTED)):
        with pytest.raises(InputError, match="not set"):
            Key(variable, url)


def test_what_is_sent_is_the_key_that_was_named_and_nothing_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client has more than the key out of the environment."""
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other\nX-Secret: hush\nAPI-Key: hush")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-hush")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-hush")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-hush")
    for host in ("127.0.0.1", "0.0.0.0"):
        sent = headers(host=host)
        assert "authorization" not in sent
        assert not any(word in f"{sent}" for word in (KEY, "hush", "other"))
    monkeypatch.setenv("MY_KEY", "my-own-key-123")
    sent = headers(api_key_env="MY_KEY")
    assert sent["authorization"] == "Bearer my-own-key-123"
    assert not any(word in f"{sent}" for word in (KEY, "hush", "other"))


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_key_that_nobody_named_is_an_error_that_says_how(status: int) -> None:
    with pytest.raises(InputError, match=r"no key was sent, since none is named .* by api_key_env") as caught:
        headers(status)
    assert KEY not in str(caught.value)


def test_a_key_that_may_have_been_meant_is_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "metagen"):
        headers()
        assert caplog.records == []
        headers(host="0.0.0.0")
    (record,) = caplog.records
    assert "no key is named" in record.message and vars(record)["option"] == "api_key_env"
    assert KEY not in str(vars(record))


def test_a_short_key_is_not_looked_for_in_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """To take it out would tell it: each of its places in a text would be marked."""
    monkeypatch.setenv("MY_KEY", "abc")
    assert Key("MY_KEY", ELSEWHERE).hide("the abc of abc") == "the abc of abc"
    monkeypatch.setenv("MY_KEY", KEY)
    assert Key("MY_KEY", ELSEWHERE).hide(f"a {KEY}!") == "a [MY_KEY]!"


def test_what_is_named_as_a_key_is_taken_out_of_data_at_any_depth() -> None:
    data = {"a": [1, {"My-API-Key": KEY, "b": {"hf_token": KEY, "max_tokens": 5}}], "password": [KEY]}
    assert KEY not in str(without_keys(data))
    assert without_keys(data)["a"][1]["b"]["max_tokens"] == 5
    assert not any(map(names_key, ("max_tokens", "keys", "monkey", "tokenizer", "stop_token_ids", "top_k")))
