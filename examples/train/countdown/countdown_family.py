"""Train the Countdown family: `python examples/train/countdown/countdown_family.py`.

A proposer, which writes solutions step by step, and a value model, which says after each step whether the target can
still be reached. Call again to go on after an interruption; `--plan` says what would be done, and how long it takes.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import runner  # before torch: what its setting says to OpenMP is read when torch is imported

# isort: split
from functools import partial

import games
import numpy as np
import tables
import torch
import values
import vocabulary
from torch import Tensor

import parts
import setting
import train_reward
from learn import Lesson, learn
from llama import Llama, Shape, deepen, export, load
from loop import Recipe, train
from runner import Stage, making, training
from setting import Setting

HOME = setting.HOME / "countdown"
PROPOSER, VALUE = "tiny-countdown", "tiny-countdown-value"
SHAPE = {"hidden": 96, "layers": 3, "feed_forward": 256}
EXTRA = 3
"""Layers of the value model on top of the proposer's."""
WRITES = Recipe(1800, rate=4e-3, tokens=2048)
JUDGES = Recipe(1500, rate=4e-3, tokens=2048)
#: Seconds of one core for one unit of work.
COST = {"problem": 0.0001, PROPOSER: 0.08, "game": 0.0006, "attempt": 0.003, VALUE: 0.17}


def blank(run: Setting) -> Llama:
    """A model that has learned nothing, but for the order of the numbers."""
    torch.manual_seed(run.seed)
    model = Llama(Shape(vocabulary.numbers().get_vocab_size(), *SHAPE.values()))
    with torch.no_grad():
        tokens, features = vocabulary.ordered(model.shape.hidden)
        table = model.model.embed_tokens.weight
        table[tokens] = table.std() * torch.from_numpy(features).to(table)
    return model


def propose(run: Setting) -> None:
    """Train the proposer from the corpus, or go on; done already if there is a directory."""
    if run.finished(PROPOSER):
        return
    paths = games.write(run.corpus, run.seed, games.SHARDS, run.share(games.SHARD), run.workers)
    lesson = Lesson(parts.read(paths), run.recipe(WRITES))
    entry = {"kind": "generator", "steps_delimiter": "\n"}
    learn(PROPOSER, blank(run), vocabulary.numbers(), [lesson], run, entry)


def value(run: Setting) -> None:
    """Train the value model, or go on; done already if there is a directory."""
    if run.finished(VALUE):
        return
    torch.manual_seed(run.seed)  # the layers on top begin at random
    model = deepen(load(run.trained(PROPOSER)), EXTRA)
    rows = tables.rows(tables.random_games(run) + tables.attempts(run, PROPOSER))

    def loss(batch: np.ndarray) -> Tensor:
        return values.loss_of(model, [rows[i] for i in batch], EXTRA)

    lengths = np.array([len(row.ids) for row in rows])
    train(model, run.recipe(JUDGES), lengths, loss, run.checkpoints / f"{VALUE}.pt", run.save_every)
    export(model, vocabulary.numbers(), run.models / VALUE, train_reward.configuration(outcome=False))


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    size = run.share(games.SHARD)
    problems = size * games.SHARDS
    write = partial(games.write, run.corpus, run.seed, games.SHARDS, size, run.workers)
    random_games = partial(tables.random_games, run)
    count, some = run.share(tables.PROBLEMS), run.share(tables.GAMES)
    return [
        making("corpus", f"{problems:,} problems", COST["problem"] * problems, write),
        training(
            PROPOSER,
            run.share(WRITES.steps),
            COST[PROPOSER],
            partial(propose, run),
            done=run.finished(PROPOSER),
        ),
        making("games", f"{some:,} games", COST["game"] * some, random_games),
        making(
            "attempts",
            f"{count:,} problems",
            COST["attempt"] * count * tables.SAMPLES,
            partial(tables.attempts, run, PROPOSER),
        ),
        training(VALUE, run.share(JUDGES.steps), COST[VALUE], partial(value, run), done=run.finished(VALUE)),
    ]


if __name__ == "__main__":
    runner.main(__doc__, stages, HOME)
