"""Train one reward model on labelled solutions: `python examples/train/train_reward.py tiny-prm`."""

from __future__ import annotations

import argparse
import pickle
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from tokenizers import Tokenizer
from torch import Tensor

import pools
import tokenizer as tokenizers_
from llama import Llama, deepen, export, load
from loop import Recipe, pad, train
from pools import Solution
from tokenizer import NEGATIVE, OUTCOME, POSITIVE, STEP
from train_generator import MODELS, WORK

ROWS = 512
GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m")


@dataclass(frozen=True)
class Plan:
    """Everything that decides a reward model."""

    start: str
    """The generator it starts from."""
    extra: int
    """Layers put on top of it."""
    recipe: Recipe
    outcome: bool = False
    language: float = 0.3
    """Weight of the language-model loss on right steps, which goes on teaching arithmetic."""
    solutions: int | None = None
    """Train on so many solutions only."""
    round: Recipe | None = None
    """One round on hard examples, mined with the model of the first training; the two models are averaged."""


PLANS = {
    "tiny-prm": Plan(
        "tiny-2m",
        extra=2,
        recipe=Recipe(4000, rate=2e-3, tokens=6144),
        round=Recipe(800, rate=1e-3, tokens=6144),
    ),
    "tiny-orm": Plan("tiny-0.5m", extra=2, recipe=Recipe(1500, rate=2e-3, tokens=6144), outcome=True),
    "tiny-prm-weak": Plan("tiny-0.5m", extra=1, recipe=Recipe(500, rate=2e-3, tokens=6144), solutions=40_000),
}

CONFIGURATION = {
    False: {"kind": "prm", "tag": "<step>", "positive": "<+>", "negative": "<->", "delimiter": "\n"},
    True: {"kind": "orm", "tag": "<outcome>", "positive": "<+>", "negative": "<->", "delimiter": "\n"},
}

IGNORE = -100
AFTER = 0.3
"""Weight of the steps after the first wrong one: they are wrong by definition."""
SLIP = 8.0
"""Weight of the first wrong character of a solution among the right ones before it."""


@dataclass
class Row:
    """One solution as ids, with what is to be learned at each position."""

    ids: np.ndarray
    labels: np.ndarray
    """1 right, 0 wrong, where there is a tag; -1 elsewhere."""
    weights: np.ndarray
    language: np.ndarray
    """Whether the next token is to be learned."""
    sound: np.ndarray
    """1 for the characters up to the first that no right step could have there, which has 0; -1 elsewhere."""


def row(solution: Solution, tokenizer: Tokenizer, outcome: bool, rng: random.Random) -> Row:
    """Tags after each step (process) or one at the end (outcome)."""
    pieces = tokenizers_.encode(tokenizer, [solution.prompt, *solution.steps])
    ids = [tokenizers_.BOS, *pieces[0]]
    labels, weights, language = [-1] * len(ids), [0.0] * len(ids), [False] * len(ids)
    sound = [-1] * len(ids)
    slip = pools.first_wrong(solution)
    right_so_far = True
    for piece, right in zip(pieces[1:], solution.labels, strict=True):
        ids += piece
        language[-1:] = [right]
        language += [right] * (len(piece) - 1) + [False]
        labels += [-1] * len(piece)
        weights += [0.0] * len(piece)
        if right or (right_so_far and slip is None):
            sound += [1] * len(piece)
        elif right_so_far and slip is not None:
            sound += [1] * slip + [0] + [-1] * (len(piece) - slip - 1)
        else:
            sound += [-1] * len(piece)
        if not outcome:
            ids.append(STEP)
            labels.append(int(right))
            weights.append(1.0 if right_so_far else AFTER)
            language.append(False)
            sound.append(-1)
        if not (right or right_so_far or outcome) and rng.random() < 0.5:
            break
        right_so_far = right
    if outcome:
        ids.append(OUTCOME)
        labels.append(int(solution.correct))
        weights.append(1.0)
        language.append(False)
        sound.append(-1)
    return Row(
        np.array(ids, np.uint16),
        np.array(labels, np.int8),
        np.array(weights, np.float32),
        np.array(language),
        np.array(sound, np.int8),
    )


