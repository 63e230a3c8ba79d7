"""The client without a server: it answers as the strategy does, and as the server would."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import metagen as mg
from metagen.integrations.local import Local
from metagen.integrations.shapes import ChatLogprobs
from metagen.serve import answers
from metagen.serve.errors import ApiError
from metagen.serve.responses import ResponseForm
from tests.serve.serving import FILE, QUESTION

ASKED = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def engine() -> Iterator[mg.TorchEngine]:
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def vote(engine: mg.TorchEngine) -> mg.MajorityVote:
    return mg.MajorityVote(engine.generator(max_tokens=120), n=4, answer=mg.NumberRule())


def test_an_answer_is_that_of_the_strategy(vote: mg.MajorityVote) -> None:
    client = mg.client(vote)
    for seed in range(4):
        expected = vote.solve(mg.Prompt.of(ASKED, form="auto"), seed=seed)
        got = client.chat.completions.create(messages=ASKED, seed=seed)
        assert got.object == "chat.completion" and got.choices[0].message.content == expected.text
        assert got.choices[0].finish_reason == "stop" and got.choices[0].message.role == "assistant"
        assert got.usage is not None and got.usage.completion_tokens == expected.usage.generated
        assert got.metagen is not None and got.metagen["seed"] == seed
        text = client.completions.create(prompt=QUESTION, seed=seed)
        assert text.choices[0].text == vote.solve(QUESTION, seed=seed).text
    details = got.usage.completion_tokens_details
    assert details.candidates == 4 and details.reasoning_tokens > 0  # type: ignore[attr-defined]


def test_a_stream_says_what_the_answer_says(vote: mg.MajorityVote, engine: mg.TorchEngine) -> None:
    client = mg.client({"vote": vote, "one": mg.Sample(engine.generator(max_tokens=120))})
    for model in ("vote", "one"):
        whole = client.chat.completions.create(model=model, messages=ASKED, seed=3)
        chunks = list(
            client.chat.completions.create(
                model=model, messages=ASKED, seed=3, stream=True, stream_options={"include_usage": True}
            )
        )
        deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        assert "".join(deltas) == whole.choices[0].message.content
        assert chunks[-1].choices == [] and chunks[-1].usage is not None and whole.usage is not None
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        parts = client.completions.create(model=model, prompt=QUESTION, seed=3, stream=True)
        text = client.completions.create(model=model, prompt=QUESTION, seed=3)
        assert "".join(c.text for part in parts for c in part.choices) == text.choices[0].text


def test_who_leaves_a_stream_ends_the_work(engine: mg.TorchEngine) -> None:
    long = mg.Sample(engine.generator(max_tokens=900, ignore_eos=True))
    parts = mg.client(long).chat.completions.create(messages=ASKED, stream=True)
    next(parts), next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert list(parts) == []
    # The engine is free for others, who are answered as ever.
    assert mg.client(mg.Sample(engine.generator(max_tokens=5))).completions.create(prompt=QUESTION).choices


def slow() -> mg.EnumerableEngine:
    """Writes many letters, one in 20 ms."""
    return mg.EnumerableEngine(["a", "end"], lambda prompt, done: [1.0, 0.0], name="a", delay=0.02)


def test_a_deadline_within_a_streamed_text_ends_it() -> None:
    """What was sent cannot be taken back: it stays, cut by a limit."""
    body: dict[str, Any] = {"prompt": "?", "extra_body": {"metagen": {"budget": {"seconds": 0.5}}}}
    with slow() as engine:
        client = mg.client(mg.Sample(engine.generator(max_tokens=1000)))
        chunks = list(client.completions.create(**body, stream=True))
    assert len("".join(c.text for chunk in chunks for c in chunk.choices)) > 1
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].metagen is not None and chunks[-1].metagen["exhausted"]


def test_a_response_that_a_deadline_ended_holds_what_was_streamed() -> None:
    async def main(local: Local) -> list[Any]:
        options = {"budget": {"seconds": 0.5}}
        _, jobs = local.jobs("chat", {"messages": ASKED, "stream": True, "metagen": options})
        service = local.service
        events = service.follow(jobs, service.limit(jobs))
        return [event async for event in ResponseForm("a").stream(jobs, events)]

    with slow() as engine:
        found = asyncio.run(main(Local(mg.Sample(engine.generator(max_tokens=1000)))))
    deltas = [event["delta"] for event in found if event["type"] == "response.output_text.delta"]
    last = found[-1]["response"]
    assert found[-1]["type"] == "response.incomplete" and last["metagen"]["exhausted"]
    assert "".join(deltas) == last["output"][-1]["content"][0]["text"] != ""


def test_awaited_answers_are_the_same(vote: mg.MajorityVote) -> None:
    async def main() -> tuple[Any, str, list[Any]]:
        client = mg.aclient({"vote": vote})
        whole = await client.chat.completions.create(model="vote", messages=ASKED, seed=7)
        stream = await client.chat.completions.create(model="vote", messages=ASKED, seed=7, stream=True)
        text = "".join([c.delta.content or "" async for chunk in stream for c in chunk.choices])
        many = [client.completions.create(prompt=QUESTION, seed=seed) for seed in range(8)]
        return whole, text, [one.choices[0].text for one in await asyncio.gather(*many)]

    whole, text, many = asyncio.run(main())
    client = mg.client(vote)
    assert whole.choices[0].message.content == text
    assert text == client.chat.completions.create(messages=ASKED, seed=7).choices[0].message.content
    assert many == [client.completions.create(prompt=QUESTION, seed=s).choices[0].text for s in range(8)]


def test_a_file_is_served_with_its_section(tmp_path: Path) -> None:
    path = tmp_path / "served.yaml"
    path.write_text(yaml.safe_dump(FILE), "utf-8")
    with mg.client(path) as client:
        assert client.models[:2] == ("fast", "vote") and "small/rebase@4" in client.models
        got = client.chat.completions.create(model="vote", messages=ASKED, seed=1)
        assert got.model == "vote" and got.metagen is not None and got.metagen["model"] == "small/majority@16"
        fewer = client.chat.completions.create(
            model="small/majority", messages=ASKED, extra_body={"metagen": {"n": 2}}
        )
        assert fewer.metagen is not None and fewer.metagen["n"] == 2
        head = client.completions.create(model="vote", prompt=QUESTION, extra_headers={"X-Metagen-N": "3"})
        assert head.metagen is not None and head.metagen["n"] == 3
        with pytest.raises(ApiError, match="missing, and there are several"):
            client.completions.create(prompt=QUESTION)


def test_logprobs_have_attributes(vote: mg.MajorityVote) -> None:
    client = mg.client(vote)
    choice = client.chat.completions.create(messages=ASKED, seed=2, logprobs=True).choices[0]
    assert choice.logprobs is not None and choice.logprobs.content
    assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
    text = client.completions.create(prompt=QUESTION, seed=2, logprobs=1).choices[0]
    assert text.logprobs is not None and "".join(text.logprobs.tokens) == text.text


def test_tokens_are_spelled_by_the_tokenizer_that_drew_them() -> None:
    @mg.part
    class Second(mg.Strategy):
        first: mg.Generator
        second: mg.Generator

        async def run(self, prefix: mg.Sequence, until: Any, scope: mg.Scope) -> mg.Sequence:
            (found,) = await self.second.generate(prefix, until=until, scope=scope.child("second"))
            return found

    one = mg.EnumerableEngine(["a", "b", "end"], {(): [1.0, 0.0, 0.0], ("a",): [0.0, 0.0, 1.0]})
    other = mg.EnumerableEngine(["x", "y", "end"], {(): [0.0, 1.0, 0.0], ("y",): [0.0, 0.0, 1.0]})
    with one, other:
        client = mg.client(Second(first=one.generator(), second=other.generator()))
        (choice,) = client.completions.create(prompt="?", logprobs=1).choices
        assert choice.logprobs is not None
        assert (choice.text, choice.logprobs.tokens) == ("y", ["y"])


def test_a_part_of_a_character_has_no_bytes() -> None:
    token = {"token": "\ufffd", "logprob": -1.0, "bytes": None, "top_logprobs": []}
    assert ChatLogprobs.model_validate({"content": [token]}).content


def test_a_stream_that_is_left_has_ended_its_work_when_it_is_closed(engine: mg.TorchEngine) -> None:
    """Not some time later: its place belongs to somebody else then."""
    ended: list[str] = []

    async def main() -> None:
        local = Local(mg.Sample(engine.generator(max_tokens=900, ignore_eos=True)))
        asked, jobs = local.jobs("chat", {"messages": ASKED, "stream": True})

        async def follow() -> AsyncGenerator[Any]:
            try:
                async for event in local.service.follow(jobs, None):
                    yield event
            finally:
                ended.append("work")

        parts = answers.Form("chat", asked.model).stream(jobs, follow())
        await anext(parts), await anext(parts)
        await parts.aclose()
        ended.append("stream")

    asyncio.run(main())
    assert ended == ["work", "stream"]


def test_own_sampling_answers_whatever_is_sent(vote: mg.MajorityVote) -> None:
    own = mg.client(vote).chat.completions.create(messages=ASKED, seed=1)
    cold = mg.client(vote, own_sampling=True).chat.completions.create(messages=ASKED, seed=1, temperature=0)
    assert own.choices[0].message.content == cold.choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "vot"}, 404, "model"),
        ({"temperature": 0}, 400, "temperature"),
        ({"temprature": 1}, 400, "temprature"),
        ({"timeout": 5}, 400, "timeout"),
        ({"n": 1000}, 400, "n"),
        ({"tools": [{}]}, 400, "tools"),
        ({"extra_body": {"metagen": {"budget": 50, "exhausted": "error"}}}, 402, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_honoured_is_refused_by_its_name(
    vote: mg.MajorityVote, fields: dict[str, Any], status: int, param: str | None, stream: bool
) -> None:
    asked = mg.client(vote).chat.completions

    def ask() -> None:
        answer = asked.create(messages=ASKED, stream=stream, **fields)
        assert param is None  # what is refused for a field is refused at once
        list(answer)

    with pytest.raises(ApiError) as refused:
        ask()
    assert (refused.value.status, refused.value.param) == (status, param)


def test_what_is_no_strategy_says_so(vote: mg.MajorityVote) -> None:
    with pytest.raises(mg.InputError, match=r"'b' is 3; expected a strategy"):
        mg.client({"a": vote, "b": 3})  # type: ignore[dict-item]
    with pytest.raises(mg.InputError, match=r"3; expected a strategy"):
        mg.client(3)  # type: ignore[arg-type]
    with pytest.raises(mg.InputError, match="at least one"):
        mg.client({})
    with pytest.raises(mg.InputError, match=r"nothing\.yaml"):
        mg.client("nothing.yaml")


def test_no_package_of_the_server_is_needed() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('fastapi', 'uvicorn', 'limits', 'prometheus_client')))"
    )
    code += "; import metagen; print(metagen.client.__name__, metagen.aclient.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["client", "aclient"], done.stderr
