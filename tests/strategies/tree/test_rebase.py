"""REBASE: the allocation to the last child, trees worked out by hand, and the variant that waits for no level."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.generators.engine import Sample
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Sequence, Tokens
from metagen.strategies.parallel import BestOfN, WeightedVote
from metagen.strategies.tree.rebase import AsyncRebase, Rebase, Rounding, allocate
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.tree.checks import has_distribution
from tests.strategies.tree.toys import ANSWER, PROMPT, Shape, chance, insight, table, values

HALF = FunctionVerifier(lambda s: 0.5)
SCORES = st.lists(st.none() | st.floats(0.0, 1.0), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("rewards", "width", "ceil", "remainder"),
    [
        # Weights 1, e^-2, e^-4: ⌈8 · 0.867⌉ = 7, then ⌈1 · 0.881⌉ = 1, and nothing is left.
        ([0.9, 0.5, 0.1], 8, [7, 1, 0], [7, 1, 0]),
        # Equal thirds of 16: ⌈16/3⌉ = 6, ⌈10/2⌉ = 5, 5. The fractions are equal, so the first has the rest.
        ([0.5, 0.5, 0.5], 16, [6, 5, 5], [6, 5, 5]),
        # Weights 1, e^-1, e^-1, e^-1, quotas 2.851 and 1.050 of 6: ⌈2.85⌉ = 3, then ⌈3/3⌉, ⌈2/2⌉, 1.
        ([0.8, 0.6, 0.6, 0.6], 6, [3, 1, 1, 1], [3, 1, 1, 1]),
        # Weights 1, e^-0.5, e^-3, quotas 4.22, 2.56, 0.21 of 7: ⌈4.22⌉ = 5, ⌈2 · 0.92⌉ = 2; or 4 and 3 by fractions.
        ([0.9, 0.8, 0.3], 7, [5, 2, 0], [4, 3, 0]),
        ([0.1, 0.9, 0.5], 8, [0, 7, 1], [0, 7, 1]),
        ([0.2], 5, [5], [5]),
        ([0.2, 0.9], 0, [0, 0], [0, 0]),
        ([None, 0.0], 3, [2, 1], [2, 1]),
        ([], 4, [], []),
    ],
)
def test_shares_by_hand(
    rewards: list[float | None], width: int, ceil: list[int], remainder: list[int]
) -> None:
    assert allocate(rewards, width) == ceil
    assert allocate(rewards, width, rounding="largest-remainder") == remainder


def test_duplicates_weigh_as_often_as_they_were_drawn() -> None:
    # 3 against 1 at equal scores: ⌈8 · 3/4⌉ = 6, 2.
    assert allocate([0.5, 0.5], 8, copies=[3, 1]) == [6, 2]
    assert allocate([0.5, 0.5], 8, copies=[1, 3]) == [2, 6]


@pytest.mark.parametrize("rounding", ["ceil", "largest-remainder"])
@given(rewards=SCORES, width=st.integers(0, 300), temperature=st.floats(1e-3, 100.0), data=st.data())
@settings(deadline=None, max_examples=60)
def test_shares_add_up_exactly_and_follow_the_scores(
    rounding: Rounding, rewards: list[float | None], width: int, temperature: float, data: st.DataObject
) -> None:
    copies = data.draw(st.lists(st.integers(1, 5), min_size=len(rewards), max_size=len(rewards)))
    shares = allocate(rewards, width, temperature=temperature, copies=copies, rounding=rounding)
    assert sum(shares) == width and min(shares) >= 0
    top = max(r or 0.0 for r in rewards)
    weights = [c * math.exp(((r or 0.0) - top) / temperature) for r, c in zip(rewards, copies, strict=True)]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    for better, worse in pairwise(order):
        assert shares[better] >= shares[worse]
    if rounding == "largest-remainder":
        total = math.fsum(weights)
        assert all(abs(n - width * w / total) < 1 + 1e-6 for n, w in zip(shares, weights, strict=True))


def test_float32_shares_do_not_always_add_up() -> None:
    """The published arithmetic, which is why ours is that of integers."""

    def published(rewards: list[float], width: int) -> list[int]:
        weights = np.exp(np.float32(rewards) / np.float32(0.2))
        left, counts = weights.sum(dtype=np.float32), []
        for w in weights:
            counts.append(int(np.ceil(np.float32(width) * w / left)))
            width -= counts[-1]
            left -= w
        return counts

    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        rewards = sorted(rng.random(3).tolist(), reverse=True)
        wrong += sum(published(rewards, 64)) != 64
        assert sum(allocate(rewards, 64)) == 64
    assert wrong > 30


#: Two levels and a half: "a" is right and leads to answers 1 and 2, "b" is weak, "c" hopeless.
STEPS = {
    "": ["a;", "b;", "c;", "a;"],
    "a;": ["d;", "=1$", "e;", "=1$"],
    "b;": ["=3$"],
    "a;d;": ["=2$", "=4$"],
    "a;e;": ["=2$"],
}
VALUES = {
    "a;": 0.9, "b;": 0.7, "c;": 0.1, "a;d;": 0.8, "a;e;": 0.6, "a;=1": 0.5, "b;=3": 0.4, "a;d;=2": 0.9,
    "a;d;=4": 0.3, "a;e;=2": 0.7,
}  # fmt: skip


def test_a_tree_by_hand() -> None:
    """W = 8.

    Level 1: draws a b c a a b c a, so a (0.9) four times, b (0.7) and c (0.1) twice. Weights 4, 2e^-1 = 0.736,
    2e^-4 = 0.037: a ⌈8 · 0.838⌉ = 7, b 1, c none. Level 2: a draws d =1 e =1 d =1 e, b draws =3: four leaves keep four
    of the eight. d (0.8) twice, e (0.6) twice, weights 2 and 2e^-1: d ⌈4 · 0.731⌉ = 3, e 1. Level 3: d draws =2 =4 =2,
    e draws =2.
    """
    seen: list[str] = []
    strategy = Rebase(table(STEPS), 8, verifier=values(VALUES, seen=seen), answer=ANSWER)
    tree = strategy.tree(PROMPT)
    assert [(n.name, n.sequence.text, n.multiplicity, n.state) for n in tree] == [
        ("0", "", 1, "expanded"),
        ("0.0", "a;", 4, "expanded"),
        ("0.0.0", "a;d;", 2, "expanded"),
        ("0.0.0.0", "a;d;=2", 2, "finished"),
        ("0.0.0.1", "a;d;=4", 1, "finished"),
        ("0.0.1", "a;=1", 3, "finished"),
        ("0.0.2", "a;e;", 2, "expanded"),
        ("0.0.2.0", "a;e;=2", 1, "finished"),
        ("0.1", "b;", 2, "expanded"),
        ("0.1.0", "b;=3", 1, "finished"),
        ("0.2", "c;", 2, "pruned"),
    ]
    assert sorted(seen) == sorted(VALUES), "each distinct node is scored once"
    # Votes: 2 has 0.9 + 0.9 + 0.7, 1 has 3 · 0.5, 3 has 0.4, 4 has 0.3.
    result = strategy.solve(PROMPT)
    assert result.answer is not None and (result.answer.key, result.text) == ("2", "a;d;=2")
    assert len(result.candidates) == 8 and result.usage.calls == 20 + len(VALUES)
    assert [c.value for c in result.candidates if c.key == "1"] == [0.5] * 3


def test_a_finished_node_keeps_its_share_for_good() -> None:
    """Half of the width ends at once; what goes on never gets it back."""
    steps = {"": ["=1$", "x;"], "x;": ["=2$", "y;"], "x;y;": ["=3$"]}
    tree = Rebase(table(steps), 4, verifier=FunctionVerifier(lambda s: 0.5)).tree(PROMPT)
    assert {n.sequence.text: n.multiplicity for n in tree.finished_leaves()} == {
        "=1": 2,
        "x;=2": 1,
        "x;y;=3": 1,
    }


def test_width_one_is_one_sample_step_by_step() -> None:
    verifier = FunctionVerifier(insight)
    for seed in range(5):
        tree = Rebase(chance(), 1, verifier=verifier).tree(PROMPT, seed=seed)
        assert [n.multiplicity for n in tree] == [1] * len(tree)
        assert [n.name for n in tree] == [".".join(["0"] * (i + 1)) for i in range(len(tree))]


def test_a_cold_balance_is_greedy_and_a_hot_one_uniform() -> None:
    rewards: list[float | None] = [0.2, 0.9, 0.91, 0.5]
    assert allocate(rewards, 8, temperature=1e-4) == [0, 0, 8, 0]
    assert allocate(rewards, 8, temperature=1e6, rounding="largest-remainder") == [2, 2, 2, 2]


@pytest.mark.parametrize("rule", [Rebase, AsyncRebase])
def test_a_constant_verifier_makes_it_independent_samples(rule: type[Rebase]) -> None:
    """Every draw goes on once: W samples, step by step, whose leaves have the generator's own distribution."""
    table = {(): [0.3, 0.5, 0.2], ("a",): [0.2, 0.2, 0.6], ("b",): [0.0, 0.5, 0.5]}
    engine = EnumerableEngine(("a", "b", "$"), lambda p, done: table.get(done, [0.1, 0.2, 0.7]), name="small")
    width, problems, seen = 10, 60, Counter[str]()
    with engine:
        strategy = rule(engine.generator(max_tokens=4), width, verifier=HALF, until=Tokens(1))
        for seed in range(problems):
            tree = strategy.tree(PROMPT, seed=seed)
            assert all(len(n.draws) == n.multiplicity for n in tree if n.parent and not n.finished)
            for leaf in tree.finished_leaves():
                seen[leaf.sequence.text] += leaf.multiplicity
        exact: Counter[str] = Counter()
        for tokens, p in engine.sequences(PROMPT, max_tokens=4).items():
            exact["".join(tokens).removesuffix("$")] += p  # type: ignore[assignment]  # probabilities
    assert sum(seen.values()) == width * problems
    has_distribution(seen, exact)


