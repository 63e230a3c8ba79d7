"""The command line. It formats and nothing else; what takes time to import is imported by the command that needs it.

Exit codes: 0 all is well; 1 a fault of ours or of the machine; 2 something that the user can mend;
130 interrupted, and ready to be resumed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from enum import StrEnum
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
    from metagen.studies.spec import Study

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


class Answers(StrEnum):
    """How `grade` reads answers."""

    math = "math"
    number = "number"


class Kind(StrEnum):
    """Tasks that `new` writes experiments for."""

    arithmetic = "arithmetic"
    jsonl = "jsonl"


def _runs(incomplete: str) -> list[str]:
    """Names of runs, for completion; without a match the shell completes files."""
    files = [path for name in ("experiment", "study") for path in Path("runs").glob(f"*/{name}.yaml")]
    return sorted(path.parent.name for path in files if path.parent.name.startswith(incomplete))


def _experiments(incomplete: str) -> list[str]:
    """Experiment files, for completion: those in the directory typed so far, and the shipped examples."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    found = [folder + path.name for path in Path(folder or ".").glob("*.yaml")]
    found += [str(path) for path in Path("examples").glob("*.yaml")] if not folder else []
    return sorted(name for name in found if name.startswith(incomplete))


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory or name.", autocompletion=_runs)]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


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
        Level | None,
        typer.Option(envvar="METAGEN_LOG", case_sensitive=False, help="Write a log.", show_default=False),
    ] = None,
    log_format: Annotated[
        Format | None,
        typer.Option(
            envvar="METAGEN_LOG_FORMAT",
            case_sensitive=False,
            help="One JSON object a line, or text.",
            show_default=False,
        ),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(
            envvar="METAGEN_LOG_FILE", help="Append the log here, not to stderr.", show_default=False
        ),
    ] = None,
) -> None:
    if log_level or log_format or log_file:
        from metagen import logs

        level, format = log_level or Level.info, log_format or Format.text
        logs.configure(level.value, format.value, log_file)


@app.command()
def run(
    file: Annotated[
        Path,
        typer.Argument(help="The experiment, a YAML file.", show_default=False, autocompletion=_experiments),
    ],
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
    dry: Annotated[bool, typer.Option("--dry-run", help="Estimate what it would take; run nothing.")] = False,
    hardware: Annotated[
        str | None,
        typer.Option(help="With --dry-run: the least time on such hardware (h200, …).", show_default=False),
    ] = None,
    probe: Annotated[
        int | None,
        typer.Option(min=1, help="With --dry-run: run so many problems to measure by.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON, for programs.")] = False,
) -> None:
    """Run an experiment and report it."""
    from metagen.experiments import schema

    if not dry and (hardware or probe or as_json):
        raise InputError(
            "--hardware, --probe and --json belong to an estimate; add --dry-run, or leave them out"
        )
    experiment = schema.load(file, sets=sets or (), limit=limit)
    if dry:
        _estimate(experiment, out, hardware, probe, as_json)
    else:
        _run(experiment, out)


