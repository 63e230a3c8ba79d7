"""The whole recipe of the embedded family, on a small share of its steps and data: `examples/train/family.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from metagen.generators import tiny

GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m", "tiny-bpe")
REWARDS = ("tiny-prm", "tiny-prm-weak")


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(
    scripts: Any, family: Path, tmp_path: Path
) -> None:
    # Among the steps of a generator; in the search for hard examples.
    for place in ("checkpoints/tiny-2m.pt", "solutions/hard-for-tiny-prm-first"):
        scripts.interrupt("family.py", tmp_path, (tmp_path / place).exists)
        assert not (tmp_path / "models" / "tiny-prm").exists()
    scripts.run("family.py", tmp_path)
    whole, resumed = scripts.files(family), scripts.files(tmp_path)
    assert {name.split("/")[0] for name in whole} == {*GENERATORS, *REWARDS}
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
def test_a_folder_belongs_to_one_setting(scripts: Any, train: Any, family: Path) -> None:
    setting = train("setting")
    setting.Setting(family, scripts.seed, scripts.scale).prepare()
    with pytest.raises(
        SystemExit, match=r"seed 5 and not 0, scale 0.0003 and not 0.5; choose another folder"
    ):
        setting.Setting(family, 0, 0.5).prepare()


@pytest.mark.slow
def test_only_whole_runs_ship(train: Any, family: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"was trained at scale 0.0003; only whole runs ship"):
        train("ship").ship(family / "models", ["tiny-0.1m"], tmp_path)
    assert list(tmp_path.iterdir()) == []


RECIPES = {"family": (60, 120), "rewards": (60, 150), "programs/programs_family": (30, 90)}


@pytest.mark.parametrize("script", RECIPES)
def test_a_recipe_is_planned(
    train: Any,
    tmp_path: Path,
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runner = train("runner")
    recipe = train(script.rpartition("/")[2]).stages
    monkeypatch.setattr("sys.argv", [script, "--plan", "--into", str(tmp_path / "none")])
    runner.main("", recipe)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "│ all " in line]
    least, most = RECIPES[script]
    assert least < int(line.split("│")[3]) < most
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr("sys.argv", [script, "--only", "tiny-3m", "--into", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="--only tiny-3m: expected stages among "):
        runner.main("", recipe)


def test_what_is_done_is_not_counted_again(train: Any, tmp_path: Path) -> None:
    setting, family = train("setting"), train("family")
    (tmp_path / "models" / "tiny-2m").mkdir(parents=True)
    stages = {stage.name: stage for stage in family.stages(setting.Setting(tmp_path))}
    assert stages["tiny-2m"].done and stages["tiny-2m"].left == 0
    assert not stages["tiny-0.5m"].done and stages["tiny-0.5m"].left > 0


def test_nothing_is_trained_into_the_package(train: Any) -> None:
    setting = train("setting")
    for into in (tiny.HERE, tiny.HERE / "tiny-2m"):
        options = setting.parser("").parse_args(["--into", str(into)])
        with pytest.raises(SystemExit, match="lies in the package; train elsewhere"):
            setting.begin(options)
    assert not (tiny.HERE / "setting.json").exists()
