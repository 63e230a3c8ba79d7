"""The engine: many coroutines, one thread, exact accounts."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import shutil
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from transformers import AutoModelForCausalLM

from metagen.cost import Usage
from metagen.errors import EngineError, InputError, NumericsError, PromptError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.scheduler import Scheduler
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Sequence, Step, TokenIds, Tokens, Until

FREE = SamplingParams(ignore_eos=True)


def request(
    prefix: Sequence | str,
    seeds: Any = (0,),
    params: SamplingParams = FREE,
    most: int = 20,
    until: Until = None,
) -> GenerateRequest:
    return GenerateRequest(Sequence.of(prefix), tuple(seeds), params, most, until)


def ask(engine: TorchEngine, *requests: GenerateRequest) -> list[Generated]:
    """All requests at once."""

    async def together() -> list[Generated]:
        return list(await asyncio.gather(*(engine.generate(r) for r in requests)))

    return asyncio.run(together())


def grown(engine: TorchEngine, prefix: Sequence, sample: Sample) -> Sequence:
    assert sample.ids is not None
    ids = TokenIds(sample.ids, engine.tokenizer_fingerprint)
    return prefix.extend(sample.text, tokens=ids, step_end=sample.step_end)


def idle(engine: TorchEngine) -> None:
    """Nothing is held once nothing runs."""
    deadline = time.monotonic() + 30
    while engine._scheduler.busy and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (engine._tree.locked, engine._tree.reserved, engine._rows.count) == (0, 0, 0)
    assert engine._scheduler._decoder._states.count == 0
    assert not engine._open


# -- what is generated -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama3", "mistral", "qwen2", "qwen3"])
def test_greedy_is_greedy_of_transformers(kind: str, model_dir: Any) -> None:
    directory = model_dir(kind)
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    prompts = ["the quick", "Q: 12 + 7 = ?\n" * 3, "数"]
    with TorchEngine(directory, threads=1, max_batch=4) as engine:
        greedy = SamplingParams(temperature=0)
        answers = ask(engine, *(request(p, (1, 2), greedy, 30) for p in prompts))
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = engine.render(Sequence.of(prompt))
            with torch.inference_mode():
                out = reference.generate(torch.tensor([ids]), max_new_tokens=30, do_sample=False)
            want = [i for i in out[0, len(ids) :].tolist() if i not in engine._tokenizer.eos]
            assert answer.prefix_ids == ids
            assert [list(s.ids or ()) for s in answer.samples] == [want, want]


def test_samples_have_the_exact_distribution(engine: TorchEngine) -> None:
    """First tokens against transformers' softmax, chi-square at a false-alarm rate of 1e-6, fixed seeds."""
    reference = AutoModelForCausalLM.from_pretrained(engine.directory, dtype=torch.float32).eval()
    n = 3000
    (answer,) = ask(engine, request("the quick", range(n), most=1))
    with torch.inference_mode():
        logits = reference(torch.tensor([answer.prefix_ids])).logits[0, -1]
    p = torch.softmax(logits.double(), -1).numpy()
    seen = torch.bincount(torch.tensor([s.ids for s in answer.samples])[:, 0], minlength=len(p)).numpy()
    often = n * p >= 5
    counts, expected = [*seen[often], seen[~often].sum()], [*(n * p[often]), n * p[~often].sum()]
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_logprobs_are_those_of_the_raw_model(engine: TorchEngine) -> None:
    params = SamplingParams(temperature=0.5, top_k=20, top_p=0.9, logprobs=True)
    (answer,) = ask(engine, request("abc", range(4), params, 300))
    assert answer.prefix_ids is not None
    for sample in answer.samples:
        assert sample.token_logprobs is not None and sample.ids is not None
        ids = answer.prefix_ids + sample.ids + ((1,) if sample.finish == "eos" else ())
        first = len(answer.prefix_ids) - 1
        (scored,) = asyncio.run(engine.evaluate([EvaluateRequest(ids, tuple(range(first, len(ids) - 1)))]))
        assert sample.token_logprobs == pytest.approx([v for (v,) in scored.values], abs=2e-3)
        assert sample.logprob == pytest.approx(sum(sample.token_logprobs))
        assert sample.generated == len(sample.token_logprobs)


