"""The whole recipe of the embedded family, on a small share of its steps and data: `examples/train/family.py`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "train"
GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m", "tiny-bpe")
REWARDS = ("tiny-prm", "tiny-orm", "tiny-prm-weak")
PATIENCE = 900.0


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(SCRIPTS / script), *map(str, arguments)]


def train(into: Path) -> list[str]:
    """A run of few steps that keeps a checkpoint of each."""
    return command("family.py", "--into", into, "--scale", 0.001, "--save-every", 0, "--seed", 5)


def interrupted(into: Path, reached: Callable[[], bool]) -> None:
    """Kill a run, its workers with it, as soon as it has come somewhere."""
    process = subprocess.Popen(
        train(into), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        patience = time.monotonic() + PATIENCE
        while not reached():
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < patience
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def weights(into: Path) -> dict[str, bytes]:
    """Every file of the finished models, cards and tokenizers included."""
    return {str(p.relative_to(into)): p.read_bytes() for p in sorted((into / "models").glob("*/*"))}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing interrupted; not to be changed."""
    into = tmp_path_factory.mktemp("whole")
    subprocess.run(train(into), check=True, capture_output=True, timeout=PATIENCE)
    return into


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(family: Path, tmp_path: Path) -> None:
    # Among the steps of a generator; among those of a reward model; in the search for hard examples.
    for place in (
        lambda: (tmp_path / "checkpoints" / "tiny-0.5m.pt").exists(),
        lambda: (tmp_path / "checkpoints" / "tiny-prm.pt").exists(),
        lambda: (tmp_path / "solutions" / "hard-for-tiny-prm-first").exists(),
    ):
        interrupted(tmp_path, place)
        assert not (tmp_path / "models" / "tiny-prm").exists()
    subprocess.run(train(tmp_path), check=True, capture_output=True, timeout=PATIENCE)
    whole, resumed = weights(family), weights(tmp_path)
    assert {name.split("/")[1] for name in whole} == {*GENERATORS, *REWARDS}
    assert list(resumed) == list(whole)
    assert [name for name in whole if resumed[name] != whole[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GENERATORS, *REWARDS])
def test_what_is_written_loads_in_the_engine_and_in_transformers(family: Path, name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from metagen.generators.engine import EvaluateRequest
    from metagen.generators.torch import TorchEngine
    from metagen.sequence import Sequence

    folder = family / "models" / name
    text = "Q:a=12+7;b=a*3;b?\nS:\n"
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    with TorchEngine(folder, threads=1) as engine:
        assert list(engine.render(Sequence.of(text))) == ids
        (found,) = asyncio.run(
            engine.evaluate([EvaluateRequest(ids, tuple(range(len(ids))), tuple(range(10)))])
        )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        want = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)[:, :10]
    torch.testing.assert_close(torch.tensor(found.values), want, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_folder_belongs_to_one_setting(family: Path) -> None:
    done = subprocess.run(
        command("family.py", "--into", family, "--scale", 0.5), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "holds a run with seed 5 and not 0, scale 0.001 and not 0.5; choose another folder" in done.stderr


@pytest.mark.slow
def test_only_whole_runs_ship(family: Path) -> None:
    shipped = ROOT / "metagen" / "generators" / "tiny"
    before = {path: path.stat().st_mtime_ns for path in shipped.rglob("*")}
    done = subprocess.run(command("ship.py", "tiny-0.1m", "--from", family), capture_output=True, text=True)
    assert done.returncode == 1
    assert "was trained at scale 0.001; only whole runs ship" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in shipped.rglob("*")} == before


def test_nothing_is_trained_into_the_package() -> None:
    shipped = ROOT / "metagen" / "generators" / "tiny"
    for script, arguments in (
        ("family.py", ()),
        ("train_generator.py", ("tiny-0.1m",)),
        ("train_reward.py", ("tiny-prm",)),
    ):
        done = subprocess.run(command(script, *arguments, "--into", shipped), capture_output=True, text=True)
        assert done.returncode == 1
        assert "lies in the package; train elsewhere" in done.stderr
    assert not (shipped / "setting.json").exists()


def test_the_whole_recipe_is_planned_within_two_hours(tmp_path: Path) -> None:
    done = subprocess.run(
        command("family.py", "--plan", "--into", tmp_path / "none"),
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if "│ all " in line]
    assert 60 < int(line.split("│")[3]) < 120
    assert not (tmp_path / "none").exists()
