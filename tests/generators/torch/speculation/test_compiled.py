"""Drafts and their verification in compiled calls: the tokens, decisions and counts of the path through torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from metagen.generators.compiled import build
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.parameters import SamplingParams
from metagen.generators.engine import GenerateRequest, Sample
from metagen.generators.randomness import Purpose, seed_array
from metagen.generators.torch import TorchEngine, compiled
from metagen.generators.torch.endings import EOS, STOP
from metagen.generators.torch.models.formulas import LEAST
from metagen.generators.torch.models.llama import LlamaModel
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import NEAR, distribution, pick
from metagen.generators.torch.speculation.block import numbers
from metagen.generators.torch.speculation.pair import Pair
from metagen.generators.torch.speculation.verify import Drafted, Rule, verify
from metagen.sequence import Sequence as Text
from metagen.tasks.arithmetic.task import ArithmeticTask
from tests.generators.torch.conftest import COMPILED

pytestmark = pytest.mark.skipif(build.extension() is None, reason=f"no compiled steps: {build.state()[1]}")
PROMPTS = [p.prompt for p in ArithmeticTask("validation", per_level=1, limit=4).problems()]


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`path("compiled")`, `path("torch")`, which leaves the blocks compiled, and `path("nothing compiled")`."""
    ahead, judge = Pair.draft_ahead, compiled.judge

    def take(name: str) -> None:
        monkeypatch.setenv(build.SETTING, "off" if name == "nothing compiled" else "ready")
        by_torch = name == "torch"
        monkeypatch.setattr(Pair, "draft_ahead", (lambda *_: None) if by_torch else ahead)
        monkeypatch.setattr(compiled, "judge", (lambda *_: None) if by_torch else judge)

    return take


def write(
    params: Sequence[SamplingParams], target: Any, draft: Draft, *, length: int | None = 60, **options: Any
) -> tuple[list[Sample], dict[str, float]]:
    """Samples of all prompts, two of each under each of the parameters, and what was counted.

    length: None for as many tokens as the context has room for.
    """
    with TorchEngine(target, threads=1, draft=draft, **{"max_batch": 8, **options}) as engine:

        async def ask() -> list[Sample]:
            requests = [
                GenerateRequest(Text.of(p), (100 * i + j, 100 * i + j + 50), one, length or room(engine, p))
                for i, p in enumerate(PROMPTS)
                for j, one in enumerate(params)
            ]
            answers = await asyncio.gather(*map(engine.generate, requests))
            return [sample for answer in answers for sample in answer.samples]

        samples = asyncio.run(ask())
        return samples, dict(engine.stats.extra)


def room(engine: TorchEngine, prompt: Any) -> int:
    """Tokens that fit behind a prompt."""
    return engine.max_context - len(engine.render(Text.of(prompt)))


def expect_equal(
    path: Callable[[str], None], *args: Any, other: str = "torch", near: int = 0, **options: Any
) -> list[Sample]:
    """Both paths write and count the same."""
    path("compiled")
    found, counted = write(*args, **options)
    path(other)
    expected, other_counts = write(*args, **options)
    assert counted["near_edge"] == other_counts["near_edge"] <= near, "rounding decides nothing here"
    assert [(s.ids, s.finish) for s in found] == [(s.ids, s.finish) for s in expected]
    assert [s.logprob for s in found] == pytest.approx([s.logprob for s in expected], abs=2e-4)
    assert counted.pop("overlap") == pytest.approx(other_counts.pop("overlap"), rel=1e-4)
    assert counted == other_counts
    return found


MIXED = [SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(temperature=0.6)]


@pytest.mark.parametrize(
    "draft",
    [
        Draft("tiny-0.1m"),
        Draft("tiny-0.1m", 1),
        Draft("tiny-0.1m", 7, "token"),
        Draft("tiny-0.1m", 2, adapt=True),
        Draft.lookup(ngram=2),
    ],
    ids=["block", "one", "token", "adapt", "lookup"],
)
@pytest.mark.parametrize("rows", [1, 8])
def test_texts_are_equal(path: Callable[[str], None], draft: Draft, rows: int) -> None:
    found = expect_equal(path, MIXED, "tiny-0.5m", draft, max_batch=rows)
    assert any(sample.finish == "eos" for sample in found), "ends inside drafts"


