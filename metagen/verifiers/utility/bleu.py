"""BLEU of sentences: clipped precision of word n-grams with a brevity penalty (Papineni et al. 2002)."""

from __future__ import annotations

import numpy as np

from metagen.errors import InputError
from metagen.parts import part
from metagen.values import Count
from metagen.verifiers.utility.aggregation import AggregatingUtility
from metagen.verifiers.utility.base import Matrix, Vector, library
from metagen.verifiers.utility.ngrams import Ids, ngrams, words


@part
class BLEU(AggregatingUtility):
    """Sentence BLEU in [0, 1]: a hundredth of sacrebleu's figure, with its tokenizer and its smoothing `exp`.

    effective_order: orders for which a candidate is too short are left out, as is right for sentences; without, they
    make it 0. aggregate: `expected` compares with the mean n-gram counts and the mean length of the references, as
    ChrF does; `matrix` is the same. Needs sacrebleu, whose `tokenize` names a tokenizer. tokenize: the tokenizer of
    sacrebleu. max_order: the longest n-grams. lowercase: compare in lower case. Raises InputError for an unknown
    tokenizer.

    Examples:
        >>> from metagen.verifiers.utility.bleu import BLEU
        >>> BLEU().compare(["the cat sleeps on the mat"], ["the cat sleeps on a mat"]).round(2).tolist()
        [[0.54]]
    """

    name = "bleu"

    tokenize: str = "13a"
    max_order: Count = 4
    effective_order: bool = True
    lowercase: bool = False

    def __post_init__(self) -> None:
        metric = library("sacrebleu", "BLEU").BLEU
        if self.tokenize not in metric.TOKENIZERS:
            known = ", ".join(sorted(metric.TOKENIZERS))
            raise InputError(f"tokenize={self.tokenize!r}: expected one of {known}")
        self._tokenizer = metric(tokenize=self.tokenize).tokenizer

    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        documents = self._documents([*candidates, *(references or ())])
        first = None if references is None else len(candidates)
        lengths = np.array([len(d) for d in documents], dtype=np.float64)
        ours, theirs = lengths[:first, None], lengths[first or 0 :]
        bags = list(ngrams(documents, self.max_order))
        matches = [b.matches(first) for b in bags]
        return self._score(matches, [b.sizes[:first, None] for b in bags], _brevity(ours, theirs))

    def compare_with_mean(self, texts: list[str], first: int, start: int, weights: Vector) -> Vector:
        documents = self._documents(texts)
        lengths = np.array([len(d) for d in documents], dtype=np.float64)
        bags = list(ngrams(documents, self.max_order))
        matches = [b.matches_with(b.mean(weights, start), first) for b in bags]
        length = (lengths[start:] * weights).sum() / weights.sum()
        return self._score(matches, [b.sizes[:first] for b in bags], _brevity(lengths[:first], length))

    def _documents(self, texts: list[str]) -> list[Ids]:
        texts = [text.lower() for text in texts] if self.lowercase else texts
        return words(self._tokenizer(text.rstrip()).split() for text in texts)

    def _score(self, matches: list[Matrix], totals: list[Matrix], brevity: Matrix) -> Matrix:
        """Brevity penalty times the geometric mean of precisions.

        Each order without a match halves what counts as a match (smoothing `exp`).
        """
        smooth, logs, orders = np.ones(brevity.shape), np.zeros(brevity.shape), np.zeros(brevity.shape)
        for match, total in zip(matches, totals, strict=True):
            reached = total > 0
            smooth = np.where(reached & (match == 0), smooth * 2, smooth)
            precision = np.where(match > 0, match, 1 / smooth) / np.maximum(total, 1)
            logs += np.where(reached, np.log(precision), 0.0)
            orders += reached
        score = brevity * np.exp(logs / np.maximum(orders, 1))
        counts = np.any([match > 0 for match in matches], axis=0)
        if not self.effective_order:
            counts &= orders == self.max_order
        return np.where(counts, score, 0.0)


def _brevity(ours: Matrix, theirs: Matrix | float) -> Matrix:
    """exp(1 − r/c) for a candidate of c words that is shorter than its reference of r."""
    return np.exp(np.minimum(0.0, 1 - theirs / np.maximum(ours, 1)))
