"""How a tree grows: nodes are extended side by side, and children are scored as they arrive.

Rules of selection say which nodes get how many draws, in one of two ways: `level`, for formulas that need the scores
of a whole level, and `steady`, which keeps a fixed number of expansions under way and applies them in the order in
which they were asked for. Either way the tree does not depend on what arrives first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import BudgetExhausted
from metagen.generators.base import Generator
from metagen.generators.primitive import Primitive
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.tree.node import Node, Tree, distinct, merged
from metagen.strategies.tree.split import Split, Steps, steps
from metagen.verifiers.base import PrimitiveVerifier, Verifier

#: A node, and how many draws it gets.
Wanted = tuple[Node, int]
Choose = Callable[[], Wanted | None]
Applied = Callable[[Node, list[Node]], None]
Lane = Callable[[Node], int]


def one_lane(node: Node) -> int:
    """The lane of all nodes, where results wait for one another."""
    return 0


@dataclass(eq=False)
class Expansion:
    """Draws of one node on their way to the tree. A budget that ends is kept in `refusal`, with what came before."""

    node: Node
    start: int
    n: int
    drawing: Scope
    scoring: Scope
    known: frozenset[tuple[object, ...]]
    sequences: list[Sequence] = field(default_factory=list)
    scores: list[Score | None] = field(default_factory=list)
    refusal: BudgetExhausted | None = None

    async def draw(self, generator: Generator, until: Steps | None) -> None:
        prefix, start = self.node.sequence, self.start
        try:
            self.sequences = await steps(generator, prefix, until, n=self.n, start=start, scope=self.drawing)
        except BudgetExhausted as refusal:
            self.refusal = refusal
        self.scores = [None] * len(self.sequences)

    def unscored(self) -> list[Sequence]:
        """What is new and not empty, each once."""
        before = len(self.node.sequence.text)
        new = {merged(s): s for s in self.sequences if s.text[before:].strip()}
        return [s for key, s in new.items() if key not in self.known]

    async def score(self, verifier: Verifier | None) -> None:
        wanted = self.unscored()
        if verifier is None or not wanted:
            return
        try:
            scores = await verifier.score(wanted, scope=self.scoring)
        except BudgetExhausted as refusal:
            self.refusal = refusal
            return
        found = {merged(s): score for s, score in zip(wanted, scores, strict=True)}
        self.scores = [found.get(merged(s)) for s in self.sequences]


def fit(worst: Iterable[Usage], left: Budget) -> bool:
    """Whether there is room for all of them at once, so that none waits for what another leaves."""
    total = Usage.sum(worst)
    needs = {name: getattr(total, name) for name in left.divisible}
    return all(need is not None and need <= getattr(left, name) for name, need in needs.items())


class Growth:
    """One search under way: its tree, and the calls by which it grows.

    limited: a budget binds what is drawn, so that the calls of a round are asked for together, and end before the next
    are. Where there is not room for all of them at once they are made in turn. So what fits does not depend on what
    arrives first.
    """

    def __init__(
        self,
        tree: Tree,
        scope: Scope,
        *,
        generator: Generator,
        verifier: Verifier | None,
        until: Steps | None,
        max_depth: int,
    ) -> None:
        self.tree, self.scope = tree, scope
        self._generator, self._verifier = generator, verifier
        self._until, self._max_depth = until, max_depth
        self._scopes: dict[Node, tuple[Scope, Scope]] = {}
        limits = scope.left().divisible
        self.limited = bool(limits)
        # A primitive verifier generates nothing: a limit of generated tokens does not bind it.
        primitive = verifier is None or isinstance(verifier, PrimitiveVerifier)
        self._apart = self.limited and not (primitive and limits == ("generated",))

    async def level(self, wanted: Iterable[Wanted]) -> list[Node]:
        """Extend nodes side by side; the distinct children drawn now, by position of the parent in `wanted`.

        BudgetExhausted once the budget ends; what was drawn before that is in the tree.
        """
        expansions = [self._asked(node, n) for node, n in wanted]
        await self._round(expansions)
        children = [child for expansion in expansions for child in self._applied(expansion)]
        for expansion in expansions:
            if expansion.refusal:
                raise expansion.refusal
        return distinct(children)

    async def steady(self, width: float, choose: Choose, applied: Applied, lane: Lane = one_lane) -> None:
        """Keep up to `width` expansions under way until there are none; BudgetExhausted once the budget ends.

        choose: the next node and its number of draws, or None while there is none; it sees all that was applied.
        applied: is told of a node and its child for each draw, in the order in which the nodes of a lane were chosen.
        lane: of a node; what is slow holds back the results of its own lane only. One lane by default. With several,
        what has been applied depends on who is fast: what is chosen in a lane must depend on that lane alone, the
        width be infinite, and a lane that meets the end of the budget stops no other.
        """
        refusal = await (self._rounds if self.limited else self._sliding)(width, choose, applied, lane)
        if refusal:
            raise refusal

    async def _sliding(
        self, width: float, choose: Choose, applied: Applied, lane: Lane
    ) -> BudgetExhausted | None:
        lanes: defaultdict[int, deque[tuple[Expansion, asyncio.Task[None]]]] = defaultdict(deque)
        refusal: BudgetExhausted | None = None
        lone = lane is one_lane
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    while (
                        not (refusal and lone)
                        and sum(map(len, lanes.values())) < width
                        and (wanted := choose()) is not None
                    ):
                        expansion = self._asked(*wanted, recall=lone)
                        task = group.create_task(self._whole(expansion))
                        lanes[lane(expansion.node)].append((expansion, task))
                    heads = {number: queue[0][1] for number, queue in lanes.items() if queue}
                    if not heads:
                        return refusal
                    if not any(task.done() for task in heads.values()):
                        await asyncio.wait(heads.values(), return_when=asyncio.FIRST_COMPLETED)
                    first = min(number for number, task in heads.items() if task.done())
                    expansion, task = lanes[first].popleft()
                    task.result()
                    applied(expansion.node, self._applied(expansion))
                    refusal = refusal or expansion.refusal
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__

    async def _rounds(
        self, width: float, choose: Choose, applied: Applied, lane: Lane
    ) -> BudgetExhausted | None:
        """The same choices as `_sliding` makes, in rounds."""
        begun: list[Expansion] = []
        ended: deque[Expansion] = deque()
        refusal: BudgetExhausted | None = None
        lone = lane is one_lane
        while True:
            while (
                not (refusal and lone)
                and len(begun) + len(ended) < width
                and (wanted := choose()) is not None
            ):
                begun.append(self._asked(*wanted, recall=lone))
            if not ended:
                if not begun:
                    return refusal
                await self._round(begun)
                ended.extend(sorted(begun, key=lambda one: lane(one.node)))
                begun = []
            expansion = ended.popleft()
            applied(expansion.node, self._applied(expansion))
            refusal = refusal or expansion.refusal

    def _asked(self, node: Node, n: int, *, recall: bool = True) -> Expansion:
        """Take the next n numbers of a node's draws. recall: what it has drawn before is not scored again."""
        if node not in self._scopes:
            drawing = self.scope.child(node.name)
            self._scopes[node] = drawing, drawing.child("score")
        known = frozenset(merged(child.sequence) for child in node.draws.values() if recall)
        expansion = Expansion(node, node.asked, n, *self._scopes[node], known)
        node.asked += n
        return expansion

    async def _round(self, expansions: list[Expansion]) -> None:
        if not self.limited or (not self._apart and self._draws_fit(expansions)):
            await self.scope.gather(*map(self._whole, expansions))
            return
        # What generating leaves of a limit that both sides draw on is known before anything is scored.
        await self._stage(self._draw, expansions, at_once=self._draws_fit(expansions))
        await self._stage(self._score, expansions, at_once=self._scores_fit(expansions))

    async def _stage(
        self,
        work: Callable[[Expansion], Coroutine[Any, Any, None]],
        expansions: list[Expansion],
        *,
        at_once: bool,
    ) -> None:
        if at_once:
            await self.scope.gather(*map(work, expansions))
            return
        for one in expansions:
            await work(one)

    def _draws_fit(self, expansions: list[Expansion]) -> bool:
        """False also where nobody can say, because a draw is several calls."""
        generator = self._generator
        worst = []
        for one in expansions:
            prefix, end = one.node.sequence, self._end(one.node)
            if not isinstance(generator, Primitive) or isinstance(end, Split):
                return False
            most = generator.most(prefix, end)
            if most is None or most > 0:  # otherwise it has ended without a call
                worst.append(generator.worst(prefix, one.n, most, one.drawing))
        return fit(worst, self.scope.left())

    def _scores_fit(self, expansions: list[Expansion]) -> bool:
        verifier = self._verifier
        if not isinstance(verifier, PrimitiveVerifier):
            return verifier is None
        scored = [(one.unscored(), one.scoring) for one in expansions]
        return fit((verifier.worst(new, scope) for new, scope in scored if new), self.scope.left())

    async def _whole(self, expansion: Expansion) -> None:
        await self._draw(expansion)
        await self._score(expansion)

    async def _score(self, expansion: Expansion) -> None:
        await expansion.score(self._verifier)

    async def _draw(self, expansion: Expansion) -> None:
        await expansion.draw(self._generator, self._end(expansion.node))

    def _end(self, node: Node) -> Steps | None:
        """Where a node's children end: at the last depth, where they will."""
        return None if node.depth + 1 >= self._max_depth else self._until

    def _applied(self, expansion: Expansion) -> list[Node]:
        children = self.tree.add(expansion.node, expansion.start, expansion.sequences, expansion.scores)
        for child in children:
            if child.depth >= self._max_depth:
                child.prune()
        return children
