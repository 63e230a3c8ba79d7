"""Experiments in shards: the same results as of one driver, whatever is killed, and a total that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow.parquet as pq
import pytest

from metagen.journal import SQLiteJournal
from metagen.runs.directory import RunDirectory
from tests.generators.ray.test_runs import _rows, command, results, run_here, run_unreported

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


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes an experiment; until the file `gate` exists, its generator gives two samples of each problem."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "runs" / "toy"))

    def written(executor: str, text: str = TOY) -> Path:
        file = tmp_path / f"{len(list(tmp_path.glob('*.yaml')))}.yaml"
        file.write_text(text.format(executor=executor, gate=tmp_path / "gate"))
        return file

    return written


def drivers() -> list[int]:
    """Processes of drivers on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::Driver"):
                found.append(int(path.parent.name))
    return found


def killed(run: Path, file: Path, rows: int, what: str, until: Callable[..., None]) -> subprocess.Popen[str]:
    """A run in which, after so many records, the head or one of the drivers is killed."""
    head = subprocess.Popen(
        command(file, run),
        start_new_session=True,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: head.poll() is not None or _rows(run) >= rows, 300)
    assert head.poll() is None, "it waits at the gate"
    if what == "head":
        os.killpg(head.pid, signal.SIGKILL)
    else:
        os.kill(drivers()[0], signal.SIGKILL)
    return head


def test_shards_change_no_result_and_outlive_their_drivers(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    alone, lost, resumed = (tmp_path / name for name in ("alone", "lost", "resumed"))
    gate = tmp_path / "gate"
    gate.touch()
    run_unreported(write("local"), alone)
    gate.unlink()

    two = write("{kind: ray, concurrency: 4, replicas: 2, shards: 2}")
    with killed(lost, two, 8, "driver", until) as head:
        gate.touch()
        _, said = head.communicate(timeout=600)
    assert head.returncode == 0, said
    assert results(lost) == results(alone) and _rows(lost) == _rows(alone)
    assert not (lost / "shards").exists() and not list(lost.glob("*.part"))
    state = RunDirectory(lost).state()
    assert (state.status, state.problems, state.failures) == ("complete", 12, ())
    assert state.samples == RunDirectory(alone).state().samples
    assert sorted(set(pq.read_table(lost / "problems.parquet")["place"].to_pylist())) == list(range(12))

    gate.unlink()
    with killed(resumed, two, 8, "head", until) as head:
        head.communicate()
    gate.touch()
    before = _rows(resumed)
    # Another number of drivers goes on with what those before have recorded, whoever had it.
    said = run_here(write("{kind: ray, concurrency: 4, shards: 3}"), resumed)
    assert "Traceback" not in said
    assert results(resumed) == results(alone) and _rows(resumed) == _rows(alone) > before
    state = RunDirectory(resumed).state()
    assert 0 < state.recorded < state.samples


def actors_alive(kind: str) -> list[dict[str, Any]]:
    """Actors of a class that have not ended."""
    from ray._private.state import actors

    return [one for one in actors().values() if one["ActorClassName"] == kind and one["State"] != "DEAD"]


#: Without a total: what a lost replica may have done is charged to it.
PLAIN = MODEL.partition("allocation:")[0]


@pytest.mark.parametrize(
    ("text", "lost"),
    [(MODEL, ()), (MODEL, ("Driver",)), (PLAIN, ("Replica",))],
    ids=["none", "driver", "replica"],
)
def test_drivers_share_replicas_and_a_total_is_kept_whoever_is_killed(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None], text: str, lost: tuple[str, ...]
) -> None:
    """Three drivers, two replicas: who is killed costs nobody else's work."""
    alone, sharded = tmp_path / "alone", tmp_path / "sharded"
    run_unreported(write("local", text), alone)
    seen, over = set[str](), Event()

    def watch() -> None:
        waiting = list(lost)
        while not over.wait(0.05):
            seen.update(one["ActorID"] for one in actors_alive("Replica"))
            if waiting and _recorded(sharded):
                os.kill(actors_alive(waiting.pop())[0]["Pid"], signal.SIGKILL)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    run_here(write("{kind: ray, replicas: 2, shards: 3}", text), sharded)
    over.set()
    watching.join(60)
    assert _spent(alone) == _spent(sharded)
    assert text == PLAIN or _spent(alone) <= TOTAL
    assert results(alone) == results(sharded)
    assert len(seen) <= 3 if lost == ("Replica",) else len(seen) == 2, "one set of replicas for all drivers"
    until(lambda: not actors_alive("Replica") and not actors_alive("Driver"))


def test_no_replica_outlives_a_head_that_is_killed(
    write: Callable[..., Path], tmp_path: Path, until: Callable[..., None]
) -> None:
    run = tmp_path / "run"
    file = write("{kind: ray, replicas: 2, shards: 2}", MODEL)
    with subprocess.Popen(command(file, run), start_new_session=True, stderr=subprocess.DEVNULL) as head:
        until(lambda: head.poll() is not None or _recorded(run), 300)
        assert head.poll() is None and len(actors_alive("Replica")) == 2
        os.killpg(head.pid, signal.SIGKILL)
    until(lambda: not actors_alive("Replica") and not actors_alive("Driver"))


def test_shards_and_one_driver_share_a_cache(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    shared = f"cache: {tmp_path / 'shared'}\n"
    for name, executor in (
        ("first", "{kind: ray, replicas: 2, shards: 2}"),
        ("shards", "{kind: ray, replicas: 2, shards: 2}"),
        ("local", "local"),
    ):
        run_unreported(write(executor, TOY + shared), tmp_path / name)
    states = [RunDirectory(tmp_path / name).state() for name in ("first", "shards", "local")]
    assert states[0].cached == 0 and states[1].cached == states[2].cached == _rows(tmp_path / "first")
    assert results(tmp_path / "first") == results(tmp_path / "shards") == results(tmp_path / "local")


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
