"""A server in a thread of this process, over the embedded models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import uvicorn
import yaml
from fastapi import FastAPI

from metagen.runs.declare import schema
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve.app import Server, make_app
from metagen.serve.models import Models, open_models
from metagen.serve.run import config_of
from metagen.strategies.base import Observe, Strategy

FILE: dict[str, Any] = {
    "name": "served",
    "task": {"kind": "arithmetic", "split": "validation", "seed": 41, "levels": [2, 3], "per_level": 8},
    "engines": {
        "small": {"kind": "torch", "model": "tiny-0.5m"},
        "judge": {"kind": "torch", "model": "tiny-prm"},
    },
    "generators": {"small": {"engine": "small", "max_tokens": 120}},
    "verifiers": {"prm": {"kind": "prm", "engine": "judge"}, "truth": {"kind": "oracle"}},
    "strategies": {
        "one": {"kind": "sample"},
        "greedy": {"kind": "greedy"},
        "majority": {"kind": "majority"},
        "weighted": {"kind": "weighted", "verifier": "prm"},
        "rebase": {"kind": "rebase", "verifier": "prm"},
        "coverage": {"kind": "best_of_n", "verifier": "truth"},
    },
    "grid": {"n": [4, 16]},
    "serve": {"port": 0, "aliases": {"fast": "small/greedy", "vote": "small/majority@16"}},
}
QUESTION = "Q:a=12+7;b=a*3;c=b-8;c?\nS:\n"


class Running:
    """A server that listens. url: with /v1. host: without. client: OpenAI's, which asks it."""

    def __init__(self, url: str, server: Server) -> None:
        self.host, self.url, self.server = url, f"{url}/v1", server
        self.client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0)


@contextmanager
def serving(
    folder: Path, file: dict[str, Any] | None = None, *, observe: Observe | None = None, **spec: Any
) -> Iterator[Running]:
    """The file's strategies, served until the block ends. spec: of its section `serve`. observe: of the service."""
    data = {**(FILE if file is None else file)}
    data["serve"] = {**data.get("serve", {}), **spec}
    path = folder / "served.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    experiment = schema.load(path)
    assert isinstance(experiment.serve, ServeSpec)
    with open_models(experiment) as models:
        app = make_app(models, experiment.serve, observe=observe)
        with _listening(app) as running:
            yield running


@contextmanager
def serving_made(strategies: Mapping[str, Strategy], **spec: Any) -> Iterator[Running]:
    """Strategies of this process, served until the block ends."""
    with _listening(make_app(Models(strategies), ServeSpec(**spec))) as running:
        yield running


@contextmanager
def _listening(app: FastAPI) -> Iterator[Running]:
    server = uvicorn.Server(config_of(app, host="127.0.0.1", port=0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", app.state.server)
    finally:
        server.should_exit = True
        thread.join(30)