def test_confidences_against_one_forward_of_transformers(engine: TorchEngine) -> None:
    """Rows that ask for different k, and one that asks for none, decode together; what is drawn is the same."""
    reference = AutoModelForCausalLM.from_pretrained(engine.directory, dtype=torch.float32).eval()
    plain = SamplingParams(temperature=0.7, top_k=50)
    asked = (0, 2, 20, 7)
    answers = ask(engine, *(request("abc", (1, 2), plain.replace(top_logprobs=k), 70) for k in asked))
    for k, answer in zip(asked, answers, strict=True):
        assert answer.prefix_ids is not None
        for sample, without in zip(answer.samples, answers[0].samples, strict=True):
            # A row that reads its prefix alone, for a while, rounds otherwise.
            assert sample.logprob == pytest.approx(without.logprob, abs=1e-3)
            assert dataclasses.replace(sample, token_confidences=None, logprob=without.logprob) == without
            if not k:
                assert sample.token_confidences is None
                continue
            ids = answer.prefix_ids + (sample.ids or ())
            with torch.inference_mode():
                logits = reference(torch.tensor([ids])).logits[0, len(answer.prefix_ids) - 1 :]
            best = torch.log_softmax(logits, -1).topk(k, -1).values
            assert sample.generated is not None and sample.token_confidences is not None
            want = (-best.mean(-1))[: sample.generated].tolist()
            assert list(sample.token_confidences) == pytest.approx(want, abs=2e-3)
            assert len(sample.token_confidences) == sample.generated


def test_rows_that_close_gaps_keep_their_confidences(engine: TorchEngine) -> None:
    """Rows of many lengths leave, others take their places: each has what it has alone."""
    wanted = [
        request(f"prompt {i}", (i,), FREE.replace(top_logprobs=2 + i % 4), 5 + 13 * (i % 7))
        for i in range(12)
    ]
    alone = [ask(engine, one)[0].samples[0] for one in wanted]
    crowd = [answer.samples[0] for answer in ask(engine, *wanted)]
    same = [(a, b) for a, b in zip(alone, crowd, strict=True) if a.ids == b.ids]
    assert len(same) >= 11, "a draw near an edge may flip"
    for a, b in same:
        assert list(a.token_confidences or ()) == pytest.approx(list(b.token_confidences or ()), abs=2e-3)


def test_the_same_seed_alone_and_in_a_crowd(engine: TorchEngine) -> None:
    """And the rate of flips: at most as many samples differ as draws came near an edge."""
    wanted = [
        request(
            f"prompt {i}: {'x' * (i % 7)}",
            (i, i + 1000),
            SamplingParams(temperature=0.5 + 0.1 * (i % 8), top_k=(i % 3) * 20, ignore_eos=True),
            10 + 5 * (i % 6),
        )
        for i in range(24)
    ]
    near = engine.stats.extra["near_edge"]
    alone = [ask(engine, r)[0].samples for r in wanted]
    near = engine.stats.extra["near_edge"] - near
    crowd = [answer.samples for answer in ask(engine, *wanted)]
    flips = sum(a.ids != b.ids for x, y in zip(alone, crowd, strict=True) for a, b in zip(x, y, strict=True))
    assert flips <= near
    assert flips <= 1


def test_a_text_is_the_decoding_of_its_ids(engine: TorchEngine) -> None:
    (answer,) = ask(engine, request("naïve", range(20), most=40))
    for sample in answer.samples:
        assert sample.text == engine._tokenizer.decode(list(sample.ids or ()))


def test_steps_continue_to_the_same_text_as_one_go(engine: TorchEngine) -> None:
    prefix = Sequence.of("the quick brown")
    for seed in range(6):
        (whole,) = ask(engine, request(prefix, (seed,), most=40))[0].samples
        grows, left = prefix, 40
        while left:
            (part,) = ask(engine, request(grows, (seed,), most=left, until=Tokens(7)))[0].samples
            left -= part.generated or 0
            if part.finish is not None:
                assert grows.text + part.text == whole.text
                break
            grows = grown(engine, grows, part)
            assert "\ufffd" not in grows.text[-1:], "no broken character is ever shown at the end"


