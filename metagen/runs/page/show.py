"""One problem of a run, looked at closely: what was asked, what came, how it was scored, and who won."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from metagen.errors import InputError
from metagen.runs.directory import Cell, RunDirectory, State
from metagen.runs.names import nearest
from metagen.runs.table.problem import Distinct, Examined, Pool, Record, examine
from metagen.runs.table.tables import read
from metagen.runs.words import cost_amount as amount
from metagen.runs.work import unfinished

#: From the worst score to the best; readable on light and on dark ground.
COLOURS = ("red3", "dark_orange3", "gold3", "chartreuse4", "green4")
#: Candidates shown unless all are asked for.
SHOWN = 6
#: Lines of a thought shown unless all are asked for.
THOUGHT = 12
#: Answers shown with their votes.
ANSWERS = 10


def show(
    directory: RunDirectory, problem: str, *, generator: str | None = None, everything: bool = False
) -> RenderableType:
    """What a run knows of a problem; of a run without an end, what it has finished of it so far.

    Raises InputError for a problem of which nothing is finished yet and, with the nearest names, for a problem or a
    generator that the run does not have.
    """
    with unfinished.tables(directory, problem) as (tables, state):
        found = next(examine(tables, state.lines, problem=problem), None)
        if found is None:
            raise unfinished.unknown(
                directory, problem, read(tables.table("problems"), ["problem"])["problem"].to_pylist()
            )
    names = list(dict.fromkeys(line.generator for line in state.lines))
    if generator is not None and generator not in names:
        raise InputError(f"the run has no generator {generator!r}; {nearest(generator, names, 'generators')}")
    pools = {pool.generator: pool for pool in found.pools if pool.configuration is None}
    parts: list[RenderableType] = [_question(found)]
    if state.status in ("running", "interrupted"):
        parts.append(
            Text(f"What the run has finished so far ({state.status}); {directory.resume_hint}", "yellow")
        )
    for name in [generator] if generator else names:
        direct = list(_direct([line for line in state.lines if line.generator == name], found.outcomes))
        if name in pools:
            parts += _generator(pools[name], everything)
        elif not direct:
            parts.append(Text(f"{name}: nothing is finished", "dim"))
        parts += direct
    parts += _failures(state, problem)
    return Group(*(Padding(part, (0, 0, 0, 1)) for part in parts))


def _question(problem: Examined) -> RenderableType:
    level = f", level {problem.level}" if problem.level is not None else ""
    return Panel(
        Text(problem.prompt.rstrip("\n")),
        title=Text.assemble((problem.problem, "bold"), level),
        title_align="left",
        subtitle=Text(f"answer: {problem.reference}"),
        subtitle_align="left",
    )


def _generator(pool: Pool, everything: bool) -> Iterator[RenderableType]:
    yield Rule(Text(f"{pool.generator}: {pool.right} of {pool.size} right", "bold"), align="left")
    for part in (_candidates(pool, everything), _votes(pool), _choices(pool), _usage(pool)):
        yield Padding(part, (0, 0, 1, 0))


def _candidates(pool: Pool, everything: bool) -> RenderableType:
    """Distinct candidates with their steps; a step's score stands before it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_lines=True)
    table.add_column("sample", justify="right")
    for verifier in pool.verifiers:
        table.add_column(verifier, justify="right")
    table.add_column("tokens", justify="right")
    table.add_column("steps" if pool.process is None else f"steps, scored by {pool.process}")
    shown = pool.distinct[: None if everything else SHOWN]
    for c in shown:
        often = f"\n×{len(c.samples)}" if len(c.samples) > 1 else ""
        number = Text(f"{c.samples[0]} ", justify="right").append(*_mark(c.correct)).append(often, "dim")
        tokens = "?" if c.tokens is None else f"{c.tokens:.0f}"
        table.add_row(
            number,
            *(_score(c.scores[v]) for v in pool.verifiers),
            tokens,
            _steps(c, pool.process, everything),
        )
    if len(shown) == len(pool.distinct):
        return table
    return Group(table, Text(f"… {len(pool.distinct) - len(shown)} more candidates: add --all", "dim"))


def _steps(candidate: Distinct, process: str | None, everything: bool) -> Text:
    """The thought, where there is one, and the text, line by line; a step's value before it."""
    text = Text()
    if candidate.thinks:
        text.append(_thought(candidate, everything), "dim")
    for i, (line, value) in enumerate(candidate.scored_lines(process)):
        text.append("\n" if i else "")
        if value is not None:
            text.append(f"{value:.2f} ", _colour(value))
        text.append(line)
    if candidate.flaw:
        text.append(f"\n[{candidate.flaw}]", "dim italic")
    return text


def _thought(candidate: Distinct, everything: bool) -> str:
    tokens = "" if candidate.thought_tokens is None else f" of {candidate.thought_tokens:,} tokens"
    if candidate.thought is None:
        return f"[a thought{tokens} that is not shown]\n"
    lines = candidate.thought.strip().splitlines()
    left = 0 if everything else max(0, len(lines) - THOUGHT)
    more = [f"… {left} more lines: add --all"] if left else []
    return "\n".join([f"[thought{tokens}]", *lines[: len(lines) - left], *more, "[answer]", ""])


def _votes(pool: Pool) -> Table:
    """Answers by votes, with the total score that each verifier gives them."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("answer", "", "votes", *(f"Σ {v}" for v in pool.verifiers)):
        table.add_column(name, justify="left" if name in ("answer", "") else "right")
    for vote in pool.votes[:ANSWERS]:
        bar = Bar(pool.size, 0, vote.votes, width=24, color="green" if vote.correct else "grey50")
        key = Text(vote.key, "green" if vote.correct else "default").append(" ").append(*_mark(vote.correct))
        table.add_row(key, bar, str(vote.votes), *(f"{vote.totals[v]:.2f}" for v in pool.verifiers))
    if others := pool.votes[ANSWERS:]:
        table.add_row(Text(f"{len(others)} others", "dim"), "", str(sum(vote.votes for vote in others)))
    if pool.silent:
        bar = Bar(pool.size, 0, pool.silent, width=24, color="grey35")
        table.add_row(Text("no vote", "dim"), bar, str(pool.silent))
    return table


def _choices(pool: Pool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("strategy", "chooses", "sample"):
        table.add_column(name)
    for choice in pool.choices:
        answer = Text(choice.answer or "no answer").append(" ").append(*_mark(choice.correct))
        table.add_row(choice.label, answer, str(choice.sample))
    return table


def _direct(lines: abc.Sequence[Cell], outcomes: abc.Sequence[Record]) -> Iterator[RenderableType]:
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
        ended = "best effort" if o["exhausted"] else ""
        table.add_row(o["configuration"], answer, _amount(o["generated"]), _amount(o["flops"]), ended)
    yield Padding(table, (0, 0, 1, 0))


def _usage(pool: Pool) -> Table:
    """Usage of the pool, by part."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("spent on", "prefilled", "cached", "generated", "FLOPs", "seconds"):
        table.add_column(name, justify="left" if name == "spent on" else "right")
    for s in pool.spent:
        counts = (_amount(s[name]) for name in ("prefilled", "cached", "generated", "flops"))
        table.add_row(s["part"], *counts, f"{s['seconds']:.2f}")
    return table


def _failures(state: State, problem: str) -> Iterator[RenderableType]:
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
