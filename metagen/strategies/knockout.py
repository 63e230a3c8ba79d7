"""A knock-out tournament: candidates meet in pairs, and the winners go on."""

from __future__ import annotations

from dataclasses import field

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import digest
from metagen.strategies.aggregate import Selection, best_of
from metagen.strategies.aggregators import Aggregator, texts
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import ParallelStrategy
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.generative.pairwise import PairwiseJudge, Tournament


@part
class KnockOut(Aggregator):
    """The winner of a bracket of n − 1 comparisons, in ⌈log₂ n⌉ rounds; comparisons of a round run side by side.

    Equal texts are one player. The draw is by salted digests, so that the order of the pool plays no part; with an odd
    number the first of them has a bye. A comparison at ½, or without a value, goes to the one whose digest is larger.
    If the budget ends within a round, who is still in is chosen from by the tie rule.

    Examples:
        >>> import metagen as mg
        >>> from metagen.verifiers.generative.pairwise import PREFERENCE, PairwiseJudge
        >>> from metagen.verifiers.generative.respondent import WritingRespondent
        >>> from metagen.strategies.knockout import KnockOut
        >>> first = mg.FunctionGenerator(lambda prefix, seed, index: "A", name="always the first")
        >>> judge = PairwiseJudge(WritingRespondent(first, PREFERENCE))
        >>> KnockOut(judge).spends  # it asks the judge, so that a part of a budget is kept for it
        True
    """

    judge: PairwiseJudge = field(kw_only=False)
    answer: AnswerRule | None = None

    @property
    def spends(self) -> bool:
        return True

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        players = {c.sequence.text: c.sequence for c in pool}
        seeds = {text: digest(salt, text) for text in players}
        standing = sorted(players, key=seeds.__getitem__)
        matches, round_, told = scope.child("match"), 0, False
        while len(standing) > 1:
            odd = len(standing) % 2
            bye, playing = standing[:odd], standing[odd:]
            pairs = list(zip(playing[::2], playing[1::2], strict=True))
            meeting = [(players[a], players[b]) for a, b in pairs]
            scores = await scope.attempt(self.judge.compare(meeting, scope=matches.child(str(round_))))
            if scores is None:
                break
            told = told or any(score.value is not None for score in scores)
            winners = [_winner(a, b, score.value, seeds) for (a, b), score in zip(pairs, scores, strict=True)]
            # Who has had a bye plays next.
            standing, round_ = winners + bye, round_ + 1
        members = texts(pool)
        inside = [i for i, text in enumerate(members) if text in set(standing)]
        best = best_of([None] * len(inside), [members[i] for i in inside], salt)
        return Selection(inside[best.index], {}, blind=len(players) > 1 and not told)


def _winner(a: str, b: str, value: float | None, seeds: dict[str, bytes]) -> str:
    if value is None or value == 0.5:
        return max(a, b, key=seeds.__getitem__)
    return a if value > 0.5 else b


@part
class KnockOutTournament(ParallelStrategy):
    """Sample n candidates; a judge compares them two by two until one is left: see `KnockOut`.

    Examples:
        >>> import metagen as mg
        >>> from metagen.verifiers.generative.pairwise import PREFERENCE, PairwiseJudge
        >>> from metagen.verifiers.generative.respondent import WritingRespondent
        >>> from metagen.strategies.knockout import KnockOutTournament
        >>> first = mg.FunctionGenerator(lambda prefix, seed, index: "A", name="always the first")
        >>> judge = PairwiseJudge(WritingRespondent(first, PREFERENCE))
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index], name="digits")
        >>> result = KnockOutTournament(draw, 4, judge=judge).solve("A digit?")
    """

    chooses = True

    judge: PairwiseJudge
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        return KnockOut(self.judge, answer=self.answer)


def knockout(
    generator: Generator, n: int, *, judge: Verifier, answer: AnswerRule | None = None
) -> KnockOutTournament:
    """A knock-out tournament for experiment files, by the judge of a verifier of kind `tournament`."""
    return KnockOutTournament(generator, n, judge=pairwise(judge), answer=answer)


vars(knockout).update(chooses=True)


def pairwise(judge: Verifier) -> PairwiseJudge:
    """The judge of a tournament; InputError for another verifier."""
    if not isinstance(judge, Tournament):
        raise InputError(
            f"judge: {judge.name!r} does not compare pairs; expected a verifier of kind tournament"
        )
    return judge.judge
