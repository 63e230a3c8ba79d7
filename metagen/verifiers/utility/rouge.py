"""ROUGE-L: the longest common subsequence of words (Lin 2004), as rouge-score computes it."""

from __future__ import annotations

import re

import numpy as np

from metagen.errors import InputError
from metagen.parts import part
from metagen.verifiers.utility.base import Matrix, TextUtility, library
from metagen.verifiers.utility.ngrams import words


@part
class RougeL(TextUtility):
    r"""2PR / (P + R) with P and R the share of the longest common subsequence in either text. Needs rapidfuzz.

    token: a regular expression for a word of the lower-cased text. The default is the published one and sees nothing
    but ASCII; `\\w+` suits other scripts. 0 where a text has no words. No stemming. Raises InputError for a token
    that is no regular expression.

    Examples:
        >>> from metagen.verifiers.utility.rouge import RougeL
        >>> RougeL().compare(["the cat sleeps"], ["a cat sleeps"]).round(2).tolist()
        [[0.67]]
    """

    name = "rouge-l"
    symmetric = True

    token: str = "[a-z0-9]+"

    def __post_init__(self) -> None:
        try:
            self._token = re.compile(self.token)
        except re.error as error:
            raise InputError(f"token={self.token!r} is not a regular expression: {error}") from error
        self._cdist = library("rapidfuzz.process", "RougeL").cdist
        self._common = library("rapidfuzz.distance", "RougeL").LCSseq.similarity

    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        tokens = [[m[0] for m in self._token.finditer(t.lower())] for t in [*candidates, *(references or ())]]
        texts = [document.tolist() for document in words(tokens)]
        ours = texts if references is None else texts[: len(candidates)]
        theirs = texts if references is None else texts[len(candidates) :]
        common = self._cdist(ours, theirs, scorer=self._common, dtype=np.float64)
        total = np.array([[len(t)] for t in ours]) + np.array([len(t) for t in theirs])
        return np.asarray(2 * common / np.maximum(total, 1), dtype=np.float64)
