"""Weight-only quantisation of the matrices of linear maps.

int8 (symmetric, a scale for each row) and int4 (a scale and a zero for each group of a row) are torchao's; NF4 is
bitsandbytes'. What is multiplied stays in the model's dtype. Embedding, head, norms and biases stay as they are.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metagen.cost import ModelShape
from metagen.errors import InputError, UnsupportedError, install
from metagen.generators.models.quantization import BLOCK, GROUP, check_quantization
from metagen.generators.torch.models.linear import Linear, Plain, dense

#: Rows of input up to which torch's int8 kernel beats a product with the matrix unpacked, on a CPU in bfloat16.
FEW = 8
#: torch's int4 kernel for CPUs takes so many rows of a matrix at a time.
TILE = 16


@dataclass(frozen=True, slots=True)
class Int8:
    """A matrix in int8. Few rows of input are multiplied by torch's own kernel, which reads a byte a weight."""

    weight: Any
    scale: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) > FEW:
            return F.linear(x, self.weight, self.bias)
        y = torch._weight_int8pack_mm(x.contiguous(), self.weight.qdata, self.scale)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class NF4:
    """A matrix in the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023)."""

    packed: Tensor
    state: Any
    bias: Tensor | None
    library: Any

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = self.library.matmul_4bit(x, self.packed.t(), quant_state=self.state, bias=self.bias)
        return product


def check_place(quantization: str | None, dtype: torch.dtype, device: torch.device) -> None:
    """InputError or UnsupportedError for a kind that is none, or that does not run there."""
    check_quantization(quantization)
    if quantization == "nf4" and device.type != "cuda":
        raise UnsupportedError(
            f"quantization='nf4' on {str(device)!r}: bitsandbytes is used on CUDA only; give 'int4' or 'int8', or "
            "device='cuda'"
        )
    if quantization == "int4" and dtype != torch.bfloat16:
        raise UnsupportedError(
            f"quantization='int4' with dtype={str(dtype)[6:]!r}: its kernels are made for bfloat16, and in other types "
            "missing or many times slower than dense weights; leave dtype out, or give 'int8'"
        )


def check_compressible(name: str, shape: ModelShape | None, quantization: str | None) -> None:
    """InputError for a model without matrices."""
    if quantization is not None and shape is None:
        raise InputError(
            f"quantization={quantization!r}: {name!r} has no weight matrices; leave quantization out"
        )


def linear(name: str, weight: Tensor, bias: Tensor | None, quantization: str | None) -> Linear:
    """The map of a matrix [out, in]. UnsupportedError, which names the matrix, for int4 of sizes that do not fit."""
    if quantization is None:
        return dense(weight, bias)
    if quantization == "nf4":
        library = _library("bitsandbytes", "pip install 'bitsandbytes>=0.46'")
        packed, state = library.functional.quantize_4bit(weight, blocksize=BLOCK, quant_type="nf4")
        return NF4(packed, state, bias, library)
    on_cpu = weight.device.type == "cpu"
    if quantization == "int4":
        _check_sizes(name, weight, TILE if on_cpu else 1)
        return Plain(_by_torchao(weight, _int4(on_cpu)), bias)
    made = _by_torchao(
        weight, _library("torchao.quantization").Int8WeightOnlyConfig(set_inductor_config=False)
    )
    if on_cpu and weight.dtype == torch.bfloat16:
        return Int8(made, made.scale.flatten().to(weight.dtype), bias)
    return Plain(made, bias)


def _int4(on_cpu: bool) -> Any:
    """How torchao is to keep int4: each device has a layout of its own."""
    if on_cpu:
        library = _library("torchao.prototype.quantization.int4")
        return library.PrototypeInt4WeightOnlyConfig(group_size=GROUP, set_inductor_config=False)
    library = _library("torchao.quantization")
    return library.Int4WeightOnlyConfig(
        group_size=GROUP, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
    )


def _by_torchao(weight: Tensor, config: Any) -> Any:
    """The matrix as one of torchao's tensors."""
    module = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    module.weight = nn.Parameter(weight, requires_grad=False)
    _library("torchao.quantization").quantize_(module, config)
    return module.weight


def _check_sizes(name: str, weight: Tensor, tile: int) -> None:
    rows, columns = weight.shape
    if columns % GROUP or rows % tile:
        raise UnsupportedError(
            f"quantization='int4': {name} has {rows} rows of {columns} weights; int4 needs multiples of {tile} and "
            f"{GROUP}; give quantization='int8'"
        )


def _library(module: str, wanted: str = install("compression")) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"quantised weights need {module}, which cannot be imported ({error}); {wanted}"
        ) from error
