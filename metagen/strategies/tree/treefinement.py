"""Treefinement: a tree of whole programs, in which a node's children are revisions of it.

Aggarwal et al. 2024, AlphaVerus: bootstrapping formally verified code generation, arXiv:2412.06176, section 3.2.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part, unused
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.candidates import Candidate, offer
from metagen.strategies.prompts import REVISE, Form, ask_by, begin
from metagen.strategies.refine.feedback import Feedback, Remark, Silence, silenced, source
from metagen.strategies.tree.node import Node, Tree
from metagen.strategies.tree.rebase import allocate
from metagen.strategies.tree.search import TreeStrategy
from metagen.values import Amount, Count, Positive, Share
from metagen.verifiers.base import UNSCORED, Answer, AnswerRule, Verifier

Select = Literal["rebase", "best-first"]


@dataclass(slots=True, eq=False)
class Program(Node):
    """A whole candidate: a draft, or a revision of its parent. answer: what it answers, where answers are read."""

    answer: Answer | None = None

    @property
    def step(self) -> str:
        """All of it: a revision does not go on from its parent's text."""
        return self.sequence.text

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.sequence, self.answer, self.score)


@part
class Treefinement(TreeStrategy):
    """n drafts, then n revisions a round, shared among the candidates by what the verifier says of them, until one is
    accepted.

    The parts are those of `Refinement`: corrector (the generator by default), verifier, feedback (the verifier's own
    words by default), ask and accept. silent: says nothing, as `Silence` does. select: who is revised.

    - `rebase`: the candidates of the last round, n_i ∝ exp(v_i/temperature), by REBASE's rule;
    - `best-first`: of all that have not been revised yet, the n/m best, by m revisions each.

    A text that was there before is neither scored nor revised again: it is a pruned node, and so is a revision of
    nothing. Where a round brings nothing new, those that it was to revise are revised again. What its feedback holds
    to be done, or what no longer fits into a prompt, has no revisions. The best value is returned, the first of
    equals; what is cut or has no answer (with `answer`) loses to whatever has one, and is never accepted. n = 1 is a
    chain of revisions. `tree` shows the whole tree. temperature: of the softmax that shares out revisions. m:
    revisions of a candidate at a time, by `best-first`. corrector, feedback, ask, rounds, accept: as of `Refinement`.

    Raises InputError for numbers out of range, n that is no multiple of m, and an unknown rule; UnsupportedError for
    generators that draw jointly, and a verifier that scores candidates relative to each other.
    """

    searches = True

    #: Numbers that are no larger than n where a file gives several n.
    narrows: ClassVar[frozenset[str]] = frozenset({"m"})

    generator: Generator = field(kw_only=False)
    n: Count = field(default=8, kw_only=False)
    verifier: Verifier
    corrector: Generator | None = None
    feedback: Feedback | Verifier | None = None
    ask: Form[str, str | None] = REVISE
    rounds: Amount = 3
    accept: Share = 1.0
    silent: bool = False
    select: Select = "rebase"
    temperature: Positive = 0.2
    m: Count = 1
    answer: AnswerRule | None = None

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        rebase = given.get("select") == "rebase"
        return silenced(given) or unused(
            cls, given,
            ("m", rebase, "is of select='best-first'; give that, or leave m out"),
            ("temperature", not rebase, "is of select='rebase'; leave it out"),
        )  # fmt: skip

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.n % self.m:
            raise InputError(
                f"{name}: n={self.n!r} revisions cannot be made m={self.m!r} at a time; give a multiple"
            )
        self._corrector = self.corrector or self.generator
        for one in (self.generator, self._corrector):
            if not one.independent:
                raise UnsupportedError(f"{name} pools independent draws; {one!r} draws jointly")
        if self.verifier.relative:
            raise UnsupportedError(
                f"{name}: {self.verifier.name!r} scores candidates relative to each other, and those of all rounds are "
                "compared; give a verifier that scores each by itself"
            )
        self._feedback = Silence() if self.silent else source(self.feedback)
        self.accepts_prefix = self.generator.accepts_prefix and self._corrector.accepts_prefix

    async def _search(self, prefix: Sequence, scope: Scope) -> Tree:
        tree = Programs(prefix, scope.child("node"))
        scope.tell(tree)
        wanted: Mapping[Node, int] = {tree.root: self.n}
        ended = False
        for _ in range(1 + self.rounds):
            fresh, ended = await self._revise(tree, wanted, scope)
            if ended or any(self._accepts(node) for node in tree.programs):
                break
            again = [node for node in wanted if node.parent and node.state != "pruned"]
            wanted = self._share(tree, fresh or again or tree.able)
        best = max(tree.programs, key=lambda node: _rank(node.candidate), default=None)
        chosen = best.sequence.with_score(self.verifier.name, best.score or UNSCORED) if best else prefix
        tree.chosen = replace(chosen, exhausted=True) if ended or scope.exhausted else chosen
        return tree

    def _accepts(self, node: Program) -> bool:
        value = node.candidate.value
        return node.candidate.eligible and value is not None and value >= self.accept

    def _share(self, tree: Programs, last: abc.Sequence[Node]) -> Mapping[Node, int]:
        """Who is revised how often in the next round; `last`: what the last one has brought, or else had revised."""
        if self.select == "best-first":
            able = [node for node in tree.able if node.open] or tree.able
            best = sorted(able, key=lambda node: _rank(node.candidate), reverse=True)
            return dict.fromkeys(best[: self.n // self.m], self.m)
        copies = [node.multiplicity for node in last]
        counts = allocate([node.value for node in last], self.n, temperature=self.temperature, copies=copies)
        return {node: count for node, count in zip(last, counts, strict=True) if count}

    # -- one round -------------------------------------------------------------------------------

    async def _revise(
        self, tree: Programs, wanted: Mapping[Node, int], scope: Scope
    ) -> tuple[list[Node], bool]:
        """Draw and score; what is new, and whether a limit refused anything."""
        known, revising = dict(tree.scores), [Revising(tree, node, n) for node, n in wanted.items()]
        done = await scope.batch(revising, self._draw, lambda one: self._score(one, known))
        fresh: list[Program] = []
        for k, one in enumerate(revising):
            answers = await self.answer.read(one.sequences) if self.answer else [None] * len(one.sequences)
            if one.sequences or k not in done.refused:
                fresh += tree.grow(one.node, one.sequences, one.scores, answers)
        for node in fresh:
            offer(node.candidate, scope)
        return [*fresh], bool(done.refused)

    async def _draw(self, one: Revising) -> None:
        one.sequences = await self._write(one)
        one.scores = [one.tree.scores.get(s.text, UNSCORED) for s in one.sequences]

    async def _write(self, one: Revising) -> list[Sequence]:
        """Drafts, or revisions: whole answers, which begin with the prefix."""
        node, prefix, place = one.node, one.tree.root.sequence, one.tree.place(one.node)
        if node.parent is None:
            return await self.generator.generate(prefix, n=one.n, start=node.asked, scope=place)
        if node not in one.tree.remarks:
            one.tree.remarks[node] = await self._feedback.on(
                node.sequence, node.score, place.child("feedback")
            )
        remark = one.tree.remarks[node]
        if remark.done:
            return []
        under = begin(prefix, ask_by(self.ask, prefix.prompt, node.sequence.text, remark.text))
        try:
            written = await self._corrector.generate(under, n=one.n, start=node.asked, scope=place)
        except PromptError:  # longer than the context, by what this strategy has put in
            return []
        return [sequence.reroot(Sequence.of(prefix.prompt)) for sequence in written]

    async def _score(self, one: Revising, known: Mapping[str, Score]) -> None:
        """Scores of what was drawn; what has one already is not scored again."""
        new = {s.text: s for s in one.sequences if s.text not in known and s.text.strip()}
        if new:
            scores = await self.verifier.score(list(new.values()), scope=one.tree.place(one.node, "score"))
            found = {**known, **dict(zip(new, scores, strict=True))}
            one.scores = [found.get(s.text, UNSCORED) for s in one.sequences]


class Programs(Tree):
    """A tree of whole candidates. programs: those that say something new, in the order of the rounds.

    scores: by text. remarks: what was said of those that were revised.
    """

    def __init__(self, prefix: Sequence, scope: Scope) -> None:
        super().__init__(prefix, scope.path)
        self.programs: list[Program] = []
        self.scores: dict[str, Score] = {}
        self.remarks: dict[Node, Remark] = {}
        self._scope, self._places = scope, dict[str, Scope]()

    @property
    def able(self) -> list[Program]:
        """Those that can be revised."""
        return [node for node in self.programs if node.state != "pruned"]

    def place(self, node: Node, role: str = "") -> Scope:
        """Where a node's children are drawn, or something else is done for it."""
        name = f"{node.name}/{role}" if role else node.name
        if name not in self._places:
            self._places[name] = self._scope.child(name)
        return self._places[name]

    def grow(
        self,
        parent: Node,
        sequences: abc.Sequence[Sequence],
        scores: abc.Sequence[Score],
        answers: abc.Sequence[Answer | None],
    ) -> list[Program]:
        """A node's next draws become its children, equal ones one child; returned is what is new to the tree."""
        if parent.open:
            parent.state = "expanded" if sequences else "pruned"
        fresh: list[Program] = []
        siblings = {child.sequence.text: child for child in parent.draws.values()}
        for sequence, score, answer in zip(sequences, scores, answers, strict=True):
            child = siblings.get(sequence.text)
            if child is None:
                position = (*parent.position, parent.asked)
                child = Program(sequence, position, parent, score, multiplicity=0, answer=answer)
                siblings[sequence.text] = self._nodes[position] = child
                if sequence.text in self.scores or not sequence.text.strip():
                    child.prune()
                else:
                    fresh.append(child)
                    self.scores[sequence.text] = score
            child.multiplicity += 1
            parent.draws[parent.asked] = child
            parent.asked += 1
        self.programs += fresh
        return fresh


@dataclass(eq=False)
class Revising:
    """Draws of one node on their way to the tree."""

    tree: Programs
    node: Node
    n: int
    sequences: list[Sequence] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)


def _rank(candidate: Candidate) -> tuple[bool, bool, float]:
    return candidate.eligible, candidate.value is not None, candidate.value or 0.0
