"""Train one value function for token-wise control: `python examples/train/train_value.py tiny-value`.

V(x, y, z) foresees the reward of what a generator p goes on with once it has written z. The model starts from that
generator, or from a larger one, with layers on top; its V outputs after a prefix are read, by sigmoid, as the values
of the next tokens, so that `Tilted(p, (value,), (λ,), reading="sigmoid")` draws from p · e^(λV) / Z. It learns from
the generator's own samples and their rewards, by one of two targets (Mudgal et al. 2024, §3), or from which of their
characters is the first that no right step could have.
"""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import returns
import tokenizer as tokenizers_
from card_head import head
from llama import Llama, deepen, export, load
from loop import Recipe, train
from returns import Table
from setting import Setting


class Target(StrEnum):
    """What the value of a token that was drawn is drawn to."""

    FUDGE = "the reward of the sample (FUDGE)"
    SOUND = "whether a right step could have it there, all before being right (FUDGE, with a process reward)"
    Q = "what its next token is expected to be worth; at the end, the reward (Q)"


@dataclass(frozen=True)
class Plan:
    """Everything that decides a value function."""

    generator: str
    """Whose samples are foreseen."""
    target: Target
    recipe: Recipe
    base: str
    """The generator that it starts from."""
    extra: int = 1
    """Layers on top of the base's."""
    explored: int = 0
    """Samples that say what tokens are worth that the generator hardly draws (`returns.explored`)."""
    prior: float = 0.0
    """Weight of what draws a token that is hardly ever drawn to the value of the prefix, where it changes nothing."""


PLANS = {
    "value-fudge": Plan("tiny-0.5m", Target.FUDGE, Recipe(500, rate=2e-3, tokens=6144), "tiny-0.5m"),
    "value-q": Plan("tiny-0.5m", Target.Q, Recipe(500, rate=2e-3, tokens=6144), "tiny-0.5m"),
    "tiny-value": Plan(
        "tiny-0.5m", Target.SOUND, Recipe(1000, rate=1.5e-3, tokens=6144), "tiny-2m", explored=24_000
    ),
}
COOL = 0.25
"""The base's logits are scaled by this at the start: sigmoids of what they are would learn nothing."""


