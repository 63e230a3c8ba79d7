"""The command line. It formats and nothing else; what takes time to import is imported by the command that needs it.

Exit codes: 0 all is well; 1 a fault of ours or of the machine; 2 something that the user can mend;
128 and the number of a signal (130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP) interrupted, and ready to be resumed.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metagen import __version__, trust
from metagen.border import traceback_of
from metagen.cli import models, output, results, runs, serve, tools, view
from metagen.cli.signals import exit_code, heed
from metagen.errors import InputError, MetagenError

REPORT_IT = (
    "This is a fault of metagen, not yours; nothing that was recorded is lost. "
    "Please report it with the lines above, the command, and `metagen --version`."
)


class _Policy(TyperGroup):
    """What becomes of errors, for all commands."""

    def invoke(self, ctx: Any) -> Any:
        come: list[int] = []
        try:
            with trust.guard(Path.cwd()), heed() as come:
                return super().invoke(ctx)
        except MetagenError as error:
            typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
            output.say(str(error))
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
    """The commands by what they are for, each with the whole of its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        named = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in named)
        for title, names in ({**GROUPS, "Others": others} if others else GROUPS).items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            rows = [
                (name, _sentence(command.help or "")) for name, command in commands if command is not None
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


def _sentence(text: str) -> str:
    """The first sentence of a help text, without its full stop."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


#: Commands by what they are for, in the order of the help.
GROUPS = {
    "Run": ("run", "study", "resume", "grade", "serve"),
    "Read results": ("report", "show", "compare", "recommend", "quality", "ls", "view", "track"),
    "Write files": ("new", "schema"),
    "Look around": ("doctor", "models", "explain"),
}

app = typer.Typer(
    cls=_Grouped,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes longer to import than the rest of the command line
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Inference-time scaling: which model, which strategy, how many samples give the most for the compute.",
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


# In the order of the help.
app.command()(runs.run)
app.command()(runs.study)
app.command()(runs.resume)
app.command()(runs.report)
app.command()(runs.track)
app.command()(runs.grade)
app.command()(results.compare)
app.command()(results.recommend)
app.command()(results.quality)
app.command()(results.show)
app.command("ls")(results.list_runs)
app.command()(view.view)
app.command()(serve.serve)
app.command()(tools.new)
app.command()(tools.schema)
app.command()(tools.doctor)
app.command()(tools.explain)
app.add_typer(models.app, name="models")
