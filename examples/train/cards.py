"""Write the model cards from the validation figures: `python examples/train/cards.py figures.jsonl`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import train_generator
import train_reward
from llama import load
from metagen.tasks.arithmetic import LEVELS
from train_generator import MODELS

HEAD = """---
license: apache-2.0
library_name: transformers
tags: [metagen, arithmetic, {kind}]
---
# {name}

{what}

Part of metagen's embedded family: small Llama-architecture models for the arithmetic task of
`metagen.tasks.arithmetic`, small enough to ship with the package and to sample by the thousand on a laptop. They are
for experiments with inference-time scaling and for tests, and good for nothing else.

| | |
|---|---|
| architecture | `LlamaForCausalLM`, {layers} layers, hidden {hidden}, {heads} heads of 32, feed-forward {inner} |
| parameters | {parameters:,} (bfloat16, tied embeddings) |
| context | 2,048 |
| tokenizer | {tokenizer} |
"""

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
Trained by `examples/train/train_reward.py {name}`: `{start}` with {extra} more layers on top (a causal model knows its
guess of the next token in its last layer only; layers above can compare the guess with what came), {steps:,} steps of
{tokens:,} tokens, rate {rate}. Data: samples of the three character-level generators at temperatures 0.7 to 1.3 on
train problems, labelled by the task's step checker, a share of them cut off at a random character, and near misses (a
reference solution with one number changed).
{history}
## Use
`config.json` names the tags. {use}
A candidate whose steps are all right but that never comes to an answer has nothing wrong in it: exclude candidates
without an answer before choosing by a process score.
"""


EARLIER = """
The shipped weights have a history that one run of the script lacks: {what}
"""

HISTORY = {
    "tiny-0.1m": "all steps were on an earlier corpus, wider in its fractions (denominators up to 10).",
    "tiny-0.5m": "1,500 steps were on an earlier corpus, wider in its fractions, the last 400 on the present one.",
    "tiny-2m": "the corpus was narrowed twice, after 400 steps (fewer denominators) and after 1,400 (more fractions).",
    "tiny-prm": "the schedule was lengthened as it went, so that the rate fell, rose and fell again.",
}


def figures_of(rows: list[dict[str, Any]], name: str) -> str:
    """The figures that concern one model."""
    lines = []
    for row in rows:
        if row["generator"] == name:
            levels = "".join(f" | {k}" for k in LEVELS)
            dash = "|---" * (len(LEVELS) + 2) + "|"
            n = max(map(int, row["majority"]))
            single = " | ".join(f"{100 * x:.0f}" for x in row["single by level"])
            passed = " | ".join(f"{100 * x:.0f}" for x in row["pass@n by level"])
            lines += [
                f"Validation, {row['problems']} problems, temperature 1, percent:\n",
                f"| level{levels} | mean |\n{dash}",
                f"| one sample | {single} | {100 * row['single']:.1f} |",
                f"| pass@{n} | {passed} | |\n",
                "| n | " + " | ".join(row["majority"]) + " |\n" + "|---" * (len(row["majority"]) + 1) + "|",
                "| majority | " + " | ".join(f"{100 * v:.1f}" for v in row["majority"].values()) + " |",
            ]
        for key, value in row.items():
            if isinstance(value, dict) and key.startswith(f"{name} "):
                how = key.removeprefix(f"{name} ")
                best = " / ".join(f"{100 * v:.1f}" for v in value["best-of-n"].values())
                weighted = " / ".join(f"{100 * v:.1f}" for v in value["weighted"].values())
                area = value["auc within, levels 20-80%"]
                sizes = ", ".join(value["best-of-n"])
                lines.append(
                    f"- candidates of `{row['generator']}`, {how}: AUC within problems {area:.3f} "
                    "(levels with 20–80% right); "
                    f"n = {sizes}: best-of-n {best}, weighted vote {weighted}"
                )
    return "\n## Figures\n" + "\n".join(lines) + "\n" if lines else ""


def card(name: str, rows: list[dict[str, Any]]) -> str:
    folder = MODELS / name
    config = json.loads((folder / "config.json").read_text())
    kind = config["metagen"]["kind"]
    what = {
        "generator": "A generator: writes solutions step by step (prompt ending in `S:\\n`) or only the answer (`A:`).",
        "prm": "A process reward model: says of each step whether it is right, given the problem and the steps before.",
        "orm": "An outcome reward model: says of a whole solution whether its answer is right.",
    }[kind]
    if name == "tiny-prm-weak":
        what += " Deliberately weak, to show over-optimisation: best-of-n with it stops helping as n grows."
    plans = {**train_generator.PLANS, **train_reward.PLANS}
    plan = plans[name]
    text = HEAD.format(
        name=name,
        kind=kind,
        what=what,
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner=config["intermediate_size"],
        parameters=load(folder).parameter_count,
        tokenizer="byte pairs over the same alphabet, 300 merges"
        if name == "tiny-bpe"
        else "one token a character",
    )
    recipe = plan.recipe
    common = {
        "name": name,
        "steps": recipe.steps,
        "tokens": recipe.tokens,
        "rate": recipe.rate,
        "history": EARLIER.format(what=HISTORY[name]) if name in HISTORY else "",
    }
    if isinstance(plan, train_generator.Plan):
        text += GENERATOR.format(**common)
    else:
        use = (
            "Put `<outcome>` after the whole solution; the softmax over `<+>` and `<->` there is the score."
            if kind == "orm"
            else "Put `<step>` after each line; the softmax over `<+>` and `<->` there is the score of the step."
        )
        text += REWARD.format(**common, start=plan.start, extra=plan.extra, use=use)
    return text + figures_of(rows, name) + LIMITS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="what validate.py --write wrote")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.figures.read_text().splitlines()]
    for name in (*train_generator.PLANS, *train_reward.PLANS):
        (MODELS / name / "README.md").write_text(card(name, rows))