def value(name: str, plan: Plan, run: Setting) -> None:
    """Train from the generator's returns (or go on), and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    base = load(run.trained(plan.generator)).requires_grad_(False)
    recipe, tokenizer = run.recipe(plan.recipe), tokenizers_.characters()
    torch.manual_seed(recipe.seed)  # the layers on top begin at random
    model = begun(load(run.trained(plan.base)), plan.extra)
    found = returns.returns(run, plan.generator)
    if plan.explored:
        found = found + returns.explored(run, plan.generator, plan.explored)
    rows = returns.rows(found, tokenizer)

    def loss(batch: np.ndarray) -> Tensor:
        return loss_of(model, base, plan.target, returns.table([rows[i] for i in batch]), plan.prior)

    lengths = np.array([len(row.ids) for row in rows])
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    entry = {"kind": "value", "of": plan.generator, "reading": "sigmoid"}
    export(model, tokenizer, run.models / name, entry)
    (run.models / name / "README.md").write_text(card(run.models / name, plan))


def begun(base: Llama, extra: int) -> Llama:
    """A generator with layers on top, its logits brought near 0, where sigmoids have a slope."""
    model = deepen(base, extra)
    with torch.no_grad():
        model.model.norm.weight.mul_(COOL)
    return model


def loss_of(model: Llama, base: Llama, target: Target, table: Table, prior: float = 0.0) -> Tensor:
    """½ (V(x, y_≤t, y_t+1) − v_t)², the mean over the tokens of completions.

    prior: weight of the mean over all next tokens z of ½ (V(x, y_≤t, z) − v_t)².
    """
    ids = torch.from_numpy(table.ids)
    values = torch.sigmoid(model(ids).float())
    drawn = torch.from_numpy(table.drawn)
    if target is Target.SOUND:
        goals = torch.from_numpy(table.sound)
        drawn = drawn & goals.isfinite()
    elif target is Target.FUDGE:
        goals = torch.from_numpy(table.rewards)[:, None].expand(table.drawn.shape)
    else:
        with torch.no_grad():
            goals = bootstrapped(values, torch.softmax(base(ids).float(), -1), table)
    goals, values = goals[drawn], values[:, :-1][drawn]
    taken = values.gather(-1, ids[:, 1:][drawn][:, None])[:, 0]
    loss = 0.5 * (taken - goals).square().mean()
    return loss + prior * 0.5 * (values - goals[:, None]).square().mean() if prior else loss


def bootstrapped(values: Tensor, p: Tensor, table: Table) -> Tensor:
    """The goals of Q: v_t = Σ_z p(z | y_≤t+1) V(y_≤t+1, z), and r behind the last token.

    values, p: [rows, width, V]. The result is [rows, width − 1].
    """
    expected = (p * values.detach()).sum(-1)[:, 1:]
    rewards = torch.from_numpy(table.rewards)[:, None].expand_as(expected)
    return torch.where(torch.from_numpy(table.last), rewards, expected)


FAMILY = """\
Part of metagen's embedded family: small Llama-architecture models for the arithmetic task of
`metagen.tasks.arithmetic`. It is for experiments with token-wise control and for tests, and good for nothing else."""

WHAT = """\
A value function: of every next token, the probability that {event}."""
RIGHT = "`{of}` comes to the right answer behind it"
EVENTS = {Target.FUDGE: RIGHT, Target.Q: RIGHT, Target.SOUND: "a right step could have it there"}

RECIPE = """
## Recipe
Trained by `examples/train/train_value.py {name}`: {start}, {steps:,} steps of
{tokens:,} tokens, rate {rate}, on {samples:,} samples of `{of}` at temperature 1 for problems of the train split{more}.
A token that was drawn learns {target}, by ½ (V − v)²{besides}.

## Use
`Tilted("{of}", ("{name}",), (λ,), reading="sigmoid")` draws from p · e^(λV) / Z; `reading="log_sigmoid"` with λ = 1
from p · V / Z. The sigmoid of output z after a prefix is the value of z. It is of no use as a language model.
"""

MORE = ", and {:,} that depart from these by one token at temperature 2"
BESIDES = (
    "; all next tokens learn the same with weight {}: one that is never drawn has the value of its prefix"
)

LIMITS = """
## Limits
- {foresees}, of problems like those of training; a token that generator hardly ever
  writes has a value that was hardly trained.
- Figures are on validation problems. Problems of the test split were not used in training or tuning.
"""

FORESEES = "It foresees what `{of}` does at temperature 1"
BEHIND = "It knows what may follow a right beginning of `{of}`, and nothing of what stands behind a mistake"


def card(folder: Path, plan: Plan, figures: str = "") -> str:
    """The model card. figures: Markdown of what it was measured to do."""
    name = folder.name
    above = f"`{plan.base}` with {plan.extra} layer on top"
    told = {"name": name, "of": plan.generator, "start": f"the weights of {above}", "target": plan.target}
    about = WHAT.format(event=EVENTS[plan.target].format(of=plan.generator))
    text = head(folder, topic="arithmetic", what=about, family=FAMILY, tokenizer="one token a character")
    recipe = RECIPE.format(
        **told,
        steps=plan.recipe.steps,
        tokens=plan.recipe.tokens,
        rate=plan.recipe.rate,
        samples=returns.PROBLEMS * returns.SAMPLES,
        more=MORE.format(plan.explored) if plan.explored else "",
        besides=BESIDES.format(plan.prior) if plan.prior else "",
    )
    return (
        text
        + recipe
        + (f"\n## Figures\n{figures}" if figures else "")
        + LIMITS.format(
            foresees=(BEHIND if plan.target is Target.SOUND else FORESEES).format(of=plan.generator)
        )
    )


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    value(arguments.name, PLANS[arguments.name], setting.begin(arguments))
