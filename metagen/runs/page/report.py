"""A run for people: a table for the terminal, the best configurations under budgets, and figures."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby
from math import ceil, floor, isnan, log10
from pathlib import Path
from textwrap import indent
from typing import Literal

from matplotlib.figure import Figure
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metagen import html
from metagen.analysis import figures
from metagen.analysis.figures import Point
from metagen.analysis.ties import first_best
from metagen.runs.curves.measured import FEW, LevelMeasured, Measured, Results, derive, most_accurate
from metagen.runs.directory import RunDirectory, State, writing
from metagen.runs.table import audit, unjudged
from metagen.runs.table.audit import Audited
from metagen.runs.table.tables import read

Cost = Literal["generated", "flops"]
COSTS: dict[Cost, str] = {"generated": "tokens generated", "flops": "FLOPs"}
#: Rows of a table of budgets.
BUDGETS = 6


def publish(directory: RunDirectory) -> RenderableType:
    """Derive the tables, figures and page of a run, write them, and show what they say.

    Of a run without an end only the page is written, with what is recorded so far. In a directory that cannot be
    written nothing is, and this says so. Other processes wait for the files of a run that has ended (`held`).
    """
    # The page is made with the words and panels of this module.
    from metagen.runs.page import run_page as page
    from metagen.runs.work import unfinished

    if not directory.writable:
        with unfinished.tables(directory) as (found, state):
            results, audited = derive(found, state.lines), audit.of_run(found, state.lines)
            return render(state, results, directory, audited=audited, wrote=False)
    with ExitStack() as stack:
        if directory.state().status not in ("running", "interrupted"):
            stack.enter_context(directory.held("report"))
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
    if said := audit.said(audited):
        parts += [Text("What the recorded samples are", "bold yellow"), _list(said), Text()]
    if results.configurations:
        title = "Accuracy in % ± standard error, with 95% intervals, by the number n of candidates"
        parts += [Text(title, "bold"), accuracies(results.configurations), Text()]
        for cost, name in COSTS.items():
            if table := best_table(results.configurations, cost):
                title = f"Best configuration within a budget of {name} per problem"
                parts += [Text(title, "bold"), table, Text()]
        parts += [
            _notes(state, results),
            *unjudged.unscored(directory),
            *unjudged.ungraded(directory),
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
        _made(state),
    )
    if state.status == "failed":
        line.append("\nNothing was solved: every part of the work failed.", "bold red")
        line.append(f" Mend what is named below, then {directory.resume_hint}")
    if state.status in ("running", "interrupted"):
        solved = min((m.problems for m in results.configurations), default=0)
        line.append(
            f"\nIncomplete ({state.status}): {state.problems - solved:,} of the problems are missing",
            "bold yellow",
        )
        line.append(f"; {directory.resume_hint}")
    if best := most_accurate(results.configurations):
        line.append("\nBest: ").append(best.label, "bold green")
        line.append(f" solves {percent(best.accuracy)} [{between(best.low, best.high)}] of the problems")
    return line.append("\n")


def _made(state: State) -> str:
    """How long the last call took, if it made anything; of a run without an end nobody has noted that."""
    shared = f", {state.cached:,} records from the cache" if state.cached else ""
    if state.status in ("running", "interrupted"):
        return shared + (f", {duration(state.seconds)} in the last call" if state.seconds else "")
    made = state.recorded or not state.samples or state.cached
    return shared + (f", {duration(state.seconds)}" if made else ", all from the journal")


# ------------------------------------------------------------------------------------------- accuracies


def accuracies(measured: abc.Sequence[Measured]) -> Table:
    """Accuracy with its interval: generators and strategies down, candidates across."""
    sizes = sorted({m.n or 1 for m in measured})
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


def accuracies_by_size(
    measured: Iterable[Measured],
) -> list[tuple[str, float, list[tuple[str, dict[int, Measured]]]]]:
    """Each generator with its highest accuracy, oracles aside, and its strategies by n; without an n stands at 1."""
    found = []
    for generator, group in groupby(measured, key=lambda m: m.generator):
        ours = list(group)
        top = max((m.accuracy for m in ours if not m.oracle), default=-1.0)
        found.append((generator, top, [(s, {m.n or 1: m for m in cells}) for s, cells in _by_strategy(ours)]))
    return found


def _by_strategy(measured: Iterable[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    """By label of the strategy, in order of first appearance."""
    found: dict[str, list[Measured]] = {}
    for m in measured:
        found.setdefault(strategy_label(m), []).append(m)
    yield from found.items()


def strategy_label(m: Measured | LevelMeasured) -> str:
    """The strategy's name; what knows the answers says so."""
    return f"{m.strategy} (oracle)" if m.oracle else m.strategy


