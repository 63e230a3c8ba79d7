"""Logs: silent by default, one JSON object a record on request, and nothing in them that is nobody's business."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen import logs
from metagen.errors import InputError


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger(logs.ROOT)
    before, level = list(root.handlers), root.level
    yield
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    root.handlers, root.level = before, level
    logging.getLogger(logs.ROOT).setLevel(level)


def test_a_library_that_nobody_configured_is_silent() -> None:
    code = "from metagen import logs; logs.logger('metagen.x').error('boom', extra={'a': 1})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_json_lines_hold_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    log = logs.logger("metagen.somewhere")
    log.debug("too little")
    log.info("run started", extra={"problems": 8, "run": Path("runs/x"), "odd": "\ud800\n"})
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info", "logger": "metagen.somewhere", "event": "run started",
        "problems": 8, "run": "runs/x", "odd": "\ud800\n",
    }  # fmt: skip


def test_json_lines_hold_tracebacks_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("error", "json")
    try:
        raise ValueError("what")
    except ValueError:
        logs.logger("metagen.x").exception("engine failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: what" in json.loads(line)["traceback"]


def test_text_quotes_what_is_not_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    logs.logger("metagen.x").warning("problem failed", extra={"problem": "p-1", "reason": "too long\nby far"})
    line = capsys.readouterr().err
    assert line.endswith('warning: problem failed problem=p-1 reason="too long\\nby far"\n')


def test_a_file_is_appended_to_and_stderr_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        logs.configure("info", "json", tmp_path / "log")
        logs.logger("metagen.x").info("once", extra={"n": 1})
    assert [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()] == [
        "once",
        "once",
    ]
    assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write the log .*--log-file"):
        logs.configure("info", "json", tmp_path / "nowhere" / "log")


def test_other_loggers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json")
    logging.getLogger("another.library").warning("not ours")
    assert "{" not in capsys.readouterr().err
