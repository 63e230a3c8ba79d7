"""Servers of this package: a socket that is taken is an error with its remedy, and signals end them in order."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn

from metagen.errors import InputError


def bind(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """A socket at an address; it listens already if a backlog is given. InputError for a port that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        if backlog is not None:
            made.listen(backlog)
    except (OSError, OverflowError, UnicodeError) as error:
        made.close()
        raise InputError(
            f"{host}:{port} cannot be listened at ({error}); give another --port, or 0 for a free one"
        ) from None
    return made


def run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP ends it: it finishes its requests, and returns."""
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
