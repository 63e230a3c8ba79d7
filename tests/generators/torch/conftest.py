"""Small random models of each architecture, with a byte-level tokenizer whose tokens span characters."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from metagen.generators.compiled import build
from metagen.generators.compiled.build import extension
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.kv.segments import KVSegment

MakeModel = Callable[..., Path]

LINES = [
    "Q: 12 + 7 = ?\nStep one.\n\nA: 19\n",
    "the quick brown fox jumps over the lazy dog\n",
    "naïve café — 数学 はやい 🙂🙃\n",
    "abcabcabc 0123456789\n",
]
SPECIAL = ["<s>", "</s>", "<pad>", "<+>"]
SIZES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "initializer_range": 0.12,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip

#: A size of heads that steps are compiled for.
COMPILED: dict[str, Any] = {"head_dim": 16}

#: Architectures that run through transformers, and what their configurations need besides the sizes.
OTHERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 1024},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 48},
    "gpt_neox": {"rotary_pct": 0.25},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"sliding_window": 100},
    "gemma": {"head_dim": 12},
    "gemma2": {"head_dim": 12, "sliding_window": 40, "query_pre_attn_scalar": 12, "num_hidden_layers": 3},
    "gemma3_text": {
        "head_dim": 12,
        "sliding_window": 40,
        "query_pre_attn_scalar": 12,
        "num_hidden_layers": 7,
    },
    "mamba": {"state_size": 4},
    "glm": {"head_dim": 12, "partial_rotary_factor": 0.5},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 12},
}


def save_tokenizer(path: Path) -> Tokenizer:
    """Byte-level BPE of 400 tokens that puts <s> before every text, by template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES * 5, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer


def config(kind: str, vocab: int, **changes: Any) -> PretrainedConfig:
    sizes = {**SIZES, "vocab_size": vocab, **changes}
    if kind == "llama3":
        rope = {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128, "rope_theta": 10000.0,
        }  # fmt: skip
        return LlamaConfig(**{**COMPILED, **sizes}, rope_parameters=rope, attention_bias=True, mlp_bias=True)
    if kind == "qwen3":
        return Qwen3Config(**{**sizes, **COMPILED}, tie_word_embeddings=True)
    if kind in OTHERS:
        return AutoConfig.for_model(kind, **{**sizes, **OTHERS[kind]})
    made = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config}[kind]
    return made(**{**COMPILED, **sizes})


def make_model(path: Path, kind: str = "llama", seed: int = 0, **changes: Any) -> Path:
    """A model directory with random weights."""
    path.mkdir(parents=True, exist_ok=True)
    vocab = save_tokenizer(path).get_vocab_size()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config(kind, vocab + 6, **changes), dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "norm" in name or "bias" in name:
                tensor.add_(0.1 * torch.randn_like(tensor))
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """`model_dir(kind, **changes)`: a random model of that architecture, made once."""
    made: dict[str, Path] = {}

    def make(kind: str = "llama", **changes: Any) -> Path:
        key = kind + repr(sorted(changes.items()))
        if key not in made:
            made[key] = make_model(tmp_path_factory.mktemp(kind), kind, **changes)
        return made[key]

    return make


@pytest.fixture(scope="module")
def engine(model_dir: MakeModel) -> Iterator[TorchEngine]:
    with TorchEngine(model_dir("llama"), threads=1, max_batch=32) as opened:
        yield opened


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """`held()`: bytes of the segments made since the test began that anybody still holds; slots are none."""
    made: list[weakref.ref[torch.Tensor]] = []
    original = KVSegment.__init__

    def record(self: KVSegment, kv: torch.Tensor) -> None:
        original(self, kv)
        if kv.untyped_storage().nbytes() == kv.nbytes:  # a view of a slot holds nothing
            made.append(weakref.ref(kv))

    def count() -> int:
        alive = [kv for ref in made if (kv := ref()) is not None]
        made[:] = map(weakref.ref, alive)
        return sum({kv.data_ptr(): kv.nbytes for kv in alive}.values())

    monkeypatch.setattr(KVSegment, "__init__", record)
    return count


@pytest.fixture(params=["compiled", "torch"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compiled steps, and those of torch: what is opened in the test runs by these."""
    if request.param == "compiled" and extension() is None:
        pytest.skip(f"no compiled steps here: {build.state()[1]}")
    monkeypatch.setenv(build.SETTING, "ready" if request.param == "compiled" else "off")
    return str(request.param)
