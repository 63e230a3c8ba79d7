"""`metagen view`: it serves this machine alone, until it is interrupted."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.view.shelf import Shelf
from tests.view.conftest import Runs


@contextmanager
def viewer(runs: Runs, hangup: signal.Handlers) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own. hangup: what it inherits for SIGHUP, whatever these tests run under."""
    command = [sys.executable, "-m", "metagen.cli", "view", str(runs.root), "--port", "0", "--no-open"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_runs_until_a_signal_ends_it(runs: Runs, number: signal.Signals) -> None:
    with viewer(runs, signal.SIG_DFL) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address, said
        with urllib.request.urlopen(f"{address[0]}api/runs", timeout=60) as answer:
            assert sorted(one["id"] for one in json.load(answer)) == ["one", "two"]
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_under_nohup_a_terminal_that_closes_does_not_end_it(runs: Runs) -> None:
    with viewer(runs, signal.SIG_IGN) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[2].rstrip(";")
        process.send_signal(signal.SIGHUP)
        for _ in range(2):
            with urllib.request.urlopen(f"{address}api/runs", timeout=60) as answer:
                assert answer.status == 200
        process.terminate()
        assert process.wait(60) == 0


def test_a_port_that_is_taken_is_an_error_with_a_remedy(runs: Runs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["view", str(runs.root), "--port", str(port), "--no-open"])
    assert done.exit_code == 2 and f"127.0.0.1:{port}" in done.output and "another --port" in done.output


def test_a_run_is_known_by_its_name_as_other_commands_know_it(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs").symlink_to(runs.root)
    monkeypatch.chdir(tmp_path)
    assert list(Shelf((Path("one"),)).runs()) == ["one"]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["view", str(tmp_path / "nothing"), "--no-open"])
    assert done.exit_code == 2 and "there is no directory" in done.output


def test_without_its_packages_it_says_what_to_install(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(app, ["view", str(runs.root), "--no-open"])
    assert done.exit_code == 2 and "[view]" in done.output
