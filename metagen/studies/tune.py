"""The settings that strategies are frozen with: chosen on development problems, once.

Every strategy of every model tries the settings that the file lists, on the same problems; the one with the highest
accuracy, in the mean over its n and then over problems, is what the test is run with. Ties go to the first.
`frozen.yaml` keeps the choice: it is read from then on, and made anew only where what it was made from has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from metagen.errors import InputError
from metagen.experiments import source
from metagen.studies.directory import FROZEN, StudyDirectory
from metagen.studies.result import Curve, Tuned
from metagen.studies.settings import words
from metagen.studies.spec import Setting, Study

Chosen = Mapping[tuple[str, str], Tuned]
_HEAD = "# Settings chosen on development problems. Remove this file, and they are chosen anew.\n"


def choose(curves: Iterable[Curve]) -> tuple[Tuned, ...]:
    """For each model and strategy the best of its settings, which are its curves, in the order of the file.

    Only problems that all settings have answered are compared. Raises InputError where there is none.
    """
    grouped: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        grouped.setdefault((curve.model, curve.strategy), []).append(curve)
    return tuple(_best(model, strategy, tried) for (model, strategy), tried in grouped.items())


def _best(model: str, strategy: str, tried: list[Curve]) -> Tuned:
    whole = np.all([np.isfinite(curve.accuracy).all(axis=0) for curve in tried], axis=0)
    if not whole.any():
        raise InputError(
            f"development: no problem was answered under every setting of {model}/{strategy}, so none can be chosen; "
            "look at the failures of the run, or leave out its settings"
        )
    means = {curve.setting: float(curve.accuracy[:, whole].mean(axis=0).mean()) for curve in tried}
    # Sums of equal numbers may differ in their last digits, and do not break ties.
    best = max(means, key=lambda setting: round(means[setting], 9))
    flops = sum(_spent(curve) for curve in tried)
    return Tuned(model, strategy, means, best, int(whole.sum()), None if np.isnan(flops) else flops)


def _spent(curve: Curve) -> float:
    """FLOPs: a pool pays for its largest n, runs by themselves for each."""
    flops = curve.costs["flops"]
    return float(np.sum(flops[-1:] if curve.source == "pool" else flops))


def frozen(study: Study, chosen: Chosen) -> dict[tuple[str, str], Setting]:
    """What every tuned cell is run with; the first setting, the default, where none has been chosen yet."""
    spec = study.spec.development
    found = {}
    for model, strategy in study.experiment.grid.cells if spec else ():
        if spec is not None and (tried := spec.settings.get(strategy)):
            called = chosen[model, strategy].chosen if (model, strategy) in chosen else words(tried[0])
            found[model, strategy] = next(one for one in tried if words(one) == called)
    return found


def read(directory: StudyDirectory, study: Study) -> dict[tuple[str, str], Tuned]:
    """What was chosen before, from the same problems and settings. InputError for a file that is not one of ours."""
    if not directory.frozen.exists():
        return {}
    data = source.read(directory.frozen).data
    try:
        every = [(Tuned(**entry["tuned"]), entry["digest"]) for entry in data["strategies"]]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{str(directory.frozen)!r} holds no settings that were chosen ({error}); remove it and choose anew"
        ) from error
    return {
        (tuned.model, tuned.strategy): tuned
        for tuned, digest in every
        if digest == _digest(study, tuned.strategy)
    }


def write(directory: StudyDirectory, study: Study, chosen: Chosen) -> None:
    """Keep what was chosen, each with a digest of what it was chosen from."""
    entries = [{"digest": _digest(study, t.strategy), "tuned": asdict(t)} for t in chosen.values()]
    directory.files.write(FROZEN, _HEAD + source.write({"strategies": entries}))


def _digest(study: Study, strategy: str) -> str:
    """Of the problems, the seed and the settings of a strategy."""
    spec = study.spec.development
    if spec is None:
        return ""
    task = study.experiment.task.model_dump(mode="json", exclude_none=True)
    what: dict[str, Any] = {
        "task": {**task, **(spec.task or {})}, "share": spec.share, "seed": study.experiment.seed, "n": spec.n,
        "settings": spec.settings.get(strategy, ()),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
