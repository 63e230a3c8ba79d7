"""A server whose engine is another server: texts come through as they are written, and what fails is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import metagen as mg
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve.app import make_app
from metagen.serve.models import Models
from tests.generators.openai.serving import Asked, Reply, always, answer, delta, said, stream
from tests.generators.openai.serving import Server as Upstream
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


@pytest.mark.parametrize("status", [401, 403, 404, 307])
def test_a_fault_of_the_set_up_is_the_servers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A client can mend neither a key nor an address, and is told of neither."""
    monkeypatch.setenv("BEHIND_KEY", "secret-of-the-server")
    reply = Reply(status=status, body={"error": {"message": "no"}})
    with Upstream(always(reply)).open() as behind:
        file = front(behind.url, patience={"attempts": 1}, api_key_env="BEHIND_KEY")
        with serving(tmp_path, file) as running:
            body = {"model": "through/one", "prompt": QUESTION}
            for stream in (False, True):
                got = httpx.post(f"{running.url}/completions", json={**body, "stream": stream}, timeout=60)
                assert got.status_code == 503 and got.json()["error"]["type"] == "service_unavailable"
                assert "127.0.0.1" not in got.text and "BEHIND_KEY" not in got.text


def test_a_fault_of_a_plug_in_is_the_servers_own() -> None:
    def fail(sequence: mg.Sequence) -> float:
        raise RuntimeError("secret of the file")

    async def ask(app: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://served/v1") as client:
            return await client.post("/completions", json={"model": "best", "prompt": "?"})

    with mg.EnumerableEngine(
        ["a", "b", "end"], {(): [0.5, 0.5, 0.0]} | {(c,): [0.0, 0.0, 1.0] for c in "ab"}
    ) as e:
        best = mg.BestOfN(e.generator(), n=2, verifier=mg.FunctionVerifier(fail))
        got = asyncio.run(ask(make_app(Models({"best": best}), ServeSpec())))
    assert got.status_code == 503 and got.json()["error"]["code"] == "PluginError"
    assert "secret" not in got.text


def test_a_request_that_the_engine_refuses_is_the_clients(tmp_path: Path) -> None:
    reply = Reply(status=400, body={"error": {"message": "top_p is too small"}})
    with (
        Upstream(always(reply)).open() as behind,
        serving(tmp_path, front(behind.url, patience={"attempts": 1})) as running,
    ):
        body = {"model": "through/one", "prompt": QUESTION, "top_p": 0.01}
        got = httpx.post(f"{running.url}/completions", json=body, timeout=60)
        assert got.status_code == 400 and "top_p is too small" in got.json()["error"]["message"]
        assert "127.0.0.1" not in got.text


def test_half_a_character_is_sent_as_its_escape(tmp_path: Path) -> None:
    """A server may write one; UTF-8 has none."""
    chunk = {"choices": [{"index": 0, "text": "so \ud83d", "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    reply = Reply(body=body, headers={"content-type": "text/event-stream"})
    with (
        Upstream(always(reply)).open() as behind,
        serving(tmp_path, front(behind.url, patience={"attempts": 1}, stream=True)) as running,
    ):
        asked = {"model": "through/one", "prompt": QUESTION}
        got = httpx.post(f"{running.url}/completions", json=asked, timeout=60)
        assert got.status_code == 200 and got.json()["choices"][0]["text"] == "so \ud83d"


def test_a_streamed_response_numbers_its_parts_as_its_end_does(tmp_path: Path) -> None:
    """A server tells its thought with the whole answer: behind the text where that streams, before it where not."""
    message = {"role": "assistant", "content": "It is 19.", "reasoning": "12 and 7."}
    whole = Reply(body=answer(said("", message=message)))
    parts = stream(delta(reasoning="12 and 7."), delta(content="It is"), delta("stop", content=" 19."))

    async def handle(asked: Asked) -> Reply:
        return parts if asked.body.get("stream") else whole

    with Upstream(handle).open() as behind, serving(tmp_path, front(behind.url, api="chat")) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        quiet = {"metagen": {"progress": False}}
        for model, kinds in (
            ("through/one", ["message"]),
            ("through/majority@4", ["reasoning", "message"]),
        ):
            events = [*client.responses.create(model=model, input="12 + 7?", stream=True, extra_body=quiet)]
            added = [event for event in events if event.type == "response.output_item.added"]
            assert [event.output_index for event in added] == [*range(len(kinds))]
            last = events[-1]
            assert last.type == "response.completed" and last.response.output_text == "It is 19."
            assert (
                [item.type for item in last.response.output] == [event.item.type for event in added] == kinds
            )
            assert [item.id for item in last.response.output] == [event.item.id for event in added]
        once = client.responses.create(model="through/one", input="12 + 7?")
        assert [item.type for item in once.output] == ["reasoning", "message"]
