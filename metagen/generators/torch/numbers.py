"""The number format of a model whose user names none.

It decides what is sampled and is part of a model's fingerprint, so it follows from the machine and the model alone, and
never from a stopwatch.
"""

from __future__ import annotations

import torch

from metagen.cost import ModelShape

#: Weights that a token is multiplied with, from where on products take most of a step's time. Below, bfloat16 gains
#: nothing, and threads that share products wait for each other longer than they work: on two cores two threads make 2M
#: half as fast with up to 32 rows, and 0.8 to 1.1 times with more; 8M, 0.6 to 0.95 times; 20M, 0.8 to 1.25 times.
LARGE = 16_000_000


def is_large(shape: ModelShape | None) -> bool:
    """Whether a token is multiplied with at least `LARGE` weights, those of the LM head among them."""
    return shape is not None and shape.parameters + shape.vocab * shape.width >= LARGE


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for products in bfloat16 (AVX512-BF16 or AMX), several times as fast."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, bool)()) for name in names)


def default_dtype(shape: ModelShape | None, device: torch.device, quantization: str | None) -> torch.dtype:
    """bfloat16 on a GPU, for quantised weights, and for large models on CPUs that multiply it; else float32."""
    if device.type != "cpu" or quantization or (is_large(shape) and multiplies_bfloat16()):
        return torch.bfloat16
    return torch.float32
