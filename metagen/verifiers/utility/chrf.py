"""chrF: the F-score of character n-grams (Popović 2015), as sacrebleu 2 computes it for sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import punctuation

import numpy as np

from metagen.parts import part
from metagen.values import Amount, Count, Positive
from metagen.verifiers.utility.aggregation import AggregatingUtility
from metagen.verifiers.utility.base import Matrix, Vector
from metagen.verifiers.utility.ngrams import Bags, characters, ngrams, words

_MARK = f"[{re.escape(punctuation)}]"
#: A word of at least two characters gives off a mark at its end, or else one at its beginning.
_WORD = re.compile(rf"(?P<head>\S+)(?P<tail>{_MARK})|(?P<mark>{_MARK})(?P<rest>\S+)")


@part
class ChrF(AggregatingUtility):
    """chrF in [0, 1]: a hundredth of sacrebleu's figure. word_order=2 is chrF++; beta=1 is symmetric.

    With P and R the means over n of clipped n-gram precision and recall, leaving out an n for which either text is
    too short, it is (1 + β²)PR / (β²P + R). 0 where a text is empty.

    aggregate: `expected` compares each candidate with the *mean bag* of the references instead of with each of them
    (reference aggregation, Vamvas & Sennrich 2024): linear in n, and an approximation. `matrix` is the same.
    char_order: the longest n-grams of characters. word_order: those of words. beta: how much more recall counts than
    precision. lowercase: compare in lower case. whitespace: count spaces.
    """

    name = "chrf"

    char_order: Count = 6
    word_order: Amount = 0
    beta: Positive = 2.0
    lowercase: bool = False
    whitespace: bool = False

    def __post_init__(self) -> None:
        self.beta = float(self.beta)
        self.symmetric = self.beta == 1

    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        first = None if references is None else len(candidates)
        score = _FScore(self.beta)
        for bags in self._bags([*candidates, *(references or ())]):
            sizes = bags.sizes
            score.add(bags.matches(first), sizes[:first, None], sizes[first or 0 :])
        return score.value()

    def compare_with_mean(self, texts: list[str], first: int, start: int, weights: Vector) -> Vector:
        score = _FScore(self.beta)
        for bags in self._bags(texts):
            mean = bags.mean(weights, start)
            score.add(bags.matches_with(mean, first), bags.sizes[:first], mean.sum())
        return score.value()

    def _bags(self, texts: list[str]) -> Iterator[Bags]:
        texts = [text.lower() for text in texts] if self.lowercase else texts
        letters = texts if self.whitespace else ["".join(text.split()) for text in texts]
        yield from ngrams([characters(text) for text in letters], self.char_order)
        if self.word_order:
            yield from ngrams(words(map(_words, texts)), self.word_order)


class _FScore:
    """Sums precision and recall over n, for arrays of pairs that broadcast."""

    def __init__(self, beta: float) -> None:
        self._factor = beta**2
        self._precision: Matrix = np.zeros(())
        self._recall: Matrix = np.zeros(())
        self._orders: Matrix = np.zeros(())

    def add(self, matches: Matrix, ours: Matrix, theirs: Matrix) -> None:
        counts = (ours > 0) & (theirs > 0)
        self._precision = self._precision + np.where(counts, matches / np.maximum(ours, 1), 0.0)
        self._recall = self._recall + np.where(counts, matches / np.where(theirs > 0, theirs, 1), 0.0)
        self._orders = self._orders + counts

    def value(self) -> Matrix:
        orders = np.maximum(self._orders, 1)
        precision, recall = self._precision / orders, self._recall / orders
        below = self._factor * precision + recall
        return (1 + self._factor) * precision * recall / np.where(below > 0, below, 1.0)


def _words(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        match = _WORD.fullmatch(word)
        found += [part for part in match.groups() if part is not None] if match else [word]
    return found
