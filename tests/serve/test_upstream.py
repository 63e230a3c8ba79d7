"""A server whose engine is another server: texts come through as they are written, and what fails is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.serve.serving import FILE, QUESTION, Running, serving


def front(url: str, **engine: Any) -> dict[str, Any]:
    """A file whose only engine is behind this address."""
    served = {"kind": "openai", "base_url": url, "model": "small/one", "api": "completions", **engine}
    return {
        **FILE,
        "engines": {"served": served},
        "generators": {"through": {"engine": "served", "max_tokens": 120}},
        "verifiers": {},
        "strategies": {"one": {"kind": "sample"}, "majority": {"kind": "majority"}},
        "grid": {"n": [4]},
        "serve": {"port": 0},
    }


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("behind")) as running:
        yield running


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_text_comes_through_while_it_is_written(tmp_path: Path, behind: Running, api: str) -> None:
    with serving(tmp_path, front(behind.url, api=api)) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        asked: list[Any] = [{"role": "user", "content": QUESTION}]
        how: dict[str, Any] = {"model": "through/one", "messages": asked, "seed": 7}
        whole = client.chat.completions.create(**how)
        parts = [
            choice.delta.content
            for chunk in client.chat.completions.create(**how, stream=True)
            for choice in chunk.choices
            if choice.delta.content
        ]
        assert len(parts) > 1 and "".join(parts) == whole.choices[0].message.content
        vote = client.chat.completions.create(**{**how, "model": "through/majority@4"})
        assert vote.choices[0].message.content
        assert vote.usage is not None and vote.usage.completion_tokens > whole.usage.completion_tokens  # type: ignore[union-attr]


def test_an_engine_that_is_down_is_said_in_the_form_of_the_api(tmp_path: Path) -> None:
    file = front("http://127.0.0.1:9/v1", patience={"attempts": 1})
    with serving(tmp_path, file) as running:
        body: dict[str, Any] = {"model": "through/one", "prompt": QUESTION}
        got = httpx.post(f"{running.url}/completions", json=body, timeout=60)
        assert got.status_code == 503 and got.json()["error"]["type"] == "service_unavailable"
        assert "127.0.0.1:9" not in got.text  # where the engines are is nobody's affair
        stream = httpx.post(f"{running.url}/completions", json={**body, "stream": True}, timeout=60)
        assert stream.status_code == 503 and stream.json()["error"]["type"] == "service_unavailable"
        assert httpx.get(f"{running.host}/ready").status_code == 200
