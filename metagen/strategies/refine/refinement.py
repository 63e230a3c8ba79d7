"""Refinement: write a draft, say what is wrong with it, revise it; keep the best seen."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.parts import part, unused
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, judge, offer
from metagen.strategies.parallel import BestOfN
from metagen.strategies.prompts import REVISE, Form, ask_by, begin
from metagen.strategies.refine.feedback import Feedback, Remark, Silence, silenced, source
from metagen.strategies.refine.trajectory import Ending, Made, Round, Trajectory
from metagen.values import Amount, Share
from metagen.verifiers.base import UNSCORED, AnswerRule, Verifier
from metagen.verifiers.recorded import RecordedVerifier


@part
class RefinementStrategy(Strategy):
    """y_0 ~ g(x), then y_{k+1} ~ c(x, y_k, f(y_k)) for at most `rounds` rounds, until v(y_k) ≥ accept.

    Returned is the y_k with the highest v, the first of equals, so it is never worse than the draft by v itself. What
    is cut or has no answer (with `answer`) loses to whatever has one, and is never accepted. Without a verifier the
    last y_k is returned: then only the feedback can be content.

    ask: from task, candidate and feedback to the corrector's prompt; a revision is a whole answer, and begins with
    the prefix that it is asked for. Equal texts are scored, and remarked on, once: a corrector that gives back what
    it got costs no score. One that writes nothing leaves the candidate as it is; the round counts. verifier: scores
    the y_k. rounds: revisions at most. accept: the score that ends the chain.
    """

    generator: Generator = field(kw_only=False)
    verifier: Verifier | None = None
    rounds: Amount = 3
    accept: Share = 1.0
    ask: Form[str, str | None] = REVISE
    answer: AnswerRule | None = None

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        why = "ends nothing, for nothing scores an answer; give a verifier, or leave accept out"
        return unused(cls, given, ("accept", given.get("verifier") is None, why))

    def __post_init__(self) -> None:
        self.accepts_prefix = self.generator.accepts_prefix and self.reviser.accepts_prefix

    @property
    def reviser(self) -> Generator:
        """Who writes revisions."""
        return self.generator

    @property
    @abstractmethod
    def remarker(self) -> Feedback:
        """Where words come from."""

    @property
    @abstractmethod
    def remembers(self) -> int:
        """How many attempts before the one that is revised the corrector's prompt carries."""

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        trajectory = await self.trajectory(prefix, scope)
        best = trajectory.rounds[trajectory.best].candidate if trajectory.rounds else Candidate(prefix)
        sequence = best.sequence
        if self.verifier is not None:
            # Always with a score, so that who chooses among chains can read it: see RecordedVerifier.
            sequence = sequence.with_score(self.verifier.name, best.score or UNSCORED)
        return replace(sequence, exhausted=True) if trajectory.ended == "budget" else sequence

    async def trajectory(self, prefix: Sequence, scope: Scope) -> Trajectory:
        """All rounds, for studies and for training data; a budget that ends leaves those that there are."""
        rounds: list[Round] = []
        ended = await scope.attempt(self._refine(prefix, scope, rounds))
        return Trajectory(tuple(rounds), ended or "budget", self._best(rounds))

    async def _refine(self, prefix: Sequence, scope: Scope, rounds: list[Round]) -> Ending:
        scoring = scope.child("score")
        (draft,) = await self.generator.generate(prefix, scope=scope.child("sample"))
        await self._add(draft, "draft", rounds, scope, scoring)
        for k in range(1, self.rounds + 1):
            if ended := self._ending(rounds[-1], scope):
                return ended
            if (await self._remark(rounds, scope.child(f"feedback/{k}"))).done:
                return "content"
            if scope.exhausted:
                return "budget"
            written = await self._revision(prefix, rounds, f"revise/{k}", scope)
            if written is None:
                return "room"
            if not written.text[len(prefix.text) :].strip():
                rounds.append(replace(rounds[-1], made="nothing"))
                continue
            # It begins with the prefix: under the task's own prompt it is a completion of that.
            revision = written.reroot(Sequence.of(prefix.prompt))
            same = revision.text == rounds[-1].candidate.sequence.text
            await self._add(revision, "copy" if same else "revision", rounds, scope, scoring)
        return self._ending(rounds[-1], scope) or "rounds"

    async def _add(
        self, sequence: Sequence, made: Made, rounds: list[Round], scope: Scope, scoring: Scope
    ) -> None:
        """Judge and offer what was written, unless its text has been judged before, or the budget has cut it."""
        known = next((r for r in rounds if r.candidate.sequence.text == sequence.text), None)
        if known is not None:
            candidate = replace(known.candidate, sequence=sequence)
            rounds.append(Round(candidate, made, known.remark))
            offer(candidate, scope)
            return
        rounds.append(Round(Candidate(sequence), made))  # what there is if its score is refused
        if scope.exhausted:
            scope.offer(sequence)
            return
        (candidate,) = await judge(
            [sequence], scope, answer=self.answer, verifier=self.verifier, scoring=scoring
        )
        rounds[-1] = Round(candidate, made)

    def _ending(self, last: Round, scope: Scope) -> Ending | None:
        value = last.candidate.value
        if last.candidate.eligible and value is not None and value >= self.accept:
            return "accepted"
        return "budget" if scope.exhausted else None

    async def _remark(self, rounds: list[Round], scope: Scope) -> Remark:
        """What is said of the last candidate, noted in its round; what was said of the same text before."""
        last = rounds[-1]
        remark = last.remark or await self.remarker.on(last.candidate.sequence, last.candidate.score, scope)
        rounds[-1] = replace(last, remark=remark)
        return remark

    async def _revision(
        self, prefix: Sequence, rounds: list[Round], role: str, scope: Scope
    ) -> Sequence | None:
        """What the corrector writes, under another prompt. The earliest attempts are forgotten until it fits."""
        most = min(self.remembers, len({one.candidate.sequence.text for one in rounds}) - 1)
        for memory in range(most, -1, -1):
            place = role if memory == most else f"{role}/memory/{memory}"
            question = self.question(prefix.prompt, rounds, memory)
            try:
                (written,) = await self.reviser.generate(begin(prefix, question), scope=scope.child(place))
            except PromptError:  # longer than the context, by what this strategy has put in
                continue
            rounds[-1] = replace(rounds[-1], asked=question)
            return written
        return None

    def question(self, task: Prompt, rounds: abc.Sequence[Round], memory: int) -> Prompt:
        """What the corrector is asked after these rounds: x, y_{k−memory}, f, …, y_k, f, each put by `ask`.

        The attempts are the last different ones, with what was first said of each.
        """
        attempts = {one.candidate.sequence.text: one.remark for one in reversed(rounds)}
        for text, remark in reversed(list(attempts.items())[: memory + 1]):
            task = ask_by(self.ask, task, text, remark.text if remark else None)
        return task

    def _best(self, rounds: list[Round]) -> int:
        """The highest value, the first of equals; without a verifier the last. The eligible come before the rest."""

        def rank(k: int) -> tuple[bool, bool, float]:
            candidate = rounds[k].candidate
            value = candidate.value if self.verifier is not None else float(k)
            return candidate.eligible, value is not None, value or 0.0

        return max(range(len(rounds)), key=rank, default=0)


