"""What nobody could judge of a run, in words: samples without a score, and without a grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc
from pyarrow.parquet import read_schema
from rich.text import Text

from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import parts

#: Of samples that a strategy never had scored: that is its own choice, and nobody failed to judge them.
NOT_ASKED = "not asked"


def unscored_lines(directory: RunDirectory) -> Iterator[Text]:
    """For each verifier: the samples without a score, by verdict, and the written verdicts that nobody can read."""
    missing: Counter[tuple[str, str]] = Counter()
    unread: Counter[str] = Counter()
    scores: Counter[str] = Counter()
    for table in ("candidates", "attempts"):
        path = directory.table(table)
        # Runs of earlier versions tell no verdicts.
        names = [] if not path.exists() else read_schema(path).names
        for name in (name.removeprefix("verdict.") for name in names if name.startswith("verdict.")):
            for part in parts(path, [f"score.{name}", f"verdict.{name}", f"unread.{name}"]):
                value, verdict, count = (part[f"{kind}.{name}"] for kind in ("score", "verdict", "unread"))
                lacking = verdict.filter(pc.is_null(value)).drop_null()
                lacking = lacking.filter(pc.not_equal(lacking, NOT_ASKED))
                scores[name] += len(part) - value.null_count + len(lacking)
                missing.update({(name, v["values"]): v["counts"] for v in lacking.value_counts().to_pylist()})
                unread[name] += pc.sum(count).as_py() or 0
    for name, total in scores.items():
        silent = {verdict: count for (of, verdict), count in sorted(missing.items()) if of == name and count}
        why = ", ".join(f"{verdict}: {count}" for verdict, count in silent.items())
        words = [f"no score for {sum(silent.values())} of {total} samples ({why})"] if silent else []
        words += (
            [f"{unread[name]} written verdicts cannot be read and count for nothing"] if unread[name] else []
        )
        if words:
            yield Text(f"{name}: {'; '.join(words)}.", "yellow")


def ungraded_lines(directory: RunDirectory) -> Iterator[Text]:
    """For each generator or configuration: the samples that the grader could not judge."""
    for table, column in (("candidates", "generator"), ("outcomes", "configuration")):
        path = directory.table(table)
        # Runs of earlier versions do not tell.
        if not path.exists() or "ungraded" not in read_schema(path).names:
            continue
        totals, unknown = Counter[str](), Counter[str]()
        for part in parts(path, [column, "ungraded"]):
            for counted, rows in ((totals, part), (unknown, part.filter(part["ungraded"]))):
                counted.update({v["values"]: v["counts"] for v in rows[column].value_counts().to_pylist()})
        for name, count in unknown.items():
            if count:
                share = f"{100 * count / totals[name]:.1f}%"
                yield Text(
                    f"{name}: {count} of {totals[name]} samples ({share}) are ungraded: no test shows them wrong, and "
                    "some test could not judge them. They count as wrong.",
                    "yellow",
                )
