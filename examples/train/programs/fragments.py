"""The tokenizer of this family: characters, the numbers of the examples, and the fragments that programs are made of.

An operation is about four tokens, so that a small model learns from many more programs in the same time. Text is cut
from left to right into the longest pieces that are known; any printable ASCII comes back as it was.
"""

from __future__ import annotations

import re

import first  # noqa: F401 - first

# isort: split
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from tokenizer import ALPHABET, BOS, SPECIAL

FRAGMENTS = (
    "def f(x):\n", " return ", " x=", " #", " ;", " >", " =", ")\n", "]\n", "[a for a in x if ",
    " for a in x]", " for a in x)", "[a for i,a in enumerate(x) if a", " for i,a in enumerate(x)]",
    " for a,b in zip(x,x[1:])", " for a,b in zip(x,x[::-1])]", " for i in range(len(x))]", "[0 if ", "[9 if ",
    "[-a if ", " if ", " else a for a in x]", " if x else 0", " if sum(x)", " else x", " else sorted(x)",
    "sorted(x)", "sorted(", "set(x)", "sum(x", "sum(", "max(x", "min(x", "max(a,", "min(a,", "[abs(a)",
    "len(x)", "len(", ",default=0)", "x.count(a)", "x+x", "x[", "x[::-1]", "1:]", "2:]", "3:]", ":-1]", ":-2]", ":-3]",
    ":2]", ":3]",
    "-3:]", "-2:]", "-1:]", "::2]", "::3]", "1::2]", "[::-1]", "[::2]", "[:2]", ":1]", ":i+1])", "[:i]]", "a>", "a<",
    "a%2==0", "a%2==1", "[a+", "[a-", "[a*", "[a*a", "[a*2", "[a//2", "[a%2", "[a%3", "[a+b", "[b-a", "b)",
    "[a+i", "[a*i", "a*a", ">i]", " not in x", "==", "!=", "%2", "%10", "*2", "+1",
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
