"""Monte-Carlo tree search over steps: PUCT, with values from a process verifier, from rollouts, or from both.

PUCT and its priors are those of Silver et al. 2017, Mastering the game of Go without human knowledge (Methods, Select);
the mix of values and rollouts is that of Silver et al. 2016.
"""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from metagen.errors import InputError, UnsupportedError
from metagen.parts import part, unused
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node, Tree, draw_key
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Amount, Count, Quantity, Share
from metagen.verifiers.base import UNSCORED, Verifier

Prior = Literal["uniform", "logprob"]


@part
class MCTS(TreeSearch):
    """n simulations: select a leaf, draw `width` children, value them, back the values up.

    Selected is, from the root down, the child c of s with the highest

        Q(c) + exploration · P(c) · √N(s) / (1 + N(c)),

    among those that lead to a node which can be extended. N counts the draws that were valued at a node and below, Q is
    their mean value. What has finished was valued when it came, and is not visited again.

    verifier: values unfinished sequences. rollouts: completions by which each is valued too, or, without a verifier,
    only: their mean score by `outcome`, where one that is cut counts 0. mix: λ of (1 − λ) · verifier + λ · rollouts.
    outcome: scores what has finished; the verifier by default. Rollouts are finished leaves like any other.
    prior: P is each draw's equal share (`uniform`: the children are draws of the generator already), or
    proportional to the probability of the step (`logprob`), which needs a generator that reports it.
    in_flight: leaves extended side by side. A leaf under way counts as visits that brought nothing (virtual loss), and
    results are applied in the order of selection, so that the tree does not depend on who is fast.

    If nothing has ended after n simulations, the most visited path is written to its end. See `TreeSearch` for the
    rest. width: children of a leaf. exploration: the weight of the prior against the mean value. Raises InputError
    for numbers < 1 or out of range, and where nothing would value a sequence; UnsupportedError for a verifier that
    scores candidates relative to each other.
    """

    searches = True

    needs_scores = False

    n: Count = field(default=16, kw_only=False)
    width: Count = 4
    rollouts: Amount = 0
    outcome: Verifier | None = None
    mix: Share = 0.5
    exploration: Quantity = 1.25
    prior: Prior = "uniform"
    in_flight: Count = 4

    def __post_init__(self) -> None:
        name = type(self).__name__
        assert self.judge is not None
        if self.judge.relative:
            raise UnsupportedError(
                f"{name}: {self.judge.name!r} scores candidates relative to each other, and values are "
                "compared over the tree; give a verifier that scores each by itself"
            )
        super().__post_init__()

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        if given["verifier"] is None and not (given["rollouts"] and given["outcome"]):
            return "nothing values a sequence; give a verifier of steps, or rollouts with an outcome"
        blind = given["verifier"] is None
        what = "is no verifier; give one" if blind else "are no rollouts; give rollouts"
        why = f"weighs rollouts against the verifier, and there {what}, or leave mix out"
        return unused(cls, given, ("mix", blind or not given["rollouts"], why))

    @property
    def judge(self) -> Verifier | None:
        return self.outcome or self.verifier

    async def explore(self, growth: Growth) -> None:
        tree = growth.tree
        pending: set[Node] = set()
        left = self.n

        def choose() -> Wanted | None:
            nonlocal left
            leaf = self._select(tree, pending) if left else None
            if leaf is None:
                return None
            left -= 1
            pending.add(leaf)
            for node in leaf.path():
                node.visits += self.width
            return leaf, self.width

        def apply(leaf: Node, children: list[Node]) -> None:
            pending.discard(leaf)
            for node in leaf.path():
                node.visits -= self.width
            for child in children:
                for node in child.path():
                    node.visits += 1
                    node.worth += child.value or 0.0
            for child in dict.fromkeys(children):
                _settle(tree, child)

        await growth.steady(self.in_flight, choose, apply)
        await self._end(growth)

    async def _end(self, growth: Growth) -> None:
        """Where nothing has ended, write the most visited path to its end."""
        tree = growth.tree
        if not tree.complete() and tree.frontier():
            rest = self._growth(tree, growth.scope.child("rest"), max_depth=1)
            await rest.level([(_most_visited(tree), self.width)])

    def _growth(self, tree: Tree, scope: Scope, **other: Any) -> Growth:
        """Growth whose children are valued."""
        if self.rollouts or self.judge is not self.verifier:
            other["verifier"] = _Values(self)
        return super()._growth(tree, scope, **other)

    def _select(self, tree: Tree, pending: set[Node]) -> Node | None:
        """The leaf that PUCT leads to; None while there is none that can be extended."""
        live, node = _live(tree, pending), tree.root
        while inside := [child for child in node.children if child in live]:
            priors = self._priors(node)
            # Of equals the first drawn.
            node = max(inside, key=lambda child: self._puct(child, priors[child]))
        return node if node in live else None

    def _puct(self, child: Node, prior: float) -> float:
        above = child.parent.visits if child.parent else 0
        return child.worth / child.visits + self.exploration * prior * math.sqrt(above) / (1 + child.visits)

    def _priors(self, node: Node) -> dict[Node, float]:
        """P of the children that selection has drawn; rollouts are not among them."""
        children = [child for child in node.children if child.visits]
        weights = [float(child.multiplicity) for child in children]
        if self.prior == "logprob":
            logprobs = [self._logprob(child) for child in children]
            weights = [math.exp(x - max(logprobs)) for x in logprobs]
        total = math.fsum(weights)
        return {child: w / total for child, w in zip(children, weights, strict=True)}

    def _logprob(self, child: Node) -> float:
        """Of the whole sequence: siblings share what comes before their step."""
        if child.sequence.logprob is None:
            raise InputError(
                f"{type(self).__name__}: prior='logprob' needs the generator's log-probabilities, and "
                f"{self.generator!r} reports none; give the generator logprobs=True, or prior='uniform'"
            )
        return child.sequence.logprob


