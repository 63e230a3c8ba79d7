"""Best-first search: always extend the open node of the highest value, wherever it is in the tree."""

from __future__ import annotations

import heapq
from dataclasses import field

from metagen.parts import part
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node, distinct, rank
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Count
from metagen.verifiers.base import Verifier


@part
class BestFirst(TreeSearch):
    """Extends the best open node by m children, again and again, until n draws have ended, not counting cut ones.

    A node is extended once, however often it was drawn.

    in_flight: nodes extended side by side. Their results count in the order in which they were chosen, so that the
    tree does not depend on who is fast; with 1 it is the textbook's search. expansions: nodes extended at most; n ·
    max_depth by default. m: children of a node.
    """

    searches = True

    n: Count = field(default=4, kw_only=False)
    verifier: Verifier = field()
    m: Count = 4
    in_flight: Count = 4
    expansions: Count | None = None

    async def explore(self, growth: Growth) -> None:
        heap = [(rank(growth.tree.root), growth.tree.root)]
        left, ended = self.expansions or self.n * self.max_depth, 0

        def choose() -> Wanted | None:
            nonlocal left
            if not heap or not left or ended >= self.n:
                return None
            left -= 1
            return heapq.heappop(heap)[1], self.m

        def apply(parent: Node, children: list[Node]) -> None:
            nonlocal ended
            ended += sum(child.complete for child in children)
            for child in distinct(children):
                if child.open:
                    heapq.heappush(heap, (rank(child), child))

        await growth.steady(self.in_flight, choose, apply)
