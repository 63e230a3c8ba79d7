"""What configurations that ran by themselves drew: candidates like a pool's, with the scores that they paid for."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.errors import InputError
from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.page import browser, report, show
from metagen.runs.questions import quality
from metagen.runs.table.problem import Examined, Pool, examine
from metagen.runs.work import attempts, build, runner
from metagen.scope import Scope
from metagen.sequence import Sequence

Write = Callable[..., Path]
WIDE, TIGHT = "budget: {generated: 10000}\n", "budget: {generated: 60}\n"


def run(file: Path, root: Path, *sets: str) -> RunDirectory:
    directory = RunDirectory.at(root)
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        assert runner.run(setup, directory).status == "complete"
    return directory


def examined(directory: RunDirectory) -> list[Examined]:
    return list(examine(directory, directory.state().lines))


def pools(problem: Examined) -> dict[str, Pool]:
    return {pool.name: pool for pool in problem.pools}


def test_with_room_enough_they_are_those_of_the_pool(experiment_file: Write, tmp_path: Path) -> None:
    pooled = run(experiment_file(), tmp_path / "pooled")
    direct = run(experiment_file(more=WIDE), tmp_path / "direct")
    for shared, alone in zip(examined(pooled), examined(direct), strict=True):
        # Of each strategy the largest n.
        assert len(alone.pools) == 2 * 5
        pool, own = pools(shared)["small"], pools(alone)["small/best-of-n@8"]
        assert (own.size, own.right, own.voted) == (pool.size, pool.right, pool.voted)
        assert [d.text for d in own.distinct] == [d.text for d in pool.distinct]
        assert [d.scores["judge"] for d in own.distinct] == [d.scores["judge"] for d in pool.distinct]
        assert [d.steps for d in own.distinct] == [d.steps for d in pool.distinct]
        (choice,) = own.choices
        assert choice.sample == next(c.sample for c in pool.choices if c.line.strategy == "best-of-n")
    assert browser.counts(examined(pooled)) == browser.counts(examined(direct))


def test_a_budget_leaves_fewer(experiment_file: Write, tmp_path: Path) -> None:
    directory = run(experiment_file(more=TIGHT, n="[8]"), tmp_path / "run")
    rows = pq.read_table(directory.table("attempts")).to_pylist()
    scored = {row["configuration"].partition("/")[2] for row in rows if row["score.judge"] is not None}
    assert scored == {"best-of-n@8", "weighted@8"}
    assert min(pool.size for problem in examined(directory) for pool in problem.pools) < 8
    for problem in examined(directory):
        returned = {o["configuration"]: o["text"] for o in problem.outcomes}
        for pool in problem.pools:
            texts = {sample: d.text for d in pool.distinct for sample in d.samples}
            assert [texts[c.sample] for c in pool.choices] == [returned[pool.name]]


def test_what_was_not_scored_has_no_score(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=1)
    directory = run(file, tmp_path / "run")
    problem, root = examined(directory)[0], directory.journal
    texts = [d.text for d in pools(problem)["small"].distinct]
    with build.open_setup(schema.load(file)) as setup:
        (asked,) = setup.task.problems()
        sequences = [Sequence(asked.prompt, text=text) for text in texts]
        with contextlib.closing(sqlite3.connect(root)) as connection, connection:
            query = "DELETE FROM rows WHERE kind = 'score' AND content = ?"
            assert connection.execute(query, [sequences[1].digest]).rowcount == 1

        async def scores() -> list[float | None]:
            with SQLiteJournal(root, read_only=True) as journal:

                def scope() -> Scope:
                    return Scope.root(asked.id, seed=3, journal=attempts.Recorded(journal))

                found = await attempts.read_scores(setup.verifiers["judge"], sequences, scope)
            return [score.value for score in found]

        found = asyncio.run(scores())
    known = [d.scores["judge"] for d in pools(problem)["small"].distinct]
    assert found == [known[0], None, *known[2:]]


def test_readers_of_pools_see_none_of_them(experiment_file: Write, tmp_path: Path) -> None:
    directory = run(experiment_file(more=WIDE), tmp_path / "run")
    candidates = pq.read_table(directory.table("candidates"))
    assert candidates.num_rows == 0
    assert "score.judge" not in candidates.column_names
    with pytest.raises(InputError, match=r"no verifier of .* scored a pool"):
        quality.publish(directory)
    console = Console(file=StringIO(), width=110)
    console.print(show.show(directory, "sum-0"), report.publish(directory))
    assert "small/best-of-n@8" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_greedy_sample_is_a_candidate(tmp_path: Path) -> None:
    for problem in examined(run(_tiny(tmp_path), tmp_path / "run")):
        assert [(pool.name, pool.size) for pool in problem.pools] == [
            ("writer", 4),
            ("writer/most-likely", 1),
        ]
        (outcome,) = problem.outcomes
        assert pools(problem)["writer/most-likely"].distinct[0].text == outcome["text"]


def test_a_sample_that_a_budget_cut_is_unfinished(tmp_path: Path) -> None:
    directory = run(_tiny(tmp_path), tmp_path / "run", "budget.generated=30")
    for problem in examined(directory):
        pool = pools(problem)["writer/vote@4"]
        last = max(pool.distinct, key=lambda d: max(d.samples))
        assert last.flaw == "unfinished"
        assert sum((d.tokens or 0) * len(d.samples) for d in pool.distinct) == 30


def _tiny(folder: Path) -> Path:
    file = folder / "tiny.yaml"
    file.write_text(
        "name: tiny\ntask: {kind: arithmetic, split: test, limit: 2}\n"
        "engines: {writer: {kind: torch, model: tiny-0.1m, device: cpu}}\n"
        "generators: {writer: {kind: engine, engine: writer, max_tokens: 48}}\n"
        "strategies: {most-likely: {kind: greedy}, vote: {kind: majority}}\ngrid: {n: [4]}\n"
    )
    return file
