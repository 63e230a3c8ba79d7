"""Edit distance: the fewest characters to insert, delete or replace (Levenshtein), as a similarity."""

from __future__ import annotations

import numpy as np

from metagen.parts import part
from metagen.verifiers.utility.base import Matrix, TextUtility, library


@part
class EditSimilarity(TextUtility):
    """1 − d(y, y') / max(|y|, |y'|), in characters; two empty texts are equal. Needs rapidfuzz."""

    name = "edit"
    symmetric = True

    def __post_init__(self) -> None:
        self._cdist = library("rapidfuzz.process", "EditSimilarity").cdist
        self._similarity = library("rapidfuzz.distance", "EditSimilarity").Levenshtein.normalized_similarity

    def compare(self, candidates: list[str], references: list[str] | None) -> Matrix:
        # Given the same list twice, cdist computes one half.
        theirs = candidates if references is None else references
        return np.asarray(self._cdist(candidates, theirs, scorer=self._similarity, dtype=np.float64))
