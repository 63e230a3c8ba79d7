"""Depth-first search with backtracking below a threshold (Tree of Thoughts, Yao et al. 2023, algorithm 2)."""

from __future__ import annotations

from dataclasses import field

from metagen.parts import part
from metagen.strategies.tree.growth import Growth
from metagen.strategies.tree.node import Node, best_first
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Count, Share
from metagen.verifiers.base import Verifier


@part
class DepthFirst(TreeSearch):
    """Goes on from the best of m children, and back where none reaches `threshold`, until n draws that do have ended.

    What is below the threshold is pruned; a finished leaf below it is a candidate still, if nothing better comes. As
    long as nothing has ended and nothing is left to go on from, the best of what was pruned is taken up again. What
    `max_tokens` has cut is worth 0, and has not ended. expansions: nodes extended at most; n · m · max_depth by
    default. m: children of a node. threshold: the least value of a child to go on from.
    """

    searches = True

    n: Count = field(default=1, kw_only=False)
    verifier: Verifier = field()
    m: Count = 4
    threshold: Share = 0.5
    expansions: Count | None = None

    async def explore(self, growth: Growth) -> None:
        stack, found = [growth.tree.root], 0
        for _ in range(self.expansions or self.n * self.m * self.max_depth):
            if not stack and not growth.tree.complete():
                stack = self._take_up(growth)
            if not stack or found >= self.n:
                return
            children = best_first(await growth.level([(stack.pop(), self.m)]))
            good = [child for child in children if self._reaches(child)]
            found += sum(child.multiplicity for child in good if child.complete)
            for child in children:
                if child not in good:
                    child.prune()
            stack += [child for child in reversed(good) if child.open]

    def _reaches(self, node: Node) -> bool:
        return node.value is not None and node.value >= self.threshold

    def _take_up(self, growth: Growth) -> list[Node]:
        pruned = [n for n in growth.tree if n.state == "pruned" and n.depth < self.max_depth]
        return best_first(pruned)[:1]
