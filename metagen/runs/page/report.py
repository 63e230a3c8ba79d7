"""A run for people: a table for the terminal, the best configurations under budgets, and figures."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import indent
from typing import cast

from matplotlib.figure import Figure
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metagen.analysis import figures
from metagen.runs.curves.measured import FEW, Measured, Results, derive, most_accurate
from metagen.runs.directory import RunDirectory, State, writing
from metagen.runs.page import run_page as page
from metagen.runs.page.bought import bought, points
from metagen.runs.page.figure import Cost, accuracies_by_size, plots
from metagen.runs.table import audit, efforts, unjudged
from metagen.runs.table.audit import Audited
from metagen.runs.table.tables import read
from metagen.runs.words import between, cost_amount, duration, percent, plus_minus
from metagen.runs.work import unfinished

COSTS: dict[Cost, str] = {"generated": "tokens generated", "flops": "FLOPs"}


def publish(directory: RunDirectory) -> RenderableType:
    """Derive the tables, figures and page of a run, write them, and show what they say.

    Of a run without an end only the page is written, with what is recorded so far. In a directory that cannot be
    written nothing is, and this says so. Other processes wait for the files of a run that has ended (`hold`).
    """
    if not directory.writable:
        with unfinished.tables(directory) as (found, state):
            results, audited = derive(found, state.lines), audit.of_run(found, state.lines)
            return render(state, results, directory, audited=audited, wrote=False)
    with ExitStack() as stack:
        if directory.state().status not in ("running", "interrupted"):
            stack.enter_context(directory.hold("report"))
        found, state = stack.enter_context(unfinished.tables(directory))
        results = derive(found, state.lines)
        drawn: list[Path] = []
        audited = audit.publish(found, state.lines)
        if found == directory:
            results.write(directory.root)
            with writing(directory.root, "the figures"):
                drawn = draw(state, results, directory)
        if results.configurations:
            page.write(directory, found, state, results, audited)
        return render(state, results, directory, drawn, audited)


def render(
    state: State,
    results: Results,
    directory: RunDirectory,
    drawn: Iterable[Path] = (),
    audited: Iterable[Audited] = (),
    wrote: bool = True,
) -> RenderableType:
    """Everything that `metagen report` shows. wrote: whether it has written files."""
    parts: list[RenderableType] = [_headline(state, results, directory)]
    if said := audit.report_lines(audited):
        parts += [Text("Audit of the recorded samples", "bold yellow"), _list(said), Text()]
    if results.configurations:
        title = "Accuracy in % ± standard error, with 95% intervals, by the number n of candidates"
        parts += [Text(title, "bold"), accuracies(results.configurations), Text()]
        for cost, name in COSTS.items():
            if table := best_table(results.configurations, cost):
                title = f"Best configuration within a budget of {name} per problem"
                parts += [Text(title, "bold"), table, Text()]
        parts += [
            _notes(state, results),
            *(Text(f"{line}.", "yellow") for line in efforts.effort_lines(directory)),
            *unjudged.unscored_lines(directory),
            *unjudged.ungraded_lines(directory),
            Text(),
        ]
    parts += _failures(state)
    if not wrote:
        lacking = (
            f"{directory.root} cannot be written: no page, tables or figures were made; report a copy of it"
        )
        parts.append(Text(lacking, "bold yellow"))
    elif results.configurations:
        parts += _files(directory, drawn)
    return Group(*(Padding(part, (0, 0, 0, 1)) for part in parts))


def _list(lines: Iterable[str]) -> Table:
    """Sentences of several lines, told apart by dashes."""
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("-", Text(line))
    return table


def _headline(state: State, results: Results, directory: RunDirectory) -> Text:
    """What was run, in one line, and what it found, in another."""
    line = Text.assemble(
        (state.name, "bold"),
        f"  {state.problems:,} problems, {state.samples:,} samples, seed {state.seed}",
        _duration(state),
    )
    if state.status == "failed":
        line.append("\nNothing was solved: every part of the work failed.", "bold red")
        line.append(f" Mend what is named below, then {directory.resume_hint}")
    if state.status in ("running", "interrupted"):
        missing = results.missing(state.problems, state.lines)
        line.append(f"\nIncomplete ({state.status}): {missing:,} of the problems are missing", "bold yellow")
        line.append(f"; {directory.resume_hint}")
    if best := most_accurate(results.configurations):
        line.append("\nBest: ").append(best.label, "bold green")
        most = max(m.problems for m in results.configurations)
        over = "the problems" if best.problems == most else f"{best.problems:,} of the {most:,} problems"
        line.append(f" solves {percent(best.accuracy)} [{between(best.low, best.high)}] of {over}")
    return line.append("\n")


def _duration(state: State) -> str:
    """The time of the last call, in words, if it made anything; a run that did not end may not have noted it."""
    shared = f", {state.cached:,} records from the cache" if state.cached else ""
    if state.status in ("running", "interrupted"):
        return shared + (f", {duration(state.seconds)} in the last call" if state.seconds else "")
    made = state.recorded or not state.samples or state.cached
    return shared + (f", {duration(state.seconds)}" if made else ", all from the journal")


# ------------------------------------------------------------------------------------------- accuracies


def accuracies(measured: abc.Sequence[Measured]) -> Table:
    """Accuracy with its interval: generators and strategies down, candidates across."""
    sizes = sorted({m.cell.n or 1 for m in measured})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("generator", style="bold")
    table.add_column("strategy")
    for n in sizes:
        table.add_column(f"n = {n}" if n == sizes[0] else str(n), justify="right")
    for generator, top, rows in accuracies_by_size(measured):
        for i, (strategy, at) in enumerate(rows):
            table.add_row(generator if i == 0 else "", strategy, *(_cell(at.get(n), top) for n in sizes))
        table.add_section()
    return table


def _cell(m: Measured | None, top: float) -> Text:
    """Accuracy over its interval; the best of a generator stands out."""
    if m is None:
        return Text("·", "dim", justify="right")
    style = "bold green" if m.accuracy == top and not m.cell.oracle else "italic" if m.cell.oracle else ""
    text = Text(percent(m.accuracy, sign=""), style, justify="right")
    text.append(plus_minus(m.stderr), "not bold not italic dim default")
    return text.append("\n").append(between(m.low, m.high), "not bold not italic dim default")


# ---------------------------------------------------------------------------------------------- budgets


def best_table(measured: Iterable[Measured], cost: Cost) -> Table | None:
    """The best configuration within each of several budgets; None where the cost is unknown."""
    rows = bought(measured, cost)
    if not rows:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("budget", "configuration", "accuracy", "95%", "spends"):
        table.add_column(name, justify="left" if name in ("configuration", "95%") else "right")
    last = ""
    for budget, best in rows:
        table.add_row(
            cost_amount(budget, cost), best.label, percent(best.accuracy), between(best.low, best.high),
            cost_amount(best.cost, cost), style="dim" if best.label == last else "",
        )  # fmt: skip
        last = best.label
    return table


# ---------------------------------------------------------------------------------------------- figures


def draw(state: State, results: Results, directory: RunDirectory) -> list[Path]:
    """Curves with bands as PNG and SVG in `figures/`; returns the files. Nothing is drawn of costs that are unknown."""
    if not results.configurations:
        return []
    directory.figures.mkdir(exist_ok=True)
    made: list[Path] = []

    def save(figure: Figure, name: str) -> None:
        made.extend(figures.save(figure, directory.figures / name))

    for plot in plots(results):
        title = f"{state.name}: {plot.title[:1].lower()}{plot.title[1:]}"
        if plot.name == "levels":
            largest = max(level.cell.n or 1 for level in results.levels)
            drawn = figures.accuracy_by_level(plot.panels, title=f"{title}, at most n = {largest}")
        else:
            drawn = figures.curves(plot.panels, x=cast("figures.Axis", plot.x), title=title)
        save(drawn, f"accuracy-{plot.name}")
        # With an oracle alone there is nothing that a budget could buy.
        if plot.name == "flops" and (found := points(results.configurations, "flops")):
            title = f"{state.name}: the best that a budget buys"
            save(figures.best_under_budget(found, x="flops", title=title), "best-flops")
    return made


# ------------------------------------------------------------------------------------------------ words


def _notes(state: State, results: Results) -> Text:
    measured, lines = results.configurations, [f"{text}." for text in state.sample_notes]
    if any(m.cell.pooled for m in measured):
        lines.append(
            "Each n is an average over random subsets of one pool of samples; intervals are over problems."
        )
    lines.append(
        "±: the standard error of the mean, clustered by problem. A best is the cheapest of those that tie."
    )
    lines.append(
        "A best of many is picked on the same problems that it is measured on, so its accuracy flatters a little."
    )
    lines += [
        f"{n}: over {few} of {all_of} problems, those that have as many samples."
        for n, few, all_of in _partial_pools(measured)
    ]
    if results.few:
        lines.append(f"Of fewer than {FEW} problems there are no intervals: too few problems.")
    if any(m.cell.oracle for m in measured):
        lines.append("(oracle): chosen by the reference answer; an upper bound, never a method.")
    return Text("\n".join(lines), "dim")


def _partial_pools(measured: Iterable[Measured]) -> Iterator[tuple[str, int, int]]:
    """Sizes of pool that only some problems have, such as `n = 8`: how many problems have it, and of how many."""
    pools: dict[str, dict[int, int]] = {}
    for m in measured:
        if m.cell.pooled:
            pools.setdefault(m.cell.generator, {})[m.cell.n or 1] = m.problems
    for generator, sizes in pools.items():
        most = max(sizes.values())
        name = f"{generator}, n" if len(pools) > 1 else "n"
        yield from (
            (f"{name} = {n}", problems, most) for n, problems in sorted(sizes.items()) if problems < most
        )


def _failures(state: State) -> Iterator[RenderableType]:
    """What went wrong, each message once with how often it came."""
    if not state.failures:
        return
    found: dict[str, list[str]] = {}
    for failure in state.failures:
        found.setdefault(failure.message, []).append(f"{failure.problem} ({failure.part})")
    rest = "" if state.status == "failed" else "; the rest is unharmed"
    text = Text(f"{len(state.failures)} parts of the work failed{rest}:", "bold red")
    if broken := {failure.problem for failure in state.failures if failure.kind == "BrokenTests"}:
        text.append(
            f"\n  The tests of {len(broken)} of {state.problems} problems are broken: they are left out of all figures",
            "default",
        )
    traces = {failure.message: failure.traceback for failure in state.failures}
    for message, where in list(found.items())[:5]:
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        text.append(f"\n  {where[0]}{more}: ", "default").append(message, "not bold default")
        if traces[message]:
            text.append("\n" + indent(traces[message], "    "), "not bold dim")
    if len(found) > 5:
        text.append(f"\n  … and {len(found) - 5} other messages in state.json", "not bold")
    yield text
    yield Text()


def _files(directory: RunDirectory, drawn: Iterable[Path]) -> Iterator[RenderableType]:
    drawn = list(drawn)
    rows = [("page", f"{directory.root}/report.html")]
    if directory.table("candidates").exists():
        rows.append(
            ("tables", f"{directory.root}/configurations.csv, levels.csv and .parquet; candidates.parquet")
        )
    if drawn:
        names = ", ".join(sorted({path.stem for path in drawn}))
        rows.append(("figures", f"{directory.figures}/  {names} (.png, .svg)"))
    rows.append(("look closer", f"metagen show {directory.root} {_first_problem(directory)}"))
    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(Text(name, "bold"), Text(value))
    yield grid


def _first_problem(directory: RunDirectory) -> str:
    """The id of the task's first problem, to try `metagen show` with."""
    table = directory.table("problems")
    found = read(table, ["problem", "place"]).sort_by("place")["problem"] if table.exists() else []
    return str(found[0]) if len(found) else "PROBLEM"
