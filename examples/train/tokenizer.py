"""The two tokenizers of the family, as Hugging Face tokenizer files.

One token a character for most models; byte-pair merges for one, so that tokens span characters. Both put `<s>` before
a text and nothing else, and give back exactly the text they were given (printable ASCII and newlines).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<step>", "<+>", "<->", "<outcome>")
PAD, BOS, EOS, UNKNOWN, STEP, POSITIVE, NEGATIVE, OUTCOME = range(len(SPECIAL))
ALPHABET = ("\n", *map(chr, range(32, 127)))


def characters() -> Tokenizer:
    """One token a character."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *ALPHABET))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return _finish(tokenizer)


def byte_pairs(texts: Iterable[str], merges: int) -> Tokenizer:
    """Merges learned on `texts`, free to cross any border between characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + len(ALPHABET) + merges,
        special_tokens=list(SPECIAL),
        initial_alphabet=list(ALPHABET),
        max_token_length=4,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finish(tokenizer)


def _finish(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """All files that `AutoTokenizer.from_pretrained` and vLLM read."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "additional_special_tokens": ["<step>", "<+>", "<->", "<outcome>"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "padding_side": "right",
    }
    special = {**names, "additional_special_tokens": configuration["additional_special_tokens"]}
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": True}
    for name, content in (
        ("tokenizer_config.json", configuration),
        ("special_tokens_map.json", special),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Token ids without `<s>`."""
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