def reward(name: str, plan: Plan, solutions: list[Solution]) -> Llama:
    """Train, with the round on hard examples if there is one, write the model directory, return the model.

    A call after an interruption goes on.
    """
    start = deepen(load(MODELS / plan.start), plan.extra)
    chosen = solutions[: plan.solutions]
    if plan.round is None:
        return fit(name, plan, plan.recipe, start, chosen, MODELS / name)
    first = WORK / f"{name}-first"
    model = fit(name, plan, plan.recipe, start, chosen, first)
    hard = mined(first, name, plan)
    mixed = hard + random.Random(0).sample(chosen, min(len(hard), len(chosen)))
    second = WORK / f"{name}-hard"
    fit(f"{name}-hard", plan, plan.round, model.float().train(), mixed, second)
    # On hard examples alone it forgets a little of the others; halfway it is better at both (Wortsman et al. 2022).
    averaged = average(load(first), load(second))
    write(averaged, plan, MODELS / name)
    return averaged


def average(a: Llama, b: Llama) -> Llama:
    """The model halfway between two, in place of the first."""
    with torch.no_grad():
        for mine, other in zip(a.parameters(), b.parameters(), strict=True):
            mine.lerp_(other, 0.5)
    return a


def write(model: Llama, plan: Plan, folder: Path) -> None:
    """A model directory with its tags and tokenizer."""
    export(model, folder, CONFIGURATION[plan.outcome])
    tokenizers_.save(tokenizers_.characters(), folder)


def fit(
    name: str,
    plan: Plan,
    recipe: Recipe,
    model: Llama,
    solutions: list[Solution],
    folder: Path,
) -> Llama:
    """Train `model` and write it to `folder`."""
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    tokenizer = tokenizers_.characters()
    rows = [row(s, tokenizer, plan.outcome, rng) for s in track(solutions, "rows")]

    def loss(batch: np.ndarray) -> Tensor:
        chosen = [rows[i] for i in batch]
        table = torch.from_numpy(pad([r.ids for r in chosen]))
        labels = torch.full(table.shape, -1)
        weights = torch.zeros(table.shape)
        language = torch.zeros(table.shape, dtype=torch.bool)
        sound = torch.full(table.shape, -1)
        for i, r in enumerate(chosen):
            labels[i, : len(r.ids)] = torch.from_numpy(r.labels.astype(np.int64))
            weights[i, : len(r.ids)] = torch.from_numpy(r.weights)
            language[i, : len(r.ids)] = torch.from_numpy(r.language)
            sound[i, : len(r.ids)] = torch.from_numpy(r.sound.astype(np.int64))
        states = model.states(table)
        label_rows = model.model.embed_tokens.weight[[POSITIVE, NEGATIVE]]

        def logit(hidden: Tensor) -> Tensor:
            pair = F.linear(hidden, label_rows).float()
            return pair[..., 0] - pair[..., 1]

        tagged = labels >= 0
        value = F.binary_cross_entropy_with_logits(
            logit(states[-1][tagged]), labels[tagged].float(), weights[tagged], reduction="sum"
        )
        value = value / weights[tagged].sum()
        if not plan.language:
            return value
        # The layers of the generator go on learning to write; the next one says of each character if it is sound.
        following = table.roll(-1, 1)
        guesses = model.logits(states[-1 - plan.extra]).float().log_softmax(-1)
        guesses = guesses.gather(-1, following[..., None])[..., 0]
        value = value - plan.language * guesses[language].sum() / max(1, int(language.sum()))
        weight = torch.where(sound == 0, SLIP, 1.0)[sound >= 0]
        flags = F.binary_cross_entropy_with_logits(
            logit(states[-plan.extra][sound >= 0]), sound[sound >= 0].float(), weight, reduction="sum"
        )
        return value + flags / weight.sum()

    lengths = np.array([len(r.ids) for r in rows])
    train(model, recipe, lengths, loss, WORK / f"{name}.pt")
    write(model, plan, folder)
    return model


