"""What tree searches share: parts, limits, and the end, where finished leaves are aggregated like samples."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from metagen.budget import BudgetLike
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.journal import Journal
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Score, Sequence, Step, Tokens, Until
from metagen.strategies.aggregators import Aggregator, Best, Majority, Weighted
from metagen.strategies.base import Strategy, wait
from metagen.strategies.candidates import Candidate, offer
from metagen.strategies.tree.growth import Growth
from metagen.strategies.tree.node import Node, Tree
from metagen.strategies.tree.split import Split, Steps
from metagen.values import Count
from metagen.verifiers.base import AnswerRule, Verifier

#: The last depth, at which a step is the whole rest.
MAX_DEPTH = 25
#: A line of at most 256 tokens.
STEP = Step("\n", 256)


class TreeStrategy(Strategy):
    """A strategy that grows a tree, which `tree` shows."""

    @abstractmethod
    async def _search(self, prefix: Sequence, scope: Scope) -> Tree:
        """The tree that was grown in `scope`, with what is chosen."""

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        return (await self._search(prefix, scope)).chosen or prefix

    async def atree(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> Tree:
        """`tree` for code that runs in an event loop of its own."""
        prefix, root = self.open_call(prompt, budget, seed, journal)
        tree = await self._search(prefix, root.child("0"))
        tree.charge(root.trace.rows)
        return tree

    def tree(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> Tree:
        """Like `solve`, and returns the tree that was searched. The journal of a `solve` answers it at no cost."""
        return wait(self.atree(prompt, budget=budget, seed=seed, journal=journal))


@part
class TreeSearch(TreeStrategy):
    """A search in the tree of steps. Authors write `explore`: which nodes are extended, and by how many children.

    verifier: scores partial sequences; a node's value is that of its last step, if the verifier's aggregation is
    `last`. until: what a step is. answer: reads answers for a vote. aggregator: chooses among the finished leaves,
    each of which counts as often as it was drawn; by default the vote weighted by the value of the last step, the
    best value without an answer rule, and a plain vote without a verifier. max_depth: steps of a sequence; the last
    of them is the whole rest.

    A step that is cut by its length is not finished. A step of nothing but blanks is never scored: it has its
    parent's score. If its delimiter never comes, a step is the whole rest, or is cut by its length. Equal children of
    a node are one, with their multiplicity. When the budget ends, the leaves that have ended decide; if there are
    none, the best open node is returned. A leaf that `max_tokens` or a budget has cut is worth 0, and loses to both.

    Raises InputError for numbers < 1 and for a delimiter that the generator's stop strings keep from coming;
    UnsupportedError for a generator that draws jointly or cannot go on from a step, and for a verifier that
    cannot score steps one by one.
    """

    #: Whether the rule of selection needs the scores of steps.
    needs_scores = True

    generator: Generator = field(kw_only=False)
    verifier: Verifier | None = None
    until: Steps = STEP
    answer: AnswerRule | None = None
    aggregator: Aggregator | None = None
    max_depth: Count = MAX_DEPTH

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_generator(name, self.generator, self.until)
        if self.needs_scores or self.verifier is not None:
            check_verifier(name, self.verifier)
        #: Chooses among the finished leaves.
        self.chooser = self.aggregator or self._default()
        self.answer = self.answer or self.chooser.answer

    @property
    def judge(self) -> Verifier | None:
        """Whose scores finished leaves have."""
        return self.verifier

    def _default(self) -> Aggregator:
        """What chooses where no aggregator is given."""
        if self.judge is not None:
            return Best(self.judge) if self.answer is None else Weighted(self.judge, self.answer)
        if self.answer is None:
            name = type(self).__name__
            raise InputError(
                f"{name}: nothing chooses among the leaves; give a verifier, an answer rule or an aggregator"
            )
        return Majority(self.answer)

    @abstractmethod
    async def explore(self, growth: Growth) -> None:
        """Grow the tree. A limit may end it at any call: the leaves that there are decide then."""

    async def _search(self, prefix: Sequence, scope: Scope) -> Tree:
        tree = Tree(prefix)
        ended = await self._grow(tree, scope, self.explore)
        tree.chosen = await self._choose(tree, scope)
        if ended or scope.exhausted:
            tree.chosen = replace(tree.chosen, exhausted=True)
        return tree

    async def _grow(
        self, tree: Tree, scope: Scope, explore: Callable[[Growth], Coroutine[Any, Any, None]]
    ) -> bool:
        """Explore below `node` of a scope, to the end or that of the budget; whether it was that."""
        # What comes after the search, and spends as well, has its part of the limits.
        judge = self._other_judge
        later = (judge is not None and judge.spends) + self.chooser.spends
        reads = not self.chooser.spends and not (judge and judge.generates)
        (node,) = scope.parts("node", later=later, reads=reads)
        tree.below = node.path
        scope.tell(tree)
        await scope.attempt(explore(self._growth(tree, node)))
        return node.exhausted

    def _growth(self, tree: Tree, scope: Scope, **other: Any) -> Growth:
        """How this search grows a tree; `other` parts than its own, by name."""
        own = {"generator": self.generator, "verifier": self.verifier, "until": self.until}
        return Growth(tree, scope, **{**own, "max_depth": self.max_depth, **other})

    async def _choose(self, tree: Tree, scope: Scope) -> Sequence:
        """What the aggregator makes of the leaves that have ended; of those that there are, if none has."""
        leaves = tree.complete() or tree.frontier() or tree.leaves()
        if leaves == [tree.root]:
            return tree.root.sequence
        return await self._decide(await self._candidates(leaves, scope), tree.root.sequence, scope)

    async def _decide(self, pool: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        """The aggregator's choice; where a budget ends before it has made one, the best of what is offered to it."""
        for candidate in pool:
            offer(candidate, scope)
        chosen = await scope.attempt(self.chooser.aggregate(pool, prefix, scope))
        return replace(scope.best_offer() or prefix, exhausted=True) if chosen is None else chosen

    async def _candidates(self, leaves: list[Node], scope: Scope) -> list[Candidate]:
        """Each leaf as often as it was drawn, with what the aggregator wants to know of it."""
        sequences, rule = [n.sequence for n in leaves], self.chooser.answer or self.answer
        answers = await rule.read(sequences) if rule else [None] * len(leaves)
        scores: abc.Sequence[Score | None] = [leaf.score for leaf in leaves]
        if self._other_judge is not None:
            judging = self._other_judge.score(sequences, scope=scope.child("score"))
            scores = await scope.attempt(judging) or [None] * len(leaves)
        rows = zip(leaves, answers, scores, strict=True)
        return [Candidate(leaf.sequence, a, s) for leaf, a, s in rows for _ in range(leaf.multiplicity)]

    @property
    def _other_judge(self) -> Verifier | None:
        """The aggregator's verifier, if it is another than that of the search."""
        judge = self.chooser.verifier
        known = self.judge.fingerprint if self.judge else None
        return None if judge is None or judge.fingerprint == known else judge


