"""The tokenizer of the Countdown family: a number up to 999 is one token, all else one token a character.

To a model of characters 21 is a 2 and a 1, and it has to learn what numbers are before it learns what comes of them.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import re
from functools import cache

import numpy as np
from arrays import LARGEST
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

import tokenizer as tokenizers_

_PIECES = re.compile(r"<step>|[1-9][0-9]{0,2}|[\s\S]")


def ids(text: str) -> list[int]:
    """The tokens of a text of games and tags, as the tokenizer has them, in a tenth of its time."""
    vocabulary = _vocabulary()
    return [vocabulary[piece] for piece in _PIECES.findall(text)]


@cache
def _vocabulary() -> dict[str, int]:
    return numbers().get_vocab()


@cache
def numbers() -> Tokenizer:
    """A number without leading zeros is one token, up to 999; a longer one is cut after three digits."""
    tokenizer = tokenizers_.characters()
    vocabulary = tokenizer.get_vocab()
    for number in range(10, LARGEST + 1):
        vocabulary[str(number)] = len(vocabulary)
    tokenizer.model = models.WordLevel(vocabulary, unk_token=tokenizers_.SPECIAL[tokenizers_.UNKNOWN])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[1-9][0-9]{0,2}|[\s\S]"), "isolated")
    return tokenizer


def ordered(width: int) -> tuple[list[int], NDArray[np.float64]]:
    """The tokens of the numbers from 1, and beginnings of their embeddings, shape [numbers, width].

    Sines and cosines of the number and of its logarithm, by which sums and products are turns: what a model would find
    out by itself (Nanda et al. 2023, arXiv:2301.05217), given to it at the start.
    """
    each = np.arange(1.0, LARGEST + 1)[:, None]
    sums = each / np.geomspace(2, 2 * LARGEST, width // 4)
    products = np.log(each) / np.log(LARGEST) * np.geomspace(0.5, LARGEST / 4, width // 4)
    turns = np.concatenate((sums, products), 1)
    features = np.concatenate((np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)), 1) * np.sqrt(2)
    return [_vocabulary()[str(int(n))] for n in each[:, 0]], features
