"""Train one generative verifier: `python examples/train/train_critic.py tiny-critic`.

It reads a problem and a solution, writes a critique, and ends in a label whose probability is the score
(`critique.py` has the form). It starts from a generator, whose arithmetic it needs.
"""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import random
from dataclasses import dataclass

import torch
from rich.progress import track

import critique
import solutions
import tokenizer as tokenizers_
from learn import Lesson, learn
from llama import load
from loop import Recipe
from pools import Solution
from setting import Setting


@dataclass(frozen=True)
class Plan:
    """Everything that decides a generative verifier. start: the generator that it starts from."""

    start: str
    recipe: Recipe


PLANS = {
    "tiny-critic-0.5m": Plan("tiny-0.5m", Recipe(2200, rate=2e-3, tokens=6144)),
    "tiny-critic": Plan("tiny-2m", Recipe(1500, rate=2e-3, tokens=8192)),
}
EXAMPLES = 60_000
WRONG = 0.6
"""Share of wrong solutions. With few of them, to copy what the solution says would be almost always right."""
AT_ONCE = 0.15
"""Share of the examples in which the verdict follows without a critique."""


def critic(name: str, plan: Plan, run: Setting) -> None:
    """Train (or go on) and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    rng = random.Random(f"critic/{run.seed}")
    chosen = mixed(solutions.labelled(run), run.share(EXAMPLES), rng)
    examples = [example(s, at_once=rng.random() < AT_ONCE) for s in track(chosen, "critiques")]
    recipe = run.recipe(plan.recipe)
    torch.manual_seed(recipe.seed)
    model, tokenizer = load(run.trained(plan.start)), tokenizers_.characters()
    entry = {"kind": "judge", **critique.OPTIONS}
    learn(name, model, tokenizer, [Lesson(examples, recipe)], run, entry)


def mixed(found: list[Solution], count: int, rng: random.Random) -> list[Solution]:
    """At most `count` different solutions, `WRONG` of them wrong (in a step, if not in the answer)."""
    distinct = [s for s in dict.fromkeys(found) if s.steps]
    right = [s for s in distinct if critique.sound(s)][: round(count * (1 - WRONG))]
    wrong = [s for s in distinct if not critique.sound(s)][: round(count * WRONG)]
    chosen = right + wrong
    rng.shuffle(chosen)
    return chosen


def example(solution: Solution, *, at_once: bool) -> tuple[str, str]:
    """Prompt and completion."""
    text = "" if at_once else critique.critique(solution)
    return critique.asked(solution), text + critique.verdict(solution)


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    critic(arguments.name, PLANS[arguments.name], setting.begin(arguments))
