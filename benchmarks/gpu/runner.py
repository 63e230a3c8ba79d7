"""Runs pieces one after another, each in a process of its own under a time limit, and keeps what they find."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import end
from benchmarks.gpu.record import DONE, FAILED, MISSING, OPEN, Record
from benchmarks.gpu.row import missing

ROOT = Path(__file__).parents[2]
#: Seconds that a piece must have to be begun.
LEAST = 20.0
#: Seconds between two looks at what a piece has found.
PULSE = 0.2
INSTALL_VLLM = "make .venv-vllm/installed VLLM='vllm>=0.24'"


@dataclass(frozen=True)
class Piece:
    """source: module:function, and :argument for each of its own. expected, limit: seconds, on a GPU.

    vllm: it runs by the interpreter that has vLLM.
    """

    name: str
    source: str
    expected: float
    limit: float
    vllm: bool = False


@dataclass(frozen=True)
class Settings:
    """minutes: of this call. limit: seconds of any piece, in place of its own. vllm: the interpreter that has vLLM.

    models: where the random models are kept.
    """

    minutes: float
    models: Path
    rehearsal: bool = False
    limit: float | None = None
    vllm: str | None = None
    again: bool = False


class Runner:
    def __init__(self, record: Record, settings: Settings, say: Callable[[str], None] = print) -> None:
        self._record, self._settings, self._say = record, settings, say
        self._began = time.monotonic()

    def run(self, pieces: Sequence[Piece]) -> bool:
        """Whether nothing is left to be run."""
        names = [piece.name for piece in pieces]
        for piece in pieces:
            state = self._record.piece(piece.name)
            if state["state"] == FAILED and self._settings.again:
                state.update(state=OPEN, tasks=[])
            if state["state"] in (DONE, FAILED):
                continue
            if self._seconds_left() < min(LEAST, self._limit(piece)):
                break
            self._progress(piece, pieces)
            if piece.vllm and self._settings.vllm is None:
                self._lacks_vllm(piece)
            else:
                self._run(piece)
        left = [name for name in self._record.left(names) if self._record.piece(name)["state"] == OPEN]
        if left:
            self._say(
                f"The {self._settings.minutes:g} minutes are over; {len(left)} pieces are left: {', '.join(left)}."
            )
            self._say("Run the same command again to go on.")
        return not left

    def _seconds_left(self) -> float:
        return 60 * self._settings.minutes - (time.monotonic() - self._began)

    def _limit(self, piece: Piece) -> float:
        return self._settings.limit or (120.0 if self._settings.rehearsal else piece.limit)

    def _progress(self, piece: Piece, pieces: Sequence[Piece]) -> None:
        """What comes, and how long the rest takes if it takes as much of what was expected as what is done."""
        record = self._record
        done = [one for one in pieces if record.piece(one.name)["state"] in (DONE, FAILED)]
        rest = sum(one.expected for one in pieces if record.piece(one.name)["state"] in (OPEN, MISSING))
        was, spent = sum(one.expected for one in done), sum(record.piece(one.name)["seconds"] for one in done)
        pace = spent / was if was else 0.15 if self._settings.rehearsal else 1.0
        self._say(
            f"{len(done)} of {len(pieces)} pieces done; now {piece.name}, at most {self._limit(piece):.0f} s; the rest "
            f"about {rest * pace / 60:.1f} min, {max(0.0, self._seconds_left()) / 60:.1f} min left in this call"
        )

    def _lacks_vllm(self, piece: Piece) -> None:
        state = self._record.piece(piece.name)
        self._record.forget(piece.name)
        state["state"] = MISSING
        why = f"vLLM is missing; {INSTALL_VLLM}, then run the same command again"
        self._record.add(
            piece.name, "all", missing(piece.name, why).to_dict(), command=self.command(piece), seconds=0.0
        )
        self._say(f"  {why}")

    def command(self, piece: Piece) -> str:
        return (
            f"python -m benchmarks.gpu {'--rehearse ' if self._settings.rehearsal else ''}--only {piece.name}"
        )

    # -- one piece -------------------------------------------------------------------------------

    def _run(self, piece: Piece) -> None:
        state = self._record.piece(piece.name)
        for name in ("broken", "lacks"):  # of a call that was cut off: those tasks are run again
            state.pop(name, None)
        self._record.forget(piece.name)
        began, before = time.monotonic(), state["seconds"]
        limit = self._limit(piece)
        until = began + min(limit, self._seconds_left())
        python = self._settings.vllm if piece.vllm and self._settings.vllm else sys.executable
        with tempfile.TemporaryDirectory() as folder:
            out, log = Path(folder) / "events", self._log(piece)
            out.touch()
            command = [
                python, "-m", "benchmarks.gpu.child", piece.source, "--out", str(out), "--models",
                str(self._settings.models), "--skip", json.dumps(state["tasks"]),
                *(["--rehearse"] if self._settings.rehearsal else []),
            ]  # fmt: skip
            with log.open("w") as said:
                child = subprocess.Popen(
                    command,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=self._environment(),
                )
                reader = _Events(out)
                try:
                    while child.poll() is None and time.monotonic() < until:
                        self._take(piece, reader)
                        time.sleep(PULSE)
                    over = child.poll() is None
                finally:
                    end(child)
            self._take(piece, reader)
            state["seconds"] = before + time.monotonic() - began
            if not over and child.returncode == 0:
                broken, lacks = state.pop("broken", False), state.pop("lacks", False)
                state["state"] = FAILED if broken else MISSING if lacks else DONE
            elif over and time.monotonic() - began < limit:
                state["state"] = OPEN  # the call's minutes are over, not the piece's own
                self._say(f"  cut off, as the call's minutes are over; last words: {_last(log)}")
            else:
                self._fail(piece, reader, limit if over else None, child.returncode, _last(log))
            if state["state"] == FAILED:
                self._say(f"  what it printed: {log}")
            else:
                log.unlink(missing_ok=True)
            self._record.write()

    def _log(self, piece: Piece) -> Path:
        """Where the piece prints to; it stays if the piece fails, since a cause can lie far above the last words."""
        path = self._record.path
        return path.with_name(f"{path.stem}-{piece.name}.log")

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        own = {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT),
            # Nothing may wait for a network.
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            # A process that has used CUDA cannot be forked.
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        }
        if self._settings.rehearsal:
            # On a CPU vLLM computes in the piece's own process, by one thread that is bound to no core.
            own |= {
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            }
        return {**os.environ, **own}

    def _take(self, piece: Piece, reader: _Events) -> None:
        """Keep what the piece has found since."""
        state, record, command = self._record.piece(piece.name), self._record, self.command(piece)
        for event in reader.new():
            task = event["task"]
            match event["event"]:
                case "row":
                    record.add(
                        piece.name, task, event["row"], command=command, seconds=round(event["seconds"], 2)
                    )
                    self._say(f"  {line(event['row'])}")
                case "error":
                    row = missing(f"{piece.name}, {task}", f"failed: {event['error']}").to_dict()
                    record.add(piece.name, task, row, command=command, seconds=round(event["seconds"], 2))
                    state["broken"] = True
                    self._say(f"  {line(row)}")
                case "missing":
                    row = missing(f"{piece.name}, {task}", event["error"]).to_dict()
                    record.add(piece.name, task, row, command=command, seconds=round(event["seconds"], 2))
                    state["lacks"] = True
                    self._say(f"  {line(row)}")
                case "done":
                    state["tasks"].append(task)
                    record.write()

    def _fail(self, piece: Piece, reader: _Events, limit: float | None, code: int, last: str) -> None:
        state = self._record.piece(piece.name)
        state["state"] = FAILED
        task = reader.task or "start"
        if limit is not None:
            why = f"stopped: it took longer than {limit:g} s"
        else:
            why = f"its process ended with {_code(code)}"
        row = missing(f"{piece.name}, {task}", f"{why}; last words: {last}").to_dict()
        self._record.add(
            piece.name, task, row, command=self.command(piece), seconds=round(state["seconds"], 2)
        )
        self._say(f"  {line(row)}")


def _last(log: Path) -> str:
    """The last words of a piece, in one line."""
    lines = log.read_text(errors="replace").splitlines()[-6:]
    return " | ".join(text.strip() for text in lines if text.strip())[-600:] or "none"


def _code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"


class _Events:
    """Whole lines of a file that another process appends to. task: the last that began."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self.task: str | None = None

    def new(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        events = [json.loads(one) for one in whole.splitlines()]
        if events:
            self.task = events[-1]["task"]
        return events


def line(row: dict[str, Any]) -> str:
    """A row in one line."""
    if row["value"] is None:
        return f"{row['name']}: {row['note']}"
    spread = "" if row["low"] is None else f" ({row['low']:.3g} to {row['high']:.3g})"
    verdict = {True: ", holds", False: ", MISSED", None: ""}[row["holds"]]
    goal = f"; goal {row['goal']}{verdict}" if row["goal"] else ""
    return f"{row['name']}: {row['value']:.4g} {row['unit']}{spread}{goal}"


def shown(args: Sequence[str]) -> str:
    """The command that was given, as one would type it."""
    return shlex.join(["python", "-m", "benchmarks.gpu", *args])
