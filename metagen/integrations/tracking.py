"""Runs and studies in MLflow and Weights & Biases: what was asked, how far it is, and what came of it.

A tracked run is kept under its id in the run's directory, so that a resumed run goes on with it. Each tracker works in
a thread of its own. One that fails, or does not answer, says so once and is let alone: the run goes on as without it.

What is sent: the experiment as parameters and as a file, counts while it runs, and of each configuration the accuracy,
its interval and its costs. No questions, candidates or messages of errors, unless `texts` is true: then the report and
the tables with them are sent, too.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import yaml

from metagen import __version__
from metagen.errors import InputError, MetagenError, install, lacks
from metagen.logs import logger
from metagen.runs.directory import RunDirectory, StudyDirectory
from metagen.runs.work.progress import Meter

_LOG = logger(__name__)
Kind = Literal["mlflow", "wandb"]
End = Literal["complete", "failed", "interrupted"]
#: Where ids are kept.
FILE: Final = "tracking.json"
#: The experiment of MLflow, or the project of W&B, where their own variables name none.
PROJECT: Final = "metagen"
#: Seconds between counts; that the end waits for what is still to be sent; and that an interrupt does.
PAUSE, PATIENCE, HASTE = 10.0, 120.0, 10.0
#: Characters of a parameter; longer values stand in the file.
LONGEST: Final = 500
#: A name and a password in an address.
_LOGIN: Final = re.compile(r"//[^/@\s]+@")
#: Files without questions, answers or texts, of a run and of a study; and those with them.
FILES: Final = ("study.yaml", "frozen.yaml", "experiment.yaml", "environment.json", "configurations.csv",
                "levels.csv", "curves.csv", "findings.json", "figures", "tables")  # fmt: skip
TEXTS: Final = ("report.html", "report.md", "problems.parquet", "candidates.parquet", "outcomes.parquet",
                "attempts.parquet")  # fmt: skip
#: What is told of a configuration: columns of its table.
MEASURES: Final = ("accuracy", "low", "high", "stderr", "problems", "samples", "tokens", "generated", "prefilled",
                   "flops", "flops_2n", "verifier_flops", "money", "seconds")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """A figure. n: candidates, where it is one of a curve over n."""

    name: str
    value: float
    n: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tracked. parameters: the experiment, flat. tags: by which it is found. known: as its tracker kept it."""

    name: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    known: Mapping[str, str]


class Tracker(Protocol):
    """One tracked run of a service. Any method may raise anything, and may take its time."""

    def begin(self, subject: Subject) -> dict[str, str]:
        """Begin, or go on with what is known; what to keep in order to go on later."""

    def progress(self, counts: Mapping[str, float], at: int) -> None:
        """How far it is, at so many samples."""

    def results(self, points: Iterable[Point]) -> None:
        """What came of it."""

    def keep(self, files: Iterable[tuple[Path, str]]) -> None:
        """Files, each with the folder that it belongs into."""

    def end(self, how: End, tags: Mapping[str, str]) -> None:
        """The end of this call."""


