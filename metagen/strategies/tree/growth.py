"""How a tree grows: nodes are extended side by side, and children are scored as they arrive.

Rules of selection say which nodes get how many draws, in one of two ways: `level`, for formulas that need the scores
of a whole level, and `steady`, which keeps a fixed number of expansions under way and applies them in the order in
which they were asked for. Either way the tree does not depend on what arrives first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from metagen.batch import Batch, Stage
from metagen.cost import Usage
from metagen.generators.base import Generator
from metagen.generators.primitive import Primitive
from metagen.history import Seen, behind
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.tree.node import Node, Tree, distinct, draw_key
from metagen.strategies.tree.split import Split, Steps, steps
from metagen.verifiers.base import PrimitiveVerifier, Verifier

#: A node, and how many draws it gets.
Wanted = tuple[Node, int]
Choose = Callable[[], Wanted | None]
Apply = Callable[[Node, list[Node]], None]
Lane = Callable[[Node], int]


def one_lane(node: Node) -> int:
    """The lane of all nodes, where results wait for one another."""
    return 0


@dataclass(eq=False)
class Expansion:
    """Draws of one node on their way to the tree."""

    node: Node
    start: int
    n: int
    drawing: Scope
    scoring: Scope
    known: frozenset[tuple[object, ...]]
    sequences: list[Sequence] = field(default_factory=list)
    scores: list[Score | None] = field(default_factory=list)

    async def draw(self, generator: Generator, until: Steps | None) -> None:
        prefix, start = self.node.sequence, self.start
        self.sequences = await steps(generator, prefix, until, n=self.n, start=start, scope=self.drawing)
        self.scores = [None] * len(self.sequences)

    def unscored_sequences(self) -> list[Sequence]:
        """The new sequences that are not empty, each once."""
        before = len(self.node.sequence.text)
        new = {draw_key(s): s for s in self.sequences if s.text[before:].strip()}
        return [s for key, s in new.items() if key not in self.known]

    async def score(self, verifier: Verifier | None) -> None:
        wanted = self.unscored_sequences()
        if verifier is None or not wanted:
            return
        scores = await verifier.score(wanted, scope=self.scoring)
        found = {draw_key(s): score for s, score in zip(wanted, scores, strict=True)}
        self.scores = [found.get(draw_key(s)) for s in self.sequences]


@dataclass(eq=False)
class _Begun:
    """An expansion that was asked for: the batch that it is part of, once that has begun, and its place in it."""

    expansion: Expansion
    batch: asyncio.Task[tuple[Batch[None], Seen]] | None = None
    place: int = 0
    seen: Seen = ()

    @property
    def ended(self) -> bool:
        return self.batch is not None and self.batch.done()


class Growth:
    """One search under way: its tree, and the calls by which it grows.

    Under a limit the calls of a round are asked for together, and end before the next are: what fits does not depend
    on what arrives first.
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
        generates = verifier is not None and verifier.generates
        self._stages = (
            Stage(self._draw, self._most_of_draws),
            Stage(self._score, self._most_of_scores, generates=generates),
        )

    async def level(self, wanted: Iterable[Wanted]) -> list[Node]:
        """Extend nodes side by side; the distinct children drawn now, by position of the parent in `wanted`.

        The refusal of a limit is raised; what was drawn before that is in the tree.
        """
        expansions = [self._ask(node, n) for node, n in wanted]
        done = await self.scope.batch(expansions, *self._stages)
        children = [child for expansion in expansions for child in self._apply(expansion)]
        done.whole()
        return distinct(children)

    async def steady(self, width: float, choose: Choose, apply: Apply, lane: Lane = one_lane) -> None:
        """Keep up to `width` expansions under way until there are none; the refusal of a limit is raised then.

        choose: the next node and its number of draws, or None while there is none; it sees all that was applied.
        apply: is told of a node and its child for each draw, in the order in which the nodes of a lane were chosen.
        lane: of a node; what is slow holds back the results of its own lane only. One lane by default. With several,
        what has been applied depends on who is fast: what is chosen in a lane must depend on that lane alone, the
        width be infinite, and a lane that meets the end of the budget stops no other.

        Under a limit the same choices are made in rounds: what has been chosen begins when all before it has ended.
        """
        lanes: defaultdict[int, deque[_Begun]] = defaultdict(deque)
        waiting: list[_Begun] = []
        refused: Batch[None] | None = None
        lone, rounds = lane is one_lane, self.scope.limited
        history = self.scope.history
        start = history.now()
        # What has been applied in each lane: what is chosen then has seen it.
        seen: dict[int, Seen] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    while (
                        not (refused and lone)
                        and sum(map(len, lanes.values())) < width
                        and (wanted := choose()) is not None
                    ):
                        waiting.append(_Begun(self._ask(*wanted, recall=lone)))
                        lanes[lane(waiting[-1].expansion.node)].append(waiting[-1])
                    if not rounds or len(waiting) == sum(map(len, lanes.values())):
                        for together in [waiting] if rounds else [[one] for one in waiting]:
                            self._begin(together, group)
                        waiting = []
                    heads = {number: queue[0] for number, queue in lanes.items() if queue}
                    if not heads:
                        break
                    if not any(one.ended for one in heads.values()):
                        under_way = {one.batch for one in heads.values() if one.batch is not None}
                        await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    number = min(number for number, one in heads.items() if one.ended)
                    one = lanes[number].popleft()
                    assert one.batch is not None
                    batch, end = one.batch.result()
                    seen[number] = behind(seen.get(number, start), one.seen, [end])
                    history.go_on(seen[number])
                    if rounds:
                        history.join(start, seen.values())
                    apply(one.expansion.node, self._apply(one.expansion))
                    if one.place in batch.refused:
                        refused = refused or batch
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        history.go_on(start)
        history.join(start, seen.values())
        if refused:
            refused.whole()

    def _begin(self, together: list[_Begun], group: asyncio.TaskGroup) -> None:
        if not together:
            return
        expansions, seen = [one.expansion for one in together], self.scope.history.now()

        async def work() -> tuple[Batch[None], Seen]:
            return await self.scope.batch(expansions, *self._stages), self.scope.history.now()

        batch = group.create_task(work())
        for place, one in enumerate(together):
            one.batch, one.place, one.seen = batch, place, seen

    def _ask(self, node: Node, n: int, *, recall: bool = True) -> Expansion:
        """Take the next n numbers of a node's draws. recall: what it has drawn before is not scored again."""
        if node not in self._scopes:
            drawing = self.scope.child(node.name)
            self._scopes[node] = drawing, drawing.child("score")
        known = frozenset(draw_key(child.sequence) for child in node.draws.values() if recall)
        expansion = Expansion(node, node.asked, n, *self._scopes[node], known)
        node.asked += n
        return expansion

    def _most_of_draws(self, one: Expansion) -> Usage | None:
        generator, prefix, end = self._generator, one.node.sequence, self._end(one.node)
        if not isinstance(generator, Primitive) or isinstance(end, Split):
            return None  # a draw is several calls
        most = generator.most(prefix, end)
        ended = most is not None and most <= 0
        return Usage() if ended else generator.worst(prefix, one.n, most, one.drawing)

    def _most_of_scores(self, one: Expansion) -> Usage | None:
        verifier, new = self._verifier, one.unscored_sequences()
        if verifier is None or not new:
            return Usage()
        return verifier.worst(new, one.scoring) if isinstance(verifier, PrimitiveVerifier) else None

    async def _draw(self, expansion: Expansion) -> None:
        await expansion.draw(self._generator, self._end(expansion.node))

    async def _score(self, expansion: Expansion) -> None:
        await expansion.score(self._verifier)

    def _end(self, node: Node) -> Steps | None:
        """Where a node's children end: at the last depth, where they will."""
        return None if node.depth + 1 >= self._max_depth else self._until

    def _apply(self, expansion: Expansion) -> list[Node]:
        children = self.tree.add(expansion.node, expansion.start, expansion.sequences, expansion.scores)
        for child in children:
            if child.depth >= self._max_depth:
                child.prune()
        return children
