"""`make gpu`, rehearsed: pieces that stop and go on, and that fail, hang or lack something without harm to others."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import child, models, place, runner, table
from benchmarks.gpu.pieces.greedy import first_flips
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import DONE, FAILED, MISSING, OPEN, Record
from benchmarks.gpu.row import found, missing
from benchmarks.gpu.runner import Piece, Runner, Settings
from metagen.cost import HARDWARE, Hardware

#: Pieces of a test. `log` has the tasks that were run; a task of `gated` waits until the file `go` is there.
PIECES = """
import os, subprocess, sys, time
from pathlib import Path
from benchmarks.gpu.row import Lacks, found

HERE = Path(__file__).parent

def task(name):
    with (HERE / "log").open("a") as log:
        log.write(name + "\\n")
    (HERE / "pid").write_text(str(os.getpid()))
    yield found(f"figure {name}", [1.0, 3.0, 2.0], "1/s", "none", "≥ 2")

def good(place, *names):
    for name in names:
        yield name, lambda name=name: task(name)

def gated(place):
    yield "a", lambda: task("a")
    yield "b", lambda: wait("b")
    yield "c", lambda: task("c")

def wait(name):
    while not (HERE / "go").exists():
        time.sleep(0.05)
    yield from task(name)

def raises(place):
    yield "first", lambda: task("first")
    yield "second", lambda: 1 / 0
    yield "third", lambda: task("third")

def crashes(place):
    yield "first", lambda: task("first")
    yield "second", lambda: print("on the way", flush=True) or os.abort()

def hangs(place):
    yield "asleep", sleep

def sleep():
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    (HERE / "other").write_text(str(other.pid))
    yield found("begun", 1.0, "", "none")
    time.sleep(1000)

def wants(place):
    yield "first", lambda: task("first")
    yield "second", want

def want():
    if not (HERE / "go").exists():
        raise Lacks("fetch it")
    yield from task("second")

def lacks(place):
    yield "first", lambda: task("first")
    yield "second", need

def need():
    import no_such_library
