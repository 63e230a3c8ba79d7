"""What a study found, as arrays: the one value that passes between its parts.

`collect` makes it from runs; findings, recommendations, the report and its figures are functions of it.
Arrays have one column per problem of the test set, in the order of the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError
from metagen.runs.declare.settings import AS_WRITTEN
from metagen.runs.declare.study import COSTS
from metagen.runs.directory import RunDirectory, writing
from metagen.runs.note import Note
from metagen.sequence import digest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Source = Literal["pool", "run"]
FILE, ARRAYS = "study.json", "study.npz"


@dataclass(frozen=True, slots=True)
class Model:
    """A generator of the study. size: N of the 2N rule, None if unknown; temperature: None if it is not one number."""

    name: str
    size: float | None = None
    temperature: float | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """One model under one strategy, at several n.

    name: `model/strategy`. setting: the knobs that were frozen, as words. source: averages over subsets of a pool, or
    runs by themselves. oracle: it knows the answers: an upper bound, never recommended.
    ns: [points], ascending. accuracy, error: [points, problems]; accuracy in [0, 1], NaN where a problem lacks n
    samples or failed; error: Monte-Carlo standard error of it, 0 where exact. costs: by name, [points, problems], NaN
    where unknown. verification: the verifiers' part of the exact FLOPs, [points, problems].
    generator: as its run calls it, the model under frozen settings; `Votes` of the same are its samples.
    """

    model: str
    strategy: str
    kind: str
    ns: Ints
    accuracy: Floats
    error: Floats
    costs: Mapping[str, Floats]
    verification: Floats
    source: Source = "pool"
    verifier: str | None = None
    oracle: bool = False
    setting: str = ""
    generator: str = ""

    @property
    def name(self) -> str:
        return f"{self.model}/{self.strategy}"

    def configuration(self, point: int) -> str:
        """As the run calls it: `model/strategy@n`, or `model/strategy` for a strategy without n (n = 0)."""
        n = int(self.ns[point])
        return f"{self.name}@{n}" if n else self.name

    @property
    def frozen(self) -> str:
        """The setting that was frozen; empty for a curve that is as written."""
        return "" if self.setting == AS_WRITTEN else self.setting

    def full_name(self, point: int) -> str:
        """A configuration with its frozen setting, for people to choose: `small/rebase@16 (temperature=0.2)`."""
        name = self.configuration(point)
        return f"{name} ({self.frozen})" if self.frozen else name

    def cost(self, name: str) -> Floats:
        """Mean over the problems that have a point, [points]; NaN where unknown. InputError for a cost it has not."""
        if name not in self.costs:
            raise InputError(f"{self.name} has no cost {name!r}; expected one of {', '.join(self.costs)}")
        measured = np.isfinite(self.accuracy)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(measured, self.costs[name], 0.0).sum(axis=1) / measured.sum(axis=1))

    def noise(self, point: int, over: Bools) -> float:
        """Monte-Carlo standard error of the mean accuracy at a point. over: [problems], those of the mean."""
        return float(np.sqrt(np.square(self.error[point, over]).sum()) / over.sum())


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One configuration: a point of its curve."""

    curve: Curve
    point: int

    @property
    def name(self) -> str:
        return self.curve.configuration(self.point)

    @property
    def full_name(self) -> str:
        return self.curve.full_name(self.point)

    @property
    def n(self) -> int:
        return int(self.curve.ns[self.point])


@dataclass(frozen=True, slots=True)
class Rated(CurvePoint):
    """One configuration with its accuracy over some problems; bounds of 95%, NaN for fewer than `FEW` problems.

    stderr: its standard error, clustered by problem. noise: its Monte-Carlo standard error.
    """

    accuracy: float
    low: float
    high: float
    stderr: float
    noise: float


