"""Blockwise controlled decoding: the best of n blocks, then the best of n that go on from it.

Mudgal et al. 2024, Controlled decoding from language models, arXiv:2310.17022.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import count

from metagen.errors import InputError, MetagenError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Tokens, Until
from metagen.strategies.aggregate import best_of
from metagen.strategies.aggregators import ranks, texts
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, judge
from metagen.strategies.tree.search import check_generator, check_verifier
from metagen.strategies.tree.split import Steps, steps
from metagen.values import Count
from metagen.verifiers.base import AnswerRule, Verifier


@part
class Blockwise(Strategy):
    """Draws n blocks that continue the prefix, commits to the one with the highest value, and goes on from there:

        z* = argmax_{z_1 … z_n ~ p(· | x, y)} v(x, y z),  y ← y z*,  until y ends.

    block: Tokens(m), an integer m for the same, Step(delimiter) or Split(find, name); None is the whole sequence at
    once, which is best-of-n: the same samples, the same choice. n = 1 is plain sampling. verifier: scores prefixes (a
    process reward model, a value model); an end that adds nothing has the score of what it ends. Each block is
    streamed in the moment in which it is committed to.

    Each block moves the policy away from the generator by at most log n − (n − 1)/n nats: see
    `metagen.analysis.alignment.kl_bound`.

    Of a block's candidates, one that was cut (by the generator's `max_tokens`, or a step by its length), or that ended
    without a readable answer, loses to any other. When a budget ends, the best of the candidates at hand is returned,
    or what was committed to: never something that was not streamed.

    Raises InputError for n or a block < 1, and without a verifier; UnsupportedError for a generator that cannot stop at
    a block and go on, or whose draws are joint, and for blocks with a verifier that scores whole solutions only.
    """

    searches = True

    generator: Generator = field(kw_only=False)
    n: Count = field(kw_only=False)
    verifier: Verifier
    block: Steps | Count | None = None
    answer: AnswerRule | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not self.generator.independent:
            raise UnsupportedError(f"{name} pools independent draws; {self.generator!r} draws jointly")
        self.until = self.block = Tokens(self.block) if isinstance(self.block, int) else self.block
        if self.until is not None:
            check_generator(name, self.generator, self.until)
            check_verifier(name, self.verifier)
        elif self.verifier is None:
            raise InputError(f"{name} chooses by scores: give a verifier")
        self.accepts_prefix = self.generator.accepts_prefix

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        known: dict[bytes, Score] = {}
        for number in count():
            # The first block's candidates stand where those of parallel strategies do.
            place = scope.child(f"block/{number}") if number else scope
            candidates = await scope.attempt(self._draw(prefix, place, scope, known))
            if candidates is None:
                return replace(prefix, exhausted=True)
            chosen = self._best(candidates, prefix)
            scope.emit(chosen)
            if chosen.finish is not None or chosen.exhausted:
                return chosen
            if (chosen.text, chosen.tokens) == (prefix.text, prefix.tokens):
                raise MetagenError(
                    f"{type(self).__name__}: {self.generator!r} wrote nothing for block {number} after "
                    f"{prefix.text[-40:]!r}, and did not end; a generator's block has at least one token"
                )
            prefix = chosen
        raise AssertionError("blocks are counted without end")

    async def _draw(
        self, prefix: Sequence, place: Scope, scope: Scope, known: dict[bytes, Score]
    ) -> list[Candidate]:
        """The candidates of one block, scored; if scores are refused, as they are, and marked as exhausted.

        known: the scores so far, by digest.
        """
        drawn = await steps(self.generator, prefix, self.until, n=self.n, scope=place.child("sample"))
        scoring = place.child("score")
        scored = await scope.attempt(
            judge(drawn, scope, answer=self.answer, verifier=self.verifier, scoring=scoring, known=known)
        )
        if scored is not None:
            return scored
        answers = await self.answer.read(drawn) if self.answer else [None] * len(drawn)
        return [Candidate(replace(s, exhausted=True), a) for s, a in zip(drawn, answers, strict=True)]

    def _best(self, candidates: list[Candidate], prefix: Sequence) -> Sequence:
        """The highest value, by the rule of best-of-n among those that may go on or have ended well."""
        pool = [c for c in candidates if c.eligible or _goes_on(c.sequence)] or candidates
        salt = prefix.prompt.digest.hex()
        selection = best_of(ranks(pool), texts(pool), salt)
        chosen = pool[selection.index]
        sequence = chosen.sequence
        if selection.blind and self.until is None:
            sequence = replace(sequence, exhausted=True)
        return sequence.with_score(self.verifier.name, chosen.score) if chosen.score else sequence


def _goes_on(sequence: Sequence) -> bool:
    """Whether it can be continued, and does not break off within a step."""
    return sequence.finish is None and not sequence.cut
