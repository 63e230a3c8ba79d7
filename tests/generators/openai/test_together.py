"""Samples of one prefix in one request, where a server gives several; one by one, and told once, where it does not."""

from __future__ import annotations

import asyncio
import dataclasses
import warnings
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Asked, Reply, Server, answer, said

PREFIX = Sequence.of(Prompt.of("What is it?"))


def ask(engine: OpenAIEngine, n: int) -> Generated:
    request = GenerateRequest(PREFIX, tuple(range(n)), SamplingParams(max_tokens=16), 16)
    return asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))


def vllm(server: Server, **options: Any) -> OpenAIEngine:
    return OpenAIEngine("m", base_url=server.url, dialect="vllm", **options)


def gives(most: int, *, refuses: int | None = None, ids: bool = True) -> Any:
    """A server that gives so many choices at most, or refuses requests for more."""
    number = 0

    async def handler(asked: Asked) -> Reply:
        nonlocal number
        n = asked.body.get("n", 1)
        if n > most and refuses is not None:
            return Reply(refuses, {"error": {"message": "n must be 1"}})
        choices = []
        for i in range(min(n, most)):
            number += 1
            told = {"token_ids": [1, 2, 3]} if ids and asked.body.get("return_token_ids") else {}
            choices.append(said(f"text {number}", index=i, **told))
        return Reply(body=answer(*choices, new=3 * len(choices)))

    return handler


def test_vllm_is_asked_once_for_all_samples_of_a_prefix_and_tells_the_tokens_of_each() -> None:
    with Server(gives(128)).open() as server, vllm(server) as engine:
        made = ask(engine, 16)
        assert [a.body.get("n", 1) for a in server.asked] == [16]
        assert len({s.text for s in made.samples}) == 16 and {s.generated for s in made.samples} == {3}
        ask(engine, 300)
        assert sorted(a.body.get("n", 1) for a in server.asked[1:]) == [44, 128, 128]
        assert engine.stats.generated == 3 * 316


@pytest.mark.parametrize("dialect", ["openai", "sglang", "llamacpp"])
def test_others_are_asked_one_by_one_since_they_tell_the_sum_of_the_tokens(dialect: Any) -> None:
    with (
        Server(gives(128)).open() as server,
        OpenAIEngine("m", base_url=server.url, dialect=dialect) as engine,
    ):
        made = ask(engine, 4)
        assert [a.body.get("n", 1) for a in server.asked] == [1] * 4
        assert {s.generated for s in made.samples} == {3}


@pytest.mark.parametrize("status", [400, 422, 501])
def test_a_server_that_refuses_several_is_asked_one_by_one_from_then_on(status: int) -> None:
    with Server(gives(1, refuses=status)).open() as server, vllm(server) as engine:
        with pytest.warns(
            UserWarning, match="one sample or reading at a time.*n must be 1.*n_per_request: 1"
        ):
            made = ask(engine, 5)
        assert len({s.text for s in made.samples}) == 5 and {s.generated for s in made.samples} == {3}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(engine, 3)
        assert [a.body.get("n", 1) for a in server.asked] == [5, *[1] * 8]


def test_a_server_that_gives_fewer_is_asked_for_the_others_and_nothing_is_thrown_away() -> None:
    with Server(gives(2)).open() as server, vllm(server) as engine:
        with pytest.warns(UserWarning, match="gave 2 choices where 5 were asked for"):
            made = ask(engine, 5)
        assert len({s.text for s in made.samples}) == 5 and engine.stats.samples == 5
        assert [a.body.get("n", 1) for a in server.asked] == [5, 1, 1, 1]


def test_what_is_refused_one_by_one_too_is_an_error_for_its_own_reason() -> None:
    async def handler(asked: Asked) -> Reply:
        return Reply(400, {"error": {"message": "the prompt is too long"}})

    with (
        Server(handler).open() as server,
        vllm(server) as engine,
        warnings.catch_warnings(action="error"),
        pytest.raises(InputError, match="the prompt is too long"),
    ):
        ask(engine, 4)


def test_a_server_of_that_dialect_without_token_ids_is_asked_one_by_one() -> None:
    with Server(gives(128, ids=False)).open() as server, vllm(server) as engine:
        with pytest.warns(UserWarning, match="tokens of all choices together"):
            first = ask(engine, 4)
        second = ask(engine, 4)
        assert {s.generated for s in first.samples} == {None} and {s.generated for s in second.samples} == {3}


def test_several_that_are_asked_for_by_name_are_kept_together() -> None:
    with Server(gives(128, ids=False)).open() as server, vllm(server, n_per_request=2) as engine:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(engine, 4)
        assert [a.body.get("n", 1) for a in server.asked] == [2, 2]


@pytest.mark.parametrize("parts", [False, True])
def test_a_refusal_in_a_field_of_its_own_is_what_was_said_and_is_counted(parts: bool) -> None:
    text = "I cannot help with that."
    message = {"role": "assistant", "content": [{"type": "refusal", "refusal": text}]} if parts else {
        "role": "assistant", "content": None, "refusal": text,
    }  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "stop"}

    async def handler(asked: Asked) -> Reply:
        return Reply(body=answer(choice))

    with Server(handler).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        made = ask(engine, 2)
        assert [s.text for s in made.samples] == [text] * 2 and engine.stats.extra["declined"] == 2


