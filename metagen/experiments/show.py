"""One problem of a run, looked at closely: what was asked, what came, how it was scored, and who won."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Ordered
from typing import Any

import pyarrow.parquet as pq
from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from metagen.errors import InputError
from metagen.experiments.directory import Line, RunDirectory, State, nearest
from metagen.experiments.report import amount
from metagen.experiments.tables import read
from metagen.strategies.aggregate import best_of, weighted_vote

#: From the worst score to the best; readable on light and on dark ground.
COLOURS = ("red3", "dark_orange3", "gold3", "chartreuse4", "green4")
#: Candidates shown unless all are asked for.
SHOWN = 6
#: Answers shown with their votes.
ANSWERS = 10
Record = Mapping[str, Any]


def show(
    directory: RunDirectory, problem: str, *, generator: str | None = None, everything: bool = False
) -> RenderableType:
    """Raises InputError, with the nearest names, for a problem or a generator that the run does not have."""
    state = directory.finished()
    found = read(directory.table("problems"), problem=problem).to_pylist()
    if not found:
        known = pq.read_table(directory.table("problems"), columns=["problem"])["problem"].to_pylist()
        raise InputError(
            f"the run {str(directory.root)!r} has no problem {problem!r}; {nearest(problem, known, 'problems')}"
        )
    names = list(dict.fromkeys(line.generator for line in state.lines))
    if generator is not None and generator not in names:
        raise InputError(f"the run has no generator {generator!r}; {nearest(generator, names, 'generators')}")
    candidates = read(directory.table("candidates"), problem=problem).sort_by("sample").to_pylist()
    outcomes = read(directory.table("outcomes"), problem=problem).to_pylist()
    spent = read(directory.table("costs"), problem=problem).to_pylist()
    parts: list[RenderableType] = [_asked(found[0])]
    for name in [generator] if generator else names:
        ours = [c for c in candidates if c["generator"] == name]
        lines = [line for line in state.lines if line.generator == name]
        parts += _generator(
            name, ours, lines, found[0]["salt"], [s for s in spent if s["generator"] == name], everything
        )
        parts += _direct(lines, outcomes)
    parts += _failed(state, problem)
    return Group(*(Padding(part, (0, 0, 0, 1)) for part in parts))


def _asked(problem: Record) -> RenderableType:
    level = f", level {problem['level']}" if problem["level"] is not None else ""
    title = Text.assemble((problem["problem"], "bold"), level)
    return Panel(
        Text(problem["prompt"].rstrip("\n")),
        title=title,
        title_align="left",
        subtitle=Text(f"answer: {problem['reference']}"),
        subtitle_align="left",
    )


def _generator(
    name: str,
    candidates: Ordered[Record],
    lines: Ordered[Line],
    salt: str,
    spent: Ordered[Record],
    everything: bool,
) -> Iterator[RenderableType]:
    if not candidates:
        return
    right = sum(c["correct"] for c in candidates)
    yield Rule(Text(f"{name}: {right} of {len(candidates)} right", "bold"), align="left")
    for part in (
        _candidates(candidates, everything),
        _votes(candidates),
        _chosen(candidates, lines, salt),
        _spent(spent),
    ):
        yield Padding(part, (0, 0, 1, 0))


def _verifiers(candidate: Record) -> list[str]:
    return [name.removeprefix("score.") for name in candidate if name.startswith("score.")]


def _candidates(candidates: Ordered[Record], everything: bool) -> RenderableType:
    """Distinct candidates with their steps; a step's score stands before it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_lines=True)
    scored = [v for v in _verifiers(candidates[0]) if any(c[f"score.{v}"] is not None for c in candidates)]
    process = next((v for v in scored if any(c[f"steps.{v}"] for c in candidates)), None)
    table.add_column("sample", justify="right")
    for verifier in scored:
        table.add_column(verifier, justify="right")
    table.add_column("tokens", justify="right")
    table.add_column("steps" if process is None else f"steps, scored by {process}")
    first: dict[str, Record] = {}
    for c in candidates:
        first.setdefault(c["text"], c)
    times = Counter(c["text"] for c in candidates)
    shown = list(first.values())[: None if everything else SHOWN]
    for c in shown:
        often = f"\n×{times[c['text']]}" if times[c["text"]] > 1 else ""
        number = Text(f"{c['sample']} ", justify="right").append(*_mark(c["correct"])).append(often, "dim")
        tokens = "?" if c["generated"] is None else f"{c['generated']:.0f}"
        table.add_row(number, *(_score(c[f"score.{v}"]) for v in scored), tokens, _steps(c, process))
    if len(shown) == len(first):
        return table
    return Group(table, Text(f"… {len(first) - len(shown)} more candidates: add --all", "dim"))


