"""How many threads multiply for a model whose user says nothing: a rule, unless somebody has measured it here.

Threads change no more than rounding, so a number that was measured (`speed.py`) may be remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path

import torch

from metagen.cost import ModelShape
from metagen.generators.models.sources import cache_directory
from metagen.generators.torch.numbers import is_large
from metagen.logs import logger

_LOG = logger(__name__)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(shape: ModelShape | None, fingerprint: str) -> int:
    """Those that were the best in a measurement here; else torch's own choice for large models, and one for others.

    OMP_NUM_THREADS, where it is set, is the user's word, and comes before a measurement.
    """
    if "OMP_NUM_THREADS" not in os.environ and (known := recall(fingerprint)) is not None:
        return known
    return torch.get_num_threads() if is_large(shape) else 1


def take(threads: int) -> None:
    """Set how many threads multiply for the thread that calls this.

    When a thread first asks torch for its number, torch replaces it by the newest that any thread has set: ask first.
    """
    torch.get_num_threads()
    torch.set_num_threads(threads)


def remember(fingerprint: str, threads: int) -> bool:
    """Keep what was measured for a model in its number format, by its fingerprint; False where that fails, with a
    warning.
    """
    file = _file(fingerprint)
    unfinished = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps({"threads": threads}) + "\n", "utf-8")
        unfinished.replace(file)
    except OSError as error:
        remedy = "set METAGEN_CACHE to a directory of your own"
        told = {"file": str(file), "error": str(error), "remedy": remedy}
        _LOG.warning("a measurement cannot be kept", extra=told)
        return False
    return True


def recall(fingerprint: str) -> int | None:
    """What was remembered on this machine, if it can still be had; None if nothing was."""
    file = _file(fingerprint)
    try:
        threads = json.loads(file.read_text("utf-8"))["threads"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("a measurement cannot be read", extra={"file": str(file), "error": str(error)})
        return None
    return threads if isinstance(threads, int) and 1 <= threads <= cores() else None


def _file(fingerprint: str) -> Path:
    """A machine is its processor, the cores that may be used and the build of torch."""
    machine = (platform.machine(), torch.backends.cpu.get_cpu_capability(), cores(), torch.__version__)
    key = hashlib.sha256(repr((machine, fingerprint)).encode()).hexdigest()
    return cache_directory() / "threads" / f"{key[:32]}.json"
