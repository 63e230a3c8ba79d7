"""`metagen view`: it serves this machine alone, until it is interrupted."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from tests.view.conftest import Runs


def test_it_serves_runs_until_it_is_interrupted(runs: Runs) -> None:
    command = [sys.executable, "-m", "metagen.cli", "view", str(runs.root), "--port", "0", "--no-open"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address, said
        with urllib.request.urlopen(f"{address[0]}api/runs", timeout=60) as answer:
            assert sorted(one["id"] for one in json.load(answer)) == ["one", "two"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
        assert "Traceback" not in process.stderr.read()


def test_a_port_that_is_taken_is_an_error_with_a_remedy(runs: Runs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["view", str(runs.root), "--port", str(port), "--no-open"])
    assert done.exit_code == 2 and f"--port {port}" in done.output and "give another one" in done.output


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["view", str(tmp_path / "nothing"), "--no-open"])
    assert done.exit_code == 2 and "there is no directory" in done.output


def test_without_its_packages_it_says_what_to_install(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(app, ["view", str(runs.root), "--no-open"])
    assert done.exit_code == 2 and "[view]" in done.output
