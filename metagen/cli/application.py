"""The commands as typer knows them, and what becomes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from metagen import __version__, trust
from metagen.border import traceback_of
from metagen.cli import face, models, output, results, runs, serve, tools, view
from metagen.cli.help import Command, Group
from metagen.cli.signals import exit_code, heed
from metagen.errors import InputError, MetagenError

REPORT_IT = (
    "This is a fault of metagen, not yours; nothing that was recorded is lost. "
    "Please report it with the lines above, the command, and `metagen --version`."
)


class _Policy(Group):
    """What becomes of errors, for all commands."""

    def invoke(self, ctx: Any) -> Any:
        come: list[int] = []
        try:
            with trust.guard(Path.cwd()), heed() as come:
                return super().invoke(ctx)
        except MetagenError as error:
            output.fail(str(error))
            if raised := traceback_of(error):
                output.say(raised)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(exit_code(interrupt)) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if come:  # a library made it of the interrupt, in the middle of an import, say
                raise typer.Exit(128 + come[0]) from None
            error.add_note(REPORT_IT)
            raise


class _Grouped(_Policy):
    """The whole command, whose page is that of `face`."""

    def get_help(self, ctx: Any) -> str:
        return face.page(sys.stdout)


app = typer.Typer(
    cls=_Grouped,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes longer to import than the rest of the command line
    context_settings={"help_option_names": list(face.HELP)},
    help=face.ABOUT,
)


class Level(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Format(StrEnum):
    """How a log is written."""

    text = "text"
    json = "json"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metagen {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
    log_level: Annotated[
        Level | None, typer.Option(envvar="METAGEN_LOG", case_sensitive=False, help="Write a log.")
    ] = None,
    log_format: Annotated[
        Format | None,
        typer.Option(
            envvar="METAGEN_LOG_FORMAT", case_sensitive=False, help="One JSON object a line, or text."
        ),
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option(envvar="METAGEN_LOG_FILE", help="Append the log here, not to stderr.")
    ] = None,
) -> None:
    if log_level or log_format or log_file:
        from metagen import logs

        level, format = log_level or Level.info, log_format or Format.text
        logs.configure(level.value, format.value, log_file)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "compare": results.compare,
    "doctor": tools.doctor,
    "explain": tools.explain,
    "grade": runs.grade,
    "ls": results.list_runs,
    "new": tools.new,
    "quality": results.quality,
    "recommend": results.recommend,
    "report": runs.report,
    "resume": runs.resume,
    "run": runs.run,
    "schema": tools.schema,
    "serve": serve.serve,
    "show": results.show,
    "study": runs.study,
    "track": runs.track,
    "view": view.view,
}
for _name, _function in FUNCTIONS.items():
    app.command(_name, cls=Command)(_function)
app.add_typer(models.app, name="models")