@dataclass(frozen=True, slots=True)
class _Valued(Score):
    """A value with the rollouts that it was made of, and their scores."""

    ended: tuple[tuple[Sequence, Score], ...] = ()


class _Values(Verifier):
    """The values of one search's nodes. What a budget leaves out is unscored; nothing that was drawn is lost."""

    def __init__(self, search: MCTS) -> None:
        assert search.judge is not None
        self.generator, self.process, self.outcome = search.generator, search.verifier, search.judge
        self.rollouts, self.mix, self._fingerprint = search.rollouts, search.mix, search.fingerprint

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        going = [s for s in sequences if s.finish is None]
        gone = [s for s in sequences if s.finish is not None]
        scores = dict(
            zip(map(draw_key, gone), await _scores(self.outcome, gone, scope.child("outcome")), strict=True)
        )
        values: list[Score | None] = [None] * len(going)
        if self.process is not None:
            values = [*await _scores(self.process, going, scope)]
        rollouts: list[tuple[tuple[Sequence, Score], ...]] = [()] * len(going)
        if self.rollouts:
            rollouts = await self._roll_out(going, scope.child("rollout"))
        for sequence, value, ended in zip(going, values, rollouts, strict=True):
            scores[draw_key(sequence)] = self._mix(value, ended)
        return [scores[draw_key(s)] for s in sequences]

    async def _roll_out(
        self, going: list[Sequence], scope: Scope
    ) -> list[tuple[tuple[Sequence, Score], ...]]:
        """Completions of each, with their scores; without those that a budget refuses."""
        places = [scope.child(str(k)) for k in range(len(going))]
        completed = await scope.batch(
            list(zip(going, places, strict=True)),
            lambda one: self.generator.generate(one[0], n=self.rollouts, scope=one[1]),
        )
        ended = [some or [] for some in completed.results]
        flat = [one for some in ended for one in some]
        scores = iter(await _scores(self.outcome, flat, scope.child("score")))
        return [tuple((one, next(scores)) for one in some) for some in ended]

    def _mix(self, value: Score | None, ended: tuple[tuple[Sequence, Score], ...]) -> Score:
        """(1 − λ) · verifier + λ · rollouts, or what there is of the two."""
        good = [
            (v.value or 0.0) if s.finish in ("eos", "stop") else 0.0
            for s, v in ended
            if v.verdict != UNSCORED.verdict
        ]
        mean = math.fsum(good) / len(good) if good else None
        process = value.value if value else None
        if process is None or mean is None:
            known = mean if process is None else process
            return _Valued(known, verdict="unscored" if known is None else None, ended=ended)
        return _Valued((1.0 - self.mix) * process + self.mix * mean, ended=ended)


async def _scores(verifier: Verifier, sequences: list[Sequence], scope: Scope) -> list[Score]:
    """Scores; unscored where the budget ends."""
    found = await scope.attempt(verifier.score(sequences, scope=scope)) if sequences else []
    return [UNSCORED] * len(sequences) if found is None else found


def _settle(tree: Tree, node: Node) -> None:
    """Make a node's rollouts leaves of the tree. It can be extended still."""
    if isinstance(node.score, _Valued) and node.score.ended:
        sequences, scores = zip(*node.score.ended, strict=True)
        state = node.state
        for leaf in tree.add(node, node.asked, sequences, scores):
            leaf.prune()  # what has not come to an end is no beginning either
        node.asked, node.state = node.asked + len(sequences), state
        node.score = Score(node.score.value, verdict=node.score.verdict)


def _live(tree: Tree, without: Container[Node] = ()) -> set[Node]:
    """The open nodes, and all above them."""
    return {above for node in tree.frontier() if node not in without for above in node.path()}


def _most_visited(tree: Tree) -> Node:
    """The open node at the end of the most visited path; of equals, the first drawn."""
    live, node = _live(tree), tree.root
    while inside := [child for child in node.children if child in live]:
        node = max(inside, key=lambda child: child.visits)
    return node
