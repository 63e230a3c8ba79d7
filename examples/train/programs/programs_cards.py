"""Write the model cards of the programs family: `python examples/train/programs/programs_cards.py`."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import json
from collections.abc import Iterator
from typing import Any

import train_corrector
import wrong
from specs import MIXED, SHARD, SINGLES
from train_generator_of_programs import HOME, PLANS
from validate_programs import BUDGETS

import setting
from card_head import head
from metagen.tasks.programs.problems import LEVELS
from setting import Setting

FAMILY = """\
Part of metagen's second embedded family: small Llama-architecture models for the task of `metagen.tasks.programs`,
short Python functions from examples. They are for experiments with inference-time scaling and for tests, and good
for nothing else."""
TOKENIZER = "characters, numbers to 99 and fragments of programs (`examples/train/programs/fragments.py`)"

GENERATOR = """
## Recipe
Trained by `examples/train/programs/train_generator_of_programs.py {name}` on {examples:,} problems of the train split:
{lessons} steps of {tokens:,} tokens on single operations, and on all kinds of problems.
Muon for matrices and AdamW for the rest, rate {rate} with linear decay, bfloat16 autocast. Loss on the programs alone.
No slips were planted: all errors are the model's own.
"""

CORRECTOR = """
## Use
The prompt is the problem's, a program, and the first public example that it fails, as
`metagen.tasks.programs.repair.repair_prompt` writes them; or `#wrong` where execution is to be withheld. The answer is
a whole program.

## Recipe
Trained by `examples/train/programs/train_corrector.py`: the weights of `{start}`, {steps:,} more steps of
{tokens:,} tokens, rate {rate}. Data: for {problems:,} train problems the distinct wrong programs among {samples} and
{near} near misses (one operation exchanged for another of its kind, or one line left out), with the first public
example that each fails and what it gave; the right program is the completion. In {blind:.0%} of the examples the
failing case is withheld.
"""

LIMITS = """
## Limits
- It knows prompts of this task, written exactly as the task writes them: five examples, lists of at most ten integers
  up to 99, and the operations of `metagen.tasks.programs.grammar`.
- Figures are on validation problems. Problems of the test split were not used in training or tuning.
"""


def card(run: Setting, name: str, figures: dict[str, Any]) -> str:
    corrector = name == train_corrector.NAME
    recipe = run.recipe(train_corrector.RECIPE if corrector else PLANS[name].lessons[-1])
    what = (
        "A corrector: writes a program anew, given examples, a wrong program and a case that it fails."
        if corrector
        else "A generator: writes a Python function that does what five examples show."
    )
    text = head(run.models / name, topic="program-synthesis", what=what, family=FAMILY, tokenizer=TOKENIZER)
    common = {"steps": recipe.steps, "tokens": recipe.tokens, "rate": recipe.rate}
    if corrector:
        text += CORRECTOR.format(
            **common,
            start=train_corrector.START,
            problems=run.share(wrong.CHUNK) * wrong.count(run),
            samples=" and ".join(f"{n} samples of `{g}`" for g, n in wrong.SAMPLES.items()),
            near=wrong.NEAR,
            blind=train_corrector.BLIND,
        )
    else:
        lessons = ", ".join(f"{run.recipe(r).steps:,}" for r in PLANS[name].lessons)
        text += GENERATOR.format(
            **common, name=name, lessons=lessons, examples=(SINGLES + MIXED) * run.share(SHARD)
        )
    shown = compute(figures) if corrector else coverage(figures["generators"][name])
    return text + "\n## Figures\n" + "\n".join(shown) + "\n" + LIMITS


def coverage(figures: dict[str, Any]) -> Iterator[str]:
    """pass@k as a table."""
    most = max(map(int, figures["pass@k"]))
    yield f"Accuracy in % on {figures['problems']} validation problems, {most} samples each at temperature 1, with"
    yield "95% intervals over problems:\n"
    yield "| k | pass@k | " + " | ".join(f"level {level}" for level in LEVELS) + " |"
    yield "| --- |" + " --- |" * (1 + len(LEVELS))
    for k in figures["pass@k"]:
        estimate, low, high = figures["pass@k"][k]
        levels = " | ".join(f"{100 * v:.0f}" for v in figures["by level"][k])
        yield f"| {k} | {100 * estimate:.1f} [{100 * low:.1f}, {100 * high:.1f}] | {levels} |"


def compute(figures: dict[str, Any]) -> Iterator[str]:
    """Correction against resampling, as tables."""
    repair = figures["repair"]
    if repair:
        shown = ", ".join(
            f"{100 * e:.1f}% [{100 * low:.1f}, {100 * high:.1f}] {what}"
            for what, (e, low, high) in (
                ("right after one correction", repair["told"]),
                ("after one that is told no failing case", repair["blind"]),
                ("with a fresh sample of the generator", repair["fresh"]),
            )
        )
        count = repair["problems"]
        yield f"Of programs that fail a public example, on the {count} validation problems that have such:"
        yield f"{shown}.\n"
    yield "Accuracy in % at equal compute, 95% intervals of paired differences over problems. A policy stops at the"
    yield "first program that passes the public examples; `correct d` makes up to d corrections of a sample before the"
    yield "next sample, and `blind d` makes them without a failing case.\n"
    for account, values in figures["compute"]["accounts"].items():
        yield f"| tokens {account} | " + " | ".join(f"worth {n} samples" for n in BUDGETS) + " |"
        yield "| --- |" + " --- |" * len(BUDGETS)
        for name, row in values["accuracy"].items():
            yield f"| {name} | " + " | ".join(f"{100 * v:.1f}" for v in row) + " |"
        for name, row in values["differences"].items():
            cells = (f"{100 * e:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]" for e, low, high, _ in row)
            yield f"| {name} | " + " | ".join(cells) + " |"
        yield ""


def write(run: Setting) -> None:
    """The cards of all models of a run, from its figures."""
    figures = json.loads((run.into / "figures.json").read_text())
    for name in (*PLANS, train_corrector.NAME):
        (run.models / name / "README.md").write_text(card(run, name, figures))


if __name__ == "__main__":
    write(setting.of(setting.parser(__doc__, HOME).parse_args()))
