"""The audit of recorded pools: what `metagen grade` says of samples, shows on the page and keeps as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.directory import RunDirectory
from metagen.runs.table import audit


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def graded(pool: Path, run: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["grade", str(pool), *options, "--out", str(run)])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def kept(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "audit.json").read_text("utf-8"))["recorded"]
    return found


#: Right samples come first, in each of 12 problems; every fourth text is no number, and one problem has fewer samples.
RANKED: list[dict[str, Any]] = [
    {"id": f"p{i}", "gold": i,
     "samples": [i, i, "I cannot <say>", 99, 98, 97, f"{i + 50}", "no idea"][: 6 if i == 3 else 8],
     "correct": [1, 1, 0, 0, 0, 0, 0, 0][: 6 if i == 3 else 8], "sure": [9, 9, 7, 6, 5, 4, 3, 2][: 6 if i == 3 else 8]}
    for i in range(12)
]  # fmt: skip


def test_positions_are_those_of_the_file(tmp_path: Path) -> None:
    pool = written(tmp_path / "pool.jsonl", *RANKED)
    graded(pool, tmp_path / "run", "--answer", "number")
    rows = pq.read_table(tmp_path / "run" / "candidates.parquet").to_pylist()
    texts = {record["id"]: list(map(str, record["samples"])) for record in RANKED}
    assert all(row["text"] == texts[row["problem"]][row["position"]] for row in rows)
    assert len({(row["problem"], row["position"]) for row in rows}) == len(rows) == 94


def test_what_hides_in_a_pool_is_said_shown_and_kept(tmp_path: Path) -> None:
    pool, run = written(tmp_path / "pool.jsonl", *RANKED), tmp_path / "run"
    output = graded(pool, run, "--answer", "number", "--correct", "correct", "--score", "sure")
    assert "23 of 94 (24.5%) samples have no answer that the rule can read" in output
    assert "'I cannot <say>' of 'p0'" in output and "Name a rule that reads them" in output
    assert "verdicts depend on the place in the file (z = -" in output
    assert "the file is sorted by score 'sure'" in output
    assert "1 of 12 (8.3%) problems have fewer samples than the others: from 6 ('p3') to 8" in output
    assert (
        output.index("no answer that the rule")
        < output.index("place in the file")
        < output.index("fewer samples")
    )
    found = kept(run)
    assert found["counts"]["unread"] == 23 and found["counts"]["scores"]["sure"]["tied"] == 12
    assert found["counts"]["trend"]["first"] > 0.9 > found["counts"]["trend"]["last"]
    assert [example["problem"] for example in found["unread"]] == ["p0", "p1", "p10"] or len(
        found["unread"]
    ) == 3
    page = (run / "report.html").read_text("utf-8")
    assert "I cannot &lt;say&gt;" in page and "audit.json" in page
    again = CliRunner().invoke(app, ["report", str(run)])
    assert "samples have no answer that the rule can read" in " ".join(again.output.split())


def test_verdicts_that_contradict_the_rule_are_named(tmp_path: Path) -> None:
    rows = [{"id": "a", "samples": ["A. x", "A. y", "B", "B"], "right": [1, 0, 0, 0]},
            {"id": "b", "samples": ["C", "D", "E", "E"], "right": [1, 1, 0, 0]}]  # fmt: skip
    output = graded(
        written(tmp_path / "pool.jsonl", *rows), tmp_path / "run", "--answer", "choice", "--correct", "right"
    )
    assert "1 class of answers in 1 problem holds right and wrong samples, such as 'A' of 'a'" in output
    assert "in 1 problem the right samples are of several classes of answers" in output
    assert kept(tmp_path / "run")["mixed"]["key"] == "A"


def test_repeats_and_ties_are_told(tmp_path: Path) -> None:
    long = "so and so " * 20
    rows = [{"id": f"p{i}", "samples": [f"{long} {i}", f"{long} {i}", f"{long} no"], "right": [1, 1, 0],
             "judge": [1.0, 0.5, 1.0]}
            for i in range(4)]  # fmt: skip
    pool = written(tmp_path / "pool.jsonl", *rows)
    output = graded(pool, tmp_path / "run", "--answer", "text", "--correct", "right", "--score", "judge")
    assert "4 of 12 (33.3%) samples repeat another one of their problem word for word" in output
    assert (
        "score 'judge': 4 of 4 problems have their highest score several times, 4 of them for right" in output
    )


def test_a_pool_with_nothing_to_say_is_quiet(tmp_path: Path) -> None:
    rows = [
        {"id": f"p{i}", "gold": "A", "samples": ["A", "B", "B", "A"] if i % 2 else ["B", "A", "A", "B"]}
        for i in range(8)
    ]
    run = tmp_path / "run"
    output = graded(written(tmp_path / "pool.jsonl", *rows), run, "--answer", "choice")
    assert "Audit of the recorded samples" not in output
    assert kept(run)["lines"] == [] and kept(run)["counts"]["samples"] == 32
    assert "32 recorded samples were examined without a finding" in (run / "report.html").read_text("utf-8")


def test_samples_that_were_drawn_are_not_audited(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert audit.of_run(RunDirectory(run), ()) == ()
    assert not (run / "audit.json").exists()