def test_stop_texts_and_tokens_in_the_engine(engine: TorchEngine) -> None:
    (answer,) = ask(engine, request("abc", range(40), SamplingParams(stop=("e",), ignore_eos=True), 200))
    assert {s.finish for s in answer.samples} == {"stop"}
    assert all("e" not in s.text for s in answer.samples)
    (answer,) = ask(engine, request("abc", range(40), SamplingParams(stop_token_ids=(50, 51)), 400))
    for sample in answer.samples:
        assert sample.finish in ("stop", "eos", "length")
        assert not {50, 51, 1} & set(sample.ids or ())
    (answer,) = ask(engine, request("abc", range(40), most=200, until=Step("e", max_tokens=20)))
    for sample in answer.samples:
        assert sample.cut == (sample.step_end is None) == ("e" not in sample.text)
        assert sample.generated is not None and (sample.generated <= 20)


# -- accounts --------------------------------------------------------------------------------------


def test_no_prefix_in_memory_is_computed_twice(model_dir: Any) -> None:
    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as engine:
        prefix = Sequence.of("the quick brown fox jumps over")
        p = len(engine.render(prefix))
        (first,) = ask(engine, request(prefix, range(20), until=Tokens(6)))
        assert (first.prefix_tokens, first.prefilled, first.cached) == (p, p, 19 * p)
        (again,) = ask(engine, request(prefix, range(2)))
        assert (again.prefilled, again.cached) == (1, 2 * p - 1), "the last token's logits are needed"
        child = grown(engine, prefix, first.samples[3])
        assert len(engine.render(child)) == p + 6
        (below,) = ask(engine, request(child, range(3)))
        # Five generated tokens were run, the sixth was only drawn.
        assert (below.prefilled, below.cached) == (1, 3 * (p + 6) - 1)
        other = Sequence.of("the quick brown dog")
        q = len(engine.render(other))
        same = next(
            i
            for i, (a, b) in enumerate(zip(engine.render(prefix), engine.render(other), strict=False))
            if a != b
        )
        (branch,) = ask(engine, request(other))
        assert (branch.prefilled, branch.cached) == (q - same, same)
        counted = [first, again, below, branch]
        assert engine.stats.prefilled == sum(a.prefilled or 0 for a in counted)
        assert engine.stats.cached == sum(a.cached or 0 for a in counted)
        assert engine.stats.generated == sum(s.computed or 0 for a in counted for s in a.samples)
        idle(engine)


@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=0.4), SamplingParams(top_k=2), SamplingParams()]
)
def test_samples_that_begin_alike_are_computed_once(model_dir: Any, params: SamplingParams) -> None:
    """As many tokens are computed as the tree of the samples has nodes, and every sample is what it is by itself."""
    params = dataclasses.replace(params, ignore_eos=True)
    with TorchEngine(model_dir("llama"), threads=1, max_batch=64) as engine:
        ask(engine, request("the quick", range(1), params, 4), request("abc", range(1), params, 4))
        before = engine.stats.generated
        answers = ask(
            engine, request("the quick", range(40), params, 12), request("abc", range(100, 124), params, 30)
        )
        for answer in answers:
            nodes = {s.ids[:k] for s in answer.samples for k in range(1, len(s.ids or ()) + 1)}
            assert sum(s.computed or 0 for s in answer.samples) == len(nodes)
            assert all(0 <= (s.computed or 0) <= (s.generated or 0) for s in answer.samples)
        computed = sum(s.computed or 0 for a in answers for s in a.samples)
        assert (
            engine.stats.generated - before
            == computed
            < sum(s.generated or 0 for a in answers for s in a.samples)
        )
        alone = ask(engine, *(request("the quick", [seed], params, 12) for seed in range(40)))
        same = [a.samples[0].ids == s.ids for a, s in zip(alone, answers[0].samples, strict=True)]
        assert sum(same) >= 39  # rounding may flip a choice
        idle(engine)


def test_greedy_samples_of_one_prefix_are_one(model_dir: Any) -> None:
    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as engine:
        (answer,) = ask(
            engine, request("the quick", range(20), SamplingParams(temperature=0.0, ignore_eos=True), 10)
        )
        assert len({s.ids for s in answer.samples}) == 1
        # Rows come as there is room: 8, 8 and 4 at a time.
        assert engine.stats.generated == 3 * 10 and [s.generated for s in answer.samples] == [10] * 20
        idle(engine)


