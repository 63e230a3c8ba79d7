"""A server from a file: engines open, uvicorn listens, and on SIGTERM what is in work is finished."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from metagen.listening import bind, run
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve.app import make_app
from metagen.serve.gate import Keys, check_host
from metagen.serve.models import open_models
from metagen.strategies.base import Observe

#: Seconds that requests in work have, once the server is told to end.
DRAIN = 60


class _Uvicorn(uvicorn.Server):
    """Says when it listens, and takes no new work once it is told to end."""

    def __init__(
        self, config: uvicorn.Config, began: Callable[[str], None], ends: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._tell, self._ends = began, ends

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._tell(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ends()
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
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN, server_header=False,
            timeout_keep_alive=30,
        )  # fmt: skip

        def ends() -> None:
            app.state.server.draining = True

        server = _Uvicorn(config, lambda address: began(address, models.names), ends)
        run(server, listening)
