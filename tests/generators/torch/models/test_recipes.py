"""Recipes on the embedded models: the engine's laws, parity with transformers, accounts, names and faults."""

from __future__ import annotations

import asyncio
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.cost import ModelShape, Usage, decode_flops, prefill_flops
from metagen.errors import InputError, ModelError, NumericsError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.engine import Engine, EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models.recipes import (
    Contrastive,
    Ensemble,
    Experts,
    Function,
    Guided,
    ProxyTuned,
    Recipe,
    Table,
    Tilted,
)
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models.combined import Combined, first
from metagen.generators.torch.models.ids import TableModel
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.testing import EngineLaws
from tests.generators.torch.conftest import make_model
from tests.generators.torch.models.tables import TOKENS

PROMPTS = ("Q:a=12+7;b=a*3;b?\nS:\n", "Q:a=81/9;b=a+7;c=b-2;c?\nS:\n", "Q:")
CONTRASTIVE = Contrastive("tiny-0.5m", "tiny-0.1m")


class TestContrastiveEngine(EngineLaws):
    """Of two prompts it is sure, of two it is not."""

    prompts = (
        "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips = 0.05
    most = 48
    many = 400

    def make(self) -> Engine:
        return TorchEngine(Contrastive("tiny-0.1m", "tiny-0.5m", alpha=0.02, window=12), threads=1)


def asked(prefix: str, n: int = 1, most: int = 60, **params: Any) -> GenerateRequest:
    return GenerateRequest(Sequence.of(prefix), tuple(range(n)), SamplingParams(**params), most)


def generated(engine: TorchEngine, request: GenerateRequest) -> Any:
    return asyncio.run(engine.generate(request))


@torch.inference_mode()
def test_greedy_is_what_transformers_computes() -> None:
    """Contrastive decoding of tiny-2m over tiny-0.1m, token by token, from the two models' own logits."""
    expert, amateur = (
        AutoModelForCausalLM.from_pretrained(resolve(name), dtype=torch.float32).eval()
        for name in ("tiny-2m", "tiny-0.1m")
    )
    other = 0
    with TorchEngine(Contrastive("tiny-2m", "tiny-0.1m", alpha=0.05), threads=1) as engine:
        for prompt in PROMPTS:
            (sample,) = generated(engine, asked(prompt, most=30, temperature=0.0)).samples
            ids = list(engine.render(Sequence.of(prompt)))
            for token in sample.ids:
                strong, weak = (
                    torch.log_softmax(m(torch.tensor([ids])).logits[0, -1], -1) for m in (expert, amateur)
                )
                score = torch.where(strong.exp() >= 0.05 * strong.exp().max(), strong - weak, -torch.inf)
                assert token == int(score.argmax())
                other += int(score.argmax() != strong.argmax())
                ids.append(token)
    assert other, "the amateur changed nothing: the test cannot tell the expert alone from the contrast"


def test_raw_log_probabilities_are_those_of_the_whole() -> None:
    with TorchEngine(CONTRASTIVE, threads=1) as engine:
        answer = generated(engine, asked("Q:a=5", 6, 25, temperature=1.4, logprobs=True))
        for sample in answer.samples:
            ids = answer.prefix_ids + sample.ids
            at = tuple(range(len(answer.prefix_ids) - 1, len(ids) - 1))
            (read,) = asyncio.run(engine.evaluate([EvaluateRequest(ids, at)]))
            known = sample.token_logprobs[: len(sample.ids)]
            assert list(known) == pytest.approx([v for (v,) in read.values], abs=2e-3)


def test_grammars_and_confidences_work_on_them() -> None:
    with TorchEngine(CONTRASTIVE, threads=1) as engine:
        held = asked(PROMPTS[0], 5, grammar=Grammar.regex(r"[0-9]{3}"))
        assert all(s.text.isdigit() and len(s.text) == 3 for s in generated(engine, held).samples)
        sure = generated(engine, asked(PROMPTS[0], 2, top_logprobs=5))
        # Outside of the head nothing is probable, and no logarithm counts less than −100.
        assert all(0 < c <= 100 for s in sure.samples for c in s.token_confidences)


def test_prefixes_are_shared_and_split() -> None:
    with TorchEngine(CONTRASTIVE, threads=1, max_batch=4) as engine:
        stem = PROMPTS[0]
        generated(engine, asked(stem + "a=12+7=19\n", 2))
        before = engine.stats.prefilled
        again = generated(engine, asked(stem, 3))
        assert again.prefilled == 1
        assert engine.stats.prefilled == before + 1
        with TorchEngine(CONTRASTIVE, threads=1, max_batch=4) as fresh:
            for new, old in zip(generated(fresh, asked(stem, 3)).samples, again.samples, strict=True):
                assert new.ids == old.ids
                # Segments that were split are read in parts.
                assert new.logprob == pytest.approx(old.logprob, abs=1e-4)


def test_budgets_count_all_models() -> None:
    expert, amateur = (ModelShape.from_config(resolve(name)) for name in ("tiny-0.5m", "tiny-0.1m"))
    with TorchEngine(CONTRASTIVE, threads=1) as engine:
        shape = engine.shape
        assert shape is not None
        assert shape.parameters == expert.parameters + amateur.parameters
        for count in (lambda s: prefill_flops(s, 40, 7), lambda s: decode_flops(s, 9, 40)):
            assert count(shape) == count(expert) + count(amateur)
        scope = Scope.root("p")
        asyncio.run(engine.generator(max_tokens=8).generate(Sequence.of(PROMPTS[0]), n=2, scope=scope))
        usage: Usage = scope.usage
    with TorchEngine("tiny-0.5m", threads=1) as alone:
        scope = Scope.root("p")
        asyncio.run(alone.generator(max_tokens=8).generate(Sequence.of(PROMPTS[0]), n=2, scope=scope))
    assert usage.flops_2n == scope.usage.flops_2n * shape.parameters / expert.parameters
    assert usage.generated == scope.usage.generated


def test_fingerprints_name_what_the_distribution_depends_on(tmp_path: Path) -> None:
    def fingerprint(recipe: Recipe) -> str:
        return TorchEngine(recipe, threads=1, max_batch=2).fingerprint

    same = Contrastive(resolve("tiny-0.5m"), str(resolve("tiny-0.1m")), alpha=0.1)
    assert fingerprint(CONTRASTIVE) == fingerprint(same)
    others = [
        Contrastive("tiny-0.1m", "tiny-0.5m"),
        Contrastive("tiny-0.5m", "tiny-0.1m", alpha=0.2),
        Contrastive("tiny-0.5m", "tiny-0.1m", window=8),
        Ensemble(("tiny-0.5m", "tiny-0.1m")),
        Ensemble(("tiny-0.5m", "tiny-0.1m"), "product"),
        Experts("tiny-0.5m", expert="tiny-0.1m"),
        Experts("tiny-0.5m", anti="tiny-0.1m"),
        Tilted("tiny-0.5m", ("tiny-0.1m",), (1.0,)),
        Tilted("tiny-0.5m", ("tiny-0.1m",), (1.0,), "sigmoid"),
    ]
    assert len({fingerprint(recipe) for recipe in (CONTRASTIVE, *others)}) == len(others) + 1


def test_recipes_are_values() -> None:
    assert pickle.loads(pickle.dumps(CONTRASTIVE)) == CONTRASTIVE
    assert (
        str(ProxyTuned("a", CONTRASTIVE, Path("/b")))
        == "ProxyTuned(a, Contrastive(tiny-0.5m, tiny-0.1m), /b)"
    )
    assert Ensemble(("a", "b"), weights=(1.0, 3.0)).shares == (0.25, 0.75)
    assert Ensemble(("a", "b"), "product", (1.0, 3.0)).shares == (1.0, 3.0)
    assert Ensemble(["a", "b"]).parts == ("a", "b")  # type: ignore[arg-type]  # lists are taken too


def test_different_vocabularies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as fault:
        TorchEngine(Contrastive("tiny-2m", "tiny-bpe"))
    for part in (
        "'tiny-2m' and 'tiny-bpe' have different vocabularies",
        "tokens (tokenizer ",
        "take models of one",
    ):
        assert part in str(fault.value)
    # Of one size, but with other tokens behind the numbers.
    one, other = (Table(tokens, lambda p, d: [0.5, 0.5], "t") for tokens in (("a", "$"), ("b", "$")))
    with pytest.raises(InputError, match="id 0 is 'a' in the first and 'b' in the second"):
        TorchEngine(Ensemble((one, other)))


def test_padding_behind_a_vocabulary_is_left_out(tmp_path: Path) -> None:
    """The same tokenizer with more and with fewer rows of logits than another model has."""
    small = make_model(tmp_path / "small")
    large = make_model(tmp_path / "large", seed=1)
    size = AutoModelForCausalLM.from_pretrained(small).config.vocab_size
    model = AutoModelForCausalLM.from_pretrained(large)
    model.resize_token_embeddings(size + 20)
    model.save_pretrained(large)
    for pair in ((small, large), (large, small)):
        with TorchEngine(Ensemble(pair), threads=1) as engine:
            request = EvaluateRequest(engine.encode("abc"), (0,), tuple(range(size)))
            (answer,) = asyncio.run(engine.evaluate([request]))
            assert sum(map(math.exp, answer.values[0])) == pytest.approx(1, abs=1e-4)
            with pytest.raises(InputError, match=f"token id {size} is not in the vocabulary"):
                asyncio.run(engine.evaluate([EvaluateRequest((1, size), (0,))]))


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Contrastive("a", "b", alpha=0.0), r"alpha=0.0: expected a number in \(0, 1\]"),
        (lambda: Contrastive("a", "b", alpha=2), r"alpha=2: expected a number in \(0, 1\]"),
        (lambda: Contrastive("a", "b", temperature=0), "temperature=0: expected a number > 0"),
        (lambda: Contrastive("a", "b", beta=-1.0), "beta=-1.0: expected a number ≥ 0, or None"),
        (lambda: Contrastive("a", "b", window=0), "window=0: expected an integer ≥ 1, or None"),
        (lambda: Contrastive("a", "b", window=1.5), "window=1.5: expected an integer ≥ 1, or None"),
        (lambda: Contrastive("a", "b", window="x"), "window='x': expected an integer ≥ 1, or None"),
        (lambda: Contrastive("a", "b", window=True), "window=True: expected an integer ≥ 1, or None"),
        (
            lambda: Contrastive("a", None),
            "amateur=None: expected a model directory, an embedded model, or a recipe",
        ),
        (lambda: Experts("a", 3), "expert=3: expected a model directory"),
        (lambda: ProxyTuned("a", "b", None), "untuned=None: expected a model directory"),
        (lambda: Ensemble(("a", None)), r"models\[1\]=None: expected a model directory"),
        (lambda: Ensemble(("a",), weights=3), "weights=3: expected 1 numbers > 0, one of each model"),
        (lambda: Tilted("a", ("b",), 3), "weights=3: expected 1 numbers, one of each value"),
        (lambda: Tilted("a", ("b",), None), "weights=None: expected 1 numbers, one of each value"),
        (
            lambda: Guided("a", "b", candidates=True),
            "candidates=True: expected an integer ≥ 1, or None for all",
        ),
        (lambda: Guided("a", "b", output="z"), "output='z': expected an integer ≥ 0"),
        (lambda: Guided("a", None), "scorer=None: expected a model directory"),
        (lambda: Contrastive("a", "b", sure=1.5), "sure=1.5: expected a number in"),
        (lambda: Experts("a"), "expected an expert, an anti-expert, or both"),
        (lambda: ProxyTuned("a", "b", "c", alpha=float("nan")), "alpha=nan: expected a finite number"),
        (lambda: Ensemble(()), "models=.*expected a tuple of at least one model"),
        (lambda: Ensemble("ab"), "models='ab': expected a tuple of at least one model"),
        (lambda: Ensemble(("a", "b"), weights=(1.0,)), "weights=.*expected 2 numbers > 0, one of each model"),
        (lambda: Ensemble(("a", "b"), weights=(1.0, 0.0)), "weights=.*expected 2 numbers > 0"),
        (lambda: Ensemble(("a",), "median"), "how='median': expected 'mean' or 'product'"),
        (lambda: Tilted("a", ("b",), ()), "weights=.*expected 1 numbers, one of each value"),
        (
            lambda: Tilted("a", ("b",), (1.0,), "log"),
            "reading='log': expected one of raw, sigmoid, log_sigmoid",
        ),
        (lambda: Guided("a", "b", candidates=0), "candidates=0: expected an integer ≥ 1, or None for all"),
        (lambda: Table(("a",), {}), "tokens=.*expected at least two different texts"),
        (lambda: Table(("a", "$"), lambda p, d: [1, 0]), "give a name="),
    ],
)
def test_faults_of_recipes_are_named(make: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        make()


def test_faults_of_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model 'tiny-9m': there is no such file or directory"):
        TorchEngine(Contrastive("tiny-2m", "tiny-9m"))
    with pytest.raises(
        InputError, match=r"window=9999: 'tiny-0.1m' has a context of \d+ tokens; give at most as many"
    ):
        TorchEngine(Contrastive("tiny-0.5m", "tiny-0.1m", window=9999))
    missing = Table(TOKENS, {(): [0.25] * 4})
    model = TableModel(len(TOKENS) + 256, missing.row)
    with pytest.raises(InputError, match="the table has no row for the completion"):
        model.row((0,))
    with pytest.raises(InputError, match="expected probabilities that sum to 1"):
        TableModel(2, lambda ids: [0.5, 0.6]).row((0,))
    with pytest.raises(InputError, match="expected one number for each of the 2 tokens"):
        TableModel(2, lambda ids: [1.0]).row((0,))


def test_parts_can_be_reached() -> None:
    """A target and its draft beside it: the whole speaks as the target does."""
    with TorchEngine(CONTRASTIVE, threads=1) as engine:
        whole = engine._model
        assert isinstance(whole, Combined)
        pair = Combined(whole.models, first)
        assert pair.models[1].token_bytes < pair.token_bytes == sum(m.token_bytes for m in pair.models)


def test_what_a_function_cannot_say_fails_its_own_request_alone() -> None:
    """At once, in the middle of a text, in a search, beside another model, behind a window, and where it is read."""
    half = [0.5, 0.3, 0.0, 0.2]
    whole = Table(TOKENS, lambda prompt, done: half, "whole")
    holes = Table(TOKENS, lambda prompt, done: {}["hole"] if "b" in done or "!" in prompt else half, "holes")
    some = Table(TOKENS, {(): [0.0, 1.0, 0.0, 0.0]})
    cases: list[tuple[Recipe, str, str]] = [
        (some, "?", r"the table has no row for the completion \('b',\); add it"),
        (holes, "!", "KeyError.'hole'"),
        (Ensemble((whole, holes)), "!", "KeyError.'hole'"),
        (Contrastive(whole, holes, window=1), "!", "KeyError.'hole'"),
    ]
    for recipe, prompt, fault in cases:
        with TorchEngine(recipe, threads=1) as engine:
            for params in ({}, {"search": BeamSearch(2)}):
                request = GenerateRequest(
                    Sequence.of(prompt), (0,), SamplingParams(**params), 6, ranks=(0,) if params else ()
                )
                with pytest.raises(InputError, match=fault):
                    generated(engine, request)
            ids = (*engine.render(Sequence.of(prompt)), 1)
            with pytest.raises(InputError, match=fault):
                asyncio.run(engine.evaluate([EvaluateRequest(ids, (len(ids) - 1,), (0,))]))

    async def both(engine: TorchEngine) -> list[Any]:
        # The first draws a "b" sooner or later; the second may not.
        requests = asked("?", 8, 30), asked("?", 8, 30, banned=((1,),))
        return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)

    with TorchEngine(holes, threads=1, max_batch=32) as engine:
        bad, good = asyncio.run(both(engine))
        assert isinstance(bad, InputError)
        assert "after the ids" in str(bad)
        assert len(good.samples) == 8


