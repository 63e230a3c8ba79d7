"""One vocabulary for several models: the same number means the same token in all of them."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HFTokenizer

from metagen.errors import InputError
from metagen.generators.tokenizer import Tokenizer


def check_one_vocabulary(names: Sequence[str], tokenizers: Sequence[Tokenizer]) -> None:
    """Raises InputError unless all tokenizers give every token the number that the first gives it."""
    first = tokenizers[0]
    for name, other in zip(names[1:], tokenizers[1:], strict=True):
        if other.fingerprint == first.fingerprint:
            continue
        ours, theirs = _tokens(first), _tokens(other)
        if ours == theirs:
            continue
        differs = min(
            (i for i in {*ours.values(), *theirs.values()} if _named(ours, i) != _named(theirs, i)), default=0
        )
        raise InputError(
            f"{names[0]!r} and {name!r} have different vocabularies: {len(ours)} tokens (tokenizer "
            f"{first.fingerprint}) and {len(theirs)} tokens (tokenizer {other.fingerprint}); id {differs} is "
            f"{_named(ours, differs)!r} in the first and {_named(theirs, differs)!r} in the second. Their "
            "logits cannot be combined: take models of one family, with one tokenizer.json"
        )


def _tokens(tokenizer: Tokenizer) -> dict[str, int]:
    path = str(tokenizer.directory / "tokenizer.json")
    return dict(HFTokenizer.from_file(path).get_vocab(with_added_tokens=True))


def _named(tokens: dict[str, int], number: int) -> str | None:
    return next((token for token, i in tokens.items() if i == number), None)


class TableTokenizer(Tokenizer):
    """The tokens of a table, and bytes for whatever else a prompt has; in a folder that lasts as long as this does."""

    def __init__(self, tokens: Sequence[str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="metagen-table-"))
        weakref.finalize(self, shutil.rmtree, folder)
        end = tokens[-1]
        numbers = {token: i for i, token in enumerate(tokens)}
        numbers |= {f"<0x{byte:02X}>": len(tokens) + byte for byte in range(256)}
        codec = HFTokenizer(models.BPE(vocab=numbers, merges=[], byte_fallback=True))
        codec.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        codec.add_special_tokens([AddedToken(end, special=True, normalized=False)])
        # Without merges a text is read by single characters; longer tokens are looked for first.
        codec.add_tokens([AddedToken(token, normalized=False) for token in tokens[:-1] if len(token) > 1])
        codec.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(
            json.dumps({"model_type": "table", "vocab_size": len(numbers), "eos_token_id": len(tokens) - 1})
        )
        super().__init__(folder, len(numbers))
