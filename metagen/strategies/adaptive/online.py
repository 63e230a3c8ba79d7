"""DeepConf online: samples that lose confidence are given up while they are written (Fu et al. 2025, section 3.3).

    warm up:    draw w samples whole;  s ← the ⌈η·w⌉-th largest of their lowest group confidences
    then, each: write block by block;  give up as soon as a group's confidence is below s
    vote:       weighted by confidence, among all samples that never fell below s
    stop:       when the rule says so, or after n samples

A sample's lowest group can only fall as it grows. So what is given up is what the threshold would have filtered out of
whole samples, and tokens are all that is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part, unused
from metagen.scope import Scope
from metagen.sequence import Sequence, Tokens, Until
from metagen.strategies.adaptive.adaptive import ballots
from metagen.strategies.adaptive.confidence import Confidence, Source
from metagen.strategies.adaptive.consistency import Beta
from metagen.strategies.adaptive.filtered import reaches, threshold
from metagen.strategies.adaptive.stopping import StoppingRule
from metagen.strategies.aggregate import weighted_vote
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, offer
from metagen.values import Certainty, Count, Fraction
from metagen.verifiers.base import Answer, AnswerRule


@part
class OnlineConfidence(Strategy):
    """A vote among confident samples that does not pay for the others to the end.

    n: samples in all, of which `warmup` are drawn whole and set the threshold: the confidence that a share `keep` of
    them reaches. window: tokens of a group. block: tokens written between two looks. batch: samples written side by
    side between two questions to `rule` (None: no rule; all at once). rule: says when it is enough; it sees votes
    weighted by confidence; of `top` tokens, by its share of the largest so far, since rules take a weight of 1 for a
    whole vote. confidence: in place of a rule, the vote ends when its leader is as likely as that to stay (`Beta`).

    The warm-up is the beginning of every other strategy's pool; samples written in blocks are draws of their own.
    What was given up is offered without a vote, so that the candidates of a result count all that was begun. A sample
    that ends within its first window is one group. warmup: samples that set the threshold. keep: the share of them
    that reaches it. of: whose probabilities are averaged, those of chosen tokens or of the `top` ones. Raises
    InputError for numbers below 1, UnsupportedError for a generator that cannot write blocks, draws jointly, or does
    not keep what confidence is `of`.
    """

    adaptive = True

    generator: Generator = field(kw_only=False)
    n: Count = field(kw_only=False)
    answer: AnswerRule
    warmup: Count = 16
    keep: Fraction = 0.1
    window: Count = 16
    block: Count = 16
    of: Source = "chosen"
    rule: StoppingRule | None = None
    batch: Count | None = None
    confidence: Certainty | None = None

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        why = (
            "is of samples between two questions to a rule, and there is none; give rule or confidence, or leave batch "
            "out"
        )
        return unused(
            cls, given, ("batch", given.get("rule") is None and given.get("confidence") is None, why)
        )

    def __post_init__(self) -> None:
        self._measure = Confidence("lowest", self.window, of=self.of)
        self._measure.check(self.generator, "OnlineConfidence")
        if self.rule is not None and self.confidence is not None:
            raise InputError("OnlineConfidence: both rule and confidence say when to stop; give one of them")
        self._stops = self.rule if self.confidence is None else Beta(self.confidence)
        able = self.generator.accepts_until and self.generator.accepts_prefix
        if not (able and self.generator.independent):
            raise UnsupportedError(
                f"OnlineConfidence writes independent samples in blocks of tokens, and {self.generator!r} cannot; "
                "give it a generator of its own, not a strategy"
            )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        drawn = await self.generator.generate(prefix, n=min(self.warmup, self.n), scope=scope.child("sample"))
        candidates = await self._judge(drawn, prefix, scope)
        whole = [weight for c in candidates if c.eligible and (weight := _weight(c)) is not None]
        least = threshold(whole, self.keep) if whole else 0.0
        while len(candidates) < self.n and not scope.exhausted and not self._enough(candidates, least):
            numbers = range(len(candidates), min(len(candidates) + (self.batch or self.n), self.n))
            places = [scope.child(f"block/{i}") for i in numbers]
            written = await scope.batch(places, lambda place: self._watch(prefix, least, place))
            begun = [one for one in written.whole() if one is not prefix]
            if not begun:
                break
            candidates += await self._judge(begun, prefix, scope)
        voting = _voting(candidates, least) or [c for c in candidates if c.eligible] or candidates
        keys, values = [c.key for c in voting], [_weight(c) for c in voting]
        texts = [c.sequence.text for c in voting]
        selection = weighted_vote(keys, values, texts, prefix.prompt.digest.hex())
        scope.votes = selection.totals or None
        return replace(voting[selection.index].sequence, exhausted=scope.exhausted or selection.blind)

    async def _watch(self, prefix: Sequence, least: float, scope: Scope) -> Sequence:
        """One sample, to its end or to where it falls below the threshold; as far as it came, if the budget ends."""
        current, block, written = prefix, 0, 0
        while current.finish is None and not self._has_fallen(current, prefix, least):
            more = await scope.attempt(
                self.generator.generate(current, start=block, until=Tokens(self.block), scope=scope)
            )
            if more is None:
                break
            (current,) = more
            block, before, written = block + 1, written, len(self._measure.of_tokens(current, prefix))
            if current.finish is None and written == before:
                break  # nothing was written: it would go on for ever
        return current

    def _has_fallen(self, sequence: Sequence, prefix: Sequence, least: float) -> bool:
        """Whether a whole group lies below the threshold."""
        if sequence.text == prefix.text:
            return False
        values = self._measure.of_tokens(sequence, prefix)
        return len(values) >= self._measure.window and not reaches(self._measure(values), least)

    def _enough(self, candidates: list[Candidate], least: float) -> bool:
        if self._stops is None:
            return False
        voting = _voting(candidates, least)
        if not voting:
            return False
        classes, weights = ballots(voting, True)
        if self._measure.of == "top":
            weights = weights / (weights.max() or 1.0)
        return bool(self._stops.stops(classes, weights)[0])

    async def _judge(self, drawn: list[Sequence], prefix: Sequence, scope: Scope) -> list[Candidate]:
        """Candidates whose score is their confidence; what was given up has no answer, and no vote."""
        candidates = []
        for sequence, answer in zip(drawn, await self.answer.read(drawn), strict=True):
            ended = sequence.finish in ("eos", "stop")
            score = self._measure.score(self._measure.of_tokens(sequence, prefix)) if ended else None
            one = Candidate(sequence, answer if ended else Answer(verdict="missing"), score)
            offer(one, scope)
            candidates.append(one)
        return candidates


def _voting(candidates: list[Candidate], least: float) -> list[Candidate]:
    return [
        c for c in candidates if c.eligible and (weight := _weight(c)) is not None and reaches(weight, least)
    ]


def _weight(candidate: Candidate) -> float | None:
    return candidate.score.raw if candidate.score else None