def test_texts_are_those_without_any_compiled_step(path: Callable[[str], None]) -> None:
    expect_equal(path, MIXED, "tiny-0.5m", Draft("tiny-0.1m"), other="nothing compiled")


def test_bfloat16(path: Callable[[str], None]) -> None:
    expect_equal(path, [SamplingParams()], "tiny-0.5m", Draft("tiny-0.1m"), dtype="bfloat16")


def test_texts_that_outgrow_their_tails(path: Callable[[str], None]) -> None:
    """Tails hold 32, 96 and 256 tokens; what is longer is frozen."""
    endless = [SamplingParams(temperature=0.3, ignore_eos=True, max_tokens=300)]
    expect_equal(path, endless, "tiny-0.5m", Draft("tiny-0.1m", 5), length=300, near=4)


def test_texts_that_end_with_the_context(path: Callable[[str], None], model_dir: Any) -> None:
    """Also where the draft's context is the smaller one, and has no place behind the last."""
    target = model_dir("llama", **COMPILED)
    draft = model_dir("llama", **COMPILED, max_position_embeddings=128)
    endless = [SamplingParams(temperature=0.3, ignore_eos=True, max_tokens=128)]
    for model in (target, draft):
        found = expect_equal(path, endless, model, Draft(draft, 6), length=None, near=10)
        assert {sample.finish for sample in found} == {"length"}


def test_stop_tokens_end_drafts(path: Callable[[str], None]) -> None:
    found = expect_equal(path, [SamplingParams(stop_token_ids=(20, 21, 22))], "tiny-0.5m", Draft("tiny-0.1m"))
    assert any(sample.finish == "stop" for sample in found)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_model_that_drafts_for_itself_keeps_all(
    path: Callable[[str], None], model_dir: Any, kind: str
) -> None:
    directory = model_dir(kind, **COMPILED)
    path("compiled")
    _, counted = write([SamplingParams(ignore_eos=True)], directory, Draft(directory), length=40)
    assert counted["accepted"] == counted["drafted"] > 0


