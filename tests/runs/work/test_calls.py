"""The table of calls: as many as were paid for, each with what it waited for."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metagen.history import History
from metagen.journal import Row
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.table.called import read_calls
from metagen.runs.table.tables import read
from metagen.runs.work import build, runner
from metagen.runs.work.calls import NAMED, _waits
from metagen.trace import Trace


def test_a_call_behind_many_names_none_and_waits_for_all_of_a_lesser_depth() -> None:
    history = History()

    def deliver(count: int, *after: int) -> int:
        rows = [Row(b"", "p", "sample", "generate", "by", b"", i, {"text": ""}) for i in range(count)]
        return history.deliver(rows, after)

    many, other = deliver(NAMED + 1), deliver(1)
    deliver(1, many, other)  # behind all
    deliver(1, many)  # behind most
    deliver(1, other)
    trace = Trace.of("p", history.rows, history.deliveries)
    assert _waits(trace) == [False, False, True, False, False]


#: Answers any prompt, so that it can be asked for a critique.
ANY = """
from metagen.generators.function import FunctionGenerator


def generator():
    return FunctionGenerator(
        lambda prefix, seed, index: f"step {seed % 97}\\nA:{seed % 5}", name="any", count=len, max_tokens=24
    )
"""


@pytest.fixture
def ran(
    experiment_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RunDirectory]:
    """Runs the toy experiment with a refinement."""
    (tmp_path / "metagen_any.py").write_text(ANY)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*, calls: bool = True) -> RunDirectory:
        text = experiment_file(count=3, n="[2, 4]").read_text()
        text = text.replace('"metagen_toy:generator", skill: 0.5, name: small', '"metagen_any:generator"')
        path = tmp_path / "refined.yaml"
        path.write_text(
            text.replace("strategies:\n", "strategies:\n  refined: {kind: self_refine, rounds: 2}\n")
        )
        more = ["grid.generators=[small]"]
        directory = RunDirectory.at(tmp_path / "run")
        with build.open_setup(schema.load(path, sets=more)) as setup:
            assert runner.run(setup, directory, calls=calls).failures == ()
        return directory

    return run


def test_every_sample_and_score_of_a_pool_is_a_call(ran: Callable[..., RunDirectory]) -> None:
    rows = read(ran().table("calls"), configuration="small").to_pylist()
    for problem in {one["problem"] for one in rows}:
        ours = [one for one in rows if one["problem"] == problem]
        assert [one["index"] for one in ours] == list(range(len(ours)))
        drawn = [one for one in ours if one["part"] == "generation"]
        assert [one["sample"] for one in drawn] == [0, 1, 2, 3]
        assert all(one["maker"] == "small" and one["parents"] == [] for one in drawn)
        judged = [one for one in ours if one["part"] == "judge"]
        assert {i for one in judged for i in one["parents"]} == {0, 1, 2, 3}


def test_calls_of_a_run_add_up_to_what_it_spent(ran: Callable[..., RunDirectory]) -> None:
    directory = ran()
    calls = read(directory.table("calls"), configuration="small/refined").to_pylist()
    outcomes = read(directory.table("outcomes"), configuration="small/refined").to_pylist()
    assert outcomes
    for outcome in outcomes:
        ours = [one for one in calls if one["problem"] == outcome["problem"]]
        assert sum(one["generated"] for one in ours) == outcome["generated"]
        assert len(ours) == outcome["calls"] >= 2
        # Draft, critique, revision: each waits for the one before.
        assert [one["parents"] for one in ours] == [[i - 1] if i else [] for i in range(len(ours))]
        assert [one["depth"] for one in ours] == list(range(1, len(ours) + 1))
        assert not any(one["assumed"] for one in ours)


def test_calls_of_one_configuration_come_in_the_order_of_the_run(ran: Callable[..., RunDirectory]) -> None:
    path = ran().table("calls")
    every = read(path).to_pylist()
    names = {one["configuration"] for one in every}
    assert len(names) > 1
    for name in names:
        ours = sorted(
            (one for one in every if one["configuration"] == name), key=lambda r: (r["place"], r["index"])
        )
        assert [one for block in read_calls(path, name) for one in block.to_pylist()] == ours
    assert not list(read_calls(path, "nobody"))
    # Another file under that name is another table.
    pq.write_table(read(path).slice(0, 0), path)
    assert not list(read_calls(path, names.pop()))


def test_a_run_has_the_table_only_if_it_is_asked_for(ran: Callable[..., RunDirectory]) -> None:
    directory = ran(calls=False)
    assert not directory.table("calls").exists()
    assert ran().table("calls").exists()
    assert not ran(calls=False).table("calls").exists()
