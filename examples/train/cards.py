"""Write the model cards: `python examples/train/cards.py --run RUN --validated FIGURES`.

RUN is a run of `examples/family.yaml` with `--set task.split=validation`; FIGURES is what `validate.py --write` wrote.
A card keeps the figures that it has where there are no new ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import critique
import pools
import solutions
import train_critic
import train_generator
import train_reward
from card_head import head
from metagen.runs.curves.measured import Pool
from metagen.runs.directory import RunDirectory
from setting import SHIPPED

sys.path.append(str(Path(__file__).parents[1]))
import family_report

FAMILY = """\
Part of metagen's embedded family: small Llama-architecture models for the arithmetic task of
`metagen.tasks.arithmetic`, small enough to ship with the package and to sample by the thousand on a laptop. They are
for experiments with inference-time scaling and for tests, and good for nothing else."""

LIMITS = """
## Limits
- It knows the problems of its task, prompts written exactly as `prompt()` writes them, and nothing else; longer chains
  than eight definitions, larger numbers than 99 and other denominators than 2, 4 and 5 were hardly seen in training.
- Asked directly (`A:`), without working, little can be expected beyond short chains of integers.
- Figures are on validation problems. Problems of the test split were not used in training or tuning.
"""

GENERATOR = """
## Recipe
Trained by `examples/train/train_generator.py {name}` on problems of the train split (`examples/train/corpus.py`):
{steps:,} steps of {tokens:,} tokens, Muon for matrices and AdamW for the rest, rate {rate} with linear decay, bfloat16
autocast. Worked solutions with numbers in random equivalent forms, 10% of the problems asked directly. No slips were
planted: all errors are the model's own.
{history}"""

REWARD = """
## Recipe
Trained by `examples/train/train_reward.py {name}`: {start}, {steps:,} steps of
{tokens:,} tokens, rate {rate}. Data: samples of the three character-level generators at temperatures 0.7 to 1.3 on
train problems ({problems:,} problems, {samples} samples of each generator), labelled by the task's step checker, a
share of them cut off at a random character, and near misses (a reference solution with one number changed).{part}
Beside the tags, the first layer above the generator's learns of each
character whether any right step could have it there, and the generator's layers go on learning to write.{hard}
{history}
## Use
`config.json` names the tags. {use}
A candidate whose steps are all right but that never comes to an answer has nothing wrong in it: exclude candidates
without an answer before choosing by a process score.
"""


#: Which verifiers of examples/family.yaml a reward model is.
SCORES = {"tiny-prm": ("last", "min", "mean", "product", "orm"), "tiny-prm-weak": ("weak",)}

PART = """
It learns from {solutions:,} of these solutions, drawn at random; the other reward models learn from all."""

HARD = """
Then {steps} steps on hard examples and as many others: from {problems:,} new problems with {samples} samples of each
of the two larger generators, the {keep} wrong candidates of a problem that the model liked best and the {keep} right
ones that it liked least. The weights are the mean of those before and after that round."""

DEEPER = """`{start}`, deepened by {extra} on top (a causal model knows its
guess of the next token in its last layer only; layers above can compare the guess with what came)"""
AS_IT_IS = "the weights of `{start}`, no layer more"

UNTAUGHT = """
With `<outcome>` after a whole solution without tags, which it has never seen in training, the same softmax ranks
answers nearly as well as the steps do: a verifier of kind `orm` reads it there."""

TAUGHT = """
With `<outcome>` after a whole solution without tags, the same softmax is the score of its answer: give a verifier
of kind `orm` these tags. Each solution was learned in both forms."""

CRITIC = """
## Recipe
Trained by `examples/train/train_critic.py {name}`: the weights of `{start}`{narrowed}, {steps:,} more steps of
{tokens:,} tokens, rate {rate}, loss on critiques and verdicts, and in the layers below on what `{start}` learns. Data:
{examples:,} samples of the generators and near misses on train problems, {wrong:.0%} of them with a wrong answer, their
lines judged by the task's step checker; {at_once:.0%} of the verdicts follow at once, without a critique.

