"""One training loop for all models: Muon for the matrices inside, AdamW for the rest, checkpoints, progress.

A step's batch depends on the seed and on the step's number alone, so that a run that was stopped goes on from its last
checkpoint as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from llama import Llama

WIDTH = 16


@dataclass(frozen=True)
class Recipe:
    """How long, how fast, and how much at a time."""

    steps: int
    rate: float = 4e-3
    warm_up: int = 40
    decay: float = 0.01
    tokens: int = 8192
    """Tokens of a batch, padding included."""
    iterations: int = 5
    """How often Muon comes closer to an orthogonal update, in each step."""
    seed: int = 0

    def at(self, step: int) -> float:
        """Learning rate: linear up, then linear down to nothing."""
        return self.rate * min((step + 1) / self.warm_up, max(0.0, 1 - step / self.steps))


def batches(lengths: np.ndarray, tokens: int, seed: int) -> Iterator[np.ndarray]:
    """Rows of similar length in batches of at most `tokens`, or of one row, epoch after epoch, for ever.

    Few different shapes occur, because the first use of a shape is slow.
    """
    widths = -(-lengths // WIDTH) * WIDTH
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(lengths))
        cuts = []
        for start in range(0, len(order), 4096):
            chunk = order[start : start + 4096]
            chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
            while len(chunk):
                fits = np.arange(1, len(chunk) + 1) <= tokens // widths[chunk]
                count = max(1, int(fits.sum()))
                cuts.append(chunk[:count])
                chunk = chunk[count:]
            if len(cuts) > 200 or start + 4096 >= len(order):
                rng.shuffle(cuts)
                yield from cuts
                cuts = []


def optimizers(model: Llama, recipe: Recipe) -> list[torch.optim.Optimizer]:
    inside = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(
            inside,
            lr=recipe.rate,
            weight_decay=recipe.decay,
            ns_steps=recipe.iterations,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(rest, lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def train(
    model: Llama,
    recipe: Recipe,
    lengths: np.ndarray,
    loss: Callable[[np.ndarray], Tensor],
    checkpoint: Path,
    save_every: float = 60.0,
) -> None:
    """Train in place, from the checkpoint if there is one; a new one is written every `save_every` seconds."""
    parts = optimizers(model, recipe)
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["recipe"] != repr(recipe):
            raise SystemExit(
                f"{checkpoint} is of {state['recipe']}, not of {recipe}; delete it to begin again"
            )
        model.load_state_dict(state["model"])
        for part, content in zip(parts, state["optimizers"], strict=True):
            part.load_state_dict(content)
        done = state["step"]
    source = batches(lengths, recipe.tokens, recipe.seed)
    for _ in range(done):
        next(source)

    def save(step: int) -> None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        part = checkpoint.with_suffix(".part")
        content = {
            "recipe": repr(recipe),
            "step": step,
            "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in parts],
        }
        torch.save(content, part)
        part.replace(checkpoint)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = saved = time.monotonic()
    average = 0.0
    with Progress(*columns) as progress:
        bar = progress.add_task(checkpoint.stem, total=recipe.steps, completed=done)
        for step in range(done, recipe.steps):
            rows = next(source)
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(rows)
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for part in parts:
                for group in part.param_groups:
                    group["lr"] = recipe.at(step)
                part.step()
                part.zero_grad(set_to_none=True)
            average += (value.item() - average) * max(0.02, 1 / (step - done + 1))
            progress.update(bar, completed=step + 1, description=f"{checkpoint.stem} loss {average:.4f}")
            if step % 100 == 99 and not progress.console.is_terminal:
                print(
                    f"{checkpoint.stem} {step + 1} loss {average:.4f} {time.monotonic() - started:.0f}s",
                    flush=True,
                )
            if time.monotonic() - saved > save_every:
                save(step + 1)
                saved = time.monotonic()
    if done < recipe.steps:
        save(recipe.steps)


def pad(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of ids side by side, zeros on the right, the width a multiple of `WIDTH`."""
    width = -(-max(map(len, rows)) // WIDTH) * WIDTH
    table = np.zeros((len(rows), width), np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table
