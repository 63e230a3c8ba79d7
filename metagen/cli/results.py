"""Commands that read what runs and studies have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metagen.cli import output
from metagen.cli.options import Json, Run, Trust
from metagen.errors import InputError


def compare(
    first: Run,
    second: Run,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A=B",
            help="Compare A of the first with B of the second: two configurations, such as "
            "small/majority@8=small/weighted@8, or two curves of studies, such as small/majority=small/weighted. "
            "The two may be one run. May be repeated; by default equal names are compared.",
        ),
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Compare two runs, or studies, problem by problem."""
    from metagen.runs.directory import RunDirectory
    from metagen.runs.questions import compare as pages
    from metagen.runs.questions import compare_studies as curves

    if wrong := [p for p in pair or () if "=" not in p]:
        raise InputError(f"--pair {wrong[0]!r}: expected A=B, such as small/majority@8=large/majority@8")
    pairs = [(a, b) for a, _, b in (p.partition("=") for p in dict.fromkeys(pair))] if pair else None
    if (found := curves.studies(first, second, pairs)) is not None:
        output.show(curves.render(found), curves.data(found), as_json)
        return
    runs = RunDirectory.find(first), RunDirectory.find(second)
    compared, problems = pages.compare(*runs, pairs)
    output.show(pages.render(compared, problems, *runs), pages.data(compared, problems, *runs), as_json)


def recommend(
    directory: Run,
    budget: Annotated[
        list[str],
        typer.Option(
            metavar="COST=AMOUNT",
            help="What a problem may cost on average, such as flops=2e9; several must all hold.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the experiment of what is recommended, in YAML.")
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Say what to run under a budget: the configuration, what to expect of it, its experiment."""
    from metagen.runs.questions import recommend as recommendations

    found = recommendations.at(directory, recommendations.parse_budgets(budget))
    output.show(recommendations.render(found), found.data(), as_json)
    if out is not None:
        recommendations.write(found, out)
        output.say(f"wrote {out}; next: metagen run {out}")


def quality(
    directory: Run,
    verifier: Annotated[
        list[str] | None, typer.Option(help="One of the run's verifiers; may be repeated.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit a map of the scores, for an experiment file.")
    ] = False,
    trust: Trust = False,
) -> None:
    """How good the verifiers of a run are: AUC, regret, calibration, first errors."""
    from metagen.runs.directory import RunDirectory
    from metagen.runs.questions import quality as reports

    output.write(reports.publish(RunDirectory.find(directory), verifier or (), calibrate=calibrate))


def show(
    directory: Run,
    problem: Annotated[str, typer.Argument(help="The id of a problem.")],
    generator: Annotated[str | None, typer.Option(help="Only this generator.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All candidates, not the first few.")] = False,
) -> None:
    """Look at one problem: candidates, steps, scores, the vote."""
    from metagen.runs.directory import RunDirectory
    from metagen.runs.page import show as view

    output.write(view.show(RunDirectory.find(directory), problem, generator=generator, everything=everything))


def list_runs(
    directory: Annotated[Path, typer.Argument(help="Where the runs are, or a run.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List runs: their state, what they did, and the best that they found."""
    from metagen.runs.page import listing

    found = listing.runs(directory)
    output.show(listing.render(found, directory), listing.data(found), as_json)
