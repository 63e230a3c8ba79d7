"""The server, asked by OpenAI's own client and by hand."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

import metagen as mg
from metagen.budget import Account, Budget, Turn, least
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch.engine import TorchEngine
from metagen.runs.declare import schema
from metagen.serve.app import _check_quota
from metagen.serve.errors import ApiError
from metagen.serve.gate import Client
from metagen.serve.models import open_models
from metagen.serve.protocol import ChatRequest
from metagen.strategies.parallel import MajorityVote
from metagen.verifiers.numbers import NumberRule
from tests.serve.serving import FILE, QUESTION, Running, serving, serving_made

ASKED = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    effort = {
        "low": {"n": 4},
        "high": {"n": 16},
        "medium": {"strategy": "weighted", "n": 4, "budget": {"generated": 500}},
    }
    with serving(tmp_path_factory.mktemp("served"), effort=effort) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=served.url, api_key="none", max_retries=0)


def ask(client: openai.OpenAI, model: str, **how: Any) -> Any:
    return client.chat.completions.create(model=model, messages=ASKED, **how)  # type: ignore[call-overload]


# -- answers -------------------------------------------------------------------------------------------


def test_configurations_that_need_no_reference_are_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:2] == ["fast", "vote"]
    assert "small/rebase@4" in names and not any("coverage" in name for name in names)
    assert client.models.retrieve("small/majority@4").id == "small/majority@4"


def test_an_answer_is_that_of_the_strategy(client: openai.OpenAI) -> None:
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        vote = MajorityVote(engine.generator(max_tokens=120), n=16, answer=NumberRule())
        for seed in range(5):
            expected = vote.solve(QUESTION, seed=seed)
            got = client.completions.create(model="vote", prompt=QUESTION, seed=seed)
            assert got.choices[0].text == expected.text
            usage = got.usage
            assert usage is not None and usage.completion_tokens == expected.usage.generated
            assert usage.prompt_tokens == expected.usage.prefilled


def test_a_seed_repeats_and_its_absence_does_not(client: openai.OpenAI) -> None:
    texts = {ask(client, "small/one", seed=5).choices[0].message.content for _ in range(3)}
    assert len(texts) == 1
    free = [ask(client, "small/one", temperature=2.0) for _ in range(12)]
    assert len({one.choices[0].message.content for one in free}) > 1
    # Each says how it can be repeated.
    again = ask(client, "small/one", temperature=2.0, seed=free[0].metagen["seed"])
    assert again.choices[0].message.content == free[0].choices[0].message.content


def test_choices_differ_and_are_paid_for_together(client: openai.OpenAI) -> None:
    got = ask(client, "small/one", n=5, seed=1, temperature=1.5)
    assert [choice.index for choice in got.choices] == [0, 1, 2, 3, 4]
    assert len({choice.message.content for choice in got.choices}) > 1
    details = got.usage.completion_tokens_details
    assert details.candidates == 5 and details.reasoning_tokens == 0
    # The prompt is paid for once.
    assert got.usage.prompt_tokens == ask(client, "small/one", seed=1).usage.prompt_tokens


def test_usage_tells_hidden_candidates_verifiers_and_cost(client: openai.OpenAI) -> None:
    usage = ask(client, "small/weighted@4", seed=1).usage
    details = usage.completion_tokens_details
    assert details.candidates == 4 and details.verifier_tokens > 0 and details.flops > 0
    assert details.returned_tokens + details.reasoning_tokens == usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.metagen["physical"]["generated"] <= usage.metagen["generated"]


def test_several_prompts_of_one_request(client: openai.OpenAI) -> None:
    got = client.completions.create(model="fast", prompt=[QUESTION, "Q:a=4+5;a?\nS:\n"])
    alone = [client.completions.create(model="fast", prompt=p) for p in (QUESTION, "Q:a=4+5;a?\nS:\n")]
    assert [choice.text for choice in got.choices] == [one.choices[0].text for one in alone]
    assert got.usage is not None
    assert got.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone if one.usage)


def test_stop_and_length(client: openai.OpenAI) -> None:
    whole = ask(client, "fast").choices[0]
    cut = ask(client, "fast", stop="\nb").choices[0]
    assert whole.finish_reason == "stop" and cut.finish_reason == "stop"
    assert whole.message.content.startswith(cut.message.content + "\nb")
    short = ask(client, "fast", max_completion_tokens=5).choices[0]
    assert short.finish_reason == "length" and whole.message.content.startswith(short.message.content)


def test_logprobs_are_those_of_the_tokens_returned(client: openai.OpenAI) -> None:
    got = ask(client, "small/majority@4", seed=2, logprobs=True).choices[0]
    content = got.logprobs.content
    assert "".join(one.token for one in content) == got.message.content
    assert all(one.logprob <= 0 for one in content)
    old = client.completions.create(model="fast", prompt=QUESTION, logprobs=1).choices[0]
    assert old.logprobs is not None and "".join(old.logprobs.tokens or []) == old.text


def test_an_answer_may_be_held_to_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    got = ask(client, "small/one", seed=1, response_format=form).choices[0]
    if got.finish_reason == "stop":
        assert set(json.loads(got.message.content)) == {"a"}
    assert got.message.content.startswith("{")


def test_effort_and_options_change_what_is_run(client: openai.OpenAI) -> None:
    def candidates(model: str, **how: Any) -> tuple[int, str]:
        got = ask(client, model, seed=1, **how)
        return got.usage.completion_tokens_details.candidates, got.metagen["model"]

    assert candidates("vote") == (16, "small/majority@16")
    assert candidates("vote", reasoning_effort="low") == (4, "small/majority@16")
    assert candidates("vote", reasoning_effort="medium") == (4, "small/weighted@4")
    assert candidates("vote", extra_body={"metagen": {"n": 7}})[0] == 7
    assert candidates("vote", extra_body={"metagen": {"effort": "low"}})[0] == 4
    assert candidates("small/majority", extra_headers={"X-Metagen-N": "3"})[0] == 3
    assert candidates("fast", extra_body={"metagen": {"strategy": "majority@4"}}) == (4, "small/majority@4")


def test_a_budget_ends_a_request_with_what_there_is(client: openai.OpenAI) -> None:
    got = ask(client, "vote", seed=1, extra_body={"metagen": {"budget": 100}})
    assert got.usage.completion_tokens <= 100 and got.metagen["exhausted"]
    assert got.choices[0].finish_reason == "length" and got.choices[0].message.content
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, "vote", seed=1, extra_body={"metagen": {"budget": 100, "exhausted": "error"}})
    assert refused.value.status_code == 402 and "budget" in refused.value.message
    nothing = ask(client, "vote", seed=1, extra_body={"metagen": {"budget": 0}})
    assert (nothing.choices[0].message.content, nothing.choices[0].finish_reason) == ("", "length")


def test_a_budget_is_that_of_the_whole_request(served: Running, client: openai.OpenAI) -> None:
    prompts = ["Q:a=1+2;a?\nS:\n", QUESTION, QUESTION]
    got = client.completions.create(
        model="small/one", prompt=prompts, n=3, seed=1, extra_body={"metagen": {"budget": 60}}
    )
    assert got.usage is not None and got.usage.completion_tokens <= 60
    # Each choice is numbered by its prompt, whatever there is of those before.
    first = client.completions.create(model="small/one", prompt=prompts[0], n=3, seed=1)
    assert [choice.index for choice in got.choices[:3]] == [0, 1, 2] and got.choices[-1].index >= 6
    assert [c.text for c in got.choices[:2]] == [c.text for c in first.choices[:2]]


def test_a_deadline_is_that_of_the_whole_request() -> None:
    """Forty samples one after another would take 800 seconds, and a deadline for each prompt 8."""
    options = {"metagen": {"budget": {"seconds": 0.4}}}
    with slow(concurrency=1) as running:
        late: Any = running.client.completions.create(
            model="small/one", prompt=[QUESTION] * 20, n=2, extra_body=options
        )
    assert late.metagen["exhausted"] and {choice.finish_reason for choice in late.choices} == {"length"}
    assert late.usage is None and late.metagen["spent"]["cut_off"] <= 2  # no other prompt was begun


def test_a_request_has_no_more_choices_than_the_server_gives(served: Running) -> None:
    body = {"model": "fast", "prompt": ["x"] * 65, "n": 2, "max_tokens": 1}
    error = httpx.post(f"{served.url}/completions", json=body, timeout=60).json()["error"]
    assert error["param"] == "prompt" and "130 choices" in error["message"]


@pytest.mark.parametrize(
    ("change", "param", "product"),
    [
        ({"model": "vote", "prompt": ["Q"] * 2, "n": 3}, "n", "2 prompts × n=3 choices × 16 samples are 96"),
        ({"model": "vote", "prompt": ["Q"] * 5}, "prompt", "5 prompts × n=1 choices × 16 samples are 80"),
        ({"model": "vote", "n": 2, "metagen": {"n": 33}}, "metagen.n", "1 prompts × n=2 choices × 33 samples are 66"),
        ({"model": "vote", "metagen": {"n": 65}}, "metagen.n", "are 65 samples"),
        ({"model": "vote", "metagen": {"effort": "high"}, "n": 2}, "n", "are 80 samples"),
        ({"model": "small/one", "n": 65}, "n", "are 65 samples"),
    ],
)  # fmt: skip
def test_a_request_has_no_more_samples_than_the_server_draws(
    bounded: Running, change: dict[str, Any], param: str, product: str
) -> None:
    for stream in (False, True):
        body = {"prompt": "Q", "max_tokens": 1, "stream": stream, **change}
        got = httpx.post(f"{bounded.url}/completions", json=body, timeout=60)
        error = got.json()["error"]
        assert (got.status_code, error["param"]) == (400, param), error
        assert product in error["message"] and "at most 64" in error["message"]


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("bounded"), max_samples=64, effort={"high": {"n": 40}}) as running:
        yield running


def test_requests_within_the_bound_on_samples_are_answered(bounded: Running, tmp_path: Path) -> None:
    create = bounded.client.completions.create
    assert len(create(model="vote", prompt=["Q"] * 2, n=2, max_tokens=1).choices) == 4
    effort: Any = {"metagen": {"effort": "high"}}
    assert create(model="vote", prompt="Q", max_tokens=1, extra_body=effort).metagen["n"] == 40  # type: ignore[attr-defined]
    # Whoever wrote the file has allowed its models.
    with serving(tmp_path, max_samples=8) as running:
        alone: Any = running.client.completions.create(model="vote", prompt="Q", max_tokens=1)
        assert alone.metagen["n"] == 16
        with pytest.raises(openai.BadRequestError, match="32 samples"):
            running.client.completions.create(model="vote", prompt="Q", max_tokens=1, n=2)


def test_options_in_headers_are_those_of_the_body(served: Running) -> None:
    def post(**headers: str) -> httpx.Response:
        body = {"model": "small/majority@4", "prompt": QUESTION, "seed": 1}
        how = {f"X-Metagen-{name}": value for name, value in headers.items()}
        return httpx.post(f"{served.url}/completions", json=body, headers=how, timeout=60)

    assert post(budget="50").json()["usage"]["completion_tokens"] <= 50
    assert post(budget='{"generated": 50}').json()["metagen"]["exhausted"] is True
    assert post(budget="50", exhausted="error").status_code == 402
    assert post(strategy="weighted@4").json()["metagen"]["model"] == "small/weighted@4"
    for name, value in (("n", "many"), ("budget", "{"), ("progress", "perhaps"), ("exhausted", "no")):
        got = post(**{name: value})
        assert got.status_code == 400 and got.json()["error"]["param"] == f"metagen.{name}"
    assert post(samples="8").json()["error"]["param"] == "metagen.samples"
    body = {"model": "small/majority@4", "prompt": QUESTION, "metagen": None}
    got = httpx.post(f"{served.url}/completions", json=body, headers={"X-Metagen-N": "3"}, timeout=60)
    assert got.json()["metagen"]["n"] == 3


def test_what_is_only_reserved_of_a_budget_is_not_spent() -> None:
    client = Client("alice", account=Account(Budget(calls=4)))

    async def main() -> None:
        assert client.account is not None
        grant = await Turn(client.account, ()).reserve(lambda k, cap: (0.0, 0.0, k, 0.0, 0.0), 4)
        assert min(client.account.left()) == 0
        _check_quota(client)
        client.account.settle(grant, (0.0, 0.0, 4.0, 0.0, 0.0))
        with pytest.raises(ApiError, match="spent: calls"):
            _check_quota(client)

    asyncio.run(main())


def test_an_answer_may_be_sent_back_as_it_came(client: openai.OpenAI) -> None:
    said = ask(client, "vote", seed=1).choices[0].message.model_dump()
    turns: Any = [*ASKED, {**said, "reasoning_content": "a thought"}, *ASKED]
    assert client.chat.completions.create(model="fast", messages=turns, max_tokens=3).choices


# -- streams -------------------------------------------------------------------------------------------


def parts(stream: Any, field: str) -> list[str]:
    found = []
    for chunk in stream:
        for choice in chunk.choices:
            if text := getattr(choice.delta, field, None):
                found.append(text)
    return found


@pytest.mark.parametrize("model", ["fast", "small/one", "vote", "small/weighted@4", "small/rebase@4"])
def test_a_stream_says_what_the_answer_says(client: openai.OpenAI, model: str) -> None:
    whole = ask(client, model, seed=3)
    chunks = list(ask(client, model, seed=3, stream=True, stream_options={"include_usage": True}))
    assert "".join(parts(chunks, "content")) == whole.choices[0].message.content
    last = chunks[-1]
    assert last.choices == [] and last.usage is not None
    for name in ("completion_tokens", "prompt_tokens", "total_tokens"):
        assert getattr(last.usage, name) == getattr(whole.usage, name)
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == [whole.choices[0].finish_reason]
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_progress_counts_equal_answers_together() -> None:
    texts = ["A:49\n", "A:49.0\n", "A:98/2\n", "A:7\n"]
    drawn = FunctionGenerator(lambda prefix, seed, index: texts[index], name="texts")
    asking = mg.client({"vote": MajorityVote(drawn, 4, answer=NumberRule())})
    chunks = list(asking.chat.completions.create(model="vote", messages=ASKED, stream=True))
    lines = [line for line in parts(chunks, "reasoning_content") if "votes: " in line]
    assert len(lines) == 4
    assert re.search(r"votes: (49|49\.0|98/2) ×3, 7 ×1\n", lines[-1])


def test_a_choice_streams_how_it_goes_and_a_sample_streams_itself(client: openai.OpenAI) -> None:
    vote = list(ask(client, "small/majority@4", seed=3, stream=True))
    lines = parts(vote, "reasoning_content")
    assert len(lines) >= 4 and any("votes: " in line for line in lines)
    assert len(parts(vote, "content")) == 1
    search = parts(ask(client, "small/rebase@4", seed=3, stream=True), "reasoning_content")
    assert any(line.startswith("step: ") for line in search)
    assert any(line.startswith("score ") for line in search)
    one = list(ask(client, "fast", stream=True))
    assert parts(one, "reasoning_content") == [] and len(parts(one, "content")) > 3
    quiet = ask(client, "vote", stream=True, extra_body={"metagen": {"progress": False}})
    assert parts(quiet, "reasoning_content") == []


def test_several_choices_of_a_stream(client: openai.OpenAI) -> None:
    whole = ask(client, "small/one", n=3, seed=4, temperature=1.5)
    texts: dict[int, str] = {}
    for chunk in ask(client, "small/one", n=3, seed=4, temperature=1.5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    assert texts == {choice.index: choice.message.content for choice in whole.choices}


def test_a_chain_streams_its_last_link_as_it_comes(tmp_path: Path) -> None:
    chain = {"kind": "system_two_attention"}
    with serving(tmp_path, {**FILE, "strategies": {"chain": chain}, "serve": {}}) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        how = {"seed": 1, "max_tokens": 40}
        chunks = list(ask(client, "small/chain", stream=True, **how))
        assert len(parts(chunks, "reasoning_content")) == 1 < len(written := parts(chunks, "content"))
        assert "".join(written) == ask(client, "small/chain", **how).choices[0].message.content


def test_log_probabilities_are_in_streams_too(client: openai.OpenAI) -> None:
    whole = ask(client, "small/majority@4", seed=2, logprobs=True).choices[0]
    chunks = list(ask(client, "small/majority@4", seed=2, logprobs=True, stream=True))
    told = [c.logprobs for chunk in chunks for c in chunk.choices if c.logprobs is not None]
    assert [one.content for one in told] == [whole.logprobs.content]
    assert "".join(parts(chunks, "content")) == whole.message.content
    old = client.completions.create(model="fast", prompt=QUESTION, logprobs=1)
    new = list(client.completions.create(model="fast", prompt=QUESTION, logprobs=1, stream=True))
    (found,) = [c.logprobs for chunk in new for c in chunk.choices if c.logprobs is not None]
    assert found == old.choices[0].logprobs


def test_each_choice_of_a_stream_begins_and_ends_once(client: openai.OpenAI) -> None:
    for budget, most in ((40, 4), (10_000, 4)):
        options = {"metagen": {"budget": budget}}
        chunks = list(ask(client, "small/one", n=4, seed=1, stream=True, extra_body=options))
        # Programs read `chunk.choices[0]` of every chunk, unless they asked for usage.
        assert all(len(chunk.choices) == 1 for chunk in chunks)
        choices = [chunk.choices[0] for chunk in chunks]
        begun = [one.index for one in choices if one.delta.role]
        ended = [one.index for one in choices if one.finish_reason]
        assert begun == ended == list(range(len(begun))) and len(begun) <= most
        assert (len(begun) < 4) == (budget == 40)
        assert chunks[-1].metagen["exhausted"] == (budget == 40) and chunks[-1].metagen["seed"] == 1


def test_what_fails_before_a_stream_begins_has_a_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceed the context") as long:
        client.completions.create(model="fast", prompt="1" * 5000, stream=True)
    assert long.value.param == "prompt" and "/" not in long.value.message.partition("exceed")[2]


def test_what_fails_later_is_an_event_of_the_stream(served: Running) -> None:
    options = {"budget": 100, "exhausted": "error"}
    body = {"model": "vote", "messages": ASKED, "stream": True, "metagen": options}
    with httpx.stream("POST", f"{served.url}/chat/completions", json=body, timeout=60) as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    assert stream.status_code == 200 and len(lines) > 2 and lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "budget_exhausted"


def test_a_completion_streams(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model="fast", prompt=QUESTION, stream=True))
    whole = client.completions.create(model="fast", prompt=QUESTION)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text


def test_tokens_that_a_deadline_cut_off_are_not_told_as_none() -> None:
    """Nobody knows how many there were: the answer has no usage, as where any count is unknown."""
    with slow() as running:
        body = {"model": "small/one", "messages": ASKED, "metagen": {"budget": {"seconds": 0.4}}}
        got = httpx.post(f"{running.url}/chat/completions", json=body, timeout=60).json()
        assert got["metagen"]["exhausted"] and "usage" not in got


def test_errors_of_a_stream_go_on_with_its_numbers(served: Running) -> None:
    options = {"budget": 100, "exhausted": "error"}
    body = {"model": "vote", "input": QUESTION, "stream": True, "metagen": options}
    with httpx.stream("POST", f"{served.url}/responses", json=body, timeout=60) as stream:
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert events[-1]["type"] == "error"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_written_verdict_is_no_candidate(tmp_path: Path) -> None:
    """A judge that writes is a verifier all the same: its tokens are its own."""
    judge = {
        "kind": "judge",
        "engine": "small",
        "by": "samples",
        "samples": 2,
        "max_tokens": 5,
        "chat": False,
    }
    weighted = {"kind": "weighted", "verifier": "words"}
    file = {**FILE, "verifiers": {"words": judge}, "strategies": {"weighted": weighted}, "serve": {}}
    with serving(tmp_path, file) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        usage = ask(client, "small/weighted@4", seed=1).usage
        details = usage.completion_tokens_details
        assert details.candidates == 4 and details.verifier_tokens > 0
        prompt = ask(client, "small/weighted@4", seed=1, n=1).usage.prompt_tokens
        judged = details.verifier_tokens
        assert usage.total_tokens + judged == usage.metagen["prefilled"] + usage.metagen["generated"]
        assert prompt < judged
        lines = parts(ask(client, "small/weighted@4", seed=1, stream=True), "reasoning_content")
        assert sum(line.startswith("sample ") for line in lines) == 4


def test_equal_prompts_are_computed_each(client: openai.OpenAI) -> None:
    def physical(prompt: Any) -> int:
        found = client.completions.create(model="small/one", prompt=prompt, seed=1).usage
        assert found is not None
        account = found.metagen  # type: ignore[attr-defined]
        return int(account["physical"]["generated"]) - int(account["generated"])

    assert physical(QUESTION) == physical([QUESTION, QUESTION]) == 0


# -- the newer form ------------------------------------------------------------------------------------


def test_responses_say_the_same(client: openai.OpenAI) -> None:
    old = ask(client, "vote", seed=None, extra_body={"metagen": {"n": 4}})
    got = client.responses.create(model="fast", input=QUESTION)
    whole = ask(client, "fast")
    assert got.output_text == whole.choices[0].message.content and got.status == "completed"
    assert got.usage is not None and got.usage.output_tokens == whole.usage.completion_tokens
    assert got.usage.output_tokens_details.reasoning_tokens == 0
    turns: Any = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    hidden = client.responses.create(model="small/majority@4", input=turns).usage
    assert hidden is not None and hidden.output_tokens_details.reasoning_tokens > 0
    assert old.usage.completion_tokens_details.reasoning_tokens > 0
    short = client.responses.create(model="fast", input=QUESTION, max_output_tokens=5)
    assert short.status == "incomplete" and short.incomplete_details is not None
    low: Any = {"effort": "low"}
    assert client.responses.create(model="vote", input=QUESTION, reasoning=low).metagen["n"] == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["fast", "small/majority@4", "small/rebase@4"])
def test_responses_stream(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input=QUESTION) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.done") == 1
    assert ("response.reasoning_summary_text.delta" in kinds) == (model != "fast")
    assert final.output_text.endswith("\n") and final.usage is not None


def test_responses_refuse_what_needs_a_memory(client: openai.OpenAI) -> None:
    for how in (
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"tools": [{"type": "web_search"}]},
    ):
        with pytest.raises(openai.BadRequestError, match=next(iter(how))):
            client.responses.create(model="fast", input=QUESTION, **how)  # type: ignore[call-overload]


def test_responses_call_fields_by_their_own_names(served: Running) -> None:
    for change, param in (
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"reasoning": {"effort": "xhigh"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}}, "text.format"),
        ({"text": {"format": {"type": "json_object", "schema": {}}}}, "text.format.schema"),
        ({"input": [{"role": "usr", "content": "x"}]}, "input"),
        ({"input": "1" * 5000}, "input"),
    ):
        body = {"model": "fast", "input": QUESTION, **change}
        for stream in (False, True):
            got = httpx.post(f"{served.url}/responses", json={**body, "stream": stream}, timeout=60)
            error = got.json()["error"]
            assert got.status_code == 400 and error["param"] == param, error
            assert not error["message"].startswith(("messages", "max_completion", "response_format"))


@pytest.mark.parametrize("given", [[], [{"type": "reasoning", "summary": []}]])
def test_responses_need_a_turn(served: Running, given: list[dict[str, Any]]) -> None:
    got = httpx.post(f"{served.url}/responses", json={"model": "fast", "input": given}, timeout=60)
    assert got.status_code == 400 and got.json()["error"]["param"] == "input"


# -- faults of clients -----------------------------------------------------------------------------------

PICTURE = {"type": "image_url", "image_url": {"url": "x"}}
NONSENSE = {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}
LARGE = {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 100, "y" * 100_000]}}}
WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"model": "vot"}, 404, "model", "did you mean 'vote'"),
    ({"model": "small/majority@5"}, 404, "model", "does not exist"),
    ({"temprature": 1}, 400, "temprature", "did you mean 'temperature'"),
    ({"temperature": 0}, 400, "temperature", "would be equal"),
    ({"temperature": -1}, 400, "temperature", "-1"),
    ({"temperature": "hot"}, 400, "temperature", "hot"),
    ({"top_p": 0}, 400, "top_p", "0"),
    ({"n": 0}, 400, "n", "0"),
    ({"n": 10_000}, 400, "n", "at most 128"),
    ({"n": True}, 400, "n", "an integer"),
    ({"n": "2"}, 400, "n", "an integer"),
    ({"max_tokens": 5.0}, 400, "max_tokens", "an integer"),
    ({"stop": ["x"] * 1000}, 400, "stop", "at most 64"),
    ({"metagen": {"n": 10_000}}, 400, "metagen.n", "at most 128"),
    ({"metagen": {"m": 1}}, 400, "metagen.m", "no such field"),
    ({"metagen": {"budget": {"tokens": 5}}}, 400, "metagen.budget.tokens",
     "no such field; expected one of generated, prefilled, calls, flops, money, seconds"),
    ({"metagen": {"budget": {"generate": 5}}}, 400, "metagen.budget.generate", "did you mean 'generated'"),
    ({"metagen": {"budget": "much"}}, 400, "metagen.budget", "expected an object or an integer"),
    ({"metagen": {"strategy": "best"}}, 404, "metagen.strategy", "does not exist"),
    ({"metagen": []}, 400, "metagen", "[]"),
    ({"max_tokens": 10**9}, 400, "max_tokens", "at most"),
    ({"max_completion_tokens": 10**9}, 400, "max_completion_tokens", "at most"),
    ({"messages": []}, 400, "messages", "[]"),
    ({"messages": "hi"}, 400, "messages", "hi"),
    ({"messages": ["hi"]}, 400, "messages.0", "expected an object"),
    ({"messages": [{"role": "usr", "content": "x"}]}, 400, "messages", "usr"),
    ({"messages": [{"role": "user", "content": [PICTURE]}]}, 400, "messages", "image_url"),
    ({"messages": [{"role": "user", "content": "1" * 5000}]}, 400, "messages", "of 'tiny-0.5m'"),
    ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [5]}]}, 400,
     "messages.0.tool_calls", "5 is no call"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "tools", "no place for tools"),
    ({"top_logprobs": 3}, 400, "top_logprobs", "leave it out"),
    ({"response_format": {"type": "xml"}}, 400, "response_format.type", "xml"),
    ({"response_format": NONSENSE}, 400, "response_format", "nonsense"),
    ({"response_format": LARGE}, 400, "response_format", "at most 100,000"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, 400,
     "response_format.json_schema.schema", "missing"),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias", "ids"),
    ({"reasoning_effort": "xhigh"}, 400, "reasoning_effort", "serve.effort"),
    ({"metagen": {"effort": "xhigh"}}, 400, "metagen.effort", "serve.effort"),
    ({"model": "fast", "reasoning_effort": "low"}, 400, "reasoning_effort", "4 samples"),
    ({"max_tokens": 5, "max_completion_tokens": 50}, 400, "max_tokens",
     "5, and max_completion_tokens is 50; give one of both"),
    ({"reasoning_effort": "low", "metagen": {"effort": "medium"}}, 400, "reasoning_effort",
     "'low', and metagen.effort is 'medium'; give one of both"),
    ({"response_format": {"type": "json_object", "json_schema": {"schema": {}}}}, 400,
     "response_format.json_schema", "type 'json_object' does not read it; give type 'json_schema'"),
    ({"stop": [""]}, 400, "stop", "''"),
    ({"stop": 5}, 400, "stop", "a string or a list"),
]  # fmt: skip


def test_options_of_a_stream_are_for_streams(served: Running) -> None:
    body = {"model": "vote", "messages": ASKED, "stream_options": {"include_usage": True}}
    got = httpx.post(f"{served.url}/chat/completions", json=body, timeout=60)
    assert got.status_code == 400 and got.json()["error"]["param"] == "stream_options"


def test_no_stops_are_told_from_stops_that_are_not_given() -> None:
    def stops(**how: Any) -> Any:
        return ChatRequest(model="m", messages=ASKED, **how).sampling().get("stop")

    assert (stops(), stops(stop=[]), stops(stop="x")) == (None, (), ("x",))


@pytest.mark.parametrize(("change", "status", "param", "said"), WRONG, ids=lambda v: str(v)[:40])
def test_what_cannot_be_honoured_is_refused_by_its_name(
    served: Running, change: dict[str, Any], status: int, param: str, said: str
) -> None:
    body = {"model": "vote", "messages": ASKED, **change}
    for stream in (False, True):
        got = httpx.post(f"{served.url}/chat/completions", json={**body, "stream": stream}, timeout=60)
        error = got.json()["error"]
        assert got.status_code == status, error
        assert error["param"] == param and said in error["message"], error
        assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"model": NaN}']
)
def test_a_body_that_is_no_request(served: Running, content: bytes) -> None:
    got = httpx.post(f"{served.url}/chat/completions", content=content, timeout=60)
    assert got.status_code == 400 and got.json()["error"]["message"]


def test_a_body_that_is_too_large(served: Running) -> None:
    got = httpx.post(f"{served.url}/chat/completions", content=b"x" * 1_000_001, timeout=60)
    assert got.status_code == 413 and got.json()["error"]["code"] == "body_too_large"

    def pieces() -> Iterator[bytes]:  # without a length
        for _ in range(300):
            yield b"x" * 10_000

    got = httpx.post(f"{served.url}/chat/completions", content=pieces(), timeout=60)
    assert got.status_code == 413


def test_other_paths_and_methods(served: Running) -> None:
    assert httpx.get(f"{served.host}/nothing").json()["error"]["code"] == "not_found"
    assert httpx.get(f"{served.url}/chat/completions").status_code == 405
    assert httpx.get(f"{served.url}/models/nothing").status_code == 404
    assert httpx.get(f"{served.host}/health").json() == {"status": "ok"}
    assert httpx.get(f"{served.host}/ready").status_code == 200
    assert (
        "access-control-allow-origin"
        not in httpx.get(f"{served.url}/models", headers={"Origin": "http://x"}).headers
    )


def test_counters(served: Running, client: openai.OpenAI) -> None:
    def count() -> float:
        lines = httpx.get(f"{served.host}/metrics").text.splitlines()
        name = 'metagen_tokens_total{kind="generated",model="small/greedy"} '
        return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)

    before = count()
    used = ask(client, "fast").usage.completion_tokens
    list(ask(client, "fast", stream=True))
    assert count() == before + 2 * used
    assert "metagen_requests_running 0.0" in httpx.get(f"{served.host}/metrics").text


# -- clients that go away, queues, keys --------------------------------------------------------------------


@contextmanager
def slow(letters: int = 1000, **spec: Any) -> Iterator[Running]:
    """A server on which every letter of a sample takes 20 ms, on whatever machine: 20 seconds for a sample."""
    with mg.EnumerableEngine(["a", "end"], lambda prompt, done: [1.0, 0.0], name="a", delay=0.02) as engine:
        one = engine.generator(max_tokens=letters)
        made = {"small/one": mg.Sample(one), "vote": MajorityVote(one, 4, answer=NumberRule())}
        with serving_made(made, **spec) as running:
            yield running


def until(holds: Any) -> None:
    for _ in range(1500):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_away_frees_what_it_held(stream: bool) -> None:
    with slow() as running:
        body = json.dumps({"model": "vote", "messages": ASKED, "stream": stream}).encode()
        to = urlsplit(running.url)
        head = f"POST {to.path}/chat/completions HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Type: application/json\r\n"
        with socket.create_connection((to.hostname, to.port)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: running.server.gate.running == 1)
        until(lambda: running.server.gate.running == 0)
        assert httpx.get(f"{running.host}/ready").status_code == 200
        counted = httpx.get(f"{running.host}/metrics").text
        assert 'status="499"' in counted


def test_a_full_queue_says_when_to_come_again() -> None:
    with slow(letters=50, concurrency=1, waiting=2) as running:
        codes: list[int] = []
        after: list[str] = []

        def send() -> None:
            got = httpx.post(
                f"{running.url}/completions", json={"model": "small/one", "prompt": QUESTION}, timeout=120
            )
            codes.append(got.status_code)
            after.append(got.headers.get("retry-after", ""))

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes.count(200) >= 3 and set(codes) == {200, 429}
        waited = {"model": "small/one", "prompt": QUESTION, "metagen": {"budget": {"seconds": 0.05}}}
        holding = threading.Thread(target=send)
        holding.start()
        until(lambda: running.server.gate.running == 1)
        late = httpx.post(f"{running.url}/completions", json=waited, timeout=120)
        assert late.status_code == 429 and "0.05 seconds" in late.json()["error"]["message"]
        holding.join()
        until(lambda: (running.server.gate.running, running.server.gate.waiting) == (0, 0))
        assert all(int(seconds) >= 1 for seconds in after if seconds) and len(
            [s for s in after if s]
        ) == codes.count(429)


def test_keys_are_needed_where_the_file_has_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE_KEY", "secret-of-alice")
    monkeypatch.setenv("BOB_KEY", "secret-of-bob")
    keys = {
        "alice": {"env": "ALICE_KEY", "budget": {"generated": 300}},
        "bob": {"env": "BOB_KEY", "per_minute": 2},
    }
    with serving(tmp_path, keys=keys) as running:

        def post(key: str | None) -> httpx.Response:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            body = {"model": "small/majority@4", "prompt": QUESTION}
            return httpx.post(f"{running.url}/completions", json=body, headers=headers, timeout=60)

        for wrong in (None, "x", "secret-of-alic", "secret-of-alice2", "Bearer"):
            got = post(wrong)
            assert got.status_code == 401 and "secret" not in got.text
        assert httpx.get(f"{running.url}/models").status_code == 401
        # A budget is kept over all requests of a key.
        spent = 0
        codes = []
        for _ in range(6):
            got = post("secret-of-alice")
            codes.append(got.status_code)
            spent += got.json()["usage"]["completion_tokens"] if got.status_code == 200 else 0
        assert codes[0] == 200 and codes[-1] == 429 and spent <= 300
        assert post("secret-of-alice").json()["error"]["code"] == "insufficient_quota"
        # Another's is not touched by it; his rate is.
        assert [post("secret-of-bob").status_code for _ in range(3)] == [200, 200, 429]
        assert int(post("secret-of-bob").headers["retry-after"]) >= 1


def test_turns_go_round_among_clients() -> None:
    from metagen.serve.gate import Client, Gate

    async def main() -> list[str]:
        gate, done = Gate(1, 100), []
        busy, idle = Client("busy"), Client("idle")

        async def work(client: Client, number: int) -> None:
            async with gate.enter(client):
                await asyncio.sleep(0)
                done.append(f"{client.name}{number}")

        first = [asyncio.create_task(work(busy, i)) for i in range(6)]
        await asyncio.sleep(0)
        later = [asyncio.create_task(work(idle, i)) for i in range(2)]
        await asyncio.gather(*first, *later)
        assert (gate.running, gate.waiting) == (0, 0)
        return done

    done = asyncio.run(main())
    assert done.index("idle0") < done.index("busy3") and done.index("idle1") < done.index("busy5")


def test_a_place_is_not_lost_with_who_waited_for_it() -> None:
    from metagen.serve.gate import Client, Gate

    async def main() -> None:
        gate, client = Gate(1, 100), Client("")
        held = gate.enter(client)
        await held.__aenter__()

        async def work() -> None:
            async with gate.enter(client):
                pass

        waiting = [asyncio.create_task(work()) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[3].cancel()
        # One is cancelled in the very moment in which its turn comes.
        await held.__aexit__(None, None, None)
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (gate.running, gate.waiting) == (0, 0)
        await asyncio.wait_for(work(), 1)

    asyncio.run(main())


def test_own_sampling_serves_the_file_whatever_clients_send(tmp_path: Path) -> None:
    with serving(tmp_path, own_sampling=True) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        cold, own = ask(client, "vote", temperature=0, seed=1), ask(client, "vote", seed=1)
        assert cold.choices[0].message.content == own.choices[0].message.content
        assert cold.usage.completion_tokens == own.usage.completion_tokens


# -- files and starts ----------------------------------------------------------------------------------------


def test_budgets_of_request_effort_and_server_hold_together() -> None:
    both = least(Budget(generated=100, seconds=5), Budget(generated=50, calls=3))
    assert both == Budget(generated=50, calls=3, seconds=5)
    assert least(None, None) is None


def test_the_budget_of_the_file_binds_each_request(tmp_path: Path) -> None:
    with serving(tmp_path, {**FILE, "budget": {"generated": 100}}) as running:
        client = openai.OpenAI(base_url=running.url, api_key="none", max_retries=0)
        for own, most in ({}, 100), ({"metagen": {"budget": 40}}, 40), ({"metagen": {"budget": 5000}}, 100):
            got = ask(client, "vote", seed=1, extra_body=own)
            assert 0 < got.usage.completion_tokens <= most and got.metagen["exhausted"]


def test_a_file_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    from metagen.errors import ConfigError
    from metagen.serve.gate import Keys, check_host
    from metagen.serve.solve import Service

    def load(**change: Any) -> Any:
        import yaml

        path = tmp_path / "x.yaml"
        path.write_text(yaml.safe_dump({**FILE, **change}), "utf-8")
        return schema.load(path)

    misspelt = open_models(load(serve={"aliases": {"a": "small/majorty@4"}}))
    with pytest.raises(ConfigError, match="did you mean 'small/majority@4'"), misspelt:
        pass
    knowing = open_models(load(strategies={"coverage": FILE["strategies"]["coverage"]}))
    with pytest.raises(ConfigError, match="know the reference"), knowing:
        pass
    with pytest.raises(ConfigError, match=r"x\.yaml:\d+: serve\.prot"):
        load(serve={"prot": 1})
    with pytest.raises(ConfigError, match=r"keys\.a\.budget.*a deadline"):
        load(serve={"keys": {"a": {"env": "X", "budget": {"seconds": 5}}}})
    unknown = load(serve={"effort": {"low": {"strategy": "majorty"}}})
    with (
        open_models(unknown) as models,
        pytest.raises(ConfigError, match=r"serve\.effort\.low\.strategy = 'majorty'"),
    ):
        Service(models, unknown.serve)
    odd = load(serve={"keys": {"a": {"env": "KEY"}}}).serve.keys
    with pytest.raises(ConfigError, match="no header can carry"):
        Keys(odd, {"KEY": "clé"})
    with pytest.raises(ConfigError, match="KEY_OF_NOBODY"):
        Keys(load(serve={"keys": {"a": {"env": "KEY_OF_NOBODY"}}}).serve.keys)
    with pytest.raises(ConfigError, match="other machines could ask"):
        check_host(load(serve={"host": "0.0.0.0"}).serve)
