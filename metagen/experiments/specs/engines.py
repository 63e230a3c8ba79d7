"""Engines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from metagen.experiments.specs.fields import Count, Expects, ModelName
from metagen.experiments.specs.parts import PartSpec
from metagen.generators import tiny


class TorchSpec(PartSpec):
    """A local model on the torch engine."""

    kind: Literal["torch"]
    model: ModelName
    device: Annotated[str, Expects("a torch device, such as cpu or cuda:0")] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    max_batch: Count | None = None
    kv_memory_bytes: Count | None = None
    max_context: Count | None = None
    threads: Count | None = None

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        return given | {"model": tiny.resolve(self.model)}
