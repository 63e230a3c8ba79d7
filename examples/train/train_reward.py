"""Train one reward model: `python examples/train/train_reward.py tiny-prm`.

All share one loop and one form: a language model that says `<+>` or `<->` at a tag. They differ in what they are taught
by (`Supervision`), in what they start from, and in what else they learn on the way.
"""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor

import solutions
import tokenizer as tokenizers_
from llama import Llama, deepen, export, load
from loop import Recipe, train
from marked import Row, Table, row, table
from pairs import Pair, pairs, planted
from pools import Solution
from rollouts import Valued
from setting import Setting
from tokenizer import NEGATIVE, OUTCOME, POSITIVE, STEP


class Supervision(StrEnum):
    """What a reward model is taught by."""

    STEPS = "each step, as the task's checker judges it"
    OUTCOME = "whether the answer is right"
    BOTH = "each step and the answer, at tags of their own"
    PAIRS = "which of two solutions of a problem is right (Bradley–Terry)"
    SOFT = "how often a generator comes from a step to the right answer (Monte Carlo)"
    HARD = "whether it ever does (Monte Carlo)"

    @property
    def outcome(self) -> bool:
        """Whether the model reads whole solutions only."""
        return self in (Supervision.OUTCOME, Supervision.PAIRS)


@dataclass(frozen=True)
class Plan:
    """Everything that decides a reward model."""

    start: str
    """The generator, or the reward model, that it starts from."""
    extra: int
    """Layers put on top of it."""
    recipe: Recipe
    supervision: Supervision = Supervision.STEPS
    language: float = 0.3
    """Weight of the language-model loss on right steps, which goes on teaching arithmetic."""
    helped: bool = True
    """Whether the step checker helps besides: steps to imitate, and which character is the first wrong one.

    Without it a model sees nothing but its own kind of labels, and imitates solutions with the right answer.
    """
    above: int | None = None
    """Layers above the generator's; `None` for `extra`."""
    solutions: int | None = None
    """Train on so many solutions only."""
    round: Recipe | None = None
    """One round on hard examples, mined with the model of the first training; the two models are averaged."""
    both: bool = False
    """Whether a process model is read as an outcome model besides, at a tag of its own."""
    forgets: bool = False
    """Whether tags and verdicts begin at random, so that nothing but this plan's labels says what they mean."""

    @property
    def outcome(self) -> bool:
        return self.supervision.outcome

    @property
    def checking(self) -> int:
        """Layers that check what those below have written."""
        return self.extra if self.above is None else self.above


SHIPPED = {
    "tiny-prm": Plan(
        "tiny-2m",
        extra=2,
        recipe=Recipe(3000, rate=2e-3, tokens=6144),
        round=Recipe(800, rate=1e-3, tokens=6144),
        both=True,
    ),
    "tiny-prm-weak": Plan("tiny-0.5m", extra=1, recipe=Recipe(500, rate=2e-3, tokens=6144), solutions=40_000),
}
#: An outcome model as good as its arithmetic: from the process model, alone or as one model that is both.
BETTER = {
    "tiny-orm-2m": Plan(
        "tiny-prm",
        extra=0,
        above=2,
        recipe=Recipe(900, rate=1e-3, tokens=6144),
        supervision=Supervision.OUTCOME,
    ),
    "tiny-both": Plan(
        "tiny-prm",
        extra=0,
        above=2,
        recipe=Recipe(1200, rate=1e-3, tokens=6144),
        supervision=Supervision.BOTH,
        both=True,
    ),
}
#: The same start, steps and solutions; only the labels differ. They start from layers that can check a line, and from
#: verdicts that mean nothing: from the generator itself, in 700 steps, no kind of labels taught arithmetic.
COMPARED = {
    f"reward-{name}": Plan(
        "tiny-prm",
        extra=0,
        above=2,
        recipe=Recipe(400, rate=1e-3, tokens=6144),
        supervision=kind,
        helped=False,
        forgets=True,
    )
    for name, kind in (
        ("labels", Supervision.OUTCOME),
        ("pairs", Supervision.PAIRS),
        ("steps", Supervision.STEPS),
        ("soft", Supervision.SOFT),
        ("hard", Supervision.HARD),
    )
}
PLANS = {**SHIPPED, **BETTER, **COMPARED}

