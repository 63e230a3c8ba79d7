"""Train one generative verifier: `python examples/train/train_critic.py tiny-critic`.

It reads a problem and a solution, says of each line whether it is right, and ends in a label whose probability is the
score (`critique.py` has the form). It starts from a process reward model, which can check lines already.
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
from tokenizers import Tokenizer
from torch import Tensor

import critique
import solutions
import tokenizer as tokenizers_
from llama import Llama, export, load
from loop import Recipe, pad, train
from marked import NOTHING, Row, row, table
from metagen.tasks.arithmetic import Form, read_prompt
from pools import Solution
from setting import Setting
from train_reward import flags, language, sayer


@dataclass(frozen=True)
class Plan:
    """Everything that decides a generative verifier."""

    start: str
    """The process reward model that it starts from."""
    recipe: Recipe
    checking: int
    """Its layers that check what those below have written."""
    feed_forward: int | None = None
    """Neurons that are kept in each layer's feed-forward part; `None` for all."""


PLANS = {
    "tiny-critic": Plan("tiny-prm", Recipe(1200, rate=1.5e-3, tokens=6144), checking=2, feed_forward=128),
}
EXAMPLES = 36_000
WRONG = 0.6
"""Share of solutions with a wrong answer."""
AT_ONCE = 0.25
"""Share of the examples whose verdict follows without a critique."""
WRITING = 0.3
"""Weight of the language-model loss on right steps, which goes on teaching arithmetic."""
MEASURED = 256
"""Examples by which neurons are chosen."""


def critic(name: str, plan: Plan, run: Setting) -> None:
    """Train (or go on) and write the model directory; done already if there is one."""
    if run.finished(name):
        return
    rng = random.Random(f"critic/{run.seed}")
    chosen = mixed(solutions.labelled(run), run.share(EXAMPLES), rng)
    recipe, tokenizer = run.recipe(plan.recipe), tokenizers_.characters()
    torch.manual_seed(recipe.seed)
    rows = [example(s, tokenizer, rng) for s in track(chosen, "critiques")]
    model = load(run.trained(plan.start))
    if plan.feed_forward is not None:
        model = narrowed(model, plan.feed_forward, torch.from_numpy(pad([r.ids for r in rows[:MEASURED]])))

    def loss(batch: np.ndarray) -> Tensor:
        return loss_of(model, plan.checking, [rows[i] for i in batch])

    lengths = np.array([len(r.ids) for r in rows])
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    export(model, tokenizer, run.models / name, {"kind": "judge", **critique.OPTIONS})


def loss_of(model: Llama, checking: int, chosen: list[Row]) -> Tensor:
    """Cross-entropy of critiques and of verdicts, one mean each; and what a process model learns besides.

    That is to write right steps and to say which character is the first wrong one, in the layers below the last.
    """
    batch = table(chosen)
    states = model.states(batch.ids)
    following = batch.ids.roll(-1, 1)
    each = [
        F.cross_entropy(model.logits(states[-1][place]).float(), following[place])
        for part in (0, 1)
        if (place := batch.labels == part).any()
    ]
    writing = language(model, states[-1 - checking], batch)
    return sum(each, WRITING * writing) + flags(sayer(model), states[-checking], batch.sound)


def example(solution: Solution, tokenizer: Tokenizer, rng: random.Random) -> Row:
    """Problem, solution, critique and verdict as ids; `labels` are those of the characters to be said next.

    1 is the verdict's letter, 0 what stands before it, from the critique on; -1 is none.
    """
    read = row(solution, tokenizer, rng, outcome=True)
    written = "" if rng.random() < AT_ONCE else critique.critique(solution)
    (said,) = tokenizers_.encode(tokenizer, [written + critique.verdict(solution)])
    ids = [*read.ids[:-1], *said]  # in place of the tag
    labels = [*[NOTHING] * (len(read.ids) - 2), *[0] * (len(said) - 1), 1, NOTHING]
    more = len(ids) - len(read.ids)
    return Row(
        np.array(ids, np.uint16),
        np.array(labels, np.float32),
        np.zeros(len(ids), np.float32),
        np.append(read.language, [False] * more),
        np.append(read.sound, [NOTHING] * more).astype(np.int8),
    )


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
    """At most `count` different solutions in steps, `WRONG` of them with a wrong answer, none of them lucky."""
    distinct = [
        s for s in dict.fromkeys(found) if s.steps and not s.lucky and read_prompt(s.prompt)[1] is Form.STEPS
    ]
    right = [s for s in distinct if s.correct][: round(count * (1 - WRONG))]
    wrong = [s for s in distinct if not s.correct][: round(count * WRONG)]
    chosen = right + wrong
    rng.shuffle(chosen)
    return chosen


if __name__ == "__main__":
    parser = setting.parser(__doc__)
    parser.add_argument("name", choices=PLANS)
    arguments = parser.parse_args()
    critic(arguments.name, PLANS[arguments.name], setting.begin(arguments))
