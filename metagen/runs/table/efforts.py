"""In words, how many answers of a run are best efforts, because a budget ended first for example."""

from __future__ import annotations

from collections import Counter

from pyarrow.parquet import read_schema

from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import parts

#: Configurations that the line names; of the rest it gives the number.
NAMED = 4


def effort_lines(directory: RunDirectory) -> list[str]:
    """At most one sentence, without its full stop: the configurations with most best efforts first."""
    path = directory.table("outcomes")
    # Runs of earlier versions do not tell.
    if not path.exists() or "exhausted" not in read_schema(path).names:
        return []
    totals, ended = Counter[str](), Counter[str]()
    for part in parts(path, ["configuration", "exhausted"]):
        for counted, rows in ((totals, part), (ended, part.filter(part["exhausted"]))):
            counted.update(
                {v["values"]: v["counts"] for v in rows["configuration"].value_counts().to_pylist()}
            )
    if not ended:
        return []
    first = sorted(ended, key=lambda name: (-ended[name] / totals[name], name))
    told = [f"{name} on {ended[name]} of {totals[name]} problems" for name in first[:NAMED]]
    told += [f"{len(first) - NAMED} more configurations"] if len(first) > NAMED else []
    return [
        "Some answers are best efforts, because the budget ended first or no candidate had an answer: "
        + ", ".join(told)
    ]
