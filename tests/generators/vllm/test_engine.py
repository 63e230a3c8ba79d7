"""The engine for real: beside the torch engine, its accounts, its ends, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import shutil
import statistics
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.errors import EngineError, InputError, NumericsError, PromptError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.sequence import Message, Sequence, Step, TokenIds, Until
from metagen.strategies.parallel import Sample as One
from metagen.tasks.arithmetic.task import ArithmeticTask

#: Nats between the two best tokens, below which rounding may choose the other one.
EPSILON = 1e-3
#: Of greedy samples, the share that rounding may change.
SHARE = 0.1
GREEDY = SamplingParams(temperature=0.0)


def ask(engine: Any, *requests: GenerateRequest) -> list[Generated]:
    """All requests at once."""

    async def together() -> list[Generated]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(together())


def evaluate(engine: Any, *requests: EvaluateRequest) -> Any:
    return asyncio.run(engine.evaluate(list(requests)))


def request(
    prefix: Sequence | str,
    seeds: tuple[int, ...] = (0,),
    params: SamplingParams = GREEDY,
    most: int = 100,
    until: Until = None,
) -> GenerateRequest:
    return GenerateRequest(Sequence.of(prefix), seeds, params, most, until)


def problems(per_level: int) -> list[Any]:
    return list(ArithmeticTask("validation", levels=[1, 2, 3, 4], per_level=per_level).problems())


def what(sample: Sample) -> tuple[object, ...]:
    return sample.text, sample.ids, sample.generated, sample.finish, sample.cut, sample.step_end


def gap(engine: Any, head: tuple[int, ...], one: Sample, other: Sample) -> float:
    """Nats between the tokens at which two samples part, by an engine's reading."""
    a, b = one.ids or (), other.ids or ()
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    ends = tuple(sorted(engine._tokenizer.eos))
    labels = tuple(ids[at] if at < len(ids) else ends[0] for ids in (a, b))
    ids = (*head, *a[:at])
    (read,) = evaluate(engine, EvaluateRequest(ids, (len(ids) - 1,), labels))
    return abs(float(read.values[0][0] - read.values[0][1]))


# -- beside the torch engine -----------------------------------------------------------------------


def test_greedy_samples_are_those_of_the_torch_engine(
    model: Any, same: Any, record_property: pytest.RecordProperty
) -> None:
    """Save where the two best tokens are nearer than ε; the share of those is recorded."""
    greedy = SamplingParams(temperature=0.0, logprobs=True)
    wanted = [request(problem.prompt, params=greedy) for problem in problems(15)]
    parted = 0
    for ours, theirs in zip(ask(model, *wanted), ask(same, *wanted), strict=True):
        assert ours.prefix_ids == theirs.prefix_ids
        (a,), (b,) = ours.samples, theirs.samples
        if what(a) == what(b):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-3)
        else:
            parted += 1
            assert gap(same, theirs.prefix_ids or (), a, b) < EPSILON
    record_property("share of greedy samples that rounding changed", parted / len(wanted))
    assert parted <= SHARE * len(wanted)


def test_sampled_accuracy_is_that_of_the_torch_engine(
    model: Any, same: Any, record_property: pytest.RecordProperty
) -> None:
    """100 problems, 4 samples of each: Student's t of the problems' differences; 4 is met by chance once in 8,000."""
    task, n = ArithmeticTask("validation"), 4
    some = problems(25)
    wanted = [request(p.prompt, tuple(range(n)), SamplingParams(), 200) for p in some]

    async def shares(engine: Any) -> list[float]:
        answers = await asyncio.gather(*(engine.generate(one) for one in wanted))
        return [
            statistics.fmean(
                await task.grade(p, [Sequence(p.prompt, s.text, finish=s.finish) for s in answer.samples])
            )
            for p, answer in zip(some, answers, strict=True)
        ]

    ours, theirs = asyncio.run(shares(model)), asyncio.run(shares(same))
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    record_property("accuracy", (statistics.fmean(ours), statistics.fmean(theirs), error))
    assert error > 0
    assert abs(statistics.fmean(differences)) < 4 * error


