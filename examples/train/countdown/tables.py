"""What the value model learns from: tables after random games and after the proposer's steps, and what they can reach.

Random games cost nothing, and their targets are chosen so that a target goes out of reach at any step alike. The
proposer's own attempts are what the model will be asked about.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import arrays
import numpy as np
import vocabulary
from arrays import Sets
from games import any_problem, tables
from numpy.typing import NDArray

import parts
import tokenizer as tokenizers_
from llama import load
from metagen.tasks.countdown import notation
from metagen.tasks.countdown.game import after
from metagen.tasks.countdown.problems import TARGETS, Problem, split_of
from metagen.tasks.split import Split
from sample import sample
from setting import Setting

COUNTS = {3: 0.2, 4: 0.4, 5: 0.4}
"""How many numbers a random game begins with, and the share that begins with so many."""
AT_ONCE = 8192
GAMES, PART = 75_000, 25_000
PROBLEMS, SAMPLES, CHUNK = 2000, 8, 500
"""Of the proposer's attempts."""
LONGEST = 96
"""Tokens of a sample."""
TAG = tokenizers_.SPECIAL[tokenizers_.STEP]
(NEWLINE,) = vocabulary.ids(notation.DELIMITER)


@dataclass(frozen=True)
class Told:
    """A game as the value model reads it. text: with a tag after each step.

    labels: of each step, whether the target can still be reached. tables: those after the steps that are allowed; a
    step that is not is the last.
    """

    text: str
    labels: tuple[bool, ...]
    tables: tuple[tuple[int, ...], ...]


def random_games(run: Setting) -> list[Told]:
    """`GAMES` that are random, with targets of the training space."""
    folder, part = run.solutions / "games", partial(some_games, run.seed)
    return list(parts.made_for(run.share(GAMES), PART, folder, part, run.workers))


def some_games(seed: int, index: int, rows: int, split: Split = Split.TRAIN) -> list[Told]:
    """One part of them, or as many of another space."""
    rng = np.random.default_rng([seed, index])
    found: list[Told] = []
    for count, share in COUNTS.items():
        some: list[Told] = []
        while len(some) < round(rows * share):
            some += _games(rng, count, split)
        found += some[: round(rows * share)]
    return [found[i] for i in rng.permutation(len(found))]


def _games(rng: np.random.Generator, count: int, split: Split) -> list[Told]:
    """Games with a target each that some state can reach and the next one cannot, any of the states alike."""
    drawn = tables(rng, AT_ONCE, count)
    played = arrays.play(drawn, rng)
    # Five numbers reach nearly everything.
    start = np.ones((AT_ONCE, len(TARGETS)), bool) if count > 4 else arrays.members(arrays.reach(drawn))
    reached = [start, *(arrays.members(arrays.reach(step.table)) for step in played), np.zeros_like(start)]
    lost = np.stack([here & ~there for here, there in pairwise(reached)], 1)
    state = (rng.random(lost.shape[:2]) * lost.any(2)).argmax(1)
    among = lost[np.arange(AT_ONCE), state]
    targets = TARGETS.start + (rng.random(among.shape) * among).argmax(1)
    told = zip(*(step.lines() for step in played), strict=True)
    states = zip(*(step.table.tolist() for step in played), strict=True)
    rows = zip(drawn.tolist(), targets.tolist(), told, states, state.tolist(), among.any(1), strict=True)
    return [
        Told(
            problem.prompt + "".join(line + TAG for line in lines),
            tuple(k < last for k in range(len(lines))),
            tuple(map(tuple, after_each)),
        )
        for numbers, target, lines, after_each, last, some in rows
        if some and split_of(problem := Problem(tuple(numbers), target)) is split
    ]


def attempts(run: Setting, proposer: str) -> list[Told]:
    """`SAMPLES` of the proposer for each of `PROBLEMS` training problems, judged step by step."""
    part = partial(_attempts, run, proposer)
    found: list[Told] = parts.made_for(
        run.share(PROBLEMS), CHUNK, run.solutions / "attempts", part, run.workers
    )
    random.Random(run.seed).shuffle(found)
    return found


def _attempts(run: Setting, proposer: str, index: int, count: int) -> list[Told]:
    rng = random.Random(f"countdown/attempts/{run.seed}/{index}")
    model = load(run.trained(proposer))
    problems = [any_problem(rng) for _ in range(count)]
    asked = [problem for problem in problems for _ in range(run.samples(SAMPLES))]
    written = sample(
        model,
        vocabulary.numbers(),
        [p.prompt for p in asked],
        longest=run.longest(LONGEST),
        seed=rng.getrandbits(31),
    )
    told = [judged(problem, *one) for problem, one in zip(asked, written, strict=True)]
    # Equal attempts at a problem say nothing new.
    return [one for one in dict.fromkeys(told) if one.labels]


def judged(problem: Problem, text: str, ended: bool) -> Told:
    """An attempt with its labels, up to the first step that is not allowed; what was cut off is no step."""
    lines = text.split(notation.DELIMITER)
    if lines[-1] == "" or not ended:
        lines.pop()
    left, states = problem.table, list[tuple[int, ...]]()
    for line in lines:
        move = notation.read_step(line, left)
        if move is None:
            break
        left = after(left, move) or left
        states.append(tuple(map(int, left)))
    lines = lines[: len(states) + 1]
    labels = notation.check(problem.table, problem.target, "".join(f"{x}\n" for x in lines), finished=True)
    return Told(problem.prompt + "".join(f"{x}\n{TAG}" for x in lines), tuple(labels), tuple(states))


@dataclass(frozen=True)
class Row:
    """A game as ids. tags: where each is; sets: what each table can reach; written: tokens of the right steps."""

    ids: NDArray[np.uint16]
    tags: NDArray[np.int64]
    labels: NDArray[np.float32]
    sets: Sets
    written: slice


def rows(told: Iterable[Told]) -> list[Row]:
    """Games as the model reads them."""
    games = list(told)
    flat = [table for game in games for table in game.tables]
    sizes = np.array([len(table) for table in flat])
    sets = np.zeros((len(flat), 2), np.uint64)
    for size in np.unique(sizes):
        here = np.flatnonzero(sizes == size)
        sets[here] = arrays.reach(np.array([flat[i] for i in here]))
    found, at = list[Row](), 0
    for game in games:
        line = np.array([tokenizers_.BOS, *vocabulary.ids(game.text)], np.uint16)
        tags = np.flatnonzero(line == tokenizers_.STEP)
        start = int(np.flatnonzero(line == NEWLINE)[1]) + 1
        good = sum(game.labels)
        written = slice(start, tags[good - 1] if good else start)
        labels, of_each = np.array(game.labels, np.float32), sets[at : at + len(game.tables)]
        found.append(Row(line, tags, labels, of_each, written))
        at += len(game.tables)
    return found
