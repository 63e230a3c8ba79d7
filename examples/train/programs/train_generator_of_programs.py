"""Train one generator of programs: `python examples/train/programs/train_generator_of_programs.py tiny-code-0.5m`."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import setting  # before torch: what it says to OpenMP is read when torch is imported

# isort: split
from dataclasses import dataclass

import specs
import torch
from fragments import tokenizer

import parts
from learn import Lesson, learn
from llama import Llama, Shape
from loop import Recipe
from setting import Setting

HOME = setting.HOME / "programs"


@dataclass(frozen=True)
class Plan:
    """Everything that decides a generator."""

    hidden: int
    layers: int
    feed_forward: int
    lessons: tuple[Recipe, Recipe]
    """For single operations, then for whole programs."""


PLANS = {
    "tiny-code-0.5m": Plan(128, 4, 256, (Recipe(1200), Recipe(2600))),
    "tiny-code-2m": Plan(192, 6, 512, (Recipe(1000, rate=3e-3), Recipe(2400, rate=3e-3))),
}


def generator(name: str, plan: Plan, run: Setting) -> None:
    """Train from the corpus (or go on) and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    text = tokenizer()
    shards = specs.write(run.corpus, run.seed, run.share(specs.SHARD), run.workers)
    torch.manual_seed(run.seed)
    model = Llama(Shape(text.get_vocab_size(), plan.hidden, plan.layers, plan.feed_forward))
    lessons = [Lesson(parts.read(p), run.recipe(r)) for p, r in zip(shards, plan.lessons, strict=True)]
    learn(name, model, text, lessons, run, {"kind": "generator", "steps_delimiter": "\n"})


if __name__ == "__main__":
    parser = setting.parser(__doc__, HOME)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    generator(arguments.name, PLANS[arguments.name], setting.begin(arguments))
