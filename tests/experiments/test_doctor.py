"""The examination tells what is there, what is missing and how to get it; and whether the main job can run."""

import os
import shutil
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from metagen.experiments import doctor
from metagen.generators import tiny


def shown(found: doctor.Examination) -> str:
    out = StringIO()
    Console(file=out, width=300).print(doctor.render(found))
    return out.getvalue()


def test_this_machine_is_ready_and_says_what_it_has(tmp_path: Path) -> None:
    found = doctor.examine(tmp_path / "runs")
    assert found.ready, found.wrong
    checks = {check.name: check for check in found.checks}
    assert checks["torch"].status in ("ok", "note")
    assert checks["runs"].status == "ok"
    assert "write-ahead" in checks["runs"].found
    assert {"cores", "memory", "GPU", "disk", "transformers", "vllm", "ray", "chromium", "bubblewrap"} <= set(
        checks
    )
    assert set(tiny.names()) <= set(checks)
    assert "Ready" in shown(found)
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_it_is_fast_and_imports_no_torch() -> None:
    code = (
        "import sys; from metagen.experiments import doctor; doctor.examine(); "
        "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    start = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    end = os.times()
    assert done.stdout.strip() == "[]"
    spent = (end.children_user + end.children_system) - (start.children_user + start.children_system)
    assert spent < 3  # CPU seconds: other processes of a busy machine do not count


def test_what_is_missing_comes_with_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("torch", "ray") else real(name))
    found = doctor.examine(tmp_path)
    assert not found.ready
    assert [check.name for check in found.wrong] == ["torch"]  # ray is not needed
    checks = {check.name: check for check in found.checks}
    assert "-m pip install 'torch>=" in checks["torch"].remedy
    assert checks["ray"].remedy.endswith("-m pip install ray")
    assert "Not ready: mend torch" in shown(found)
    assert found.to_dict()["ready"] is False


def test_a_torch_without_the_gpu_is_to_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_gpus", lambda: ["NVIDIA H200, 141 GB"])
    monkeypatch.setattr(doctor, "_torch_build", lambda: "CPU only")
    check = doctor._torch("2.11.0", "torch>=2.11")
    assert (check.status, "there is a GPU" in check.found) == ("note", True)
    assert "-m pip install --force-reinstall torch --index-url" in check.remedy


def test_another_project_of_the_same_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.7.4" if name == "metagen" else real(name))
    checks = {check.name: check for check in doctor._software()}
    check = checks["another metagen"]
    assert check.status == "fault" and "0.7.4" in check.found
    assert "-m pip uninstall metagen" in check.remedy and "pip install -e" in check.remedy
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "metagen" else real(name))
    assert "another metagen" not in {check.name for check in doctor._software()}


def test_a_clone_that_is_not_installed_knows_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISTRIBUTION", "no-such-distribution")
    wanted = {requirement.name: extra for requirement, extra in doctor._requirements()}
    assert wanted["numpy"] is False and wanted["transformers"] is True


def test_an_old_version_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "tokenizers" else real(name))
    (check,) = (check for check in doctor.examine(tmp_path).wrong)
    assert (check.name, check.status) == ("tokenizers", "fault")
    assert "0.1, expected" in check.found


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("model.safetensors", lambda data: data[: len(data) // 2], "SafetensorError"),
        ("config.json", lambda data: data.replace(b'"hidden_size": 64', b'"hidden_size": 128'), "parameters"),
        ("tokenizer.json", lambda data: data[:100], "Exception"),
    ],
)
def test_a_spoilt_model_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, spoil: object, words: str
) -> None:
    shutil.copytree(tiny.resolve("tiny-0.1m"), tmp_path / "tiny-0.1m")
    path = tmp_path / "tiny-0.1m" / name
    path.write_bytes(spoil(path.read_bytes()))
    monkeypatch.setattr(tiny, "HERE", tmp_path)
    (check,) = doctor._models()
    assert (check.status, check.needed) == ("fault", True)
    assert words in check.found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs a directory that nobody can write")
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no directory")
    runs, _ = doctor._storage(place / "runs")
    assert runs.status == "ok"  # the nearest directory above is looked at
    checks = list(doctor._storage(Path("/proc/self/task")))
    assert (checks[0].status, checks[0].needed) == ("fault", True)
    assert "--out" in checks[0].remedy


def test_file_systems_of_other_machines_are_noted() -> None:
    assert doctor._journal("runs/", True, "nfs4").status == "note"
    assert doctor._journal("runs/", False, "ext4").status == "note"
    assert doctor._journal("runs/", True, "ext4").status == "ok"


def test_gpus_as_the_driver_tells_them() -> None:
    answer = "NVIDIA H200, 143771, 143164, 570.124.06\n[N/A], [N/A], [N/A], [N/A]\n"
    assert doctor.gpus(answer) == ("NVIDIA H200, 150.8 GB, 150.1 GB free, driver 570.124.06",)


def test_a_trial_runs_a_model_for_real() -> None:
    start = time.monotonic()
    check = doctor.trial()
    assert (check.status, check.needed) == ("ok", True)
    assert "tiny-0.1m wrote" in check.found
    assert time.monotonic() > start
