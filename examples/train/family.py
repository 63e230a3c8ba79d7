"""Train the whole embedded family: `python examples/train/family.py`. Call again to go on after an interruption."""

from __future__ import annotations

import runner  # before torch: what its setting says to OpenMP is read when torch is imported

# isort: split
from functools import partial

import cards
import corpus
import parts
import solutions
import train_generator
import train_reward
from runner import CORES, Stage, making, training
from setting import Setting

#: Seconds of one thread for one unit of work: a step of training, or a thing made. Measured on a server's core.
COST = {
    "corpus": 0.00014,
    "tiny-0.1m": 0.074,
    "tiny-0.5m": 0.27,
    "tiny-2m": 0.93,
    "tiny-bpe": 0.115,
    "sample tiny-0.1m": 0.0035,
    "sample tiny-0.5m": 0.0077,
    "sample tiny-2m": 0.025,
    "score": 0.0161,
    "tiny-prm": 1.05,
    "tiny-prm-weak": 0.31,
}


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    size = run.share(corpus.SHARD)
    examples = train_generator.SHARDS * size
    write = partial(corpus.write, run.corpus, run.seed, train_generator.SHARDS, size, run.workers)
    found = [making("corpus", f"{examples:,} examples", COST["corpus"] * examples, write)]
    for name, plan in train_generator.PLANS.items():
        train = partial(train_generator.generator, name, plan, run)
        steps = run.share(plan.recipe.steps)
        found.append(training(name, steps, COST[name], train, done=run.finished(name)))
    found.append(labelling(run))
    found += [reward(name, plan, run) for name, plan in train_reward.SHIPPED.items()]
    return [*found, Stage("cards", "", 0.0, partial(cards.write, run.models))]


def labelling(run: Setting) -> Stage:
    """The labelled solutions that all reward models learn from."""
    count = run.share(solutions.PROBLEMS)
    each = run.samples(solutions.SAMPLES) * sum(COST[f"sample {name}"] for name in solutions.GENERATORS)
    done = parts.complete(run.solutions / "labelled", count, solutions.CHUNK)
    label = partial(solutions.labelled, run)
    return making("solutions", f"{count:,} problems", count * each, label, done=done)


def reward(name: str, plan: train_reward.Plan, run: Setting) -> Stage:
    """A reward model with its round on hard examples, if it has one."""
    train = partial(train_reward.reward, name, plan, run)
    done = run.finished(name)
    stage = training(name, run.share(plan.recipe.steps), COST[name], train, done=done)
    if plan.round is None:
        return stage
    more = training(name, run.share(plan.round.steps), COST[name], train)
    count = run.share(solutions.HARD_PROBLEMS)
    each = sum(COST["score"] + COST[f"sample {g}"] for g in solutions.GENERATORS[1:])
    searched = count * run.samples(solutions.HARD_SAMPLES) * each / CORES
    work = f"{stage.work}, {count:,} problems searched, {more.work}"
    return Stage(name, work, stage.seconds + searched + more.seconds, train, done)


if __name__ == "__main__":
    runner.main(__doc__, stages)
