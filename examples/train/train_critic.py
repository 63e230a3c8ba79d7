"""Train one generative verifier: `python examples/train/train_critic.py tiny-critic`.

It reads a solution and its problem, solves the problem itself, and ends in a label whose probability is the score
(`critique.py` has the form). It starts from a generator, whose arithmetic it needs.
"""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import random
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor

import critique
import solutions
import tokenizer as tokenizers_
from learn import encoded
from llama import Llama, export, load
from loop import Recipe, pad, train
from metagen.tasks.arithmetic import Form, read_prompt
from pools import Solution
from setting import Setting


@dataclass(frozen=True)
class Plan:
    """Everything that decides a generative verifier."""

    start: str
    """The generator that it starts from."""
    recipe: Recipe
    feed_forward: int | None = None
    """Neurons that are kept in each layer's feed-forward part; `None` for all."""


PLANS = {
    "tiny-critic": Plan("tiny-2m", Recipe(1200, rate=1.5e-3, tokens=6144), feed_forward=288),
}
EXAMPLES = 24_000
WRONG = 0.6
"""Share of wrong solutions. With few of them, to copy what the solution says would be almost always right."""
MEASURED = 256
"""Examples by which neurons are chosen."""


def critic(name: str, plan: Plan, run: Setting) -> None:
    """Train (or go on) and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    chosen = mixed(solutions.labelled(run), run.share(EXAMPLES), random.Random(f"critic/{run.seed}"))
    examples = [example(s) for s in track(chosen, "critiques")]
    recipe, tokenizer = run.recipe(plan.recipe), tokenizers_.characters()
    torch.manual_seed(recipe.seed)
    rows, starts = encoded(tokenizer, examples)
    model = load(run.trained(plan.start))
    if plan.feed_forward is not None:
        model = narrowed(model, plan.feed_forward, torch.from_numpy(pad(rows[:MEASURED])))
    labels = torch.tensor([tokenizer.token_to_id(label) for label in (critique.RIGHT, critique.WRONG)])

    def loss(batch: np.ndarray) -> Tensor:
        ids = torch.from_numpy(pad([rows[i] for i in batch]))
        return loss_of(model, ids, torch.from_numpy(starts[batch]), labels)

    lengths = np.array([len(row) for row in rows])
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    export(model, tokenizer, run.models / name, {"kind": "judge", **critique.OPTIONS})


def loss_of(model: Llama, ids: Tensor, starts: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of what is written plus that of the labels in it, of which there are few: one mean each.

    starts: of each row the position whose next token is the first to be learned.
    """
    following = ids[:, 1:]
    learned = following != tokenizers_.PAD
    learned &= torch.arange(following.shape[1]) >= starts[:, None]
    logits = model.logits(model.hidden(ids)[:, :-1][learned]).float()
    each = F.cross_entropy(logits, following[learned], reduction="none")
    said = torch.isin(following[learned], labels)
    return each[~said].mean() + each[said].mean()


@torch.no_grad()
def narrowed(model: Llama, inner: int, ids: Tensor) -> Llama:
    """The model with `inner` neurons in each feed-forward part: those that add most to what `ids` become.

    A neuron adds its activation times its column of the weights after it; its share is the root mean square of the
    one times the norm of the other (Sun et al. 2024, Wanda, by neuron).
    """
    downs = [layer.mlp.down_proj for layer in model.model.layers]
    shares: list[Tensor] = []

    def measure(down: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        weight: Tensor = down.weight  # type: ignore[assignment]  # of a module looked up by name
        shares.append(inputs[0].flatten(0, -2).square().mean(0).sqrt() * weight.norm(dim=0))

    hooks = [down.register_forward_pre_hook(measure) for down in downs]
    model.hidden(ids)
    for hook in hooks:
        hook.remove()
    weights = model.state_dict()
    for place, share in enumerate(shares):
        kept = share.topk(inner).indices.sort().values
        part = f"model.layers.{place}.mlp"
        for name in (f"{part}.gate_proj.weight", f"{part}.up_proj.weight"):
            weights[name] = weights[name][kept]
        weights[f"{part}.down_proj.weight"] = weights[f"{part}.down_proj.weight"][:, kept]
    small = Llama(replace(model.shape, feed_forward=inner))
    small.load_state_dict(weights)
    return small


def mixed(found: list[Solution], count: int, rng: random.Random) -> list[Solution]:
    """At most `count` different solutions in steps, `WRONG` of them with a wrong answer."""
    distinct = [s for s in dict.fromkeys(found) if s.steps and read_prompt(s.prompt)[1] is Form.STEPS]
    right = [s for s in distinct if s.correct][: round(count * (1 - WRONG))]
    wrong = [s for s in distinct if not s.correct][: round(count * WRONG)]
    chosen = right + wrong
    rng.shuffle(chosen)
    return chosen


def example(solution: Solution) -> tuple[str, str]:
    """Prompt and completion."""
    return critique.asked(solution), critique.critique(solution) + critique.verdict(solution)


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    critic(arguments.name, PLANS[arguments.name], setting.begin(arguments))
