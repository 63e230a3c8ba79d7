"""Servers that refuse, hang, break off, lie and spy: work goes on where it can, and ends with a reason where not."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import socket
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metagen import logs
from metagen.budget import Budget
from metagen.errors import BudgetExhausted, EngineError, InputError, MetagenError
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine, retries, transport
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.openai.retries import Patience
from metagen.generators.tool_calls import TOOLS
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Sequence
from tests.generators.openai.serving import (
    KEY,
    Asked,
    Handler,
    Reply,
    Server,
    always,
    answer,
    in_turn,
    said,
)

GOOD = Reply(body=answer())
PREFIX = Sequence.of(Prompt.of("What is it?"))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT", 0.1)


def engine(server: Server | str, **options: Any) -> OpenAIEngine:
    options.setdefault("patience", Patience(timeout=20.0, total=60.0, attempts=4))
    url = server if isinstance(server, str) else server.url
    return OpenAIEngine("m", base_url=url, **options)


def ask(engine: OpenAIEngine, n: int = 1, most: int = 16, **params: Any) -> Generated:
    request = GenerateRequest(PREFIX, tuple(range(n)), SamplingParams(max_tokens=most, **params), most)
    return asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))


def asked_of(handler: Handler, **options: Any) -> tuple[Generated | MetagenError, OpenAIEngine, Server]:
    """What one request comes to."""
    with Server(handler).open() as server, engine(server, **options) as asking:
        try:
            return ask(asking), asking, server
        except MetagenError as error:
            return error, asking, server


# -- refusals ------------------------------------------------------------------------------------


def test_a_storm_of_refusals_passes_and_the_server_is_not_drowned() -> None:
    room = 3

    async def crowded(asked: Asked) -> Reply:
        if server.running > room:
            return Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "0.02"})
        return Reply(body=answer(said(str(asked.body["seed"]))), delay=0.01)

    server = Server(crowded)
    with server.open(), engine(server, concurrency=Concurrency(64, 64)) as asking:
        made = ask(asking, n=120)
        limiter = asking._transport.limiter  # type: ignore[union-attr]  # it is open
    assert [s.text for s in made.samples] == [str(i) for i in range(120)]
    assert asking.stats.extra["busy"] > 0 and asking.stats.extra["maybe_billed"] == 0
    assert limiter.window < 32, "of 64 places the server has 3"
    assert len(server.asked) < 3 * 120, "most requests are answered, not refused"


def test_a_server_that_closes_connections_where_there_are_too_many_is_asked_by_fewer() -> None:
    room = 3

    async def crowded(asked: Asked) -> Reply:
        if server.running > room:
            return Reply(body=answer(), cut=0)
        return Reply(body=answer(said(str(asked.body["seed"]))), delay=0.02)

    server = Server(crowded)
    patience = Patience(timeout=20.0, total=60.0, attempts=20)
    with server.open(), engine(server, concurrency=Concurrency(64, 64), patience=patience) as asking:
        made = ask(asking, n=120)
        limiter = asking._transport.limiter  # type: ignore[union-attr]  # it is open
    assert [s.text for s in made.samples] == [str(i) for i in range(120)]
    assert asking.stats.extra["connection"] > 0 and limiter.window < 32


@pytest.mark.parametrize("value", ["0", "-7", "Thu, 01 Jan 2004 00:00:00 GMT"])
def test_a_server_that_says_to_come_back_at_once_is_given_up_after_so_many_attempts(value: str) -> None:
    with Server(always(Reply(429, {"error": {"message": "busy"}}, {"retry-after": value}))).open() as server:
        patience = Patience(timeout=20.0, total=60.0, attempts=3)
        with (
            engine(server, patience=patience) as asking,
            pytest.raises(EngineError, match="given up after 3 failures"),
        ):
            ask(asking)
    assert len(server.asked) == 3
    assert server.asked[2].at > server.asked[1].at > server.asked[0].at


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_beyond_all_measure_is_refused_before_it_fills_the_memory(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 100_000)
    body = json.dumps(answer(said("x" * 200_000))).encode()
    headers = {"content-encoding": "gzip"} if packed else {}
    sent = gzip.compress(body) if packed else body
    assert not packed or len(sent) < 5_000
    with Server(always(Reply(body=sent, headers=headers))).open() as server:
        with engine(server) as asking, pytest.raises(InputError, match="more than 100,000 bytes"):
            ask(asking)
        assert len(server.asked) == 1, "it is not asked for again"
    assert asking.stats.extra["maybe_billed"] == 1


@pytest.mark.parametrize("told", [{}, {"token_ids": list(range(5000))}])
def test_a_sample_longer_than_was_asked_for_is_no_answer(told: dict[str, Any]) -> None:
    long = said("y" * (1_000_000 if not told else 10)) | told
    server = Server(always(Reply(body=answer(long))))
    patience = Patience(timeout=20.0, total=60.0, attempts=1)
    with (
        server.open(),
        engine(server, patience=patience) as asking,
        pytest.raises(EngineError, match=r"it wrote \d+ tokens or more where \d+ were asked for"),
    ):
        ask(asking)


@pytest.mark.parametrize(("header", "value"), [("retry-after", "0.4"), ("retry-after-ms", "400")])
def test_the_time_that_a_server_asks_for_is_kept_by_all_requests(header: str, value: str) -> None:
    with (
        Server(in_turn(Reply(429, b"", {header: value}), GOOD)).open() as server,
        engine(server, concurrency=Concurrency(1, 1)) as asking,
    ):
        ask(asking, n=3)
    first, *others = server.asked
    assert len(others) == 3
    assert min(other.at for other in others) - first.at >= 0.4


@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 503, 504, 529])
def test_faults_of_a_server_pass(status: int) -> None:
    made, asking, server = asked_of(in_turn(Reply(status, b"<html>oops</html>"), Reply(status), GOOD))
    assert isinstance(made, Generated) and made.samples[0].text == "hello"
    assert len(server.asked) == 3 and asking.stats.extra["retries"] == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "dialect"),
        (401, "OPENAI_API_KEY"),
        (403, "OPENAI_API_KEY"),
        (404, "/v1"),
        (422, "dialect"),
        (413, "request"),
    ],
)
def test_what_is_refused_for_good_is_not_asked_again(status: int, words: str) -> None:
    error, _, server = asked_of(always(Reply(status, {"error": {"message": "no, never"}})))
    assert isinstance(error, InputError) and words in str(error) and str(status) in str(error)
    assert len(server.asked) == 1


def test_an_account_without_money_is_not_taken_for_a_busy_server() -> None:
    """Both are 429; what is busy would be asked again until the patience ends."""
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    error, asking, server = asked_of(always(Reply(429, body)))
    assert isinstance(error, InputError) and "nothing left to spend" in str(error)
    assert len(server.asked) == 1 and asking.stats.extra["busy"] == 0


def test_a_server_that_fails_for_good_ends_in_an_error_that_says_how_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error, asking, server = asked_of(always(Reply(500, b"What is it? went wrong")))
    assert isinstance(error, EngineError) and "500" in str(error) and "4 failures" in str(error)
    assert len(server.asked) == 4 and asking.stats.extra["status"] == 4
    assert "What is it" not in caplog.text, "a server's words may quote the prompt"


def test_a_page_for_people_is_not_repeated() -> None:
    error, _, _ = asked_of(
        always(Reply(404, b"<html><body>nothing here</body>", {"content-type": "text/html"}))
    )
    assert "page for people" in str(error) and "<html>" not in str(error)


def test_a_server_that_is_not_there_is_an_error_with_its_address() -> None:
    with engine("http://127.0.0.1:9/v1") as asking, pytest.raises(EngineError, match=r"127\.0\.0\.1:9/v1"):
        ask(asking)
    assert asking.stats.extra["connection"] == 4 and asking.stats.extra["maybe_billed"] == 0


def test_redirects_are_not_followed() -> None:
    with Server(always(GOOD)).open() as elsewhere:
        target = elsewhere.url.replace("127.0.0.1", "localhost") + "/completions"
        for status in (301, 302, 307, 308):
            error, _, _ = asked_of(always(Reply(status, b"", {"location": target})))
            assert isinstance(error, InputError) and "redirect" in str(error)
    assert elsewhere.asked == []


# -- hangs and broken connections ----------------------------------------------------------------


def test_a_request_that_hangs_is_asked_again() -> None:
    made, asking, server = asked_of(
        in_turn(Reply(body=answer(), delay=60.0), GOOD), patience=Patience(timeout=0.3, total=20.0)
    )
    assert isinstance(made, Generated) and len(server.asked) == 2
    assert asking.stats.extra["timeouts"] == 1
    assert asking.stats.extra["maybe_billed"] == 1, "the server may have done the work"


def test_a_server_that_hangs_for_good_is_given_up_in_time() -> None:
    error, _, _ = asked_of(always(Reply(delay=60.0)), patience=Patience(timeout=0.3, total=1.0, attempts=100))
    assert isinstance(error, EngineError) and "no answer within" in str(error)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 40])
def test_an_answer_that_breaks_off_is_asked_for_again(chunked: bool, cut: int) -> None:
    made, asking, server = asked_of(in_turn(Reply(body=answer(), cut=cut, chunked=chunked), GOOD))
    assert isinstance(made, Generated) and made.samples[0].text == "hello"
    assert len(server.asked) == 2 and asking.stats.extra["connection"] == 1
    assert asking.stats.extra["maybe_billed"] == 1


def test_a_cancelled_request_leaves_the_server_and_gives_its_place_back() -> None:
    async def some_hang(asked: Asked) -> Reply:
        if server.running == 2:
            two_run.set()
        return Reply(body=answer(), delay=60.0 if asked.body["seed"] < 8 else 0.0)

    async def storm(asking: OpenAIEngine) -> None:
        requests = [GenerateRequest(PREFIX, (i,), SamplingParams(), 16) for i in range(8)]
        tasks = [asyncio.create_task(asking.generate(request)) for request in requests]
        await asyncio.to_thread(two_run.wait)
        for task in reversed(tasks):  # those that wait first, lest they take the places of those that run
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(asking.generate(GenerateRequest(PREFIX, (99,), SamplingParams(), 16)), 30.0)

    two_run, server = threading.Event(), Server(some_hang)
    with server.open(), engine(server, concurrency=Concurrency(2, 2)) as asking:
        asyncio.run(storm(asking))
        for _ in range(200):
            if server.gone == 2:
                break
            time.sleep(0.02)
    assert server.gone == 2, "both connections were closed, so that the server can stop"
    assert len(server.asked) == 3, "what waited for a place was never sent"
    extra = asking.stats.extra
    assert (extra["attempts"], extra["cancelled"], extra["maybe_billed"]) == (3, 2, 2)


def test_what_had_ended_before_a_failure_is_kept() -> None:
    async def one_fails(asked: Asked) -> Reply:
        return Reply(400, b"no", delay=0.5) if asked.body["seed"] == 2 else Reply(body=answer(said("kept")))

    request = GenerateRequest(PREFIX, (0, 1, 2), SamplingParams(), 16)
    with Server(one_fails).open() as server, engine(server) as asking, pytest.raises(InputError):
        asyncio.run(asking.generate(request))
    assert {i: sample.text for i, sample in request.ended.items()} == {0: "kept", 1: "kept"}


def test_a_server_that_cannot_be_reached_in_time_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]  # the queue of those that it does not accept is full
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with (
            engine(f"http://127.0.0.1:{port}/v1") as asking,
            pytest.raises(EngineError, match="not be reached"),
        ):
            ask(asking)
        for one in waiting:
            one.close()
    assert asking.stats.extra["timeouts"] == 4 and asking.stats.extra["maybe_billed"] == 0


# -- requests that wait --------------------------------------------------------------------------


def test_a_request_that_waits_holds_no_tokens_of_its_own() -> None:
    """Of 40 samples of a long prompt, two are on their way."""

    async def hang(asked: Asked) -> Reply:
        if server.running == 2:
            two_run.set()
        return Reply(delay=60.0)

    async def storm(asking: OpenAIEngine) -> tuple[int, int]:
        prompt = Sequence.of(Prompt.of("a" * 5003))
        length = len(asking.render(prompt) or ())
        params = SamplingParams()
        many = asyncio.create_task(asking.generate(GenerateRequest(prompt, tuple(range(40)), params, 16)))
        ids = asking.render(prompt) or ()
        reading = asyncio.create_task(asking.evaluate([EvaluateRequest(ids, (length - 1,) * 40, (5, 6))]))
        await asyncio.to_thread(two_run.wait, 30.0)
        held = sum(type(o) is list and len(o) == length for o in gc.get_objects())
        many.cancel()
        reading.cancel()
        await asyncio.gather(many, reading, return_exceptions=True)
        return length, held

    two_run, server = threading.Event(), Server(hang)
    with (
        server.open(),
        engine(
            server, concurrency=Concurrency(2, 2), api="completions", dialect="vllm", tokenizer="tiny-0.1m"
        ) as asking,
    ):
        length, held = asyncio.run(storm(asking))
    assert length > 5000 and 2 <= held <= 8, "those of the two, here and in the server"


def test_a_long_prompt_does_not_keep_the_clients_loop() -> None:
    """The library would take a tenth of a second to look through its ids one by one."""
    prompt = Sequence.of(Prompt.of("a" * 16_000))
    taken = []
    with (
        Server(always(Reply(body=answer(prompt=16_000)))).open() as server,
        engine(server, api="completions", tokenizer="tiny-0.1m") as asking,
    ):
        for seed in range(6):
            began = time.process_time()
            asyncio.run(asking.generate(GenerateRequest(prompt, (seed,), SamplingParams(), 16)))
            taken.append(time.process_time() - began)
    assert [len(a.body["prompt"]) for a in server.asked] == [len(asking.render(prompt) or ())] * 6
    assert min(taken) < 0.05, "of both sides, with the server's reading"


@pytest.mark.parametrize(("tokenizer", "told"), [(None, [9]), ("tiny-0.1m", [])])
def test_a_server_counts_a_prefix_only_for_who_has_no_ids(tokenizer: str | None, told: list[int]) -> None:
    request = GenerateRequest(Sequence.of("a prompt"), (1, 2), SamplingParams(), 16)
    options = {} if tokenizer is None else {"tokenizer": tokenizer}
    with (
        Server(always(Reply(body=answer(said("x"), prompt=9)))).open() as server,
        engine(server, api="completions", **options) as asking,
    ):
        found = asyncio.run(asking.generate(request))
    assert request.told == told and found.prefix_tokens == (9 if told else len(found.prefix_ids or ()))


def test_more_labels_than_a_server_takes_at_once_are_asked_for_in_parts() -> None:
    async def reads(asked: Asked) -> Reply:
        labels, at = asked.body["logprob_token_ids"], len(asked.body["prompt"])
        if len(labels) > 128:
            return Reply(400, b"too many")
        logprobs = {"token_logprobs": [0.0], "top_logprobs": [{f"token_id:{i}": -i - at / 8 for i in labels}]}
        counts = {"prompt": at, "new": 1, "prompt_tokens_details": {"cached_tokens": 1}}
        return Reply(body=answer(said("a", logprobs=logprobs), **counts))

    labels = (*range(300), 5, 7)
    requests = [EvaluateRequest((5, 6, 7, 8), (1, 3), labels), EvaluateRequest((5, 6), (0,), (9,))]
    with (
        Server(reads).open() as server,
        engine(server, api="completions", dialect="vllm", tokenizer="tiny-bpe") as asking,
    ):
        many, one = asyncio.run(asking.evaluate(requests))
    assert many.values == tuple(tuple(-i - at / 8 for i in labels) for at in (2, 4))
    assert (many.prefilled, many.cached) == (3 * (2 + 4 - 2), 6) and one.values == ((-9.125,),)
    assert len(server.asked) == 3 * 2 + 1


def test_best_and_labels_never_meet_in_a_server_and_the_others_go_along() -> None:
    """vLLM's server gives those for the best k no more than the token drawn while it reads labels."""
    inside: Counter[str] = Counter()
    met, together = [], []

    def kind(body: dict[str, Any]) -> str:
        if "logprob_token_ids" in body:
            return "labels"
        return "best" if body.get("logprobs") else "plain"

    async def spoils(asked: Asked) -> Reply:
        mine = kind(asked.body)
        inside[mine] += 1
        if inside["best"] and inside["labels"]:
            met.append(asked.number)
        together.append(inside["plain"] and inside["best"] + inside["labels"])
        await asyncio.sleep(0.01)
        inside[mine] -= 1
        names = [f"token_id:{i}" for i in (5, 6)]
        logprobs = {
            "token_logprobs": [-0.5], "top_logprobs": [dict.fromkeys(names, -0.7)],
        }  # fmt: skip
        return Reply(body=answer(said("a", logprobs=logprobs, finish_reason="length"), prompt=3, new=1))

    async def all_at_once(asking: OpenAIEngine) -> None:
        ids = asking.render(PREFIX) or ()
        await asyncio.gather(
            *(asking.evaluate([EvaluateRequest(ids, (0, 1, 2), (5, 6))]) for _ in range(10)),
            *(
                asking.generate(GenerateRequest(PREFIX, (1, 2, 3), SamplingParams(top_logprobs=k), 1))
                for k in (2, 0) * 10
            ),
        )

    with (
        Server(spoils).open() as server,
        engine(
            server,
            concurrency=Concurrency(8, 8),
            api="completions",
            dialect="vllm",
            tokenizer="tiny-0.1m",
            n_per_request=1,
        ) as asking,
    ):
        asyncio.run(asyncio.wait_for(all_at_once(asking), 60.0))
    assert len(server.asked) == 30 + 60 and met == []
    assert any(together) and server.most == 8