@dataclass(frozen=True, eq=False)
class Votes:
    """Samples of one model as arrays [problems, samples], ragged rows padded: what limits and splits need.

    role: `test` or `limit` (an independent pool). classes: −1 has no vote. scores: by verifier, NaN for none.
    tokens, logprob: of each sample, NaN where unknown. sizes: [problems]. generator: as of curves.
    """

    model: str
    role: str
    classes: Ints
    correct: Bools
    eligible: Bools
    scores: Mapping[str, Floats]
    tokens: Floats
    logprob: Floats
    sizes: Ints
    generator: str = ""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What one strategy of one model tried on development problems. settings: words → mean accuracy over its n."""

    model: str
    strategy: str
    settings: Mapping[str, float]
    chosen: str
    problems: int
    flops: float | None


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Everything that was measured. levels: −1 for none. votes: empty where nothing needs samples."""

    name: str
    seed: int
    problems: tuple[str, ...]
    levels: Ints
    models: tuple[Model, ...]
    curves: tuple[Curve, ...]
    votes: tuple[Votes, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    notes: tuple[Note, ...] = ()
    budgets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def curve(self, model: str, strategy: str) -> Curve:
        """InputError with the known names."""
        for curve in self.curves:
            if (curve.model, curve.strategy) == (model, strategy):
                return curve
        known = ", ".join(c.name for c in self.curves)
        raise InputError(f"the study {self.name!r} has no {model}/{strategy}; it has {known}")

    @property
    def costs(self) -> tuple[str, ...]:
        """Costs that every curve knows at every point, in the order of COSTS, modelled ones behind."""
        shared = set.intersection(*(set(c.costs) for c in self.curves)) if self.curves else set()
        known = [name for name in shared if all(np.isfinite(c.costs[name]).all() for c in self.curves)]
        return tuple(sorted(known, key=lambda n: (COSTS.index(n) if n in COSTS else len(COSTS), n)))

    def save(self, directory: RunDirectory) -> None:
        """`study.json` and `study.npz`; the second first, so that what the first names is there."""
        arrays, data = _pack(self)
        with writing(directory.root, ARRAYS):
            new = directory.root / f"{ARRAYS}.new"
            with new.open("wb") as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # its stub takes them for allow_pickle
            new.replace(directory.root / ARRAYS)
        directory.write(FILE, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    def digest(self) -> bytes:
        """16 bytes that name all of it: equal for equal results."""
        arrays, data = _pack(self)
        said: list[str | bytes] = [json.dumps(data)]
        for name, array in arrays.items():
            said += [f"{name} {array.dtype} {array.shape}", np.ascontiguousarray(array).tobytes()]
        return digest(*said)

    @classmethod
    def load(cls, root: Path) -> StudyResult:
        """InputError for a directory without a finished study."""
        try:
            data = json.loads((root / FILE).read_text(encoding="utf-8"))
            with np.load(root / ARRAYS, allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{str(root)!r} holds no finished study ({error}); run: metagen study FILE"
            ) from error
        return _unpack(cls, data, arrays)


_CURVE = ("ns", "accuracy", "error", "verification")
_VOTES = ("classes", "correct", "eligible", "tokens", "logprob", "sizes")


def _pack(result: StudyResult) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays under names such as `curve/0/accuracy`, and the rest."""
    arrays: dict[str, NDArray[Any]] = {"levels": result.levels}
    rest: dict[str, Any] = {
        "name": result.name, "seed": result.seed, "problems": result.problems, "budgets": dict(result.budgets),
        "facts": dict(result.facts), "models": [asdict(m) for m in result.models],
        "tuned": [asdict(t) for t in result.tuned], "notes": [asdict(n) for n in result.notes],
        "curves": [], "votes": [],
    }  # fmt: skip
    for kind, items, fields, mapping in (
        ("curves", result.curves, _CURVE, "costs"),
        ("votes", result.votes, _VOTES, "scores"),
    ):
        for i, item in enumerate(items):
            arrays |= {f"{kind}/{i}/{f}": getattr(item, f) for f in fields}
            inner: Mapping[str, Floats] = getattr(item, mapping)
            arrays |= {f"{kind}/{i}/{mapping}/{j}": a for j, a in enumerate(inner.values())}
            plain = {k: v for k, v in vars(item).items() if k not in (*fields, mapping)}
            rest[kind].append({**plain, mapping: list(inner)})
    return arrays, rest


def _unpack(cls: type[StudyResult], data: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> StudyResult:
    def items(kind: str, made: Any, fields: tuple[str, ...], mapping: str) -> tuple[Any, ...]:
        return tuple(
            made(**{
                **plain, **{f: arrays[f"{kind}/{i}/{f}"] for f in fields},
                mapping: {name: arrays[f"{kind}/{i}/{mapping}/{j}"] for j, name in enumerate(plain[mapping])},
            })
            for i, plain in enumerate(data[kind])
        )  # fmt: skip

    return cls(
        name=data["name"], seed=data["seed"], problems=tuple(data["problems"]), levels=arrays["levels"],
        models=tuple(Model(**m) for m in data["models"]),
        curves=items("curves", Curve, _CURVE, "costs"), votes=items("votes", Votes, _VOTES, "scores"),
        tuned=tuple(Tuned(**t) for t in data["tuned"]), notes=tuple(Note(**n) for n in data["notes"]),
        budgets={k: tuple(v) for k, v in data["budgets"].items()}, facts=data["facts"],
    )  # fmt: skip
