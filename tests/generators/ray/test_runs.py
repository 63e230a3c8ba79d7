"""Experiments on pools: the same results, whatever is killed, the driver too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metagen.errors import ConfigError
from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

#: One cluster, in one process.
FILE = """
name: pools
task: {{kind: arithmetic, split: validation, seed: 3, levels: [1, 2], per_level: {problems}}}
engines:
  small: {{kind: torch, model: tiny-0.1m}}
  reward: {{kind: torch, model: tiny-prm-weak}}
generators: {{small: {{engine: small, max_tokens: 120}}}}
verifiers: {{prm: {{kind: prm, engine: reward}}}}
strategies:
  weighted: {{kind: weighted, verifier: prm, n: 8}}
  rebase: {{kind: rebase, verifier: prm, n: 4}}
grid: {{}}
executor: {executor}
"""
POOLS = "{kind: ray, concurrency: 4, replicas: 2, pools: {reward: {replicas: 1}}}"


def write(directory: Path, executor: str, problems: int = 4) -> Path:
    file = directory / "pools.yaml"
    file.write_text(FILE.format(executor=executor, problems=problems))
    return file


def command(file: Path, out: Path) -> list[str]:
    return [sys.executable, "-c", "from metagen.cli import app; app()", "run", str(file), "--out", str(out)]


def run_unreported(file: Path, out: Path) -> None:
    """A run of this process without its report, which takes longer than the work."""
    with build.open_setup(schema.load(file)) as setup:
        state = runner.run(setup, RunDirectory.at(out))
    assert (state.status, state.failures) == ("complete", ())


def results(run: Path) -> list[dict[str, Any]]:
    """Candidates without numbers that rounding or time may change."""
    table = pq.read_table(run / "candidates.parquet")
    plain = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    exact = [field.name for field in table.schema if any(of(field.type) for of in plain)]
    return sorted(table.select(exact).to_pylist(), key=str)


@pytest.mark.slow
def test_pools_change_no_result_and_a_killed_driver_resumes(
    cluster: Any, tmp_path: Path, until: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    alone, pooled = tmp_path / "alone", tmp_path / "pooled"
    run_unreported(write(tmp_path, "local"), alone)
    file = write(tmp_path, POOLS)
    with subprocess.Popen(command(file, pooled), start_new_session=True) as driver:
        until(lambda: driver.poll() is not None or _rows(pooled) > 0, 300)
        assert driver.poll() is None, "it was to be killed in the middle"
        os.killpg(driver.pid, signal.SIGKILL)
    before, _ = _rows(pooled), capfd.readouterr()
    run_unreported(file, pooled)
    said = "".join(capfd.readouterr())
    assert "Traceback" not in said and "(raylet)" not in said
    assert results(pooled) == results(alone)
    assert _rows(pooled) == _rows(alone) > before


def _rows(run: Path) -> int:
    """Records on disk."""
    if not (run / "journal.sqlite").is_file():
        return 0
    with SQLiteJournal(run / "journal.sqlite", read_only=True) as journal:
        return journal.count()


GOOD = "{kind: ray, replicas: 2, address: '10.0.0.1:6379', pools: {reward: {num_gpus: 0.5}}, deadline: 60}"


def test_an_executor_is_read_and_written(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    executor = schema.load(file).executor
    assert (executor.pool("small").replicas, executor.pool("reward").replicas) == (2, 1)
    assert executor.pool("reward").needs["num_gpus"] == 0.5
    (tmp_path / "again.yaml").write_text(schema.dump(schema.load(file)))
    assert schema.load(tmp_path / "again.yaml") == schema.load(file)
    assert schema.load(write(tmp_path, "ray")).executor.kind == "ray"
    assert schema.load(write(tmp_path, "{concurrency: 3}")).executor.kind == "local"


@pytest.mark.parametrize(
    ("executor", "fault"),
    [
        ("{replicas: 2}", "replicas is for pools of engines; give kind: ray, or leave replicas out"),
        ("spark", "executor.kind = 'spark': expected one of local, ray"),
        (
            "{kind: ray, pools: {smal: {}}}",
            "expected one of the engines small, reward; did you mean 'small'?",
        ),
        ("{kind: ray, replicas: 0}", "executor.replicas = 0: expected an integer ≥ 1"),
        ("{kind: ray, num_gpus: 1, bundles: [{GPU: 1}]}", "bundles say what a replica needs"),
        ("{kind: ray, resources: {GPU: 1}}", "resources={'GPU': 1.0}: Ray takes no GPU here"),
        ("{kind: ray, shards: {resources: {CPU: 8}}}", "resources={'CPU': 8.0}: Ray takes no CPU here"),
        ("{kind: ray, resources: 1}", "executor.resources = 1: expected a mapping such as {sandbox: 1}"),
    ],
)
def test_faults_of_an_executor_are_named(tmp_path: Path, executor: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schema.load(write(tmp_path, executor))
    assert fault in str(caught.value)