# -- answers that are none -----------------------------------------------------------------------

MALFORMED: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"It is forty-two.",
    "JSON broken off": b'{"choices": [{"text": "he',
    "a list": b"[]",
    "no choices": {"usage": {}},
    "an error under status 200": {"error": {"message": "overloaded", "code": 502}},
    "a stream": b'data: {"choices": [{"text": "h"}]}\n\ndata: [DONE]\n\n',
    "a page": b"<html><body>Welcome</body></html>",
    "no choice": {"choices": []},
    "two choices": answer(said("a"), said("b")),
    "a text that is a number": answer(said(text=42)),  # type: ignore[arg-type]  # no text
    "no end": answer(said(finish_reason=None)),
    "an unknown end": answer(said(finish_reason="because")),
    "a number of its own": {"choices": [said(index=3)]},
    "not UTF-8": b'{"choices": [{"text": "\xff\xfe", "finish_reason": "stop"}]}',
    "choices that are null": {"choices": None},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_answer_is_asked_for_again_and_named_in_the_end(name: str) -> None:
    bad = Reply(body=MALFORMED[name])
    made, asking, server = asked_of(in_turn(bad, bad, GOOD), api="completions")
    assert isinstance(made, Generated) and made.samples[0].text == "hello"
    assert asking.stats.extra["invalid"] == 2 and len(server.asked) == 3
    error, _, server = asked_of(always(bad), api="completions")
    assert isinstance(error, EngineError) and len(server.asked) == 4
    assert "api and dialect" in str(error)


