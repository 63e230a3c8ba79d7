"""Who answered: the names that a run notes, and those that its records bear."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.page import report
from metagen.runs.work import build, runner
from metagen.runs.work.makers import Makers

Write = Callable[..., Path]
TINY = """\
name: tiny
task: {kind: arithmetic, split: test, limit: 2}
engines:
  writer: {kind: torch, model: tiny-0.1m, device: cpu}
  reader: {kind: torch, model: tiny-prm, device: cpu}
generators:
  small: {kind: engine, engine: writer, max_tokens: 24}
  cold: {kind: engine, engine: writer, max_tokens: 24, temperature: 0.5}
verifiers:
  last: {kind: prm, engine: reader, aggregation: last}
  least: {kind: prm, engine: reader, aggregation: min}
  pair: {kind: ensemble, members: [last, least]}
  judge: {kind: judge, engine: writer, chat: false, critiques: 2, max_tokens: 8}
strategies:
  most-likely: {kind: greedy}
  best: {kind: best_of_n, verifier: last}
  worst: {kind: best_of_n, verifier: least}
  both: {kind: best_of_n, verifier: pair}
  asked: {kind: best_of_n, verifier: judge}
grid: {n: [2]}
"""


def run(file: Path, root: Path, *sets: str) -> RunDirectory:
    directory = RunDirectory.at(root)
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, directory)
    return directory


def said(directory: RunDirectory) -> set[str]:
    """The names that the records of a run bear."""
    makers = Makers.of_run(directory)
    with SQLiteJournal(directory.journal, read_only=True) as journal:
        rows = [row for problem in journal.problems() for row in journal.of_problem(problem)]
    return {f"{row.kind}: {makers.name(row.by)}" for row in rows}


def test_every_record_has_a_name(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    directory = run(file, tmp_path / "run")
    assert said(directory) == {
        "generate: small", "generate: cold", "generate: small/most-likely, cold/most-likely",
        "score: last, least", "score: judge", "generate: judge",
    }  # fmt: skip
    noted = json.loads(directory.environment.read_text())
    assert set(noted["engines"]) == {"writer", "reader"}
    assert "python" in noted["versions"]


def test_names_of_earlier_calls_are_kept(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file()
    run(file, tmp_path / "run", "grid.generators=[small]", "grid.n=[2]", "grid.strategies=[majority]")
    directory = run(
        file, tmp_path / "run", "grid.generators=[large]", "grid.n=[4]", "grid.strategies=[best-of-n]"
    )
    assert said(directory) == {"generate: small", "generate: large", "score: judge"}
    report.publish(directory)
    page = (directory.root / "report.html").read_text()
    assert '<th scope="row">small</th><td>generation</td><td class="n">12</td>' in page
    assert '<th scope="row">large</th><td>generation</td><td class="n">24</td>' in page


def test_with_a_budget_too(experiment_file: Write, tmp_path: Path) -> None:
    directory = run(experiment_file(more="budget: {generated: 60}\n"), tmp_path / "run")
    assert said(directory) == {"generate: small", "generate: large", "score: judge"}


def test_without_notes_there_are_fingerprints(experiment_file: Write, tmp_path: Path) -> None:
    directory = run(experiment_file(), tmp_path / "run")
    names = Makers.of_run(directory).names
    shutil.move(directory.environment, tmp_path / "elsewhere")
    assert said(directory) == {
        f"{'score' if name == 'judge' else 'generate'}: {by[:8]}"
        for by, name in names.items()
        if name in ("small", "large", "judge")
    }
