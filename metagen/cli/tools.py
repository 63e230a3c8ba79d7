"""Commands for what is around runs: a first experiment, this machine, the models and what they say next."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from metagen.cli import output
from metagen.cli.options import Json, Trust
from metagen.errors import InputError


class Kind(StrEnum):
    """Tasks that `new` writes experiments for."""

    arithmetic = "arithmetic"
    jsonl = "jsonl"


def new(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("experiment.yaml"),
    task: Annotated[
        Kind, typer.Option(help="What is asked: the embedded task, or problems from a file.")
    ] = Kind.arithmetic,
    data: Annotated[
        Path | None, typer.Option(help="For jsonl: the problems; by default a few examples.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model directory, or an embedded model.")] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Write down this strategy, a kind or package.module:Class, with all its fields; may be repeated.",
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write an experiment file with a comment on everything in it."""
    from metagen.runs.declare import new as templates

    written = templates.write(
        file, task.value, model=model or templates.MODEL, data=data, strategies=strategy or ()
    )
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"next: metagen run {file} --dry-run")


def schema(
    out: Annotated[
        Path | None, typer.Option(help="Write it into this file; by default it is printed.")
    ] = None,
) -> None:
    """Give the JSON schema of experiment files, by which editors complete and check them."""
    import json

    from metagen.runs.declare.editor import json_schema

    text = json.dumps(json_schema(), indent=1, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {str(out)!r} cannot be written: {error}; give another path") from error
    typer.echo(f"wrote {out}; an editor with a YAML language server reads it from the first line of a file:")
    typer.echo(f"# yaml-language-server: $schema={out}")


def doctor(
    attempt: Annotated[bool, typer.Option("--try", help="Run a model as well, which takes seconds.")] = False,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="A server to look at, such as http://localhost:8000/v1; may be repeated."
        ),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Measure a model by number format and threads, which takes a minute, and remember the best threads.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is installed, what is missing and how to get it, and what this machine can do."""
    if speed is not None:
        if attempt or server:
            raise InputError(
                "--speed measures a model and looks at nothing else; leave out --try and --server, or leave it out"
            )
        from metagen.cli import speed as timings
        from metagen.generators.torch.speed import ROWS, measure

        measured = measure(speed, lambda what: output.say(f"measuring {what}"))
        output.show(timings.render(measured, ROWS), measured.to_dict(), as_json)
        return
    from metagen.cli import doctor as examiner

    found = examiner.examine(attempt=attempt, servers=server or ())
    output.show(examiner.render(found), found.to_dict(), as_json)
    if not found.ready:
        raise typer.Exit(1)


def explain(
    prompt: Annotated[str, typer.Argument(help="What the model reads; \\n is a new line.")],
    model: Annotated[
        str, typer.Option(help="A model directory, an embedded model, or a recipe in YAML.")
    ] = "tiny-2m",
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A sampling adapter, such as top_p=0.9; may be repeated."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="The adapters of a preset (code, chat, …).")] = None,
    completion: Annotated[
        str, typer.Option(help="What the model has written so far; \\n is a new line.")
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="Tokens that are shown.")] = 12,
    out: Annotated[Path | None, typer.Option(help="Write the picture: a page (.html), .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Show the next-token distribution of a model, before and after each sampling adapter."""
    from metagen.runs.page import adapters as views

    if out is not None:
        views.check_file(out)
    params = views.params_of(adapter or (), preset)
    prompt, completion = (text.replace("\\n", "\n") for text in (prompt, completion))
    for caution in views.cautions(model, prompt, completion):
        output.say(f"warning: {caution}")
    found = views.explain(model, prompt, completion, params)
    output.show(views.render(found, most=top), views.data(found, most=top), as_json)
    if out is not None:
        views.write(found, out, most=top, title=f"{model} behind {'…' + (prompt + completion)[-40:]!r}")
        output.say(f"wrote {out}")
