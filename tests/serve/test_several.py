"""Several prompts of one request: side by side, within the places of the server, one account, one end."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import metagen as mg
from metagen.serve.gate import Client, Gate
from metagen.serve.several import run_all
from metagen.strategies.chain.steps import Ask
from tests.serve.serving import QUESTION, Running, serving, serving_made
from tests.serve.test_server import slow, until

PROMPTS = [QUESTION, "Q:a=4+5;a?\nS:\n", "Q:a=1+2;a?\nS:\n", QUESTION]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("several")) as running:
        yield running


class Meeting:
    """A generator whose samples end once so many are at work at the same time. most: how many there were."""

    def __init__(self, parties: int) -> None:
        self._parties, self._now, self.most = parties, 0, 0
        self._met = threading.Event()
        self.generator = mg.FunctionGenerator(self._write, name="meeting", count=len)

    async def _write(self, prefix: mg.Sequence, seed: int, index: int) -> str:
        self._now += 1
        self.most = max(self.most, self._now)
        if self._now == self._parties:
            self._met.set()
        await asyncio.to_thread(self._met.wait, 60)
        await asyncio.sleep(0.01)  # whoever may begin meanwhile begins
        self._now -= 1
        return f"to {prefix.prompt.text}"


# -- answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_run_side_by_side_and_keep_their_order(stream: bool) -> None:
    meeting = Meeting(4)
    prompts = [f"prompt {i}" for i in range(4)]
    with serving_made({"one": mg.Sample(meeting.generator)}) as running:
        told: Any = running.client.with_options(timeout=60).completions.create(
            model="one", prompt=prompts, n=2, stream=stream
        )
        texts: dict[int, str] = {}
        for chunk in told if stream else [told]:
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {i: f"to prompt {i // 2}" for i in range(8)} and meeting.most >= 4


@pytest.mark.parametrize("stream", [False, True])
def test_all_requests_have_no_more_prompts_at_work_than_there_are_places(stream: bool) -> None:
    meeting = Meeting(3)
    prompts = [f"prompt {i}" for i in range(8)]
    with serving_made({"one": mg.Sample(meeting.generator)}, concurrency=3) as running:

        def ask(_: int) -> list[str]:
            told: Any = running.client.completions.create(model="one", prompt=prompts, stream=stream)
            choices = [choice for chunk in (told if stream else [told]) for choice in chunk.choices]
            return ["".join(c.text for c in choices if c.index == i) for i in range(8)]

        with ThreadPoolExecutor(3) as pool:
            assert [*pool.map(ask, range(3))] == [[f"to {prompt}" for prompt in prompts]] * 3
        assert meeting.most == 3
        until(lambda: running.server.gate.running == 0)  # the last place is given back after the last word


def test_a_limit_of_time_keeps_nobody_from_running_side_by_side() -> None:
    meeting = Meeting(3)
    options = {"metagen": {"budget": {"seconds": 50}}}
    with serving_made({"one": mg.Sample(meeting.generator)}) as running:
        running.client.completions.create(model="one", prompt=["a", "b", "c"], extra_body=options)
    assert meeting.most == 3


def test_a_stream_of_several_prompts_says_what_the_answers_say(served: Running) -> None:
    how: dict[str, Any] = {"model": "small/one", "prompt": PROMPTS, "n": 2, "seed": 3}
    whole = served.client.completions.create(**how)
    chunks = list(
        served.client.completions.create(**how, stream=True, stream_options={"include_usage": True})
    )
    texts: dict[int, str] = {}
    ended = []
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.finish_reason:
                ended.append(choice.index)
    assert texts == {choice.index: choice.text for choice in whole.choices} and sorted(ended) == [*range(8)]
    assert [choice.index for choice in whole.choices] == [*range(8)]
    *_, last, usage = chunks
    assert last.metagen == whole.metagen
    assert usage.usage is not None and whole.usage is not None
    assert usage.usage.completion_tokens == whole.usage.completion_tokens
    assert usage.usage.prompt_tokens == whole.usage.prompt_tokens
    # Seeds are those of single requests, so that the answers are too.
    alone = [
        served.client.completions.create(model="small/one", prompt=prompt, n=2, seed=3 + i)
        for i, prompt in enumerate(PROMPTS)
    ]
    assert [c.text for one in alone for c in one.choices] == [c.text for c in whole.choices]


def test_texts_of_several_prompts_come_while_they_are_written() -> None:
    """One after the other, all of the first would come before any of the second."""

    def table(prompt: str, done: tuple[str, ...]) -> list[float]:
        return [1.0, 0.0] if len(done) < 8 else [0.0, 1.0]

    with (
        mg.EnumerableEngine(["a", "end"], table, name="a", delay=0.02) as engine,
        serving_made({"one": mg.Sample(engine.generator(max_tokens=20))}) as running,
    ):
        order = []
        stream = running.client.completions.create(model="one", prompt=["x", "y"], stream=True)
        for chunk in stream:
            order += [choice.index for choice in chunk.choices if choice.text]
    assert order.count(0) > 2 and order.count(1) > 2
    assert order != sorted(order)


def test_a_budget_is_spent_in_the_order_of_the_prompts(served: Running) -> None:
    """Side by side it would be spent by whoever is faster, and a seed would not repeat an answer."""
    how: dict[str, Any] = {"model": "small/one", "prompt": PROMPTS * 5, "seed": 1}
    options = {"metagen": {"budget": 60}}
    told = [served.client.completions.create(**how, extra_body=options) for _ in range(5)]
    assert len({json.dumps([choice.text for choice in one.choices]) for one in told}) == 1
    assert told[0].usage is not None and told[0].usage.completion_tokens <= 60
    whole = served.client.completions.create(**how)
    assert [c.text for c in told[0].choices[:2]] == [c.text for c in whole.choices[:2]]


def test_a_faster_prompt_does_not_spend_what_an_earlier_one_needs() -> None:
    async def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        if "slow" in str(prefix.prompt.text):
            await asyncio.sleep(0.3)
        return f"{prefix.prompt.text}".ljust(10, ".")

    step = mg.FunctionGenerator(write, name="ten", count=len, max_tokens=10)
    chain = mg.Chain({"first": Ask(step, "{prompt}"), "then": Ask(step, "{first}")})
    options = {"metagen": {"budget": {"generated": 30}}}
    with serving_made({"chain": chain}) as running:
        got = running.client.completions.create(model="chain", prompt=["slow", "fast"], extra_body=options)
    assert [choice.finish_reason for choice in got.choices] == ["stop", "length"]
    assert got.choices[0].text == "slow......"


def test_an_error_in_one_prompt_ends_the_others() -> None:
    ended: list[str] = []

    async def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        if prefix.prompt.text == "bad":
            raise RuntimeError("bad")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(str(prefix.prompt.text))
        return ""

    with serving_made({"one": mg.Sample(mg.FunctionGenerator(write))}) as running:
        body = {"model": "one", "prompt": ["a", "b", "bad"]}
        got = httpx.post(f"{running.url}/completions", json=body, timeout=60)
        assert got.status_code == 503 and sorted(ended) == ["a", "b"]
        until(lambda: running.server.gate.running == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_away_ends_all_prompts(stream: bool) -> None:
    with slow(concurrency=3) as running:
        body = json.dumps({"model": "small/one", "prompt": [QUESTION] * 9, "stream": stream}).encode()
        to = urlsplit(running.url)
        head = (
            f"POST {to.path}/completions HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Type: application/json\r\n"
        )
        with socket.create_connection((to.hostname, to.port)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: running.server.gate.running == 3)
        until(lambda: running.server.gate.running == 0)
        counted = httpx.get(f"{running.host}/metrics").text
        assert 'metagen_requests_total{model="small/one",status="499"} 1.0' in counted
        again = {"model": "small/one", "prompt": "Q", "max_tokens": 2}
        assert httpx.post(f"{running.url}/completions", json=again, timeout=60).status_code == 200


# -- places --------------------------------------------------------------------------------------------


def test_requests_come_before_more_prompts_of_others() -> None:
    async def main() -> list[str]:
        gate, client, done = Gate(2, 10), Client(""), list[str]()

        async def request(name: str) -> None:
            async with gate.enter(client):
                done.append(name)
                await asyncio.sleep(0)

        async def prompt(name: str) -> None:
            async with gate.spare():
                done.append(name)
                await asyncio.sleep(0)

        async with gate.enter(client), gate.spare():
            assert gate.running == 2
            more = [asyncio.create_task(prompt(f"prompt {i}")) for i in range(3)]
            await asyncio.sleep(0)
            more += [asyncio.create_task(request(f"request {i}")) for i in range(3)]
            await asyncio.sleep(0)
            assert (gate.waiting, done) == (3, [])
        await asyncio.gather(*more)
        assert (gate.running, gate.waiting) == (0, 0)
        return done

    done = asyncio.run(main())
    assert done[:2] == ["request 0", "request 1"] and done.index("request 2") < done.index("prompt 1")


def test_a_spare_place_is_not_lost_with_who_waited_for_it() -> None:
    async def main() -> None:
        gate = Gate(1, 10)

        async def work() -> None:
            async with gate.spare():
                pass

        held = gate.enter(Client(""))
        await held.__aenter__()
        waiting = [asyncio.create_task(work()) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        # One is cancelled in the very moment in which its turn comes.
        await held.__aexit__(None, None, None)
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert gate.running == 0
        await asyncio.wait_for(work(), 1)

    asyncio.run(main())


def test_all_are_run_once_and_nobody_waits_for_a_place_at_the_end() -> None:
    async def main() -> tuple[list[int], list[int]]:
        @asynccontextmanager
        async def never() -> Any:
            await asyncio.Event().wait()
            yield

        async def do(number: int) -> int:
            begun.append(number)
            at_work.append(len(begun) - len(ended))
            await asyncio.sleep(0.001 * (5 - number))
            ended.append(number)
            return number * number

        async with asyncio.timeout(30):
            alone = await run_all(do, 5, 5, never)
            assert begun == [*range(5)] and max(at_work) == 1
            several = await run_all(do, 5, 3, nullcontext[None])
            assert max(at_work) == 3
            return alone, several

    begun, ended, at_work = list[int](), list[int](), list[int]()
    assert asyncio.run(main()) == ([0, 1, 4, 9, 16], [0, 1, 4, 9, 16])
