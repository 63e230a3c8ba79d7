"""The published rules of selection, each copy of a step on its own, over trees whose draws and scores are given.

Written from the papers and from what the published programs do, in lists of copies: they know nothing of nodes that
stand for several draws. What they find is compared with the library's searches over the same trees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Drawn:
    """A step that was drawn: the whole text with it, whether that has ended, and its score."""

    text: str
    ended: bool
    score: float


#: Draw k after a text.
Draw = Callable[[str, int], Drawn]


@dataclass
class Run:
    """One search: how many draws each text got, and the ends that it found, each as often as it was drawn."""

    draw: Draw
    draws: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def next(self, text: str) -> Drawn:
        """The next draw of a text; equal copies of it take turns."""
        drawn = self.draw(text, self.draws[text])
        self.draws[text] += 1
        self.ends[drawn.text] += drawn.ended
        return drawn


def beams(draw: Draw, n: int, m: int) -> Run:
    """Beam search with a process reward model (Snell et al. 2025, section 5.1), as search-and-learn runs it.

    n copies a level: the active ones, repeated until there are n. The best n/m that have not ended stay active. Ends
    beyond the first n are not looked at there, so that the search may as well stop. Active copies are repeated from the
    best one on, where the program takes them as they come; it matters where fewer than n/m are open.
    """
    run, active, ended = Run(draw), [Drawn("", False, 0.0)], 0
    while active and ended < n:
        level = [run.next(active[i % len(active)].text) for i in range(n)]
        ended += sum(one.ended for one in level)
        going = [one for one in level if not one.ended]
        active = sorted(going, key=lambda one: -one.score)[: n // m]
    return run


def diverse_trees(draw: Draw, n: int, m: int) -> Run:
    """DVTS (Beeching et al. 2024): n/m beams that each keep the best of their own m draws, until that has ended."""
    run = Run(draw)
    active = ["" for _ in range(n // m)]
    while active:
        best = [max((run.next(text) for _ in range(m)), key=lambda one: one.score) for text in active]
        active = [one.text for one in best if not one.ended]
    return run


def reward_balanced(draw: Draw, n: int, temperature: float = 0.2) -> Run:
    """REBASE (Wu et al. 2025): ceilings of the shares of what is left, by descending weight; an end keeps its place."""
    run, width = Run(draw), n
    level = [run.next("") for _ in range(n)]
    while True:
        width -= sum(one.ended for one in level)
        going = sorted((one for one in level if not one.ended), key=lambda one: -one.score)
        weights = [math.exp(one.score / temperature) for one in going]
        left, total, level = width, math.fsum(weights), []
        for one, weight in zip(going, weights, strict=True):
            share = math.ceil(left * weight / total - 1e-9) if total > 0 else 0
            left, total = left - share, total - weight
            level += [run.next(one.text) for _ in range(share)]
        if not level:
            return run


def best_first(draw: Draw, n: int, m: int) -> Run:
    """The textbook's: the best open node of the whole tree, each once; until n draws have ended."""
    run, seen = Run(draw), {""}
    open_ = [(0.0, 0, "")]
    while open_ and run.ends.total() < n:
        best = min(open_)
        open_.remove(best)
        for one in [run.next(best[2]) for _ in range(m)]:
            if not one.ended and one.text not in seen:
                seen.add(one.text)
                open_.append((-one.score, -one.text.count(";"), one.text))
    return run


def depth_first(draw: Draw, n: int, m: int, threshold: float) -> Run:
    """Tree of Thoughts (Yao et al. 2023), algorithm 2: children in descending order, those below the threshold not."""
    run = Run(draw)
    good = Counter[str]()

    def visit(text: str) -> None:
        if good.total() >= n:
            return
        children = [run.next(text) for _ in range(m)]
        reached = sorted((one for one in children if one.score >= threshold), key=lambda one: -one.score)
        good.update(one.text for one in reached if one.ended)
        for one in dict.fromkeys(reached):
            if not one.ended:
                visit(one.text)

    visit("")
    return run
