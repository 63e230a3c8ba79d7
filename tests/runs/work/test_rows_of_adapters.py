"""Runs over adapters by row: what they sample and score is what engines of their own would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import yaml

from metagen.errors import ConfigError
from metagen.generators.torch.adapted import AdaptedEngine
from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build, offline, runner
from tests.generators.torch.lora_adapters import make_adapter
from tests.serve.serving import QUESTION, serving

BASE = "tiny-0.1m"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """REBASE and a weighted vote of an adapter that writes, by one that scores, on one engine."""
    folder = tmp_path_factory.mktemp("adapters")
    solver, judge = (
        make_adapter(folder / "solver", BASE, 1),
        make_adapter(folder / "judge", BASE, 2, outputs=2),
    )
    return {
        "name": "rows",
        "task": {"kind": "arithmetic", "split": "test", "seed": 0, "levels": [1, 3], "per_level": 2},
        "engines": {
            # An adapter may stand before the engine that it is on.
            "solver": {"kind": "adapter", "engine": "base", "model": str(solver)},
            "base": {"kind": "torch", "model": BASE, "dtype": "float32"},
            "judge": {"kind": "adapter", "engine": "base", "model": str(judge)},
        },
        "generators": {name: {"engine": name, "max_tokens": 60} for name in ("base", "solver")},
        "verifiers": {"prm": {"kind": "prm", "engine": "judge"}},
        "strategies": {
            "majority": {"kind": "majority"},
            "weighted": {"kind": "weighted", "verifier": "prm"},
            "rebase": {"kind": "rebase", "verifier": "prm", "n": 4},
        },
        "grid": {"n": [1, 4]},
        "executor": {"concurrency": 4},
    }


def apart(data: dict[str, Any]) -> dict[str, Any]:
    """With an engine for each adapter."""
    engines = {
        name: {"kind": "torch", "model": one["model"], "dtype": "float32"}
        for name, one in data["engines"].items()
    }
    return {**data, "engines": engines}


def write(data: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def run(file: Path, root: Path) -> State:
    with build.open_setup(schema.load(file)) as setup:
        return runner.run(setup, RunDirectory.at(root))


def test_a_run_goes_on_with_the_records_of_engines_apart(data: dict[str, Any], tmp_path: Path) -> None:
    """And the other way round: seeds, records and fingerprints are the same."""
    together, alone = write(data, tmp_path / "together.yaml"), write(apart(data), tmp_path / "alone.yaml")
    with build.open_setup(schema.load(together)) as setup:
        assert list(setup.engines) == ["base", "solver", "judge"]
        assert isinstance(setup.engines["judge"], AdaptedEngine)
    first = run(together, tmp_path / "run")
    assert first.status == "complete"
    samples = texts(tmp_path / "run")
    made = rows(tmp_path / "run")
    for file in (together, alone):
        again = run(file, tmp_path / "run")
        assert (again.status, again.samples, again.recorded) == ("complete", first.samples, 0)
        assert rows(tmp_path / "run") == made, "nothing is sampled or scored a second time"
    run(alone, tmp_path / "other")
    others = texts(tmp_path / "other")
    assert samples.keys() == others.keys()
    assert sum(samples[key] != others[key] for key in samples) <= 0.02 * len(samples)


def texts(root: Path) -> dict[tuple[Any, ...], str]:
    """The samples of a run, by generator, problem and number."""
    table = pq.read_table(root / "candidates.parquet")
    assert "score.prm" in table.column_names
    return {(row["generator"], row["problem"], row["sample"]): row["text"] for row in table.to_pylist()}


def rows(root: Path) -> int:
    """Records in a run's journal."""
    with SQLiteJournal(RunDirectory.at(root).journal) as journal:
        return sum(journal.counts().values())


def test_a_dry_run_knows_what_the_engines_are(data: dict[str, Any], tmp_path: Path) -> None:
    experiment = schema.load(write(data, tmp_path / "rows.yaml"))
    closed = offline.with_stand_ins(experiment, fingerprints=True)
    with build.open_setup(closed) as dry, build.open_setup(experiment) as setup:
        for name in ("base", "solver", "judge"):
            closed_one, opened = dry.engines[name], setup.engines[name]
            for fact in ("fingerprint", "tokenizer_fingerprint", "supports"):
                assert getattr(closed_one, fact) == getattr(opened, fact), (name, fact)
            assert closed_one.shape is not None and opened.shape is not None
            assert closed_one.shape.adapter == opened.shape.adapter


def test_each_adapter_is_served(data: dict[str, Any], tmp_path: Path) -> None:
    file = {**data, "strategies": {"greedy": {"kind": "greedy"}, "weighted": data["strategies"]["weighted"]}}
    question = [{"role": "user", "content": QUESTION}]
    with serving(tmp_path, file) as running:
        names = [one["id"] for one in httpx.get(f"{running.url}/models").json()["data"]]
        assert {"base/greedy", "solver/greedy", "solver/weighted@4"} <= set(names)
        answers = {
            name: httpx.post(
                f"{running.url}/chat/completions", json={"model": name, "messages": question}, timeout=60
            ).json()["choices"][0]["message"]["content"]
            for name in ("base/greedy", "solver/greedy", "solver/weighted@4")
        }
    assert answers["base/greedy"] != answers["solver/greedy"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engines": {"solver": {"engine": "judge"}}}, "engine 'judge' is of kind adapter"),
        ({"engines": {"solver": {"engine": "solver"}}}, "engine 'solver' is of kind adapter"),
        ({"engines": {"solver": {"engine": "nobody"}}}, "expected one of the engines"),
        ({"executor": {"kind": "ray"}}, "a pool of replicas runs one model"),
    ],
)
def test_what_an_adapter_cannot_stand_on_is_a_fault_of_the_file(
    data: dict[str, Any], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    engines = {
        name: {**one, **changes.get("engines", {}).get(name, {})} for name, one in data["engines"].items()
    }
    file = write({**data, **changes, "engines": engines}, tmp_path / "rows.yaml")
    with pytest.raises(ConfigError, match=said):
        schema.load(file)