@pytest.mark.parametrize(
    "ends",
    [
        {"until": Step("\n")},
        {"until": Step("\nb=")},
        {"until": Step("=", max_tokens=3)},
        {"stop": ("\nb",)},
        {"stop": ("A:", "=1")},
        {"until": Step("\n"), "stop": ("9\n",)},
    ],
    ids=str,
)
def test_samples_end_where_those_of_the_torch_engine_end(model: Any, same: Any, ends: Any) -> None:
    """By texts of one token and of several, found as a whole or begun in the prefix."""
    params = SamplingParams(temperature=0.0, stop=ends.get("stop", ()))
    wanted = []
    for problem in problems(3):
        start = Sequence.of(problem.prompt)
        wanted.append(request(start, (0,), params, 100, ends.get("until")))
        (whole,) = ask(same, request(start))[0].samples
        for length in (3, 9):
            ids = TokenIds((whole.ids or ())[:length], same.tokenizer_fingerprint)
            begun = start.extend(same._tokenizer.decode(list(ids.ids)), tokens=ids)
            wanted.append(request(begun, (0,), params, 60, ends.get("until")))
    pairs = list(zip(ask(model, *wanted), ask(same, *wanted), strict=True))
    parted = [(a, b) for a, b in pairs if what(a.samples[0]) != what(b.samples[0])]
    assert len(parted) <= SHARE * len(pairs), parted[0]


def test_log_probabilities_are_those_of_the_torch_engine(model: Any, same: Any) -> None:
    params = SamplingParams(temperature=0.7, top_k=20, top_p=0.95, logprobs=True, top_logprobs=5)
    (answer,) = ask(model, request("Q:a=12+7;b=a*3;b?\nS:\n", (1, 2, 3, 4), params))
    for sample in answer.samples:
        ids = (*(answer.prefix_ids or ()), *(sample.ids or ()))
        places = tuple(range(len(answer.prefix_ids or ()) - 1, len(ids) - 1))
        (read,) = evaluate(same, EvaluateRequest(ids, places))
        each = [value for (value,) in read.values]
        assert list(sample.token_logprobs or ())[: len(each)] == pytest.approx(each, abs=1e-3)
        assert sample.logprob == pytest.approx(math.fsum(sample.token_logprobs or ()))
        every = tuple(range(same._tokenizer.vocab_size))
        (full,) = evaluate(same, EvaluateRequest(ids, places, every))
        best = [-statistics.fmean(max(v, -100.0) for v in sorted(row)[-5:]) for row in full.values]
        assert list(sample.token_confidences or ())[: len(best)] == pytest.approx(best, abs=1e-3)


def test_labels_and_followers_are_read_as_the_torch_engine_reads_them(model: Any, same: Any) -> None:
    ids = model.render(Sequence.of("Q:a=12+7;b=a*3;c=b/a;c?\nS:\na=12+7=19\nb=19*3=57\nc=57/19=3\nA:3\n"))
    every = tuple(range(model._tokenizer.vocab_size))
    wanted = [
        EvaluateRequest(ids, (40, 5, 40), (7, 8, 7)),
        EvaluateRequest(ids, (len(ids) - 1,), every + every),
        EvaluateRequest(ids, tuple(range(len(ids) - 1))),
        EvaluateRequest(ids, (len(ids) - 2,)),
    ]
    for ours, theirs in zip(evaluate(model, *wanted), evaluate(same, *wanted), strict=True):
        for a, b in zip(ours.values, theirs.values, strict=True):
            assert a == pytest.approx(b, abs=2e-3)


# -- accounts --------------------------------------------------------------------------------------


