"""Runs in MLflow and in W&B, as their own packages read them back."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.integrations import tracking
from metagen.integrations.tracking import Point, Subject, flatten
from metagen.runs.directory import RunDirectory
from metagen.runs.work.progress import Meter

pytestmark = pytest.mark.usefixtures("lean_figures")
RUN = ["run", "sums.yaml", "--out", "out"]
#: Of the problems of the toy task, and of what the toy generator writes.
TEXTS = ("=?", "A:")


def call(*words: str) -> str:
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of a store in a directory."""
    module = pytest.importorskip("mlflow", reason="pip install mlflow-skinny; it is the extra `mlflow`")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    module.set_tracking_uri(None)
    return module.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs are written offline."""
    module = pytest.importorskip("wandb", reason="pip install wandb; it is the extra `wandb`")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wb"))
    (tmp_path / "wb").mkdir()
    yield tmp_path / "wb"
    module.teardown()  # which knew this directory


def only_run(client: Any) -> Any:
    experiment = client.get_experiment_by_name("metagen")
    (found,) = client.search_runs([experiment.experiment_id])
    return found


def records(folder: Path) -> list[Any]:
    """What an offline run of W&B holds, one run after the other."""
    from wandb.proto import wandb_internal_pb2 as pb

    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in logged(path.read_bytes()):
            record = pb.Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def logged(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format: in blocks, of which the first has a head of W&B's own."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the only part, or the last one
            yield whole
            whole = b""


def names_of(client: Any, run: str, folder: str | None = None) -> set[str]:
    return {one.path for one in client.list_artifacts(run, folder)}


def test_mlflow_has_what_the_report_says(place: Path, mlflow: Any) -> None:
    call(*RUN, "--track", "mlflow")
    run = only_run(mlflow)
    assert run.info.status == "FINISHED" and run.info.run_name == "out"
    assert run.data.params["generators.toy.kind"] == "metagen_toy:generator"
    assert run.data.params["grid.n"] == "[1, 2, 8]"
    assert run.data.tags["metagen.status"] == "complete" and run.data.tags["metagen.failures"] == "0"
    said = {row["configuration"]: row for row in tracking._rows(place / "out" / "configurations.csv")}
    curve = mlflow.get_metric_history(run.info.run_id, "toy/weighted/accuracy")
    assert {one.step: one.value for one in curve} == {
        n: float(said[f"toy/weighted@{n}"]["accuracy"]) for n in (1, 2, 8)
    }
    (low,) = [one for one in mlflow.get_metric_history(run.info.run_id, "toy/weighted/low") if one.step == 8]
    assert low.value == float(said["toy/weighted@8"]["low"])
    assert run.data.metrics["progress/samples"] == run.data.metrics["progress/samples_total"] > 0
    assert "toy/weighted/money" not in run.data.metrics  # which nobody knows
    names = names_of(mlflow, run.info.run_id)
    assert {"experiment.yaml", "configurations.csv", "levels.csv"} <= names
    assert not names & {"report.html", "candidates.parquet", "problems.parquet"}


def test_no_text_of_a_problem_or_a_sample_is_sent_unless_asked(place: Path, mlflow: Any) -> None:
    call(*RUN, "--track", "mlflow")
    sent = [path for path in (place / "mlruns").rglob("*") if path.is_file()]
    assert sent and not [path for path in sent if any(text.encode() in path.read_bytes() for text in TEXTS)]
    call("track", "out", "--to", "mlflow", "--track-texts")
    names = names_of(mlflow, only_run(mlflow).info.run_id)
    assert {"report.html", "candidates.parquet", "problems.parquet"} <= names
    with pytest.raises(AssertionError, match="for trackers"):
        call(*RUN, "--track-texts")


def test_a_resumed_run_goes_on_with_the_same_tracked_run(place: Path, mlflow: Any) -> None:
    call(*RUN, "--track", "mlflow")
    first = only_run(mlflow).info.run_id
    assert json.loads((place / "out" / tracking.FILE).read_text())["mlflow"] == {"id": first}
    call("resume", "out")
    assert only_run(mlflow).info.run_id == first
    call(*RUN, "--track", "mlflow", "--set", "grid.n=[1,4]")
    run = only_run(mlflow)
    assert run.info.run_id == first and run.data.tags["metagen.changed"] == "grid.n"
    assert run.info.status == "FINISHED"
    mlflow.delete_run(first)
    call("track", "out", "--to", "mlflow")  # to a run that is not there any more: to a new one
    assert only_run(mlflow).info.run_id != first


def test_an_interrupted_run_says_so_and_a_resumed_one_ends_it(
    place: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metagen.runs.work import runner

    def interrupt(*given: Any, **how: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", interrupt)
        assert CliRunner().invoke(app, [*RUN, "--track", "mlflow"]).exit_code == 130
    run = only_run(mlflow)
    assert run.info.status == "KILLED"
    call(*RUN, "--track", "mlflow")
    assert only_run(mlflow).info.run_id == run.info.run_id and only_run(mlflow).info.status == "FINISHED"


def test_mlflow_keeps_runs_in_sqlite(place: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy", reason="pip install mlflow, of which mlflow-skinny lacks the databases")
    module = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
    call(*RUN, "--track", "mlflow")
    client = module.MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    run = only_run(client)
    assert run.info.status == "FINISHED" and "toy/majority/accuracy" in run.data.metrics


def test_wandb_has_what_the_report_says(place: Path, wandb: Path) -> None:
    call(*RUN, "--track", "wandb")
    found = records(wandb)
    (begun,) = [one.run for one in found if one.WhichOneof("record_type") == "run"][:1]
    kept = json.loads((place / "out" / tracking.FILE).read_text())["wandb"]
    assert begun.display_name == "out" and kept == {"id": begun.run_id, "project": "metagen"}
    config = {one.key: json.loads(one.value_json) for one in begun.config.update}
    assert config["generators.toy.kind"] == "metagen_toy:generator" and config["grid.n"] == "[1, 2, 8]"
    said = {row["configuration"]: row for row in tracking._rows(place / "out" / "configurations.csv")}
    rows = [
        {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in one.history.item}
        for one in found
        if one.WhichOneof("record_type") == "history"
    ]
    curve = {row["n"]: row["toy/majority/accuracy"] for row in rows if "toy/majority/accuracy" in row}
    assert curve == {n: float(said[f"toy/majority@{n}"]["accuracy"]) for n in (1, 2, 8)}
    assert any("progress/samples" in row for row in rows)
    assert [one.exit.exit_code for one in found if one.WhichOneof("record_type") == "exit"] == [0]
    sent = b"".join(path.read_bytes() for path in wandb.rglob("*") if path.is_file())
    assert b"toy/majority/accuracy" in sent and not any(text.encode() in sent for text in TEXTS)


def test_wandb_goes_on_under_the_same_id_beside_mlflow(place: Path, wandb: Path, mlflow: Any) -> None:
    call(*RUN, "--track", "wandb")
    first = json.loads((place / "out" / tracking.FILE).read_text())["wandb"]["id"]
    call("resume", "out", "--track", "mlflow")
    begun = {one.run.run_id for one in records(wandb) if one.WhichOneof("record_type") == "run"}
    assert begun == {first} and only_run(mlflow).info.status == "FINISHED"
    assert set(json.loads((place / "out" / tracking.FILE).read_text())) == {"wandb", "mlflow"}


def test_a_study_is_one_tracked_run(study_file: Path, tmp_path: Path, mlflow: Any) -> None:
    root = tmp_path / "study"
    call("study", str(study_file), "--out", str(root), "--track", "mlflow")
    run = only_run(mlflow)
    rows = [row for row in tracking._rows(root / "curves.csv") if row["oracle"] == "false" and row["n"]]
    for row in rows:
        name = f"{row['model']}/{row['strategy']}/accuracy"
        steps = {one.step: one.value for one in mlflow.get_metric_history(run.info.run_id, name)}
        assert steps[int(row["n"])] == float(row["accuracy"])
    assert rows and {"study.yaml", "curves.csv", "findings.json"} <= names_of(mlflow, run.info.run_id)
    assert "progress/test/samples" in run.data.metrics and "progress/limit/samples" in run.data.metrics
    assert run.info.status == "FINISHED" and run.data.params["study.limit.n"] == "16"
    call("resume", str(root))
    assert only_run(mlflow).info.run_id == run.info.run_id


# -- what fails ----------------------------------------------------------------------------------------


class Failing:
    """A tracker that fails at one of its methods, or never answers."""

    def __init__(self, at: str, error: BaseException | None) -> None:
        self._at, self._error, self.asked = at, error, list[str]()

    def _do(self, what: str) -> None:
        self.asked.append(what)
        if what == self._at:
            if self._error is None:
                threading.Event().wait()
            else:
                raise self._error

    def begin(self, subject: Subject) -> dict[str, str]:
        self._do("begin")
        return {"id": "1"}

    def progress(self, counts: Mapping[str, float], at: int) -> None:
        self._do("progress")

    def results(self, points: Iterable[Point]) -> None:
        self._do("results")

    def keep(self, files: Iterable[tuple[Path, str]]) -> None:
        self._do("keep")

    def end(self, how: str, tags: Mapping[str, str]) -> None:
        self._do("end")


@pytest.mark.parametrize("at", ["begin", "progress", "results", "keep", "end"])
@pytest.mark.parametrize("error", [RuntimeError("no network"), SystemExit(1)], ids=["error", "exit"])
def test_a_tracker_that_fails_costs_nothing_but_itself(
    at: str, error: BaseException, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(at, error)
    monkeypatch.setitem(tracking.TRACKERS, "mlflow", lambda: failing)  # type: ignore[arg-type]
    said = call(*RUN, "--track", "mlflow")
    assert said.count("mlflow is told nothing more") == 1 and type(error).__name__ in said
    assert failing.asked[-1] == at
    assert RunDirectory(place / "out").final_state().status == "complete"
    assert (place / "out" / "report.html").exists()


def test_a_tracker_that_never_answers_is_not_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "PATIENCE", 0.3)
    monkeypatch.setitem(tracking.TRACKERS, "wandb", lambda: Failing("begin", None))  # type: ignore[arg-type]
    said = call(*RUN, "--track", "wandb")
    assert "it does not answer" in said and "metagen track out --to wandb" in said
    assert RunDirectory(place / "out").final_state().status == "complete"


def test_a_tracker_of_a_server_that_is_not_there(
    place: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said = call(*RUN, "--track", "mlflow")
    assert "mlflow is told nothing more" in said and (place / "out" / "report.html").exists()


def test_an_error_of_the_run_is_told_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Good(Failing):
        def end(self, how: str, tags: Mapping[str, str]) -> None:
            told.append(how)

    monkeypatch.setitem(tracking.TRACKERS, "mlflow", lambda: Good("", None))  # type: ignore[arg-type]
    for error, how in ((ValueError("mine"), "failed"), (KeyboardInterrupt(), "interrupted")):
        with (
            pytest.raises(type(error)),
            tracking.follow(["mlflow"], RunDirectory(tmp_path), "name: x\n", Meter()),
        ):
            raise error
        assert told.pop() == how
    assert not told


def test_a_damaged_note_of_ids_is_as_none(tmp_path: Path) -> None:
    for text in ("{", "[1]", '{"mlflow": 3}'):
        (tmp_path / tracking.FILE).write_text(text)
        assert tracking.tracked(tmp_path) == []


def test_a_run_without_results_is_refused(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "experiment.yaml").write_text("name: sums\n")
    result = CliRunner().invoke(app, ["track", "out", "--to", "mlflow"])
    assert result.exit_code == 2 and "metagen report out" in result.output


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for kind in tracking.TRACKERS:
        monkeypatch.setitem(sys.modules, kind, None)
        with pytest.raises(InputError, match=rf"\[{kind}\]"):
            tracking.TRACKERS[kind]()


# -- what is told --------------------------------------------------------------------------------------


def test_an_experiment_is_flat_and_has_no_passwords() -> None:
    text = "a: {b: [1, 2], c: [{d: x}]}\ne: https://me:secret@host/v1\nf: null\ng: {}\n" + f"h: {'y' * 900}\n"
    found = dict(flatten(yaml.safe_load(text)))
    assert found["a.b"] == "[1, 2]" and found["a.c.0.d"] == "x" and found["e"] == "https://…@host/v1"
    assert found["f"] == "null" and found["g"] == "{}" and len(found["h"]) == tracking.LONGEST


def test_a_file_with_a_password_stays(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("base_url: https://me:secret@host/v1\n")
    (tmp_path / "levels.csv").write_text("n\n")
    assert [path.name for path, _ in tracking.files_of(tmp_path, texts=True)] == ["levels.csv"]


def points(root: Path, text: str) -> Iterator[Point]:
    (root / "configurations.csv").write_text(text)
    yield from tracking.results(root)


def test_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    head = "generator,strategy,n,accuracy,low,tokens,money,oracle\n"
    rows = "a,b,4,0.5,nan,,0,false\na,one,,0.25,0.1,3,0,true\n"
    assert [*points(tmp_path, head + rows)] == [
        Point("a/b/accuracy", 0.5, 4), Point("oracle/a/one/accuracy", 0.25), Point("oracle/a/one/low", 0.1),
        Point("oracle/a/one/tokens", 3.0),
    ]  # fmt: skip
    paid = [
        one for one in points(tmp_path, head + rows.replace(",0,false", ",2,false")) if "money" in one.name
    ]
    assert paid == [Point("a/b/money", 2.0, 4), Point("oracle/a/one/money", 0.0)]
