"""A server from a file: engines open, uvicorn listens, and on SIGTERM what is in work is finished."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI

from metagen.listening import bind, run
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve.app import make_app
from metagen.serve.connection import Connection
from metagen.serve.gate import Keys, check_host
from metagen.serve.models import open_models
from metagen.strategies.base import Observe

#: Seconds that requests in work have, once the server is told to end.
DRAIN = 60


def config_of(app: FastAPI, **options: Any) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app, http=Connection, ws="none", log_level="warning", access_log=False, server_header=False,
        timeout_keep_alive=30, timeout_graceful_shutdown=DRAIN, **options,
    )  # fmt: skip


class _Uvicorn(uvicorn.Server):
    """Says when it listens, and takes no new work once it is told to end."""

    def __init__(self, app: FastAPI, began: Callable[[str], None]) -> None:
        super().__init__(config_of(app))
        self._app, self._tell = app, began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._tell(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.server.draining = True
        await super().shutdown(sockets)


def serve(
    experiment: Experiment,
    spec: ServeSpec,
    began: Callable[[str, list[str]], None],
    observe: Observe | None = None,
) -> None:
    """Serve until a signal ends it. began: is told the address and the models, once it listens. observe: see Service.

    Raises ConfigError for hosts that need keys, and InputError for a port that is taken.
    """
    check_host(spec)
    keys = Keys(spec.keys)
    with bind(spec.host, spec.port) as listening, open_models(experiment) as models:
        app = make_app(models, spec, keys=keys, observe=observe)
        server = _Uvicorn(app, lambda address: began(address, models.names))
        run(server, listening)
