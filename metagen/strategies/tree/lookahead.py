"""Lookahead search: beam search in which a step is worth what is found some steps further on.

Snell et al. 2025, Scaling LLM test-time compute optimally, arXiv:2408.03314, section 5.1.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from metagen.generators.base import Generator
from metagen.parts import part
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node
from metagen.strategies.tree.search import check_generator
from metagen.values import Amount


@part
class Lookahead(BeamSearch):
    """n candidates a level, of which the best n/m are kept: by the value of what lies `ahead` steps below them.

    Below each candidate one continuation of `ahead` steps is written, or as far as the sequence goes, and the value of
    its last step is the candidate's. Nothing of it is thrown away: where a candidate is kept, the first step of its
    continuation is the first of its m children, and the rest of it is there for that child; a continuation that has
    come to its end is a finished leaf, and counts as such. So a level after the first costs (n − n/m)(1 + ahead) + n/m
    steps in place of n(1 + ahead).

    ahead: 0 is beam search. rollout: writes the continuations; the generator itself by default, its greedy version in
    the paper. greedy: that version writes them. m: children of a node that is kept; n is a multiple of it. Raises
    InputError for ahead < 0, and as `BeamSearch` does.
    """

    ahead: Amount = 1
    rollout: Generator | None = None
    greedy: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.greedy:
            self.rollout = (self.rollout or self.generator).replace(temperature=0.0)
        if self.rollout is not None:
            check_generator(type(self).__name__, self.rollout, self.until)

    async def explore(self, growth: Growth) -> None:
        tree, ahead = growth.tree, self._ahead(growth)
        keep, wanted = [tree.root], [(tree.root, self.n)]
        while keep and sum(leaf.multiplicity for leaf in tree.finished_leaves()) < self.n:
            await growth.level((node, n) for node, n in wanted if n)
            nodes = [child for node in keep for child in node.children if self._goes_on(child)]
            await self._look(ahead, nodes)
            shares = self.keep(sorted(nodes, key=lambda node: (-self._worth(node), node.position)))
            keep, wanted = [node for node, _ in shares], [(node, n - node.asked) for node, n in shares]
            for node in set(nodes).difference(keep):
                for one in self._chain(node):
                    one.prune()

    def _ahead(self, growth: Growth) -> Growth:
        """Growth of continuations: the search's own, where its generator writes them."""
        if self.rollout is None:
            return growth
        return self._growth(growth.tree, growth.scope.child("ahead"), generator=self.rollout)

    async def _look(self, growth: Growth, nodes: Iterable[Node]) -> None:
        """Write each node's continuation to its length; none waits for another."""
        lanes: dict[Node, int] = {}
        left: dict[Node, int] = {}
        tips: deque[Node] = deque()

        def add(tip: Node, lane: int, steps: int) -> None:
            if steps > 0 and self._goes_on(tip):
                lanes[tip], left[tip] = lane, steps
                tips.append(tip)

        def choose() -> Wanted | None:
            return (tips.popleft(), 1) if tips else None

        def apply(node: Node, children: list[Node]) -> None:
            for child in children:
                add(child, lanes[node], left[node] - 1)

        for lane, node in enumerate(nodes):
            *above, tip = self._chain(node)
            add(tip, lane, self.ahead - len(above))
        await growth.steady(math.inf, choose, apply, lanes.__getitem__)

    def _goes_on(self, node: Node) -> bool:
        return not node.finished and node.depth < self.max_depth

    def _chain(self, node: Node) -> list[Node]:
        """A node and the continuation below it, which is made of first draws."""
        chain = [node]
        while len(chain) <= self.ahead and 0 in chain[-1].draws:
            chain.append(chain[-1].draws[0])
        return chain

    def _worth(self, node: Node) -> float:
        """The value at the end of the continuation; below all others where nothing was scored."""
        value = self._chain(node)[-1].value
        return -1.0 if value is None else value
