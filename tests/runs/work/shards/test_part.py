"""Parts of an experiment: every problem is in one of them, and what they share adds up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import ConfigError, InputError
from metagen.runs.declare import schema
from metagen.runs.work import build, offline
from metagen.runs.work.shards.part import Part
from metagen.sequence import Prompt
from metagen.tasks.base import Problem

PROBLEM = Problem(Prompt("p", text="?"), "1")
FILE = """
name: parts
task: {{kind: arithmetic, split: validation, levels: [1, 2], per_level: 4}}
engines:
  small: {{kind: torch, model: tiny-0.1m}}
  reward: {{kind: torch, model: tiny-prm-weak}}
generators: {{small: {{engine: small, max_tokens: 120}}}}
verifiers: {{prm: {{kind: prm, engine: reward}}}}
strategies: {{weighted: {{kind: weighted, verifier: prm, n: 8}}}}
grid: {{}}
executor: {executor}
"""


def write(place: Path, executor: str) -> Path:
    file = place / "parts.yaml"
    file.write_text(FILE.format(executor=executor))
    return file


@given(st.integers(1, 12), st.integers(0, 200))
def test_every_problem_is_in_one_part_and_parts_are_equally_large(count: int, problems: int) -> None:
    parts = [Part(index, count) for index in range(count)]
    held = [[part.index for part in parts if part(place, PROBLEM)] for place in range(problems)]
    assert all(len(one) == 1 for one in held)
    sizes = Counter(index for (index,) in held)
    assert problems == 0 or max(sizes.values()) - min(sizes[i] for i in range(count)) <= 1


def test_problems_that_come_in_turns_are_spread() -> None:
    """Three levels by turns, dealt to three drivers: none gets one level alone."""
    for index in range(3):
        levels = Counter(place % 3 for place in range(300) if Part(index, 3)(place, PROBLEM))
        assert sum(levels.values()) == 100 and min(levels.values()) > 20


@given(st.integers(1, 12), st.integers(0, 100))
def test_shares_add_up(count: int, whole: int) -> None:
    shares = [Part(index, count).share(whole) for index in range(count)]
    assert sum(shares) == whole and max(shares) - min(shares) <= 1


def test_a_driver_has_its_share_of_the_work_and_no_shards(tmp_path: Path) -> None:
    executor = (
        "{kind: ray, replicas: 5, concurrency: 9, shards: 2, pools: {reward: {replicas: 2}}, num_gpus: 1}"
    )
    whole = schema.load(write(tmp_path, executor))
    parts = [Part(index, 2).of(whole).executor for index in range(2)]
    assert [part.concurrency for part in parts] == [5, 4]
    assert all(part.shards is None and part.num_gpus == 1 for part in parts)


@pytest.mark.parametrize(
    ("executor", "fault"),
    [
        ("{shards: 2}", "shards is for pools of engines; give kind: ray, or leave shards out"),
        ("{kind: ray, shards: 0}", "executor.shards.count = 0: expected an integer ≥ 1"),
        ("{kind: ray, shards: many}", "executor.shards"),
    ],
)
def test_faults_are_named(tmp_path: Path, executor: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schema.load(write(tmp_path, executor))
    assert fault in str(caught.value)


def test_shards_are_read_and_written(tmp_path: Path) -> None:
    experiment = schema.load(
        write(tmp_path, "{kind: ray, replicas: 2, shards: {count: 3, resources: {cpus: 1}}}")
    )
    (tmp_path / "again.yaml").write_text(schema.dump(experiment))
    assert schema.load(tmp_path / "again.yaml") == experiment


def test_an_experiment_in_shards_is_checked_without_its_engines(tmp_path: Path) -> None:
    with build.open_setup(schema.load(write(tmp_path, "{kind: ray, shards: 1}"))) as setup:
        assert {type(engine) for engine in setup.engines.values()} == {offline.ClosedEngine}
        assert setup.experiment.executor.shards is not None and setup.problems == 8


def test_nothing_is_opened_to_look_at_an_experiment_with_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise AssertionError("a pool was made")

    monkeypatch.setattr("metagen.runs.work.build._pool", refuse)
    closed = offline.with_stand_ins(
        schema.load(write(tmp_path, "{kind: ray, replicas: 2}")), fingerprints=False
    )
    with build.open_setup(closed) as setup:
        assert setup.problems == 8


def test_shares_by_difficulty_have_no_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "metagen.runs.work.build.learn_difficulties", lambda *given: {"small/weighted@8": object()}
    )
    with (
        pytest.raises(InputError, match="no driver of some of them has; leave out shards"),
        build.open_setup(schema.load(write(tmp_path, "{kind: ray, shards: 1}"))),
    ):
        pass
