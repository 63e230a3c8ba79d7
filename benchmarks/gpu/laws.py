"""The laws of engines, on the device and in the number format that METAGEN_GPU_LAWS names, as `cuda:bfloat16`."""

from __future__ import annotations

import os

from metagen.generators.engine import Engine
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.gpu import steps
from metagen.testing import EngineLaws

DEVICE, _, DTYPE = os.environ.get("METAGEN_GPU_LAWS", "cpu:float32").partition(":")
#: Of samples, the share that rounding may change; nats between log-probabilities that are computed on two ways. In
#: bfloat16 a logit of 10 is rounded to 1/32, and products of other shapes round otherwise.
ALLOWED = {"float32": (0.02, 1e-3), "bfloat16": (0.34, 0.3)}


class TestLaws(EngineLaws):
    """Of two prompts the model is sure, of two it is not."""

    prompts = (
        "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips, tolerance = ALLOWED[DTYPE]

    def make(self) -> Engine:
        engine = TorchEngine("tiny-0.1m", device=DEVICE, dtype=DTYPE, threads=1, kv_memory_bytes=1 << 28)
        steps.wait()  # texts change by rounding where kernels take over
        return engine
