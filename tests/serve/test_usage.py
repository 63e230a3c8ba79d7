"""What an answer tells of its cost where some of it is unknown, and of the vote behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import metagen as mg
from metagen.strategies.chain.steps import Ask, Use
from tests.generators.openai.serving import Asked, Reply, Server, answer, said
from tests.serve.serving import QUESTION, Running, serving_made

ASKED: list[Any] = [{"role": "user", "content": "?"}]
SOON = {"metagen": {"budget": {"seconds": 1.0}}}


async def _write(prefix: mg.Sequence, seed: int, index: int) -> str:
    if index >= 2:
        await asyncio.Event().wait()
    return f"A:{'7' * (index + 1)}\n"


def counted(name: str = "some hang") -> mg.FunctionGenerator:
    """Samples from number 2 on never end; the others have four and five tokens."""
    return mg.FunctionGenerator(_write, name=name, count=len, max_tokens=30)


def told_by(running: Running, api: str, **how: Any) -> dict[str, Any]:
    """`metagen` of the answer, of the last chunk or of the last event; none of them has a usage."""
    how = {"model": "vote", "extra_body": SOON, **how}
    if api == "responses":
        response: Any = running.client.responses.create(input="?", **how)
        assert response.usage is None
        return dict(response.metagen)
    if api == "responses, stream":
        *_, event = running.client.responses.create(input="?", stream=True, **how)
        assert event.response.usage is None
        return dict(event.response.metagen)
    if api == "chat":
        whole: Any = running.client.chat.completions.create(messages=ASKED, **how)
        assert whole.usage is None
        return dict(whole.metagen)
    options: Any = {"include_usage": True}
    chunks: list[Any] = list(
        running.client.chat.completions.create(messages=ASKED, stream=True, stream_options=options, **how)
        if api == "chat, stream"
        else running.client.completions.create(prompt="?", stream=True, stream_options=options, **how)
    )
    assert all(chunk.usage is None for chunk in chunks)
    return dict(chunks[-1].metagen)


@pytest.mark.parametrize("api", ["chat", "chat, stream", "text, stream", "responses", "responses, stream"])
def test_what_is_known_of_a_vote_that_a_deadline_cut_is_told(api: str) -> None:
    with serving_made({"vote": mg.MajorityVote(counted(), 5, answer=mg.NumberRule())}) as running:
        told = told_by(running, api)
    assert told["exhausted"]
    spent = told["spent"]
    assert (spent["candidates"], spent["scores"], spent["cut_off"]) == (2, 0, 3)
    # The two that ended, and the other three at their longest.
    assert spent["at_least"]["generated"] == 4 + 5 and spent["at_most"]["generated"] == 4 + 5 + 3 * 30
    assert 1 <= spent["at_least"]["prefilled"] <= spent["at_most"]["prefilled"]
    assert (spent["at_least"]["calls"], spent["at_most"]["calls"]) == (2, 5)
    # Nobody knows the FLOPs of a function; none are not claimed.
    assert spent["at_least"]["flops"] is None and spent["at_most"]["flops"] is None


def test_flops_and_scores_that_are_known_are_told() -> None:
    judged, hanging = list[str](), [True]

    async def judge(sequence: mg.Sequence) -> float:
        judged.append(sequence.text)
        if hanging and len(judged) == 2:
            await asyncio.Event().wait()
        return 0.5

    def ask(options: dict[str, Any]) -> Any:
        return running.client.completions.create(model="best", prompt=QUESTION, seed=1, extra_body=options)

    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        drawn = engine.generator(max_tokens=40, ignore_eos=True, temperature=4.0)
        best = mg.BestOfN(drawn, 4, verifier=mg.FunctionVerifier(judge))
        with serving_made({"best": best}) as running:
            cut = ask({"metagen": {"budget": {"seconds": 3.0}}})
            hanging.clear()
            whole = ask({})
    assert "spent" not in whole.metagen and whole.usage.completion_tokens_details.flops > 0
    # What was written is known, and stands in `usage`; what all of the scores took is not.
    spent, details = cut.metagen["spent"], cut.usage.completion_tokens_details
    assert details.verifier_tokens is None and details.flops is None
    assert spent["at_least"]["generated"] == cut.usage.completion_tokens == 40 * spent["candidates"]
    assert 0 < spent["at_least"]["flops"] <= whole.usage.completion_tokens_details.flops
    assert spent["scores"] == 1 and spent["cut_off"] >= 1


def test_a_single_sample_that_was_cut_is_told_as_what_it_may_have_been() -> None:
    with (
        mg.EnumerableEngine(["a", "end"], lambda prompt, done: [1.0, 0.0], name="a", delay=0.02) as engine,
        serving_made({"vote": mg.Sample(engine.generator(max_tokens=1000))}) as running,
    ):
        spent = told_by(running, "chat, stream")["spent"]
    assert spent["at_least"]["generated"] == 0 and spent["at_most"]["generated"] == 1000
    assert spent["cut_off"] == 1


def test_counts_that_an_engine_does_not_tell_are_unknown_and_not_none() -> None:
    uncounted = mg.FunctionGenerator(lambda prefix, seed, index: "A:7\n", name="uncounted")
    with serving_made({"vote": mg.Sample(uncounted)}) as running:
        spent = told_by(running, "chat", extra_body={})["spent"]
    assert spent["at_least"]["generated"] is None and spent["at_most"]["generated"] is None
    assert (spent["candidates"], spent["cut_off"]) == (1, 0)


def test_an_error_in_place_of_an_answer_tells_the_tokens_that_are_known() -> None:
    options = {"metagen": {"budget": {"seconds": 0.5}, "exhausted": "error"}}
    with serving_made({"vote": mg.MajorityVote(counted(), 3, answer=mg.NumberRule())}) as running:
        body = {"model": "vote", "prompt": "?", **options}
        got = httpx.post(f"{running.url}/completions", json=body, timeout=60)
    assert got.status_code == 402 and "at least 9 tokens were generated" in got.json()["error"]["message"]


def test_tokens_of_what_is_returned_are_those_of_the_call_that_wrote_it() -> None:
    """Two candidates have one text, behind other thoughts."""

    async def handle(asked: Asked) -> Reply:
        thought, new, thinking = [("Short.", 500, 498), ("Long.", 900, 898)][asked.number]
        message = {"role": "assistant", "reasoning": thought, "content": "A:4"}
        details = {"reasoning_tokens": thinking}
        body = answer(said("", message=message), new=new, completion_tokens_details=details)
        return Reply(body=body)

    with Server(handle).open() as server, mg.OpenAIEngine("m", base_url=server.url) as engine:
        vote = mg.MajorityVote(engine.generator(max_tokens=1000), 2, answer=mg.NumberRule())
        with serving_made({"vote": vote}) as running:
            usage = running.client.chat.completions.create(model="vote", messages=ASKED).usage
    assert usage is not None and usage.completion_tokens == 1400
    details: Any = usage.completion_tokens_details
    assert (details.returned_tokens, details.reasoning_tokens) == (2, 1398)


# -- details of the Responses API ------------------------------------------------------------------------


def test_a_response_leaves_unknown_counts_out() -> None:
    """OpenAI's client reads them as None; that none were cached, or hidden, is not claimed."""

    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    drawn = mg.FunctionGenerator(lambda prefix, seed, index: "seven", name="words", count=len)
    # Nobody knows how many tokens the answer has: a tool wrote it.
    loud = mg.Chain({"words": Ask(drawn, "{prompt}"), "loud": Use(shout, text="{words}")})
    with serving_made({"loud": loud, "plain": mg.Sample(drawn)}) as running:
        got = running.client.responses.create(model="loud", input="?")
        *_, event = running.client.responses.create(model="loud", input="?", stream=True)
        plain = running.client.responses.create(model="plain", input="?")
        sent = httpx.post(f"{running.url}/responses", json={"model": "loud", "input": "?"}, timeout=60).json()
    for response in (got, event.response):  # type: ignore[union-attr]
        assert response.output_text == "SEVEN" and response.usage is not None
        assert response.usage.output_tokens == 5
        assert response.usage.output_tokens_details.reasoning_tokens is None
        # A client that writes it down does not complain.
        assert response.model_dump(warnings="error")["usage"]["output_tokens"] == 5
    assert "reasoning_tokens" not in sent["usage"]["output_tokens_details"]
    assert plain.usage is not None and plain.usage.output_tokens_details.reasoning_tokens == 0


