"""Train what judges, and compare it: `python examples/train/rewards.py`. Call again to go on after an interruption.

Reward models on every kind of supervision, a better outcome model, and generative verifiers, in the folder of a
run of `family.py`, whose generators, labelled solutions and process model they start from.
"""

from __future__ import annotations

import runner  # before torch: what its setting says to OpenMP is read when torch is imported

# isort: split
from functools import partial

import cards
import compare_rewards
import family
import judging
import parts
import solutions
import train_critic
import train_reward
from metagen.tasks.arithmetic import LEVELS
from runner import Stage, making, training
from setting import Setting

#: Seconds of one thread for one unit of work, as in `family.py`: processor time over 5 steps, 46 problems or 192
#: samples, on a busy machine at low priority.
COST = {
    "rollouts": 1.5,
    "reward": 0.93,
    "tiny-orm-2m": 0.92,
    "tiny-both": 1.07,
    "tiny-critic": 0.6,
    "judged sample": 0.8,
}


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    found = [family.labelling(run)]
    for name, better in train_reward.BETTER.items():
        train = partial(train_reward.reward, name, better, run)
        steps = run.share(better.recipe.steps)
        found.append(training(name, steps, COST[name], train, done=run.finished(name)))
    for name, plan in train_critic.PLANS.items():
        train = partial(train_critic.critic, name, plan, run)
        steps = run.share(plan.recipe.steps)
        found.append(training(name, steps, COST[name], train, done=run.finished(name)))
    count = run.share(solutions.VALUED_PROBLEMS)
    done = parts.complete(run.solutions / "valued", count, solutions.VALUED_CHUNK)
    values = partial(solutions.valued, run)
    found.append(making("rollouts", f"{count:,} problems", count * COST["rollouts"], values, done=done))
    for name, compared in train_reward.COMPARED.items():
        train = partial(train_reward.reward, name, compared, run)
        steps = run.share(compared.recipe.steps)
        found.append(training(name, steps, COST["reward"], train, done=run.finished(name)))
    count = run.share(judging.PER_LEVEL) * len(LEVELS) * judging.SAMPLES
    seconds = count * COST["judged sample"]
    found.append(making("comparison", f"{count:,} samples", seconds, partial(compare, run)))
    return [*found, Stage("cards", "", 0.0, partial(cards.write, run.models))]


def compare(run: Setting) -> None:
    print(compare_rewards.compare(run))


if __name__ == "__main__":
    runner.main(__doc__, stages)
