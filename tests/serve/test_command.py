"""`metagen serve`, as a process: it says where it listens, and ends when it is told to, with all in work answered."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.declare import schema
from metagen.runs.declare.specs.executor import ExecutorSpec
from metagen.serve.models import unused
from tests.serve.serving import FILE, QUESTION

ROOT = Path(__file__).parents[2]


@contextmanager
def process(folder: Path, *arguments: str, **change: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on a file, and the address that it says."""
    path = folder / "served.yaml"
    path.write_text(yaml.safe_dump({**FILE, **change}), "utf-8")
    command = [sys.executable, "-m", "metagen.cli", "serve", str(path), "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whatever these tests run under
    ) as running:
        assert running.stderr is not None
        try:
            said = ""
            while (found := re.search(r"listening at (\S+);", said)) is None:
                line = running.stderr.readline()
                assert line, f"it ended: {said}"
                said += line
            yield running, found[1]
        finally:
            running.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_is_in_work_is_answered_before_the_end(tmp_path: Path, number: signal.Signals) -> None:
    slow = {"small": {"engine": "small", "max_tokens": 400, "ignore_eos": True}}
    with process(tmp_path, generators=slow) as (running, url):
        answers: list[httpx.Response] = []

        def ask() -> None:
            body = {"model": "vote", "prompt": QUESTION, "seed": 1}
            answers.append(httpx.post(f"{url}/completions", json=body, timeout=120))

        host = url.removesuffix("/v1")
        asking = threading.Thread(target=ask)
        asking.start()
        while "metagen_requests_running 1.0" not in httpx.get(f"{host}/metrics").text:
            threading.Event().wait(0.02)
        running.send_signal(number)
        asking.join(120)
        assert answers[0].status_code == 200 and answers[0].json()["usage"]["completion_tokens"] == 16 * 400
        assert running.wait(60) == 0


def refused(folder: Path, *arguments: str, **change: Any) -> str:
    path = folder / "served.yaml"
    path.write_text(yaml.safe_dump({**FILE, **change}), "utf-8")
    command = [sys.executable, "-m", "metagen.cli", "serve", str(path), *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "another --port" in refused(tmp_path, "--port", port)


def test_other_machines_need_keys(tmp_path: Path) -> None:
    assert "no key is needed" in refused(tmp_path, "--host", "0.0.0.0")


def test_a_fault_of_the_file_has_its_place(tmp_path: Path) -> None:
    said = refused(tmp_path, serve={"keys": {"a": {"variable": "X"}}})
    assert re.search(r"served\.yaml:\d+: serve\.keys\.a\.", said)


def test_an_option_and_an_override_that_say_the_same_are_refused(tmp_path: Path) -> None:
    asked = ["serve", str(tmp_path / "x.yaml"), "--set", "serve.port=1", "--port", "0"]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({**FILE, "serve": None}), "utf-8")
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2 and "serve.port: --set serve.port=1 says it, too" in result.output


def test_what_a_file_says_of_problems_is_named_as_not_used(tmp_path: Path) -> None:
    given = {"allocation": {"total": {"calls": 9}}, "cache": "kept", "executor": {"concurrency": 3}}
    usual = {"executor": {"concurrency": 64}}
    for more, named in ((given, ["allocation", "cache", "executor.concurrency"]), (usual, []), ({}, [])):
        (tmp_path / "x.yaml").write_text(yaml.safe_dump({**FILE, **more}), "utf-8")
        found = unused(schema.load(tmp_path / "x.yaml"))
        assert [note.partition(" is not used")[0] for note in found] == named
    sharded = ExecutorSpec.model_validate({"kind": "ray", "shards": 2})
    (note,) = unused(schema.load(tmp_path / "x.yaml").model_copy(update={"executor": sharded}))
    assert note.startswith("executor.shards is not used")


def test_options_go_before_the_file(tmp_path: Path) -> None:
    with process(tmp_path, "--set", "serve.aliases={quick: small/one}", "--host", "localhost") as (_, url):
        names = [one["id"] for one in httpx.get(f"{url}/models").json()["data"]]
        assert names[0] == "quick" and "vote" not in names
