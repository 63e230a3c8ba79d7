"""Depth-first search with backtracking below a threshold (Tree of Thoughts, Yao et al. 2023, algorithm 2)."""

from __future__ import annotations

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.tree.growth import Growth
from metagen.strategies.tree.node import Node, best_first
from metagen.strategies.tree.search import MAX_DEPTH, STEP, TreeSearch, at_least_one
from metagen.strategies.tree.split import Steps
from metagen.verifiers.base import AnswerRule, Verifier


class DepthFirst(TreeSearch):
    """Goes on from the best of m children, and back where none reaches `threshold`, until n draws that do have ended.

    What is below the threshold is pruned; a finished leaf below it is a candidate still, if nothing better comes. As
    long as nothing has ended and nothing is left to go on from, the best of what was pruned is taken up again. What
    `max_tokens` has cut is worth 0, and has not ended.
    expansions: nodes extended at most; n · m · max_depth by default.
    """

    def __init__(
        self,
        generator: Generator,
        n: int = 1,
        *,
        verifier: Verifier,
        m: int = 4,
        threshold: float = 0.5,
        expansions: int | None = None,
        until: Steps = STEP,
        answer: AnswerRule | None = None,
        aggregator: Aggregator | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        name = type(self).__name__
        at_least_one(name, n=n, m=m)
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"{name}: threshold={threshold!r}; expected a value between 0 and 1")
        super().__init__(
            generator, verifier, until=until, answer=answer, aggregator=aggregator, max_depth=max_depth
        )
        self.n, self.m, self.threshold = n, m, threshold
        self.expansions = n * m * max_depth if expansions is None else expansions
        at_least_one(name, expansions=self.expansions)

    def options(self) -> str:
        return f"{self.n} {self.m} {float(self.threshold)!r} {self.expansions}"

    async def explore(self, growth: Growth) -> None:
        stack, found = [growth.tree.root], 0
        for _ in range(self.expansions):
            if not stack and not growth.tree.complete():
                stack = self._taken_up(growth)
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

    def _taken_up(self, growth: Growth) -> list[Node]:
        pruned = [n for n in growth.tree if n.state == "pruned" and n.depth < self.max_depth]
        return best_first(pruned)[:1]
