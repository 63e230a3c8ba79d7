"""Best-first search: always extend the open node of the highest value, wherever it is in the tree."""

from __future__ import annotations

import heapq

from metagen.generators.base import Generator
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node, distinct, rank
from metagen.strategies.tree.search import MAX_DEPTH, STEP, TreeSearch, at_least_one
from metagen.strategies.tree.split import Steps
from metagen.verifiers.base import AnswerRule, Verifier


class BestFirst(TreeSearch):
    """Extends the best open node by m children, again and again, until n draws have ended, not counting cut ones.

    A node is extended once, however often it was drawn.

    in_flight: nodes extended side by side. Their results count in the order in which they were chosen, so that the
    tree does not depend on who is fast; with 1 it is the textbook's search. expansions: nodes extended at most;
    n · max_depth by default.
    """

    def __init__(
        self,
        generator: Generator,
        n: int = 4,
        *,
        verifier: Verifier,
        m: int = 4,
        in_flight: int = 4,
        expansions: int | None = None,
        until: Steps = STEP,
        answer: AnswerRule | None = None,
        aggregator: Aggregator | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        at_least_one(type(self).__name__, n=n, m=m, in_flight=in_flight)
        super().__init__(
            generator, verifier, until=until, answer=answer, aggregator=aggregator, max_depth=max_depth
        )
        self.n, self.m, self.in_flight = n, m, in_flight
        self.expansions = n * max_depth if expansions is None else expansions
        at_least_one(type(self).__name__, expansions=self.expansions)

    def options(self) -> str:
        return f"{self.n} {self.m} {self.in_flight} {self.expansions}"

    async def explore(self, growth: Growth) -> None:
        heap = [(rank(growth.tree.root), growth.tree.root)]
        left, ended = self.expansions, 0

        def choose() -> Wanted | None:
            nonlocal left
            if not heap or not left or ended >= self.n:
                return None
            left -= 1
            return heapq.heappop(heap)[1], self.m

        def applied(parent: Node, children: list[Node]) -> None:
            nonlocal ended
            ended += sum(child.complete for child in children)
            for child in distinct(children):
                if child.open:
                    heapq.heappush(heap, (rank(child), child))

        await growth.steady(self.in_flight, choose, applied)
