"""What a torch engine is made with, said without torch: experiment files and dry runs read it here."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from metagen.border import checked
from metagen.generators.declared import ROWS, TorchDeclared
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import Engine, SamplingParams
from metagen.generators.local import LocalEngine
from metagen.generators.models.quantization import Quantization
from metagen.generators.models.recipes import Model
from metagen.values import Count, Expects, Size

if TYPE_CHECKING:
    from torch import device as TorchDevice
    from torch import dtype as TorchDtype
else:
    TorchDevice = TorchDtype = object  # the engine itself looks at what is no name

Device: TypeAlias = Annotated[
    str, Field(pattern=r"^(cpu|cuda(:\d+)?)$"), Expects("a torch device, such as cpu or cuda:0")
]
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16"]


class TorchModel(LocalEngine):
    """What a model of a torch engine says of itself."""

    declares = TorchDeclared
    _declared: TorchDeclared
    _draft: Draft | None

    @property
    def draft(self) -> Draft | None:
        """What proposes tokens, if anything does."""
        return self._draft

    @property
    def supports(self) -> frozenset[str]:
        return self._declared.supports

    def check(self, params: SamplingParams) -> None:
        """InputError for what no prompt would make good (`TorchDeclared`)."""
        self._declared.check(params)


@partial(checked, first=True)
class TorchOptions(TorchModel):
    """The options of `TorchEngine`, which loads what they name.

    model: a Hugging Face model directory (config.json, safetensors, tokenizer.json), an embedded model's name, a k-gram
    model's directory, or a recipe that makes one language model of several (`metagen.generators.models.recipes`).
    device: CUDA where there is a GPU, else the CPU. dtype: bfloat16 on a GPU, and on CPUs that multiply it
    (AVX512-BF16, AMX) for models of at least `numbers.LARGE` weights; else float32.
    quantization: int8, int4 or nf4 (CUDA only) for the matrices of the layers; dtype is bfloat16 then, if not given.
    max_batch: rows that decode at once. max_context: below the model's own, if given.
    kv_memory_bytes: keys and values of running rows and of the prefix tree together; by default 2 GiB on a CPU, or an
    eighth of the machine's memory if that is less, and half of what a GPU has free beside the weights. For a moment
    there is one more copy of a prefix, while it enters the tree or is split there.
    threads: of torch's operations in the engine's thread. None: one for models whose products are too small to share
    (`numbers.LARGE`), which leaves the other cores to other engines and to Python; torch's own choice for larger ones;
    for a model that `metagen doctor --speed` has measured on this machine, those that were the fastest.
    draft: what proposes several tokens for one pass of the model (`metagen.generators.decoding.draft`). stats.extra
    then counts `blocks`, tokens `drafted` and `accepted`, and `tested`, with `overlap`, the sum of Σ min(p, q) over
    these.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: Device | TorchDevice | None = None,
        dtype: Dtype | TorchDtype | None = None,
        quantization: Quantization | None = None,
        max_batch: Count = ROWS,
        kv_memory_bytes: Size | None = None,
        max_context: Size | None = None,
        threads: Count | None = None,
        draft: Draft | None = None,
    ) -> None:
        self._draft, self._quantization = draft, quantization
        self._load(model, device, dtype, max_batch, kv_memory_bytes, max_context, threads)

    @abstractmethod
    def _load(
        self,
        model: Model,
        device: str | TorchDevice | None,
        dtype: str | TorchDtype | None,
        max_batch: int,
        memory: int | None,
        max_context: int | None,
        threads: int | None,
    ) -> None:
        """Load the weights, and call the constructor of LocalEngine."""


@partial(checked, first=True)
class AdaptedOptions(TorchModel):
    """The options of `AdaptedEngine`: an adapter on an engine that runs its base.

    Rows of the base and of all its adapters are computed in one batch. The weights of the base, and the memory for keys
    and values, are there once.
    engine: a torch engine over the base. model: the adapter, a directory that `peft` saved or a name.
    """

    def __init__(self, engine: Engine, model: str | Path) -> None:
        self._load(engine, model)

    @abstractmethod
    def _load(self, engine: Engine, model: str | Path) -> None:
        """Load the adapter, and call the constructor of LocalEngine."""
