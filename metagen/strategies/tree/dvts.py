"""DVTS: diverse verifier tree search (Beeching, Tunstall and Rush 2024)."""

from __future__ import annotations

from metagen.parts import part
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.growth import Growth
from metagen.strategies.tree.node import Node, best_first, distinct


@part
class DVTS(BeamSearch):
    """n/m subtrees that never compete: each extends its best candidate by m steps until that has finished.

    A subtree is a share of the draws: where two have drawn the same, they go on from one node, by draws of their own.
    m: children of a step; n is a multiple of it.
    """

    searches = True

    async def explore(self, growth: Growth) -> None:
        await growth.level([(growth.tree.root, self.n)])
        subtrees = [_draws(growth.tree.root, start, self.m) for start in range(0, self.n, self.m)]
        while True:
            best = [best_first(drawn)[0] for drawn in subtrees if drawn]
            for node in {node for drawn in subtrees for node in drawn} - set(best):
                node.prune()
            going = [node for node in best if node.open]
            if not going:
                return
            before = {node: node.asked for node in going}
            await growth.level([(node, self.m * going.count(node)) for node in distinct(going)])
            subtrees = []
            for node in going:
                subtrees.append(_draws(node, before[node], self.m))
                before[node] += self.m


def _draws(node: Node, start: int, m: int) -> list[Node]:
    """The distinct children of draws start … start + m − 1, as far as the budget drew them."""
    return distinct(node.draws[i] for i in range(start, start + m) if i in node.draws)
