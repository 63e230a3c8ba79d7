"""The command line. It formats and nothing else; what takes time to import is imported by the command that needs it.

Exit codes: 0 all is well; 1 a fault of ours or of the machine; 2 something that the user can mend;
128 and the number of a signal (130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP) interrupted, and ready to be resumed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metagen.cli.application import app as app


def main() -> None:
    """The command `metagen`. Its help and files that do not exist are answered without importing typer."""
    from metagen.cli import face

    code = face.answer(sys.argv[1:])
    if code is not None:
        sys.exit(code)

    from metagen.cli.application import app

    app()


def __getattr__(name: str) -> object:
    """`app`, the commands as typer knows them, which takes time to import."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from metagen.cli.application import app

    return app
