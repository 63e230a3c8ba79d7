"""Experiments in shards: the same results as of one driver, whatever is killed, and a total that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow.parquet as pq
import pytest

from metagen.journal import SQLiteJournal
from metagen.runs.directory import RunDirectory
from tests.generators.ray.test_runs import _rows, command, results, run_unreported

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cluster", "lean_figures")]
#: The second strategy asks for as much as its answers make it.
TOY = """
name: shards
seed: 3
task: {{kind: "metagen_toy:ToyTask", count: 12}}
generators: {{small: {{kind: "metagen_toy:generator", gate: {gate}}}}}
verifiers: {{judge: {{kind: "metagen_toy:verifier"}}}}
strategies:
  weighted: {{kind: weighted, verifier: judge, n: 8}}
  adaptive: {{kind: adaptive_consistency, n: 8, batch: 2}}
grid: {{}}
executor: {executor}
"""
TOTAL = 1500
MODEL = f"""
name: total
task: {{{{kind: arithmetic, split: validation, seed: 3, levels: [1, 2], per_level: 2}}}}
engines: {{{{small: {{{{kind: torch, model: tiny-0.1m}}}}}}}}
generators: {{{{small: {{{{engine: small, max_tokens: 120}}}}}}}}
strategies: {{{{majority: {{{{kind: majority, n: 8}}}}}}}}
grid: {{{{}}}}
executor: {{executor}}
allocation: {{{{total: {{{{generated: {TOTAL}}}}}}}}}
"""
#: Without torch, which every replica would wait for. Without a total: what a lost replica may have done
#: is charged to it.
PLAIN = """
name: plain
task: {{kind: "metagen_toy:ToyTask", count: 4}}
engines: {{small: {{kind: "metagen_toy:Letters", delay: 0.03}}}}
generators: {{small: {{engine: small, max_tokens: 30}}}}
strategies: {{adaptive: {{kind: adaptive_consistency, n: 8, batch: 2}}}}
grid: {{}}
executor: {executor}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes an experiment; until the file `gate` exists, its generator gives two samples of each problem."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "runs" / "toy"))

    def written(executor: str, text: str = TOY) -> Path:
        file = tmp_path / f"{len(list(tmp_path.glob('*.yaml')))}.yaml"
        file.write_text(text.format(executor=executor, gate=tmp_path / "gate"))
        return file

    return written