def _cell(m: Measured | None, top: float) -> Text:
    """Accuracy over its interval; the best of a generator stands out."""
    if m is None:
        return Text("·", "dim", justify="right")
    style = "bold green" if m.accuracy == top and not m.oracle else "italic" if m.oracle else ""
    text = Text(percent(m.accuracy, sign=""), style, justify="right")
    text.append(plus_minus(m.stderr), "not bold not italic dim default")
    return text.append("\n").append(between(m.low, m.high), "not bold not italic dim default")


def plus_minus(stderr: float) -> str:
    """The clustered standard error behind an accuracy in percent: ` ±3.5`; nothing where it is unknown."""
    return "" if isnan(stderr) else f" ±{100 * stderr:.1f}"


# ---------------------------------------------------------------------------------------------- budgets


def best_table(measured: Iterable[Measured], cost: Cost) -> Table | None:
    """The best configuration within each of several budgets; None where the cost is unknown."""
    points = _points(measured, cost)
    if len(points) < 2:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("budget", "configuration", "accuracy", "95%", "spends"):
        table.add_column(name, justify="left" if name in ("configuration", "95%") else "right")
    last = ""
    for budget in budgets([p.cost for p in points]):
        paid = sorted((p for p in points if p.cost <= budget), key=lambda p: (p.cost, -p.accuracy))
        if not paid:
            continue
        best = paid[first_best([p.accuracy for p in paid], [p.error for p in paid])]
        style = "dim" if best.label == last else ""
        last = best.label
        table.add_row(
            amount(budget, cost), best.label, percent(best.accuracy), between(best.low, best.high),
            amount(best.cost, cost), style=style,
        )  # fmt: skip
    return table


def budgets(values: Iterable[float], most: int = BUDGETS) -> list[float]:
    """Round numbers (1, 2, 5 · 10^k) from the least to the greatest of the costs, at most so many."""
    values = [v for v in values if v > 0]
    if not values:
        return []
    ladder = [
        m * 10.0**k for k in range(floor(log10(min(values))), ceil(log10(max(values))) + 1) for m in (1, 2, 5)
    ]
    low = max(range(len(ladder)), key=lambda i: (ladder[i] <= min(values), i))
    high = next(i for i, v in enumerate(ladder) if v >= max(values))
    steps = ladder[min(low + 1, high) : high + 1]
    stride = ceil(len(steps) / most)
    return steps[::-1][::stride][::-1]


def _points(measured: Iterable[Measured], cost: Cost) -> list[Point]:
    """Configurations that could be deployed, at their costs; of those that are one and the same, the first."""
    found: dict[tuple[str, float, float], Point] = {}
    for m in measured:
        if not m.oracle and (value := getattr(m, cost)):
            point = Point(m.label, value, m.accuracy, m.low, m.high, m.error)
            found.setdefault((m.generator, round(m.accuracy, 9), round(value, 6)), point)
    return list(found.values())


# ---------------------------------------------------------------------------------------------- figures


def draw(state: State, results: Results, directory: RunDirectory) -> list[Path]:
    """Curves with bands as PNG and SVG in `figures/`; returns the files. Nothing is drawn of costs that are unknown."""
    if not results.configurations:
        return []
    directory.figures.mkdir(exist_ok=True)
    made: list[Path] = []

    def save(figure: Figure, name: str) -> None:
        made.extend(figures.save(figure, directory.figures / name))

    measured = results.configurations
    save(
        figures.curves(
            panels(measured, "generator"), x="samples", title=f"{state.name}: accuracy against samples"
        ),
        "accuracy-samples",
    )
    if all(m.flops for m in measured):
        save(
            figures.curves(
                panels(measured, "strategy", "flops"),
                x="flops",
                title=f"{state.name}: accuracy against FLOPs",
            ),
            "accuracy-flops",
        )
        # With an oracle alone there is nothing that a budget could buy.
        if points := _points(measured, "flops"):
            title = f"{state.name}: the best that a budget buys"
            save(figures.best_under_budget(points, x="flops", title=title), "best-flops")
    if all(m.generated for m in measured):
        save(
            figures.curves(
                panels(measured, "generator", "generated"),
                x="tokens",
                title=f"{state.name}: accuracy against tokens",
            ),
            "accuracy-tokens",
        )
    if results.levels:
        largest = max(level.n or 1 for level in results.levels)
        save(
            figures.accuracy_by_level(
                level_panels(results.levels), title=f"{state.name}: accuracy by level, at most n = {largest}"
            ),
            "accuracy-levels",
        )
    return made


