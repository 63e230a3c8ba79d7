"""A server from a file: engines open, uvicorn listens, and on SIGTERM what is in work is finished."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from metagen.errors import InputError
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
    listening = _bind(spec)
    with listening, open_models(experiment) as models:
        app = make_app(models, spec, keys=keys, observe=observe)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN, server_header=False,
            timeout_keep_alive=30,
        )  # fmt: skip

        def ends() -> None:
            app.state.server.draining = True

        server = _Uvicorn(config, lambda address: began(address, models.names), ends)
        # It heeds the first signal itself, and raises it again when all is answered: that is its proper end.
        with suppress(KeyboardInterrupt), _lost_connection(server):
            server.run(sockets=[listening])


@contextmanager
def _lost_connection(server: uvicorn.Server) -> Iterator[None]:
    """A terminal that closes (SIGHUP) ends the server as SIGTERM does, unless that signal is ignored."""
    number = getattr(signal, "SIGHUP", None)
    main = threading.current_thread() is threading.main_thread()
    if number is None or not main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, server.handle_exit)
    try:
        yield
    finally:
        signal.signal(number, before)


def _bind(spec: ServeSpec) -> socket.socket:
    family = socket.AF_INET6 if ":" in spec.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((spec.host, spec.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(
            f"serve: {spec.host}:{spec.port} cannot be listened at ({error}); give another --port, or 0 for a free one"
        ) from None
    return listening