SLIP = 8.0
"""Weight of the first wrong character of a solution among the right ones before it."""
CENTRE = 0.01
"""Weight of the squares of the rewards of a pair, whose sum the preference leaves open."""
FEWEST = 64
"""Solutions of the round on hard examples, even if none was found to be hard; and pairs, even if none was found."""


def configuration(*, outcome: bool) -> dict[str, str]:
    """The `metagen` entry of a config.json, by which the package reads the model."""
    kind, tag = ("orm", "<outcome>") if outcome else ("prm", "<step>")
    return {"kind": kind, "tag": tag, "positive": "<+>", "negative": "<->", "delimiter": "\n"}


def reward(name: str, plan: Plan, run: Setting) -> None:
    """Train, with the round on hard examples if there is one, and write the model directory.

    A call after an interruption goes on; done already if there is a directory.
    """
    if run.finished(name):
        return
    torch.manual_seed(run.seed)  # the layers on top begin at random
    model = deepen(load(run.trained(plan.start)), plan.extra)
    if plan.forgets:
        forget(model)
    chosen = taught(plan, run)
    if plan.solutions is not None:
        chosen = chosen[: run.share(plan.solutions)]
    if plan.round is None:
        fit(name, plan, plan.recipe, model, chosen, run, run.models / name)
        return
    first, second = run.checkpoints / f"{name}-first", run.checkpoints / f"{name}-hard"
    fit(name, plan, plan.recipe, model, chosen, run, first)
    hard = solutions.mined(first, run, outcome=plan.outcome)
    # A model that has hardly learned (a run at a small scale) solves nothing, and so misjudges nothing either.
    others = random.Random(run.seed).sample(chosen, min(max(len(hard), FEWEST), len(chosen)))
    fit(f"{name}-hard", plan, plan.round, model, hard + others, run, second)
    # On hard examples alone it forgets a little of the others; halfway it is better at both (Wortsman et al. 2022).
    write(average(load(first), load(second)), plan, run.models / name)


def forget(model: Llama) -> None:
    """New rows for tags and verdicts, as long as the old ones, in random directions."""
    with torch.no_grad():
        for token in (STEP, OUTCOME, POSITIVE, NEGATIVE):
            old = model.model.embed_tokens.weight[token]
            old.copy_(F.normalize(torch.randn_like(old), dim=0) * old.norm())


def taught(plan: Plan, run: Setting) -> list[Any]:
    """What a plan learns from: solutions, solutions with values, or pairs."""
    if plan.helped:
        return list(solutions.labelled(run))
    valued = solutions.valued(run)
    if plan.supervision in (Supervision.SOFT, Supervision.HARD):
        return list(valued)
    alone = [v.solution for v in valued]
    if plan.supervision is not Supervision.PAIRS:
        return list(alone)
    found = pairs(alone, random.Random(run.seed))
    # A run at a small scale, whose generators solve nothing, has no pairs.
    return [*found, *planted(FEWEST - len(found), str(run.seed))] if len(found) < FEWEST else list(found)


def average(a: Llama, b: Llama) -> Llama:
    """The model halfway between two, in place of the first."""
    with torch.no_grad():
        for mine, other in zip(a.parameters(), b.parameters(), strict=True):
            mine.lerp_(other, 0.5)
    return a


def write(model: Llama, plan: Plan, folder: Path) -> None:
    """A model directory with its tags and tokenizer. One that is both kinds names its second tags besides."""
    second = {"metagen_orm": configuration(outcome=True)} if plan.both else {}
    entry = configuration(outcome=plan.outcome)
    export(model, tokenizers_.characters(), folder, entry, **second)


def fit(
    name: str, plan: Plan, recipe: Recipe, model: Llama, examples: list[Any], run: Setting, folder: Path
) -> None:
    """Train `model` in place, and write it to `folder` unless that is there."""
    recipe = run.recipe(recipe)
    groups = rows(plan, examples, random.Random(recipe.seed))

    def loss(batch: np.ndarray) -> Tensor:
        return loss_of(model, plan, [r for i in batch for r in groups[i]])

    # The rows of a group stand in one table, as wide as the longest.
    lengths = np.array([len(group) * max(len(r.ids) for r in group) for group in groups])
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    if not folder.exists():
        write(model, plan, folder)


