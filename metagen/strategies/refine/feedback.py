"""Feedback: what is said of a candidate, so that it can be mended.

*Extrinsic* feedback brings in something that the model does not know: tests, a checker, a tool. Where it comes from the
model itself it is *intrinsic*: see `critique.py`. Tools are in `tool.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from metagen.border import Part
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.verifiers.base import Verifier


@dataclass(frozen=True, slots=True)
class Remark:
    """What is said of a candidate. text: None where there is nothing to say. done: nothing is left to mend."""

    text: str | None = None
    done: bool = False


class Feedback(Part, ABC):
    """Says something of a candidate. Whatever it calls is called through the scope."""

    @property
    def fingerprint(self) -> str:
        """Names the source: equal fingerprints promise equal remarks."""
        return fingerprint(self)

    @abstractmethod
    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        """A remark on a candidate. score: what the strategy's verifier says of it, where there is one."""


def words(score: Score | None) -> str | None:
    """The words of a score: its feedback, or else its verdict."""
    if score is None:
        return None
    return score.feedback or (f"Verdict: {score.verdict}." if score.verdict else None)


@part
class OwnWords(Feedback):
    """The words of the score that the strategy's verifier has given anyway. Costs nothing."""

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        return Remark(words(score))


@part
class Silence(Feedback):
    """Says nothing: what is revised is known to be unaccepted, and no more. To measure what words are worth."""

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        return Remark()


@part
class WordsOf(Feedback):
    """The words of a verifier other than the one that measures, such as public tests beside a reward model."""

    verifier: Verifier = field(kw_only=False)

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        (said,) = await self.verifier.score([candidate], scope=scope)
        return Remark(words(said))


def source(feedback: Feedback | Verifier | None) -> Feedback:
    """A verifier speaks by its scores; None leaves the words to the one that measures."""
    if feedback is None:
        return OwnWords()
    return WordsOf(feedback) if isinstance(feedback, Verifier) else feedback
