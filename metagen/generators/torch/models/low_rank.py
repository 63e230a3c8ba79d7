"""The matrices of a LoRA adapter, beside those of its base, which stay as they are and may serve others too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional as F

from metagen.errors import ModelError
from metagen.generators.models import lora
from metagen.generators.torch.models.heads import ScoringHead
from metagen.generators.torch.models.linear import Linear

#: As peft names the two matrices of a module of its base.
_NAME: Final = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<which>[AB])(?:\.default)?\.weight")


@dataclass(frozen=True, slots=True)
class LowRank:
    """A map and what an adapter adds to it: up @ (down @ x). down: [r, in]. up: [out, r], its scale included."""

    base: Linear
    down: Tensor
    up: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return self.base(x) + self.more(x)

    def more(self, x: Tensor) -> Tensor:
        """What the adapter adds for x [n, in]: [n, out]."""
        return F.linear(F.linear(x, self.down), self.up)


@dataclass(frozen=True, slots=True)
class Update:
    """What an adapter adds to one matrix: up @ down. down: [r, in]. up: [out, r]."""

    down: Tensor
    up: Tensor


class Updates:
    """The updates of an adapter, each taken once by the name of its matrix, as `model.layers.0.mlp.down_proj`.

    Raises ModelError for files that cannot be read, or that hold more than plain LoRA.
    """

    def __init__(self, adapter: lora.Adapter, dtype: torch.dtype, device: torch.device) -> None:
        self._directory, self._dtype, self._device = adapter.directory, dtype, device
        file = adapter.directory / lora.WEIGHTS
        found: dict[str, dict[str, Tensor]] = {}
        self._head: dict[str, Tensor] = {}
        self._scores = adapter.scores
        try:
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118 - no mapping
                    if adapter.scores and name.startswith(lora.HEAD):
                        self._head[name.removeprefix(lora.HEAD)] = content.get_tensor(name).float()
                        continue
                    if (read := _NAME.fullmatch(name)) is None:
                        raise ModelError(
                            f"{file}: {name!r} is no matrix of plain LoRA; merge the adapter into its base with peft"
                        )
                    found.setdefault(read["module"], {})[read["which"]] = content.get_tensor(name).float()
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{file}: not a readable safetensors file ({error}); copy it again") from None
        self._found: dict[str, Update] = {}
        for module, pair in found.items():
            if set(pair) != {"A", "B"} or len(pair["A"]) != pair["B"].shape[1]:
                sizes = {which: tuple(matrix.shape) for which, matrix in pair.items()}
                raise ModelError(
                    f"{file}: {module!r} has {sizes}, expected A [r, in] and B [out, r]; copy it again"
                )
            self._found[module] = Update(pair["A"], pair["B"] * adapter.scale)

    def take(self, name: str, rows: int, columns: int) -> Update | None:
        """The update of a matrix [rows, columns], if it has one, in float32. ModelError for one of another shape."""
        update = self._found.pop(name, None)
        if update is not None and (len(update.up), update.down.shape[1]) != (rows, columns):
            raise ModelError(
                f"{self._directory}: the adapter changes {name!r} as a matrix [{len(update.up)}, "
                f"{update.down.shape[1]}], and its base has [{rows}, {columns}]; give the base that it was trained on"
            )
        return update

    def adapt(self, base: Linear, updates: Sequence[Update | None], rows: Sequence[int]) -> Linear:
        """A map of matrices [rows[i], in] that are one there, with the updates of each; itself if there are none."""
        known = [(update, sum(rows[:i])) for i, update in enumerate(updates) if update is not None]
        if not known:
            return base
        down = torch.cat([update.down for update, _ in known])
        up = torch.zeros(sum(rows), len(down))
        column = 0
        for update, row in known:
            rank = len(update.down)
            up[row : row + len(update.up), column : column + rank] = update.up
            column += rank
        return LowRank(base, down.to(self._device, self._dtype), up.to(self._device, self._dtype))

    def head(self, width: int) -> ScoringHead | None:
        """The head that the adapter brings, if it does: a linear map [outputs, width]. ModelError for another."""
        if not self._scores:
            return None
        shapes = {name: tuple(matrix.shape) for name, matrix in sorted(self._head.items())}
        rows = len(self._head["weight"]) if "weight" in self._head else 0
        if shapes not in ({"weight": (rows, width)}, {"bias": (rows,), "weight": (rows, width)}):
            raise ModelError(
                f"{self._directory}: the adapter's head has {shapes}, expected a weight [outputs, {width}] and at most "
                "a bias [outputs]; merge the adapter into its base with peft, and give the merged model"
            )
        weight, bias = self._head["weight"].to(self._device), self._head.get("bias")
        return ScoringHead("score", ((weight, None if bias is None else bias.to(self._device)),))

    def finish(self) -> None:
        """Raises ModelError for updates of what the model does not have."""
        if self._found:
            raise ModelError(
                f"{self._directory}: the adapter changes {sorted(self._found)[:3]!r} ({len(self._found)}), which "
                "the torch engine does not adapt; give the base that it was trained on, or merge the two with peft"
            )
