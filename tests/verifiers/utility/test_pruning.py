"""Confidence-based pruning: the paper's rule, its limits, and what it saves."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError
from metagen.generators.base import Generator
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.testing.generators import CountingJournal
from metagen.verifiers.generative.respondent import WritingRespondent
from metagen.verifiers.utility.base import Matrix, Utility
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
from metagen.verifiers.utility.pairs import FunctionUtility
from metagen.verifiers.utility.pruning import ConfidencePruning, Pruned

WORDS = [
    "one",
    "small",
    "step",
    "for",
    "a",
    "man,",
    "one",
    "giant",
    "leap",
    "for",
    "mankind",
    "was",
    "what",
    "he",
    "said",
    "on",
    "the",
    "moon",
    "that",
    "day",
]


def pool(n: int, seed: int, changes: int = 8) -> list[str]:
    """Variations on a sentence, some nearer to it than others."""
    draw = random.Random(seed)
    texts = []
    for _ in range(n):
        words = list(WORDS)
        for _ in range(draw.randrange(changes)):
            words[draw.randrange(len(words))] = draw.choice(["sun", "and", "woman", "large", "not", "jump"])
        texts.append(" ".join(words))
    return texts


def prune(
    pruning: ConfidencePruning,
    texts: list[str],
    references: list[str] | None = None,
    weights: list[float] | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    journal: MemoryJournal | None = None,
) -> Pruned:
    def sequences(texts: list[str]) -> list[Sequence]:
        return [Sequence(Prompt("p", text="?"), text, finish="eos") for text in texts]

    async def main() -> Pruned:
        scope = Scope.root("p", seed=seed, budget=budget, journal=journal)
        others = None if references is None else sequences(references)
        return await pruning.prune(sequences(texts), others, weights, scope=scope.child("utility"))

    return asyncio.run(main())


def judge(generator: Generator) -> JudgeUtility:
    return JudgeUtility(WritingRespondent(generator, AGAINST_REFERENCE))


class Counting(Utility):
    """Counts how many pairs a utility is asked for, and which."""

    symmetric, name = False, "counting"

    def __init__(self, utility: Utility) -> None:
        self._utility, self.asked = utility, list[tuple[int, int]]()
        self.pairs: list[tuple[str, str]] = []

    @property
    def fingerprint(self) -> str:
        return self._utility.fingerprint

    async def matrix(
        self, candidates: list[Sequence], references: list[Sequence] | None = None, *, scope: Scope
    ) -> Matrix:  # type: ignore[override]  # lists suffice here
        assert references is not None
        self.asked.append((len(candidates), len(references)))
        self.pairs += [(y.text, z.text) for y in candidates for z in references]
        return await self._utility.matrix(candidates, references, scope=scope)


def test_with_full_confidence_nothing_is_dropped(ask) -> None:
    texts = pool(60, seed=1)
    full = prune(ConfidencePruning(ChrF(), alpha=1), texts)
    assert np.allclose(full.expected, ask.expected(ChrF(), texts), rtol=0, atol=1e-12)
    assert full.pairs == full.full == len(set(texts)) ** 2


@pytest.mark.parametrize("seed", range(8))
def test_near_full_confidence_the_choice_is_that_of_all_pairs(seed: int, ask) -> None:
    texts = pool(128, seed)
    exact = ask.expected(ChrF(), texts)
    found = prune(ConfidencePruning(ChrF(), alpha=0.9999), texts, seed=seed)
    assert texts[np.nanargmax(found.expected)] == texts[exact.argmax()]
    assert found.pairs < found.full / 2
    kept = ~np.isnan(found.expected)
    if len(set(np.array(texts)[kept])) > 1:
        assert np.allclose(found.expected[kept], exact[kept]), "all references were met"


def test_less_confidence_takes_fewer_calls() -> None:
    texts = pool(256, seed=3)
    costs = [prune(ConfidencePruning(ChrF(), alpha=alpha), texts).pairs for alpha in (0.8, 0.9, 0.99, 1.0)]
    assert costs == sorted(costs) and costs[2] < costs[3] / 4


def test_rounds_add_references_to_those_that_stay() -> None:
    counting = Counting(ChrF())
    texts = pool(200, seed=5)
    references = [f"{text} {i}" for i, text in enumerate(pool(50, seed=6))]
    found = prune(ConfidencePruning(counting, alpha=0.9, first=5), texts, references)
    assert [r for _, r in counting.asked] == [5, 5, 10, 20, 10][: len(counting.asked)]
    candidates = [c for c, _ in counting.asked]
    assert candidates[0] == len(set(texts)) and candidates[1:] == list(found.survivors[:-1])
    assert list(found.survivors) == sorted(found.survivors, reverse=True)
    assert found.pairs == len(counting.pairs) == len(set(counting.pairs)), "no pair is asked for twice"
    assert len(set(np.array(texts)[~np.isnan(found.expected)])) == found.survivors[-1]


def test_equal_references_are_compared_once_and_count_as_often_as_they_occur(ask) -> None:
    counting = Counting(ChrF())
    references = pool(3, seed=1) * 20
    found = prune(ConfidencePruning(counting, alpha=1), pool(10, seed=2), references)
    assert len(counting.pairs) == len(set(counting.pairs)) == 30
    assert np.allclose(found.expected, ask.expected(ChrF(), pool(10, seed=2), references))


def test_the_order_of_the_pool_plays_no_part() -> None:
    texts = pool(100, seed=7)
    weights = [round(random.Random(i).random(), 1) for i in range(100)]
    order = random.Random(0).sample(range(100), 100)
    pruning = ConfidencePruning(ChrF(), alpha=0.95)
    one = prune(pruning, texts, texts, weights)
    other = prune(pruning, [texts[i] for i in order], [texts[i] for i in order], [weights[i] for i in order])
    assert np.array_equal(one.expected[order], other.expected, equal_nan=True)
    assert (one.pairs, one.survivors) == (other.pairs, other.survivors)
    assert len({prune(pruning, texts, seed=seed).pairs for seed in range(5)}) > 1, "the run's seed does"


def test_weights_decide(ask) -> None:
    many, few = pool(64, seed=9), [" ".join(reversed(text.split())) for text in pool(32, seed=10)]
    texts, weights = many + few, [1.0] * 64 + [4.0] * 32
    exact = ask.expected(ChrF(), texts, weights=weights)
    found = prune(ConfidencePruning(ChrF(), alpha=0.999), texts, weights=weights)
    assert ask.expected(ChrF(), texts).argmax() < 64 <= exact.argmax()
    assert texts[np.nanargmax(found.expected)] == texts[exact.argmax()]


def test_a_candidate_that_always_loses_is_dropped_at_once_and_one_that_ties_stays() -> None:
    value = {"a": 1.0, "b": 1.0, "c": 0.999}
    utility = FunctionUtility(lambda y, z: value[y.text])
    found = prune(ConfidencePruning(utility, alpha=0.99), ["a", "b", "c", "a"], [str(i) for i in range(20)])
    assert found.survivors == (2, 2, 2)
    assert np.array_equal(found.expected, [1.0, 1.0, np.nan, 1.0], equal_nan=True)


def test_a_judge_is_asked_about_the_few() -> None:
    journal = CountingJournal()
    rate = FunctionGenerator(
        lambda prefix, seed, index: (
            "5" if "Answer to rate:\ngood" in prefix.prompt.messages[0].content else "2"
        ),
        name="fan",
    )
    texts = ["good", *(f"weak {i}" for i in range(31))]
    pruning = ConfidencePruning(judge(rate))
    found = prune(pruning, texts, journal=journal)
    assert (found.pairs, found.full, found.survivors) == (256, 1024, (1,)) and journal.recorded == 256
    assert found.expected[0] == 1 and np.isnan(found.expected[1:]).all()
    again = prune(pruning, texts[::-1], journal=journal)
    assert journal.recorded == 256 and again.expected[-1] == 1


def test_a_budget_that_ends_leaves_what_was_found() -> None:
    def same(prefix: Sequence, seed: int, index: int) -> str:
        reference, _, candidate = prefix.prompt.messages[0].content.rpartition("\n\nAnswer to rate:\n")
        return "5" if reference[-1] == candidate[0] else "3"

    rate = FunctionGenerator(same, name="same")
    pruning, texts = ConfidencePruning(judge(rate), first=2), ["a", "b", "c"]
    whole = prune(pruning, texts, texts * 8)
    assert whole.pairs == 9 and not np.isnan(whole.expected).any()
    short = prune(pruning, texts, texts * 8, budget=Budget(calls=6))
    assert short.pairs == 6 and sorted(short.expected) == [0.5, 0.75, 0.75], "all met the same two references"
    with pytest.raises(BudgetExhausted):
        prune(pruning, texts, budget=Budget(calls=0))


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 1.1}, {"first": 0}, {"resamples": 0}])
def test_options_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ConfidencePruning(ChrF(), **options)  # type: ignore[arg-type]  # wrong on purpose


def test_what_compares_with_a_mean_is_not_pruned() -> None:
    with pytest.raises(InputError, match="leave out aggregate or prune"):
        ConfidencePruning(ChrF(aggregate=True))
