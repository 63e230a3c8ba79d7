"""The papers' formulas: values by hand, and identities between methods."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from metagen.generators.torch.models import formulas

torch.manual_seed(7)
A, B, C = torch.randn(3, 5, 11).unbind(0)
UNIFORM = torch.zeros(5, 11)


def same(logits: Tensor, others: Tensor) -> bool:
    """Equal distributions."""
    return torch.allclose(torch.softmax(logits, -1), torch.softmax(others, -1), atol=1e-6)


def test_contrastive_by_hand() -> None:
    """p_exp = (.5, .3, .15, .05) and p_ama = (.5, .1, .3, .1); of α = .2 the head is the first three."""
    expert, amateur = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log(), torch.tensor([[0.5, 0.1, 0.3, 0.1]]).log()
    found = formulas.contrastive(expert, amateur, alpha=0.2)
    outside = math.log(0.05) - 1e4
    assert found[0].tolist() == pytest.approx([0.0, math.log(3), math.log(0.5), outside], abs=1e-3)
    strong = formulas.contrastive(expert, amateur, alpha=0.2, beta=1.0)
    want = [math.log(p * p / q) for p, q in ((0.5, 0.5), (0.3, 0.1), (0.15, 0.3))]
    # The best that is kept has log 0.9: what is left out lies below that, too.
    assert strong[0].tolist() == pytest.approx([*want, outside + 2 * math.log(0.9)], abs=1e-3)
    # At T = 1/2 the amateur is in proportion to the squares.
    cold = formulas.contrastive(expert, amateur, alpha=0.2, temperature=0.5)
    squares = [q * q / 0.36 for q in (0.5, 0.1, 0.3)]
    want = [math.log(p / q) for p, q in zip((0.5, 0.3, 0.15), squares, strict=True)]
    assert cold[0].tolist() == pytest.approx([*want, outside], abs=1e-3)


def test_contrastive_against_a_uniform_amateur_is_the_expert_cut_by_min_p() -> None:
    p = torch.softmax(A, -1)
    cut = A.masked_fill(p < 0.1 * p.amax(-1, keepdim=True), -torch.inf)
    assert same(formulas.contrastive(A, UNIFORM, alpha=0.1), cut)
    assert same(formulas.contrastive(A, UNIFORM, alpha=1e-30), A)
    assert same(formulas.contrastive(A, B, alpha=1e-30, beta=0.0), A)


def test_contrastive_with_a_head_of_one_is_greedy() -> None:
    found = formulas.contrastive(A, B, alpha=1.0)
    assert torch.softmax(found, -1).amax(-1).tolist() == [1.0] * 5
    assert found.argmax(-1).equal(A.argmax(-1))


def test_however_strong_the_contrast_only_the_head_can_come() -> None:
    """The amateur is surer of the whole head than the expert is."""
    expert, amateur = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log(), torch.tensor([[0.7, 0.1, 0.1, 0.1]]).log()
    for beta in (1e6, 1e12):
        found = formulas.contrastive(expert, amateur, alpha=0.9, beta=beta)
        assert formulas.ruled_out(found)[0].tolist() == [False, True, True, True]


def test_a_sure_expert_is_left_alone() -> None:
    best = torch.softmax(A, -1).amax(-1)
    threshold = float(best.sort().values[2])
    found = formulas.contrastive(A, B, alpha=0.1, sure=threshold)
    plain = formulas.contrastive(A, B, alpha=0.1)
    for i in range(len(A)):
        assert same(found[i], A[i] if best[i] >= threshold else plain[i])
    assert same(formulas.contrastive(A, B, alpha=0.1, sure=1.0), plain)


def test_experts_and_their_identities() -> None:
    assert same(formulas.experts(A, B, C, alpha=1.7), A + 1.7 * (B - C))
    assert same(formulas.experts(A, B, C, alpha=0.0), A)
    assert same(formulas.experts(A, B, B, alpha=3.0), A)
    assert same(formulas.experts(A, B, A, alpha=1.0), B)


def test_ensembles_and_their_identities() -> None:
    p, q = torch.softmax(A, -1), torch.softmax(B, -1)
    assert torch.allclose(
        torch.softmax(formulas.mixture([A, B], [0.25, 0.75]), -1), 0.25 * p + 0.75 * q, atol=1e-6
    )
    assert same(formulas.product([A, B], [0.5, 0.5]), (A + B) / 2)
    assert same(formulas.product([A, B], [1.0, 1.0]), A + B)
    for agree in (formulas.mixture, formulas.product):
        assert same(agree([A], [1.0]), A)
        assert same(agree([A, A], [0.5, 0.5]), A)
    assert not same(formulas.mixture([A, B], [0.5, 0.5]), formulas.product([A, B], [0.5, 0.5]))


def test_tilts_add_up() -> None:
    assert same(formulas.tilt(A, [B, C], [0.5, -2.0]), A + 0.5 * B - 2.0 * C)
    assert same(formulas.tilt(A, [B], [0.0]), A)
    # What is given no weight says nothing, and what is impossible is a number.
    worst = torch.full_like(A, -torch.inf)
    assert same(formulas.tilt(A, [worst], [0.0]), A)
    one = A.masked_fill(A.amax(-1, keepdim=True) <= A, -torch.inf)
    for weight in (1.0, -1.0):
        assert formulas.tilt(A.masked_fill(A < 0, -torch.inf), [one], [weight]).isnan().sum() == 0
    # A value that is the same for all tokens changes nothing.
    assert same(formulas.tilt(A, [torch.full_like(A, 3.0)], [5.0]), A)


def test_what_others_find_impossible_stays_a_number() -> None:
    """Zeros of an amateur, of experts and of values of zero weight make no NaN; the leading model's zeros stay."""
    impossible = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]])
    base = torch.tensor([[1.0, 2.0, -torch.inf, -torch.inf]])
    for found in (
        formulas.contrastive(base, impossible, alpha=0.1),
        formulas.contrastive(base, impossible, alpha=0.1, beta=0.5),
        formulas.experts(base, impossible, impossible, alpha=2.0),
        formulas.experts(base, base, impossible, alpha=1.0),
    ):
        assert not found.isnan().any()
        assert found[0, :2].isfinite().all()
        assert (found[0, 2:] == -torch.inf).all()
    mixed = formulas.mixture([base, impossible], [0.5, 0.5])
    assert mixed[0].isfinite().tolist() == [True, True, True, False]
    assert formulas.product([base, impossible], [1.0, 1.0])[0].isfinite().tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_what_the_head_leaves_out_is_never_drawn_but_stays_in_order() -> None:
    found = formulas.contrastive(A, B, alpha=0.5)
    p = torch.softmax(A, -1)
    outside = p < 0.5 * p.amax(-1, keepdim=True)
    assert (torch.softmax(found, -1)[outside] == 0).all()
    # Where a grammar allows nothing of the head, the expert decides.
    held = found.masked_fill(~outside, -torch.inf)
    assert torch.allclose(
        torch.softmax(held, -1), torch.softmax(A.masked_fill(~outside, -torch.inf), -1), atol=1e-3
    )
