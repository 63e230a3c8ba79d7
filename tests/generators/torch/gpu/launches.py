"""Compile the kernels of a step and a draw for GPUs that are not here: `python -m tests.generators.torch.gpu.launches`.

The interpreter runs what no compiler accepts. So a model takes steps whose kernels are noted in place of being started,
with the types of their arguments, and Triton compiles these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from metagen.generators.torch.gpu import shared, steps
from metagen.generators.torch.models.llama import LlamaModel

TYPES = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64",
    torch.int64: "i64", torch.int32: "i32", torch.bool: "i1", torch.uint8: "u8",
}  # fmt: skip
#: Capabilities of Ampere and Hopper, each with the number format that is compiled for it.
TARGETS = {80: torch.float32, 90: torch.bfloat16}
Launches = dict[tuple[Any, ...], tuple[Any, dict[str, Any], dict[str, Any], int]]


@contextmanager
def noted() -> Iterator[Launches]:
    """Launches of kernels, once for each set of types: the kernel, its signature, its constants and its warps."""
    made: Launches = {}

    def note(self: Any, *args: Any, grid: Any, warmup: bool, num_warps: int = 4, **more: Any) -> None:
        del grid, warmup
        given = dict(zip(self.arg_names, args, strict=False)) | more
        signature, constants = {}, {}
        for one in self.params:
            value = given.get(one.name, one.default)
            if one.is_constexpr:
                signature[one.name], constants[one.name] = "constexpr", value
            else:
                signature[one.name] = kind(value)
        key = self.fn.__name__, *signature.items(), *constants.items()
        made[key] = self, signature, constants, num_warps

    run, JITFunction.run = JITFunction.run, note
    try:
        yield made
    finally:
        JITFunction.run = run


def kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, bool):
        return "i1"
    return "fp32" if isinstance(value, float) else "i32" if -(2**31) <= value < 2**31 else "i64"


@torch.inference_mode()
def take_steps(model: LlamaModel) -> None:
    """With and without a prefix, of few and of many tokens."""
    made = steps.Steps(
        model.config, model._embedding, model._layers, model._norm, model.head, model._turns, model._kv.tails, 8,
        plain=True,
    )  # fmt: skip
    made.compile()
    shared.WORTH = 0
    row, rows = np.zeros(1, np.int64), np.arange(2)
    model.open(row, [])
    model.extend(row, np.full(70, 7), np.array([70]))
    model.open(rows, [model.save(0, 0, 64)])
    for counts in (np.array([1, 1]), np.array([300, 200])):
        tokens = np.full(counts.sum(), 7)
        at = model._kv.locate(rows, counts)
        made.hidden(tokens, at)
        assert made._shares


def compile_all(launches: Launches, capability: int) -> None:
    for kernel, signature, constants, warps in launches.values():
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places)
        triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
        print(f"{kernel.fn.__name__} for {capability}: {constants}")


def main(directory: Path) -> None:
    for capability, dtype in TARGETS.items():
        model = LlamaModel(directory, dtype=dtype, device=torch.device("cpu"), batch=8, kv_bytes=1 << 26)
        with noted() as launches:
            take_steps(model)
        compile_all(launches, capability)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
