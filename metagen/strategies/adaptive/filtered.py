"""Confidence-filtered voting: only the most confident samples vote, each by its confidence (DeepConf, Fu et al. 2025).

This is the offline form, over samples that are there; `online` stops the others while they are being written.
"""

from __future__ import annotations

import math
from collections import abc
from dataclasses import field, replace
from typing import Any, Final

from metagen.errors import InputError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.adaptive.confidence import Confidence, Measure, Source, beside
from metagen.strategies.aggregate import Selection, weighted_vote
from metagen.strategies.aggregators import Aggregator, texts
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import ParallelStrategy
from metagen.values import Count, Fraction
from metagen.verifiers.base import AnswerRule

#: What float32 may change in the confidence of equal tokens that were computed in another batch, or in blocks.
ROUNDING: Final = 1e-5


@part
class Confident(Aggregator):
    """The answer with the largest total confidence among the most confident `keep` of the candidates.

    keep: the share η that votes; the paper has 0.1 and 0.9. Candidates that tie with the last of these vote as well.
    Candidates need the numbers of each token that `confidence` averages: UnsupportedError where they have none.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.adaptive.confidence import Confidence
        >>> from metagen.strategies.adaptive.filtered import Confident
        >>> Confident(mg.NumberRule(prose=True), keep=0.5, confidence=Confidence("tail", window=8)).keep
        0.5
    """

    answer: AnswerRule = field(kw_only=False)
    keep: Fraction = 0.1
    confidence: Confidence = Confidence()

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        confidences = [self.of(c.sequence) for c in pool]
        return confident_vote([c.key for c in pool], confidences, texts(pool), salt, keep=self.keep)

    def of(self, sequence: Sequence) -> float:
        """The confidence of a whole sequence."""
        return self.confidence(self.confidence.of_tokens(sequence))


@part
class ConfidentVote(ParallelStrategy):
    """A vote among the most confident of n samples: see `Confident`, and `Confidence` for the other options.

    share: as of `Confidence`.
    """

    adaptive = True

    answer: AnswerRule
    keep: Fraction = 0.1
    measure: Measure = "bottom"
    window: Count = 16
    share: Fraction = 0.1
    of: Source = "chosen"

    @classmethod
    def conflict(cls, given: abc.Mapping[str, Any]) -> str | None:
        return beside(cls, given)

    def _aggregator(self) -> Aggregator:
        confidence = Confidence(self.measure, self.window, self.share, self.of)
        confidence.check(self.generator, "ConfidentVote")
        return Confident(self.answer, keep=self.keep, confidence=confidence)


def threshold(confidences: abc.Sequence[float], keep: float) -> float:
    """The confidence that a share `keep` of them has at least: the ⌈keep · n⌉-th largest.

    Raises InputError for no confidences, or a share outside (0, 1].
    """
    if not 0.0 < keep <= 1.0 or not confidences:
        raise InputError(
            f"keep={keep!r} of {len(confidences)} samples: expected a share in (0, 1] of at least one"
        )
    # A little less than the product: 0.07 · 100 is 7.000000000000001.
    count = max(1, math.ceil(keep * len(confidences) - 1e-9))
    return sorted(confidences, reverse=True)[count - 1]


def reaches(confidence: float, least: float) -> bool:
    """Whether a confidence is at least a threshold, or ties with it but for rounding."""
    return confidence >= least - ROUNDING * abs(least)


def confident_vote(
    classes: abc.Sequence[str | None],
    confidences: abc.Sequence[float],
    members: abc.Sequence[str],
    salt: str,
    *,
    keep: float,
) -> Selection:
    """A vote weighted by confidence among those that reach the threshold; keep = 1 is a weighted vote of all."""
    least = threshold(confidences, keep)
    kept = [i for i, value in enumerate(confidences) if reaches(value, least)]
    chosen = weighted_vote(
        [classes[i] for i in kept], [confidences[i] for i in kept], [members[i] for i in kept], salt
    )
    return replace(chosen, index=kept[chosen.index])