@part
class Refinement(RefinementStrategy):
    """Refinement with any parts: see `RefinementStrategy` for what they do.

    corrector: writes the revisions; the generator itself by default. feedback: where words come from, a
    `Feedback` or another verifier; by default the verifier's scores. memory: how many
    attempts before the one that is revised the prompt carries, each with what was said of it; fewer where they do not
    fit the corrector's context, and where not even the last fits, no more is revised.

    Raises InputError for rounds or memory < 0, accept outside [0, 1], and where nobody would judge or say anything.
    """

    corrector: Generator | None = field(default=None, kw_only=False)
    feedback: Feedback | Verifier | None = None
    memory: Amount = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verifier is None and self.feedback is None and self.rounds:
            raise InputError(
                f"{type(self).__name__}: neither verifier nor feedback; give a verifier whose scores have words, "
                "feedback=Critique(…) for the model's own, or feedback=Silence() to revise without any"
            )

    @property
    def reviser(self) -> Generator:
        return self.corrector or self.generator

    @property
    def remarker(self) -> Feedback:
        return source(self.feedback)

    @property
    def remembers(self) -> int:
        return self.memory


def refinement(
    generator: Generator,
    n: int,
    *,
    verifier: Verifier,
    corrector: Generator | None = None,
    feedback: Verifier | None = None,
    silent: bool = False,
    rounds: Amount = 3,
    accept: Share = 1.0,
    memory: Amount = 0,
    ask: Form[str, str | None] = REVISE,
    answer: AnswerRule | None = None,
) -> BestOfN:
    """N chains, for experiment files; the scores that they have paid for choose among them. silent: says nothing.

    n: chains. corrector, feedback, rounds, accept, memory, ask: as of `Refinement`.
    """
    if odd := silenced({"silent": silent, "feedback": feedback}):
        raise InputError(f"refinement: {odd}")
    chain = Refinement(
        generator, corrector, verifier=verifier, feedback=Silence() if silent else feedback, rounds=rounds,
        accept=accept, memory=memory, ask=ask, answer=answer,
    )  # fmt: skip
    return BestOfN(chain, n, verifier=RecordedVerifier(verifier.name), answer=answer)


vars(refinement).update(conflict=silenced)
