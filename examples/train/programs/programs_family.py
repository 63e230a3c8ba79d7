"""Train the programs family: `python examples/train/programs/programs_family.py`.

Call again to go on after an interruption. `--plan` says what would be done and how long it takes on two idle cores.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import runner  # before torch: what its setting says to OpenMP is read when torch is imported

# isort: split
from functools import partial

import judged
import programs_cards
import specs
import train_corrector
import train_generator_of_programs as generators
import validate_programs
import wrong
from rich.console import Console

from metagen.tasks.programs.problems import LEVELS
from runner import Stage, making, training
from setting import Setting

#: Seconds of one core for one unit of work: a step of training, an example, or a sample. Those of the first family's
#: models of the same sizes, as far as training at length has not measured them.
COST = {
    "example": 0.00025,
    "tiny-code-0.5m": 0.27,
    "tiny-code-2m": 0.95,
    "tiny-code-corrector": 0.5,
    "sample tiny-code-0.5m": 0.0077,
    "sample tiny-code-2m": 0.025,
}


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    size = run.share(specs.SHARD)
    examples = (specs.SINGLES + specs.MIXED) * size
    write = partial(specs.write, run.corpus, run.seed, size, run.workers)
    found = [making("corpus", f"{examples:,} examples", COST["example"] * examples, write)]
    for name, plan in generators.PLANS.items():
        train = partial(generators.generator, name, plan, run)
        steps = sum(run.share(recipe.steps) for recipe in plan.lessons)
        found.append(training(name, steps, COST[name], train, done=run.finished(name)))
    count = run.share(wrong.CHUNK) * wrong.count(run)
    each = sum(n * COST[f"sample {name}"] for name, n in wrong.SAMPLES.items())
    found.append(making("wrong programs", f"{count:,} problems", count * each, partial(wrong.wrong, run)))
    name, steps = train_corrector.NAME, run.share(train_corrector.RECIPE.steps)
    correct = partial(train_corrector.corrector, run)
    found.append(training(name, steps, COST[name], correct, done=run.finished(name)))
    count = run.share(judged.PER_LEVEL) * len(LEVELS)
    # All samples of both generators, and at most all corrections, told and blind; then the bootstrap.
    large = judged.SAMPLES + 2 * judged.CHAINS * judged.DEPTH
    each = large * COST["sample tiny-code-2m"] + judged.SAMPLES * COST["sample tiny-code-0.5m"]
    figures = partial(validate_programs.figures, run)
    found.append(making("validation", f"{count:,} problems", count * each + 120, figures))
    return [*found, Stage("cards", "", 0.0, partial(cards, run))]


def cards(run: Setting) -> None:
    """The model cards, and the figures that they hold."""
    programs_cards.write(run)
    validate_programs.show(Console(width=150), validate_programs.figures(run))


if __name__ == "__main__":
    runner.main(__doc__, stages, generators.HOME)
