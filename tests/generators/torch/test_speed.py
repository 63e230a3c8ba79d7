"""Measurements of speed: what is remembered, by whom it is taken, and what is only recommended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.cli.speed import advice
from metagen.errors import ModelError
from metagen.generators.compiled import build
from metagen.generators.torch import TorchEngine, speed, threads
from metagen.generators.torch.speed import Speed, Timing


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of its own, in which the steps are compiled already, where they can be: a measurement compiles them first."""
    compiled = build.library()
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path))
    if compiled.exists():
        build.library().parent.mkdir()
        shutil.copy2(compiled, build.library())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 4)
    monkeypatch.setattr(speed, "cores", lambda: 4)
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads are twice as fast, and bfloat16 three times."""

    def rate(engine: TorchEngine, rows: int) -> float:
        return (
            rows * (2.0 if engine.threads == 4 else 1.0) * (3.0 if "bfloat16" in str(engine.dtype) else 1.0)
        )

    monkeypatch.setattr(speed, "_rate", rate)
    monkeypatch.setattr(speed, "multiplies_bfloat16", lambda: True)


def test_engines_take_the_threads_that_were_the_fastest(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TorchEngine("tiny-0.1m").threads == 1
    found = speed.measure("tiny-0.1m")
    assert TorchEngine("tiny-0.1m").threads == 4
    assert TorchEngine("tiny-0.1m", dtype="bfloat16").threads == 4
    assert TorchEngine("tiny-0.1m", threads=2).threads == 2
    assert TorchEngine("tiny-0.5m").threads == 1  # nobody measured it
    assert TorchEngine("tiny-0.1m").dtype == TorchEngine("tiny-0.5m").dtype  # samples stay what they are
    assert found.default == Timing("float32", None, 1, (1.0, 32.0, 128.0), True)
    assert (found.best.dtype, found.best.threads) == ("bfloat16", 4)
    assert found.best.over(found.default) == pytest.approx(6.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert TorchEngine("tiny-0.1m").threads == 1  # the user's word


def test_a_measurement_that_cannot_be_kept_is_told_all_the_same(
    quick: None, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("METAGEN_CACHE", str(cache / "file"))
    found = speed.measure("tiny-0.1m")
    assert found.best.threads == 4 and not found.kept
    assert any("write threads: 4" in line for line in advice(found))
    (warning, *_) = [one for one in caplog.records if one.message == "a measurement cannot be kept"]
    assert str(cache / "file") in vars(warning)["file"] and "METAGEN_CACHE" in vars(warning)["remedy"]


def test_why_steps_are_not_compiled_is_told(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(build, "extension", lambda: None)
    for reason in (None, "install g++"):
        monkeypatch.setattr(build, "build", lambda reason=reason: reason)
        speed.measure("tiny-0.1m", heard.append)
    assert [told for told in heard if "install" in told] == [
        "torch's own steps, for there are no compiled ones: install g++"
    ]


def test_what_was_remembered_elsewhere_is_not_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads.remember("a", 3)
    assert threads.recall("a") == 3
    assert threads.recall("b") is None
    monkeypatch.setattr(threads, "cores", lambda: 2)
    assert threads.recall("a") is None  # another machine
    monkeypatch.setattr(threads, "cores", lambda: 4)
    (file,) = (cache / "threads").iterdir()
    for text in ("{", "[]", '{"threads": 9}', '{"threads": "2"}', '{"threads": 0}', ""):
        file.write_text(text)
        assert threads.recall("a") is None


@pytest.mark.parametrize(
    ("timings", "said"),
    [
        ([("float32", None, 1, 1.0), ("float32", None, 4, 2.0)], ["take 4 for", "The default number format"]),
        ([("float32", None, 1, 1.0), ("bfloat16", None, 4, 3.0)], ["take 1 for", "bfloat16 is 3.0 times", "dtype: bf"]),
        ([("float32", None, 1, 1.0), ("bfloat16", "int8", 1, 1.1)], ["as before", "as good as the fastest"]),
        ([("float32", None, 1, 1.0), ("bfloat16", "int8", 1, 2.0)], ["quantization: int8"]),
    ],
)  # fmt: skip
def test_advice(timings: list[tuple[str, str | None, int, float]], said: list[str]) -> None:
    made = tuple(
        Timing(dtype, quantization, n, (rate,) * 3, i == 0)
        for i, (dtype, quantization, n, rate) in enumerate(timings)
    )
    told = " ".join(advice(Speed("m", made)))
    for part in said:
        assert part in told


def test_the_command_measures_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ROWS", (1, 3))
    monkeypatch.setattr(speed, "TOKENS", 2)
    done = CliRunner().invoke(app, ["doctor", "--speed", "tiny-0.1m", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["model"] == "tiny-0.1m" and found["rows"] == [1, 3]
    assert {(one["dtype"], one["threads"]) for one in found["timings"]} >= {("float32", 1), ("float32", 4)}
    assert all(rate > 0 for one in found["timings"] for rate in one["rates"])
    assert sum(one["default"] for one in found["timings"]) == 1
    shown = CliRunner().invoke(app, ["doctor", "--speed", "tiny-0.1m"])
    assert "tokens per second" in shown.stdout and "from now on" in shown.stdout
    wrong = CliRunner().invoke(app, ["doctor", "--speed", "tiny-9m"])
    assert wrong.exit_code != 0 and isinstance(wrong.exception, ModelError | SystemExit)