def _steps(candidate: Record, process: str | None) -> Text:
    """The text, line by line; values of steps are matched to lines where there is one each."""
    lines = candidate["text"].splitlines() or [""]
    values = candidate[f"steps.{process}"] if process else None
    text = Text()
    for i, line in enumerate(lines):
        if values and len(values) == len(lines):
            text.append(f"{values[i]:.2f} ", _colour(values[i])).append(line)
        else:
            text.append(line)
        text.append("\n" if i < len(lines) - 1 else "")
    if not candidate["eligible"]:
        why = "unfinished" if candidate["finish"] not in ("eos", "stop") else "no answer that can be read"
        text.append(f"\n[{why}]", "dim italic")
    return text


def _votes(candidates: Ordered[Record]) -> Table:
    """Answers by votes, with the total score that each verifier gives them."""
    verifiers = _verifiers(candidates[0])
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("answer", "", "votes", *(f"Σ {v}" for v in verifiers)):
        table.add_column(name, justify="left" if name in ("answer", "") else "right")
    able = [c for c in candidates if c["eligible"]]
    answers = Counter(c["key"] for c in able).most_common()
    for key, votes in answers[:ANSWERS]:
        ours = [c for c in able if c["key"] == key]
        style = "green" if ours[0]["correct"] else "default"
        bar = Bar(len(candidates), 0, votes, width=24, color="green" if ours[0]["correct"] else "grey50")
        totals = (f"{sum(c[f'score.{v}'] or 0.0 for c in ours):.2f}" for v in verifiers)
        table.add_row(
            Text(key, style).append(" ").append(*_mark(ours[0]["correct"])), bar, str(votes), *totals
        )
    if others := answers[ANSWERS:]:
        table.add_row(Text(f"{len(others)} others", "dim"), "", str(sum(votes for _, votes in others)))
    if rest := len(candidates) - len(able):
        table.add_row(
            Text("no vote", "dim"), Bar(len(candidates), 0, rest, width=24, color="grey35"), str(rest)
        )
    return table


def _chosen(candidates: Ordered[Record], lines: Ordered[Line], salt: str) -> Table:
    """What each strategy makes of the pool, at its largest n: of the first n candidates, as if it ran now."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("strategy", "chooses", "sample"):
        table.add_column(name)
    largest = {line.strategy: line for line in sorted(lines, key=lambda line: line.n or 1) if line.pooled}
    for line in largest.values():
        pool = candidates[: line.n or 1]
        best = pool[choose(pool, line, salt)]
        label = f"{line.strategy}{f'@{line.n}' if line.n else ''}{' (oracle)' if line.oracle else ''}"
        answer = Text(best["answer"] or "no answer").append(" ").append(*_mark(best["correct"]))
        table.add_row(label, answer, str(best["sample"]))
    return table


def choose(candidates: Ordered[Record], line: Line, salt: str) -> int:
    """The index of the candidate that a pooled configuration picks, by the strategies' own rules."""
    if line.kind == "sample":
        return 0
    able = [i for i, c in enumerate(candidates) if c["eligible"]] or list(range(len(candidates)))
    keys, texts = [candidates[i]["key"] for i in able], [candidates[i]["text"] for i in able]
    weights = [candidates[i][f"score.{line.verifier}"] if line.verifier else 1.0 for i in able]
    if line.kind == "best_of_n":
        return able[best_of(weights, texts, salt).index]
    return able[weighted_vote(keys, weights, texts, salt).index]


def _direct(lines: Ordered[Line], outcomes: Ordered[Record]) -> Iterator[RenderableType]:
    """What configurations that ran by themselves returned."""
    by_name = {o["configuration"]: o for o in outcomes}
    ours = [by_name[line.name] for line in lines if line.name in by_name]
    if not ours:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("ran by itself", "returns", "tokens", "FLOPs", ""):
        table.add_column(name)
    for o in ours:
        answer = Text(o["answer"] or "no answer").append(" ").append(*_mark(o["correct"]))
        ended = "its budget ended" if o["exhausted"] else ""
        table.add_row(o["configuration"], answer, _amount(o["generated"]), _amount(o["flops"]), ended)
    yield Padding(table, (0, 0, 1, 0))


def _spent(spent: Ordered[Record]) -> Table:
    """Usage of the pool, by part."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("spent on", "prefilled", "cached", "generated", "FLOPs", "seconds"):
        table.add_column(name, justify="left" if name == "spent on" else "right")
    most = max((s["n"] for s in spent), default=0)
    for s in spent:
        if s["n"] == most:
            counts = (_amount(s[name]) for name in ("prefilled", "cached", "generated", "flops"))
            table.add_row(s["part"], *counts, f"{s['seconds']:.2f}")
    return table


def _failed(state: State, problem: str) -> Iterator[RenderableType]:
    for failure in state.failures:
        if failure.problem == problem:
            yield Text(f"{failure.part} failed: {failure.message}", "red")


def _amount(value: float | None) -> str:
    return "?" if value is None else amount(value, "generated")


def _mark(correct: bool) -> tuple[str, str]:
    return ("✓", "green") if correct else ("✗", "red")


def _score(value: float | None) -> Text:
    return Text("–", "dim") if value is None else Text(f"{value:.2f}", _colour(value))


def _colour(value: float) -> str:
    return COLOURS[min(int(value * len(COLOURS)), len(COLOURS) - 1)]
