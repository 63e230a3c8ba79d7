"""The campaign of kills finds nothing in a sound journal, and does find one that forgets, or acknowledges too early."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from benchmarks.kills.scenes import SCENES
from benchmarks.kills.trial import Found, Model, Trial

SCENE = next(scene for scene in SCENES if scene.name == "refinement")
#: Of a trial that kills after four fifths of the work.
NUMBER = 69
#: What a process imports before anything else, and so what its journal does.
MUTANTS = {
    "forgets": """
def commit(self, rows, then=SQLiteJournal._commit):
    # All but one of ten, by their keys: the next process makes those again.
    if kept := [row for row in rows if row[0][0] % 10]:
        then(self, kept)
SQLiteJournal._commit = commit
""",
    "acknowledges too early": """
async def record(self, rows, then=SQLiteJournal.record):
    async def later():
        await asyncio.sleep(3600)
        await then(self, rows)
    self.__dict__.setdefault("later", []).append(asyncio.ensure_future(later()))
SQLiteJournal.record = record
""",
}
SITE = "import asyncio\nfrom metagen.journal import SQLiteJournal\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(SCENE, tmp_path_factory.mktemp("kills") / "alone")


def trial(model: Model, root: Path, mutant: str = "") -> Found:
    environment = {}
    if mutant:
        (root / "site").mkdir()
        (root / "site" / "sitecustomize.py").write_text(SITE + MUTANTS[mutant])
        environment = {"PYTHONPATH": f"{root / 'site'}:{Path(__file__).parents[1]}"}
    return Trial(SCENE, NUMBER, model, root / "trial", environment).run((signal.SIGKILL,))


def test_a_sound_journal_loses_nothing(model: Model, tmp_path: Path) -> None:
    found = trial(model, tmp_path)
    assert found.faults == [] and found.again <= found.unheard


@pytest.mark.parametrize(("mutant", "kinds"), [("forgets", {"lost"}), ("acknowledges too early", {"lost"})])
def test_a_journal_that_forgets_is_found(mutant: str, kinds: set[str], model: Model, tmp_path: Path) -> None:
    found = trial(model, tmp_path, mutant)
    assert kinds <= {fault.kind for fault in found.faults}, [
        (f.kind, f.words[:100], f.count) for f in found.faults
    ]
