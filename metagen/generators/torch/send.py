"""Numbers on their way to the model's device, in the order of its work and without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def send(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """An array of any shape as a tensor on the device; on a CPU it is the array's own memory.

    A copy from ordinary memory waits until the GPU has done all that it was told before. One from pinned memory takes
    its turn there, and the CPU goes on; torch keeps the pinned memory until the copy is done.
    """
    return pinned(numbers, device).to(device, non_blocking=True)


def pinned(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """An array in memory that a copy to the device does not wait for."""
    found = torch.from_numpy(np.ascontiguousarray(numbers))
    return found if device.type == "cpu" or not found.numel() else found.pin_memory()