def test_prefixes_that_arrive_together_are_computed_once(model_dir: Any) -> None:
    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as engine:
        head = "Q: 12 + 7 = ?\nStep one.\n" * 4
        texts = [head + tail for tail in ("fox", "dog", "fox", "abc", "the fox")]
        answers = ask(engine, *(request(t) for t in texts))
        prefixes = {ids[:n] for a in answers if (ids := a.prefix_ids) for n in range(1, len(ids) + 1)}
        # The second of two equal prefixes needs its last token once more, for the logits.
        assert sum(a.prefilled or 0 for a in answers) == len(prefixes) + 1
        assert all((a.prefilled or 0) + (a.cached or 0) == a.prefix_tokens for a in answers)


def test_many_requests_for_one_prompt_do_not_queue(model_dir: Any) -> None:
    """One computes the prefix; then all take their first tokens together, not one a step."""
    with TorchEngine(model_dir("llama"), threads=1, max_batch=64) as engine:
        answers = ask(engine, *(request("the quick brown fox", (i,), most=3) for i in range(60)))
        p = answers[0].prefix_tokens or 0
        assert sorted(a.prefilled or 0 for a in answers) == [1] * 59 + [p]
        assert engine.stats.extra["steps"] <= 10


def test_evaluate_accounts_and_agrees_with_transformers(model_dir: Any) -> None:
    directory = model_dir("qwen2")
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    ids = tuple(torch.randint(5, 300, (400,), generator=torch.Generator().manual_seed(3)).tolist())
    with torch.inference_mode():
        want = torch.log_softmax(reference(torch.tensor([ids])).logits[0], -1)
    with TorchEngine(directory, threads=1) as engine:
        wanted = [
            EvaluateRequest(ids, (399, 5, 300), (7, 8)),
            EvaluateRequest(ids[:100], (50, 98)),
            EvaluateRequest((*ids[:60], 3), (60,), (1,)),
        ]
        found = asyncio.run(engine.evaluate(wanted))
        values = [v for row in found[0].values for v in row]
        assert values == pytest.approx([want[t, i].item() for t in (399, 5, 300) for i in (7, 8)], abs=1e-3)
        values = [v for (v,) in found[1].values]
        assert values == pytest.approx([want[t, ids[t + 1]].item() for t in (50, 98)], abs=1e-3)
        assert (found[0].prefilled, found[0].cached) == (400, 0)
        # The others wait for the first, and read from it up to the first position they ask for.
        assert (found[1].prefilled, found[1].cached) == (49, 50)
        assert (found[2].prefilled, found[2].cached) == (1, 60)
        (later,) = asyncio.run(engine.evaluate([EvaluateRequest((*ids, 9), (400,), (1, 2))]))
        assert (later.prefilled, later.cached) == (1, 400)
        assert asyncio.run(engine.evaluate([])) == []
        idle(engine)


def test_little_memory_evicts_and_still_answers_right(model_dir: Any) -> None:
    prompts = [f"{i} the quick brown fox {'jumps ' * i}" for i in range(12)]
    wanted = [request(p, range(6), FREE, 30 + 10 * (i % 5)) for i, p in enumerate(prompts)]
    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as roomy:
        right = ask(roomy, *wanted)
        token = roomy._model.token_bytes
    with TorchEngine(
        model_dir("llama"), threads=1, max_batch=8, kv_memory_bytes=token * (16 * 16 * 2 + 296)
    ) as tight:
        assert tight._model.chunk == 16, "short tails, frozen again and again"
        found = ask(tight, *wanted)
        assert [[s.ids for s in a.samples] for a in found] == [[s.ids for s in a.samples] for a in right]
        assert tight._tree.evicted > 0
        assert tight._tree.tokens <= tight._tree.capacity
        idle(tight)
        with pytest.raises(PromptError, match="kv_memory_bytes"):
            ask(tight, request("abc " * 40, most=400))


# -- neighbours, ends, errors ----------------------------------------------------------------------