def check_generator(name: str, generator: Generator, until: Steps) -> None:
    """The errors of a generator that cannot write such steps one by one.

    Raises InputError for what is no step, or never comes; UnsupportedError for a generator that cannot stop or go on.
    """
    if not generator.independent:
        raise UnsupportedError(f"{name} pools independent draws; {generator!r} draws jointly")
    if not (generator.accepts_prefix and generator.accepts_until):
        raise UnsupportedError(
            f"{name} goes on step by step; {generator!r} cannot "
            f"{'stop at the end of a step' if generator.accepts_prefix else 'continue a partial sequence'}; "
            "give a generator that can, such as one over an engine with token ids"
        )
    if not isinstance(until, Step | Tokens | Split):
        raise InputError(
            f"{name}: {until!r} is no step; expected Step(delimiter), Tokens(count) or Split(find, name)"
        )
    stops = getattr(getattr(generator, "params", None), "stop", ())
    delimiter = until.delimiter if isinstance(until, Step) else ""
    for stop in stops:
        if stop in delimiter:
            raise InputError(
                f"{name}: the delimiter {delimiter!r} never comes, for the generator stops at {stop!r}; "
                "take that out of its stop="
            )


def check_verifier(name: str, verifier: Verifier | None) -> None:
    """The errors of a verifier that cannot score beginnings one by one.

    Raises InputError without a verifier, UnsupportedError for one that scores whole or beside others.
    """
    if verifier is None:
        raise InputError(f"{name} selects by scores of steps: give a verifier, such as ProcessRewardModel")
    if verifier.relative:
        raise UnsupportedError(
            f"{name}: {verifier.name!r} scores candidates relative to each other, and steps are scored as they come; "
            "give a verifier that scores each by itself, and this one to the aggregator"
        )
    for member in verifier.members:
        check_verifier(name, member)
    if verifier.whole:
        raise UnsupportedError(
            f"{name} needs scores of steps; {verifier.name!r} scores whole solutions only: give a process verifier, "
            "and this one to the aggregator"
        )
