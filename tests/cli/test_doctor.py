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
from typer.testing import CliRunner

from metagen.cli import app, doctor
from metagen.generators import tiny
from metagen.generators.models import sources
from tests.generators.openai.serving import KEY, Reply, Server, always

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(("state", "status"), sorted(doctor.STEPS.items()))
def test_the_state_of_compiled_steps_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, status: str
) -> None:
    monkeypatch.setattr(doctor.build, "state", lambda: (state, "install g++"))
    found = doctor.examine(tmp_path)
    (steps,) = [check for check in found.checks if check.name == "steps"]
    assert (steps.status, steps.found) == (status, f"{state}; install g++")
    assert found.ready  # engines run without them


def test_it_is_fast_and_imports_no_torch() -> None:
    code = (
        "import sys; from metagen.cli import doctor; doctor.examine(); "
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


@pytest.mark.parametrize(
    ("version", "compiler", "header", "found", "remedy"),
    [
        ("3.6.0", "/usr/bin/cc", "Python.h", "compiled by Triton 3.6.0", ""),
        (None, "/usr/bin/cc", "Python.h", "Triton is missing", "pip install triton"),
        ("3.6.0", None, "Python.h", "Triton 3.6.0 finds no C compiler", "install gcc"),
        ("3.6.0", "/usr/bin/cc", "other.h", "Triton 3.6.0 finds no Python.h", "python3-dev"),
    ],
)
def test_what_compiles_steps_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str | None,
    compiler: str | None,
    header: str,
    found: str,
    remedy: str,
) -> None:
    assert "GPU steps" not in {check.name for check in doctor._machine()}, "there is no GPU"
    real = doctor._version
    monkeypatch.setattr(doctor, "_gpus", lambda: ["NVIDIA H200, 141 GB"])
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == "triton" else real(name))
    monkeypatch.setattr(doctor.shutil, "which", lambda _: compiler)
    (tmp_path / header).touch()
    monkeypatch.setattr(doctor.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    check = {check.name: check for check in doctor._machine()}["GPU steps"]
    assert check.found.startswith(found) and remedy in check.remedy
    assert (check.status == "ok") == (remedy == "")


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
        ("model.safetensors", lambda data: data[: len(data) // 2], "not a readable safetensors file"),
        ("config.json", lambda data: data.replace(b'"hidden_size": 64', b'"hidden_size": 128'), "parameters"),
        ("tokenizer.json", lambda data: data[:100], "not a tokenizer"),
    ],
)
def test_a_spoilt_model_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, spoil: object, words: str
) -> None:
    shutil.copytree(sources.resolve("tiny-0.1m"), tmp_path / "tiny-0.1m")
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


# -- servers ---------------------------------------------------------------------------------------

#: As vLLM 0.32 shows itself on a CPU.
NEWER = (
    'engine="0",_block_size_resolved="True",block_size="128",cache_dtype="auto",enable_prefix_caching="True",'
    'gpu_memory_utilization="0.92",kv_cache_dtype_skip_layers="[]",kv_cache_memory_bytes="1073741824",'
    'num_cpu_blocks="None",num_gpu_blocks="5461",sliding_window="None",user_specified_block_size="False"'
)
#: As versions did that name the CPU's cache.
OLDER = (
    'block_size="128",cache_dtype="auto",cpu_kvcache_space_bytes="4294967296",enable_prefix_caching="True",'
    'kv_cache_memory_bytes="None",num_gpu_blocks="2340"'
)


def metrics(labels: str) -> Reply:
    text = (
        "# HELP python_info Python platform information\n# TYPE python_info gauge\n"
        'python_info{implementation="CPython",major="3"} 1.0\n'
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
        f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1.0\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
    )
    return Reply(body=text.encode(), headers={"content-type": "text/plain; version=1.0.0; charset=utf-8"})


def server_check(url: str) -> doctor.Check:
    (check,) = (c for c in doctor.examine(servers=[url]).checks if c.group == "Servers")
    return check


@pytest.mark.parametrize("labels", [NEWER, OLDER])
def test_a_vllm_on_a_cpu_with_default_blocks_is_told_with_the_command_that_mends_it(labels: str) -> None:
    with Server(always(metrics(labels))).open() as server:
        check = server_check(server.url)
    assert check.status == "note" and "blocks of 128 tokens" in check.found and server.url in check.found
    assert "--block-size 32 --max-num-batched-tokens 16384" in check.remedy
    assert check.remedy.removeprefix("start it with ") in (ROOT / "docs/how-to/http.md").read_text("utf-8")
    assert [(asked.path, "authorization" in asked.headers) for asked in server.asked] == [("/metrics", False)]


@pytest.mark.parametrize(
    "reply",
    {
        "blocks that were chosen": metrics(NEWER.replace('_block_size="False"', '_block_size="True"')),
        "the blocks of the page": metrics(NEWER.replace('"128"', '"32"')),
        "a GPU": metrics(NEWER.replace('"1073741824"', '"None"')),
        "a GPU of an older version": metrics(OLDER.replace('"4294967296"', '"None"')),
        "no prefixes are shared": metrics(NEWER.replace('caching="True"', 'caching="False"')),
        "labels without a block size": metrics('engine="0"'),
        "another server": Reply(body=b"# nothing of vLLM's\n"),
        "no metrics": Reply(404, b"not found"),
        "a page": Reply(body=b"<html>Welcome</html>"),
    }.values(),
)  # fmt: skip
def test_nothing_is_said_of_blocks_where_they_are_unknown_or_right(reply: Reply) -> None:
    with Server(always(reply)).open() as server:
        check = server_check(server.url)
    assert (check.status, check.found, check.remedy) == ("ok", f"{server.url} answers", "")


def test_a_server_that_is_not_there_is_told_and_does_not_keep_anyone_from_working() -> None:
    with Server(always(Reply())).open() as server:
        url = server.url
    found = doctor.examine(servers=[url])
    check = found.checks[-1]
    assert check.status == "note" and "does not answer" in check.found and found.ready


def test_an_address_that_is_none_is_an_error_that_shows_no_key() -> None:
    done = CliRunner().invoke(app, ["doctor", "--server", f"http://me:{KEY}@localhost/v1"])
    assert done.exit_code == 2 and KEY not in done.output and "base_url" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", "--speed", "tiny-0.1m", "--try"], "--speed measures a model and looks at nothing else"),
        (
            ["doctor", "--speed", "tiny-0.1m", "--server", "http://localhost:1/v1"],
            "leave out --try and --server",
        ),
        (["models", "--json", "check", "tiny-0.1m"], "--json is for the list of models; leave it out"),
        (["models", "--json", "fetch", "tiny-0.1m"], "--json is for the list of models; leave it out"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
