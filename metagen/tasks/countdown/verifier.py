"""Playing as a verifier: a solution that breaks the rules, or misses the target, is wrong. Needs no reference."""

from __future__ import annotations

from collections import abc

from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.tasks.countdown import notation
from metagen.tasks.countdown.game import COUNTDOWN, table
from metagen.tasks.countdown.task import solves
from metagen.verifiers.base import PrimitiveVerifier, score_payload


class Played(PrimitiveVerifier):
    """1 for a solution, and for the beginning of one as long as its steps keep to the rules; else 0.

    When one number is left it has to be the target. Before, whether the target can still be reached is not asked: that
    is for a value model, beside which this can stand in an ensemble that takes the worst. Charged one call.
    """

    def __init__(self, *, name: str = "played") -> None:
        self.name = name

    @property
    def fingerprint(self) -> str:
        return digest("countdown played", repr(COUNTDOWN)).hex()

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        return [Outcome(score_payload(Score(float(_right(s)))), Usage(calls=1)) for s in sequences]

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))


def _right(sequence: Sequence) -> bool:
    if sequence.finish is not None:
        return solves(sequence)
    public = sequence.prompt.public
    played = notation.replay(table(public["numbers"]), sequence.text, finished=False)
    return all(played.steps) and (not played.complete or played.table == (public["target"],))
