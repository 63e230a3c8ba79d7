"""The command that shows runs in a browser."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from metagen.cli import output
from metagen.cli.options import Trust
from metagen.errors import InputError, install, lacks

HOST = "127.0.0.1"
#: Requests that wait while the app starts: the browser opens at once.
BACKLOG = 128


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, studies, or directories of them; or names in runs/.", show_default="runs"),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0: one that is free.")
    ] = 8765,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    trust: Trust = False,
) -> None:
    """Look at runs in a browser, also while they run: curves, problems, search trees, calls."""
    try:
        import uvicorn

        from metagen.listening import bind, run
        from metagen.view import app
    except ImportError as error:
        raise InputError(f"the viewer needs {lacks(error)}: {install('view')}") from None
    from metagen.runs.directory import RUNS
    from metagen.view.desk import Desk
    from metagen.view.shelf import Shelf

    desk = Desk(Shelf(tuple(runs or [RUNS])))
    with bind(HOST, port, BACKLOG) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}/"
        output.say(f"viewer at {address}; end it with Ctrl-C")
        config = uvicorn.Config(
            app.make(desk), log_level="warning", access_log=False, timeout_graceful_shutdown=2
        )
        if not no_open:
            # Once the server answers: the listening socket keeps the browser's request until then.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        run(uvicorn.Server(config), listening)
