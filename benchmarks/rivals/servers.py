"""Two servers of vLLM: one that writes, one that judges. On a CPU they are started here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from metagen.generators.models import sources

WRITER, JUDGE = "tiny-0.5m", "tiny-prm"
#: The embedded models read plain text: the turns of a chat follow one another.
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
#: Seconds until a server must be up.
PATIENCE = 600.0


@contextmanager
def served(writer: str | None, judge: str | None) -> Iterator[tuple[str, str]]:
    """The addresses of both servers; those that are not given are started, and end with the block."""
    with ExitStack() as stack:
        given = {WRITER: writer, JUDGE: judge}
        found = {name: url or stack.enter_context(started(name)) for name, url in given.items()}
        yield found[WRITER], found[JUDGE]


@contextmanager
def started(model: str, template: str = TEMPLATE) -> Iterator[str]:
    """The address of a server of one model, which ends with the block. template: of its chats."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        os.environ.get("VLLM_PYTHON", sys.executable), "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(sources.resolve(model)),
        "--served-model-name", model, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--enforce-eager", "--max-num-seqs", "256", "--max-model-len", "1024", "--block-size", "32",
        "--max-num-batched-tokens", "16384", "--kv-cache-memory-bytes", str(1 << 29), "--max-logprobs", "-1",
        "--chat-template", template, "--disable-log-stats", "--disable-uvicorn-access-log",
    ]  # fmt: skip
    # vLLM's processes would be bound to the same cores.
    environment = os.environ | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    log = Path(f"rivals-{model}.log")
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _await(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text(errors='replace')[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(1.0)
    raise RuntimeError(f"no server after {PATIENCE:g} seconds: {log.read_text(errors='replace')[-3000:]}")