"""
#: Seconds that no test waits for in earnest.
LONG = 500.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pieces of the tests are, so that their processes find them."""
    (tmp_path / "trial_pieces.py").write_text(PIECES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(runner, "PULSE", 0.02)
    return tmp_path


def piece(name: str, *args: str, limit: float = LONG) -> Piece:
    return Piece(name, ":".join((f"trial_pieces:{name}", *args)), 10, limit)


def run(
    folder: Path, *pieces: Piece, minutes: float = 60.0, **options: Any
) -> tuple[Record, bool, list[str]]:
    """The record, whether nothing is left, and what was said."""
    said: list[str] = []
    record = Record.read(folder / "record.json")
    whole = Runner(record, Settings(minutes, folder / "models", **options), said.append).run(pieces)
    assert Record.read(folder / "record.json").rows == record.rows
    return record, whole, said


def names(record: Record) -> list[str]:
    return [row["name"] for row in record.rows]


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(process: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True


def test_a_row_has_its_figure_its_goal_and_its_command(folder: Path) -> None:
    record, whole, said = run(folder, piece("good", "a", "b"))
    assert whole and record.pieces["good"]["state"] == DONE
    row = record.rows[0]
    assert (row["name"], row["value"], row["low"], row["high"]) == ("figure a", 2.0, 1.0, 3.0)
    assert (row["goal"], row["holds"], row["unit"]) == ("≥ 2", True, "1/s")
    assert row["command"] == "python -m benchmarks.gpu --only good" and row["seconds"] >= 0
    assert "figure a: 2 1/s (1 to 3); goal ≥ 2, holds" in "\n".join(said)
    again, whole, _ = run(folder, piece("good", "a", "b"))
    assert whole and again.rows == record.rows
    assert (folder / "log").read_text() == "a\nb\n", "what is done is not done again"


DRIVER = """
import sys
from pathlib import Path
from benchmarks.gpu.record import Record
from benchmarks.gpu.runner import Piece, Runner, Settings
folder = Path(sys.argv[1])
record = Record.read(folder / "record.json")
Runner(record, Settings(60, folder / "models")).run([Piece("gated", "trial_pieces:gated", 10, 500)])
"""


def test_a_run_that_was_killed_goes_on_where_it_stopped(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{runner.ROOT}{os.pathsep}{folder}"}
    first = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], env=environment)
    path = folder / "record.json"
    until(lambda: path.exists() and Record.read(path).piece("gated")["tasks"] == ["a"])
    first.send_signal(signal.SIGKILL)
    first.wait()
    until(lambda: gone(int((folder / "pid").read_text())))
    assert Record.read(path).piece("gated")["state"] == OPEN
    (folder / "go").touch()
    record, whole, _ = run(folder, piece("gated"))
    assert whole and record.pieces["gated"]["state"] == DONE
    assert names(record) == ["figure a", "figure b", "figure c"]
    assert (folder / "log").read_text() == "a\nb\nc\n"


def test_a_task_that_raises_is_a_row_and_the_others_go_on(folder: Path) -> None:
    record, whole, _ = run(folder, piece("raises"), piece("good", "a"))
    assert whole
    assert names(record) == ["figure first", "raises, second", "figure third", "figure a"]
    assert record.rows[1]["value"] is None and "ZeroDivisionError" in record.rows[1]["note"]
    assert {name: one["state"] for name, one in record.pieces.items()} == {"raises": FAILED, "good": DONE}
    record, _, _ = run(folder, piece("raises"), again=True)
    assert names(record) == ["figure a", "figure first", "raises, second", "figure third"]


def test_a_piece_that_crashes_is_a_row_and_the_others_go_on(folder: Path) -> None:
    """What it printed is kept."""
    record, whole, said = run(folder, piece("crashes"), piece("good", "a"))
    assert whole and record.pieces["crashes"]["state"] == FAILED
    assert names(record) == ["figure first", "crashes, second", "figure a"]
    assert "SIGABRT" in record.rows[1]["note"]
    (log,) = folder.glob("record-*.log")
    assert f"  what it printed: {log}" in said and log.name == "record-crashes.log"
    assert "on the way" in log.read_text()


def test_what_another_import_lacks_is_named() -> None:
    """As libraries raise it that import parts when they are asked for."""
    error = ModuleNotFoundError("Could not import module 'Part'")
    assert child.remedy(error) is None, "a failure, whose log is kept"
    error.__cause__ = ModuleNotFoundError("No module named 'lid.top'", name="lid.top")
    assert str(child.remedy(error)).startswith("lid.top is missing; pip install lid,")


def test_a_piece_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    """Its limit is tiny, but for the time until it has begun."""
    limit = 1.0
    while not (folder / "other").exists():
        limit *= 2
        (folder / "record.json").unlink(missing_ok=True)
        record, whole, _ = run(folder, piece("hangs", limit=limit), piece("good", "a"))
    until(lambda: gone(int((folder / "other").read_text())))
    assert whole and record.pieces["hangs"]["state"] == FAILED
    assert f"it took longer than {limit:g} s" in record.rows[-2]["note"]
    assert names(record)[-1] == "figure a"


def test_a_call_ends_when_its_minutes_are_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, whole, said = run(folder, piece("good", "a"), minutes=0.01)
    assert not whole and record.rows == []
    assert "good" in said[-2] and "again" in said[-1]
    monkeypatch.setattr(runner, "LEAST", 0.0)
    record, whole, said = run(folder, piece("gated"), minutes=0.02)
    assert any("cut off" in line and "last words" in line for line in said)
    assert not whole and record.pieces["gated"]["state"] == OPEN, "its own time is not over"
    (folder / "go").touch()
    record, whole, _ = run(folder, piece("gated"))
    assert whole and names(record) == ["figure a", "figure b", "figure c"]


def test_what_is_not_installed_is_said_and_tried_again(folder: Path) -> None:
    record, whole, _ = run(folder, piece("lacks"), Piece("nowhere", "no_such_module:tasks", 1, LONG))
    assert whole and record.pieces["lacks"]["state"] == record.pieces["nowhere"]["state"] == MISSING
    assert names(record) == ["figure first", "lacks, second", "nowhere, start"]
    assert "no_such_library is missing; pip install no_such_library" in record.rows[1]["note"]
    (folder / "no_such_library.py").write_text("")
    (folder / "trial_pieces.py").write_text(f"{PIECES}    return task('second')\n")
    record, _, _ = run(folder, piece("lacks"))
    assert record.pieces["lacks"]["state"] == DONE
    assert names(record) == ["figure first", "nowhere, start", "figure second"]


def test_a_failure_of_a_call_that_was_cut_off_is_tried_again(folder: Path) -> None:
    record = Record(folder / "record.json")
    record.piece("wants").update(tasks=["first"], broken=True, lacks=True)
    record.write()
    (folder / "go").touch()
    record, _, _ = run(folder, piece("wants"))
    assert record.pieces["wants"].keys() == {"state", "tasks", "seconds"}
    assert record.pieces["wants"]["state"] == DONE and names(record) == ["figure second"]


def test_what_has_not_been_fetched_is_said_and_tried_again(folder: Path) -> None:
    record, _, _ = run(folder, piece("wants"))
    assert record.pieces["wants"]["state"] == MISSING and record.rows[1]["note"] == "fetch it"
    (folder / "go").touch()
    record, _, _ = run(folder, piece("wants"))
    assert record.pieces["wants"]["state"] == DONE and names(record) == ["figure first", "figure second"]
    assert (folder / "log").read_text() == "first\nsecond\n", "what is done is not done again"


def test_without_vllm_its_pieces_say_how_to_install_it(folder: Path) -> None:
    record, whole, _ = run(folder, Piece("vllm", "trial_pieces:good:a", 1, LONG, vllm=True))
    assert whole and record.pieces["vllm"]["state"] == MISSING
    assert "make .venv-vllm/installed" in record.rows[0]["note"]
    record, _, _ = run(folder, Piece("vllm", "trial_pieces:good:a", 1, LONG, vllm=True), vllm=sys.executable)
    assert names(record) == ["figure a"] and record.pieces["vllm"]["state"] == DONE


# -- the command ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rehearsal_keeps_rows_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--rehearse", "--out", str(tmp_path), "--models", str(tmp_path / "models" / "all")]
    assert command.main([*where, "--only", "weights", "steps", "speed-0.5b", "--limit", str(LONG)]) == 0
    data = json.loads((tmp_path / "gpu-rehearsal.json").read_text())
    assert {name: one["state"] for name, one in data["pieces"].items()} == dict.fromkeys(
        ("weights", "steps", "speed-0.5b"), DONE
    )
    rows = {row["name"]: row for row in data["rows"]}
    assert rows["torch engine over transformers; random 0.5b, batch 1"]["value"] > 0
    assert rows["torch engine, share of the roofline; random 0.5b, batch 3"]["value"] > 0
    assert (
        rows["waits of the CPU for the device in a decoding step"]["note"]
        == "torch reports them on CUDA only"
    )
    assert "figures mean nothing" in capsys.readouterr().out
    page = tmp_path / "page.md"
    assert command.main([*where, "--only", "weights", "--markdown", str(page)]) == 0
    assert json.loads((tmp_path / "gpu-rehearsal.json").read_text())["rows"] == data["rows"]
    assert page.read_text().count("\n| ") == len(data["rows"]) + 1


def test_without_a_gpu_the_command_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.main([]) == 2
    assert "--rehearse" in capsys.readouterr().err


def test_every_piece_is_there() -> None:
    assert len({one.name for one in command.PIECES}) == len(command.PIECES)
    for one in command.PIECES:
        module, function, *_ = one.source.split(":")
        assert callable(getattr(importlib.import_module(module), function))
        assert one.expected < one.limit < 540, "a piece fits into one call"


# -- parts -----------------------------------------------------------------------------------------------


def test_goals_hold_or_do_not() -> None:
    assert [found("a", value, "×", "", "≥ 1").holds for value in (0.9, 1.0)] == [False, True]
    assert [found("a", value, "×", "", "≤ 1").holds for value in (1.0, 1.1)] == [True, False]
    assert found("a", 1.0, "×", "").holds is None and missing("a", "none").holds is None


def test_a_table_for_a_page_has_every_row(tmp_path: Path) -> None:
    record = Record(tmp_path / "r.json", {"gpu": "None | such"})
    record.add("p", "t", found("speed | a", [1.0, 2.0, 3.0], "1/s", "", "≥ 5").to_dict())
    record.add("p", "t", missing("other", "not there").to_dict())
    lines = table.markdown(record).splitlines()
    assert "| speed \\| a | 2 1/s | 1 to 3 | ≥ 5, missed |" in lines
    assert "| other | not measured | not there |  |" in lines


def test_kept_rows_tell_the_versions_they_were_measured_with(tmp_path: Path) -> None:
    record = Record(tmp_path / "r.json")
    for version in ("1", "2", "2", "3"):
        record.go_on({"gpu": "G", "torch": version, "driver": None})
        record.machine["command"] = "c"
        record.add("p", "t", found(f"speed {len(record.rows)}", 1.0, "s", "").to_dict())
    assert [row.get("on") for row in record.rows] == [{"torch": "1"}, {"torch": "2"}, {"torch": "2"}, None]
    text = table.markdown(Record.read(record.path))
    assert "| speed 0 (on torch 1) | 1 s |" in text and "| speed 3 | 1 s |" in text


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("A100-SXM4-80GB", "a100-80gb-sxm"), ("NVIDIA GH200 480GB", None), ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
    ],
)  # fmt: skip
def test_a_data_sheet_speaks_of_the_whole_gpu_of_its_name(
    name: str, sheet: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: name)
    for measured in ("products", "copies"):
        monkeypatch.setattr(f"benchmarks.gpu.place.{measured}", lambda place: 1.0)
    known = place.hardware(Place(False, tmp_path))
    assert known == (HARDWARE[sheet] if sheet else Hardware("measured", 1.0, 1.0))


def test_texts_first_differ_where_they_do() -> None:
    flips, total = first_flips([[1, 2, 3], [4, 5, 6], [7]], [[1, 2, 3], [4, 9, 6], [8]])
    assert flips == [(1, 1), (2, 0)] and total == 3 + 2 + 1


def test_random_models_are_whole_and_read_what_they_write(tmp_path: Path) -> None:
    read = models.tokenizer(512)
    assert read.get_vocab_size() == 512 and models.tokenizer(5000).get_vocab_size() == 5000
    where = models.directory(Place(True, tmp_path), "0.5b")
    assert where == models.directory(Place(True, tmp_path), "0.5b")
    assert [one.name for one in tmp_path.iterdir()] == [where.name]
    made = models.texts(where, 3, 20, 0)
    assert len({text[:8] for text in made}) == 3 and made == models.texts(where, 3, 20, 0)
    for text in made:
        ids = read.encode(text, add_special_tokens=False).ids
        assert 18 <= len(ids) <= 22 and read.decode(ids) == text


def test_a_gpu_gives_its_record_a_name() -> None:
    assert command.slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
