"""REBASE: reward-balanced search (Wu et al. 2025, Inference scaling laws, arXiv:2408.00724)."""

from __future__ import annotations

import math
from collections import abc, defaultdict, deque
from dataclasses import field
from typing import Literal

from metagen.parts import part
from metagen.strategies.tree.growth import Growth, Wanted
from metagen.strategies.tree.node import Node
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Count, Positive
from metagen.verifiers.base import Verifier

Rounding = Literal["ceil", "largest-remainder"]
#: Of a weight, after the point.
BITS = 128


def allocate(
    values: abc.Sequence[float | None],
    width: int,
    *,
    temperature: float = 0.2,
    copies: abc.Sequence[int] | None = None,
    rounding: Rounding = "ceil",
) -> list[int]:
    """Share `width` children among nodes, in proportion to c_i exp(R_i / T).

    ceil: in descending order, n_i = ⌈W_left · w_i / w_left⌉, both updated. largest-remainder: ⌊W w_i / w⌋, and what
    is left to the largest fractions. Either way the shares add up to `width`, exactly: the arithmetic is that of
    integers, with weights in fixed point. values: R, where None counts as 0. copies: c, 1 each by default. Equal
    nodes: the first is served first.
    """
    copies = copies or [1] * len(values)
    rewards = [0.0 if value is None else value for value in values]
    if not rewards:
        return []
    top = max(rewards)
    weights = [
        int(math.ldexp(math.exp((r - top) / temperature), BITS)) * c
        for r, c in zip(rewards, copies, strict=True)
    ]
    return _ceilings(weights, width) if rounding == "ceil" else _largest_remainders(weights, width)


def _ceilings(weights: list[int], width: int) -> list[int]:
    """n_i = ⌈W_left · w_i / w_left⌉, in descending order of w."""
    counts, left = [0] * len(weights), sum(weights)
    for i in sorted(range(len(weights)), key=lambda i: -weights[i]):
        if not width or not weights[i]:
            break
        counts[i] = -(-width * weights[i] // left)
        width -= counts[i]
        left -= weights[i]
    return counts


def _largest_remainders(weights: list[int], width: int) -> list[int]:
    """⌊W w_i / w⌋, and what is left to the largest fractions; of equal ones, to the largest w."""
    whole = sum(weights)
    counts = [width * w // whole for w in weights]
    rests = [width * w % whole for w in weights]
    for i in sorted(range(len(weights)), key=lambda i: (-rests[i], -weights[i]))[: width - sum(counts)]:
        counts[i] += 1
    return counts


@part
class Rebase(TreeSearch):
    """Level by level, the nodes of a depth share the children that are left to give by `allocate`.

    n: W, the width. A finished node keeps one of the W for good, for each time that it was drawn. temperature: T of
    the softmax of scores. rounding: `ceil`, or `largest-remainder` as the paper's Round.
    """

    searches = True

    n: Count = field(default=16, kw_only=False)
    verifier: Verifier = field()
    temperature: Positive = 0.2
    rounding: Rounding = "ceil"

    async def explore(self, growth: Growth) -> None:
        tree = growth.tree
        wanted: list[Wanted] = [(tree.root, self.n)]
        while wanted:
            nodes = [node for node in await growth.level(wanted) if node.open]
            left = self.n - sum(leaf.multiplicity for leaf in tree.finished_leaves())
            counts = self.shares(nodes, [node.multiplicity for node in nodes], left)
            wanted = [(node, count) for node, count in zip(nodes, counts, strict=True) if count]
            for node, count in zip(nodes, counts, strict=True):
                if not count:
                    node.prune()

    def shares(self, nodes: abc.Sequence[Node], copies: abc.Sequence[int], width: int) -> list[int]:
        """How many of `width` children each node gets."""
        return allocate(
            [node.value for node in nodes],
            width,
            temperature=self.temperature,
            copies=copies,
            rounding=self.rounding,
        )


@part
class AsyncRebase(Rebase):
    """REBASE that waits for no level: children are shared out as scores come.

    When the children of a node have been scored, the allocation of their depth is made anew over all that are there.
    As many children as have arrived unfinished are given: to those that have less than their share, the best first.
    A level that arrives all at once is shared as REBASE would; otherwise what came early may have got more than its
    share. Arrivals of a depth count in the order of their places, so that the tree does not depend on who is fast.
    """

    searches = True

    async def explore(self, growth: Growth) -> None:
        given: defaultdict[int, dict[Node, int]] = defaultdict(dict)
        copies: defaultdict[int, dict[Node, int]] = defaultdict(dict)
        wanted: deque[Wanted] = deque([(growth.tree.root, self.n)])

        def apply(parent: Node, children: list[Node]) -> None:
            depth = parent.depth + 1
            for child in children:
                if not child.finished and depth < self.max_depth:
                    copies[depth][child] = copies[depth].get(child, 0) + 1
            there = list(copies[depth])
            counts = list(copies[depth].values())
            shares = self.shares(there, counts, sum(counts))
            free = sum(counts) - sum(given[depth].values())
            for i in sorted(range(len(there)), key=lambda i: (-shares[i], i)):
                more = min(free, shares[i] - given[depth].get(there[i], 0))
                if more > 0:
                    given[depth][there[i]] = given[depth].get(there[i], 0) + more
                    free -= more
                    wanted.append((there[i], more))

        await growth.steady(
            math.inf, lambda: wanted.popleft() if wanted else None, apply, lambda node: node.depth
        )
        for node in growth.tree.frontier():
            node.prune()
