"""Estimates of runs as they are shown in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from metagen.html import amount
from metagen.runs.work.forecast.estimate import Estimate, Part


def render(found: Estimate) -> RenderableType:
    """A table of the parts, and how their figures were made."""
    total = found.total
    most = "at most " if found.bounds else "about "
    columns = {"prefilled": "prefilled", "generated": "generated", "FLOPs": "flops"}
    columns |= {"least s": "seconds"} if any(part.seconds for part in found.parts) else {}
    columns |= {"money": "money"} if any(part.money is not None for part in found.parts) else {}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_footer=True)
    table.add_column("", "total")
    columns = {"calls": "calls", "recorded": "recorded"} | columns
    for title, name in columns.items():
        table.add_column(title, amount(getattr(total, name)), justify="right")
    for part in found.parts:
        table.add_row(part.name, *(amount(getattr(part, name)) for name in columns.values()))
    counted = found.counted
    told = f"{most}{_sentence(counted)}"
    if found.missing:
        told = (
            f"unknown in all; counted are {told}" if found.parts else "unknown, since nothing can be counted"
        )
    head = Text.assemble((found.name, "bold"), f"  {found.problems:,} problems: {told}")
    head.append(_times(found))
    lines = [f"{part.name}: {'; '.join(part.how)}" for part in found.parts if part.how]
    lines += [f"not counted: {what}" for what in found.missing] + list(found.notes)
    if found.missing and not found.probed:
        lines.append(f"? is unknown: {MEASURE}")
    if counted.calls and counted.seconds is None and found.seconds is None:
        lines.append(
            "time: --probe 2 measures the pace of this machine, --hardware h200 tells the least on such a one"
        )
    how = Text("\n".join(["How this was estimated", *lines]))
    how.stylize("bold", 0, 22)
    told = "Only the probe was run" if found.probed else "Nothing was run"
    return Group(head, table, how, Text(f"{told}; the experiment is, without --dry-run.", "dim"))


#: How to learn of what is not counted.
MEASURE = "--probe 2 runs two problems, and measures what could not be counted"


def probe_cost(found: Estimate, problems: int) -> str:
    """What a probe of so many problems is expected to take, before it is run. found: an estimate of a new run."""
    count, counted = min(problems, found.problems), found.counted
    share = count / max(1, found.problems)
    figures = {name: getattr(counted, name) for name in ("calls", "generated", "flops", "money")}
    scaled = {name: None if value is None else share * value for name, value in figures.items()}
    words = [f"{amount(scaled['calls'])} calls", f"{amount(scaled['generated'])} tokens generated"]
    words += [f"{amount(scaled['flops'])} FLOPs"]
    words += [f"a price of {scaled['money']:,.2f}"] if scaled["money"] is not None else []
    told = f"{count:,} of {found.problems:,} problems, {'at most' if found.bounds else 'about'} {', '.join(words)}"
    if found.missing:
        told += f"; in addition what cannot be counted before it runs: {found.uncounted}"
    return told


def _sentence(total: Part) -> str:
    """The whole in words."""
    if not total.calls:
        return "nothing is left to do, all is in the journal"
    words = [f"{amount(total.calls)} calls", f"{amount(total.generated)} tokens generated"]
    words += [f"{amount(total.prefilled)} prefilled", f"{amount(total.flops)} FLOPs"]
    words += [f"a price of {total.money:,.2f}"] if total.money is not None else []
    return ", ".join(words)


def _times(found: Estimate) -> str:
    """Time in clauses of its own: a least time is no upper bound, and a pace is neither."""
    words = ""
    if found.total.calls and found.hardware and found.total.seconds is not None:
        words += f"; at least {amount(found.total.seconds)} s on {found.hardware}"
    if found.seconds is not None:
        # Only here, since what makes reports takes a while to import.
        from metagen.runs.words import duration

        where = "of the probe" if found.probed else "of an earlier run"
        time = f"about {duration(found.seconds)}" if found.seconds >= 1 else "less than 1 s"
        words += f"; {time} at the pace {where}"
    return words
