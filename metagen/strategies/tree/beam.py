"""Beam search over steps, by the values of a process verifier (Snell et al. 2025, arXiv:2408.03314)."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node, best_first
from metagen.strategies.tree.search import MAX_DEPTH, STEP, TreeSearch, at_least_one
from metagen.strategies.tree.split import Steps
from metagen.verifiers.base import AnswerRule, Verifier


class BeamSearch(TreeSearch):
    """n candidates a level, of which the best n/m are kept; the n draws of the next level are dealt among them in turn.

    A candidate that was drawn six times is six: it holds six of the n/m places. It ends when n draws have finished, or
    nothing is open.
    """

    def __init__(
        self,
        generator: Generator,
        n: int = 16,
        *,
        verifier: Verifier,
        m: int = 4,
        until: Steps = STEP,
        answer: AnswerRule | None = None,
        aggregator: Aggregator | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        name = type(self).__name__
        at_least_one(name, n=n, m=m)
        if n % m:
            raise InputError(
                f"{name}: n={n!r} candidates cannot be shared by beams of m={m!r} each; give a multiple"
            )
        super().__init__(
            generator, verifier, until=until, answer=answer, aggregator=aggregator, max_depth=max_depth
        )
        self.n, self.m = n, m

    def options(self) -> str:
        return f"{self.n} {self.m}"

    async def explore(self, growth: Growth) -> None:
        tree = growth.tree
        wanted: list[Wanted] = [(tree.root, self.n)]
        while wanted and sum(leaf.multiplicity for leaf in tree.finished()) < self.n:
            wanted = self.kept(best_first(node for node in await growth.level(wanted) if node.open))

    def kept(self, ranked: list[Node]) -> list[Wanted]:
        """What the best places among these candidates draw next; the others are pruned."""
        places = [node for node in ranked for _ in range(node.multiplicity)][: self.n // self.m]
        for node in set(ranked).difference(places):
            node.prune()
        return list(Counter(islice(cycle(places), self.n)).items())
