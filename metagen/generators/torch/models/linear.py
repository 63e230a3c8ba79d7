"""Linear maps of a model, and dense ones packed for oneDNN, which multiplies most of what a CPU multiplies.

torch's plain product of float32 matrices is MKL's, which leaves half of the speed of CPUs that are not Intel's unused,
and its product in bfloat16 reorders the matrix each time. A matrix that oneDNN has reordered once is multiplied 1.1 to
1.8 times as fast in bfloat16, and 2.4 times in float32, on an AMD EPYC with AVX512 (SmolLM2-135M, 1 to 256 rows).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

#: Multiplications from which on oneDNN beats a plain product: a call costs it 10 µs, of which plain ones take 2.
WORTH_A_CALL = 750_000
#: Weights of a matrix that is kept in both forms, so that few rows are multiplied by the plain one.
SMALL = 1 << 18
#: Rows of input that a matrix is packed for; it multiplies any number, and 1 to 700 as fast as if packed for them.
ROWS = 32


class Linear(Protocol):
    """A linear map."""

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out] of x [n, in], in the dtype of x."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """weight: a matrix [out, in], dense or one of torchao's, which multiply as dense ones do."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix as oneDNN has reordered it, for `few` rows or more. plain: the same for fewer, if it is kept."""

    weight: Tensor
    bias: Tensor | None
    multiply: Any
    plain: Plain | None
    few: int

    def __call__(self, x: Tensor) -> Tensor:
        if self.plain is not None and len(x) < self.few:
            return self.plain(x)
        product: Tensor = self.multiply(x, self.weight, self.bias, "none", [], "")
        return product


def dense(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The map of a matrix [out, in], packed where oneDNN multiplies its dtype on this machine."""
    plain = Plain(weight, bias)
    if weight.device.type != "cpu" or not _packs(weight.dtype):
        return plain
    small = weight.numel() <= SMALL
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    few = -(-WORTH_A_CALL // weight.numel())
    return Packed(packed, bias, torch.ops.mkldnn._linear_pointwise, plain if small else None, few)


def _packs(dtype: torch.dtype) -> bool:
    """Whether this build of torch has oneDNN's operators for a dtype, on a CPU with the instructions."""
    if platform.machine() not in ("x86_64", "AMD64") or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