@app.command()
def study(
    file: Annotated[
        Path,
        typer.Argument(help="A study file: an experiment with a section study.", autocompletion=_experiments),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one value, as in run.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first problems.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The study's directory; by default runs/NAME, which is gone on with.", show_default=False
        ),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what it would take; run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run a study, or go on with it: what is recorded is not paid for again; report it."""
    from metagen.experiments.directory import RUNS
    from metagen.studies import schema

    found = schema.load(file, sets=sets or (), limit=limit)
    root = out or RUNS / found.experiment.name
    if dry:
        _forecast(found, root, as_json)
    else:
        _study(found, root, as_json)


@app.command()
def resume(directory: Run) -> None:
    """Go on with a run or study; what is recorded is not paid for again."""
    from metagen.experiments import schema
    from metagen.studies import schema as studies
    from metagen.studies.directory import StudyDirectory, find

    found = find(directory)
    if isinstance(found, StudyDirectory):
        _study(studies.load(found.study), found.root, as_json=False)
    else:
        _run(schema.load(found.experiment), found.root)


@app.command()
def report(directory: Run) -> None:
    """Show the results of a run or study; make its tables, figures and page (report.html) anew."""
    from metagen.studies.directory import StudyDirectory, find

    found = find(directory)
    if isinstance(found, StudyDirectory):
        from metagen.studies import report as pages

        result, sections = pages.again(found)
        _print(pages.render(result, sections, found))
    else:
        _report(found)


@app.command()
def grade(
    file: Annotated[
        Path,
        typer.Argument(help="Recorded samples, a JSONL file with one problem a line.", show_default=False),
    ],
    like: Annotated[
        Path | None,
        typer.Option(
            help="An experiment whose task, engines and verifiers are used; "
            "by default questions and references stand in the file.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="The problems: a task's name (gsm8k, …), or its definition in YAML, {kind: gsm8k, path: …}.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[str | None, typer.Option(help="The field of the problem's id.", show_default=False)] = None,
    samples: Annotated[
        str | None, typer.Option(help="The field of the list of samples.", show_default=False)
    ] = None,
    question: Annotated[
        str | None, typer.Option(help="The field of the question.", show_default=False)
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The field of the right answer.", show_default=False)
    ] = None,
    answer: Annotated[
        Answers | None,
        typer.Option(
            help="How answers are read and told apart: as mathematics (by default), or as numbers.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Where in a sample its answer stands: a regular expression.", show_default=False),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="A field with a number for each sample, to select by; may be repeated.", show_default=False
        ),
    ] = None,
    correct: Annotated[
        str | None,
        typer.Option(
            help="The field that says of each sample whether it is right: the grader then.",
            show_default=False,
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Grade the problems that the file and the task both have.")
    ] = False,
    n: Annotated[
        list[int] | None,
        typer.Option(
            "-n", min=1, help="Numbers of candidates, besides all; may be repeated.", show_default=False
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one value, as in run.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's directory; by default a new one in runs/.", show_default=False),
    ] = None,
) -> None:
    """Grade samples that somebody recorded: accuracy, pass@k and votes, with intervals."""
    from metagen.experiments import grade as grading

    named = grading.Fields(id, samples, question, reference)
    read = ({"answer": answer.value} if answer else {}) | ({"pattern": pattern} if pattern else {})
    found = grading.grading(
        file, like=like, task=task, named=named, answer=read, scores=score or (), correct=correct,
        partial=partial, n=n or (), sets=sets or (),
    )  # fmt: skip
    for note in found.notes:
        typer.secho("note: ", bold=True, err=True, nl=False)
        typer.echo(note, err=True)
    _run(found.experiment, out)


@app.command()
def compare(
    first: Run,
    second: Run,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="A=B", help="Configurations that belong together.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs, or studies, problem by problem."""
    from metagen.experiments import compare as pages
    from metagen.experiments.directory import RunDirectory
    from metagen.studies import compare as curves

    if wrong := [p for p in pair or () if "=" not in p]:
        raise InputError(f"--pair {wrong[0]!r}: expected A=B, such as small/majority@8=large/majority@8")
    pairs = dict(p.split("=", 1) for p in pair) if pair else None
    if (found := curves.studies(first, second, pairs)) is not None:
        _show(curves.render(found), curves.data(found), as_json)
        return
    runs = RunDirectory.find(first), RunDirectory.find(second)
    compared, problems = pages.compare(*runs, pairs)
    _show(pages.render(compared, problems, *runs), pages.data(compared, problems, *runs), as_json)


@app.command()
def recommend(
    directory: Run,
    budget: Annotated[
        list[str],
        typer.Option(
            metavar="COST=AMOUNT",
            help="What a problem may cost on average, such as flops=2e9; several must all hold.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the experiment of what is recommended, in YAML.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what to run under a budget: the configuration, what to expect of it, its experiment."""
    from metagen.studies import recommend as recommendations

    found = recommendations.at(directory, recommendations.parsed(budget))
    _show(recommendations.render(found), found.data(), as_json)
    if out is not None:
        recommendations.write(found, out)
        typer.echo(f"wrote {out}; next: metagen run {out}", err=True)


@app.command()
def quality(
    directory: Run,
    verifier: Annotated[
        list[str] | None,
        typer.Option(help="One of the run's verifiers; may be repeated.", show_default=False),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit a map of the scores, for an experiment file.")
    ] = False,
) -> None:
    """How good the verifiers of a run are: AUC, regret, calibration, first errors."""
    from metagen.experiments import quality as reports
    from metagen.experiments.directory import RunDirectory

    _print(reports.publish(RunDirectory.find(directory), verifier or (), calibrate=calibrate))


@app.command()
def show(
    directory: Run,
    problem: Annotated[str, typer.Argument(help="The id of a problem.")],
    generator: Annotated[str | None, typer.Option(help="Only this generator.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All candidates, not the first few.")] = False,
) -> None:
    """Look at one problem: candidates, steps, scores, the vote."""
    from metagen.experiments import show as view
    from metagen.experiments.directory import RunDirectory

    _print(view.show(RunDirectory.find(directory), problem, generator=generator, everything=everything))


@app.command("ls")
def list_runs(
    directory: Annotated[Path, typer.Argument(help="Where the runs are, or a run.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List runs: their state, what they did, and the best that they found."""
    from metagen.experiments import listing

    found = listing.runs(directory)
    _show(listing.render(found, directory), listing.data(found), as_json)


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("experiment.yaml"),
    task: Annotated[
        Kind, typer.Option(help="What is asked: the embedded task, or problems from a file.")
    ] = Kind.arithmetic,
    data: Annotated[
        Path | None,
        typer.Option(help="For jsonl: the problems; by default a few examples.", show_default=False),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model directory, or an embedded model.", show_default=False)
    ] = None,
) -> None:
    """Write an experiment file with a comment on everything in it."""
    from metagen.experiments import new as templates

    for path in templates.write(file, task.value, model=model or templates.MODEL, data=data):
        typer.echo(f"wrote {path}")
    typer.echo(f"next: metagen run {file} --dry-run")


@app.command()
def doctor(
    attempt: Annotated[bool, typer.Option("--try", help="Run a model as well, which takes seconds.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is installed, what is missing and how to get it, and what this machine can do."""
    from metagen.experiments import doctor as examiner

    found = examiner.examine(attempt=attempt)
    _show(examiner.render(found), found.to_dict(), as_json)
    if not found.ready:
        raise typer.Exit(1)


@app.command()
def explain(
    prompt: Annotated[
        str, typer.Argument(help="What the model reads; \\n is a new line.", show_default=False)
    ],
    model: Annotated[
        str, typer.Option(help="A model directory, an embedded model, or a recipe in YAML.")
    ] = "tiny-2m",
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A sampling adapter, such as top_p=0.9; may be repeated.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The adapters of a preset (code, chat, …).", show_default=False)
    ] = None,
    completion: Annotated[
        str, typer.Option(help="What the model has written so far; \\n is a new line.", show_default=False)
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="Tokens that are shown.")] = 12,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the picture: a page (.html), .png or .svg.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the next-token distribution of a model, before and after each sampling adapter."""
    from metagen.experiments import adapters as views

    if out is not None:
        views.check_file(out)
    params = views.params_of(adapter or (), preset)
    prompt, completion = (text.replace("\\n", "\n") for text in (prompt, completion))
    found = views.explain(model, prompt, completion, params)
    _show(views.render(found, most=top), views.data(found, most=top), as_json)
    if out is not None:
        views.write(found, out, most=top, title=f"{model} behind {'…' + (prompt + completion)[-40:]!r}")
        typer.echo(f"wrote {out}", err=True)


@app.command()
def models() -> None:
    """List the models that ship in the package."""
    from metagen.cost import ModelShape
    from metagen.generators import tiny

    for name in tiny.names():
        card = tiny.resolve(name)
        shape = ModelShape.from_config(card)
        size = sum(file.stat().st_size for file in card.iterdir()) / 1e6
        typer.echo(f"{name:<20} {shape.parameters_total / 1e6:5.2f}M parameters  {size:5.1f} MB  {card}")


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


def _study(found: Study, root: Path, as_json: bool) -> None:
    """Run a study in `root`; report; exit with a code if problems failed."""
    from metagen.experiments.progress import Meter
    from metagen.studies import report as pages
    from metagen.studies import run as studies
    from metagen.studies.directory import StudyDirectory

    meter, directory = Meter(), StudyDirectory(root)
    try:
        with _watched(meter, found.experiment.name):
            result = studies.run(found, root, meter, begins=lambda role: typer.echo(f"{role} …", err=True))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; go on with: metagen resume {root}", err=True)
        raise
    typer.echo("report …", err=True)
    result, sections = pages.publish(directory, found, result)
    _show(pages.render(result, sections, directory), pages.data(result, sections, directory.files), as_json)
    failed = {name: role for name, role in result.facts["roles"].items() if role["failures"]}
    if failed:
        for role in failed:
            typer.echo(f"{role} had failures; they are named by: metagen report {root / role}", err=True)
        typer.echo(f"try again: metagen resume {root}", err=True)
        raise typer.Exit(2 if all(role["mendable"] for role in failed.values()) else 1)


def _forecast(found: Study, root: Path, as_json: bool) -> None:
    from metagen.studies import forecast
    from metagen.studies import run as studies

    every = dict(studies.estimates(found, root))
    _show(forecast.render(every), forecast.data(every), as_json)


def _estimate(
    experiment: Experiment, out: Path | None, hardware: str | None, probe: int | None, as_json: bool
) -> None:
    from metagen.experiments.forecast import estimate as estimates

    found = estimates.estimate(experiment, out, hardware=hardware, probe=probe)
    _show(estimates.render(found), found.to_dict(), as_json)


def _report(directory: RunDirectory) -> None:
    from metagen.experiments import report as pages

    _print(pages.publish(directory))


def _show(page: RenderableType, data: Any, as_json: bool) -> None:
    """For people, or for programs."""
    if as_json:
        typer.echo(json.dumps(data, indent=1))
    else:
        _print(page)


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
