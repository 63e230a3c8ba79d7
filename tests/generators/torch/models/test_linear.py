"""Packed matrices against plain products, in every size that they may have."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from metagen.generators.torch.models import linear
from metagen.generators.torch.models.linear import Packed, Plain, dense

HAS_IT = linear._packs(torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (64, 64), (200, 96), (960, 576), (577, 1023)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_matrix_multiplies_as_a_plain_one(
    dtype: torch.dtype, shape: tuple[int, int], biased: bool
) -> None:
    torch.manual_seed(0)
    weight = torch.randn(shape).to(dtype)
    bias = torch.randn(shape[0]).to(dtype) if biased else None
    packed = dense(weight, bias)
    for rows in (1, 2, 31, 32, 33, 300):
        x = torch.randn(rows, shape[1]).to(dtype)
        exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
        found = packed(x)
        assert found.dtype == dtype
        # Sums are float32's, and rounded once.
        summed = 4 * torch.finfo(torch.float32).eps * shape[1]
        torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=summed)


@pytest.mark.skipif(not HAS_IT, reason="this build of torch, or this CPU, has no oneDNN that packs float32")
def test_few_rows_of_a_small_matrix_are_multiplied_without_a_call_of_onednn() -> None:
    small, large = dense(torch.randn(128, 128)), dense(torch.randn(1024, 512))
    assert isinstance(small, Packed) and small.plain is not None
    assert small.few * 128 * 128 >= linear.WORTH_A_CALL > (small.few - 1) * 128 * 128
    x = torch.randn(small.few - 1, 128)
    assert torch.equal(small(x), small.plain(x))
    assert isinstance(large, Packed) and large.plain is None  # in memory once


def test_what_onednn_does_not_multiply_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(dense(torch.randn(64, 64, dtype=torch.float16)), Plain)
    assert isinstance(dense(torch.randn(64, 64, dtype=torch.float64)), Plain)
    assert isinstance(dense(torch.empty(64, 64, device="meta")), Plain)
    monkeypatch.setattr(linear.platform, "machine", lambda: "arm64")
    assert isinstance(dense(torch.randn(64, 64)), Plain)


def test_a_view_of_a_matrix_is_packed_as_it_reads() -> None:
    whole = torch.randn(40, 96)
    turned, part = whole.t(), whole[3:20, ::2]
    for weight in (turned, part):
        x = torch.randn(50, weight.shape[1])
        torch.testing.assert_close(dense(weight)(x), F.linear(x, weight), rtol=1e-5, atol=1e-5)