class MLflow:
    """By MLFLOW_TRACKING_URI and MLflow's other variables; the experiment is MLFLOW_EXPERIMENT_NAME or `metagen`."""

    _ENDS: Final = {"complete": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

    def __init__(self) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise _missing("mlflow", error) from None
        self._mlflow, self._id = mlflow, ""
        self._client: Any = None

    def begin(self, subject: Subject) -> dict[str, str]:
        from mlflow.exceptions import MlflowException

        run, self._client = None, self._mlflow.MlflowClient()
        if "id" in subject.known:
            with contextlib.suppress(
                MlflowException
            ):  # of another server, or deleted: then there is a new one
                found = self._client.get_run(subject.known["id"])  # also one that was deleted
                self._client.update_run(found.info.run_id, status="RUNNING")
                run = found
        if run is None:
            run = self._client.create_run(self._experiment(), run_name=subject.name)
        self._id = run.info.run_id
        before = run.data.params
        new = {_name(k): v for k, v in subject.parameters.items() if _name(k) not in before}
        self._log(params=[self._param(*one) for one in new.items()])
        changed = sorted(k for k, v in subject.parameters.items() if before.get(_name(k), v) != v)
        # A parameter of MLflow never changes: the file and this tag say what is different since.
        self._tag({**subject.tags, **({"metagen.changed": ", ".join(changed)[:LONGEST]} if changed else {})})
        return {"id": self._id}

    def _experiment(self) -> str:
        if given := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return given
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    @staticmethod
    def _param(name: str, value: str) -> Any:
        from mlflow.entities import Param

        return Param(name, value)

    def _log(self, *, params: Iterable[Any] = (), metrics: Iterable[Any] = ()) -> None:
        """In pieces as large as MLflow takes them."""
        for name, values, most in (("params", [*params], 100), ("metrics", [*metrics], 1000)):
            for start in range(0, len(values), most):
                self._client.log_batch(self._id, **{name: values[start : start + most]})

    def _tag(self, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_tag(self._id, name, value)

    def _metrics(self, points: Iterable[Point]) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        self._log(metrics=[Metric(_name(one.name), one.value, now, one.n or 0) for one in points])

    def progress(self, counts: Mapping[str, float], at: int) -> None:
        self._metrics(Point(name, value, at) for name, value in counts.items())

    def results(self, points: Iterable[Point]) -> None:
        self._metrics(points)

    def keep(self, files: Iterable[tuple[Path, str]]) -> None:
        for path, folder in files:
            self._client.log_artifact(self._id, str(path), folder or None)

    def end(self, how: End, tags: Mapping[str, str]) -> None:
        self._tag(tags)
        self._client.set_terminated(self._id, self._ENDS[how])


#: W&B is told nothing of the terminal, the program, its repository or the machine: only what is sent here.
_QUIET: Final[Mapping[str, Any]] = {
    "silent": True, "console": "off", "save_code": False, "disable_git": True, "disable_code": True,
    "x_disable_meta": True, "x_disable_machine_info": True, "x_disable_stats": True, "x_save_requirements": False,
}  # fmt: skip


class WandB:
    """By WANDB_API_KEY, WANDB_MODE and the other variables of W&B; the project is WANDB_PROJECT or `metagen`."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb", error) from None
        self._wandb: Any = wandb
        self._run: Any = None

    def begin(self, subject: Subject) -> dict[str, str]:
        project = subject.known.get("project") or os.environ.get("WANDB_PROJECT", PROJECT)
        known = self._wandb.Settings.model_fields  # which differ by version
        settings = self._wandb.Settings(**{name: value for name, value in _QUIET.items() if name in known})
        self._run = self._wandb.init(
            project=project, name=subject.name, id=subject.known.get("id"), resume="allow",
            config={**subject.parameters, **subject.tags}, settings=settings, reinit="create_new",
        )  # fmt: skip
        self._run.config.update({**subject.parameters, **subject.tags}, allow_val_change=True)
        self._run.define_metric("progress/*", step_metric="progress/at")
        return {"id": str(self._run.id), "project": project}

    def progress(self, counts: Mapping[str, float], at: int) -> None:
        self._run.log({**counts, "progress/at": at})

    def results(self, points: Iterable[Point]) -> None:
        rows: dict[int, dict[str, float]] = {}
        for one in points:
            if one.n is None:
                self._run.summary[one.name] = one.value
                continue
            if not any(one.name in row for row in rows.values()):
                self._run.define_metric(one.name, step_metric="n")
            rows.setdefault(one.n, {})[one.name] = one.value
        for n in sorted(rows):
            self._run.log({**rows[n], "n": n})

    def keep(self, files: Iterable[tuple[Path, str]]) -> None:
        artifact = self._wandb.Artifact(f"run-{self._run.id}", type="metagen")
        for path, folder in files:
            artifact.add_file(str(path), name=f"{folder}/{path.name}" if folder else path.name)
        self._run.log_artifact(artifact)

    def end(self, how: End, tags: Mapping[str, str]) -> None:
        self._run.config.update(dict(tags), allow_val_change=True)
        self._run.finish(exit_code=0 if how == "complete" else 1)


TRACKERS: Final[Mapping[Kind, Callable[[], Tracker]]] = {"mlflow": MLflow, "wandb": WandB}


def _missing(kind: Kind, error: ImportError) -> InputError:
    return InputError(f"tracking in {kind} needs {lacks(error)}: {install(kind)}")


# -- following a run -----------------------------------------------------------------------------------


@contextlib.contextmanager
def follow(
    kinds: Iterable[Kind],
    directory: RunDirectory | StudyDirectory,
    experiment: str,
    meter: Meter | None = None,
    *,
    texts: bool = False,
    warn: Callable[[str], None] = _LOG.warning,
) -> Iterator[Callable[[str], None]]:
    """Track a run, or a study, while the block runs, and what it has found at its end: the block writes the report.

    kinds: of trackers; without any nothing is done. experiment: as YAML, resolved. meter: what is told of the progress;
    the function that it yields takes the name of the role that the meter counts from now on. texts: also send what
    holds questions and candidates. warn: is told of a tracker that fails. Raises InputError for packages that are not
    installed; nothing that a tracker does raises anything later.
    """
    found = {kind: TRACKERS[kind]() for kind in dict.fromkeys(kinds)}
    if found:
        directory.root.mkdir(parents=True, exist_ok=True)
    kept = _Kept(directory.root)
    subject = _subject(directory.root.name, experiment)
    followers = [_Follower(kind, tracker, subject, kept, warn) for kind, tracker in found.items()]
    role = ""

    def begins(name: str) -> None:
        nonlocal role
        tell()  # how the one before has ended
        role = f"{name}/"

    def tell() -> None:
        if meter is None or not meter.total:
            return
        counts, at = {f"progress/{role}{name}": value for name, value in _counts(meter).items()}, meter.done
        for one in followers:
            one.do(lambda tracker: tracker.progress(counts, at))

    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PAUSE):
            tell()

    watching = threading.Thread(target=watch, name="metagen-tracking", daemon=True)
    if followers and meter is not None:
        watching.start()
    how: End = "failed"
    try:
        yield begins
        how = "complete"
    except KeyboardInterrupt:
        how = "interrupted"
        raise
    finally:
        ended.set()
        if followers:
            tell()
            _end(followers, directory.root, how, texts, PATIENCE if how == "complete" else HASTE)


def _end(followers: list[_Follower], root: Path, how: End, texts: bool, patience: float) -> None:
    # All is read in the followers' threads: a file that cannot be read is no reason to end a run.
    for one in followers:
        if how == "complete":
            one.do(lambda tracker: tracker.results(results(root)))
            one.do(lambda tracker: tracker.keep(files_of(root, texts=texts)))
        one.do(lambda tracker: tracker.end(*_state(root, how)))
    until = time.monotonic() + patience
    for one in followers:
        one.wait(until, root)


def track(
    kinds: Iterable[Kind],
    directory: RunDirectory | StudyDirectory,
    *,
    texts: bool = False,
    warn: Callable[[str], None] = _LOG.warning,
) -> None:
    """Send a run or a study that has been reported. Raises InputError for one without results."""
    file = directory.study if isinstance(directory, StudyDirectory) else directory.experiment
    if next(iter(results(directory.root)), None) is None:
        raise InputError(
            f"{str(directory.root)!r} has no results to send; make them with: metagen report {directory.root}"
        )
    with follow(kinds, directory, file.read_text(encoding="utf-8"), texts=texts, warn=warn):
        pass


def tracked(root: Path) -> list[Kind]:
    """The kinds of trackers that a run was tracked in."""
    return [kind for kind in TRACKERS if kind in _Kept(root).read()]


class _Follower:
    """A tracker in a thread of its own: what it is asked for is done in order, and nothing more once it has failed."""

    def __init__(
        self, kind: Kind, tracker: Tracker, subject: Subject, kept: _Kept, warn: Callable[[str], None]
    ) -> None:
        self._kind, self._tracker, self._warn = kind, tracker, warn
        self._queue: queue.SimpleQueue[Callable[[Tracker], object] | None] = queue.SimpleQueue()
        self._failed = False
        self._lock = threading.Lock()
        self.do(lambda one: kept.write(kind, one.begin(kept.known(kind, subject))))
        self._thread = threading.Thread(target=self._work, name=f"metagen-{kind}", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[Tracker], object]) -> None:
        if not self._failed:
            self._queue.put(work)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work(self._tracker)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of another package; the run goes on without it
                _LOG.debug("a tracker failed", exc_info=True)
                self._say(f"{type(error).__name__}: {error}")
                return

    def wait(self, until: float, root: Path) -> None:
        """Until all is done, or the time has come."""
        self._queue.put(None)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._say(f"it does not answer; send the results later: metagen track {root} --to {self._kind}")

    def _say(self, why: str) -> None:
        with self._lock:
            before, self._failed = self._failed, True
        if not before:
            self._warn(f"{self._kind} is told nothing more, and nothing else is lost by it: {why}")


class _Kept:
    """The ids of tracked runs, in the directory of the run."""

    def __init__(self, root: Path) -> None:
        self._directory, self._lock = RunDirectory(root), threading.Lock()

    def read(self) -> dict[str, dict[str, str]]:
        """By kind; empty where nothing can be read."""
        try:
            found = json.loads((self._directory.root / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}

    def known(self, kind: Kind, subject: Subject) -> Subject:
        """The subject with what is kept of it."""
        return Subject(subject.name, subject.parameters, subject.tags, self.read().get(kind, {}))

    def write(self, kind: Kind, known: Mapping[str, str]) -> None:
        with self._lock:
            self._directory.write(FILE, json.dumps({**self.read(), kind: dict(known)}, indent=1) + "\n")


# -- what is told --------------------------------------------------------------------------------------


def _subject(name: str, experiment: str) -> Subject:
    digest = hashlib.sha256(experiment.encode("utf-8", "backslashreplace")).hexdigest()
    tags = {"metagen.version": __version__, "metagen.experiment": digest, "metagen.directory": name}
    return Subject(name, dict(flatten(yaml.safe_load(experiment))), tags, {})


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Names with dots and texts; a list of plain values is one of them. Passwords in addresses are left out."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from flatten(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
        for place, one in enumerate(value):
            yield from flatten(one, f"{name}.{place}")
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        yield name, _short(_LOGIN.sub("//…@", text))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _name(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def _counts(meter: Meter) -> dict[str, float]:
    counts: dict[str, float] = {
        "samples": meter.done, "samples_total": meter.total, "fresh": meter.fresh, "problems": meter.problems,
        "failures": meter.failures, "seconds": meter.elapsed,
    }  # fmt: skip
    return counts if meter.rate is None else counts | {"samples_per_second": meter.rate}


def _state(root: Path, how: End) -> tuple[End, dict[str, str]]:
    """How a run ended, as its directory says, and facts of it."""
    try:
        state = RunDirectory(root).state()
    except MetagenError:  # a study, or a run that never began
        return how, {"metagen.status": how}
    status: End = "failed" if how == "complete" and state.status == "failed" else how
    facts = {
        "metagen.status": state.status, "metagen.failures": str(len(state.failures)),
        "metagen.samples": str(state.samples), "metagen.problems": str(state.problems),
    }  # fmt: skip
    return status, facts


def results(root: Path) -> Iterator[Point]:
    """What the tables of a run or a study say of each configuration. What is unknown is left out, and not sent as 0."""
    rows = [*_rows(root / "curves.csv"), *_rows(root / "configurations.csv")]
    priced = any(_number(row.get("money")) for row in rows)
    for row in rows:
        n = _number(row.get("n"))
        name = f"{row.get('model', row.get('generator'))}/{row['strategy']}"
        prefix = f"oracle/{name}" if row["oracle"] == "true" else name
        for measure in MEASURES:
            value = _number(row.get(measure))
            if value is not None and (measure != "money" or priced):
                yield Point(f"{prefix}/{measure}", value, None if n is None else int(n))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [*csv.DictReader(file)]
    except FileNotFoundError:
        return []


def _number(text: str | None) -> float | None:
    """None where nothing stands, and for what is no finite number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def files_of(root: Path, *, texts: bool) -> Iterator[tuple[Path, str]]:
    """Files of a run or a study, with their folders. An experiment with a password in an address stays here."""
    for name in (*FILES, *(TEXTS if texts else ())):
        path = root / name
        if path.is_file():
            secret = path.suffix == ".yaml" and _LOGIN.search(path.read_text(encoding="utf-8"))
            yield from () if secret else [(path, "")]
        elif path.is_dir():
            yield from ((one, name) for one in sorted(path.iterdir()) if one.is_file())