def panels(
    measured: Iterable[Measured], panel: Literal["generator", "strategy"], cost: Cost | None = None
) -> dict[str, list[figures.Line]]:
    """A panel for each generator with its strategies as lines, or the other way round."""
    found: dict[str, dict[str, list[Measured]]] = {}
    for m in measured:
        names = (m.generator, strategy_label(m))
        outer, inner = names if panel == "generator" else names[::-1]
        found.setdefault(outer, {}).setdefault(inner, []).append(m)
    if panel == "generator" and cost is None:
        return {
            title: [_by_size(name, ms, lines) for name, ms in lines.items()] for title, lines in found.items()
        }
    curves = {
        title: [_line(name, [getattr(m, cost or "n") for m in ms], ms) for name, ms in lines.items()]
        for title, lines in found.items()
    }
    # A panel of single points shows little: their costs are where the curves of the others begin.
    return {
        title: lines for title, lines in curves.items() if max(len(line.x) for line in lines) > 1
    } or curves


def _by_size(
    name: str, ours: abc.Sequence[Measured], panel: Mapping[str, abc.Sequence[Measured]]
) -> figures.Line:
    """Accuracy by n; what has no n is a level line across the panel, to compare with."""
    if len(ours) == 1 and ours[0].n is None:
        sizes = [m.n or 1 for ms in panel.values() for m in ms]
        return _line(name, [min(sizes), max(sizes)], [ours[0], ours[0]])
    return _line(name, [m.n or 1 for m in ours], ours)


def level_panels(levels: Iterable[LevelMeasured]) -> dict[str, list[figures.Line]]:
    """For each generator, each strategy at its largest n."""
    found: dict[str, dict[str, list[LevelMeasured]]] = {}
    for level in levels:
        found.setdefault(level.generator, {}).setdefault(strategy_label(level), []).append(level)
    panels: dict[str, list[figures.Line]] = {}
    for generator, lines in found.items():
        for name, rows in lines.items():
            largest = max(row.n or 1 for row in rows)
            ours = [row for row in rows if (row.n or 1) == largest]
            panels.setdefault(generator, []).append(_line(name, [row.level for row in ours], ours))
    return panels


def _line(name: str, x: abc.Sequence[float], rows: abc.Sequence[Measured | LevelMeasured]) -> figures.Line:
    order = sorted(range(len(x)), key=lambda i: x[i])
    rows = [rows[i] for i in order]
    low, high = [r.low for r in rows], [r.high for r in rows]
    known = not all(map(isnan, (*low, *high)))
    return figures.Line(
        name,
        [x[i] for i in order],
        [r.accuracy for r in rows],
        low if known else None,
        high if known else None,
    )


# ------------------------------------------------------------------------------------------------ words


def noted(state: State) -> list[str]:
    """What generators have to say of their samples; by name, where there are several."""
    several = len({line.generator for line in state.lines}) > 1
    return [f"{name}: {text}" if several else text[:1].upper() + text[1:] for name, text in state.notes]


def _notes(state: State, results: Results) -> Text:
    measured, lines = results.configurations, [f"{text}." for text in noted(state)]
    if any(m.how != "direct" for m in measured):
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
        for n, few, all_of in _carried(measured)
    ]
    if too_few(results):
        lines.append(f"Of fewer than {FEW} problems there are no intervals: too few problems.")
    if any(m.oracle for m in measured):
        lines.append("(oracle): chosen by the reference answer; an upper bound, never a method.")
    return Text("\n".join(lines), "dim")


def _carried(measured: Iterable[Measured]) -> Iterator[tuple[str, int, int]]:
    """What only some problems have samples for: n, how many of them, of how many; of each generator by itself."""
    pools: dict[str, dict[int, int]] = {}
    for m in measured:
        if m.how != "direct":
            pools.setdefault(m.generator, {})[m.n or 1] = m.problems
    for generator, sizes in pools.items():
        most = max(sizes.values())
        name = f"{generator}, n" if len(pools) > 1 else "n"
        yield from (
            (f"{name} = {n}", problems, most) for n, problems in sorted(sizes.items()) if problems < most
        )


def too_few(results: Results) -> bool:
    """Whether an accuracy of the run, or of a level, is of too few problems for an interval."""
    sizes = [m.problems for m in results.configurations] + [level.problems for level in results.levels]
    return any(size < FEW for size in sizes)


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


def percent(share: float, sign: str = "%") -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f}{sign}"


def between(low: float, high: float) -> str:
    """Bounds in percent; a dash where they are unknown."""
    return "–" if isnan(low) or isnan(high) else f"{100 * low:.0f}–{100 * high:.0f}"


def amount(value: float, cost: Cost) -> str:
    """A cost in few characters: 12,500 tokens are 12.5k, 3e9 FLOPs are 3G; tokens below a thousand are whole."""
    return f"{value:.0f}" if cost == "generated" and value < 999.5 else html.amount(value)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
