"""Where a training run lives, and how much of the recipe it does.

Everything that a run makes lies in one folder, outside the package:

    setting.json   seed and scale: what the rest depends on
    corpus/        shards of training text
    checkpoints/   the state of every training
    solutions/     labelled samples, and hard examples
    models/        the finished model directories
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loop import Recipe

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "metagen" / "generators" / "tiny"
HOME = ROOT / ".checkpoints"
SMOKE = 0.001

# Threads that wait for each other without spinning: on busy cores that is up to ten times faster.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True)
class Setting:
    """One training run. The same seed, scale and number of threads give the same weights, bit for bit."""

    into: Path = HOME
    seed: int = 0
    scale: float = 1.0
    """The share of all steps and of all data."""
    save_every: float = 60.0
    """Seconds between checkpoints."""

    @property
    def corpus(self) -> Path:
        return self.into / "corpus"

    @property
    def checkpoints(self) -> Path:
        return self.into / "checkpoints"

    @property
    def solutions(self) -> Path:
        return self.into / "solutions"

    @property
    def models(self) -> Path:
        return self.into / "models"

    def finished(self, name: str) -> bool:
        """Whether a model directory is complete: it is moved into place as a whole."""
        return (self.models / name).exists()

    def trained(self, name: str) -> Path:
        """The directory of a model that another starts from. SystemExit if it is not there."""
        if not self.finished(name):
            raise SystemExit(
                f"{self.models} has no {name}, which is needed first: train it (python examples/train/family.py), "
                f"or put the one that ships there (cp -r {SHIPPED / name} {self.models})"
            )
        return self.models / name

    def share(self, full: int) -> int:
        """The part of a full count that this run does, two at least."""
        return full if self.scale == 1 else max(2, round(full * self.scale))

    @property
    def trial(self) -> bool:
        """Whether this only tries the recipe out, with models that have learned nothing and never end a sample."""
        return self.scale < 0.01

    def samples(self, full: int) -> int:
        """Samples of a problem: all, or two in a trial."""
        return min(full, 2) if self.trial else full

    def longest(self, full: int) -> int:
        """Tokens of a sample, in a trial few."""
        return min(full, 32) if self.trial else full

    @property
    def workers(self) -> int:
        """Processes that make parts side by side; in a trial, where their start would cost most of it, this one."""
        return 1 if self.trial else 2

    def recipe(self, full: Recipe) -> Recipe:
        """What this run does of a recipe: its share of the steps, which in a trial are cheap ones."""
        mine = replace(full, steps=self.share(full.steps), seed=self.seed)
        return replace(mine, tokens=min(full.tokens, 1024), iterations=1) if self.trial else mine

    def prepare(self) -> None:
        """Make the folder, or check that what lies there was made under the same setting. SystemExit if not."""
        mine = {"seed": self.seed, "scale": self.scale}
        path = self.into / "setting.json"
        self.into.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(mine) + "\n")
        theirs = json.loads(path.read_text())
        if changed := [key for key in mine if mine[key] != theirs.get(key)]:
            found = ", ".join(f"{key} {theirs.get(key)!r} and not {mine[key]!r}" for key in changed)
            raise SystemExit(f"{self.into} holds a run with {found}; choose another folder with --into")


def parser(about: str | None, home: Path = HOME) -> argparse.ArgumentParser:
    """A command line with the options that all training scripts share; `home` is where a run lies by default."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--into", type=Path, default=home, help="folder of the run; default: %(default)s")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--scale", type=float, default=1.0, help="share of all steps and data, up to 1")
    found.add_argument("--smoke", action="store_const", const=SMOKE, dest="scale", help=f"--scale {SMOKE}")
    found.add_argument("--save-every", type=float, default=60.0, help="seconds between checkpoints")
    found.add_argument("--threads", type=int, default=2, help="of torch; another number, another rounding")
    return found


def of(arguments: argparse.Namespace) -> Setting:
    """The setting that these options describe."""
    into = arguments.into.expanduser().resolve()
    if into == SHIPPED or SHIPPED in into.parents:
        raise SystemExit(
            f"--into {into} lies in the package; train elsewhere, then see examples/train/ship.py"
        )
    if not 0 < arguments.scale <= 1:
        raise SystemExit(f"--scale {arguments.scale!r}: expected a share above 0, at most 1")
    return Setting(into, arguments.seed, arguments.scale, arguments.save_every)


def begin(arguments: argparse.Namespace, run: Setting | None = None) -> Setting:
    """The setting of these options, its folder prepared, and torch with as many threads as they say."""
    import torch  # after this module: what it says to OpenMP is read when torch is imported

    torch.set_num_threads(arguments.threads)
    run = run or of(arguments)
    run.prepare()
    return run
