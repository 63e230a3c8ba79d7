"""A small run that viewers look at, on an embedded model: a vote, a search and a chain; and the viewer in Chromium."""

import contextlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.page import report
from metagen.runs.work import build, runner
from metagen.view.desk import Desk
from metagen.view.shelf import Shelf
from tests.chromium import start

YAML = """\
name: small
seed: {seed}
task: {{kind: arithmetic, split: test, seed: 0, levels: [2], per_level: 4}}
engines:
  small: {{kind: torch, model: tiny-0.1m, device: cpu}}
  prm: {{kind: torch, model: tiny-prm, device: cpu}}
generators:
  mid: {{engine: small, temperature: 1.0, max_tokens: 120}}
verifiers:
  prm: {{kind: prm, engine: prm}}
strategies:
  majority: {{kind: majority}}
  weighted: {{kind: weighted, verifier: prm}}
  rebase: {{kind: rebase, verifier: prm, n: 4}}
  thought: {{kind: chain_of_thought, cue: "A:", thought: 60}}
grid: {{n: [1, 4]}}
"""
#: Where a page of the viewer may go.
REACHES = ("http://127.0.0.1", "data:")
FIRST = "arithmetic/test/2/0"
SEARCH, CHAIN, POOLED = "mid/rebase@4", "mid/thought", "mid/weighted@4"
#: Pages, by the address behind the `#/`.
PAGES = {
    "runs": "",
    "run": "run?run=one",
    "tree": "problem?" + urlencode({"run": "one", "problem": FIRST, "configuration": SEARCH}),
    "talk": "problem?" + urlencode({"run": "one", "problem": FIRST, "configuration": CHAIN, "show": "talk"}),
    "time": "problem?" + urlencode({"run": "one", "problem": FIRST, "configuration": SEARCH, "show": "time"}),
    "compare": "compare?a=one&b=two",
}


def make(root: Path, seed: int = 0) -> RunDirectory:
    """Run the small experiment at a place, and report it."""
    file = root.parent / f"{root.name}.yaml"
    file.write_text(YAML.format(seed=seed))
    directory = RunDirectory.at(root)
    with build.open_setup(schema.load(file)) as setup:
        runner.run(setup, directory)
    report.publish(directory)
    return directory


def interrupt(directory: RunDirectory, forget: str) -> None:
    """As if the run had been killed before it came to the records of which this holds, in SQL."""
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection, connection:
        connection.execute(f"DELETE FROM rows WHERE {forget}")
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    directory.journal.with_name("journal.sqlite.count").unlink(missing_ok=True)
    directory.save(replace(directory.state(), status="running"))
    directory.discard()


@dataclass(frozen=True)
class Runs:
    """Two reported runs of the same problems, below one directory. Nobody may change them."""

    root: Path
    one: RunDirectory
    two: RunDirectory


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("view") / "runs"
    root.mkdir()
    return Runs(root, make(root / "one"), make(root / "two", seed=1))


@pytest.fixture
def copied(runs: Runs, tmp_path: Path) -> RunDirectory:
    """A run that a test may change."""
    shutil.copytree(runs.one.root, tmp_path / "runs" / "one")
    return RunDirectory(tmp_path / "runs" / "one")


@contextlib.contextmanager
def desk(*places: Path) -> Iterator[Desk]:
    made = Desk(Shelf(places))
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def served(*places: Path) -> Iterator[str]:
    """The viewer at an address, as the command serves it."""
    import uvicorn

    from metagen.listening import bind
    from metagen.view import app

    with desk(*places) as made, bind("127.0.0.1", 0, 128) as listening:
        config = uvicorn.Config(app.make(made), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def address(runs: Runs) -> Iterator[str]:
    with served(runs.root) as made:
        yield made


@pytest.fixture(scope="module")
def chromium(runs: Runs) -> Iterator[Any]:
    """Started after the runs are made: its driver keeps an event loop, and a run needs one of its own."""
    with start() as started:
        yield started


def go(tab: Any, address: str, page: str) -> None:
    """Open a page of `PAGES`, or another one, and wait until it is there."""
    tab.goto(f"{address}#/{PAGES.get(page, page)}")
    tab.wait_for_selector("html[data-ready]")
