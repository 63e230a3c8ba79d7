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
import tables
import torch

import parts
import setting
import tokenizer as tokenizers_
import train_reward
from learn import Lesson, learn
from llama import Llama, Shape, deepen, load
from loop import Recipe
from runner import Stage, making, training
from setting import Setting
from train_reward import Plan, Supervision

HOME = setting.HOME / "countdown"
PROPOSER, VALUE = "tiny-countdown", "tiny-countdown-value"
SHAPE = {"hidden": 128, "layers": 3, "feed_forward": 256}
WRITES = Recipe(2000, rate=4e-3, tokens=6144)
JUDGES = Plan(
    PROPOSER,
    extra=1,
    recipe=Recipe(1200, rate=2e-3, tokens=6144),
    supervision=Supervision.STEPS,
    helped=False,
)
#: Seconds of one core for one unit of work.
COST = {"problem": 0.012, PROPOSER: 0.2, "attempt": 0.006, VALUE: 0.28}


def propose(run: Setting) -> None:
    """Train the proposer from the corpus, or go on; done already if there is a directory."""
    if run.finished(PROPOSER):
        return
    text = tokenizers_.characters()
    paths = games.write(run.corpus, run.seed, games.SHARDS, run.share(games.SHARD), run.workers)
    torch.manual_seed(run.seed)
    model = Llama(Shape(text.get_vocab_size(), *SHAPE.values()))
    lesson = Lesson(parts.read(paths), run.recipe(WRITES))
    learn(PROPOSER, model, text, [lesson], run, {"kind": "generator", "steps_delimiter": "\n"})


def value(run: Setting) -> None:
    """Train the value model on the proposer's attempts, or go on; done already if there is a directory."""
    if run.finished(VALUE):
        return
    torch.manual_seed(run.seed)
    model = deepen(load(run.trained(PROPOSER)), JUDGES.extra)
    attempts = [one for one in tables.attempts(run, PROPOSER) if one.steps]
    train_reward.fit(VALUE, JUDGES, JUDGES.recipe, model, attempts, run, run.models / VALUE)


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    size = run.share(games.SHARD)
    problems = size * games.SHARDS
    write = partial(games.write, run.corpus, run.seed, games.SHARDS, size, run.workers)
    count = run.share(tables.PROBLEMS)
    return [
        making("corpus", f"{problems:,} problems", COST["problem"] * problems, write),
        training(
            PROPOSER,
            run.share(WRITES.steps),
            COST[PROPOSER],
            partial(propose, run),
            done=run.finished(PROPOSER),
        ),
        making(
            "attempts",
            f"{count:,} problems",
            COST["attempt"] * count * tables.SAMPLES,
            partial(tables.attempts, run, PROPOSER),
        ),
        training(
            VALUE, run.share(JUDGES.recipe.steps), COST[VALUE], partial(value, run), done=run.finished(VALUE)
        ),
    ]


if __name__ == "__main__":
    runner.main(__doc__, stages, HOME)
