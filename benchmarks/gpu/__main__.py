"""`make gpu`: run the pieces that are left, keep what they find in benchmarks/results/gpu-NAME.json, print a table."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.gpu import table
from benchmarks.gpu.engines import REAL
from benchmarks.gpu.record import FAILED, Record
from benchmarks.gpu.runner import ROOT, Piece, Runner, Settings, shown
from metagen.generators.models.sources import cache_directory

HERE = "benchmarks.gpu.pieces"
#: In the order of worth. Seconds of vLLM: an engine takes 30 to 60 to start.
PIECES = (
    Piece("weights", f"{HERE}.weights:tasks", 90, 240),
    Piece("laws", f"{HERE}.laws:tasks", 80, 180),
    Piece("greedy", f"{HERE}.greedy:tasks", 60, 150),
    Piece("steps", f"{HERE}.steps:tasks", 40, 120),
    Piece("speed-0.5b", f"{HERE}.speed:tasks:0.5b", 80, 180),
    Piece("speed-2b", f"{HERE}.speed:tasks:2b", 100, 240),
    Piece(f"speed-{REAL}", f"{HERE}.speed:tasks:{REAL}", 70, 180),
    Piece("prefix", f"{HERE}.prefix:tasks", 60, 180),
    Piece("quantised", f"{HERE}.quantised:tasks", 70, 180),
    Piece("speculation", f"{HERE}.speculation:tasks", 110, 240),
    Piece("replicas", f"{HERE}.replicas:tasks", 60, 180),
    Piece("vllm-0.5b", f"{HERE}.vllm_speed:tasks:0.5b", 240, 480, vllm=True),
    Piece("vllm-2b", f"{HERE}.vllm_speed:tasks:2b", 260, 480, vllm=True),
    Piece(f"vllm-{REAL}", f"{HERE}.vllm_speed:tasks:{REAL}", 200, 480, vllm=True),
    Piece("vllm-rebase", f"{HERE}.vllm_rebase:tasks", 150, 300, vllm=True),
    Piece("vllm-fp8", f"{HERE}.vllm_kv:tasks", 180, 300, vllm=True),
    Piece("vllm-eagle", f"{HERE}.vllm_eagle:tasks", 200, 360, vllm=True),
)


def main(args: list[str]) -> int:
    options = _options(args)
    chosen = [piece for piece in PIECES if options.only is None or piece.name in options.only]
    if not options.rehearse and not torch.cuda.is_available():
        print(
            "torch sees no GPU here; install a build of torch with CUDA, or rehearse on the CPU: "
            "python -m benchmarks.gpu --rehearse",
            file=sys.stderr,
        )
        return 2
    machine = describe(options.rehearse)
    name = "rehearsal" if options.rehearse else slug(machine["gpu"])
    path = options.out / f"gpu-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended with this process
    settings = Settings(
        options.minutes,
        options.models,
        options.rehearse,
        options.limit,
        options.vllm or find_vllm(),
        options.again,
    )
    # Not beside the record, where it would stay behind.
    own = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    lock = FileLock(options.models.parent / f"{path.stem}-{own}.lock")
    options.models.mkdir(parents=True, exist_ok=True)
    try:
        with lock.acquire(timeout=0):
            record = Record(path) if options.anew else Record.read(path)
            record.go_on(machine)
            record.machine["command"] = shown(args)
            whole = Runner(record, settings).run(chosen)
    except Timeout:
        print(f"{path} is being written by another run; wait for it, or give --out", file=sys.stderr)
        return 2
    console = Console()
    if options.rehearse:
        print("A rehearsal, on the CPU with tiny models: its figures mean nothing.")
    table.show(record, console)
    if options.markdown is not None:
        options.markdown.write_text(table.markdown(record))
    failed = [piece.name for piece in chosen if record.piece(piece.name)["state"] == FAILED]
    if failed:
        print(f"Failed: {', '.join(failed)}; --again runs them once more.")
    print(f"{'All is' if whole else 'What is done is'} in {path}.")
    return 1 if failed else 0


def _options(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--rehearse", action="store_true", help="run the same code on the CPU with tiny models"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="PIECE", choices=[p.name for p in PIECES], help="the pieces, by name"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="after which this call ends; the next goes on"
    )
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="of every piece, in place of its own")
    parser.add_argument("--again", action="store_true", help="run pieces once more that have failed")
    parser.add_argument("--anew", action="store_true", help="forget what is kept")
    parser.add_argument(
        "--out", type=Path, metavar="DIRECTORY", help="of the record; benchmarks/results by default"
    )
    parser.add_argument("--models", type=Path, metavar="DIRECTORY", help="of the random models, 24 GB")
    parser.add_argument(
        "--vllm", metavar="PYTHON", help="the interpreter that has vLLM; .venv-vllm's by default"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, for a page")
    options = parser.parse_args(args)
    if options.out is None:
        options.out = ROOT / ("runs/gpu" if options.rehearse else "benchmarks/results")
    if options.models is None:
        options.models = cache_directory() / "gpu" / "models"
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes:g}: expected more than 0")
    return options


def slug(name: str) -> str:
    """A GPU's name, for a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def describe(rehearsal: bool) -> dict[str, Any]:
    """What things are measured on."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if rehearsal:
        return found | {"cpu": platform.processor() or platform.machine(), "rehearsal": True}
    device = torch.cuda.get_device_properties(0)
    return found | {
        "gpu": device.name, "memory": f"{device.total_memory / 1e9:.0f} GB", "cuda": torch.version.cuda,
        "driver": _driver(), "cores": os.cpu_count(),
    }  # fmt: skip


def _driver() -> str | None:
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.split(
            "\n"
        )[0]
    except (OSError, subprocess.SubprocessError):
        return None


def find_vllm() -> str | None:
    """The interpreter that has vLLM: that of .venv-vllm, or this one; None if neither has it."""
    own = ROOT / ".venv-vllm" / "bin" / "python"
    if own.exists():
        return str(own)
    return sys.executable if importlib.util.find_spec("vllm") is not None else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