def test_a_verifier_of_last_steps_reads_one_place_for_each_candidate_and_the_others_all() -> None:
    """Behind HTTP each place is a prompt. Values are those of an engine that reads all of them at once."""
    task = ArithmeticTask("validation", levels=(3,), per_level=1)
    (problem,) = task.problems()
    text = "a=12+7=19\nb=19*3=57\nA:57\n"
    candidates = [Sequence(problem.prompt, text[:k], finish="eos") for k in (10, 20, 26)]
    with (
        TorchEngine("tiny-prm", threads=1) as local,
        Server(serves(local)).open() as server,
        OpenAIEngine(
            "tiny-prm", base_url=server.url, api="completions", dialect="vllm", tokenizer="tiny-prm"
        ) as engine,
    ):
        for aggregation, places in (("last", 3), ("min", 3)):
            before = len(server.asked)
            ours = ProcessRewardModel(engine, aggregation=aggregation)  # type: ignore[arg-type]
            theirs = ProcessRewardModel(local, aggregation=aggregation)  # type: ignore[arg-type]
            found, wanted = (
                asyncio.run(one.score(candidates[2:], scope=Scope.root("p"))) for one in (ours, theirs)
            )
            assert [s.value for s in found] == pytest.approx([s.value for s in wanted], abs=1e-4)
            assert (found[0].steps is None) == (aggregation == "last")
            assert len(server.asked) - before == (1 if aggregation == "last" else places)


@pytest.mark.parametrize(
    ("details", "takes", "expected"),
    [(False, True, [1, 4]), (True, True, [1, 1, 1, 1, 1]), (False, False, [1, 4, 1, 1, 1, 1])],
)
def test_readings_of_several_candidates_are_one_request_where_nobody_tells_what_was_cached(
    details: bool, takes: bool, expected: list[int]
) -> None:
    """The first is asked for alone, which shows that. A server that takes one prompt is asked one by one, told once."""
    prompt, texts = Sequence.of(Prompt.of("What is it?")), ["a=1\n", "b=22\n", "c=3\n", "d=4+5\n", "e=60\n"]
    candidates = [dataclasses.replace(prompt, text=text, finish="eos") for text in texts]
    with TorchEngine("tiny-prm", threads=1) as local:
        model = serves(local, details=details)

        async def handler(asked: Asked) -> Reply:
            if not takes and isinstance(asked.body["prompt"][0], list):
                return Reply(400, {"error": {"message": "one prompt, please"}})
            return await model(asked)

        with (
            Server(handler).open() as server,
            OpenAIEngine(
                "tiny-prm", base_url=server.url, api="completions", dialect="vllm", tokenizer="tiny-prm"
            ) as engine,
            warnings.catch_warnings(record=True) as told,
        ):
            warnings.simplefilter("always")
            found = asyncio.run(ProcessRewardModel(engine).score(candidates, scope=Scope.root("p")))
            asyncio.run(ProcessRewardModel(engine).score(candidates[1:2], scope=Scope.root("p")))
            wanted = asyncio.run(ProcessRewardModel(local).score(candidates, scope=Scope.root("p")))
        asked = [a.body["prompt"] for a in server.asked[:-1]]
        assert [len(p) if isinstance(p[0], list) else 1 for p in asked] == expected
        assert ["one prompt, please" in str(w.message) for w in told] == ([] if takes else [True])
    assert [s.value for s in found] == pytest.approx([s.value for s in wanted], abs=1e-4)
    assert engine.stats.extra["wrong_counts"] == 0
    assert (engine.stats.prefilled > 0) == details, (
        "of several prompts nobody says what was read from a cache"
    )


def test_a_search_behind_http_asks_once_for_a_nodes_draws_and_once_for_each_new_step() -> None:
    task = ArithmeticTask("validation", levels=(1,), per_level=1)
    (problem,) = task.problems()
    with (
        TorchEngine("tiny-prm", threads=1) as reader,
        TorchEngine("tiny-0.1m", threads=1) as writer,
        Server(serves(reader)).open() as judging,
        Server(serves(writer)).open() as writing,
        OpenAIEngine(
            "tiny-0.1m", base_url=writing.url, api="completions", dialect="vllm", tokenizer="tiny-0.1m"
        ) as model,
        OpenAIEngine(
            "tiny-prm", base_url=judging.url, api="completions", dialect="vllm", tokenizer="tiny-prm",
            concurrency=Concurrency(4, 8),
        ) as judge,
    ):  # fmt: skip
        search = Rebase(
            model.generator(max_tokens=40), 4, verifier=ProcessRewardModel(judge), answer=task.answer,
            until=Step("\n", 40, task.mark),
        )  # fmt: skip
        tree = search.tree(problem.prompt)
    assert len(writing.asked) == sum(bool(node.draws) for node in tree)
    scored = [node for node in tree if node.parent and not node.empty]
    assert len(judging.asked) == len(scored)


