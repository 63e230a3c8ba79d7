"""The tokenizer in a GGUF file, written as tokenizer.json and tokenizer_config.json.

Two kinds: `gpt2`, byte-level byte-pair encoding behind a way to cut texts into words, which the file gives by a name;
and `llama`, SentencePiece's, whose pairs are merged by the scores of what they become.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from metagen.errors import ModelError, UnsupportedError

#: Types of tokens: of control, such as the end of a turn; and given by the user.
CONTROL, USER_DEFINED = 3, 4

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#: How each name in the file cuts texts: an expression, `digits` (one by one, then GPT-2's way), or GPT-2's way alone.
CUTS: Final = {
    "gpt-2": "",
    "smollm": "digits",
    "qwen2": rf"{_SHORT}|{_WORDS}|\p{{N}}|{_REST}",
    "llama-bpe": rf"{_SHORT}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
}
#: Ends of turns and of texts that models write and the file's end-of-sequence token does not name.
TURN_ENDS: Final = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",
)  # fmt: skip


def write_tokenizer(file: Path, value: Callable[[str], Any], directory: Path) -> dict[str, Any]:
    """Write the two files; returns the special ids as config.json has them.

    value: of a field of the file, None if it has none. ModelError for a file without a tokenizer, UnsupportedError for
    one that is not known here.
    """
    tokens, model = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.model")
    if not tokens:
        raise ModelError(f"{file}: there is no tokenizer in it; take a file with one")
    if model == "gpt2":
        tokenizer = _byte_level(file, value, tokens)
    elif model == "llama":
        tokenizer = _sentence_piece(file, value, tokens)
    else:
        raise UnsupportedError(f"{file}: tokenizer.ggml.model={model!r}; expected gpt2 or llama")
    names = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
             "pad_token": "padding_token_id"}  # fmt: skip
    ids = {name: value(f"tokenizer.ggml.{key}") for name, key in names.items()}
    _add_special(tokenizer, value, tokens, ids["bos_token"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings: dict[str, Any] = {name: tokens[i] for name, i in ids.items() if i is not None}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if template := value("tokenizer.chat_template"):
        settings["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8"
    )
    ends = {ids["eos_token"], value("tokenizer.ggml.eot_token_id")}
    ends |= {i for i, token in enumerate(tokens) if token in TURN_ENDS}
    found: dict[str, Any] = {
        "eos_token_id": sorted(i for i in ends if i is not None), "pad_token_id": ids["pad_token"],
    }  # fmt: skip
    return found if ids["bos_token"] is None else {"bos_token_id": ids["bos_token"], **found}


def _byte_level(file: Path, value: Callable[[str], Any], tokens: list[str]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = value("tokenizer.ggml.pre")
    if name not in CUTS:
        raise UnsupportedError(
            f"{file}: tokenizer.ggml.pre={name!r} names a way to cut texts that is not known here; expected one of "
            f"{', '.join(CUTS)}. Use a Hugging Face directory of the model"
        )
    merges = [tuple(pair.split(" ")) for pair in value("tokenizer.ggml.merges") or ()]
    if not merges or any(len(pair) != 2 for pair in merges):
        raise ModelError(f"{file}: tokenizer.ggml.merges are no pairs; copy the file again")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    whole = name == "llama-bpe"  # a word that is a token is taken as it is
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole))
    cut = CUTS[name]
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in ("", "digits"))
    ]
    if cut == "digits":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif cut:
        steps.insert(0, pre_tokenizers.Split(Regex(cut), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _sentence_piece(file: Path, value: Callable[[str], Any], tokens: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores, unknown = value("tokenizer.ggml.scores"), value("tokenizer.ggml.unknown_token_id")
    if scores is None or len(scores) != len(tokens):
        raise ModelError(f"{file}: {len(tokens)} tokens without a score each; copy the file again")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [
        (-scores[i], vocabulary[token[:at]], vocabulary[token[at:]])
        for i, token in enumerate(tokens)
        for at in range(1, len(token))
        if token[:at] in vocabulary and token[at:] in vocabulary
    ]
    merges = [(tokens[left], tokens[right]) for _, left, right in sorted(pairs)]
    unk = tokens[unknown] if unknown is not None else None
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    spaced = value("tokenizer.ggml.add_space_prefix") is not False
    space = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if spaced else space
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if spaced else steps)
    return tokenizer


def _add_special(tokenizer: Any, value: Callable[[str], Any], tokens: list[str], bos: int | None) -> None:
    from tokenizers import AddedToken, processors

    types = value("tokenizer.ggml.token_type") or []
    special = [
        AddedToken(t, special=True, normalized=False)
        for t, k in zip(tokens, types, strict=False)
        if k == CONTROL
    ]
    own = [AddedToken(t, normalized=False) for t, k in zip(tokens, types, strict=False) if k == USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(own)
    given = value("tokenizer.ggml.add_bos_token")
    if given is None:  # llama.cpp's defaults
        given = value("tokenizer.ggml.model") == "llama" or value("tokenizer.ggml.pre") == "llama-bpe"
    if given and bos is not None:
        begin = [(tokens[bos], bos)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", pair=f"{tokens[bos]} $A {tokens[bos]} $B", special_tokens=begin
        )