## Use
A judge, with critiques or without, as worded by the `metagen` entry of `config.json`. It reads

{read}
and writes

{written}
"""

NARROWED = " with the {inner} neurons of each feed-forward part that matter most"

EARLIER = """
The shipped weights have a history that one run of the script lacks: {what}
"""

HISTORY = {
    "tiny-prm": "4,000 steps before that round, and 4,000 problems searched in it.",
    "tiny-0.1m": "all steps were on an earlier corpus, wider in its fractions (denominators up to 10).",
    "tiny-0.5m": "1,500 steps were on an earlier corpus, wider in its fractions, the last 400 on the present one.",
    "tiny-2m": "the corpus was narrowed twice, after 400 steps (fewer denominators) and after 1,400 (more fractions).",
}


FIGURES, LIMITS_BEGIN = "\n## Figures\n", "\n## Limits\n"
Figures = dict[str, list[str]]


def figures(run: Path) -> Figures:
    """What a run of `examples/family.yaml` says of each model, as lines of Markdown."""
    directory = RunDirectory(run)
    lines = directory.final_state().lines
    names = dict.fromkeys(line.generator for line in lines)
    pools = {name: Pool.of(directory, name) for name in names}
    count, samples = next(iter(pools.values())).correct.shape
    asked = f"{count} validation problems, {samples} samples each at temperature 1"
    found: Figures = {}
    levels = list(family_report.by_level(pools, lines))
    for generator in pools:
        shown = [line for line in levels[2:] if line.startswith(f"| {generator} |")]
        found[f"tiny-{generator.lower()}"] = [f"Accuracy in % on {asked}:\n", *levels[:2], *shown]
    areas = list(family_report.aucs(pools, lines))
    for model, verifiers in SCORES.items():
        shown = [line for line in areas[2:] if line.split(" | ")[1] in verifiers]
        found[model] = [
            f"AUC within problems on {asked}:",
            "over all levels, at the levels that the generator solves 20–80% of the time, and pooled over problems",
            "(which flatters).\n",
            *areas[:2],
            *shown,
        ]
    return found


def validated(path: Path) -> Figures:
    """What `validate.py` wrote of each generator, as lines of Markdown."""
    found: Figures = {}
    for line in path.read_text().splitlines():
        figures = json.loads(line)
        n, samples = max(map(int, figures["majority"])), figures["samples"]
        one, most = 100 * figures["single"], 100 * figures["majority"][str(n)]
        levels = range(1, 1 + len(figures["single by level"]))
        found[figures["generator"]] = [
            f"Accuracy in % on {figures['problems']} validation problems, {samples} samples each at temperature "
            f"{figures['temperature']:g}: {one:.1f} with one sample, {most:.1f} by majority of {n}.\n",
            "| of one problem's samples | " + " | ".join(f"level {level}" for level in levels) + " |",
            "| --- |" + " --- |" * len(levels),
            "| one | " + " | ".join(f"{100 * v:.1f}" for v in figures["single by level"]) + " |",
            f"| any of {samples} | " + " | ".join(f"{100 * v:.0f}" for v in figures["any by level"]) + " |",
        ]
    return found


def kept(folder: Path) -> str:
    """The figures that a card has already, with their heading."""
    path = folder / "README.md"
    _, heading, rest = (path.read_text() if path.exists() else "").partition(FIGURES)
    return heading + rest.partition(LIMITS_BEGIN)[0] if heading else ""


WHAT = {
    "generator": "A generator: writes solutions step by step (prompt ending in `S:\\n`) or only the answer (`A:`).",
    "prm": "A process reward model: says of each step whether it is right, given the problem and the steps before.",
    "orm": "An outcome reward model: says of a whole solution whether its answer is right.",
    "judge": "A generative verifier: writes a critique of a solution, then a label whose probability is the score.",
}
PLANS: dict[str, train_generator.Plan | train_reward.Plan | train_critic.Plan] = {
    **train_generator.PLANS,
    **train_reward.SHIPPED,
    **train_reward.BETTER,
    **train_critic.PLANS,
}


def card(folder: Path, found: Figures) -> str:
    name = folder.name
    what = WHAT[json.loads((folder / "config.json").read_text())["metagen"]["kind"]]
    if name == "tiny-prm-weak":
        what += " Deliberately weak, to show over-optimisation: best-of-n with it stops helping as n grows."
    tokenizer = (
        "byte pairs over the same alphabet, 300 merges" if name == "tiny-bpe" else "one token a character"
    )
    text = head(folder, topic="arithmetic", what=what, family=FAMILY, tokenizer=tokenizer)
    known = FIGURES + "\n".join(found[name]) + "\n" if name in found else kept(folder)
    return text + recipe(folder) + known + LIMITS


def recipe(folder: Path) -> str:
    """How it was made, and how to use it."""
    name, plan = folder.name, PLANS[folder.name]
    history = EARLIER.format(what=HISTORY[name]) if name in HISTORY and folder.parent == SHIPPED else ""
    common = {
        "name": name,
        "steps": plan.recipe.steps,
        "tokens": plan.recipe.tokens,
        "rate": plan.recipe.rate,
        "history": history,
    }
    match plan:
        case train_generator.Plan():
            return GENERATOR.format(**common)
        case train_critic.Plan():
            return critic(plan, common)
        case _:
            return reward(plan, common)


def reward(plan: train_reward.Plan, common: dict[str, Any]) -> str:
    use = (
        "Put `<outcome>` after the whole solution; the softmax over `<+>` and `<->` there is the score."
        if plan.outcome
        else "Put `<step>` after each line; the softmax over `<+>` and `<->` there is the score of the step."
    )
    hard = plan.round and HARD.format(
        steps=plan.round.steps,
        problems=solutions.HARD_PROBLEMS,
        samples=solutions.HARD_SAMPLES,
        keep=solutions.KEEP,
    )
    part = plan.solutions and PART.format(solutions=plan.solutions)
    return REWARD.format(
        **common,
        start=(DEEPER if plan.extra else AS_IT_IS).format(start=plan.start, extra=plan.extra),
        use=use
        + (TAUGHT if plan.supervision is train_reward.Supervision.BOTH else UNTAUGHT if plan.both else ""),
        hard=hard or "",
        part=part or "",
        problems=solutions.PROBLEMS,
        samples=solutions.SAMPLES,
    )


def critic(plan: train_critic.Plan, common: dict[str, Any]) -> str:
    wrong = next(s for s in pools.near_misses(50, "card") if not s.correct)
    written = critique.critique(wrong) + critique.verdict(wrong) + "\n"
    return CRITIC.format(
        **common,
        start=plan.start,
        examples=train_critic.EXAMPLES,
        wrong=train_critic.WRONG,
        at_once=train_critic.AT_ONCE,
        narrowed=(plan.feed_forward and NARROWED.format(inner=plan.feed_forward)) or "",
        read=indent(critique.asked(wrong), "    "),
        written=indent(written, "    "),
    )


def write(models: Path, found: Figures | None = None) -> None:
    """The cards of all models in a folder that have a card."""
    for name in PLANS:
        if (models / name).exists():
            (models / name / "README.md").write_text(card(models / name, found or {}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run of examples/family.yaml on validation problems")
    parser.add_argument("--validated", type=Path, help="JSON lines of validate.py")
    parser.add_argument("--models", type=Path, default=SHIPPED, help="default: those that ship")
    arguments = parser.parse_args()
    found = figures(arguments.run) if arguments.run else {}
    found |= validated(arguments.validated) if arguments.validated else {}
    write(arguments.models, found)
