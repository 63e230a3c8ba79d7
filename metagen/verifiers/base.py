"""Verifiers score sequences; answer rules read answers out of them. Both say so when they cannot."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import abc
from dataclasses import dataclass
from typing import ClassVar

from metagen.border import Part, one_each, promises
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.journal import Row
from metagen.parts import fingerprint
from metagen.scope import Scope
from metagen.sequence import Score, Sequence


class Verifier(Part, ABC):
    """v(sequence) in [0, 1]: outcome verifiers score the whole, process verifiers each step.

    An author writes `score`; its scores are then neither recorded nor charged. `FunctionVerifier` records those of a
    function, and `PrimitiveVerifier` those of batches, models and programs. name: the key of its scores.
    """

    name: str = "verifier"
    #: Verifiers that it is made of; they score, record and charge themselves.
    members: abc.Sequence[Verifier] = ()

    @property
    def relative(self) -> bool:
        """Whether a score says something only beside those of the sequences that are scored with it."""
        return any(member.relative for member in self.members)

    @property
    def by_sample(self) -> bool:
        """Whether a score belongs to the sample and not to its text: of equal texts each has its own."""
        return any(member.by_sample for member in self.members)

    @property
    def whole(self) -> bool:
        """Whether it judges whole solutions only: it was not made, or trained, for the beginning of one."""
        return any(member.whole for member in self.members)

    @property
    def spends(self) -> bool:
        """Whether a score may cost anything, so that a part of a budget is kept for it."""
        return not self.members or any(member.spends for member in self.members)

    @property
    def generates(self) -> bool:
        """Whether a score may cost generated tokens: a limit of these then binds sampling and scoring alike."""
        return self.spends and (not self.members or any(member.generates for member in self.members))

    @property
    def fingerprint(self) -> str:
        """Names the verifier: equal fingerprints promise equal scores. By default its class and its fields."""
        return fingerprint(self, recorded=True)

    @abstractmethod
    @promises(one_each("sequences"))
    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        """One score per sequence, in order; an empty list for none.

        When a limit binds, the sequences that were not reached get the verdict `unscored`; where none was reached,
        the limit's refusal is raised.
        """


UNSCORED = Score(None, verdict="unscored")


class PrimitiveVerifier(Verifier):
    """A verifier whose scores are leaf calls: batched, recorded, and charged to the budget."""

    #: Whether it is shown the thoughts of sequences, in `Sequence.thought`; else it sees the answers alone.
    sees_thoughts: bool = False
    #: It is made of no others; what it holds is data.
    oracle: ClassVar[bool] = False
    generates: ClassVar[bool] = False

    @property
    def records(self) -> str:
        """Names what is recorded: the fingerprint, less what is done to a recorded score afterwards."""
        return self.fingerprint

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        if not sequences:
            return []
        if not self.sees_thoughts:
            sequences = [s.answered for s in sequences]
        # Equal candidates are scored, and paid for, once.
        distinct = {s.digest: s for s in sequences}
        items = tuple(Item(content) for content in distinct)
        unique = list(distinct.values())
        request = Request("score", self.records, items)

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            return await self.evaluate([unique[i] for i in positions], scope, ended)

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            return self.worst([unique[i] for i in positions], scope)

        rows = await scope.call(
            request, execute, worst, lambda rows: self.remember([distinct[r.content] for r in rows], scope)
        )
        scores = {row.content: score_of(row) for row in rows}
        return [scores.get(s.digest, UNSCORED) for s in sequences]

    @abstractmethod
    @promises(one_each("sequences"))
    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        """One outcome per sequence; its payload is made by `score_payload`.

        ended: where to put outcomes by place in `sequences` as they end before the others, which records them at once.
        Empty where scores end together.
        """

    @abstractmethod
    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        """Logical worst case of scoring these sequences."""

    def remember(self, sequences: abc.Sequence[Sequence], scope: Scope) -> None:
        """Note in the logical prefix cache what has been scored."""


def score_payload(score: Score) -> dict[str, object]:
    """A score as JSON, without what is empty."""
    values = {f.name: getattr(score, f.name) for f in dataclasses.fields(score)}
    empty = {"unread": 0}
    return {
        name: v for name, v in values.items() if v is not None and v is not False and empty.get(name) != v
    }


def score_of(row: Row) -> Score:
    """The score in a row."""
    data = dict(row.payload or {})
    if data.get("steps") is not None:
        data["steps"] = tuple(data["steps"])
    return Score(**{"value": None, **data})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sequence answers. text: as written; key: canonical, equal for equal answers.

    key None: there is no answer, or none that can be read; `verdict` says which: `missing`, `unparsable`, or
    `ambiguous` (several answers where one is expected).
    needed: without a key the sequence loses to any that has one. False where answers serve votes alone: such a sequence
    has no vote, and may be chosen by its score all the same.
    """

    text: str | None = None
    key: str | None = None
    verdict: str | None = None
    needed: bool = True


class AnswerRule(Part, ABC):
    """Reads the answer out of a sequence and gives its canonical key."""

    #: Whether it knows which answers are right: what votes by it is marked in every result.
    oracle: bool = False

    @property
    def fingerprint(self) -> str:
        """Names the rule: equal fingerprints promise equal keys. By default its class and its fields."""
        return fingerprint(self, recorded=True)

    @abstractmethod
    @promises(one_each("sequences"))
    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        """One answer per sequence, in order."""

    @abstractmethod
    async def key(self, answer: str) -> str | None:
        """The canonical key of an answer that stands by itself, such as a reference; None if unreadable."""
