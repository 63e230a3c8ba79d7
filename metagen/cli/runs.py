"""Commands that run something and report it: experiments, studies, recorded samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metagen.cli import output
from metagen.cli.options import (
    Json,
    Limit,
    OnHardware,
    Out,
    Probe,
    ProbeMinutes,
    Rehearse,
    Run,
    Sets,
    Telemetry,
    Texts,
    Track,
    Tracker,
    Trust,
    experiments,
    observing,
)
from metagen.cli.progress import show_progress
from metagen.errors import InputError

if TYPE_CHECKING:
    from metagen.runs.declare.specs import Experiment
    from metagen.runs.declare.study import Study
    from metagen.runs.directory import RunDirectory, StudyDirectory
    from metagen.runs.work.progress import Meter


@dataclass(frozen=True)
class Watched:
    """Who else is told of a run: trackers, and what collects spans."""

    track: tuple[Tracker, ...] = ()
    texts: bool = False
    telemetry: bool = False

    @classmethod
    def of(
        cls, track: Iterable[Tracker] | None, texts: bool, telemetry: bool, dry: typer.Context | None = None
    ) -> Watched:
        """As the options say; dry: of an estimate. Raises InputError for texts that nobody is sent, and for estimates.

        METAGEN_TELEMETRY is no reason to refuse: it says the same to all commands.
        """
        given = tuple(track or ())
        source = dry and dry.get_parameter_source("telemetry")
        if dry and (given or texts or (source and source.name == "COMMANDLINE")):
            raise InputError(
                "--track, --track-texts and --telemetry belong to a run; leave out --dry-run, or leave them out"
            )
        if texts and not given:
            raise InputError(
                "--track-texts is for trackers; add --track mlflow or --track wandb, or leave it out"
            )
        return cls(given, texts, telemetry)

    def follow(
        self, directory: RunDirectory | StudyDirectory, experiment: str, meter: Meter
    ) -> AbstractContextManager[Callable[[str], None]]:
        """Tell trackers of a run while the context lasts; see `tracking.follow`."""
        if not self.track:
            return nullcontext(lambda role: None)
        from metagen.integrations import tracking

        kinds: list[tracking.Kind] = [one.value for one in self.track]
        return tracking.follow(kinds, directory, experiment, meter, texts=self.texts, warn=_warn)


def _warn(text: str) -> None:
    output.note(text)


#: Minutes that a probe takes at most, if nothing else is said.
MINUTES = 10.0


@dataclass(frozen=True)
class Guess:
    """How work is estimated: for which hardware, and by a probe of how many problems that takes how long."""

    hardware: str | None
    probe: int | None
    minutes: float

    @classmethod
    def of(cls, dry: bool, hardware: str | None, probe: int | None, minutes: float | None) -> Guess:
        """As the options say. Raises InputError for options that nothing uses."""
        if not dry and (hardware, probe, minutes) != (None, None, None):
            raise InputError(
                "--hardware, --probe and --probe-minutes belong to an estimate; add --dry-run, or leave them out"
            )
        if minutes is not None and probe is None:
            raise InputError("--probe-minutes is the limit of a probe; add --probe 2, or leave it out")
        return cls(hardware, probe, MINUTES if minutes is None else minutes)

    @property
    def seconds(self) -> float:
        return 60.0 * self.minutes

    @property
    def limit(self) -> str:
        return (
            f"it runs one problem, and then as many more as are expected to end within {self.minutes:g} minutes "
            "in all (--probe-minutes)"
        )


class Unknowns(StrEnum):
    """What `grade` makes of samples without a verdict."""

    exclude = "exclude"
    wrong = "wrong"
    error = "error"


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The experiment, a YAML file.", autocompletion=experiments)],
    limit: Limit = None,
    sets: Sets = None,
    out: Out = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Estimate what it would take; run nothing.")] = False,
    rehearse: Rehearse = False,
    hardware: OnHardware = None,
    probe: Probe = None,
    minutes: ProbeMinutes = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON, for programs.")] = False,
    track: Track = None,
    texts: Texts = False,
    telemetry: Telemetry = False,
    trust: Trust = False,
) -> None:
    """Run an experiment and report it."""
    from metagen.runs.declare import schema

    if not dry and as_json:
        raise InputError("--json belongs to an estimate; add --dry-run, or leave it out")
    guess = Guess.of(dry, hardware, probe, minutes)
    watched = Watched.of(track, texts, telemetry, context if dry else None)
    source = schema.read_source(file, sets=sets or (), limit=limit, rehearse=rehearse)
    experiment = schema.parse_experiment(source, file.parent)
    with schema.locate_errors(source):
        if dry:
            _estimate(experiment, out, guess, as_json)
        else:
            _run(experiment, out, watched)


def study(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(help="A study file: an experiment with a section study.", autocompletion=experiments),
    ],
    sets: Sets = None,
    limit: Limit = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The study's directory, by default runs/NAME. A study that is there continues."),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Estimate the work of each role; run nothing.")
    ] = False,
    rehearse: Rehearse = False,
    hardware: OnHardware = None,
    probe: Probe = None,
    minutes: ProbeMinutes = None,
    as_json: Json = False,
    track: Track = None,
    texts: Texts = False,
    telemetry: Telemetry = False,
    trust: Trust = False,
) -> None:
    """Run a study, or go on with it: what is recorded is not paid for again; report it."""
    from metagen.runs.declare import study_schema as schema
    from metagen.runs.directory import RUNS

    guess = Guess.of(dry, hardware, probe, minutes)
    watched = Watched.of(track, texts, telemetry, context if dry else None)
    found = schema.load(file, sets=sets or (), limit=limit, rehearse=rehearse)
    root = out or RUNS / found.experiment.name
    if dry:
        _forecast(found, root, guess, as_json)
    else:
        _study(found, root, as_json, watched)


def resume(
    directory: Run,
    track: Track = None,
    texts: Texts = False,
    telemetry: Telemetry = False,
    trust: Trust = False,
) -> None:
    """Go on with a run or study, tracked as before; what is recorded is not paid for again."""
    from metagen.runs.declare import schema
    from metagen.runs.declare import study_schema as studies
    from metagen.runs.directory import RunDirectory, StudyDirectory, find

    found = find(directory)
    if isinstance(found, RunDirectory) and (study := found.study) is not None:
        output.note(f"{str(found.root)!r} is a run of the study {str(study.root)!r}, which goes on")
        found = study
    given = [*(track or ()), *_tracked(found.root)]
    watched = Watched.of(given, texts, telemetry)
    if isinstance(found, StudyDirectory):
        _study(studies.load(found.study), found.root, as_json=False, watched=watched)
    else:
        _run(schema.load(found.experiment), found.root, watched)


def _tracked(root: Path) -> list[Tracker]:
    """Where a run was tracked."""
    if not (root / "tracking.json").exists():
        return []
    from metagen.integrations import tracking

    return [Tracker(kind) for kind in tracking.tracked(root)]


def track(
    directory: Run,
    to: Annotated[list[Tracker], typer.Option("--to", help="Where to; may be repeated.")],
    texts: Texts = False,
) -> None:
    """Send a run or study that has been reported to MLflow or Weights & Biases."""
    from metagen.integrations import tracking
    from metagen.runs.directory import find

    tracking.track([one.value for one in to], find(directory), texts=texts, warn=_warn)


def report(
    directory: Run,
    papers: Annotated[
        bool,
        typer.Option(
            "--papers", help="Draw a study's figures as PDF and PNG, too, now and in later reports."
        ),
    ] = False,
    trust: Trust = False,
) -> None:
    """Show the results of a run or study; make its tables, figures and page (report.html) anew."""
    from metagen.runs.directory import StudyDirectory, find

    found = find(directory)
    if isinstance(found, StudyDirectory):
        from metagen.runs.page import study_report as pages
        from metagen.runs.work.progress import Meter

        meter = Meter()
        with show_progress(meter, found.root.name):
            result, sections = pages.again(found, meter.after, papers=papers)
        output.write(pages.render(result, sections, found))
    elif papers:
        raise InputError(
            f"{str(found.root)!r} is a run, whose figures are PNG and SVG files; --papers is for studies, leave it out"
        )
    else:
        _report(found)


def grade(
    file: Annotated[Path, typer.Argument(help="Recorded samples, a JSONL file with one problem a line.")],
    like: Annotated[
        Path | None,
        typer.Option(
            help="An experiment whose task, engines and verifiers are used; "
            "by default questions and references stand in the file."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="The problems: a task's name (gsm8k, …), or its definition in YAML, {kind: gsm8k, path: …}.",
        ),
    ] = None,
    id: Annotated[str | None, typer.Option(help="The field of the problem's id.")] = None,
    samples: Annotated[str | None, typer.Option(help="The field of the list of samples.")] = None,
    question: Annotated[str | None, typer.Option(help="The field of the question.")] = None,
    reference: Annotated[str | None, typer.Option(help="The field of the right answer.")] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="The rule that reads and compares answers: math (the default), number, text, choice, word, literal, "
            "verdicts, module:attribute, or YAML, {kind: choice, letters: ABCD}.",
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="A regular expression that finds the answer in a sample.")
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="A field with a score for each sample; it adds best-of-n and a weighted vote. If a sample has a list "
            "of scores, FIELD~4 takes the mean of 4, drawn at random. May be repeated."
        ),
    ] = None,
    correct: Annotated[
        str | None,
        typer.Option(
            help="The field with a verdict for each sample, 1 or 0. Verdicts replace the comparison of answers."
        ),
    ] = None,
    thoughts: Annotated[
        str | None,
        typer.Option(
            help="The field with the thought before each sample. A thought is no part of the answer."
        ),
    ] = None,
    thought_end: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="The end mark of a thought within a sample, such as '</think>'. The answer stands after it.",
        ),
    ] = "",
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="NAME=FIELD",
            help="A field with the costs of each sample: generated, prefilled (tokens), seconds, money. In place of "
            "samples, fields with counts: successes, n. May be repeated.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="FIELD=VALUE", help="Only records with this value; may be repeated."),
    ] = None,
    unknown: Annotated[
        Unknowns, typer.Option(help="The treatment of samples without a verdict, and of failed calls.")
    ] = Unknowns.exclude,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="[SCORE=]MAP",
            help="How scores outside [0, 1] become weights of votes: ranks (default), minmax, softmax(T), sigmoid(T).",
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Grade the problems that the file and the task both have.")
    ] = False,
    n: Annotated[
        list[int] | None,
        typer.Option("-n", min=1, help="Numbers of candidates, besides all; may be repeated."),
    ] = None,
    sets: Sets = None,
    out: Out = None,
    trust: Trust = False,
) -> None:
    """Grade samples that somebody recorded: accuracy, pass@k and votes, with intervals."""
    from metagen.runs.declare import grade as grading

    named = grading.Fields(id, samples, question, reference)
    read = ({"answer": answer} if answer else {}) | ({"pattern": pattern} if pattern else {})
    mapped = _pairs("--field", [*(fields or ()), *([f"thoughts={thoughts}"] if thoughts else ())])
    found = grading.grading(
        file, like=like, task=task, named=named, answer=read, scores=score or (), correct=correct,
        fields=mapped, thought_end=thought_end, where=_pairs("--where", where), unknown=unknown.value, maps=maps or (),
        partial=partial, n=n or (), sets=sets or (),
    )  # fmt: skip
    for note in found.notes:
        output.note(note)
    _run(found.experiment, out)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """`NAME=VALUE` options as a mapping. InputError for one without both."""
    found: dict[str, str] = {}
    for one in given or ():
        name, _, value = one.partition("=")
        if not name or not value:
            raise InputError(f"{option} {one}: expected NAME=VALUE, such as {option} seconds=working_time")
        if found.get(name, value) != value:
            raise InputError(
                f"{option} {name} is given twice, as {found[name]!r} and {value!r}; give one of them"
            )
        found[name] = value
    return found


def _run(experiment: Experiment, out: Path | None, watched: Watched = Watched()) -> None:
    """Run in `out`, or in a new directory; report; exit with a code if problems failed."""
    from metagen.runs.declare import schema
    from metagen.runs.directory import RunDirectory
    from metagen.runs.work import build, runner
    from metagen.runs.work.progress import Meter

    meter, directory = Meter(), None
    # Held until the report is written: a run that began before would take its tables away.
    with ExitStack() as held:
        try:
            with build.open_setup(experiment) as setup:
                for caution in build.cautions(setup):
                    output.note(caution)
                directory = RunDirectory.at(out) if out else RunDirectory.new(experiment.name)
                if (of := directory.study) is not None:
                    raise InputError(
                        f"{str(directory.root)!r} is a run of the study {str(of.root)!r}; go on with that by metagen "
                        "resume, or give another directory by --out"
                    )
                directory.claim()
                held.enter_context(directory.hold("run"))
                held.enter_context(watched.follow(directory, schema.dump(experiment), meter))
                with show_progress(meter, experiment.name), observing(watched.telemetry) as observe:
                    state = runner.run(setup, directory, meter, observe=observe)
        except KeyboardInterrupt:
            _say_interrupted(directory.resume_hint if directory else None)
            raise
        _report(directory)
    if state.failures:
        raise typer.Exit(2 if all(failure.mendable for failure in state.failures) else 1)


def _say_interrupted(hint: str | None) -> None:
    with suppress(OSError):  # the terminal may be what is gone
        output.say("interrupted" if hint is None else f"interrupted; {hint}")


def _study(found: Study, root: Path, as_json: bool, watched: Watched) -> None:
    """Run a study in `root`; report; exit with a code if problems failed."""
    from metagen.runs import study as studies
    from metagen.runs.declare import study_schema
    from metagen.runs.directory import StudyDirectory
    from metagen.runs.page import study_report as pages
    from metagen.runs.work.progress import Meter

    meter, directory = Meter(), StudyDirectory.at(root)
    with (
        directory.files.hold("run"),
        watched.follow(directory, study_schema.dump(found), meter) as told,
    ):

        def begins(role: str) -> None:
            output.say(f"{role} …")
            told(role)

        try:
            with show_progress(meter, found.experiment.name), observing(watched.telemetry) as observe:
                result = studies.run(found, root, meter, begins=begins, caution=output.note, observe=observe)
        except KeyboardInterrupt:
            _say_interrupted(f"go on with: metagen resume {root}")
            raise
        output.say("report …")
        with show_progress(meter, found.experiment.name):
            result, sections = pages.publish(directory, found, result, meter.after)
    output.show(
        pages.render(result, sections, directory), pages.data(result, sections, directory.files), as_json
    )
    failed = {name: role for name, role in result.facts["roles"].items() if role["failures"]}
    if failed:
        for role in failed:
            output.say(f"{role} had failures; they are named by: metagen report {root / role}")
        output.say(f"try again: metagen resume {root}")
        raise typer.Exit(2 if all(role["mendable"] for role in failed.values()) else 1)


def _forecast(found: Study, root: Path, guess: Guess, as_json: bool) -> None:
    from metagen.runs import study as studies
    from metagen.runs.work.forecast import show
    from metagen.runs.work.forecast import study as forecast

    if guess.probe is not None:
        for role, one in studies.estimates(found, root, anew=True):
            output.note(f"the probe of {role} runs {show.probe_cost(one, guess.probe)}")
        output.note(guess.limit)
    every = dict(
        studies.estimates(found, root, hardware=guess.hardware, probe=guess.probe, seconds=guess.seconds)
    )
    output.show(forecast.render(every), forecast.data(every), as_json)


def _estimate(experiment: Experiment, out: Path | None, guess: Guess, as_json: bool) -> None:
    from metagen.runs.work.forecast import show
    from metagen.runs.work.forecast.estimate import estimate

    if guess.probe is not None:
        output.note(f"the probe runs {show.probe_cost(estimate(experiment), guess.probe)}")
        output.note(guess.limit)
    found = estimate(experiment, out, hardware=guess.hardware, probe=guess.probe, seconds=guess.seconds)
    output.show(show.render(found), found.to_dict(), as_json)


def _report(directory: RunDirectory) -> None:
    from metagen.runs.page import report as pages
    from metagen.runs.work.garbage import rarely

    with rarely():
        found = pages.publish(directory)
    output.write(found)