@torch.inference_mode()
def scores(
    model: Llama, tokenizer: Tokenizer, solutions: list[Solution], outcome: bool = False
) -> list[list[float]]:
    """The probability of being right at each tag of each solution (one for an outcome model)."""
    model = model.to(torch.bfloat16).eval()
    tag = OUTCOME if outcome else STEP
    rows, tags = [], []
    for s in solutions:
        pieces = tokenizers_.encode(tokenizer, [s.prompt, *s.steps])
        ids, places = [tokenizers_.BOS, *pieces[0]], []
        for piece in pieces[1:]:
            ids += piece
            if not outcome:
                ids.append(tag)
                places.append(len(ids) - 1)
        if outcome:
            ids.append(tag)
            places.append(len(ids) - 1)
        rows.append(np.array(ids))
        tags.append(places)
    found: list[list[float]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), ROWS):
        batch = order[start : start + ROWS]
        hidden = model.hidden(torch.from_numpy(pad([rows[i] for i in batch])))
        where = [(r, t) for r, i in enumerate(batch) for t in tags[i]]
        if not where:
            continue
        r, t = map(list, zip(*where, strict=True))
        pair = F.linear(hidden[r, t], model.model.embed_tokens.weight[[POSITIVE, NEGATIVE]]).float()
        for row_, p in zip(r, torch.sigmoid(pair[:, 0] - pair[:, 1]).tolist(), strict=True):
            found[batch[row_]].append(p)
    return found


CHUNK = 1000
"""Problems of one file of labelled solutions."""


def labelled(count: int, each: int) -> list[Solution]:
    """Samples of all generators for `count` problems, some cut off, and near misses; kept on disk once made."""
    folders = [MODELS / name for name in GENERATORS]
    solutions: list[Solution] = []
    for index in range(-(-count // CHUNK)):
        path = WORK / "solutions" / f"{each}-{index:03d}.pkl"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            rng = random.Random(f"rewards/{index}")
            sampled = [s for pool in pools.sampled(folders, CHUNK, each, seed=index) for s in pool]
            cut = [pools.cut_off(s, rng) for s in rng.sample(sampled, len(sampled) // 14)]
            chunk = sampled + cut + pools.near_misses(len(sampled) // 5, seed=index)
            path.with_suffix(".part").write_bytes(pickle.dumps(chunk))
            path.with_suffix(".part").replace(path)
        solutions += pickle.loads(path.read_bytes())
    random.Random(0).shuffle(solutions)
    return solutions


HARD_PROBLEMS, HARD_SAMPLES, KEEP = 4000, 8, 2


def mined(folder: Path, name: str, plan: Plan) -> list[Solution]:
    """New solutions that mislead the model in `folder`, kept on disk once made.

    `HARD_SAMPLES` of the two larger generators for each of `HARD_PROBLEMS` new training problems; from each pool that
    holds both, the `KEEP` wrong solutions with the best scores and the `KEEP` right ones with the worst.
    """
    path = WORK / "solutions" / f"{name}-hard.pkl"
    if path.exists():
        return list(pickle.loads(path.read_bytes()))
    model, tokenizer = load(folder), tokenizers_.characters()
    found = pools.sampled([MODELS / g for g in GENERATORS[1:]], HARD_PROBLEMS, HARD_SAMPLES, seed=10_000)
    distinct = list({s for pool in found for s in pool})
    worst = [min(steps, default=0.0) for steps in scores(model, tokenizer, distinct, plan.outcome)]
    value = dict(zip(distinct, worst, strict=True))
    hard = []
    for pool in found:
        candidates = sorted(set(pool), key=lambda s: value[s])
        right = [s for s in candidates if s.correct and all(s.labels)]
        wrong = [s for s in candidates if not s.correct]
        if right and wrong:
            hard += right[:KEEP] + wrong[-KEEP:]
    path.write_bytes(pickle.dumps(hard))
    return hard


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PLANS)
    parser.add_argument("--problems", type=int, default=8_000)
    parser.add_argument("--each", type=int, default=4, help="samples of every generator for each problem")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    solutions = labelled(arguments.problems, arguments.each)
    print(f"{len(solutions)} solutions, {np.mean([s.correct for s in solutions]):.3f} right")
    reward(arguments.name, PLANS[arguments.name], solutions)
