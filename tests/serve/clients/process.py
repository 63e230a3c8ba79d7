"""A server in a process of its own, and the environment in which other clients ask it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
MODULES = Path(sys.prefix) / "node_modules"


def missing(client: str) -> str | None:
    """The package that a client needs and that is not installed; None if nothing is missing."""
    package = client.partition(",")[0]
    if package == "openai for node":
        found = shutil.which("node") and (MODULES / "openai").exists()
    else:
        found = importlib.util.find_spec(package)
    return None if found else f"{package} is not installed here; run: make clients"


def environment() -> dict[str, str]:
    """Without keys and addresses of providers, and without the network."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    quiet |= {"OPENAI_API_KEY": "none", "NODE_PATH": str(MODULES), "OMP_NUM_THREADS": "1"}
    return kept | quiet | {"PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])}


@contextmanager
def serve(folder: Path, file: dict[str, Any]) -> Iterator[str]:
    """Its address, for as long as the block lasts. It must end by itself when it is told to."""
    path = folder / "served.yaml"
    path.write_text(yaml.safe_dump(file), "utf-8")
    command = [sys.executable, "-m", "metagen.cli", "serve", str(path), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment()
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"http://\S+?/v1", line):
                break
        else:
            raise AssertionError("".join(lines))
        # Later lines must not fill the pipe.
        threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True).start()
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "".join(lines)