def test_a_thousand_coroutines_from_several_loops(engine: TorchEngine) -> None:
    results: list[list[Generated]] = []

    def loop(offset: int) -> None:
        results.append(
            ask(engine, *(request(f"{i % 40} dogs", (offset + i,), most=1 + i % 4) for i in range(350)))
        )

    threads = [threading.Thread(target=loop, args=(1000 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(r) for r in results) == [350] * 3
    assert all(a.samples[0].generated == 1 + i % 4 for r in results for i, a in enumerate(r))
    idle(engine)


def test_a_cut_off_call_keeps_what_had_ended_and_is_charged_once(engine: TorchEngine) -> None:
    """Cancelled in the middle and called again: the same samples, usage and records as without."""
    often = tuple(range(10, 30))

    async def call(journal: MemoryJournal, *, cut: bool) -> tuple[list[str], Usage]:
        generator = engine.generator(max_tokens=900, stop_token_ids=often)
        scope = Scope.root("p", journal=journal)
        work = asyncio.create_task(generator.generate(Sequence.of("the quick"), n=40, scope=scope))
        began = engine.stats.generated
        while cut and engine.stats.generated < began + 32 * 12:  # noqa: ASYNC110 - the engine's thread tells nobody
            await asyncio.sleep(0.001)
        if cut:
            work.cancel()
            await asyncio.wait([work])
            return [], scope.usage
        return [s.text for s in await work], dataclasses.replace(scope.usage, seconds=0.0)

    cut, whole = MemoryJournal(), MemoryJournal()
    asyncio.run(call(cut, cut=True))
    kept = len(cut.of_problem("p"))
    assert 0 < kept < 40
    began = engine.stats.samples
    assert asyncio.run(call(cut, cut=False)) == asyncio.run(call(whole, cut=False))
    assert engine.stats.samples - began == (40 - kept) + 40
    idle(engine)


def test_cancelling_frees_what_a_request_holds(engine: TorchEngine) -> None:
    async def cancelled() -> Generated:
        long = [asyncio.create_task(engine.generate(request(f"{i}", range(40), most=900))) for i in range(4)]
        waiting = asyncio.create_task(engine.evaluate([EvaluateRequest((5,) * 900, (899,), (1,))] * 3))
        while engine._rows.count < 32:  # noqa: ASYNC110 - the engine's thread tells nobody
            await asyncio.sleep(0.01)
        for task in (*long, waiting):
            task.cancel()
        gathered = await asyncio.gather(*long, waiting, return_exceptions=True)
        assert all(isinstance(g, asyncio.CancelledError) for g in gathered)
        await asyncio.to_thread(idle, engine)
        return await engine.generate(request("after"))

    aborted, decoded = engine.stats.aborted_tokens, engine.stats.generated
    assert asyncio.run(cancelled()).samples[0].generated == 20
    aborted, decoded = engine.stats.aborted_tokens - aborted, engine.stats.generated - decoded
    assert decoded - 20 == aborted > 0
    idle(engine)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3_text"])
def test_a_prompt_of_several_pieces_is_read_alone(model_dir: Any, kind: str) -> None:
    """No other row takes part in the passes that read it."""
    with TorchEngine(model_dir(kind), threads=1) as engine:
        (found,) = ask(
            engine, request("the quick brown fox " * 120, params=SamplingParams(temperature=0.0), most=1)
        )
        ids = list(found.prefix_ids or ())
        assert len(ids) > 600
        reference = AutoModelForCausalLM.from_pretrained(model_dir(kind), dtype=torch.float32).eval()
        with torch.inference_mode():
            logits = reference(torch.tensor([ids])).logits[0, -1]
    assert found.samples[0].ids == (int(logits.argmax()),)


def test_numbers_that_are_none_fail_their_own_request_only(model_dir: Any, tmp_path: Path) -> None:
    """A model in which one token's embedding is NaN: whoever meets it fails, the others do not notice."""
    directory = tmp_path / "nan"
    shutil.copytree(model_dir("llama"), directory)
    weights = load_file(directory / "model.safetensors")
    bad = 70
    weights["model.embed_tokens.weight"][bad] = torch.nan
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    prompt = Prompt("p", "the quick brown fox")

    async def mixed(engine: TorchEngine) -> list[Any]:
        poisoned = Sequence(prompt, "x", TokenIds((bad,), engine.tokenizer_fingerprint))
        calls: list[Any] = [
            engine.evaluate([EvaluateRequest((5, bad, 6), (2,), (1,))]),
            engine.generate(request(poisoned)),
        ]
        calls += [engine.generate(request(f"dog {i}", range(20), most=60)) for i in range(12)]
        return await asyncio.gather(*calls, return_exceptions=True)

    with (
        TorchEngine(model_dir("llama"), threads=1, max_batch=32) as clean,
        TorchEngine(directory, threads=1, max_batch=32) as engine,
    ):
        right = ask(clean, *(request(f"dog {i}", range(20), most=60) for i in range(12)))
        first, second, *rest = asyncio.run(mixed(engine))
        assert isinstance(first, NumericsError)
        assert isinstance(second, NumericsError)
        for answer, other in zip(right, rest, strict=True):
            met = any(bad in (s.ids or ())[:-1] for s in answer.samples)
            if met:
                assert isinstance(other, NumericsError)
            else:
                assert [s.ids for s in other.samples] == [s.ids for s in answer.samples]
        assert any(isinstance(r, Generated) for r in rest)
        assert any(isinstance(r, NumericsError) for r in rest)
        # One bad text of several: the request fails as a whole, and the engine goes on.
        several = [EvaluateRequest((5, bad, 6), (2,), (1,)), EvaluateRequest((5, 6, 7), (2,), (1,))]
        with pytest.raises(NumericsError):
            asyncio.run(engine.evaluate(several))
        (found,) = asyncio.run(engine.evaluate(several[1:]))
        (expected,) = asyncio.run(clean.evaluate(several[1:]))
        assert found.values[0] == pytest.approx(expected.values[0])
        idle(engine)


def test_requests_that_are_none(engine: TorchEngine) -> None:
    for bad, error, says in (
        (request("x", ()), InputError, "no seeds"),
        (request("x", most=0), InputError, "max_tokens=0"),
        (request("x", params=SamplingParams(stop_token_ids=(9999,))), InputError, "9999"),
        (request("x", params=SamplingParams(top_logprobs=9999)), InputError, "top_logprobs=9999"),
        (request("x" * 3000), PromptError, "context of 1024"),
        (request("x", most=1024), PromptError, "max_tokens ≤ 10"),
        (request(Sequence.of([Message("user", "hi")])), UnsupportedError, "no chat template"),
    ):
        with pytest.raises(error, match=says):
            ask(engine, bad)
    for ids, positions, labels, says in (
        ((), (0,), None, "no tokens"),
        ((5, 99999), (0,), None, "99999"),
        ((5, 6), (1,), None, "positions"),
        ((5, 6), (-1,), (1,), "positions"),
        ((5, 6), (), (1,), "positions"),
        ((5, 6), (0,), (), "labels"),
        ((5, 6), (0,), (-3,), "-3"),
    ):
        with pytest.raises(InputError, match=says):
            asyncio.run(engine.evaluate([EvaluateRequest(ids, positions, labels)]))
    idle(engine)


def test_use_before_and_after(model_dir: Any) -> None:
    engine = TorchEngine(model_dir("llama"), threads=1)
    with pytest.raises(EngineError, match="inside `with engine:`"):
        ask(engine, request("x"))
    with engine:
        ask(engine, request("x"))
        with pytest.raises(EngineError, match="opened before"):
            engine.__enter__()
    with pytest.raises(EngineError, match="closed"):
        ask(engine, request("x"))
    engine.close()


def test_a_closed_engine_keeps_neither_weights_nor_keys_and_values(model_dir: Any) -> None:
    """Though somebody keeps the engine, and Python does not look for objects that refer to each other."""
    engine = TorchEngine(model_dir("llama"), threads=1)
    kept = [weakref.ref(engine._model), weakref.ref(engine._tree)]
    gc.disable()
    try:
        with engine:
            ask(engine, request("x"))
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()


def test_closing_wakes_everyone(model_dir: Any) -> None:
    async def wait(engine: TorchEngine) -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(request(f"{i}", range(9), most=900))) for i in range(5)]
        while not engine._rows.count:  # noqa: ASYNC110 - the engine's thread tells nobody
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.close)
        return await asyncio.gather(*tasks, return_exceptions=True)

    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as engine:
        outcomes = asyncio.run(asyncio.wait_for(wait(engine), 60))
    assert all(isinstance(o, EngineError) for o in outcomes)


