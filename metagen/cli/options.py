"""Arguments and options that several commands have, and what a shell completes them to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metagen import trust
from metagen.errors import InputError, install, lacks

if TYPE_CHECKING:
    from metagen.strategies.base import Observe


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


class Tracker(StrEnum):
    """Where runs can be tracked."""

    mlflow = "mlflow"
    wandb = "wandb"


@contextmanager
def observing(telemetry: bool) -> Iterator[Observe | None]:
    """What opens the spans of each solve, where they are wanted."""
    if not telemetry:
        yield None
        return
    try:
        from metagen.integrations.telemetry import exporting
    except ImportError as error:
        raise InputError(f"--telemetry needs {lacks(error)}: {install('telemetry')}") from None
    with exporting() as observe:
        yield observe


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.", autocompletion=_runs)]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")]
Out = Annotated[Path | None, typer.Option(help="The run's directory; by default a new one in runs/.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one value of the file, such as generators.small.temperature=0.7 or grid.n=[1,4]; "
        "may be repeated.",
    ),
]
OnHardware = Annotated[
    str | None,
    typer.Option("--hardware", help="With --dry-run: the least time on such hardware (h200, …)."),
]
Probe = Annotated[
    int | None,
    typer.Option("--probe", min=1, help="With --dry-run: run so many problems to measure by."),
]
ProbeMinutes = Annotated[
    float | None,
    typer.Option(
        "--probe-minutes",
        min=0.0,
        help="With --probe: begin no more than fits into so many minutes; 10 by default.",
    ),
]
Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse", help="The file's small variant: with what its section rehearsal says otherwise."
    ),
]
Telemetry = Annotated[
    bool,
    typer.Option(
        "--telemetry",
        envvar="METAGEN_TELEMETRY",
        help="Send OpenTelemetry spans of every solve, as OTEL_EXPORTER_OTLP_ENDPOINT and its like say.",
    ),
]
Track = Annotated[
    list[Tracker] | None,
    typer.Option("--track", help="Track it in MLflow or Weights & Biases; may be repeated."),
]
Texts = Annotated[
    bool,
    typer.Option(
        "--track-texts", help="Send trackers the report and the tables with questions and candidates, too."
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Import code that a file names, wherever it is from.", callback=trust.everything
    ),
]
