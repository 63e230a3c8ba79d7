"""An embedding model on this machine: hidden states of a transformer, averaged over tokens."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metagen.cost import ModelShape, Usage, flops_2n, prefill_flops
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.models.lora import CONFIG as ADAPTER
from metagen.sequence import digest
from metagen.verifiers.utility.base import library
from metagen.verifiers.utility.embedding import Embedder


class MeanPooling(Embedder):
    """The mean over tokens of a model's last hidden states, from a Hugging Face directory. Needs transformers.

    prefix: put before each text, where a model wants one (such as `query: `). Longer texts than the model's context
    are cut. device: of torch; on a CPU the model computes in float32, elsewhere in its own precision. The model is
    loaded when this is made; ModelError if it cannot be. InputError for a batch below 1. Raises UnsupportedError for an
    adapter.
    """

    def __init__(
        self, directory: str | Path, *, prefix: str = "", device: str = "cpu", batch: int = 32
    ) -> None:
        if batch < 1:
            raise InputError(f"batch={batch!r}: expected the number of texts to embed at once, at least 1")
        path = Path(directory)
        if (path / ADAPTER).exists():
            raise UnsupportedError(
                f"{str(path)!r} is an adapter, which transformers leaves out in silence where peft is missing; merge "
                "it into its base with peft, and give the merged model"
            )
        self._torch = library("torch", "MeanPooling")
        transformers = library("transformers", "MeanPooling")
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            model = transformers.AutoModel.from_pretrained(path, trust_remote_code=False)
            self._model = model.eval().to(device)
            # In fewer bits than 32, a text's states depend on the texts beside it by a hundredth.
            widened = str(device) == "cpu" and model.dtype != self._torch.float32
            if widened:
                self._model.float()
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot load an embedding model from {str(path)!r}: {error}") from error
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._prefix, self._device, self._batch = prefix, device, batch
        # RoBERTa and its kin have fewer places than their configuration says, which the tokenizer knows; where it knows
        # nothing, it says 10³⁰.
        places = getattr(self._model.config, "max_position_embeddings", None)
        told = self._tokenizer.model_max_length
        self._context = min((n for n in (places, told) if n and n < 10**9), default=None)
        self._shape = _shape(path)
        # The context is named where it is the tokenizer's, and the precision where it is not the file's: records of
        # other models stay what they were.
        own = [*([] if self._context == places else [str(self._context)]), *(["float32"] if widened else [])]
        self._fingerprint = digest("mean pooling", prefix, *own, *_files(path)).hex()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def embed(self, texts: list[str]) -> NDArray[Any]:
        return await asyncio.to_thread(self._embed, texts)

    def usage(self, text: str) -> Usage:
        tokens = len(self._encode([text])["input_ids"][0])
        if self._shape is None:
            return Usage(prefilled=tokens, calls=1, flops=None, flops_2n=None)
        exact = prefill_flops(self._shape, tokens, logits=0)
        return Usage(prefilled=tokens, calls=1, flops=exact, flops_2n=flops_2n(self._shape, tokens))

    def _encode(self, texts: list[str], **options: Any) -> Any:
        cut = {} if self._context is None else {"truncation": True, "max_length": self._context}
        return self._tokenizer([self._prefix + text for text in texts], **cut, **options)

    def _embed(self, texts: list[str]) -> NDArray[Any]:
        # Texts of like length share a batch, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found: dict[int, NDArray[Any]] = {}
        with self._torch.inference_mode():
            for start in range(0, len(order), self._batch):
                places = order[start : start + self._batch]
                inputs = self._encode([texts[i] for i in places], padding=True, return_tensors="pt")
                inputs = {name: value.to(self._device) for name, value in inputs.items()}
                states = self._model(**inputs).last_hidden_state.float()
                mask = inputs["attention_mask"].unsqueeze(-1)
                means = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
                found.update(zip(places, means.cpu().numpy(), strict=True))
        return np.array([found[i] for i in range(len(texts))])


def _shape(path: Path) -> ModelShape | None:
    """For the cost model; None for architectures that it doesn't know."""
    try:
        return ModelShape.from_config(path)
    except ModelError:
        return None


def _files(path: Path) -> Iterator[str]:
    """Digests of the configuration, the tokenizer and the weights."""
    for file in sorted(path.iterdir()):
        if file.suffix in (".json", ".safetensors", ".model", ".txt"):
            with file.open("rb") as stream:
                yield hashlib.file_digest(stream, "blake2b").hexdigest()
