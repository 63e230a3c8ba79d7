"""Train one reward model on labelled solutions: `python examples/train/train_reward.py tiny-prm`."""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import argparse
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
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
from setting import Setting
from tokenizer import NEGATIVE, OUTCOME, POSITIVE, STEP

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
        recipe=Recipe(3000, rate=2e-3, tokens=6144),
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


def reward(name: str, plan: Plan, run: Setting) -> None:
    """Train, with the round on hard examples if there is one, and write the model directory.

    A call after an interruption goes on; done already if there is a directory.
    """
    if run.finished(name):
        return
    torch.manual_seed(run.seed)  # the layers on top begin at random
    model = deepen(load(run.models / plan.start), plan.extra)
    chosen = labelled(run)
    if plan.solutions is not None:
        chosen = chosen[: run.share(plan.solutions)]
    if plan.round is None:
        fit(name, plan, plan.recipe, model, chosen, run, run.models / name)
        return
    first, second = run.checkpoints / f"{name}-first", run.checkpoints / f"{name}-hard"
    fit(name, plan, plan.recipe, model, chosen, run, first)
    hard = mined(first, plan, run)
    # A model that has hardly learned (a run at a small scale) solves nothing, and so misjudges nothing either.
    others = random.Random(run.seed).sample(chosen, min(max(len(hard), FEWEST), len(chosen)))
    fit(f"{name}-hard", plan, plan.round, model, hard + others, run, second)
    # On hard examples alone it forgets a little of the others; halfway it is better at both (Wortsman et al. 2022).
    write(average(load(first), load(second)), plan, run.models / name)


def average(a: Llama, b: Llama) -> Llama:
    """The model halfway between two, in place of the first."""
    with torch.no_grad():
        for mine, other in zip(a.parameters(), b.parameters(), strict=True):
            mine.lerp_(other, 0.5)
    return a


def write(model: Llama, plan: Plan, folder: Path) -> None:
    """A model directory with its tags and tokenizer."""
    export(model, tokenizers_.characters(), folder, CONFIGURATION[plan.outcome])


def fit(
    name: str,
    plan: Plan,
    recipe: Recipe,
    model: Llama,
    solutions: list[Solution],
    run: Setting,
    folder: Path,
) -> None:
    """Train `model` in place, and write it to `folder` unless that is there."""
    recipe = run.recipe(recipe)
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
    train(model, recipe, lengths, loss, run.checkpoints / f"{name}.pt", run.save_every)
    if not folder.exists():
        write(model, plan, folder)


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
"""Problems of one file of solutions, which one process makes at once."""
PROBLEMS, SAMPLES = 8000, 4
HARD_PROBLEMS, HARD_SAMPLES, KEEP = 3000, 8, 2
FEWEST = 64
"""Solutions of the round on hard examples, even if none was found to be hard."""


def labelled(run: Setting) -> list[Solution]:
    """`SAMPLES` of all generators for each of `PROBLEMS` problems, some cut off, and near misses."""
    solutions = made(run.share(PROBLEMS), run.solutions / "labelled", partial(_labelled, run))
    random.Random(run.seed).shuffle(solutions)
    return solutions


def _labelled(run: Setting, index: int, count: int) -> list[Solution]:
    rng = random.Random(f"rewards/{run.seed}/{index}")
    folders, seed = [run.models / name for name in GENERATORS], f"{run.seed}/{index}"
    sampled = [s for pool in pools.sampled(folders, count, SAMPLES, seed) for s in pool]
    written = [s for s in sampled if s.steps]  # a model may end before it begins
    cut = [pools.cut_off(s, rng) for s in rng.sample(written, len(written) // 14)]
    return sampled + cut + pools.near_misses(len(sampled) // 5, seed)


def mined(folder: Path, plan: Plan, run: Setting) -> list[Solution]:
    """New solutions that mislead the model in `folder`.

    `HARD_SAMPLES` of the two larger generators for each of `HARD_PROBLEMS` new training problems; from each pool that
    holds both, the `KEEP` wrong solutions with the best scores and the `KEEP` right ones with the worst.
    """
    into = run.solutions / f"hard-for-{folder.name}"
    return made(run.share(HARD_PROBLEMS), into, partial(_mined, run, folder, plan.outcome))


def _mined(run: Setting, folder: Path, outcome: bool, index: int, count: int) -> list[Solution]:
    folders = [run.models / name for name in GENERATORS[1:]]
    found = pools.sampled(folders, count, HARD_SAMPLES, f"{run.seed}/hard/{index}")
    # In order of appearance: the order of a set differs from one process to the next.
    distinct = list(dict.fromkeys(s for pool in found for s in pool))
    steps = scores(load(folder), tokenizers_.characters(), distinct, outcome)
    value = {s: min(each, default=0.0) for s, each in zip(distinct, steps, strict=True)}
    hard = []
    for pool in found:
        candidates = sorted(dict.fromkeys(pool), key=lambda s: value[s])
        right = [s for s in candidates if s.correct and all(s.labels)]
        wrong = [s for s in candidates if not s.correct]
        if right and wrong:
            hard += right[:KEEP] + wrong[-KEEP:]
    return hard


def made(count: int, folder: Path, make: Callable[[int, int], list[Solution]]) -> list[Solution]:
    """The solutions for `count` problems, in files of at most `CHUNK`; file i is `make(i, its problems)`, made once.

    Two processes with one thread each: two samplers side by side are faster than one with two threads.
    """
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    files = [(folder / f"{index:03d}.pkl", index, size) for index, size in enumerate(sizes)]
    if missing := [file for file in files if not file[0].exists()]:
        folder.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as workers:
            futures = [workers.submit(_keep, *file, make) for file in missing]
            for future in track(futures, folder.name):
                future.result()
    return [solution for path, _, _ in files for solution in pickle.loads(path.read_bytes())]


def _keep(path: Path, index: int, size: int, make: Callable[[int, int], list[Solution]]) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(make(index, size)))
    part.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PLANS)
    setting.add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = setting.of(arguments)
    run.prepare()
    reward(arguments.name, PLANS[arguments.name], run)
