"""Small random models of the architectures of published reward models, saved as those are, with their references.

A reference maps ids to what the head gives at each position: transformers' own class where it has one, else modules of
torch put together as the published modelling code does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
    Qwen2Model,
)

Reference = Callable[[tuple[int, ...]], Tensor]

LINES = [
    "Q: 12 + 7 = ?\n\nStep one: 12 + 7 = 19\nA: 19\n",
    "the quick brown fox\n\njumps over 3 dogs\n",
    "+ - + -\n",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>", "<s>"]
CHAT = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3, "bos_token_id": 0,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def save_tokenizer(path: Path, *, chat: bool = True, bos: str | None = None, template: str = CHAT) -> int:
    """Byte-level BPE; `bos` stands before every text, by template. Returns the size of its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES * 5, trainer)
    if bos:
        pair = (bos, SPECIAL.index(bos))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[pair])
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    return write_tokenizer(path, tokenizer, settings | ({"chat_template": template} if chat else {}))


def save_sentences(path: Path) -> int:
    """Like Mistral's: spaces are ▁, one stands before every text, and after it <s>; "▁ки", "▁+", "▁-" are tokens."""
    letters = sorted(set("".join(LINES) + "ки▁") - {" "})
    merges = [("к", "и"), ("▁", "ки"), ("▁", "+"), ("▁", "-"), ("▁", "S"), ("t", "e"), ("▁S", "te")]
    words = ["<unk>", "<s>", "</s>", *letters, *(a + b for a, b in merges)]
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return write_tokenizer(
        path, tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    )


def write_tokenizer(path: Path, tokenizer: Tokenizer, settings: dict[str, Any]) -> int:
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size()


def randomised(model: nn.Module, seed: int) -> Any:
    """Norms and biases are random too, so that leaving one out would show."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            spread = 0.1 if "norm" in name or "bias" in name else 0.0
            tensor.add_(spread * torch.randn_like(tensor))
    return model.eval().float()


TRANSFORMERS: dict[str, tuple[Any, Any, int]] = {
    "llama sequence": (LlamaForSequenceClassification, LlamaConfig, 1),
    "qwen2 sequence": (Qwen2ForSequenceClassification, Qwen2Config, 1),
    "llama token": (LlamaForTokenClassification, LlamaConfig, 2),
    "qwen2 token": (Qwen2ForTokenClassification, Qwen2Config, 2),
}


def make_transformers(path: Path, kind: str, seed: int = 0, **tokenizer: Any) -> Reference:
    """A model that transformers has a class for."""
    cls, config, labels = TRANSFORMERS[kind]
    vocab = save_tokenizer(path, **tokenizer)
    torch.manual_seed(seed)
    model = randomised(cls(config(**SIZES, vocab_size=vocab, num_labels=labels)), seed)
    model.save_pretrained(path)
    if "token" in kind:
        return lambda ids: model(torch.tensor([ids])).logits[0].detach()
    backbone, score = model.model, model.score
    # The class itself gives the last position only.
    return lambda ids: score(backbone(torch.tensor([ids])).last_hidden_state)[0].detach()


def make_mlp(path: Path, outputs: int, seed: int = 0) -> Reference:
    """Qwen2ForProcessRewardModel (2 outputs) or Qwen2ForRewardModel (1); a language head lies beside it, unused."""
    vocab = save_tokenizer(path)
    torch.manual_seed(seed)
    config = Qwen2Config(**SIZES, vocab_size=vocab)
    backbone, width = Qwen2Model(config), config.hidden_size
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
    name = "Qwen2ForProcessRewardModel" if outputs == 2 else "Qwen2ForRewardModel"
    extra = {"lm_head.weight": torch.randn(vocab, width)}
    return _by_hand(path, name, config, randomised(backbone, seed), ("score", randomised(head, seed)), extra)


def make_value_head(path: Path, name: str = "Qwen2ForPrmModel", seed: int = 0, **tokenizer: Any) -> Reference:
    """The value head of TRL and of Skywork's PRMs."""
    vocab = save_tokenizer(path, **tokenizer)
    torch.manual_seed(seed)
    config = Qwen2Config(**SIZES, vocab_size=vocab, tie_word_embeddings=True)
    head = nn.ModuleDict({"summary": nn.Linear(config.hidden_size, 1)})
    backbone = randomised(Qwen2Model(config), seed)
    return _by_hand(path, name, config, backbone, ("v_head", randomised(head, seed)), {})


def _by_hand(
    path: Path,
    name: str,
    config: Any,
    backbone: nn.Module,
    head: tuple[str, nn.Module],
    extra: dict[str, Tensor],
) -> Reference:
    config.architectures = [name]
    config.save_pretrained(path)
    where, module = head
    parts = ((f"model.{n}", t) for n, t in backbone.state_dict().items())
    heads = ((f"{where}.{n}", t) for n, t in module.state_dict().items())
    save_file({**dict(parts), **dict(heads), **extra}, path / "model.safetensors", {"format": "pt"})

    @torch.inference_mode()
    def reference(ids: tuple[int, ...]) -> Tensor:
        x = backbone(torch.tensor([ids])).last_hidden_state[0]
        return (module["summary"] if isinstance(module, nn.ModuleDict) else module)(x)

    return reference


def make_language_model(path: Path, vocab: int, seed: int = 0) -> Reference:
    """A LlamaForCausalLM over the tokenizer that lies there."""
    torch.manual_seed(seed)
    model = randomised(LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=vocab)), seed)
    model.save_pretrained(path)
    return lambda ids: model(torch.tensor([ids])).logits[0].detach()


def published_tokenizer(path: Path) -> Any:
    """The directory's tokenizer.json in transformers; AutoTokenizer would put a class of the architecture over it."""
    return PreTrainedTokenizerFast.from_pretrained(path)
