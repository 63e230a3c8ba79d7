"""The command line. It formats and nothing else; what takes time to import is imported by the command that needs it.

Exit codes: 0 all is well; 1 a fault of ours or of the machine; 2 something that the user can mend;
130 interrupted, and ready to be resumed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from metagen import __version__
from metagen.errors import InputError, MetagenError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from metagen.experiments.directory import RunDirectory
    from metagen.experiments.progress import Meter
    from metagen.experiments.specs import Experiment

INTERRUPTED = 130
WIDTH = 110
#: Seconds between lines of progress where there is no terminal.
PAUSE = 10.0
REPORT_IT = (
    "This is a fault of metagen, not yours; nothing that was recorded is lost. "
    "Please report it with the lines above, the command, and `metagen --version`."
)


class _Policy(TyperGroup):
    """What becomes of errors, for all commands."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MetagenError as error:
            typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
            typer.echo(str(error), err=True)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            error.add_note(REPORT_IT)
            raise


app = typer.Typer(
    cls=_Policy,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes longer to import than the rest of the command line
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Inference-time scaling: which model, which strategy, how many samples give the most for the compute.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metagen {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
) -> None: ...


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The experiment, a YAML file.", show_default=False)],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many problems.", show_default=False)
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override one value, such as grid.n=[1,4].", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's directory; by default a new one in runs/.", show_default=False),
    ] = None,
) -> None:
    """Run an experiment and report it."""
    from metagen.experiments import schema

    _run(schema.load(file, sets=sets or (), limit=limit), out)


@app.command()
def resume(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.")],
) -> None:
    """Go on with a run; what is recorded is not paid for again."""
    from metagen.experiments import schema
    from metagen.experiments.directory import RunDirectory

    found = RunDirectory.find(directory)
    _run(schema.load(found.experiment), found.root)


@app.command()
def report(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.")],
) -> None:
    """Show a run's results; make its tables and figures anew."""
    from metagen.experiments.directory import RunDirectory

    _report(RunDirectory.find(directory))


@app.command()
def show(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.")],
    problem: Annotated[str, typer.Argument(help="The id of a problem.")],
    generator: Annotated[str | None, typer.Option(help="Only this generator.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All candidates, not the first few.")] = False,
) -> None:
    """Look at one problem: candidates, steps, scores, the vote."""
    from metagen.experiments import show as view
    from metagen.experiments.directory import RunDirectory

    _print(view.show(RunDirectory.find(directory), problem, generator=generator, everything=everything))


@app.command()
def models() -> None:
    """List the models that ship in the package."""
    from metagen.cost import ModelShape
    from metagen.generators import tiny

    for name in tiny.names():
        card = tiny.resolve(name)
        shape = ModelShape.from_config(card)
        size = sum(file.stat().st_size for file in card.iterdir()) / 1e6
        typer.echo(f"{name:<14} {shape.parameters_total / 1e6:5.2f}M parameters  {size:5.1f} MB  {card}")


def _run(experiment: Experiment, out: Path | None) -> None:
    """Run in `out`, or in a new directory; report; exit with a code if problems failed."""
    from metagen.experiments import build, runner
    from metagen.experiments.directory import RunDirectory
    from metagen.experiments.progress import Meter

    meter, directory = Meter(), None
    try:
        with build.opened(experiment) as setup:
            directory = RunDirectory.at(out) if out else RunDirectory.new(experiment.name)
            with _watched(meter, experiment.name):
                state = runner.run(setup, directory, meter)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {directory.resume_hint}" if directory else "interrupted", err=True)
        raise
    _report(directory)
    if state.failures:
        raise typer.Exit(2 if all(failure.mendable for failure in state.failures) else 1)


def _report(directory: RunDirectory) -> None:
    from metagen.experiments import report as pages

    _print(pages.publish(directory))


def _print(page: RenderableType) -> None:
    from rich.console import Console

    # Into a file or a pipe: wide enough for the tables.
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH).print(page)


# ------------------------------------------------------------------------------------------------ progress


@contextlib.contextmanager
def _watched(meter: Meter, name: str) -> Iterator[None]:
    """Progress on stderr while the block runs: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with Live(
            get_renderable=lambda: _bar(meter, name), console=console, refresh_per_second=4, transient=True
        ):
            yield
        return
    done = threading.Event()

    def lines() -> None:
        while not done.wait(PAUSE):
            typer.echo(f"{name}: {_counts(meter)}", err=True)

    thread = threading.Thread(target=lines, name="metagen-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bar(meter: Meter, name: str) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column()
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=meter.total or None, completed=meter.done, width=24, pulse=not meter.total)
    grid.add_row(name, bar, _counts(meter))
    return grid


def _counts(meter: Meter) -> str:
    """Samples, rate, and how long it will take if the rate stays."""
    from metagen.experiments.report import duration

    if not meter.total:
        return "starting"
    words = [f"{meter.done:,} of {meter.total:,} samples"]
    if meter.rate:
        words.append(f"{meter.rate:,.0f} samples/s" if meter.rate >= 10 else f"{meter.rate:.2g} samples/s")
    if meter.left:
        words.append(f"about {duration(meter.left)} left")
    if reused := meter.done - meter.fresh:
        words.append(f"{reused:,} from the journal")
    if meter.failures:
        words.append(f"{meter.failures:,} failed")
    return ", ".join(words)


if __name__ == "__main__":
    app()