def test_one_step_to_the_end_is_parallel_sampling() -> None:
    """At depth one a step is the whole: the candidates of best-of-n and of the weighted vote, and their choice."""
    texts = ["x=1", "y=2", "z=2", "x=1", "w=3"]
    generator = table({"": [f"{text}$" for text in texts]})
    verifier = values({"x=1": 0.6, "y=2": 0.5, "z=2": 0.4, "w=3": 0.7})
    for n in range(1, 6):
        one = Rebase(generator, n, verifier=verifier, max_depth=1)
        assert one.solve(PROMPT).text == BestOfN(generator, n, verifier=verifier).solve(PROMPT).text
        vote = Rebase(generator, n, verifier=verifier, answer=ANSWER, max_depth=1).solve(PROMPT)
        parallel = WeightedVote(generator, n, verifier=verifier, answer=ANSWER).solve(PROMPT)
        assert vote.answer == parallel.answer and vote.usage.generated == parallel.usage.generated


# -- without levels --------------------------------------------------------------------------------------


def test_a_level_that_arrives_at_once_is_shared_as_rebase_shares_it() -> None:
    """One parent: all of its children are scored together. So the first two levels are the same."""
    verifier = FunctionVerifier(insight, name="insight")
    for seed in range(10):
        exact = Rebase(chance(), 8, verifier=verifier, max_depth=2).tree(PROMPT, seed=seed)
        loose = AsyncRebase(chance(), 8, verifier=verifier, max_depth=2).tree(PROMPT, seed=seed)
        assert Shape.of(exact) == Shape.of(loose)


