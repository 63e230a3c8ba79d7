"""Beam search over steps, by the values of a process verifier (Snell et al. 2025, arXiv:2408.03314)."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from itertools import cycle, islice
from typing import ClassVar

from metagen.errors import InputError
from metagen.parts import part
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node, best_first
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Count
from metagen.verifiers.base import Verifier


@part
class BeamSearch(TreeSearch):
    """n candidates a level, of which the best n/m are kept; the n draws of the next level are dealt among them in turn.

    A candidate that was drawn six times is six: it holds six of the n/m places. It ends when n draws have finished,
    or nothing is open. m: children of a node that is kept; n is a multiple of it. Raises InputError for an n that is
    none.
    """

    searches = True

    #: Numbers that are no larger than n where a file gives several n.
    narrows: ClassVar[frozenset[str]] = frozenset({"m"})

    n: Count = field(default=16, kw_only=False)
    verifier: Verifier = field()
    m: Count = 4

    def __post_init__(self) -> None:
        if self.n % self.m:
            raise InputError(
                f"{type(self).__name__}: n={self.n!r} candidates cannot be shared by beams of m={self.m!r} each; give "
                "a multiple"
            )
        super().__post_init__()

    async def explore(self, growth: Growth) -> None:
        tree = growth.tree
        wanted: list[Wanted] = [(tree.root, self.n)]
        while wanted and sum(leaf.multiplicity for leaf in tree.finished_leaves()) < self.n:
            wanted = self.keep(best_first(node for node in await growth.level(wanted) if node.open))

    def keep(self, ranked: list[Node]) -> list[Wanted]:
        """What the best places among these candidates draw next; the others are pruned."""
        places = [node for node in ranked for _ in range(node.multiplicity)][: self.n // self.m]
        for node in set(ranked).difference(places):
            node.prune()
        return list(Counter(islice(cycle(places), self.n)).items())
