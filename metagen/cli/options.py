"""Arguments and options that several commands have, and what a shell completes them to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metagen import trust


def _runs(incomplete: str) -> list[str]:
    """Names of runs, for completion; without a match the shell completes files."""
    files = [path for name in ("experiment", "study") for path in Path("runs").glob(f"*/{name}.yaml")]
    return sorted(path.parent.name for path in files if path.parent.name.startswith(incomplete))


def experiments(incomplete: str) -> list[str]:
    """Experiment files, for completion: those in the directory typed so far, and the shipped examples."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    found = [folder + path.name for path in Path(folder or ".").glob("*.yaml")]
    found += [str(path) for path in Path("examples").glob("*.yaml")] if not folder else []
    return sorted(name for name in found if name.startswith(incomplete))


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.", autocompletion=_runs)]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one value, as in run.", show_default=False),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Import code that a file names, wherever it is from.", callback=trust.everything
    ),
]