TOPS = (("a", -0.5), ("b", 0.7))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"token_logprobs": [None, -0.5]},
        {"token_logprobs": [0.5]},
        {"token_logprobs": ["-1"]},
        {"content": [{"token": "x", "logprob": -1.0, "top_logprobs": []}]},
        {"content": [{"token": "x", "logprob": float("nan"), "top_logprobs": []}]},
        {
            "content": [
                {"token": "x", "logprob": -1.0, "top_logprobs": [{"token": t, "logprob": v} for t, v in TOPS]}
            ]
        },
        {"token_logprobs": [-1.0], "top_logprobs": [{"a": -0.5, "b": float("nan")}]},
    ],
)
def test_log_probabilities_that_cannot_be_are_no_answer(logprobs: Any) -> None:
    with (
        Server(always(Reply(body=answer(said(logprobs=logprobs))))).open() as server,
        engine(server) as asking,
        pytest.raises(EngineError, match=r"it gave|not as expected"),
    ):
        ask(asking, logprobs=True, top_logprobs=2)


@pytest.mark.parametrize("bad", [float("inf"), {1, 2}, np.int64(3), Patience])
def test_fields_of_every_request_are_json(bad: Any) -> None:
    with pytest.raises(InputError, match="extra_body is no JSON"):
        engine("http://localhost/v1", extra_body={"options": [bad]})