def test_the_compiled_path_is_taken(path: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By plain rows; others go through torch."""
    path("compiled")
    taken: list[str] = []
    ahead, judge = Pair.draft_ahead, compiled.judge
    monkeypatch.setattr(Pair, "draft_ahead", lambda *a: taken.append("draft") or ahead(*a))
    monkeypatch.setattr(compiled, "judge", lambda *a: taken.append("judge") or judge(*a))
    write([SamplingParams()], "tiny-0.5m", Draft("tiny-0.1m"), length=10)
    assert {*taken} == {"draft", "judge"}
    taken.clear()
    write([SamplingParams(top_p=0.9)], "tiny-0.5m", Draft("tiny-0.1m"), length=10)
    write([SamplingParams()], "tiny-0.5m", Draft("tiny-0.1m", drafts=2), length=10)
    assert not taken


# -- single calls ----------------------------------------------------------------------------------


def test_random_numbers_are_those_of_python() -> None:
    rng = np.random.default_rng(0)
    seeds = seed_array([0, 1, (1 << 64) - 1, *rng.integers(0, 1 << 62, 50).tolist()])
    for purpose in (Purpose.SAMPLE, Purpose.ACCEPT, Purpose.RESIDUAL):
        for index in (1, 2, 9):
            positions = rng.integers(0, 5000, len(seeds))
            expected = numbers(seeds, positions, np.array([index]), purpose)
            module: Any = build.extension()
            found = [
                module.number(seed, position, index, purpose)
                for seed, position in zip(seeds.view(np.int64).tolist(), positions.tolist(), strict=True)
            ]
            assert found == expected.tolist()


def rules(seeds: list[int], positions: list[int], temperatures: list[float], vocab: int) -> compiled.Rules:
    """Every 50th token ends a row."""
    flags = np.zeros((len(seeds), vocab), np.uint8)
    flags[:, ::50] = EOS
    return compiled.Rules(
        seed_array(seeds), np.array(positions), np.array(temperatures), NEAR, -LEAST / 2, flags, EOS | STOP
    )


@pytest.mark.parametrize(
    ("kind", "head_dim", "dtype"),
    [
        ("llama", 16, torch.float32),
        ("llama", 64, torch.float32),
        ("qwen2", 80, torch.float32),
        ("qwen3", 32, torch.float32),
        ("llama", 32, torch.bfloat16),
    ],
)
@torch.inference_mode()
def test_drafts_are_those_of_single_steps(
    model_dir: Any, kind: str, head_dim: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows behind a common prefix and alone, with one token or two to run first, that want different numbers."""
    monkeypatch.setenv(build.SETTING, "ready")
    directory = model_dir(kind, head_dim=head_dim)
    models = [
        LlamaModel(directory, dtype=dtype, device=torch.device("cpu"), batch=4, kv_bytes=1 << 26)
        for _ in range(2)
    ]
    rng, rows, wanted = np.random.default_rng(1), np.arange(4), np.array([6, 1, 3, 6])
    prefix, tokens, counts = rng.integers(5, 300, 40), rng.integers(5, 300, 6), np.array([1, 2, 2, 1])
    for model in models:
        model.open(rows[:1], [])
        model.extend(rows[:1], prefix, np.array([40]))
        model.open(rows[1:3], [model.save(0, 0, 30)])
        model.open(rows[3:], [])
    one, other = models
    of = rules([1, 2, 3, 4], [7, 0, 9, 5], [1.0, 0.0, 0.7, 2.0], one.vocab_size)
    params = RowParams.of([SamplingParams(temperature=t) for t in of.temperatures.tolist()])
    found = one.draft(rows, tokens, counts, wanted, of)
    assert found is not None and not found.bad.any()
    assert found.tokens.shape == (4, 6) and found.q.shape == (4, 6, one.vocab_size)
    newest, given, live = tokens, counts, rows
    for place in range(6):
        logits = other.extend(live, newest, given)
        q = distribution(logits, params.take(live))
        u = numbers(of.seeds[live], of.positions[live], np.array([place + 1]), Purpose.SAMPLE)
        drawn, near, _ = pick(q, u)
        torch.testing.assert_close(found.q[live, place], q, atol=1e-5, rtol=1e-3)
        assert not near.any()
        assert found.tokens[live, place].tolist() == drawn[:, 0].tolist()
        ended = (of.flags[live, drawn[:, 0].numpy()] != 0) | (wanted[live] == place + 1)
        assert (found.counts[live[ended]] == place + 1).all()
        newest, live = drawn[:, 0].numpy()[~ended], live[~ended]
        given = np.ones(len(live), np.int64)
        if not len(live):
            break
    assert not len(live)
    after = [model.extend(rows, tokens[:4]) for model in models]  # both hold the same
    torch.testing.assert_close(*after, atol=1e-4, rtol=1e-4)


def test_drafts_that_do_not_fit_are_refused(model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SETTING, "ready")
    directory = model_dir("llama", **COMPILED, max_position_embeddings=32)
    row, one = np.array([0]), np.array([1])
    with torch.inference_mode():
        model = LlamaModel(
            directory, dtype=torch.float32, device=torch.device("cpu"), batch=1, kv_bytes=1 << 24
        )
        model.open(row, [])
        model.extend(row, np.full(30, 7), np.array([30]))
        of = rules([1], [0], [1.0], model.vocab_size)
        with pytest.raises(ValueError, match=r"draft: (room|context)"):
            model._blocks.draft(
                model._embedding, model.head.map, model._kv.tails, model._kv.locate(row, one), one, np.array([9]), of
            )  # fmt: skip
        with pytest.raises(ValueError, match="draft: tokens"):
            model.draft(row, np.array([7, 7]), one, one, of)
        with pytest.raises(ValueError, match="draft: rows"):
            model.draft(row, one, one, one, rules([1, 2], [0, 0], [1.0, 1.0], model.vocab_size))


def problem(vocab: int, n: int, most: int, seed: int) -> dict[str, Any]:
    """Logits, drafts that follow them more or less, and rows that verify them."""
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(rng.normal(0, 2, (n, most + 1, vocab))).float()
    z[::3, :, ::2] = -torch.inf if vocab > 2 else 0.0
    q = torch.softmax(z[:, :most] + 0.7 * torch.from_numpy(rng.normal(0, 1, (n, most, vocab))).float(), -1)
    tokens = torch.multinomial(q.view(-1, vocab), 1, generator=torch.Generator().manual_seed(seed)).view(
        n, most
    )
    counts = rng.integers(0, most + 1, n)
    temperatures = rng.choice([0.0, 0.5, 1.0, 2.0], n)
    return {
        "z": z, "q": q, "tokens": tokens.numpy(), "counts": counts, "temperatures": temperatures,
        "seeds": seed_array(range(n)), "positions": rng.integers(0, 100, n),
    }  # fmt: skip


def judge(of: dict[str, Any], rule: Rule, *, sure: bool = False) -> compiled.Judged:
    n, most = of["tokens"].shape
    found = compiled.judge(
        of["z"].view(n * (most + 1), -1), np.arange(n) * (most + 1), of["tokens"], of["counts"],
        None if sure else of["q"], of["seeds"], of["positions"], of["temperatures"], rule == "block", NEAR, -LEAST / 2,
    )  # fmt: skip
    assert found is not None
    return found


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("vocab", [2, 16, 104, 5000])
def test_verdicts_are_those_of_torch(vocab: int, rule: Rule, sure: bool) -> None:
    n, most = 60, 5
    of = problem(vocab, n, most, seed=vocab)
    found = judge(of, rule, sure=sure)
    params = RowParams.of([SamplingParams(temperature=t) for t in of["temperatures"].tolist()])
    z, tokens, counts = of["z"], torch.from_numpy(of["tokens"]), torch.from_numpy(of["counts"])
    p = distribution(z.view(-1, vocab), params.take(np.repeat(np.arange(n), most + 1))).view(z.shape)
    index, column = np.arange(1, most + 1), (slice(None), None)
    u = numbers(of["seeds"][column], of["positions"][column], index, Purpose.ACCEPT)
    drafted = Drafted(tokens, counts, None if sure else of["q"])
    kept = verify(p, drafted, torch.from_numpy(u), rule, near=NEAR)
    last, _, _ = pick(
        kept.rest, numbers(of["seeds"], of["positions"], kept.counts.numpy() + 1, Purpose.RESIDUAL)
    )
    safe = (found.near == 0) & ~kept.near.numpy()
    assert safe.mean() > 0.9
    assert (found.kept == kept.counts.numpy())[safe].all()
    assert 0 < found.kept.sum() < of["counts"].sum()
    raw = torch.log_softmax(z, -1)
    for row in np.flatnonzero(safe).tolist():
        k = int(found.kept[row])
        assert found.tokens[row].tolist() == [*of["tokens"][row, :k], int(last[row]), *[0] * (most - k)]
        expected = raw[row, np.arange(k + 1), found.tokens[row, : k + 1]]
        np.testing.assert_allclose(found.logprobs[row, : k + 1], expected.numpy(), atol=2e-5)
    if safe.all():
        assert found.tested == kept.tested.sum()
        assert found.overlap == pytest.approx(float(kept.overlap.sum()), rel=1e-5)
    assert not found.bad.any() and not found.none.any()


def test_logits_that_are_no_numbers_are_told() -> None:
    of = problem(104, 6, 3, seed=1)
    of["counts"][:] = 3
    of["z"][1, 0, 5] = torch.nan
    of["z"][3, 0] = -torch.inf
    of["z"][4, 0, 7] = torch.inf
    for rule in ("token", "block"):
        assert judge(of, rule).bad.tolist() == [False, True, False, True, True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"counts": np.full(6, 4)},
        {"counts": np.full(6, -1)},
        {"tokens": np.full((6, 3), 104)},
        {"tokens": np.full((6, 3), -1)},
        {"q": torch.zeros(6, 3, 105)},
        {"q": torch.zeros(6, 3, 104, dtype=torch.float64)},
        {"seeds": seed_array(range(5))},
        {"positions": np.zeros(7, np.int64)},
        {"temperatures": np.zeros(6, np.float32)},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    of = problem(104, 6, 3, seed=1)
    of["counts"][:] = 3
    with pytest.raises(ValueError, match="judge: "):
        judge(of | change, "block")