def test_whole_blocks_of_a_prefix_are_read_from_the_cache(model: Any) -> None:
    block, n = model.block_size, 8
    start = Sequence.of("Q:" + ";".join(f"{v}={i}+1{i}" for i, v in enumerate("abcdefgh")) + ";h?\nS:\n")
    seeds = tuple(range(n))
    (first,) = ask(model, request(start, seeds, SamplingParams(), 40))
    tokens = first.prefix_tokens or 0
    whole = (tokens - 1) // block * block
    assert whole >= 2 * block
    assert (first.prefilled or 0) + (first.cached or 0) == n * tokens
    assert first.cached == (n - 1) * whole, "the first computes it, in the same step as the others read it"
    before = model.stats.cached
    (again,) = ask(model, request(start, seeds, SamplingParams(), 40))
    assert (again.prefilled, again.cached) == (n * (tokens - whole), n * whole)
    assert model.stats.cached - before == n * whole
    # A child reads what its parent generated, as far as it fills blocks.
    parent = again.samples[0]
    grown = start.extend(parent.text, tokens=TokenIds(parent.ids or (), model.tokenizer_fingerprint))
    (child,) = ask(model, request(grown, (1,), SamplingParams(), 5))
    fed = tokens + (parent.generated or 0) - 1
    assert (child.cached or 0) == min(fed, (child.prefix_tokens or 0) - 1) // block * block


