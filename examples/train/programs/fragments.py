"""The tokenizer of this family: characters, the numbers of the examples, and the fragments that programs are made of.

A program of a hundred characters is about 35 tokens, so that a small model learns from three times as many. Text is cut
from left to right into the longest pieces that are known; any printable ASCII comes back as it was.
"""

from __future__ import annotations

import re

import first  # noqa: F401 - first

# isort: split
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from tokenizer import ALPHABET, BOS, SPECIAL

FRAGMENTS = (
    "def f(x):\n", " return ", " x=", " for a in x", " for a,b in zip(x,x[", " for i,a in enumerate(x)",
    " for i in range(len(x))", " if ", " else ", " else a for a in x]", " not in x[", "sorted(", "set(", "abs(",
    "sum(", "len(x)", "max(", "min(", "max(x", "min(x", "sum(x", ",default=0)", "x.count(", "[::-1]", "[::", "[1:",
    " >", " =", "]\n", ")\n", "==", "!=", "//", "%2", "x[", "+1", "-1", "not",
)  # fmt: skip
NUMBERS = tuple(f" {n}" for n in range(-99, 100))


def tokenizer() -> Tokenizer:
    """The special tokens of the first family, then characters, numbers and fragments."""
    pieces = dict.fromkeys((*SPECIAL, *ALPHABET, *NUMBERS, *FRAGMENTS))
    made = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    longest = sorted((*FRAGMENTS, *NUMBERS), key=len, reverse=True)
    pattern = "|".join(re.escape(piece) for piece in longest).replace("\\\n", "\\n")
    made.pre_tokenizer = pre_tokenizers.Split(Regex(f"{pattern}|[\\s\\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    return made
