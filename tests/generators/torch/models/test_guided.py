"""Guided by a scorer of prefixes: exact where all tokens are tried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models.recipes import Guided
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models.formulas import ruled_out
from metagen.generators.torch.models.guided import Guided as GuidedModel
from metagen.generators.torch.models.ids import FunctionModel, TableModel
from metagen.sequence import Sequence
from tests.generators.torch.conftest import make_model
from tests.generators.torch.models.tables import normed
from tests.generators.torch.scored_models import make_language_model, make_value_head, save_tokenizer

V = 5


def p(ids: tuple[int, ...]) -> Any:
    return np.random.default_rng([1, *ids]).dirichlet(np.ones(V))


def score(ids: tuple[int, ...]) -> Any:
    return np.random.default_rng([2, *ids]).normal(size=1)


@pytest.mark.parametrize("candidates", [None, 5, 3, 1])
def test_candidates_are_weighed_by_what_the_scorer_gives_them(candidates: int | None) -> None:
    model = GuidedModel(
        TableModel(V, p, rows=3), FunctionModel(1, score, rows=7),
        value=lambda x: torch.nn.functional.logsigmoid(x[:, 0]), weight=1.5, candidates=candidates,
    )  # fmt: skip
    model.open(np.array([0]), [])
    found = torch.softmax(model.extend(np.array([0]), np.array([4, 2, 0]), np.array([3]), np.arange(3)), -1)
    for ids, q in zip(((4,), (4, 2), (4, 2, 0)), found.double().numpy(), strict=True):
        values = [-np.log1p(np.exp(-score((*ids, x))[0])) for x in range(V)]
        scores = np.log(p(ids)) + 1.5 * np.array(values)
        if candidates is not None:
            scores[np.argsort(-p(ids))[candidates:]] = -np.inf
        assert q == pytest.approx(normed(scores), abs=1e-6)


@pytest.mark.parametrize("weight", [1e3, 1e12])
def test_whatever_the_weight_only_candidates_can_come(weight: float) -> None:
    model = GuidedModel(
        TableModel(V, p, rows=3), FunctionModel(1, score, rows=7),
        value=lambda x: torch.nn.functional.logsigmoid(x[:, 0] - 12), weight=weight, candidates=2,
    )  # fmt: skip
    model.open(np.array([0]), [])
    (found,) = model.extend(np.array([0]), np.array([4]))
    assert set(ruled_out(found[None])[0].nonzero()[:, 0].tolist()) >= set(np.argsort(-p((4,)))[2:].tolist())


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """A scoring model, a language model with its tokenizer, and what the head gives by transformers."""
    scorer, base = tmp_path_factory.mktemp("scorer"), tmp_path_factory.mktemp("base")
    reference = make_value_head(scorer)
    make_language_model(base, save_tokenizer(base))
    return scorer, base, reference


def test_a_value_head_guides_a_language_model(judge: tuple[Path, Path, Any]) -> None:
    """The evaluated log-probabilities are those of both models by transformers; the candidates are all tokens."""
    scorer, base, reference = judge
    recipe = Guided(base, scorer, candidates=None, weight=2.0)
    with TorchEngine(recipe, threads=1, max_batch=4) as engine:
        ids = engine.encode("Q: 12 + 7")
        labels = tuple(range(40))
        (answer,) = asyncio.run(engine.evaluate([EvaluateRequest(ids, (2, len(ids) - 1), labels)]))
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        for at, values in zip((2, len(ids) - 1), answer.values, strict=True):
            with torch.inference_mode():
                logits = torch.log_softmax(model(torch.tensor([ids[: at + 1]])).logits[0, -1], -1)
            seen = [reference((*ids[: at + 1], x))[-1, 0] for x in range(len(logits))]
            want = torch.log_softmax(logits + 2.0 * torch.nn.functional.logsigmoid(torch.stack(seen)), -1)
            assert list(values) == pytest.approx(want[list(labels)].tolist(), abs=2e-3)
        shape = engine.shape
        assert shape is not None
        assert shape.beside[0].tries == shape.vocab
        request = GenerateRequest(Sequence.of("Q: 12"), (1, 2, 3), SamplingParams(ignore_eos=True), 9)
        first, second = (asyncio.run(engine.generate(request)).samples for _ in range(2))
        assert [s.ids for s in first] == [s.ids for s in second]


def test_faults_are_named(judge: tuple[Path, Path, Any], tmp_path: Path) -> None:
    scorer, base, _ = judge
    with pytest.raises(
        UnsupportedError, match="is a language model; Guided needs a model with a head that scores"
    ):
        TorchEngine(Guided(base, base))
    with pytest.raises(InputError, match=r"output=1: the head of .* gives 1; count from 0"):
        TorchEngine(Guided(base, scorer, output=1))
    with pytest.raises(UnsupportedError, match="no logits; Guided needs language models"):
        TorchEngine(Guided(scorer, scorer))
    other = make_model(tmp_path / "other")
    with pytest.raises(InputError, match="different vocabularies"):
        TorchEngine(Guided(other, scorer))
