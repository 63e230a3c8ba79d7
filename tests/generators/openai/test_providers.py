"""What servers in use say in words and counts of their own: read as they mean it, or told as unknown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from metagen.attempts import CURRENT
from metagen.errors import EngineError, InputError, SetupError
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine, retries
from metagen.generators.openai.retries import Patience
from metagen.generators.openai.stream import CALLS, join_stream
from metagen.generators.primitive import most_tokens
from metagen.generators.tool_calls import split_calls, write_calls
from metagen.generators.torch import TorchEngine
from metagen.journal import Row
from metagen.sequence import Message, Prompt, Sequence
from metagen.testing import run
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Asked, Reply, Server, always, answer, delta, in_turn, said, stream


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT", 0.1)


def ask(
    server: Server, prompt: Prompt | None = None, *, generator: dict[str, Any] | None = None, **options: Any
) -> tuple[Sequence, Row, OpenAIEngine]:
    options.setdefault("patience", Patience(timeout=20.0, total=60.0, attempts=2))
    with OpenAIEngine("m", base_url=server.url, **options) as engine:
        one = engine.generator(**{"max_tokens": 2000, **(generator or {})})
        (sequence,), rows = run(
            lambda s: one.generate(Sequence.of(prompt or Prompt("p", text="What?")), scope=s), problem="p"
        )
    return sequence, rows[-1], engine


# -- counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "generated", "thought"),
    [
        # Gemini: thoughts are in the total alone.
        ({"prompt_tokens": 8, "completion_tokens": 102, "total_tokens": 1077}, 1069, None),
        (
            {
                "prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 68,
                "completion_tokens_details": {"reasoning_tokens": 60},
            },
            60,
            60,
        ),
        ({"prompt_tokens": 8, "completion_tokens": 102, "total_tokens": 110}, 102, None),
        # More than can be: unknown, and counted as wrong.
        ({"prompt_tokens": 8, "completion_tokens": 102, "total_tokens": 90_000}, None, None),
    ],
)  # fmt: skip
def test_tokens_that_only_the_total_tells_are_paid_for(
    usage: dict[str, Any], generated: int | None, thought: int | None
) -> None:
    body = answer() | {"usage": usage}
    with Server(always(Reply(body=body))).open() as server:
        sequence, row, engine = ask(server)
    assert row.usage.generated == generated
    assert (sequence.thought.tokens if sequence.thought else None) == thought
    assert engine.stats.extra["wrong_counts"] == (generated is None)


def test_a_count_with_the_tools_of_the_prompt_is_kept_and_expected() -> None:
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": "x" * 4000}} for i in range(10)
    ]
    prompt = Prompt("p", messages=(Message("user", "What?"),), public={"tools": tools})
    with Server(always(Reply(body=answer(prompt=11_000)))).open() as server:
        _, _, engine = ask(server, prompt, api="chat")
    assert engine.stats.extra["prompt_tokens"] == 11_000 and engine.stats.extra["wrong_counts"] == 0
    assert most_tokens(Sequence.of(prompt)) > 40_000


def test_a_streamed_count_of_one_of_several_choices_is_not_that_of_all() -> None:
    chunks = [delta("stop", index=i, content="4") for i in range(2)]
    last = {
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        "timings": {"predicted_n": 3},
    }
    request = GenerateRequest(Sequence.of(Prompt.of("What?")), (0, 1), SamplingParams(max_tokens=16), 16)
    with (
        Server(always(stream(*chunks, last))).open() as server,
        OpenAIEngine("m", base_url=server.url, stream=True, n_per_request=2) as engine,
    ):
        made = asyncio.run(engine.generate(request))
    assert [s.generated for s in made.samples] == [None, None]
    assert engine.stats.generated == 0 and engine.stats.extra["wrong_counts"] == 1


# -- ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "finish", "filtered"),
    [
        ("stop_sequence", "stop", 0),  # TGI
        ("eos_token", "eos", 0),
        ("model_length", "length", 0),  # Mistral
        ("end_turn", "eos", 0),  # gateways to Anthropic
        ("max_tokens", "length", 0),
        ("content_filter: RECITATION", "eos", 1),  # Gemini
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "eos", 1),
    ],
)
def test_ends_in_other_words_are_ends(reason: str, finish: str, filtered: int) -> None:
    with Server(always(Reply(body=answer(said("4\n", finish_reason=reason))))).open() as server:
        sequence, _, engine = ask(server, generator={"stop": ("\n",)} if finish == "stop" else {})
    assert (sequence.text, sequence.finish) == ("4" if finish == "stop" else "4\n", finish)
    assert engine.stats.extra["filtered"] == filtered and len(server.asked) == 1


def test_an_end_that_is_none_is_named() -> None:
    with (
        Server(always(Reply(body=answer(said("4", finish_reason="abort"))))).open() as server,
        pytest.raises(EngineError, match="finish_reason 'abort'"),
    ):
        ask(server)


def test_a_stop_text_of_the_servers_own_ends_a_completion() -> None:
    choice = said("4", stop_reason="\n\n")
    with Server(always(Reply(body=answer(choice)))).open() as server:
        sequence, _, _ = ask(server, dialect="vllm", api="chat")
    assert (sequence.text, sequence.finish) == ("4", "stop") and len(server.asked) == 1


@pytest.mark.parametrize("told", [True, False])
def test_a_refusal_has_the_log_probabilities_of_its_own_tokens_or_none(told: bool) -> None:
    message = {"role": "assistant", "content": None, "refusal": "I cannot."}
    places = [{"token": "I", "logprob": -0.5}, {"token": " cannot.", "logprob": -0.25}]
    choice = said("", message=message, logprobs={"content": None, "refusal": places} if told else None)
    del choice["text"]
    with Server(always(Reply(body=answer(choice, new=2)))).open() as server:
        sequence, _, engine = ask(server, api="chat", generator={"logprobs": True})
    assert sequence.logprob == (-0.75 if told else None) and len(server.asked) == 1
    assert engine.stats.extra["declined"] == 1


# -- calls of tools ------------------------------------------------------------------------------------------


def call(name: str | None, arguments: str, id: str | None, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"function": function, **({} if id is None else {"id": id}), **more}


@pytest.mark.parametrize("numbers", [(0, 1), (0, 0), (None, None)])
def test_streamed_calls_are_told_apart_by_their_ids_where_their_numbers_are_equal(
    numbers: tuple[int | None, int | None],
) -> None:
    chunks = []
    for city, number in zip("AB", numbers, strict=True):
        at = {} if number is None else {"index": number}
        chunks.append(delta(tool_calls=[call("weather", '{"city": ', f"id-{city}", **at)]))
        chunks.append(delta(tool_calls=[call(None, f'"{city}"}}', None, **at)]))
    chunks.append(delta("tool_calls"))
    (choice,) = join_stream(bytes(stream(*chunks).body))["choices"]  # type: ignore[arg-type]  # `stream` gives bytes
    _, calls = split_calls(write_calls(choice["message"]["tool_calls"]))
    assert [json.loads(one["function"]["arguments"]) for one in calls] == [{"city": "A"}, {"city": "B"}]
    assert [one["function"]["name"] for one in calls] == ["weather"] * 2


def test_an_answer_of_very_many_calls_is_none() -> None:
    many = delta(tool_calls=[call("f", "{}", f"{i}", index=i) for i in range(CALLS + 1)])
    with pytest.raises(ValueError, match="more than 128 calls"):
        join_stream(bytes(stream(many).body))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_what_is_nested_without_end_stays_text(text: str) -> None:
    assert split_calls(text) == (text, [])
    assert split_calls(f"<tool_call>{text}</tool_call>")[1] == []
    assert "f" in write_calls([{"function": {"name": "f", "arguments": text}}])


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
def test_an_error_under_a_good_status_keeps_its_words_and_may_pass(streamed: bool) -> None:
    error = {"error": {"code": 502, "message": "the provider is down"}}
    bad = stream(delta(content="4"), error) if streamed else Reply(body=error)
    good = stream(delta("stop", content="4")) if streamed else Reply(body=answer())
    with Server(in_turn(bad, good)).open() as server:
        ask(server, stream=streamed)
        assert len(server.asked) == 2
    with Server(always(bad)).open() as server, pytest.raises(EngineError, match="the provider is down"):
        ask(server, stream=streamed)


@pytest.mark.parametrize(
    ("code", "asked", "kind"),
    [
        (429, 2, EngineError),
        (400, 1, InputError),
        (401, 1, SetupError),
        ("insufficient_quota", 1, SetupError),
    ],
)
def test_an_error_under_a_good_status_is_treated_as_its_code(code: Any, asked: int, kind: type) -> None:
    body = answer(said("", error={"code": code, "message": "no"}, finish_reason="error"))
    with Server(always(Reply(body=body))).open() as server, pytest.raises(kind):
        ask(server, patience=Patience(timeout=5.0, total=2.0, attempts=2))
    assert len(server.asked) >= asked if asked > 1 else len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (402, {"message": "Insufficient credits"}),
        (429, {"type": "exceeded_current_quota_error", "message": "check your plan"}),
        (429, {"code": "insufficient_quota", "message": "check your plan"}),
    ],
)
def test_an_empty_account_is_not_waited_for(status: int, error: dict[str, Any]) -> None:
    with (
        Server(always(Reply(status, {"error": error}))).open() as server,
        pytest.raises(SetupError, match="nothing left to spend"),
    ):
        ask(server)
    assert len(server.asked) == 1


def test_an_account_that_names_a_time_is_waited_for() -> None:
    later = Reply(402, {"error": {"message": "Insufficient credits"}}, {"retry-after": "0.01"})
    with Server(in_turn(later, Reply(body=answer()))).open() as server:
        ask(server)
    assert len(server.asked) == 2


# -- readings ------------------------------------------------------------------------------------------------


class Told:
    """The attempts of a reading, as a scope would hand them out. freed: those that cost nothing."""

    def __init__(self) -> None:
        self.freed = 0

    async def reading(self) -> Any:
        return self

    def free(self) -> None:
        self.freed += 1


@pytest.mark.parametrize(("most", "freed"), [(6, 0), (0, 1)])
def test_one_prompt_that_is_too_long_makes_nothing_free_and_others_go_on_together(
    most: int, freed: int, recwarn: pytest.WarningsRecorder
) -> None:
    with TorchEngine("tiny-prm", threads=1) as local:
        model = serves(local, details=False)

        async def handler(asked: Asked) -> Reply:
            prompts = asked.body["prompt"]
            if max(len(one) for one in (prompts if isinstance(prompts[0], list) else [prompts])) > most:
                return Reply(400, {"error": {"message": "the prompt is too long"}})
            return await model(asked)

        told = Told()
        request = EvaluateRequest(ids=(1, *range(10, 19)), positions=(2, 3, 4, 9), labels=(1, 2))
        with (
            Server(handler).open() as server,
            OpenAIEngine(
                "tiny-prm", base_url=server.url, api="completions", dialect="vllm", tokenizer="tiny-prm"
            ) as engine,
        ):

            async def read() -> None:
                CURRENT.set(told)  # type: ignore[arg-type]  # all that an engine asks of it
                await engine.evaluate([request])

            with pytest.raises(InputError, match="too long"):
                asyncio.run(read())
            assert told.freed == freed and not engine._singly
    assert not [w for w in recwarn if "one sample or reading at a time" in str(w.message)]