def test_values_that_are_infinite() -> None:
    def values(ids: tuple[int, ...]) -> list[float]:
        return [-math.inf, math.inf if 1 in ids else 1.0, 0.0, 0.0] + [0.0] * 256

    base = Table(TOKENS, lambda prompt, done: [0.5, 0.3, 0.0, 0.2], "base")
    for weight in (0.0, 1.0, -1.0):
        recipe = Tilted(base, (Function(base, values, "v"),), (weight,))
        with TorchEngine(recipe, threads=1) as engine:
            ids = engine.render(Sequence.of("?"))
            (read,) = asyncio.run(engine.evaluate([EvaluateRequest(ids, (0,), (0, 1, 2, 3))]))
            expected = (
                [0.5, 0.3, 0.2] if not weight else [0.0, 0.3 * math.e, 0.2] if weight > 0 else [1.0, 0.0, 0.0]
            )
            found = [math.exp(read.values[0][i]) for i in (0, 1, 3)]
            assert found == pytest.approx([p / sum(expected) for p in expected], abs=1e-5)
            assert read.values[0][2] == -math.inf
            with pytest.raises(NumericsError, match="NaN or infinite logits"):
                asyncio.run(engine.evaluate([EvaluateRequest((*ids, 1), (1,), (0,))]))
