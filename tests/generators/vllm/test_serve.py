"""OpenAIEngine against a real `vllm serve` on an embedded model, beside the torch engine in the same precision."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Price
from metagen.errors import InputError
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.models import sources
from metagen.generators.openai import OpenAIEngine
from metagen.sequence import Sequence, Step, Tokens
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.verifiers.reward import ProcessRewardModel

MODEL = "tiny-0.5m"
#: Of greedy samples, the share that rounding may change.
SHARE = 0.1
TASK = ArithmeticTask("validation", levels=[1, 2, 3], per_level=8)
PREFIXES = [Sequence.of(problem.prompt) for problem in TASK.problems()]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    # What `vllm serve` runs; the command itself asks for a version that builds for CPUs have under another name.
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(sources.resolve(MODEL)),
        "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--enforce-eager", "--max-num-seqs", "64", "--kv-cache-memory-bytes", str(1 << 28),
        "--enable-prompt-tokens-details", "--max-logprobs", "20",
    ]  # fmt: skip
    environment = os.environ | {
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _await(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path, patience: float = 600.0) -> None:
    """Until the server says that it is well."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(1.0)
    pytest.fail(f"no server after {patience:g} s: {log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[OpenAIEngine]:
    with OpenAIEngine(
        MODEL, base_url=url, api="completions", dialect="vllm", tokenizer=MODEL, structured_outputs=True,
        price=Price(0.1, 0.4), n_per_request=1,
    ) as engine:  # fmt: skip
        yield engine


def ask(engine: Any, *requests: GenerateRequest) -> list[Generated]:
    async def together() -> list[Generated]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(together())


def requests(n: int = 1, until: Any = None, most: int = 200, **params: Any) -> list[GenerateRequest]:
    seeds = tuple(range(1000, 1000 + n))
    return [GenerateRequest(prefix, seeds, SamplingParams(**params), most, until) for prefix in PREFIXES]


@pytest.mark.parametrize("until", [None, Step("\n"), Tokens(7)])
def test_greedy_texts_are_those_of_the_torch_engine(http: OpenAIEngine, same: Any, until: Any) -> None:
    asked = requests(temperature=0.0, until=until)
    ours, theirs = ask(http, *asked), ask(same, *asked)
    pairs = [(a.samples[0], b.samples[0]) for a, b in zip(ours, theirs, strict=True)]
    flips = [(a.text, b.text) for a, b in pairs if (a.text, a.ids, a.step_end) != (b.text, b.ids, b.step_end)]
    assert len(flips) <= SHARE * len(pairs), flips
    assert all((a.finish, a.cut) == (b.finish, b.cut) for a, b in pairs if a.text == b.text)
    for a, b in zip(ours, theirs, strict=True):
        assert a.prefix_ids == b.prefix_ids
        assert a.samples[0].text != b.samples[0].text or a.samples[0].generated == b.samples[0].generated


def test_counts_are_the_servers_and_what_was_read_before_is_cached(http: OpenAIEngine) -> None:
    asked = requests(n=2, most=16)
    ask(http, *asked)
    for answer, request in zip(ask(http, *asked), asked, strict=True):
        length = len(http.render(request.prefix) or ())
        assert answer.prefilled is not None and answer.cached is not None
        assert answer.prefilled + answer.cached == 2 * length == 2 * (answer.prefix_tokens or 0)
        assert answer.cached % 16 == 0, "whole blocks are shared"
    assert http.stats.extra["wrong_counts"] == 0


def test_by_default_samples_of_a_prefix_are_one_request_with_counts_of_each(url: str, same: Any) -> None:
    with OpenAIEngine(MODEL, base_url=url, api="completions", dialect="vllm", tokenizer=MODEL) as engine:
        made = ask(engine, *requests(n=16))
        assert engine.stats.extra["attempts"] == len(made) and engine.stats.samples == 16 * len(made)
        greedy = ask(engine, *requests(n=2, temperature=0.0)[:2])
        assert [len({s.text for s in answer.samples}) for answer in greedy] == [1, 1]
        counted = engine.stats.generated
        assert ask(engine, *requests(n=3, most=8)[:1])[0].samples
        assert engine.stats.extra["attempts"] == len(made) + 2 * 2 + 1
    every = [sample for answer in made for sample in answer.samples]
    assert all(
        len(sample.ids or ()) <= (sample.generated or 0) <= len(sample.ids or ()) + 1 for sample in every
    )
    assert (
        sum(s.generated or 0 for s in every)
        + sum(s.generated or 0 for answer in greedy for s in answer.samples)
        == counted
    )
    assert all(len({s.text for s in answer.samples}) > 1 for answer in made)
    assert engine.stats.extra["wrong_counts"] == 0


def test_a_seed_gives_its_sample_again_and_others_give_others(http: OpenAIEngine) -> None:
    one, again = ask(http, *requests(n=8)[:2]), ask(http, *requests(n=8)[:2])
    texts = [[s.text for s in answer.samples] for answer in one]
    repeated = [[s.text for s in answer.samples] for answer in again]
    same = sum(a == b for x, y in zip(texts, repeated, strict=True) for a, b in zip(x, y, strict=True))
    assert same >= 14, "a batch of another size may round otherwise"
    assert all(len(set(x)) > 1 for x in texts)


def test_sampled_accuracies_agree_with_the_torch_engine(http: OpenAIEngine, same: Any) -> None:
    """Two proportions of 24 · 16 samples each; |z| > 4.5 by chance in one of 150,000 runs."""
    problems = list(TASK.problems())

    def accuracy(engine: Any) -> float:
        async def graded() -> list[float]:
            values: list[float] = []
            for problem, answer in zip(problems, ask_all, strict=True):
                made = [Sequence.of(problem.prompt).extend(s.text, finish=s.finish) for s in answer.samples]
                values += await TASK.grade(problem, made)
            return values

        ask_all = ask(engine, *requests(n=16))
        return statistics.fmean(asyncio.run(graded()))

    a, b, n = accuracy(http), accuracy(same), 16 * len(problems)
    pooled = (a + b) / 2
    assert abs(a - b) < 4.5 * (2 * pooled * (1 - pooled) / n) ** 0.5, (a, b)


def test_log_probabilities_and_confidences_are_the_torch_engines(http: OpenAIEngine, same: Any) -> None:
    asked = requests(temperature=0.0, logprobs=True, top_logprobs=3)
    for a, b in zip(ask(http, *asked), ask(same, *asked), strict=True):
        x, y = a.samples[0], b.samples[0]
        if x.text == y.text:
            assert x.logprob == pytest.approx(y.logprob, abs=2e-3)
            assert x.token_logprobs == pytest.approx(y.token_logprobs, abs=1e-3)
            assert x.token_confidences == pytest.approx(y.token_confidences, abs=2e-3)


def test_labels_and_tokens_that_follow_are_read_alike(http: OpenAIEngine, same: Any) -> None:
    ids = same.render(PREFIXES[0])
    asked = [
        EvaluateRequest(ids, (5, len(ids) - 1), (7, 9, 20)),
        EvaluateRequest(ids, (0, 4, len(ids) - 2)),
    ]
    ours, theirs = asyncio.run(http.evaluate(asked)), asyncio.run(same.evaluate(asked))
    for a, b in zip(ours, theirs, strict=True):
        for row, expected in zip(a.values, b.values, strict=True):
            assert row == pytest.approx(expected, abs=2e-3)


def test_stop_strings_end_where_they_begin(http: OpenAIEngine, same: Any) -> None:
    asked = requests(temperature=0.0, stop=("A:",))
    for a, b in zip(ask(http, *asked), ask(same, *asked), strict=True):
        if a.samples[0].text == b.samples[0].text:
            assert a.samples[0].ids == b.samples[0].ids and a.samples[0].finish == b.samples[0].finish


def test_text_alone_is_enough_for_votes(url: str) -> None:
    problem = next(iter(TASK.problems()))
    with OpenAIEngine(MODEL, base_url=url, api="completions", price=Price(0.1, 0.4)) as engine:
        vote = MajorityVote(engine.generator(max_tokens=200), n=8, answer=TASK.answer)
        result = vote.solve(problem.prompt, budget=Budget(money=1.0))
    assert result.text and result.usage.calls == 8
    assert result.usage.money is not None and result.usage.money > 0


def test_a_search_runs_on_it(http: OpenAIEngine, same: Any) -> None:
    from metagen.generators.torch import TorchEngine

    problem = next(iter(TASK.problems()))
    with TorchEngine("tiny-prm", threads=1) as judge:
        prm = ProcessRewardModel(judge, name="prm")
        search = Rebase(http.generator(max_tokens=200), n=8, verifier=prm, answer=TASK.answer)
        result = search.solve(problem.prompt)
    assert result.text and result.candidates
    assert result.usage.generated is not None and result.usage.money is not None


def test_what_the_server_refuses_is_told(url: str, http: OpenAIEngine) -> None:
    with pytest.raises(InputError, match=r"400|404"):
        ask(http, requests(most=100_000)[0])
    with (
        OpenAIEngine("another", base_url=url, api="completions") as wrong,
        pytest.raises(InputError, match="404"),
    ):
        ask(wrong, requests()[0])


def test_cancelled_requests_end_in_the_server(http: OpenAIEngine) -> None:
    async def storm() -> Generated:
        tasks = [asyncio.create_task(http.generate(r)) for r in requests(n=8, most=1500, ignore_eos=True)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await asyncio.wait_for(http.generate(requests(most=8)[0]), 120.0)

    assert asyncio.run(storm()).samples[0].generated