def test_what_is_no_json_is_neither_sent_nor_charged() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"maximum": float("inf")}}}]
    told = Prompt("p", messages=(Message("user", "?"),), public={TOOLS: tools})
    with Server(always(GOOD)).open() as server, engine(server) as asking:
        request = GenerateRequest(Sequence.of(told), (0,), SamplingParams(max_tokens=9), 9)
        with pytest.raises(InputError, match="is no JSON, and was not sent"):
            asyncio.run(asking.generate(request))
        assert not server.asked and asking.stats.extra["maybe_billed"] == 0


# -- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [None, -3, 0, 10**9, "12", True, 2.5, [3], {}])
@pytest.mark.parametrize("which", ["prompt", "new"])
def test_a_count_that_cannot_be_is_unknown(which: str, bad: Any) -> None:
    made, asking, _ = asked_of(always(Reply(body=answer(**{which: bad}))))
    assert isinstance(made, Generated)
    known = (made.prefix_tokens, made.samples[0].generated)
    assert known == ((None, 3) if which == "prompt" else (5, None))
    assert asking.stats.extra["wrong_counts"] == (bad is not None)


@pytest.mark.parametrize("told", [{}, {"token_ids": [1, 2, 3]}])
def test_fewer_tokens_than_an_answer_can_have_are_no_count(told: dict[str, Any]) -> None:
    """Of a long text one token is told; of three ids, two."""
    choice = said("three words and " * (1 if told else 100)) | told
    made, asking, _ = asked_of(always(Reply(body=answer(choice, new=2 if told else 1))))
    assert isinstance(made, Generated) and made.samples[0].generated == (3 if told else None)
    assert asking.stats.extra["wrong_counts"] == 1 and asking.stats.generated == (3 if told else 0)