def test_a_crash_fails_all_with_its_cause(model_dir: Any) -> None:
    with TorchEngine(model_dir("llama"), threads=1, max_batch=8) as engine:

        def crash(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        engine._model.extend = crash  # type: ignore[method-assign]
        with pytest.raises(EngineError, match="ZeroDivisionError") as caught:
            ask(engine, request("x"))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(EngineError, match="has failed"):
            ask(engine, request("x"))


# -- prompts ---------------------------------------------------------------------------------------


def test_rendering(engine: TorchEngine, model_dir: Any, tmp_path: Path) -> None:
    prompt = Sequence.of("Q: 12")
    ids = engine.render(prompt)
    assert ids[0] == 0, "the tokenizer's own template puts <s> first"
    assert ids[1:] == engine.encode("Q: 12")
    assert engine.encode("a<+>b")[1] == 3, "a special token's name is that token"
    own = prompt.extend("ab", tokens=TokenIds((70, 71), engine.tokenizer_fingerprint))
    assert engine.render(own) == (*ids, 70, 71)
    foreign = prompt.extend("ab", tokens=TokenIds((1, 2), "another"))
    assert engine.render(foreign) == (0, *engine.encode("Q: 12ab"))

    directory = tmp_path / "chat"
    shutil.copytree(model_dir("llama"), directory)
    (directory / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    chat = TorchEngine(directory, threads=1)
    question = Message("user", "hi")
    assert chat.render(Sequence.of([question])) == chat.encode("[user]hi</s>[assistant]")
    partial = Sequence.of([question, Message("assistant", "well")])
    assert chat.render(partial) == chat.encode("[user]hi</s>[assistant]well")
    assert chat.render(partial.extend(", yes")) == chat.encode("[user]hi</s>[assistant]well, yes")


def test_fingerprints_name_weights_numbers_and_tokenizer(model_dir: Any, tmp_path: Path) -> None:
    base = TorchEngine(model_dir("llama"), threads=1)
    assert TorchEngine(model_dir("llama"), threads=1).fingerprint == base.fingerprint
    assert TorchEngine(model_dir("llama"), dtype="bfloat16").fingerprint != base.fingerprint
    other = TorchEngine(model_dir("llama", seed=5))
    assert other.fingerprint != base.fingerprint
    assert other.tokenizer_fingerprint == base.tokenizer_fingerprint
    with pytest.raises(InputError, match="dtype"):
        TorchEngine(model_dir("llama"), dtype="int3")
    with pytest.raises(InputError, match="device"):
        TorchEngine(model_dir("llama"), device="abacus")
    with pytest.raises(InputError, match="max_batch"):
        TorchEngine(model_dir("llama"), max_batch=0)


def test_threads_are_one_for_a_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TorchEngine("tiny-0.1m").threads == 1
    assert TorchEngine("tiny-0.1m", threads=3).threads == 3
    monkeypatch.setattr("metagen.generators.torch.numbers.LARGE", 10_000)
    monkeypatch.setattr("torch.get_num_threads", lambda: 7)
    assert TorchEngine("tiny-0.1m").threads == 7, "as torch chooses"


@pytest.mark.parametrize("head_dim", [16, 12], ids=["blocks and draws", "draws"])
def test_engines_beside_each_other_keep_their_threads(
    head_dim: int, steps: str, model_dir: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of an engine that works for the first time after another has been opened.

    Blocks are not compiled for heads of 12 dimensions.
    """
    directory = model_dir("llama", head_dim=head_dim)
    told: list[int] = []
    worked: list[int] = []
    tell, step = torch.set_num_threads, Scheduler.step

    def tells(number: int) -> None:
        tell(number)
        told.append(number)

    def steps_on(self: Scheduler) -> None:
        step(self)
        worked.append(torch.get_num_threads())

    monkeypatch.setattr(torch, "set_num_threads", tells)
    monkeypatch.setattr(Scheduler, "step", steps_on)

    def opened(engines: int) -> None:
        for _ in range(1000):
            if len(told) == engines:
                return
            time.sleep(0.01)
        pytest.fail("an engine was not told its threads")

    with TorchEngine(directory, threads=2, max_batch=4) as first:
        opened(1)
        with TorchEngine(directory, threads=1, max_batch=4) as second:
            opened(2)
            for engine in (first, second):
                worked.clear()
                ask(engine, request("Q: 1", range(3), most=4))
                assert set(worked) == {engine.threads}
