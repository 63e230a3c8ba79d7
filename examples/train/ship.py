"""Put trained models into the package, in place of those that ship: `python examples/train/ship.py tiny-0.5m`.

Nothing else writes there. A model replaces one of the same name, card included; `git diff` shows what has changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from setting import HOME, SHIPPED


def ship(models: Path, names: list[str], into: Path) -> None:
    """Copy whole model directories. SystemExit, before anything is written, if one is missing or not a whole run's."""
    path = models.parent / "setting.json"
    if not path.exists():
        raise SystemExit(f"{path} does not exist; expected the folder of a run of examples/train/family.py")
    if (scale := json.loads(path.read_text())["scale"]) != 1:
        raise SystemExit(f"{models.parent} was trained at scale {scale}; only whole runs ship")
    if missing := [name for name in names if not (models / name).exists()]:
        raise SystemExit(f"{models} has no {', '.join(missing)}; train it first")
    for name in names:
        if (into / name).exists():
            shutil.rmtree(into / name)
        shutil.copytree(models / name, into / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="models")
    parser.add_argument("--from", type=Path, default=HOME, dest="source", help="default: %(default)s")
    arguments = parser.parse_args()
    ship(arguments.source / "models", arguments.names, SHIPPED)