@pytest.mark.parametrize(
    ("cached", "expected"),
    [(2, (3, 2)), (0, (5, 0)), (5, (0, 5)), (6, None), (-1, None), ("2", None), (None, None)],
)
def test_cached_tokens_are_read_where_they_are_given(cached: Any, expected: tuple[int, int] | None) -> None:
    made, _, _ = asked_of(always(Reply(body=answer(prompt_tokens_details={"cached_tokens": cached}))))
    assert isinstance(made, Generated)
    assert (made.prefilled, made.cached) == (expected or (None, None))


@pytest.mark.parametrize("lie", [10**9, -1, 17, None])
def test_a_budget_of_tokens_is_kept_whatever_the_server_counts(lie: Any) -> None:
    """What is unknown weighs as the worst that it may be, and so no lie makes room, or takes it."""

    async def spend(asking: OpenAIEngine) -> list[Sequence]:
        scope = Scope.root("p", budget=Budget(generated=40))
        generator = asking.generator(max_tokens=16)
        got: list[Sequence] = []
        for i in range(5):
            try:
                got += await generator.generate(PREFIX, start=i, scope=scope.child(str(i)))
            except BudgetExhausted:
                break
        assert scope.left().generated == 0
        return got

    with Server(always(Reply(body=answer(new=lie)))).open() as server, engine(server) as asking:
        got = asyncio.run(spend(asking))
    assert len(got) == 3, "16, 16, and the 8 that are left"
    assert [a.body["max_tokens"] for a in server.asked] == [16, 16, 8]


