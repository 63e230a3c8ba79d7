"""Implicit process rewards, against the log-probabilities of transformers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.cost import Price
from metagen.errors import InputError, UnsupportedError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing import VerifierLaws, run
from metagen.verifiers.aggregation import AGGREGATIONS, aggregate
from metagen.verifiers.base import Verifier
from metagen.verifiers.implicit import ImplicitProcessRewardModel
from tests.generators.torch.scored_models import (
    Reference,
    make_language_model,
    make_transformers,
    published_tokenizer,
    save_tokenizer,
)

QUESTION, TEXT = "Q: 12 + 7 = ?\n", "Step one: 12 + 7\n\nthe quick fox\nA: 19"


def two(path: Path) -> tuple[Reference, Reference]:
    """Two models of one tokenizer, under `ours` and `theirs`."""
    return tuple(  # type: ignore[return-value]  # there are two
        make_language_model(path / name, save_tokenizer(path / name), seed)
        for seed, name in enumerate(("ours", "theirs"))
    )


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[tuple[TorchEngine, TorchEngine]]:
    with (
        TorchEngine(path / "ours", threads=1, max_batch=4, **options) as ours,
        TorchEngine(path / "theirs", threads=1, max_batch=4) as theirs,
    ):
        yield ours, theirs


def scored(model: Verifier, *texts: str, prompt: Any = QUESTION, **root: Any) -> list[Score]:
    async def score() -> list[Score]:
        scope = Scope.root("p", **root)
        return await model.score(
            [Sequence(Prompt.of(prompt), text) for text in texts], scope=scope.child("score")
        )

    return asyncio.run(score())


@pytest.mark.parametrize("chat", [False, True])
def test_a_steps_value_is_the_log_ratio_of_its_tokens(chat: bool, tmp_path: Path) -> None:
    ours, theirs = two(tmp_path)
    tokenizer = published_tokenizer(tmp_path / "ours")
    turns = [{"role": "user", "content": QUESTION}]
    prompt = (
        tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) if chat else QUESTION
    )
    ids = tuple(tokenizer.encode(prompt + TEXT))
    ends = [len(tokenizer.encode(prompt + TEXT[:n])) for n in (0, 18, 32, len(TEXT))]
    at, following = list(range(len(ids) - 1)), list(ids[1:])
    ratio = ours(ids).log_softmax(-1)[at, following] - theirs(ids).log_softmax(-1)[at, following]
    want = [0.3 * ratio[a - 1 : b - 1].sum().item() for a, b in pairwise(ends)]
    q = [sum(want[: i + 1]) for i in range(len(want))]
    logistic = lambda xs: pytest.approx([1 / (1 + math.exp(-x)) for x in xs], abs=1e-5)  # noqa: E731
    with opened(tmp_path) as (one, other):
        (steps,) = scored(
            ImplicitProcessRewardModel(one, other, beta=0.3), TEXT, prompt=turns if chat else QUESTION
        )
        model = ImplicitProcessRewardModel(one, other, beta=0.3, cumulative=True)
        (whole,) = scored(model, TEXT, prompt=turns if chat else QUESTION)
    assert steps.steps == logistic(want) and whole.steps == logistic(q)
    assert (steps.raw, whole.raw) == (pytest.approx(q[-1], abs=1e-4),) * 2
    assert (steps.value, whole.value) == ((steps.steps or ())[-1], (whole.steps or ())[-1])


def test_aggregations_share_records_and_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    two(tmp_path)
    journal = MemoryJournal()
    with opened(tmp_path) as (one, other):
        for how in AGGREGATIONS:
            model = ImplicitProcessRewardModel(one, other, beta=0.3, aggregation=how)
            (score,) = scored(model, TEXT, journal=journal)
            assert score.steps is not None and score.value == aggregate(score.steps, how)
        assert one.stats.requests == other.stats.requests == 1
        prints = {
            ImplicitProcessRewardModel(one, other, beta=b, cumulative=c).fingerprint
            for b in (0.3, 0.1)
            for c in (True, False)
        }
        assert len(prints) == 4


def test_the_cost_is_that_of_both_models(tmp_path: Path) -> None:
    two(tmp_path)
    with opened(tmp_path) as (one, other):
        model = ImplicitProcessRewardModel(
            one,
            other,
            beta=0.3,
            price=Price(prompt=1e6, generated=0),
            reference_price=Price(prompt=2e6, generated=0),
        )

        async def paid(scope: Scope) -> list[Score]:
            return await model.score([Sequence.of(QUESTION).extend(TEXT)], scope=scope.child("score"))

        _, rows = run(paid)
        total = len(one.encode(QUESTION + TEXT))
        assert rows[0].usage.prefilled == 2 * total and rows[0].usage.money == 3 * total
        assert rows[0].physical.prefilled == 2 * (total - 1), "the last token is looked up, not run"
        (refused,) = [
            s.verdict for s in scored(model, "a", "b" * 60, budget=Budget(prefilled=2 * total)) if s.verdict
        ]
        assert refused == "unscored"


def test_what_cannot_be_scored(tmp_path: Path) -> None:
    two(tmp_path)
    with opened(tmp_path, max_context=30) as (one, other):
        model = ImplicitProcessRewardModel(one, other, beta=0.3)
        empty, blank, long = scored(model, "", " \n", "b" * 60)
        assert (empty.value, empty.steps) == (blank.value, blank.steps) == (0.0, ())
        assert (long.value, long.verdict) == (None, "too long")


def test_a_blank_line_is_no_step(tmp_path: Path) -> None:
    two(tmp_path)
    with opened(tmp_path) as (one, other):
        model = ImplicitProcessRewardModel(one, other, beta=0.3)
        plain, spaced = scored(model, "a\nb\n", "\na\n\nb\n\n")
    assert len(plain.steps or ()) == len(spaced.steps or ()) == 2


def test_a_token_that_a_model_rules_out_is_a_verdict() -> None:
    def engine(p: float) -> EnumerableEngine:
        return EnumerableEngine(["a", "b"], lambda prompt, prefix: [p, 1 - p], name=str(p))

    with engine(0.5) as one, engine(1.0) as other:
        model = ImplicitProcessRewardModel(one, other, beta=1.0)
        possible, impossible = scored(model, "a", "ab", prompt="x")
    assert possible.raw == pytest.approx(math.log(0.5)) and possible.value == pytest.approx(1 / 3)
    assert (impossible.value, impossible.verdict) == (None, "impossible")


def test_models_that_do_not_belong_together(tmp_path: Path) -> None:
    two(tmp_path)
    make_transformers(tmp_path / "scored", "llama sequence")
    make_language_model(tmp_path / "other words", save_tokenizer(tmp_path / "other words", bos="<s>"))
    with (
        opened(tmp_path) as (one, other),
        TorchEngine(tmp_path / "scored", threads=1, max_batch=4) as head,
        TorchEngine(tmp_path / "other words", threads=1, max_batch=4) as words,
    ):
        with pytest.raises(UnsupportedError, match="different tokenizers"):
            ImplicitProcessRewardModel(one, words, beta=0.1)
        with pytest.raises(InputError, match="is its own reference"):
            ImplicitProcessRewardModel(one, one, beta=0.1)
        with pytest.raises(InputError, match=r"beta=0\.0"):
            ImplicitProcessRewardModel(one, other, beta=0.0)
        with pytest.raises(InputError, match="delimiter=''; expected the text that ends a step"):
            ImplicitProcessRewardModel(one, other, beta=1.0, delimiter="")
        with pytest.raises(InputError, match="aggregation='max'; expected one of last"):
            ImplicitProcessRewardModel(one, other, beta=1.0, aggregation="max")  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(UnsupportedError, match="has no log-probabilities"):
            scored(ImplicitProcessRewardModel(one, head, beta=1.0), TEXT)
        (score,) = scored(ImplicitProcessRewardModel(one, other, beta=1.0), TEXT)
        assert score.steps is not None, "the engine that did not fail goes on"


class TestLaws(VerifierLaws):
    prompt = Prompt("p", text="Q:a=12+7;a?\nS:\n")
    texts = ("a=12+7=19\nA:19\n", "a=12+7=18\nA:18\n", "a=12")

    @contextmanager
    def make(self) -> Iterator[Verifier]:
        with TorchEngine("tiny-2m", threads=1) as ours, TorchEngine("tiny-0.1m", threads=1) as theirs:
            yield ImplicitProcessRewardModel(ours, theirs, beta=0.5)
