"""Token F1: how many words two short answers share, as SQuAD scores them (Rajpurkar et al. 2016)."""

from __future__ import annotations

import re
from string import punctuation

import numpy as np

from metagen.parts import part
from metagen.verifiers.utility.base import Matrix, TextUtility
from metagen.verifiers.utility.ngrams import ngrams, words

_PUNCTUATION = str.maketrans("", "", punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


@part
class TokenF1(TextUtility):
    """2PR / (P + R) over words, repetitions clipped; case, ASCII punctuation and English articles don't matter.

    Two answers of which nothing is left are equal (1); one such has nothing in common with any other (0).

    Examples:
        >>> from metagen.verifiers.utility.token_f1 import TokenF1
        >>> TokenF1().compare(["The Eiffel Tower"], ["Eiffel tower, Paris"]).round(2).tolist()
        [[0.8]]
    """

    name = "token-f1"
    symmetric = True

    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        first = None if references is None else len(candidates)
        documents = words(_normal(text).split() for text in [*candidates, *(references or ())])
        (bags,) = ngrams(documents, 1)
        sizes = bags.sizes
        total = sizes[:first, None] + sizes[first or 0 :]
        return np.where(total > 0, 2 * bags.matches(first) / np.maximum(total, 1), 1.0)


def _normal(text: str) -> str:
    return _ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION))
