"""Verification against exact distributions, by enumeration of what a draft may propose."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from metagen.generators.torch.speculation.select import balance, select, select_one
from metagen.generators.torch.speculation.verify import (
    Drafted,
    Rule,
    acceptance,
    count_accepted,
    rest,
    verify,
)

RULES: list[Rule] = ["token", "block"]


class Tree:
    """A next-token distribution behind every prefix of up to `depth` tokens, drawn at random."""

    def __init__(self, vocabulary: int, depth: int, seed: int, sharpness: float = 1.0) -> None:
        made = torch.Generator().manual_seed(seed)
        self.v = vocabulary
        self.table = {
            prefix: torch.softmax(sharpness * torch.randn(vocabulary, generator=made), -1)
            for n in range(depth + 1)
            for prefix in product(range(vocabulary), repeat=n)
        }

    def along(self, path: tuple[int, ...], steps: int) -> Tensor:
        """[steps, V]: behind the first 0, 1, … tokens of the path."""
        return torch.stack([self.table[path[:i]] for i in range(steps)])

    def chance(self, path: tuple[int, ...], start: int = 0) -> float:
        """Of the path's tokens from `start` on."""
        return float(np.prod([float(self.table[path[:i]][path[i]]) for i in range(start, len(path))]))


def every(
    target: Tree, draft: Tree, gamma: int, *, sure: bool = False
) -> tuple[Tensor, Drafted, list[float]]:
    """A row for each path of a draft (the first alone if it is sure), and how probable the paths are."""
    paths = [(0,) * gamma] if sure else list(product(range(target.v), repeat=gamma))
    p = torch.stack([target.along(path, gamma + 1) for path in paths])
    q = None if sure else torch.stack([draft.along(path, gamma) for path in paths])
    counts = torch.full((len(paths),), gamma)
    return p, Drafted(torch.tensor(paths), counts, q), [1.0] if sure else list(map(draft.chance, paths))


def stops(chances: Tensor, rule: Rule) -> Tensor:
    """[N, γ + 1]: the probability that 0, 1, … tokens are kept, the random numbers integrated out."""
    gamma = chances.shape[1]
    pieces = []
    for i in range(gamma + 1):
        passes, fails = (chances[:, :i], chances[:, i : i + 1]) if rule == "token" else (
            chances[:, max(i - 1, 0) : i], chances[:, i:]
        )  # fmt: skip
        pieces.append(passes.prod(-1) * (1 - fails).prod(-1))
    return torch.stack(pieces, 1)


def outcome(target: Tree, draft: Tree, gamma: int, rule: Rule, *, sure: bool = False) -> tuple[dict, float]:
    """The exact distribution of γ + 1 tokens, those behind the block's from the target; and E[kept]."""
    p, drafted, weights = every(target, draft, gamma, sure=sure)
    chances, reach = acceptance(p, drafted, rule)
    ends = stops(chances, rule)
    found = dict.fromkeys(product(range(target.v), repeat=gamma + 1), 0.0)
    mean = 0.0
    for i in range(gamma + 1):
        left = rest(p, drafted, torch.full((len(weights),), i), reach)
        left = left / left.sum(-1, keepdim=True)
        for row, weight in enumerate(weights):
            path = tuple(drafted.tokens[row, :i].tolist())
            mass = weight * float(ends[row, i])
            mean += mass * i
            for behind in product(range(target.v), repeat=gamma + 1 - i):
                whole = path + behind
                found[whole] += mass * float(left[row, behind[0]]) * target.chance(whole, i + 1)
    return found, mean


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("vocabulary", "gamma", "seed"), [(2, 1, 0), (2, 3, 1), (3, 2, 2), (4, 2, 3)])
@pytest.mark.parametrize("sure", [False, True])
def test_the_target_is_what_is_drawn(rule: Rule, vocabulary: int, gamma: int, seed: int, sure: bool) -> None:
    target, draft = Tree(vocabulary, gamma, seed, 1.5), Tree(vocabulary, gamma, seed + 50, 1.5)
    found, _ = outcome(target, draft, gamma, rule, sure=sure)
    for path, chance in found.items():
        assert chance == pytest.approx(target.chance(path), abs=2e-7), path


class Coin(Tree):
    """The same distribution everywhere."""

    def __init__(self, chances: list[float], depth: int) -> None:
        super().__init__(len(chances), depth, 0)
        self.table = dict.fromkeys(self.table, torch.tensor(chances))