# -- the key -------------------------------------------------------------------------------------


def echoing(status: int) -> Handler:
    """Sends back all that it was sent, in every place."""

    async def handler(asked: Asked) -> Reply:
        sent = asked.headers["authorization"]
        headers = {"x-request-id": sent, "location": f"http://127.0.0.1:9/{sent}", "www-authenticate": sent}
        if status == 201:  # a good answer, but for the reason that it ended
            body = {"choices": [{"index": 0, "text": "", "finish_reason": sent, "logprobs": {sent: 1}}]}
            return Reply(200, body, headers)
        return Reply(status, {"error": {"message": f"bad key {sent}", "code": sent, "param": sent}}, headers)

    return handler


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}),
        (500, {"content-type": "text/plain; charset=hex"}),
    ],
)
def test_headers_that_are_none_are_failures_like_others(status: int, headers: dict[str, str]) -> None:
    patience = Patience(timeout=5.0, total=2.0, attempts=2)
    reply = Reply(status, b"no", headers)
    with (
        Server(always(reply)).open() as server,
        engine(server, patience=patience) as asking,
        pytest.raises(EngineError, match="given up after"),
    ):
        asyncio.run(asking.generator().generate(PREFIX, scope=Scope.root("p")))
    assert len(server.asked) >= 2