# -- shares of a vote ------------------------------------------------------------------------------------


def voting() -> mg.FunctionGenerator:
    answers = ["A:7\n", "A:7.0\n", "A:8\n", "A:7\n"]
    return mg.FunctionGenerator(lambda prefix, seed, index: answers[index], name="voters", count=len)


@pytest.mark.parametrize("api", ["chat", "chat, stream", "text, stream", "responses", "responses, stream"])
def test_shares_of_a_vote_are_those_of_the_result(api: str) -> None:
    vote = mg.MajorityVote(voting(), 4, answer=mg.NumberRule())
    expected = vote.solve("?").shares
    assert expected == {"7": 0.75, "8": 0.25}
    with serving_made({"vote": vote}) as running:
        told = _told(running, api)
    assert (
        told["shares"] == [expected] and told["answer_keys"] == ["7"] and told["answers"][0] in ("7", "7.0")
    )


def _told(running: Running, api: str, model: str = "vote") -> dict[str, Any]:
    found: Any
    if api.startswith("responses"):
        stream = api.endswith("stream")
        found = running.client.responses.create(model=model, input="?", stream=stream)
        return dict([*found][-1].response.metagen if stream else found.metagen)
    if api == "chat":
        found = running.client.chat.completions.create(model=model, messages=ASKED)
        return dict(found.metagen)
    if api == "chat, stream":
        found = running.client.chat.completions.create(model=model, messages=ASKED, stream=True)
    else:
        found = running.client.completions.create(model=model, prompt="?", stream=True)
    return dict([*found][-1].metagen)


def test_each_choice_has_the_shares_of_its_own_vote() -> None:
    async def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        return f"A:{seed % 3}\n"

    vote = mg.WeightedVote(
        mg.FunctionGenerator(write, name="by seed"),
        6,
        verifier=mg.FunctionVerifier(lambda sequence: 0.25 if "0" in sequence.text else 0.5),
        answer=mg.NumberRule(),
    )
    with serving_made({"vote": vote}) as running:
        got: Any = running.client.completions.create(model="vote", prompt=["a", "b"], n=3, seed=5)
    shares, keys = got.metagen["shares"], got.metagen["answer_keys"]
    assert len(shares) == len(keys) == 6
    for share, key in zip(shares, keys, strict=True):
        assert next(iter(share)) == key and sum(share.values()) == pytest.approx(1)
        assert [*share.values()] == sorted(share.values(), reverse=True)
    assert any(one != shares[0] for one in shares)


def test_what_does_not_compare_has_no_shares() -> None:
    one = mg.Sample(voting(), answer=mg.NumberRule())
    unread = mg.BestOfN(voting(), 3, verifier=mg.FunctionVerifier(lambda sequence: 0.5))
    with serving_made({"one": one, "unread": unread}) as running:
        assert "shares" not in _told(running, "chat", "one")
        assert "shares" not in _told(running, "chat", "unread")
