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
from metagen.runs.curves.study import Curve, Tuned
from metagen.runs.declare import plan, source
from metagen.runs.declare.settings import words
from metagen.runs.declare.study import Setting, Study
from metagen.runs.directory import FROZEN, StudyDirectory

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
    flops = sum(_flops(curve) for curve in tried)
    return Tuned(model, strategy, means, best, int(whole.sum()), None if np.isnan(flops) else flops)


def _flops(curve: Curve) -> float:
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
    """What was chosen before, from what it would be chosen from now. InputError for a file that is not one of ours."""
    every = _entries(directory)
    digests = _digests(study) if every else {}
    return {cell: tuned for cell, (tuned, digest) in every.items() if digests.get(cell) == digest}


def write(directory: StudyDirectory, study: Study, chosen: Chosen) -> None:
    """Keep what was chosen, each with a digest of what it was chosen from; what the study has no more stays."""
    digests = _digests(study)
    old = {cell: entry for cell, entry in _entries(directory).items() if cell not in digests}
    new = {cell: (tuned, digests[cell]) for cell, tuned in chosen.items() if cell in digests}
    entries = [{"digest": digest, "tuned": asdict(tuned)} for tuned, digest in {**old, **new}.values()]
    directory.files.write(FROZEN, _HEAD + source.write({"strategies": entries}))


def _entries(directory: StudyDirectory) -> dict[tuple[str, str], tuple[Tuned, str]]:
    """By model and strategy what was chosen, and the digest. InputError for a file that is not one of ours."""
    if not directory.frozen.exists():
        return {}
    data = source.read(directory.frozen).data
    try:
        every = [(Tuned(**entry["tuned"]), str(entry["digest"])) for entry in data["strategies"]]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{str(directory.frozen)!r} holds no settings that were chosen ({error}); remove it and choose anew"
        ) from error
    return {(tuned.model, tuned.strategy): (tuned, digest) for tuned, digest in every}


def _digests(study: Study) -> dict[tuple[str, str], str]:
    """Of each tuned cell: of the problems, the seed, and every part under every setting.

    The n of the strategy are left out: more of them change no choice.
    """
    part, spec = plan.development(study), study.spec.development
    if part is None or spec is None:
        return {}
    data = plan.plain(part.experiment)
    common = {**{key: data.get(key) for key in ("task", "seed", "budget")}, "share": spec.share, "n": spec.n}
    cells: dict[tuple[str, str], list[Any]] = {}
    for name, (model, strategy, setting) in part.names.items():
        generator, _, variant = name.partition("/")
        parts = plan.definitions_of(part.experiment, ("generators", generator), ("strategies", variant))
        parts[f"strategies.{variant}"].pop("n", None)
        cells.setdefault((model, strategy), []).append([setting, parts])
    return {cell: _hash({**common, "settings": tried}) for cell, tried in cells.items()}


def _hash(what: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
