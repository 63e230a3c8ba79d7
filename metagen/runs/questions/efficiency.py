"""The section of a report on efficiency beyond tokens: work, waiting, memory, occupancy, and what was spent on what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import isfinite
from typing import Any

import numpy as np

from metagen.analysis.figures import Line
from metagen.html import amount
from metagen.runs.curves.efficiency.measure import Load
from metagen.runs.curves.frontier import enough
from metagen.runs.curves.study import StudyResult
from metagen.runs.note import Note
from metagen.runs.questions.section import Finding, Plot, Section, Table

TITLE = "Efficiency beyond tokens"
TEXT = (
    "The roofline models these figures: a call takes at least the time of its FLOPs, and of reading weights, keys and "
    "values. “Work” is the sum over all calls, one at a time. “Waiting” is the longest path of dependent calls, each "
    "on a machine of its own. “Parallelism” is work divided by waiting. On one machine for each model, calls share "
    "slots by continuous batching. Real machines are slower."
)
#: Pairs of configurations of which one costs so much more count as different.
APART = 1.05
#: Courses that a picture shows of an accelerator.
COURSES = 6
_HOW = {"known": "", "at least": "at least ", "assumed": "about "}


def section(result: StudyResult) -> Section:
    """From `facts["efficiency"]`, as `measure` makes it, and the modelled costs of curves; a Note where it is empty."""
    facts: Mapping[str, Any] = result.facts.get("efficiency") or {}
    loads = [Load(**one) for one in facts.get("loads", ())]
    findings = [order(result, name) for name in _accelerators(result)]
    tables = [
        table
        for table in (_waiting(loads), _memory(loads), _machines(facts), _spending_table(facts))
        if table.rows
    ]
    return Section(
        "efficiency",
        TITLE,
        TEXT,
        tuple(findings),
        _pictures(facts),
        tuple(tables),
        tuple(_notes(facts, loads)),
    )


def order(result: StudyResult, accelerator: str) -> Finding:
    """Whether configurations that cost more FLOPs are those that are waited for longer: the share of pairs in order."""
    question = f"Does a budget of FLOPs tell the waiting time of a user (on {accelerator})?"
    claim = (
        "A budget of tokens is not the only measure: methods with equal tokens differ in their waiting time."
    )
    source = "Welleck et al. 2024, From decoding to meta-generation, arXiv:2406.16838"
    points = [
        (flops, wait)
        for curve in enough(result)
        if not curve.oracle and "flops" in curve.costs and f"latency:{accelerator}" in curve.costs
        for flops, wait in zip(curve.cost("flops"), curve.cost(f"latency:{accelerator}"), strict=True)
        if isfinite(flops) and isfinite(wait) and flops > 0 and wait > 0
    ]
    pairs = [(a, b) for a, b in combinations(points, 2) if max(a[0], b[0]) > APART * min(a[0], b[0])]
    if not pairs:
        return Finding(
            question, "Too few configurations have both costs.", claim=claim, source=source, shown=False
        )
    same = float(np.mean([(a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs]))
    near = [max(a[1], b[1]) / min(a[1], b[1]) for a, b in combinations(points, 2)
            if max(a[0], b[0]) <= APART * min(a[0], b[0])]  # fmt: skip
    widest = (
        f" With equal FLOPs, within {APART - 1:.0%}, one takes up to {max(near):.2g} times as long as another."
        if near
        else ""
    )
    return Finding(
        question,
        f"Of {len(pairs):,} pairs of configurations with different FLOPs, {same:.0%} have the same order of waiting "
        f"times; {1 - same:.0%} do not.{widest}",
        estimate=same, unit="share of pairs", claim=claim, source=source,
    )  # fmt: skip


def _accelerators(result: StudyResult) -> list[str]:
    names = {
        c.removeprefix("latency:"): None
        for curve in result.curves
        for c in curve.costs
        if c.startswith("latency:")
    }
    return list(names)


def _waiting(loads: list[Load]) -> Table:
    columns = (
        "configuration",
        "accelerator",
        "work",
        "waiting",
        "parallelism",
        "calls on the path",
        "one machine",
    )
    rows = [
        (
            one.configuration, one.accelerator, time(one.work), _HOW[one.how] + time(one.waiting),
            f"{one.parallelism:.1f}", f"{one.steps:.1f}", time(one.alone),
        )
        for one in loads
    ]  # fmt: skip
    caption = (
        "Modelled time of a problem: for all calls, for the longest path, and on one machine for each model."
    )
    return Table("waiting", caption, columns, tuple(rows), frozenset(range(2, len(columns))))


def _memory(loads: list[Load]) -> Table:
    columns = (
        "configuration", "accelerator", "shareable prefix", "keys and values, mean", "at the peak", "peak unshared",
        "sequences, mean", "at the peak", "of slots",
    )  # fmt: skip
    rows = [
        (
            one.configuration, one.accelerator, f"{one.shareable:.0%}", size(one.held), size(one.held_peak),
            size(one.apart_peak), f"{one.running:.1f}", f"{one.running_peak:.1f}", str(one.slots),
        )
        for one in loads
    ]  # fmt: skip
    caption = (
        "Memory and occupancy while one problem runs on one machine for each model. “Shareable” is the share of read "
        "tokens that another call had read before."
    )
    return Table("memory", caption, columns, tuple(rows), frozenset(range(2, len(columns))))


def _machines(facts: Mapping[str, Any]) -> Table:
    columns = ("accelerator", "hardware", "FLOP/s", "bytes/s", "FLOPs per byte", "batch")
    rows = [
        (
            str(a["name"]), str(a["hardware"]), amount(a["peak"]), amount(a["bandwidth"]),
            f"{a['peak'] / a['bandwidth']:.0f}", str(a["batch"]),
        )
        for a in facts.get("accelerators", ())
    ]  # fmt: skip
    caption = "The accelerators. Below this number of FLOPs for each byte read, bandwidth is the limit."
    return Table("accelerators", caption, columns, tuple(rows), frozenset(range(2, len(columns))))


def _spending_table(facts: Mapping[str, Any]) -> Table:
    columns = ("who", "what", "calls", "generated", "read", "cached", "FLOPs", "share", "computed twice")
    parts = list(facts.get("spent", ()))
    total = None if any(p["flops"] is None for p in parts) else sum(p["flops"] for p in parts)
    rows = [
        (
            p["name"], p["what"], f"{p['calls']:,}", *(_count(p[of]) for of in ("generated", "prefilled", "cached")),
            _count(p["flops"]), f"{p['flops'] / total:.0%}" if p["flops"] and total else "–",
            ("at least " if p["partly"] and p["wasted"] is not None else "") + _count(p["wasted"]),
        )
        for p in parts
    ]  # fmt: skip
    caption = (
        "Tokens of the whole run, with each record counted once. “Computed twice” counts tokens beyond the accounted "
        "ones, such as prefixes that an engine's cache had lost."
    )
    return Table("spent", caption, columns, tuple(rows), frozenset(range(2, len(columns))))


def _pictures(facts: Mapping[str, Any]) -> tuple[Plot, ...]:
    """Courses over time of the problem of median length, a panel for each accelerator."""
    every = [c for c in facts.get("courses", ()) if c["seconds"][-1] > 0]
    if not every:
        return ()
    longest = {
        name: sorted((c["seconds"][-1] for c in every if c["accelerator"] == name), reverse=True)[:COURSES]
        for name in {c["accelerator"] for c in every}
    }
    courses = [c for c in every if c["seconds"][-1] >= longest[c["accelerator"]][-1]]
    few = "" if len(courses) == len(every) else f" The {COURSES} slowest configurations are shown."

    def panels(of: str, scale: float) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for one in courses:
            x, y = [1e3 * s for s in one["seconds"]], [v * scale for v in one[of]]
            found.setdefault(one["accelerator"], []).append(Line(one["configuration"], x, y))
        return found

    said = f"One problem of median length, on one machine for each model. A line is zero after the end.{few}"
    return (
        Plot("memory-over-time", "Keys and values held over time", f"{said} Shared prefixes count once.",
             "modelled milliseconds", "megabytes held", panels("held", 1e-6), "linear"),
        Plot("sequences-over-time", "Sequences that run side by side", said,
             "modelled milliseconds", "sequences running", panels("running", 1.0), "linear"),
    )  # fmt: skip


def _notes(facts: Mapping[str, Any], loads: list[Load]) -> list[Note]:
    notes = []
    if not facts:
        notes.append(Note("efficiency", "no calls were measured; give study.accelerators, and run the study"))
    if unknown := facts.get("unknown"):
        text = "nothing is modelled for it: the shape of a model, or the tokens of its calls, are unknown"
        notes += [Note(name, text) for name in unknown]
    for how, text in (
        ("at least", "its waiting is a lower bound: it also waits for choices that its calls do not record, such as "
         "those by the scores of other branches"),
        ("assumed", "it compares or reads several samples at once; each such call is assumed to wait for all of them"),
    ):  # fmt: skip
        notes += [
            Note(name, text) for name in dict.fromkeys(one.configuration for one in loads if one.how == how)
        ]
    if any(one.problems for one in loads):
        most = max(one.problems for one in loads)
        notes.append(
            Note("efficiency", f"memory, occupancy and paths are means over {most:,} problems, evenly spread")
        )
    return notes


def time(seconds: float) -> str:
    """Seconds in the unit that fits."""
    if not isfinite(seconds):
        return "unknown"
    unit, scale = next(
        (u, k) for u, k in (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)) if seconds * k >= 1 or k == 1e9
    )
    return f"{seconds * scale:.3g} {unit}"


def size(count: float) -> str:
    """Bytes in the unit that fits."""
    if not isfinite(count):
        return "unknown"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def _count(value: float | None) -> str:
    return "unknown" if value is None else amount(value)
