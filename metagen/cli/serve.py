"""`metagen serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metagen.cli import output
from metagen.cli.options import Rehearse, Sets, Telemetry, Trust, experiments, observing
from metagen.errors import InputError, install, lacks


def serve(
    file: Annotated[Path, typer.Argument(help="An experiment, a YAML file.", autocompletion=experiments)],
    host: Annotated[
        str | None, typer.Option(help="Where to listen; others than this machine need keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = None,
    sets: Sets = None,
    rehearse: Rehearse = False,
    telemetry: Telemetry = False,
    trust: Trust = False,
) -> None:
    """Serve the strategies of a file as models of the OpenAI API."""
    from metagen.runs.declare import schema
    from metagen.runs.declare.specs.serve import ServeSpec

    source = schema.read_source(file, sets=sets or (), rehearse=rehearse)
    for name, value in (("host", host), ("port", port)):
        if value is not None:
            source.assign(f"serve.{name}={json.dumps(value)}", option=f"--{name}")
    experiment = schema.parse_experiment(source, file.parent)
    spec = experiment.serve or ServeSpec()
    try:
        from metagen.serve.models import unused
        from metagen.serve.run import serve
    except ImportError as error:
        raise InputError(f"a server needs {lacks(error)}: {install('serve')}") from None
    for text in unused(experiment):
        output.note(text)
    with schema.locate_errors(source), observing(telemetry) as observe:
        serve(experiment, spec, _began, observe)


def _began(address: str, models: list[str]) -> None:
    output.say(f"listening at {address}; {len(models)} models: {', '.join(models)}")
    output.say("to ask: POST /v1/chat/completions; Ctrl-C ends it, once what is in work is answered")
