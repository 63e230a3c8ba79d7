"""A device that is not there: tensors whose numbers lie in the CPU's memory, and which count as on a GPU.

Code for GPUs runs on them without one. What would be an error there is one here: a product of tensors on two devices,
an index that stayed on the CPU, `numpy` of a tensor that was not fetched. What makes the CPU wait is counted.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_map

from metagen.generators.torch import TorchEngine

CUDA: Final = torch.device("cuda", 0)
CPU: Final = torch.device("cpu")
#: Functions that bring numbers to the CPU, which waits for all that the GPU was told before.
FETCHES: Final = frozenset(
    {
        "item",
        "tolist",
        "cpu",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__array__",
        "nonzero",
        "equal",
        "allclose",
    }
)


class Far(Tensor):
    """A tensor on the device that is not there."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


class Elsewhere(TorchFunctionMode):
    """Where this is on, tensors of CUDA are `Far`. It holds in the thread that enters it.

    waits: how often the CPU waited, by the function that made it wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # This runs at each operation, and decides how long such tests take.
        name, whole = _names(func)
        first = args[0] if args else None
        if (
            name == "__get__"
            and isinstance(first, Far)
            and whole.endswith(("device.__get__", "is_cuda.__get__"))
        ):
            return CUDA if "device" in whole else True
        if name in ("to", "cuda", "cpu") and isinstance(first, Tensor):
            return self._transfer(name, first, args[1:], dict(kwargs or {}))
        if name == "pin_memory":
            assert not isinstance(first, Far), "a tensor of a GPU is pinned"
            return args[0].clone()
        if name in ("numpy", "__array__") and isinstance(first, Far):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        leaves: list[Tensor] = []
        _find(args, leaves)
        if kwargs:
            _find(kwargs, leaves)
        far = any(isinstance(x, Far) for x in leaves)
        if far:
            near = [tuple(x.shape) for x in leaves if not isinstance(x, Far) and x.dim()]
            if near:
                raise RuntimeError(f"{whole}: expected all tensors to be on one device, found {near} on cpu")
            if name in FETCHES or _masks(name, args):
                self.waits[name] += 1
        if kwargs and (device := kwargs.get("device")) is not None:
            far = torch.device(device).type == "cuda"
            kwargs = {**kwargs, "device": CPU}
        found = func(*args, **(kwargs or {}))
        if not far:
            return found
        return found.as_subclass(Far) if type(found) is Tensor else tree_map(_to_far, found)

    def _transfer(self, name: str, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        was = isinstance(tensor, Far)
        if name != "to":
            args, kwargs = (CUDA if name == "cuda" else CPU,), {}
        others = [x for x in args if isinstance(x, Tensor)]
        devices = [
            torch.device(x) for x in (*args, kwargs.pop("device", None)) if isinstance(x, str | torch.device)
        ]
        is_far = isinstance(others[0], Far) if others else devices[0].type == "cuda" if devices else was
        if was != is_far and not (is_far and kwargs.get("non_blocking")):
            self.waits["to the GPU" if is_far else name] += 1
        types = [x for x in (*args, kwargs.pop("dtype", None)) if isinstance(x, torch.dtype)]
        found = tensor.detach().as_subclass(Tensor)
        found = found.to(types[0] if types else found.dtype)
        if was != is_far:
            found = found.clone()
        return found.as_subclass(Far) if is_far else found


@cache
def _names(func: Any) -> tuple[str, str]:
    """What a function is called in its module, and with it."""
    name = getattr(func, "__name__", "")
    return name, resolve_name(func) or name


def _find(x: Any, found: list[Tensor]) -> None:
    """Append all tensors in x."""
    if isinstance(x, Tensor):
        found.append(x)
    elif isinstance(x, tuple | list):
        for one in x:
            _find(one, found)
    elif isinstance(x, dict):
        for one in x.values():
            _find(one, found)


def _to_far(x: Any) -> Any:
    return x.as_subclass(Far) if isinstance(x, Tensor) and not isinstance(x, Far) else x


def _masks(name: str, args: tuple[Any, ...]) -> bool:
    """An index by a mask counts how many places it has."""
    if name not in ("__getitem__", "__setitem__", "masked_select", "index_put_"):
        return False
    found: list[Tensor] = []
    _find(args[1], found)
    return any(x.dtype == torch.bool for x in found)


class FarEngine(TorchEngine):
    """A TorchEngine on the device that is not there, in float32, so that its samples can be compared."""

    elsewhere: Elsewhere

    def _load(self, model: Any, device: Any, dtype: Any, batch: int, memory: int | None, *rest: Any) -> None:
        self.elsewhere = Elsewhere()
        with self.elsewhere, patch.object(torch.cuda, "is_available", return_value=True):
            super()._load(model, "cuda", dtype or "float32", batch, memory or 1 << 28, *rest)

    def _run(self) -> None:
        with self.elsewhere:
            super()._run()