def rows(plan: Plan, examples: Sequence[Any], rng: random.Random) -> list[list[Row]]:
    """The rows of each example: one, or for a pair two, the right one first."""
    tokenizer = tokenizers_.characters()

    def mark(
        solution: Solution, values: Sequence[float] | None = None, *, outcome: bool = plan.outcome
    ) -> Row:
        shown = solution if plan.helped or plan.supervision is Supervision.STEPS else unjudged(solution)
        return row(shown, tokenizer, rng, outcome=outcome, values=values, slips=plan.helped)

    found: list[list[Row]] = []
    for example in track(examples, "rows"):
        match example:
            case Pair(right, wrong):
                found.append([mark(right), mark(wrong)])
            case Valued(solution):
                values = example.hard if plan.supervision is Supervision.HARD else example.soft
                found.append([mark(solution, values)])
            case _:
                forms = (False, True) if plan.supervision is Supervision.BOTH else (plan.outcome,)
                for outcome in forms:
                    # What is lucky would teach an outcome model that wrong steps do not matter.
                    if not (outcome and plan.helped and example.lucky):
                        found.append([mark(example, outcome=outcome)])
    return found


def unjudged(solution: Solution) -> Solution:
    """The solution without what the step checker says: to be imitated as a whole if its answer is right."""
    return replace(solution, labels=(solution.correct,) * len(solution.labels))


def loss_of(model: Llama, plan: Plan, chosen: list[Row]) -> Tensor:
    """The loss at the tags, and of what is learned besides."""
    batch = table(chosen)
    states = model.states(batch.ids)
    logit = sayer(model)
    tagged = batch.labels >= 0
    at = logit(states[-1][tagged])
    if plan.supervision is Supervision.PAIRS:
        value = preference(at)
    else:
        value = F.binary_cross_entropy_with_logits(
            at, batch.labels[tagged], batch.weights[tagged], reduction="sum"
        )
        value = value / batch.weights[tagged].sum()
    if plan.language:
        value = value + plan.language * language(model, states[-1 - plan.checking], batch)
    if plan.language and plan.helped:
        value = value + flags(logit, states[-plan.checking], batch.sound)
    return value


def sayer(model: Llama) -> Callable[[Tensor], Tensor]:
    """What reads a state as the logit of `<+>` against `<->`."""
    label_rows = model.model.embed_tokens.weight[[POSITIVE, NEGATIVE]]

    def logit(hidden: Tensor) -> Tensor:
        pair = F.linear(hidden, label_rows).float()
        return pair[..., 0] - pair[..., 1]

    return logit


def language(model: Llama, state: Tensor, batch: Table) -> Tensor:
    """Cross-entropy of right steps, by which the layers of the generator go on learning to write."""
    guesses = model.logits(state).float().log_softmax(-1)
    guesses = guesses.gather(-1, batch.ids.roll(-1, 1)[..., None])[..., 0]
    return -guesses[batch.language].sum() / max(1, int(batch.language.sum()))


def preference(rewards: Tensor) -> Tensor:
    """Bradley–Terry: −log σ(r⁺ − r⁻), for rewards [r⁺, r⁻, r⁺, r⁻, …]; they are kept around 0."""
    better, worse = rewards[0::2], rewards[1::2]
    return -F.logsigmoid(better - worse).mean() + CENTRE * rewards.square().mean()


def flags(logit: Callable[[Tensor], Tensor], state: Tensor, sound: Tensor) -> Tensor:
    """The first layer above the generator's says of each character whether it is sound."""
    known = sound >= 0
    weight = torch.where(sound == 0, SLIP, 1.0)[known]
    value = F.binary_cross_entropy_with_logits(
        logit(state[known]), sound[known].float(), weight, reduction="sum"
    )
    return value / weight.sum()


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    reward(arguments.name, PLANS[arguments.name], setting.begin(arguments))
