"""How a tree grows: nodes are extended side by side, and children are scored as they arrive.

Rules of selection say which nodes get how many draws, in one of two ways: `level`, for formulas that need the scores
of a whole level, and `steady`, which keeps a fixed number of expansions under way and applies them in the order in
which they were asked for. Either way the tree does not depend on what arrives first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from metagen.errors import BudgetExhausted
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.drawing import SHARED
from metagen.strategies.tree.node import Node, Tree, distinct, merged
from metagen.strategies.tree.split import Split, Steps
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
    known: frozenset[tuple[str, str | None]]
    sequences: list[Sequence] = field(default_factory=list)
    scores: list[Score | None] = field(default_factory=list)
    refusal: BudgetExhausted | None = None

    async def draw(self, generator: Generator, until: Steps | None) -> None:
        prefix = self.node.sequence
        try:
            if isinstance(until, Split):
                self.sequences = await until.generate(
                    generator, prefix, n=self.n, start=self.start, scope=self.drawing
                )
            else:
                self.sequences = await generator.generate(
                    prefix, n=self.n, start=self.start, until=until, scope=self.drawing
                )
        except BudgetExhausted as refusal:
            self.refusal = refusal
        self.scores = [None] * len(self.sequences)

    async def score(self, verifier: Verifier | None) -> None:
        """Score what is new and not empty, once each."""
        before = len(self.node.sequence.text)
        new = {merged(s): s for s in self.sequences if s.text[before:].strip()}
        wanted = [s for key, s in new.items() if key not in self.known]
        if verifier is None or not wanted:
            return
        try:
            scores = await verifier.score(wanted, scope=self.scoring)
        except BudgetExhausted as refusal:
            self.refusal = refusal
            return
        found = {merged(s): score for s, score in zip(wanted, scores, strict=True)}
        self.scores = [found.get(merged(s)) for s in self.sequences]


class Growth:
    """One search under way: its tree, and the calls by which it grows.

    limited: a budget binds what is drawn, so that the calls of a round are asked for together, and end before the next
    are: what fits then does not depend on what arrives first.
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
        left = scope.left()
        limits = {f.name for f in fields(left) if getattr(left, f.name) is not None} - {"seconds"}
        self.limited = bool(limits)
        # A primitive verifier generates nothing: a limit of generated tokens does not bind it.
        self._apart = not limits.isdisjoint(SHARED) or (
            self.limited and not isinstance(verifier, PrimitiveVerifier)
        )

    async def expand(self, node: Node, n: int) -> list[Node]:
        """Draw n times more from a node: its child for each draw, in order. BudgetExhausted once the budget ends."""
        expansion = self._asked(node, n)
        await self._round([expansion])
        children = self._applied(expansion)
        if expansion.refusal:
            raise expansion.refusal
        return children

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
            raise errors.exceptions[0] from None

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
        if not self._apart:
            await self.scope.gather(*(self._whole(one) for one in expansions))
            return
        # What generating leaves of a limit that both sides draw on is known before anything is scored.
        await self.scope.gather(*(self._draw(one) for one in expansions))
        await self.scope.gather(*(one.score(self._verifier) for one in expansions))

    async def _whole(self, expansion: Expansion) -> None:
        await self._draw(expansion)
        await expansion.score(self._verifier)

    async def _draw(self, expansion: Expansion) -> None:
        last = expansion.node.depth + 1 >= self._max_depth
        await expansion.draw(self._generator, None if last else self._until)

    def _applied(self, expansion: Expansion) -> list[Node]:
        children = self.tree.add(expansion.node, expansion.start, expansion.sequences, expansion.scores)
        for child in children:
            if child.depth >= self._max_depth:
                child.prune()
        return children
