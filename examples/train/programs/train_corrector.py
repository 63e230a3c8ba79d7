"""Train the corrector on wrong programs: `python examples/train/programs/train_corrector.py`."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import setting  # before torch: what it says to OpenMP is read when torch is imported

# isort: split
import random

import torch
from fragments import tokenizer
from train_generator_of_programs import HOME
from wrong import wrong

from learn import Lesson, learn
from llama import load
from loop import Recipe
from metagen.tasks.programs.repair import WRONG, end_last_line
from parts import Record
from setting import Setting

NAME, START = "tiny-code-corrector", "tiny-code-2m"
RECIPE = Recipe(1500, rate=2e-3, tokens=4096)
BLIND = 0.2
"""Share of the examples that withhold what execution has shown."""


def corrector(run: Setting) -> None:
    """Train from the larger generator (or go on) and write the model directory; done already if there is one."""
    if run.finished(NAME):
        return
    recipe = run.recipe(RECIPE)
    rng = random.Random(f"corrector/{run.seed}")
    examples = [example(record, blind=rng.random() < BLIND) for record in wrong(run)]
    torch.manual_seed(recipe.seed)
    entry = {"kind": "corrector", "steps_delimiter": "\n"}
    learn(NAME, load(run.models / START), tokenizer(), [Lesson(examples, recipe)], run, entry)


def example(record: Record, *, blind: bool) -> tuple[str, str]:
    """Prompt and completion of a repair."""
    shown = WRONG if blind else record["failure"]
    return record["prompt"] + end_last_line(record["wrong"]) + shown, record["right"]


if __name__ == "__main__":
    corrector(setting.begin(setting.parser(__doc__, HOME).parse_args()))
