"""Train one reward model on labelled solutions: `python examples/train/train_reward.py tiny-prm`."""

from __future__ import annotations

import argparse
import pickle
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
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


PLANS = {
    "tiny-prm": Plan("tiny-2m", 2, Recipe(2500, rate=2e-3, tokens=6144)),
    "tiny-orm": Plan("tiny-0.5m", 2, Recipe(500, rate=2e-3, tokens=6144), outcome=True),
    "tiny-prm-weak": Plan("tiny-0.1m", 1, Recipe(300, rate=2e-3, tokens=4096), solutions=3000, language=0.0),
}

CONFIGURATION = {
    False: {"kind": "prm", "tag": "<step>", "positive": "<+>", "negative": "<->", "delimiter": "\n"},
    True: {"kind": "orm", "tag": "<outcome>", "positive": "<+>", "negative": "<->", "delimiter": "\n"},
}

IGNORE = -100
AFTER = 0.3
"""Weight of the steps after the first wrong one: they are wrong by definition."""


@dataclass
class Row:
    """One solution as ids, with what is to be learned at each position."""

    ids: np.ndarray
    labels: np.ndarray
    """1 right, 0 wrong, where there is a tag; -1 elsewhere."""
    weights: np.ndarray
    language: np.ndarray
    """Whether the next token is to be learned."""
    written: np.ndarray
    """Whether the token is a character of the solution."""


def row(solution: Solution, tokenizer: Tokenizer, outcome: bool, rng: random.Random) -> Row:
    """Tags after each step (process) or one at the end (outcome)."""
    pieces = tokenizers_.encode(tokenizer, [solution.prompt, *solution.steps])
    ids = [tokenizers_.BOS, *pieces[0]]
    labels, weights, language = [-1] * len(ids), [0.0] * len(ids), [False] * len(ids)
    written = [False] * len(ids)
    right_so_far = True
    for piece, right in zip(pieces[1:], solution.labels, strict=True):
        ids += piece
        language[-1:] = [right]
        language += [right] * (len(piece) - 1) + [False]
        labels += [-1] * len(piece)
        weights += [0.0] * len(piece)
        written += [True] * len(piece)
        if not outcome:
            ids.append(STEP)
            labels.append(int(right))
            weights.append(1.0 if right_so_far else AFTER)
            language.append(False)
            written.append(False)
        if not (right or right_so_far or outcome) and rng.random() < 0.5:
            break
        right_so_far = right
    if outcome:
        ids.append(OUTCOME)
        labels.append(int(solution.correct))
        weights.append(1.0)
        language.append(False)
        written.append(False)
    return Row(
        np.array(ids, np.uint16),
        np.array(labels, np.int8),
        np.array(weights, np.float32),
        np.array(language),
        np.array(written),
    )


def fit(
    name: str,
    plan: Plan,
    solutions: list[Solution],
    *,
    minutes: float | None = None,
    start: Llama | None = None,
) -> Llama:
    """Train, write the model directory, return the model."""
    torch.manual_seed(plan.recipe.seed)
    rng = random.Random(plan.recipe.seed)
    tokenizer = tokenizers_.characters()
    rows = [row(s, tokenizer, plan.outcome, rng) for s in solutions[: plan.solutions]]
    model = start or deepen(load(MODELS / plan.start), plan.extra)

    def loss(batch: np.ndarray) -> Tensor:
        chosen = [rows[i] for i in batch]
        table = torch.from_numpy(pad([r.ids for r in chosen]))
        labels = torch.full(table.shape, -1)
        weights = torch.zeros(table.shape)
        language = torch.zeros(table.shape, dtype=torch.bool)
        for i, r in enumerate(chosen):
            labels[i, : len(r.ids)] = torch.from_numpy(r.labels.astype(np.int64))
            weights[i, : len(r.ids)] = torch.from_numpy(r.weights)
            language[i, : len(r.ids)] = torch.from_numpy(r.language)
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
        # The layers of the generator go on learning to write; the next layer says of each character how likely it was.
        following = table.roll(-1, 1)
        guesses = model.logits(states[-1 - plan.extra]).float().log_softmax(-1)
        guesses = guesses.gather(-1, following[..., None])[..., 0]
        value = value - plan.language * guesses[language].sum() / max(1, int(language.sum()))
        written = torch.from_numpy(pad([r.written for r in chosen])).bool()
        likely = guesses.detach().exp().sqrt().roll(1, 1)
        return value + F.binary_cross_entropy_with_logits(
            logit(states[-plan.extra])[written], likely[written]
        )

    lengths = np.array([len(r.ids) for r in rows])
    train(model, plan.recipe, lengths, loss, WORK / f"{name}.pt", minutes=minutes)
    export(model, MODELS / name, CONFIGURATION[plan.outcome])
    tokenizers_.save(tokenizer, MODELS / name)
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
    folders = [MODELS / name for name in ("tiny-0.1m", "tiny-0.5m", "tiny-2m")]
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PLANS)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=4, help="samples of every generator for each problem")
    parser.add_argument("--minutes", type=float)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    solutions = labelled(arguments.problems, arguments.each)
    print(f"{len(solutions)} solutions, {np.mean([s.correct for s in solutions]):.3f} right")
    fit(arguments.name, PLANS[arguments.name], solutions, minutes=arguments.minutes)
