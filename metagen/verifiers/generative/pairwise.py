"""Pairwise preference: a judge compares two completions, in both orders, so that no place is an advantage."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from metagen.border import Part, checked
from metagen.errors import InputError
from metagen.logs import logger
from metagen.parts import name_of, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.values import Count
from metagen.verifiers.base import UNSCORED
from metagen.verifiers.generative.question import PREFERENCE
from metagen.verifiers.generative.respondent import Asked, Respondent
from metagen.verifiers.generative.way import GenerativeVerifier, with_wording
from metagen.verifiers.odds import logit, sigmoid
from metagen.verifiers.utility.pairs import Pair, PairUtility

_LOG = logger(__name__)
Merge = Literal["mean", "log-odds"]
Matrix = NDArray[np.float64]
#: wins[i, j], how much i was preferred to j, → the strength of each, in log-odds.
Strengths = Callable[[Matrix], NDArray[np.float64]]
#: Probabilities are kept this far from 0 and 1 where log-odds are taken.
EDGE = 1e-9


@part
class PairwiseJudge(Part):
    """P(a is better than b), asked in both orders: p₁ with a first, p₂ with b first.

    merge: `mean` takes ½ (p₁ + 1 − p₂), in which a bonus on the probability of the first place cancels;
    `log-odds` the mean of the two log-odds for a, in which a bonus on the log-odds cancels. Either way P(a, b)
    = 1 − P(b, a). Equal texts are ½ and not asked about. A text that writes what is the judge's alone (its cue,
    control tokens of its chat) loses against one that does not, with the verdict `forged`. Raises InputError for a
    judge that is asked about single completions.
    """

    respondent: Respondent = field(kw_only=False)
    merge: Merge = "mean"

    def __post_init__(self) -> None:
        if not self.respondent.question.compares:
            raise InputError(
                "the judge's question is about one answer; use PREFERENCE, or one with {first} and {second}"
            )

    @property
    def fingerprint(self) -> str:
        return digest("pairwise judge", self.respondent.fingerprint, self.merge).hex()

    async def compare(self, pairs: abc.Sequence[Pair], *, scope: Scope) -> list[Score]:
        """P(first of the pair is better), one for each pair, in order; raw: its log-odds, where they are finite.

        A pair is asked once, whichever way round it comes. Verdicts are the judge's. Raises a limit's refusal
        where that left out all, InputError for a pair that answers two prompts.
        """
        pairs = [(a.answered, b.answered) for a, b in pairs]
        keys = [_key(a, b) for a, b in pairs]
        known: dict[tuple[bytes, bytes], Score] = {}
        asked: dict[tuple[bytes, bytes], Pair] = {}
        for key, pair in zip(keys, pairs, strict=True):
            a, b = pair if key == (pair[0].digest, pair[1].digest) else pair[::-1]
            if (score := self._tell(a, b)) is not None:
                known[key] = score
            else:
                asked[key] = a, b
        both = [self._ask(*order) for a, b in asked.values() for order in ((a, b), (b, a))]
        answers = await self.respondent.ask(both, scope)
        for i, key in enumerate(asked):
            known[key] = self._merge(answers[2 * i], answers[2 * i + 1])
        return [
            known[key] if key == (pair[0].digest, pair[1].digest) else _other(known[key])
            for key, pair in zip(keys, pairs, strict=True)
        ]

    def _tell(self, a: Sequence, b: Sequence) -> Score | None:
        if a.prompt.digest != b.prompt.digest:
            raise InputError(
                f"completions of two prompts cannot be compared ({a.prompt.problem_id!r}, {b.prompt.problem_id!r})"
            )
        if a.text == b.text:
            return Score(0.5, raw=0.0)
        forged = self.respondent.is_forged(a.text), self.respondent.is_forged(b.text)
        if not any(forged):
            return None
        return Score(0.5 if all(forged) else float(forged[1]), verdict="forged")

    def _ask(self, first: Sequence, second: Sequence) -> Asked:
        prompt = self.respondent.question.prompt(first.prompt, first=first.text, second=second.text)
        return Asked(digest(first.digest, second.digest), prompt)

    def _merge(self, forward: Score, backward: Score) -> Score:
        unread = forward.unread + backward.unread
        for score in (forward, backward):
            if score.value is None:
                return replace(score, unread=unread)
        assert forward.value is not None
        assert backward.value is not None
        if self.merge == "mean":
            value = (forward.value + 1.0 - backward.value) / 2.0
        else:
            value = sigmoid((logit(forward.value, EDGE) - logit(backward.value, EDGE)) / 2.0)
        raw = logit(value, EDGE) if 0.0 < value < 1.0 else None
        return Score(value, raw=raw, feedback=forward.feedback, unread=unread)


@part
class PreferenceUtility(PairUtility):
    """u(y, y') = P(y is better than y'): minimum Bayes risk then takes the highest win rate among the samples.

    Where everyone meets everyone, that is the candidate of the highest strength by Bradley and Terry as well.

    Examples:
        >>> import metagen as mg
        >>> from metagen.verifiers.generative.pairwise import PREFERENCE, PairwiseJudge
        >>> from metagen.verifiers.generative.respondent import WritingRespondent
        >>> from metagen.verifiers.generative.pairwise import PreferenceUtility
        >>> first = mg.FunctionGenerator(lambda prefix, seed, index: "A", name="always the first")
        >>> judge = PairwiseJudge(WritingRespondent(first, PREFERENCE))
        >>> result = mg.MBR(first, 2, utility=PreferenceUtility(judge)).solve("A letter?")
        >>> result.text
        'A'
    """

    name = "preference"

    judge: PairwiseJudge = field(kw_only=False)

    @property
    def fingerprint(self) -> str:
        return digest("preference utility", self.judge.fingerprint).hex()

    async def rate(self, pairs: list[Pair], scope: Scope) -> list[float]:
        scores = await self.judge.compare(pairs, scope=scope)
        # A pair is asked once, whichever way round it comes.
        once = {_key(a.answered, b.answered): score for (a, b), score in zip(pairs, scores, strict=True)}
        if unread := sum(score.unread for score in once.values()):
            _LOG.warning("comparisons cannot be read", extra={"unread": unread, "pairs": len(once)})
        return [math.nan if score.value is None else score.value for score in scores]


@part
class Tournament(GenerativeVerifier):
    """Scores each sequence against the others that are scored with it: a value says nothing beside another set's.

    The words are those of PREFERENCE; the fields are those of `GenerativeVerifier`, and these. merge: as of
    `PairwiseJudge`.

    meetings: opponents of each (fewer if there are fewer); None: everyone meets everyone. The schedule depends
    on what is compared and not on its order. strengths: None gives the win rate, the mean of P(better) over
    the opponents; a function of the matrix of wins gives strengths θ in log-odds, such as `bradley_terry(wins,
    prior=0.5).theta` from `metagen.analysis.preference`, which also takes into account whom one has met; the
    value is then σ(θ), raw θ. Completions of different prompts do not meet. One without a known comparison has
    the verdict `unscored`; one by itself scores ½. One that is `forged` meets nobody, and scores 0. Verdicts that
    cannot be read are counted with the first of the two.
    """

    meetings: Count | None = None
    merge: Merge = "mean"
    strengths: Strengths | None = None
    name: str = "tournament"

    def __post_init__(self) -> None:
        asked = self.ask_about(with_wording(PREFERENCE, self.wording))
        self._hold(PairwiseJudge(asked, merge=self.merge))

    @classmethod
    @checked
    def of(
        cls,
        judge: PairwiseJudge,
        *,
        meetings: Count | None = None,
        strengths: Strengths | None = None,
        name: str = "tournament",
    ) -> Self:
        """A tournament whose judge is there already."""
        tournament = cls.__new__(cls)
        tournament.meetings, tournament.strengths, tournament.name = meetings, strengths, name
        tournament._hold(judge)
        return tournament

    def _hold(self, judge: PairwiseJudge) -> None:
        self.judge, self.respondent = judge, judge.respondent

    @property
    def relative(self) -> bool:
        return True

    @cached_property
    def fingerprint(self) -> str:
        ranked = "" if self.strengths is None else name_of(self.strengths)
        return digest("tournament", self.judge.fingerprint, str(self.meetings), ranked).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        sequences = [s.answered for s in sequences]
        forged = {s.digest for s in sequences if self.judge.respondent.is_forged(s.text)}
        distinct = {s.digest: s for s in sorted(sequences, key=lambda s: s.digest) if s.digest not in forged}
        groups: dict[bytes, list[Sequence]] = {}
        for s in distinct.values():
            groups.setdefault(s.prompt.digest, []).append(s)
        plans = [(group, schedule(len(group), self.meetings)) for group in groups.values()]
        pairs = [(group[i], group[j]) for group, plan in plans for i, j in plan]
        results = iter(await self.judge.compare(pairs, scope=scope))
        scores = dict.fromkeys(forged, Score(0.0, verdict="forged"))
        for group, plan in plans:
            wins = np.zeros((len(group), len(group)))
            unread = [0] * len(group)
            for i, j in plan:
                result = next(results)
                unread[i] += result.unread
                if (value := result.value) is not None:
                    wins[i, j] += value
                    wins[j, i] += 1.0 - value
            ranked = zip(group, self._rank(wins), unread, strict=True)
            scores |= {s.digest: replace(score, unread=count) for s, score, count in ranked}
        return [replace(scores[s.digest], oracle=self.oracle) for s in sequences]

    def _rank(self, wins: Matrix) -> list[Score]:
        if len(wins) == 1:
            return [Score(0.5)]
        met = (wins + wins.T).sum(axis=1)
        scores = [UNSCORED] * len(wins)
        there = np.flatnonzero(met)
        if self.strengths is None:
            for i in there:
                scores[i] = Score(min(1.0, float(wins[i].sum() / met[i])))
        elif there.size:
            theta = self.strengths(wins[np.ix_(there, there)])
            for i, strength in zip(there, theta, strict=True):
                scores[i] = Score(sigmoid(float(strength)), raw=float(strength))
        return scores


def schedule(n: int, meetings: int | None) -> list[tuple[int, int]]:
    """Who meets whom among n: everyone the next d in a circle, d = 1, 2, …; the graph is connected from the
    first round on.

    Each has at least min(meetings, n − 1) opponents (one more, where the number is odd). All of one round come
    before the next, so where a budget ends, all have met about as many.
    """
    reach = n // 2 if meetings is None else min(n // 2, (meetings + 1) // 2)
    plan = []
    for d in range(1, reach + 1):
        # With n even, the round at half the circle meets each pair twice.
        plan += [(i, (i + d) % n) for i in range(n // 2 if 2 * d == n else n)]
    return plan


def _key(a: Sequence, b: Sequence) -> tuple[bytes, bytes]:
    return (a.digest, b.digest) if a.digest <= b.digest else (b.digest, a.digest)


def _other(score: Score) -> Score:
    """The same comparison, seen from the other side."""
    if score.value is None:
        return score
    return replace(score, value=1.0 - score.value, raw=None if score.raw is None else -score.raw)