def test_greedy_samples_are_asked_for_one_by_one_since_vllm_refuses_several() -> None:
    with Server(gives(128)).open() as server, vllm(server) as engine:
        request = GenerateRequest(PREFIX, (0, 1), SamplingParams(max_tokens=16, temperature=0.0), 16)
        asyncio.run(engine.generate(request))
        assert [a.body.get("n", 1) for a in server.asked] == [1, 1]


# -- copies --------------------------------------------------------------------------------------

LONG = "It is a long way to the answer, which has many words. " * 6


def copies(*, together: bool, apart: bool) -> Any:
    """A server whose choices of one answer are one text, or whose answers to one prompt are. Prompts have their own."""
    number = 0

    async def handler(asked: Asked) -> Reply:
        nonlocal number
        choices = []
        for i in range(asked.body.get("n", 1)):
            number += not together or i == 0
            end = asked.body["messages"][0]["content"] if apart else f"{number}"
            choices.append(said(f"{LONG}{end}", index=i, token_ids=[1, 2, 3]))
        return Reply(body=answer(*choices, new=3 * len(choices)))

    return handler


def ask_of(engine: OpenAIEngine, number: int, seeds: range, **params: Any) -> list[str]:
    prefix = Sequence.of(Prompt.of(f"What is {number}?"))
    request = GenerateRequest(prefix, tuple(seeds), SamplingParams(max_tokens=16, **params), 16)
    made = asyncio.run(asyncio.wait_for(engine.generate(request), 60.0))
    return [sample.text for sample in made.samples]


def told(recorded: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in recorded]


def test_a_server_whose_choices_are_copies_is_asked_one_by_one_and_that_is_told_once() -> None:
    with (
        Server(copies(together=True, apart=False)).open() as server,
        vllm(server) as engine,
        warnings.catch_warnings(record=True) as recorded,
    ):
        warnings.simplefilter("always")
        for number in range(3):
            assert len(set(ask_of(engine, number, range(8)))) == 1
        assert not recorded, "three prompts may be sure of themselves"
        ask_of(engine, 3, range(8))
        (said_once,) = told(recorded)
        assert "one sample or reading at a time" in said_once
        assert "22 samples of 4 prompts repeat another, and none differs" in said_once
        assert len(set(ask_of(engine, 4, range(8)))) == 8, "one by one they are drawn"
        assert len(recorded) == 1 and engine.stats.extra["copying"] == 1
        assert [a.body.get("n", 1) for a in server.asked] == [8] * 4 + [1] * 8


@pytest.mark.parametrize("each", [1, 4])
def test_a_server_that_gives_one_text_for_all_seeds_is_told_once(each: int) -> None:
    """Asked one by one, and in several at a time: then both are found out."""
    with (
        Server(copies(together=True, apart=True)).open() as server,
        vllm(server, n_per_request=each) as engine,
        warnings.catch_warnings(record=True) as recorded,
    ):
        warnings.simplefilter("always")
        for start in (0, 5):  # the seeds of a prompt come in several calls too
            for number in range(8):
                ask_of(engine, number, range(start, start + 5))
        found = [text for text in told(recorded) if "answers to different seeds" in text]
        assert len(found) == 1 and "votes among copies say nothing" in found[0]
        assert len(recorded) == engine.stats.extra["copying"] == (1 if each == 1 else 2)


@pytest.mark.parametrize(
    ("params", "seeds"),
    [
        ({"temperature": 0.0}, [range(4)]), ({"temperature": 0.3}, [range(4)]), ({"top_k": 1}, [range(4)]),
        ({"top_p": 0.1}, [range(4)]), ({}, [range(1), range(1)]),
    ],
)  # fmt: skip
def test_what_is_no_matter_of_chance_may_be_one_text(params: dict[str, Any], seeds: list[range]) -> None:
    with (
        Server(copies(together=True, apart=True)).open() as server,
        vllm(server) as engine,
        warnings.catch_warnings(action="error"),
    ):
        for number in range(20):
            for some in seeds:
                ask_of(engine, number, some, **params)


def test_short_texts_and_a_server_that_has_shown_that_it_draws_are_not_suspected() -> None:
    async def short(asked: Asked) -> Reply:
        return Reply(
            body=answer(*[said("yes", index=i, token_ids=[1]) for i in range(asked.body.get("n", 1))])
        )

    async def later(asked: Asked) -> Reply:
        n = asked.body.get("n", 1)
        texts = [f"{LONG}{i if asked.number == 2 else ''}" for i in range(n)]
        return Reply(body=answer(*[said(t, index=i, token_ids=[1]) for i, t in enumerate(texts)]))

    for handler in (short, later):
        with (
            Server(handler).open() as server,
            vllm(server) as engine,
            warnings.catch_warnings(action="error"),
        ):
            for number in range(20):
                ask_of(engine, number, range(4))
            assert engine.stats.extra["copying"] == 0
