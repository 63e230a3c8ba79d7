"""llama.cpp's own server over a GGUF file, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx, params.n_parallel = sys.argv[1], 0, 4096, 4
params.cpuparams.n_threads, params.hostnames = 1, ["127.0.0.1"]
server = xllamacpp.Server(params)
print("at", server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def serves(file: Path) -> Iterator[str]:
    """The address of its API. Skips, with the reason, where there is no build of it."""
    pytest.importorskip(
        "xllamacpp", reason="xllamacpp, which has llama.cpp's server, does not run here", exc_type=ImportError
    )
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(file)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = next((line for line in process.stdout if line.startswith("at ")), None)
        assert said, "llama.cpp's server did not start"
        try:
            yield said.split()[1] + "/v1"
        finally:
            process.kill()
