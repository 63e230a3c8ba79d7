"""Draws against exact distributions, and masks against those of transformers."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from metagen.generators.engine import SamplingParams
from metagen.generators.randomness import seed_array, uniform
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import BLOCK, FEW, LARGE, adapt, draw, pick


def params(*rows: tuple[float, int, float], top_logprobs: Sequence[int] | None = None) -> RowParams:
    asked = top_logprobs or [0] * len(rows)
    return RowParams.of(
        SamplingParams(temperature=t, top_k=k, top_p=p, top_logprobs=c)
        for (t, k, p), c in zip(rows, asked, strict=True)
    )


ROWS = [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.9), (0.5, 50, 0.3), (2.0, 1, 0.99), (1.0, 1000, 0.999)]


def test_masks_are_those_of_transformers_row_by_row() -> None:
    logits = torch.randn(len(ROWS), 97, generator=torch.Generator().manual_seed(1)) * 3
    together = adapt(logits, params(*ROWS))
    for row, (temperature, k, p) in zip(range(len(ROWS)), ROWS, strict=True):
        expected = TemperatureLogitsWarper(temperature)(None, logits[row : row + 1])
        if k:
            expected = TopKLogitsWarper(k)(None, expected)
        if p < 1:
            expected = TopPLogitsWarper(p)(None, expected)
        assert torch.equal(together[row].isneginf(), expected[0].isneginf()), ROWS[row]
        torch.testing.assert_close(together[row], expected[0])


def test_ties_follow_the_stated_rules() -> None:
    equal = torch.zeros(1, 4)
    assert adapt(equal, params((1.0, 2, 1.0))).isneginf().sum() == 0, "top_k keeps what ties with the k-th"
    kept = ~adapt(equal, params((1.0, 0, 0.5))).isneginf()[0]
    assert kept.tolist() == [True, True, False, False], "top_p drops the higher ids first"
    greedy = draw(equal, np.array([0.99]), params((0.0, 0, 1.0)))
    assert greedy.tokens.tolist() == [0]
    assert greedy.near.all()


@pytest.mark.parametrize("row", ROWS[:4])
def test_draws_have_the_adapted_distribution(row: tuple[float, int, float]) -> None:
    """Chi-square at a false-alarm rate of 1e-6; the seeds are fixed, so a pass is a pass for good."""
    n = 20_000
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(2)) * 2
    u = uniform(seed_array(range(n)), 3)
    temperature, k, top_p = row
    same = SamplingParams(temperature=temperature, top_k=k, top_p=top_p)
    tokens = draw(logits.expand(n, -1).contiguous(), u, RowParams.of([same] * n)).tokens
    p = torch.softmax(adapt(logits, params(row))[0].double(), -1).numpy()
    seen = np.bincount(tokens, minlength=12)
    assert (seen[p == 0] == 0).all()
    assert stats.chisquare(seen[p > 0], n * p[p > 0] / p.sum()).pvalue > 1e-6 if (p > 0).sum() > 1 else True


@pytest.mark.parametrize("temperature", [1e39, 1e46, 1e308])
def test_however_hot_a_row_is_what_can_come_is_equally_likely(temperature: float) -> None:
    logits = torch.tensor([[1.0, 2.0, -torch.inf, 3.0]])
    for cutoff in (0.0, 0.1):
        made = RowParams.of([SamplingParams(temperature=temperature, epsilon_cutoff=cutoff)])
        drawn = [draw(logits, np.array([u]), made) for u in (0.3, 0.6, 0.7)]
        assert [(int(one.tokens[0]), bool(one.bad[0])) for one in drawn] == [
            (0, False),
            (1, False),
            (3, False),
        ]
        # Compiled steps on a GPU invert it in float32, whose least number with all its digits is about 1e-38.
        assert np.float32(1 / made.own("temperature")[0]) > np.finfo(np.float32).tiny


def test_the_raw_model_is_what_logprobs_are_of() -> None:
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(3))
    drawn = draw(logits, np.array([0.3, 0.3]), params((0.0, 0, 1.0), (0.2, 2, 0.5)))
    raw = torch.log_softmax(logits, -1).gather(1, torch.from_numpy(drawn.tokens)[:, None])[:, 0]
    assert drawn.logprobs.tolist() == pytest.approx(raw.double().tolist(), abs=1e-6)


def test_confidences_are_of_the_raw_model_with_k_by_row() -> None:
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(4)) * 3
    asked = [0, 2, 9, 3, 0, 5]
    rows = [(1.0, 0, 1.0), (0.5, 2, 1.0), (0.0, 0, 1.0), (2.0, 0, 0.4), (0.7, 3, 0.9), (1.0, 0, 1.0)]
    u = np.linspace(0.05, 0.95, 6)
    drawn, without = draw(logits, u, params(*rows, top_logprobs=asked)), draw(logits, u, params(*rows))
    assert without.confidences is None and drawn.confidences is not None
    assert drawn.tokens.tolist() == without.tokens.tolist()
    assert drawn.logprobs.tolist() == pytest.approx(without.logprobs.tolist(), abs=1e-6)
    for row, k in enumerate(asked):
        best = torch.log_softmax(logits[row].double(), -1).sort(descending=True).values[:k]
        want = float(-best.mean()) if k else 0.0
        assert drawn.confidences[row] == pytest.approx(want, abs=1e-5)


def test_what_cannot_come_counts_a_finite_confidence() -> None:
    logits = torch.tensor([[0.0, -torch.inf, -torch.inf], [0.0, 0.0, -500.0]])
    both = params((1.0, 0, 1.0), (1.0, 0, 1.0), top_logprobs=[2, 3])
    found = draw(logits, np.array([0.5, 0.5]), both).confidences
    assert found == pytest.approx([50.0, (2 * np.log(2) + 100) / 3])


def test_edges_of_the_unit_interval() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]]).expand(4, -1).contiguous()
    u = np.array([0.0, 0.4999999, 0.5, np.nextafter(1.0, 0.0)])
    drawn = draw(logits, u, params(*[(1.0, 0, 1.0)] * 4))
    assert drawn.tokens.tolist() == [1, 1, 2, 2], "a token of probability 0 is never drawn"
    assert drawn.near.tolist() == [False, True, True, False]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", [(1.0, 0, 1.0), (0.0, 0, 1.0), (0.7, 3, 0.9)])
def test_what_is_no_distribution_is_told_by_row(bad: float, row: tuple[float, int, float]) -> None:
    logits = torch.randn(3, 6)
    logits[1, 2] = bad
    assert draw(logits, np.full(3, 0.5), params(*[row] * 3)).bad.tolist() == [False, True, False]


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 49_152])
@pytest.mark.parametrize("cut", [0.0, 0.2])
def test_few_rows_are_drawn_from_as_many_are(size: int, cut: float) -> None:
    """Equal tokens, sums and warnings of a near edge, not only nearly equal ones."""
    n = 100
    weights = torch.softmax(torch.randn(n, size, generator=torch.Generator().manual_seed(size)) * 4, -1)
    weights[weights < weights.amax(-1, keepdim=True) * cut] = 0
    u = np.random.default_rng(size).random(n)
    u[:2], u[2:4] = 0.0, np.nextafter(1, 0)
    together = pick(weights, u)
    for rows in (1, FEW):
        parts = [pick(weights[i : i + rows], u[i : i + rows]) for i in range(0, n, rows)]
        for whole, pieces in zip(together, zip(*parts, strict=True), strict=True):
            assert torch.equal(whole, torch.cat(pieces))


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 49_152, 50_257])
def test_a_large_vocabulary_is_drawn_from_as_by_one_sum(size: int) -> None:
    """Tokens without weight are never drawn, whole blocks of them included."""
    rows, chance = 24, torch.Generator().manual_seed(size)
    weights = torch.softmax(torch.randn(rows, size, generator=chance) * 4, -1)
    weights[torch.rand(rows, size, generator=chance) < 0.5] = 0
    weights[: rows // 2, 3 * BLOCK : size - 5 * BLOCK] = 0
    u = uniform(seed_array(range(rows)), 7)
    u[:2] = 0.0, np.nextafter(1, 0)
    tokens, near, total = pick(weights, u)
    cdf = weights.double().numpy().cumsum(-1)
    np.testing.assert_allclose(total[:, 0], cdf[:, -1], rtol=1e-6)
    # The sum of a block is rounded: how far an edge may move.
    slack = 1e-6
    for row, token in enumerate(tokens[:, 0].tolist()):
        assert weights[row, token] > 0
        goal = u[row] * cdf[row, -1]
        assert cdf[row, token] - weights[row, token].item() - slack <= goal <= cdf[row, token] + slack
        by_one_sum = int(np.searchsorted(cdf[row], goal, side="right"))
        assert by_one_sum == token or near[row, 0]


def test_the_last_block_ends_with_a_token_that_has_weight() -> None:
    weights = torch.zeros(1, LARGE + 10)
    weights[0, [5, LARGE + 3]] = torch.tensor([0.1, 0.7])
    for u, token in ((0.0, 5), (0.1, 5), (0.13, LARGE + 3), (np.nextafter(1, 0), LARGE + 3)):
        assert pick(weights, np.array([u]))[0].item() == token


def test_edges_between_blocks_are_near() -> None:
    weights = torch.zeros(1, LARGE)
    weights[0, [BLOCK - 1, BLOCK]] = 0.5
    near = [pick(weights, np.array([u]))[1].item() for u in (0.25, 0.5 - 1e-7, 0.5 + 1e-7, 0.75)]
    assert near == [False, True, True, False]


@pytest.mark.parametrize("asked", [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_logprobs": 3}])
def test_rows_are_drawn_by_blocks_as_together(
    asked: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAGEN_COMPILED", "off")
    torch.manual_seed(1)
    logits, u = torch.randn(11, 50) * 2, np.random.default_rng(2).random(11)
    logits[4, 7] = torch.nan
    rows = [SamplingParams(max_tokens=5, **(asked if i % 4 else {"temperature": 0.0})) for i in range(11)]  # type: ignore[arg-type]
    params = RowParams.of(rows)
    whole = draw(logits, u, params)
    monkeypatch.setattr("metagen.generators.torch.sampling.CACHED", 150)  # three rows
    blocks = draw(logits, u, params)
    for name in ("tokens", "bad", "near", "none"):
        assert (getattr(blocks, name) == getattr(whole, name)).all()
    np.testing.assert_array_equal(blocks.logprobs, whole.logprobs)
    if "top_logprobs" in asked:
        np.testing.assert_array_equal(blocks.confidences, whole.confidences)
    else:
        assert blocks.confidences is whole.confidences is None
