"""Steps of decoding on quantised weights, beside dense ones, on a CPU.

The model is random and so large that its weights don't fit into the caches, as models that are worth quantising.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.row import Row, seconds
from metagen.generators.torch.models.llama import LlamaModel

BATCHES = (1, 16)
STEPS = 4
SIZES = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 512, "tie_word_embeddings": True, "max_position_embeddings": 512,
}  # fmt: skip


def rows() -> Iterator[Row]:
    """One thread each; a step is one token of every row."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16).save_pretrained(folder)
        dense = step(Path(folder), None)
        weights = "8 layers of width 1024 (103 million weights), bfloat16, one thread, median of 5"
        for batch in BATCHES:
            how = f"{batch} rows at once, {weights}"
            yield Row(f"decoding step, dense, {batch} rows, milliseconds", 1e3 * dense[batch], "ms", how)
        for kind in ("int8", "int4"):
            taken = step(Path(folder), kind)
            for batch in BATCHES:
                how = f"{batch} rows at once, {weights}; dense over {kind}"
                bound = "≥ 1" if batch == 1 else None
                yield Row(
                    f"decoding step, {kind}, {batch} rows, times faster",
                    dense[batch] / taken[batch],
                    "×",
                    how,
                    bound,
                )
    torch.set_num_threads(threads)


@torch.inference_mode()
def step(folder: Path, quantization: str | None) -> dict[int, float]:
    """Seconds of a step, by the number of rows."""
    model = LlamaModel(
        folder,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
        batch=max(BATCHES),
        kv_bytes=1 << 29,
        quantization=quantization,
    )
    found = {}
    for batch in BATCHES:
        places, tokens = np.arange(batch), np.full(batch, 7)
        model.open(places, [])

        def some(places: np.ndarray = places, tokens: np.ndarray = tokens) -> None:
            for _ in range(STEPS):
                model.extend(places, tokens)

        found[batch] = seconds(some) / STEPS
        model.close(places)
    return found
