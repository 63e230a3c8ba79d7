"""Asking engines for many samples at once, as the pieces do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.place import Place
from metagen.generators.engine import Engine, Generated, GenerateRequest, SamplingParams
from metagen.generators.models import sources
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.gpu import steps
from metagen.sequence import Prompt, Sequence

#: A real model, measured where it has been fetched (`metagen models fetch smollm2-135m`).
REAL = "smollm2-135m"
FETCH = f"{REAL} has not been fetched; run: metagen models fetch {REAL}"


def fetched() -> Path | None:
    """The directory of the real model, if it is on this machine."""
    return sources.kept(REAL)


def torch_engine(place: Place, model: Any, **options: Any) -> TorchEngine:
    options = {"max_batch": max(place.sizes.batches), "kv_memory_bytes": place.memory} | options
    engine = TorchEngine(model, device=place.device, dtype=place.dtype, **options)
    steps.wait()  # what is compiled in the background
    return engine


def ask(
    engine: Engine, prompts: Many[str], tokens: int, samples: int = 1, seed: int = 0, **params: Any
) -> list[Generated]:
    """So many samples of each prompt, each of exactly so many tokens, all asked at once."""
    chosen = SamplingParams(max_tokens=tokens, **({"ignore_eos": True} | params))
    requests = [
        GenerateRequest(
            Sequence(Prompt(f"{seed}/{i}", text=text)),
            tuple(range((seed << 32) + (i << 16), (seed << 32) + (i << 16) + samples)),
            chosen,
            tokens,
        )
        for i, text in enumerate(prompts)
    ]

    async def together() -> list[Generated]:
        return list(await asyncio.gather(*map(engine.generate, requests)))

    return asyncio.run(together())


def generated(answers: Many[Generated]) -> int:
    """Tokens of all samples."""
    return sum(sample.generated or 0 for answer in answers for sample in answer.samples)


def rival(place: Place, directory: Path, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Any]:
    """Transformers' model on the device, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, trust_remote_code=False)
    read = AutoTokenizer.from_pretrained(directory, padding_side="left", trust_remote_code=False)
    if read.pad_token_id is None:
        read.pad_token_id = read.eos_token_id
    model.generation_config.eos_token_id = None  # every text has all its tokens, on both sides
    return model.to(place.device).eval(), read


def write(
    model: Any, read: Any, prompts: Many[str], tokens: int, samples: int = 1, **options: Any
) -> torch.Tensor:
    """Ids [prompts · samples, tokens] that transformers writes, exactly so many behind each prompt."""
    given = read(list(prompts), return_tensors="pt", padding=True).to(model.device)
    given.pop("token_type_ids", None)
    options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0} | options
    if not options["do_sample"]:
        options = {"do_sample": False, "top_k": None, "top_p": None, "temperature": None}
    made: torch.Tensor = model.generate(
        **given, max_new_tokens=tokens, num_return_sequences=samples,
        pad_token_id=read.pad_token_id, **options,
    )  # fmt: skip
    return made[:, given["input_ids"].shape[1] :]