@pytest.mark.parametrize(("rule", "mean"), [("token", 10 / 9), ("block", 11 / 9)])
def test_the_published_example(rule: Rule, mean: float) -> None:
    found, expected = outcome(Coin([1 / 3, 2 / 3], 2), Coin([2 / 3, 1 / 3], 2), 2, rule)
    assert expected == pytest.approx(mean, abs=1e-6)
    assert found[(0, 0, 0)] == pytest.approx(1 / 27, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_a_block_keeps_at_least_as_many(seed: int) -> None:
    target, draft = Tree(3, 3, seed, 2.0), Tree(3, 3, seed + 50, 2.0)
    _, token = outcome(target, draft, 3, "token")
    _, block = outcome(target, draft, 3, "block")
    assert block > token


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_that_is_the_target_is_kept(rule: Rule) -> None:
    same = Tree(3, 3, 7)
    _, mean = outcome(same, same, 3, rule)
    assert mean == pytest.approx(3, abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_greedy_targets_keep_what_they_would_have_chosen(rule: Rule) -> None:
    """p is one-hot: no random number matters, and the token behind is the target's own."""
    best = torch.tensor([[2, 0, 1, 1], [2, 0, 1, 1], [2, 0, 1, 1]])
    p = torch.nn.functional.one_hot(best, 4).float()
    tokens = torch.tensor([[2, 0, 1], [2, 3, 1], [0, 0, 1]])
    q = torch.softmax(torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(0)), -1)
    for u in (0.0, 0.5, 1 - 2**-53):
        for drafts in (q, None):
            found = verify(
                p,
                Drafted(tokens, torch.tensor([3, 3, 3]), drafts),
                torch.full((3, 3), u, dtype=torch.float64),
                rule,
            )
            assert found.counts.tolist() == [3, 1, 0]
            assert found.rest.argmax(-1).tolist() == [1, 0, 2]
            assert ((found.rest > 0).sum(-1) == 1).all()
            assert not found.near.any()


@pytest.mark.parametrize("rule", RULES)
def test_rows_with_other_counts_stand_for_themselves(rule: Rule) -> None:
    made = torch.Generator().manual_seed(3)
    n, most, v = 40, 4, 5
    p = torch.softmax(torch.randn(n, most + 1, v, generator=made), -1)
    q = torch.softmax(torch.randn(n, most, v, generator=made), -1)
    tokens = torch.randint(v, (n, most), generator=made)
    counts = torch.randint(most + 1, (n,), generator=made)
    u = torch.rand(n, most, generator=made, dtype=torch.float64)
    together = verify(p, Drafted(tokens, counts, q), u, rule)
    for row, c in enumerate(counts.tolist()):
        one = slice(row, row + 1)
        drafted = Drafted(tokens[one, :c], counts[one], q[one, :c])
        alone = verify(p[one, : c + 1], drafted, u[one, :c], rule)
        for a, b in ((together.counts, alone.counts), (together.rest, alone.rest),
                     (together.tested, alone.tested), (together.overlap, alone.overlap)):  # fmt: skip
            torch.testing.assert_close(a[one], b)


def test_decisions_near_their_thresholds_are_told() -> None:
    p, q = torch.tensor([[[0.4, 0.6], [0.5, 0.5]]]), torch.tensor([[[0.8, 0.2]]])
    for u, near in ((0.5 + 1e-6, True), (0.4, False)):
        drafted = Drafted(torch.tensor([[0]]), torch.tensor([1]), q)
        found = verify(p, drafted, torch.tensor([[u]], dtype=torch.float64), "token", near=1e-5)
        assert found.near.tolist() == [near]
        assert found.overlap.tolist() == pytest.approx([0.6])


def test_the_overlap_is_of_what_was_tested_whatever_comes_behind() -> None:
    p = torch.tensor([[[0.4, 0.6], [torch.nan, torch.nan], [0.5, 0.5]]])
    q, u = torch.tensor([[[0.8, 0.2], [0.5, 0.5]]]), torch.full((1, 2), 0.9, dtype=torch.float64)
    found = verify(p, Drafted(torch.tensor([[0, 0]]), torch.tensor([2]), q), u, "token")
    assert found.tested.tolist() == [1]
    assert found.overlap.tolist() == pytest.approx([0.6])


@pytest.mark.parametrize("rule", RULES)
def test_numbers_drawn_meet_the_chances(rule: Rule) -> None:
    """`count_accepted` against the chances integrated out; chi-square, false alarms at 1e-6."""
    n = 100_000
    chances = torch.tensor([[0.7, 0.4, 0.9]], dtype=torch.float64)
    u = torch.rand(n, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    seen = np.bincount(count_accepted(chances.expand(n, -1), torch.full((n,), 3), u, rule), minlength=4)
    assert stats.chisquare(seen, n * stops(chances, rule)[0].numpy()).pvalue > 1e-6


# -- several drafts ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_one_of_several_has_the_targets_distribution(k: int) -> None:
    """Every tuple of drafts and every pattern of passes, with their exact probabilities."""
    made = torch.Generator().manual_seed(k)
    v = 3
    p, q = (torch.softmax(1.5 * torch.randn(v, generator=made, dtype=torch.float64), -1) for _ in range(2))
    rho = float(balance(p[None], q[None], torch.tensor([float(k)], dtype=torch.float64)))
    chance = (p / (rho * q)).clamp(max=1)
    found = torch.zeros(v, dtype=torch.float64)
    lost = 0.0
    for tokens in product(range(v), repeat=k):
        for fails in product((0.0, 1 - 2**-53), repeat=k):
            weight = np.prod(
                [q[t] * (1 - chance[t] if u else chance[t]) for t, u in zip(tokens, fails, strict=True)]
            )
            if weight == 0:
                continue
            token, left, _ = select_one(
                p[None],
                q[None],
                torch.tensor([tokens]),
                torch.ones(1, k, dtype=torch.bool),
                torch.tensor([fails]),
            )
            if token[0] >= 0:
                found[token[0]] += weight
            else:
                found += weight * left[0] / left.sum()
                lost += weight
    torch.testing.assert_close(found, p, atol=1e-9, rtol=0)
    beta = float(torch.minimum(q, p / rho).sum())
    assert 1 - (1 - beta) ** k == pytest.approx(rho * beta, abs=1e-9)
    assert lost == pytest.approx((1 - beta) ** k, abs=1e-9)


def test_one_draft_is_token_verification() -> None:
    made = torch.Generator().manual_seed(1)
    n, g, v = 200, 3, 6
    p, q = (torch.softmax(torch.randn(n, g + i, v, generator=made), -1) for i in (1, 0))
    tokens = torch.multinomial(q.flatten(0, 1), 1, generator=made).view(n, g)
    u = torch.rand(n, g, generator=made, dtype=torch.float64)
    counts = torch.randint(g + 1, (n,), generator=made)
    one = select(p[:, None], Drafted(tokens[:, None], counts[:, None], q[:, None]), u[:, None])
    other = verify(p, Drafted(tokens, counts, q), u, "token")
    assert one.counts.tolist() == other.counts.tolist()
    assert one.tested.tolist() == other.tested.tolist()
    torch.testing.assert_close(one.rest, other.rest)
    torch.testing.assert_close(one.overlap, other.overlap)


@pytest.mark.parametrize("k", [2, 3])
def test_several_drafts_of_several_tokens(k: int) -> None:
    """Sequences of γ + 1 tokens against the target's exact distribution; chi-square, false alarms at 1e-6."""
    n, gamma, v = 60_000, 2, 2
    target, draft = Tree(v, gamma, 11, 1.5), Tree(v, gamma, 61, 1.5)
    made = torch.Generator().manual_seed(k)
    tables = [
        torch.stack([tree.along((*path, 0), gamma + 1) for path in product(range(v), repeat=gamma)])
        for tree in (target, draft)
    ]
    tokens = torch.zeros(n, k, gamma, dtype=torch.long)
    for i in range(gamma):
        code = tokens @ torch.tensor([2, 1])
        tokens[:, :, i] = torch.multinomial(tables[1][code.flatten(), i], 1, generator=made).view(n, k)
    code = tokens @ torch.tensor([2, 1])
    drafted = Drafted(tokens, torch.full((n, k), gamma), tables[1][code][:, :, :gamma])
    u = torch.rand(n, k, gamma, generator=made, dtype=torch.float64)
    chosen = select(tables[0][code], drafted, u)
    behind = torch.multinomial(chosen.rest, 1, generator=made)[:, 0]
    seen: dict[tuple[int, ...], int] = dict.fromkeys(product(range(v), repeat=gamma + 1), 0)
    coin = torch.rand(n, gamma, generator=made).tolist()
    for row, (count, which, token) in enumerate(
        zip(chosen.counts.tolist(), chosen.draft.tolist(), behind.tolist(), strict=True)
    ):
        path = (*tokens[row, which, :count].tolist(), token)
        while len(path) <= gamma:
            path = (*path, int(coin[row][len(path) - 1] >= float(target.table[path][0])))
        seen[path] += 1
    expected = [n * target.chance(path) for path in seen]
    assert stats.chisquare(list(seen.values()), expected, sum_check=False).pvalue > 1e-6
    assert chosen.counts.double().mean() > verify(
        tables[0][code[:, 0]], Drafted(tokens[:, 0], torch.full((n,), gamma), drafted.q[:, 0]), u[:, 0], "token"
    ).counts.double().mean()  # fmt: skip