def test_free_children_go_to_those_that_have_less_than_their_share() -> None:
    """W = 4 from two equal parents, a and b, so that two draws each arrive one group after the other.

    Group 1: c, c at 0.1 alone: both children go to c. Group 2: e (0.9) twice. Now c has a share of ⌈.⌉ = 0 of 4 and e
    of 4, but two only are left: e has them.
    """
    steps = {
        "": ["a;", "b;"],
        "a;": ["c;"],
        "b;": ["e;"],
        "a;c;": ["=1$"],
        "b;e;": ["=2$"],
    }
    given = {"a;": 0.5, "b;": 0.5, "a;c;": 0.1, "b;e;": 0.9, "a;c;=1": 0.2, "b;e;=2": 0.8}
    counted = {
        rule.__name__: {
            n.sequence.text: n.multiplicity
            for n in rule(table(steps), 4, verifier=values(given)).tree(PROMPT)
        }
        for rule in (Rebase, AsyncRebase)
    }
    assert counted["AsyncRebase"]["a;c;=1"] == 2 and counted["AsyncRebase"]["b;e;=2"] == 2
    assert counted["Rebase"].get("a;c;=1", 0) == 0 and counted["Rebase"]["b;e;=2"] == 4


def test_it_does_not_wait_for_a_slow_sibling() -> None:
    """One node of the first level takes long; the descendants of the other get to their end meanwhile."""
    order: list[str] = []
    steps = {"": ["quick;", "slow;"], "quick;": ["on;"], "quick;on;": ["=1$"], "slow;": ["=2$"]}

    def fast(prefix: Sequence, seed: int, index: int) -> Sample:
        row = steps[prefix.text]
        written = row[index % len(row)]
        text = written.removesuffix("$")
        order.append(prefix.text + text)
        return Sample(text, None, 1, finish="eos" if text != written else None)

    async def write(prefix: Sequence, seed: int, index: int) -> Sample:
        if prefix.text == "slow;":
            await asyncio.sleep(0.1)
        return fast(prefix, seed, index)

    generator = FunctionGenerator(write, name="by speed")
    verifier = FunctionVerifier(lambda s: 0.5)
    for rule, last in ((Rebase, "quick;on;=1"), (AsyncRebase, "slow;=2")):
        order.clear()
        tree = rule(generator, 2, verifier=verifier).tree(PROMPT)
        assert {n.sequence.text for n in tree.finished_leaves()} == {"quick;on;=1", "slow;=2"}
        assert order[-1] == last


def test_the_whole_width_is_given_whatever_arrives_when() -> None:
    verifier = FunctionVerifier(insight)
    for seed in range(20):
        tree = AsyncRebase(chance(), 7, verifier=verifier).tree(PROMPT, seed=seed)
        assert sum(leaf.multiplicity for leaf in tree.finished_leaves()) == 7
        for depth in range(1, max(n.depth for n in tree)):
            unfinished = sum(n.multiplicity for n in tree if n.depth == depth and not n.finished)
            assert unfinished == sum(len(n.draws) for n in tree if n.depth == depth)
