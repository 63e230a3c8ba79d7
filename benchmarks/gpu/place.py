"""Where and with which sizes the pieces measure. torch is imported by those that use it: it takes seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metagen.cost import HARDWARE, Hardware

#: Names of whole GPUs as drivers have them, behind "NVIDIA ", each with the data sheet that speaks of it.
SHEETS: Mapping[str, str] = {
    "A100-SXM4-80GB": "a100-80gb-sxm",
    "H100 80GB HBM3": "h100-sxm",
    "H200": "h200",
    "L40S": "l40s",
    "GeForce RTX 4090": "rtx-4090",
}


@dataclass(frozen=True)
class Sizes:
    """batches: sequences at once. prompt, tokens: of each sequence. turns: runs of each side, one after the other.

    long, shared, behind: tokens of a long prompt, samples that share it, and tokens of each. greedy: prompts whose
    greedy texts are compared. laws: adapters of numbers whose laws are tested.
    """

    batches: tuple[int, ...] = (1, 32, 256)
    prompt: int = 64
    tokens: int = 128
    turns: int = 5
    long: int = 8192
    shared: int = 64
    behind: int = 128
    greedy: int = 16
    width: int = 64
    problems: int = 8


TINY = Sizes(
    batches=(1, 3), prompt=12, tokens=8, turns=2, long=150, shared=4, behind=6, greedy=3, width=4, problems=2
)


@dataclass(frozen=True)
class Place:
    """device: cuda, or cpu for a rehearsal. models: the directory of the random models."""

    rehearsal: bool
    models: Path

    @property
    def device(self) -> str:
        return "cpu" if self.rehearsal else "cuda"

    @property
    def dtype(self) -> str:
        return "bfloat16"

    @property
    def sizes(self) -> Sizes:
        return TINY if self.rehearsal else Sizes()

    @property
    def memory(self) -> int | None:
        """Bytes of keys and values of an engine in a rehearsal; None: the engine's own choice."""
        return 1 << 26 if self.rehearsal else None

    def share(self, share: float) -> int:
        """Bytes: a share of the GPU's memory; in a rehearsal a little."""
        import torch

        return self.memory or int(share * torch.cuda.get_device_properties(0).total_memory)

    def wait(self) -> None:
        """Until the GPU has done all that it was told."""
        if not self.rehearsal:
            import torch

            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        if not self.rehearsal:
            import torch

            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """GB that torch held at most in this process since `forget_peak`; None on a CPU."""
        if self.rehearsal:
            return None
        import torch

        return torch.cuda.max_memory_allocated() / 1e9

    def seconds(self, work: Callable[[], object]) -> float:
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began


def turns(sides: Mapping[str, Callable[[int], float]], count: int) -> dict[str, list[float]]:
    """Rates of each side, by turns; a first turn, numbered 0, warms up and does not count."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(count + 1):
        for name, work in sides.items():
            rate = work(turn)
            if turn:
                rates[name].append(rate)
    return rates


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Turn by turn."""
    return [a / b for a, b in zip(above, below, strict=True)]


@cache
def hardware(place: Place) -> Hardware:
    """The data sheet's figures where the GPU is known; else, and on a CPU, what is measured."""
    if not place.rehearsal:
        import torch

        # The whole name: that of a slice, of a laptop's GPU or of a GH200 holds another's.
        sheet = SHEETS.get(torch.cuda.get_device_name().removeprefix("NVIDIA "))
        if sheet is not None:
            return HARDWARE[sheet]
    return Hardware("measured", products(place), copies(place))


def copies(place: Place) -> float:
    """Bytes a second that a copy within the device's memory reads and writes."""
    import torch

    size = 1 << (24 if place.rehearsal else 30)
    source = torch.zeros(size, dtype=torch.uint8, device=place.device)
    target = torch.empty_like(source)
    target.copy_(source)
    taken = [place.seconds(lambda: [target.copy_(source) for _ in range(4)]) for _ in range(7)]
    return 2 * 4 * size / statistics.median(taken)


def products(place: Place) -> float:
    """FLOP/s of a product of square matrices in bfloat16."""
    import torch

    n = 256 if place.rehearsal else 8192
    a, b = (torch.randn(n, n, device=place.device, dtype=torch.bfloat16) for _ in range(2))
    a @ b
    return 2 * n**3 / statistics.median(place.seconds(lambda: a @ b) for _ in range(7))