def test_shards_change_no_result_and_outlive_their_head(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    """Another number of drivers goes on with what those before have recorded, whoever had it."""
    alone, resumed = tmp_path / "alone", tmp_path / "resumed"
    gate = tmp_path / "gate"
    gate.touch()
    run_unreported(write("local"), alone)
    gate.unlink()

    two = write("{kind: ray, concurrency: 4, shards: 2}")
    head = subprocess.Popen(
        command(two, resumed), start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    with head:
        until(lambda: head.poll() is not None or _rows(resumed) >= 8, 300)
        assert head.poll() is None, "it waits at the gate"
        os.killpg(head.pid, signal.SIGKILL)
    gate.touch()
    before = _rows(resumed)
    run_unreported(write("{kind: ray, concurrency: 4, shards: 3}"), resumed)
    assert results(resumed) == results(alone) and _rows(resumed) == _rows(alone) > before
    assert is_whole(resumed, alone, 12)
    state = RunDirectory(resumed).state()
    assert 0 < state.recorded < state.samples


def is_whole(run: Path, alone: Path, problems: int) -> bool:
    """Whether nothing is left of the parts of a run, and nothing tells it from that of one driver."""
    state = RunDirectory(run).state()
    assert not (run / "shards").exists() and not list(run.glob("*.part"))
    assert (state.status, state.problems, state.failures) == ("complete", problems, ())
    assert state.samples == RunDirectory(alone).state().samples
    places = pq.read_table(run / "problems.parquet")["place"].to_pylist()
    return sorted(set(places)) == list(range(problems))


def actors_alive(kind: str) -> list[dict[str, Any]]:
    """Actors of a class that have not ended."""
    from ray._private.state import actors

    return [one for one in actors().values() if one["ActorClassName"] == kind and one["State"] != "DEAD"]


@pytest.mark.parametrize(
    ("text", "shards", "lost"), [(MODEL, 3, "Driver"), (PLAIN, 2, "Replica")], ids=["driver", "replica"]
)
def test_drivers_share_replicas_and_a_total_is_kept_whoever_is_killed(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None], text: str, shards: int, lost: str
) -> None:
    """Drivers of two replicas: who is killed costs nobody else's work."""
    alone, sharded = tmp_path / "alone", tmp_path / "sharded"
    run_unreported(write("local", text), alone)
    seen, heavy, killed, over = set[str](), list[bool](), list[int](), Event()

    def watch() -> None:
        while not over.wait(0.05):
            seen.update(one["ActorID"] for one in actors_alive("Replica"))
            if not killed and _recorded(sharded):
                maps = (Path(f"/proc/{one['Pid']}/maps").read_text() for one in actors_alive("Driver"))
                heavy.extend("torch" in one for one in maps)
                killed.append(actors_alive(lost)[0]["Pid"])
                os.kill(killed[0], signal.SIGKILL)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    run_unreported(write(f"{{kind: ray, replicas: 2, shards: {shards}}}", text), sharded)
    over.set()
    watching.join(60)
    assert killed and is_whole(sharded, alone, 4)
    assert heavy and not any(heavy), "drivers make no engine, and need no torch"
    assert _spent(alone) == _spent(sharded)
    assert text == PLAIN or _spent(alone) <= TOTAL
    assert results(alone) == results(sharded) and _rows(alone) == _rows(sharded)
    assert len(seen) <= 3 if lost == "Replica" else len(seen) == 2, "one set of replicas for all drivers"
    until(lambda: not actors_alive("Replica") and not actors_alive("Driver"))


def test_no_replica_outlives_a_head_that_is_killed(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    run = tmp_path / "run"
    file = write("{kind: ray, replicas: 2, shards: 2}", PLAIN)
    with subprocess.Popen(command(file, run), start_new_session=True, stderr=subprocess.DEVNULL) as head:
        until(lambda: head.poll() is not None or _recorded(run), 300)
        assert head.poll() is None and len(actors_alive("Replica")) == 2
        os.killpg(head.pid, signal.SIGKILL)
    until(lambda: not actors_alive("Replica") and not actors_alive("Driver"))


def test_shards_and_one_driver_share_a_cache(write: Callable[..., Path], tmp_path: Path) -> None:
    """Each run finds what the one before it was asked, and is asked for more problems."""
    (tmp_path / "gate").touch()
    text = TOY + f"cache: {tmp_path / 'shared'}\n"
    runs = [tmp_path / name for name in ("half", "shards", "local")]
    for run, count, executor in zip(
        runs, (6, 12, 12), ("local", "{kind: ray, shards: 2}", "local"), strict=True
    ):
        run_unreported(write(executor, text.replace("count: 12", f"count: {count}")), run)
    half, shards, local = (RunDirectory(run).state() for run in runs)
    assert half.cached == 0 and 0 < shards.cached == _rows(runs[0]) < _rows(runs[1]) == local.cached
    assert results(runs[1]) == results(runs[2])


def _recorded(run: Path) -> bool:
    """Whether a driver has recorded something."""
    return any(keys(path) for path in run.glob("shards/*/*/journal.sqlite"))


def _spent(run: Path) -> int:
    """Tokens generated, over all problems."""
    return int(sum(pq.read_table(run / "outcomes.parquet")["generated"].to_pylist()))


def test_a_run_that_waits_for_a_machine_can_be_interrupted(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    """No node has what its drivers need."""
    from ray._private.state import actors

    executor = "{kind: ray, shards: {count: 1, resources: {nowhere: 1}}, replacements: 0}"
    run = tmp_path / "run"
    head = subprocess.Popen(
        command(write(executor), run),
        start_new_session=True,
        # Jobs in the background of a shell inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until(lambda: any(one["State"] == "PENDING_CREATION" for one in actors().values()))
        head.send_signal(signal.SIGINT)
        assert head.wait(60) == 130
    finally:
        head.kill()
        head.wait()
    assert RunDirectory(run).state().status == "interrupted"


def test_an_interrupted_run_has_what_its_drivers_had_recorded(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    """Where it goes on, nobody may see their disks. This one looks at them once in an hour."""
    run = tmp_path / "run"
    file = write("{kind: ray, concurrency: 4, replicas: 2, shards: 2}")
    program = (
        "import metagen.runs.work.shards.run as run; run.EVERY = 3600.0; from metagen.cli import app; app()"
    )
    head = subprocess.Popen(
        [sys.executable, "-c", program, *command(file, run)[3:]],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    )

    def recorded() -> set[bytes]:
        return {key for path in run.glob("shards/*/*/journal.sqlite") for key in keys(path)}

    until(lambda: head.poll() is not None or len(recorded()) >= 8, 300)
    assert head.poll() is None, "it waits at the gate"
    there = recorded()
    head.send_signal(signal.SIGTERM)
    assert head.wait(60) == 143
    assert there <= keys(run / "journal.sqlite")
    assert RunDirectory(run).state().status == "interrupted"


def keys(path: Path) -> set[bytes]:
    with SQLiteJournal(path, read_only=True) as journal:
        return {record[0] for record in journal.since(0, 100_000)[1]}