def test_a_proxy_of_the_environment_is_used_but_for_what_it_leaves_out_and_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server(always(GOOD)).open() as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "left.example.invalid")
        with engine("http://model.example.invalid/v1") as asking:
            assert ask(asking).samples[0].text == "hello"
        assert server.asked[-1].headers["host"] == "model.example.invalid"
        patience = Patience(timeout=2.0, total=2.0, attempts=1)
        with (
            engine("http://left.example.invalid/v1", patience=patience) as asking,
            pytest.raises(EngineError),
        ):
            ask(asking)
        assert len(server.asked) == 1
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with engine(server) as asking:
            assert ask(asking).samples[0].text == "hello"


def test_a_proxy_that_speaks_no_http_is_named_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://name:secret@127.0.0.1:9")
    with (
        pytest.raises(
            InputError, match=r"socks5://127\.0\.0\.1:9.*NO_PROXY to model\.example\.invalid"
        ) as caught,
        engine("http://model.example.invalid/v1"),
    ):
        pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 201, 302, 400, 401, 403, 404, 422, 429, 500])
def test_the_key_is_sent_and_told_nowhere(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    everything: list[str] = []
    logs.configure("debug", "json", tmp_path / "log")
    handler = logging.StreamHandler((tmp_path / "all.log").open("w"))
    logging.getLogger().addHandler(handler)
    for name in (None, "aiohttp", "aiohttp.client", "asyncio"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.DEBUG)
    patience = Patience(timeout=5.0, total=1.0, attempts=2)
    try:
        with (
            Server(echoing(status)).open() as server,
            engine(server, api_key_env="MY_KEY", patience=patience) as asking,
            SQLiteJournal(tmp_path / "journal.sqlite") as journal,
        ):
            everything += [repr(asking), asking.fingerprint, repr(vars(asking)), repr(asking._key)]
            scope = Scope.root("p", journal=journal)
            with pytest.raises(MetagenError) as caught:
                asyncio.run(asking.generator().generate(PREFIX, n=2, scope=scope))
    finally:
        ours = logging.getLogger("metagen")
        for one in [h for h in ours.handlers if h.name == "metagen"]:
            ours.removeHandler(one)
            one.close()
        ours.setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(handler)
        handler.close()
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}", "it was used"
    error: BaseException | None = caught.value
    everything += traceback.format_exception(caught.value)
    while error is not None:
        everything += [str(error), repr(error), repr(vars(error))]
        error = error.__cause__ or error.__context__
    everything += [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    everything += capfd.readouterr()
    assert KEY not in "".join(everything)
    if status in (401, 403):
        assert "MY_KEY" in str(caught.value)


def test_a_completion_that_tells_the_key_is_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with (
        Server(always(Reply(body=answer(said(f"the key is {KEY}!"))))).open() as server,
        engine(server, api_key_env="MY_KEY") as asking,
        SQLiteJournal(tmp_path / "journal.sqlite") as journal,
        pytest.raises(EngineError, match="do not trust it") as caught,
    ):
        asyncio.run(asking.generator().generate(PREFIX, scope=Scope.root("p", journal=journal)))
    assert KEY not in str(caught.value)
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api_key_env": KEY}, "may be a key"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "not set"),
        ({"base_url": f"http://me:{KEY}@localhost/v1"}, "before the host"),
        ({"base_url": f"http://{KEY}@localhost:80/v1"}, "before the host"),
        ({"base_url": f"http://localhost/v1?api_key={KEY}"}, "follows the path"),
        ({"base_url": f"http://localhost/v1#{KEY}"}, "follows the path"),
        ({"base_url": "localhost:8000"}, "such as"),
        ({"base_url": "http://localhost:port/v1"}, "such as"),
        ({"extra_body": {"Api-Key": KEY}}, "environment variable"),
    ],
)
def test_keys_have_no_other_place_than_the_environment(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        OpenAIEngine("m", **{"base_url": "http://localhost/v1", **options})
    assert KEY not in str(caught.value)


def test_a_hosted_server_wants_a_key_and_a_local_one_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        OpenAIEngine("m")
    monkeypatch.setenv("OPENAI_API_KEY", "two words")
    with pytest.raises(InputError, match="spaces") as caught:
        OpenAIEngine("m")
    assert "two words" not in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert KEY not in repr(OpenAIEngine("m"))