def test_reading_labels_goes_through_the_cache(model: Any) -> None:
    block = model.block_size
    text = "Q:" + ";".join(f"{v}={i}*2{i}" for i, v in enumerate("abcdefghijklmnopqr"))
    ids = model.render(Sequence.of(text))
    end = len(ids) - 1
    assert end > 3 * block
    (cold,) = evaluate(model, EvaluateRequest(ids, (end,), (5, 6)))
    (warm,) = evaluate(model, EvaluateRequest(ids, (end,), (5, 6)))
    assert (cold.prefilled, cold.cached) == (len(ids), 0)
    assert (warm.prefilled, warm.cached) == (len(ids) - end // block * block, end // block * block)
    # Two places at the end of a long input are read one by one, each through the cache; many are not.
    (few,) = evaluate(model, EvaluateRequest(ids, (end - 2, end - 1)))
    assert few.cached == (end - 2) // block * block + (end - 1) // block * block
    (many,) = evaluate(model, EvaluateRequest(ids, tuple(range(end))))
    assert (many.prefilled, many.cached) == (len(ids), 0)


def test_by_default_samples_are_vllms_own_and_tell_no_log_probabilities(model: Any) -> None:
    one, other = (
        ask(model, request("Q:a=12+7;", tuple(range(16)), SamplingParams(), 30))[0] for _ in range(2)
    )
    texts = [[sample.text for sample in made.samples] for made in (one, other)]
    assert texts[0] != texts[1] and len(set(texts[0])) > 1
    assert all(sample.logprob is None and sample.token_logprobs is None for sample in one.samples)
    assert all(sample.generated for sample in one.samples)
    told = SamplingParams(logprobs=True)
    (asked,) = ask(model, request("Q:a=12+7;", (0,), told, 30))
    assert asked.samples[0].logprob is not None and asked.samples[0].token_logprobs


def test_another_engine_draws_other_samples(small: dict[str, Any]) -> None:
    """As another process would: more samples of a prompt must not be copies of those that the journal has."""
    from metagen.generators.vllm import VLLMEngine

    def texts() -> list[str]:
        with VLLMEngine("tiny-0.1m", **small) as engine:
            wanted = request("Q:a=12+7;", tuple(range(16)), SamplingParams(), 30)
            return [sample.text for sample in ask(engine, wanted)[0].samples]

    assert texts() != texts()


def test_readings_that_are_no_numbers_or_were_aborted_are_errors(
    small: dict[str, Any], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    from metagen.generators.vllm import VLLMEngine

    broken = tmp_path / "broken"
    shutil.copytree(resolve("tiny-0.1m"), broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = math.nan
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with VLLMEngine(broken, **small) as engine:
        ids = engine.render(Sequence.of("Q:a=12+7;a?\nS:\n" * 8))
        for wanted in (EvaluateRequest(ids, (3,), (5, 6)), EvaluateRequest(ids, tuple(range(len(ids) - 1)))):
            with pytest.raises(NumericsError, match="NaN"):
                evaluate(engine, wanted)

        async def gone(*_: Any) -> Any:
            return SimpleNamespace(outputs=[SimpleNamespace(finish_reason="abort")])

        assert engine._requests is not None
        engine._requests._complete = gone  # type: ignore[method-assign] - vLLM aborts by itself on a GPU alone
        with pytest.raises(EngineError, match="aborted a reading"):
            evaluate(engine, EvaluateRequest(ids, (3,), (5, 6)))


def test_confidences_and_labels_asked_for_at_once(model: Any) -> None:
    params = SamplingParams(temperature=0.0, top_logprobs=4)
    alone = ask(model, *(request("Q:a=12+7;a?\nS:\n", (i,), params) for i in range(8)))
    ids = model.render(Sequence.of("Q:a=12+7;a?\nS:\n"))

    async def both() -> list[Any]:
        work: list[Any] = []
        for i in range(8):
            work.append(model.generate(request("Q:a=12+7;a?\nS:\n", (i,), params)))
            work.append(model.evaluate([EvaluateRequest(ids, (len(ids) - 1,), (5, 6))]))
        return list(await asyncio.gather(*work))

    found = asyncio.run(both())[::2]
    for a, b in zip(alone, found, strict=True):
        mine, theirs = a.samples[0].token_confidences or (), b.samples[0].token_confidences or ()
        assert list(mine) == pytest.approx(list(theirs), abs=1e-3)


# -- ends ------------------------------------------------------------------------------------------


def test_cancelling_aborts_in_the_engine(model: Any) -> None:
    endless = SamplingParams(ignore_eos=True)

    async def cancelled() -> list[GenerateRequest]:
        requests = [request(f"Q:a=1{i}+7;a?\nS:\n", tuple(range(20)), endless, 1500) for i in range(10)]
        tasks = [asyncio.create_task(model.generate(one)) for one in requests]
        began = model.stats.prefilled
        while model._llm.get_num_unfinished_requests() < 100:  # noqa: ASYNC110 - vLLM tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while model._llm.get_num_unfinished_requests():  # noqa: ASYNC110 - vLLM tells nobody
            await asyncio.sleep(0.01)
        assert model.stats.prefilled >= began
        while model._requests._room._value < model._pending:  # noqa: ASYNC110 - until every place is free again
            await asyncio.sleep(0.01)
        return requests

    aborted = model.stats.aborted_tokens
    requests = asyncio.run(asyncio.wait_for(cancelled(), 300))
    assert not any(one.ended for one in requests)
    assert model.stats.aborted_tokens > aborted
    assert ask(model, request("Q:a=12+7;a?\nS:\n"))[0].samples[0].finish == "eos"


def test_no_more_requests_are_inside_than_there_is_room_for(model: Any) -> None:
    most, room = 0, model._requests._room
    model._requests._room = asyncio.Semaphore(16)

    async def storm() -> None:
        nonlocal most
        many = [request(f"Q:a={i}+7;a?\nS:\n", (1, 2, 3), SamplingParams(), 4) for i in range(300)]
        tasks = [asyncio.create_task(model.generate(one)) for one in many]
        while not all(task.done() for task in tasks):
            most = max(most, model._llm.get_num_unfinished_requests())
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    try:
        asyncio.run(asyncio.wait_for(storm(), 600))
    finally:
        model._requests._room = room
    assert 8 <= most <= 16


def test_tokens_that_are_bytes(bytewise: Path, small: dict[str, Any]) -> None:
    """Grammars from the first token on, stop texts across tokens, and a chat that is gone on with."""
    from metagen.generators.torch import TorchEngine
    from metagen.generators.vllm import VLLMEngine

    start = Sequence.of("the quick brown")
    held = SamplingParams(grammar=Grammar.regex(r"A:\d{1,3}\n"), ignore_eos=False)
    texts = [*"aeiou", "e ", "qu", "\n"]
    ends = [request(start, (0,), SamplingParams(temperature=0.0, stop=(s,)), 40) for s in texts]
    ends += [request(start, (0,), GREEDY, 40, Step(s)) for s in texts]
    turns = [Message("user", "hi"), Message("assistant", "well")]
    ends += [request(Sequence.of(turns[:n]), (0,), GREEDY, 10) for n in (1, 2)]
    with VLLMEngine(bytewise, **small) as engine, TorchEngine(bytewise, dtype="float32", threads=1) as same:
        assert "grammar" in engine.supports and engine.supports < same.supports
        (answer,) = ask(engine, request(start, tuple(range(8)), held, 20))
        for sample in answer.samples:
            assert sample.finish == "eos"
            assert sample.text.startswith("A:") and sample.text[2:-1].isdigit() and sample.text[-1] == "\n"
        with pytest.raises(UnsupportedError, match="start from the prompt"):
            ask(engine, request(start.extend("A:"), (0,), held, 20))
        with pytest.raises(InputError):
            ask(engine, request(start, (0,), SamplingParams(grammar=Grammar.lark("no grammar")), 20))
        pairs = list(zip(ask(engine, *ends), ask(same, *ends), strict=True))
        assert [a.prefix_ids for a, _ in pairs] == [b.prefix_ids for _, b in pairs]
        parted = [(a, b) for a, b in pairs if what(a.samples[0]) != what(b.samples[0])]
        assert len(parted) <= SHARE * len(pairs), parted[0]


def test_an_adapter_and_drafts(small: dict[str, Any], tmp_path: Path) -> None:
    """With a LoRA adapter, the numbers of the model that it is merged into; drafts change nothing that is greedy."""
    import torch
    from safetensors.torch import load_file, save_file

    from metagen.generators.torch import TorchEngine
    from metagen.generators.vllm import VLLMEngine

    base, merged, adapter = resolve("tiny-0.1m"), tmp_path / "merged", tmp_path / "adapter"
    shutil.copytree(base, merged)
    weights, parts = load_file(base / "model.safetensors"), {}
    generator = torch.Generator().manual_seed(1)
    for name in [name for name in weights if name.endswith(("q_proj.weight", "v_proj.weight"))]:
        rows, columns = weights[name].shape
        down = torch.randn(8, columns, generator=generator) * 0.1
        up = torch.randn(rows, 8, generator=generator) * 0.1
        weights[name] = weights[name] + up @ down
        stem = "base_model.model." + name.removesuffix(".weight")
        parts |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
    save_file(weights, merged / "model.safetensors", {"format": "pt"})
    adapter.mkdir()
    save_file(parts, adapter / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 8,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "base_model_name_or_path": "tiny-0.1m",
    }
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    wanted = [request(problem.prompt, (0,), GREEDY, 60) for problem in problems(3)]
    with (
        VLLMEngine("tiny-0.1m", lora=adapter, speculative_config=drafts, **small) as engine,
        TorchEngine(merged, dtype="float32", threads=1) as same,
    ):
        pairs = list(zip(ask(engine, *wanted), ask(same, *wanted), strict=True))
        parted = [(a, b) for a, b in pairs if what(a.samples[0]) != what(b.samples[0])]
        assert len(parted) <= SHARE * len(pairs), parted[0]
        assert engine.stats.extra["drafted"] >= engine.stats.extra["accepted"] > 0
    # As a model, it brings its base.
    with VLLMEngine(adapter, **small) as engine, TorchEngine(adapter, dtype="float32", threads=1) as same:
        assert (
            engine.shape is not None and same.shape is not None and engine.shape.adapter == same.shape.adapter
        )
        pairs = list(zip(ask(engine, *wanted), ask(same, *wanted), strict=True))
        parted = [(a, b) for a, b in pairs if what(a.samples[0]) != what(b.samples[0])]
        assert len(parted) <= SHARE * len(pairs), parted[0]
    with pytest.raises(InputError, match="is an adapter already"):
        VLLMEngine(adapter, lora=adapter, **small)


def test_a_vocabulary_that_is_no_bytes_is_held_to_no_grammar(model: Any) -> None:
    with pytest.raises(UnsupportedError, match="grammar"):
        model.generator(grammar=Grammar.regex("A"))


def test_requests_that_are_none(model: Any) -> None:
    for bad, error, says in (
        (request("x", ()), InputError, "no seeds"),
        (request("x", most=0), InputError, "max_tokens=0"),
        (request("x", params=SamplingParams(stop_token_ids=(9999,))), InputError, "9999"),
        (request("x", params=SamplingParams(top_logprobs=9999)), InputError, "top_logprobs=9999"),
        (request("x", params=SamplingParams(temperature=3.0)), InputError, r"temperature=3\.0"),
        (request("x" * 3000), PromptError, "context of 2047"),
    ):
        with pytest.raises(error, match=says):
            ask(model, bad)
    with pytest.raises(UnsupportedError, match="TorchEngine"):
        evaluate(model, EvaluateRequest((5, 6), (0,), outputs=True))
    with pytest.raises(UnsupportedError, match="close it"):
        model.sleep()


def test_closing_ends_its_processes_and_wakes_whoever_waits(model: Any, small: dict[str, Any]) -> None:
    from metagen.generators.vllm import VLLMEngine

    def alive(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def wait(engine: Any) -> list[Any]:
        params = SamplingParams(ignore_eos=True)
        tasks = [
            asyncio.create_task(engine.generate(request(f"Q:{i}", (1, 2), params, 1000))) for i in range(5)
        ]
        while not engine._llm.get_num_unfinished_requests():  # noqa: ASYNC110 - vLLM tells nobody
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.close)
        return await asyncio.gather(*tasks, return_exceptions=True)

    before, others = dict(os.environ), set(active_children())
    with VLLMEngine("tiny-0.1m", **small) as engine:
        pids = [process.pid for process in set(active_children()) - others if process.pid]
        assert pids and all(alive(pid) for pid in pids)
        outcomes = asyncio.run(asyncio.wait_for(wait(engine), 120))
    assert all(isinstance(one, EngineError) and "closed" in str(one) for one in outcomes)
    assert not any(alive(pid) for pid in pids)
    assert dict(os.environ) == before, "what vLLM sets for its processes is not left to others"
    with pytest.raises(EngineError, match="closed"):
        ask(engine, request("x"))
    engine.close()
    assert gc.get_freeze_count(), "what lives on in the other engine is not thawed"


# -- texts on their way ----------------------------------------------------------------------------


def test_a_stream_has_the_text_in_parts_before_the_sample_ends(model: Any) -> None:
    async def main() -> list[Any]:
        return [event async for event in strategy.stream("Q:a=12+7;b=a*3;c=b-8;c?\nS:\n", seed=1)]

    strategy = One(model.generator(max_tokens=60, ignore_eos=True))
    events = asyncio.run(main())
    told = [event.text for event in events if event.kind == "text"]
    kinds = [event.kind for event in events]
    assert len(told) > 5 and "".join(told) == events[-1].result.text
    assert kinds.index("text") < kinds.index("sample")


@pytest.mark.parametrize(
    "params", [GREEDY.replace(stop=("19\n",), logprobs=True), GREEDY.replace(top_logprobs=2, ignore_eos=True)]
)
def test_telling_changes_no_sample(model: Any, params: SamplingParams) -> None:
    """Greedy ones, with log-probabilities, and with a stop string that several tokens write."""
    told: list[tuple[int, str]] = []
    silent = request("Q:a=12+7;b=a*3;b?\nS:\n", (0, 1), params, 40)
    asks = replace(silent, ended={}, written=lambda number, text: told.append((number, text)))
    one, other = (ask(model, wanted)[0].samples for wanted in (silent, asks))
    assert [what(sample) for sample in one] == [what(sample) for sample in other]
    assert {number for number, _ in told} == {0, 1}
    for a, b in zip(one, other, strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=EPSILON)
        assert a.token_logprobs is None or len(a.token_logprobs) == len(b.token_logprobs or ())
    assert not any("19\n" in text for _, text in told) or not params.stop
