"""The command line: what people see, exit codes, and runs that are killed in the middle."""

import csv
import json
import logging
import os
import pty
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from metagen.cli import app
from metagen.cli.application import _Policy
from metagen.generators.models import sources

pytestmark = pytest.mark.usefixtures("lean_figures", "bare_reports")

TOY = Path(__file__).parent / "runs" / "toy"
YAML = """\
name: sums
task: {kind: "metagen_toy:ToyTask", count: 8}
generators:
  toy: {kind: "metagen_toy:generator", skill: 0.7}
verifiers:
  judge: {kind: "metagen_toy:verifier"}
strategies:
  single: {kind: sample}
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: judge}
grid: {n: [1, 2, 8]}
executor: {concurrency: 2}
"""
METAGEN = [sys.executable, "-m", "metagen.cli"]
PATIENCE = 120.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `sums.yaml`; calls of generators are logged in `calls.log`."""
    (tmp_path / "sums.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "calls.log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), str(Path(__file__).parents[1])]))
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run that was never interrupted, `runs/sums`; not to be changed."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(str(TOY))
        patch.setenv("TOY_LOG", str(place / "calls.log"))
        (place / "sums.yaml").write_text(YAML)
        assert invoke("run", "sums.yaml")[0] == 0
    return place


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def calls(place: Path) -> list[str]:
    log = place / "calls.log"
    return log.read_text().splitlines() if log.exists() else []


def heeding() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def started(place: Path, *arguments: str, until: int, delay: float = 0.0) -> subprocess.Popen[str]:
    """The command in a process of its own, which has made `until` calls and comes to no more."""
    process = subprocess.Popen(
        [*METAGEN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TOY_DELAY": str(delay), "TOY_MOST": str(until)},
        # Whoever runs the tests in the background may ignore interrupts; a user in a terminal does not.
        preexec_fn=heeding,
    )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while len(calls(place)) < until and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()[1]
    return process


def recorded(run: Path) -> set[str]:
    """The samples in a journal, as the log names them."""
    connection = sqlite3.connect(run / "journal.sqlite")
    rows = connection.execute("SELECT problem, number FROM rows WHERE kind = 'generate'").fetchall()
    connection.close()
    return {f"toy {problem} {number}" for problem, number in rows}


def results(run: Path) -> list[dict[str, str]]:
    """The table of configurations, without the seconds that they took."""
    with (run / "configurations.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_run_report_and_show(place: Path, bare_reports: pytest.MonkeyPatch) -> None:
    bare_reports.undo()
    code, out, _ = invoke("run", "sums.yaml")
    assert code == 0
    assert "Best:" in out
    assert "within a budget of tokens generated" in out
    assert "runs/sums/figures" in out
    assert invoke("run", "sums.yaml", "--limit", "3", "--set", "grid.n=[1,4]")[0] == 0
    assert len(calls(place)) == 8 * 8 + 3 * 4
    assert len(results(place / "runs/sums-2")) == 1 + 2 * 2
    assert invoke("report", "sums")[1] == out
    code, out, _ = invoke("show", "runs/sums", "sum-4")
    assert code == 0
    assert "weighted@8" in out
    assert "Σ judge" in out


def test_what_is_set_is_a_field_of_a_part_and_is_gone_on_with(place: Path) -> None:
    sets = [
        "generators.toy.temperature=0.7",
        "grid.n=[1,2]",
        "strategies.soft={kind: soft_best_of_n, verifier: judge}",
    ]
    sets += ["strategies.soft.beta=3"]
    options = [word for one in sets for word in ("--set", one)]
    assert invoke("run", "sums.yaml", "--limit", "2", *options)[0] == 0
    kept = (place / "runs/sums/experiment.yaml").read_text()
    assert "temperature: 0.7" in kept and "beta: 3" in kept
    before, made = results(place / "runs/sums"), calls(place)
    assert {one["n"] for one in before} == {"", "1", "2"}
    assert invoke("resume", "sums")[0] == 0
    assert (results(place / "runs/sums"), calls(place)) == (before, made)
    code, _, err = invoke("run", "sums.yaml", *options, "--set", "strategies.soft.beta=-3")
    assert code == 2
    assert "--set strategies.soft.beta=-3: strategies.soft.beta = -3: expected a number" in " ".join(
        err.split()
    )


def test_resume_of_a_finished_run_calls_nothing(place: Path, finished: Path) -> None:
    shutil.copytree(finished / "runs", place / "runs")
    before = results(place / "runs/sums")
    code, out, _ = invoke("resume", "sums")
    assert (code, calls(place)) == (0, [])
    assert "all from the journal" in out
    assert results(place / "runs/sums") == before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_runs_end_cleanly_and_resume(
    number: signal.Signals, code: int, place: Path, finished: Path
) -> None:
    process = started(place, "run", "sums.yaml", "--out", "part", until=20)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "metagen resume part" in err
    assert "Traceback" not in err + out
    code, out, _ = invoke("report", "part")  # what there is so far
    assert (code, "Incomplete (interrupted)" in out) == (0, True)
    shown = {code for problem in range(8) for code, *_ in [invoke("show", "part", f"sum-{problem}")]}
    assert shown == {0, 2}  # some are finished, and others are not
    check_resumed(place, finished)


def test_a_second_signal_ends_the_process_at_once(place: Path) -> None:
    """The first one waits for a function that takes an hour, and cannot be cancelled."""
    process = started(place, "run", "sums.yaml", "--out", "part", until=1, delay=3600.0)
    process.send_signal(signal.SIGTERM)
    _until(lambda: f"{signal.SIGTERM:d}" not in _caught(process.pid))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM, "by the signal itself"


def test_an_interrupt_that_became_another_error_is_one() -> None:
    """As within an import, where Python and libraries make errors of their own of it."""
    before = signal.getsignal(signal.SIGTERM)
    own = typer.Typer(cls=_Policy, pretty_exceptions_enable=False)

    @own.callback()
    def several() -> None:
        """Commands."""

    @own.command()
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException as error:
            raise RuntimeError("in the middle of an import") from error

    assert CliRunner().invoke(own, ["work"]).exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_so(place: Path) -> None:
    """As under nohup."""
    process = subprocess.Popen(
        [*METAGEN, "run", "sums.yaml", "--out", "part"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TOY_DELAY": "0.02"}, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    _until(lambda: bool(calls(place)))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_terminal_that_is_gone_ends_a_run_as_any_interrupt(place: Path, finished: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TOY_MOST"] = "20"
        heeding()
        os.execv(METAGEN[0], [*METAGEN, "run", "sums.yaml", "--out", "part"])
    _until(lambda: len(calls(place)) >= 20)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert "Incomplete (interrupted)" in invoke("report", "part")[1]
    check_resumed(place, finished)


def _until(there: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if there():
            return
        time.sleep(0.01)  # another process tells nobody
    pytest.fail("it does not come")


def _caught(pid: int) -> set[str]:
    """The numbers of the signals that a process handles."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
    return {str(number + 1) for number in range(64) if mask >> number & 1}


@pytest.mark.parametrize("until", [1, 50])
def test_killed_runs_resume_and_repeat_nothing_recorded(place: Path, finished: Path, until: int) -> None:
    process = started(place, "run", "sums.yaml", "--out", "part", until=until)
    process.kill()
    process.communicate(timeout=PATIENCE)
    check_resumed(place, finished)


def check_resumed(place: Path, finished: Path) -> None:
    """Resuming `part` calls for what its journal lacks, once each, and finds what an uninterrupted run found."""
    had = recorded(place / "part")
    (place / "calls.log").unlink()
    assert invoke("resume", "part")[0] == 0
    made = calls(place)
    assert len(had) < 64
    assert sorted(made) == sorted(recorded(place / "part") - had)
    assert results(place / "part") == results(finished / "runs/sums")


def test_a_second_writer_is_refused(place: Path) -> None:
    process = started(place, "run", "sums.yaml", "--out", "part", until=1)
    code, _, err = invoke("resume", "part")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert code == 2
    assert "being written by another process" in err


def test_a_full_disk_ends_the_run_with_a_word_and_loses_nothing(place: Path) -> None:
    """A limit on the size of files stands in for the disk: the write itself fails, deep inside SQLite or Parquet."""

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = subprocess.run(
        [*METAGEN, "run", "sums.yaml", "--out", "part"], capture_output=True, text=True, preexec_fn=small_disk
    )  # fmt: skip
    assert done.returncode == 1
    assert "what was recorded" in done.stderr
    assert "Traceback" not in done.stderr
    had = recorded(place / "part")
    (place / "calls.log").unlink()
    assert invoke("resume", "part")[0] == 0
    assert sorted(calls(place)) == sorted(recorded(place / "part") - had)


@pytest.mark.parametrize("size", [100, 30_000])
def test_a_full_disk_while_a_report_is_written_is_said_and_spoils_no_table(
    size: int, place: Path, finished: Path
) -> None:
    shutil.copytree(finished / "runs", place / "runs")
    (run,) = (place / "runs").iterdir()
    before = {path.name: path.read_bytes() for path in run.glob("*.csv")}
    done = subprocess.run(
        [*METAGEN, "report", str(run)], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot write" in done.stderr and "what was recorded is kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in run.glob("*.csv")} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "sum.yaml"], "sum.yaml"),
        (["run", "sums.yaml", "--set", "grid.n=[0]"], "integer ≥ 1"),
        (["run", "sums.yaml", "--set", "strategies.single.kind=majorty"], "did you mean 'majority'"),
        (["run", "sums.yaml", "--limit", "0"], "--limit"),
        (["resume", "sums-7"], "did you mean 'sums'?"),
        (["show", "sums", "sum4"], "did you mean 'sum-4'"),
        (["show", "sums", "sum-4", "--generator", "toyy"], "did you mean 'toy'?"),
        (["report", "sums.yaml"], "does not exist"),
        (["run", "sums.yaml", "--out", "sums.yaml"], "run directory"),
        (["run", "sums.yaml", "--set", "task.twice=true"], "occurs twice"),
    ],
)
def test_what_the_user_can_mend_is_exit_code_2(
    place: Path, finished: Path, arguments: list[str], words: str
) -> None:
    shutil.copytree(finished / "runs", place / "runs")
    code, out, err = invoke(*arguments)
    assert code == 2
    assert words in err
    assert not out
    assert len(list((place / "runs").iterdir())) == 1  # no trace of what never ran


TINY = """\
name: tiny
task: {kind: jsonl, path: data.jsonl}
engines: {cpu: {kind: torch, model: model}}
generators: {tiny: {engine: cpu, max_tokens: 8}}
strategies: {majority: {kind: majority}}
grid: {n: [1]}
"""
#: A question that the model can read, as a line of a data set.
SOUND = '{"id": "a", "question": "Q: 1+1=?", "answer": "2"}\n'


@pytest.mark.parametrize(
    ("data", "sets", "words"),
    [
        (SOUND, ["engines.cpu.model=modle"], ["engines.cpu.model = 'modle'", "no such file", "expected"]),
        (SOUND, ["engines.cpu.model=torn"], ["torn/config.json", "not valid JSON", "copy the file again"]),
        (SOUND, ["engines.cpu.model=other"], ["other", "has shape (104, 64)", "(104, 128)", "use the config.json"]),
        (SOUND.replace("1+1", "1+" * 2100 + "1"), [], ["a (tiny)", "tokens", "2048", "shorten"]),
        ("", [], ["data.jsonl", "holds no problems", "expected"]),
        (SOUND.replace('"2"', '"two"'), [], ["data.jsonl:1", "'two' cannot be read", "mend it"]),
        (SOUND * 2, [], ["data.jsonl:2", "id 'a'", "must be unique"]),
        (SOUND, ["grid.n=[-1]"], ["grid.n.0 = -1", "integer ≥ 1"]),
        (SOUND, ["generators.tiny.temperature=-0.5"], ["generators.tiny.temperature = -0.5", "number ≥ 0"]),
    ],
    ids=[
        "unknown model", "torn config", "weights of another config", "long prompt", "empty data", "unread reference",
        "id twice", "n < 1", "temperature < 0",
    ],
)  # fmt: skip
def test_whatever_the_user_can_mend_names_place_value_and_remedy(
    place: Path, data: str, sets: list[str], words: list[str]
) -> None:
    (place / "tiny.yaml").write_text(TINY)
    (place / "data.jsonl").write_text(data)
    for name in ("model", "torn", "other"):
        shutil.copytree(sources.resolve("tiny-0.1m"), place / name)
    (place / "torn" / "config.json").write_text('{"hidden_size": ')
    config = place / "other" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 64', '"hidden_size": 128'))
    code, out, err = invoke("run", "tiny.yaml", *(word for one in sets for word in ("--set", one)))
    told = " ".join((err + out).split())
    assert code == 2
    assert [word for word in words if word not in told] == [], told
    assert "Traceback" not in told


def test_failed_problems_are_told_and_the_rest_reported(place: Path) -> None:
    code, out, _ = invoke("run", "sums.yaml", "--set", "generators.toy.fails_on=sum-3")
    assert code == 2
    assert "sum-3 (toy): the prompt of 'sum-3' is too long; make it shorter" in " ".join(out.split())
    assert results(place / "runs/sums")[0]["problems"] == "7"


def test_a_plug_in_that_raises_is_named_with_its_traceback(place: Path) -> None:
    text = (TOY / "metagen_toy.py").read_text().replace("luck > 0.95", "luck > None")
    (place / "broken_toy.py").write_text(text)
    (place / "sums.yaml").write_text(YAML.replace("metagen_toy:generator", "broken_toy:generator"))
    done = subprocess.run([*METAGEN, "run", "sums.yaml"], capture_output=True, text=True, env=paths(place))
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, told
    assert (
        "the function 'function' of FunctionGenerator" in told
        and "raised TypeError: '>' not supported" in told
    )
    assert "broken_toy.py" in told and "if luck > None:" in told, "the traceback is kept"
    assert "Please report it" not in told and "fault of metagen" not in told
    failures = json.loads((place / "runs/sums/state.json").read_text())["failures"]
    assert all("if luck > None:" in failure["traceback"] and failure["mendable"] for failure in failures)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return Score(value, steps=(0.9, value))", "return None", "of FunctionVerifier (faulty_toy.py:"),
        ("yield Problem(", "yield (", "ToyTask.problems (faulty_toy.py:"),
        ("return FunctionRule(_read, _key)", "return _read", "ToyTask.answer (faulty_toy.py:"),
        (
            "def __init__(\n        self,",
            "def __init__(\n        boom,",
            "faulty_toy:ToyTask (faulty_toy.py:",
        ),
        ("return FunctionGenerator(", "return str(", "faulty_toy:generator (faulty_toy.py:"),
        (
            "return FunctionVerifier(function, name=name)",
            "return function",
            "faulty_toy:verifier (faulty_toy.py:",
        ),
        ('f"{start} {rng.randrange(1000)}', '3 if start else f"', "returned 3; expected a text or a Sample"),
    ],
)
def test_a_plug_in_that_breaks_its_contract_is_named(place: Path, old: str, new: str, words: str) -> None:
    text, name = (TOY / "metagen_toy.py").read_text(), f"faulty_toy_{abs(hash(old))}"
    assert old in text
    (place / f"{name}.py").write_text(text.replace(old, new))
    (place / "sums.yaml").write_text(YAML.replace("metagen_toy", name))
    sys.path.insert(0, str(place))
    try:
        for command in (["run", "sums.yaml"], ["run", "sums.yaml", "--dry-run", "--probe", "1"]):
            code, out, err = invoke(*command)
            told = " ".join((out + err).split())
            assert code == 2, told
            assert words in told.replace(name, "faulty_toy"), told
    finally:
        sys.path.remove(str(place))


STEERED = """
name: tiny
task: {kind: arithmetic, split: validation, levels: [1], per_level: 1}
engines:
  writer: {kind: torch, model: tiny-0.1m}
generators:
  writer: {engine: writer, max_tokens: 64}
verifiers:
  truth: {kind: oracle}
  calm: {kind: calibrated, verifier: truth}
  both: {kind: ensemble, members: [truth, calm]}
strategies:
  coverage: {kind: best_of_n, verifier: truth, n: 2}
  beam: {kind: beam, verifier: both, m: 2, n: 2}
  over: {kind: majority, over: beam, n: 2}
  majority: {kind: majority, n: 2}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("m: 2, n: 2", "m: 3, n: 4", "tiny.yaml:14: strategies.beam: BeamSearch: n=4"),
        (
            "max_tokens: 64",
            "max_tokens: 64, grammar: {regex: '['}",
            "tiny.yaml:7: generators.writer: regex grammar",
        ),
        (
            "max_tokens: 64",
            "max_tokens: 999999",
            "tiny.yaml:7: generators.writer.max_tokens = 999999: the context of",
        ),
        ("tiny-0.1m}", "tiny-0.1m, device: gpu}", "tiny.yaml:5: engines.writer.device = 'gpu'"),
        ("kind: arithmetic", "kind: 'json:loads'", "tiny.yaml:3: task: json:loads"),
    ],
)
def test_what_a_part_finds_wrong_is_placed_in_the_file(place: Path, old: str, new: str, told: str) -> None:
    (place / "tiny.yaml").write_text(STEERED.replace(old, new))
    code, _, err = invoke("run", "tiny.yaml", "--dry-run")
    assert code == 2 and told in err, err
    assert "Traceback" not in err


def test_an_oracle_that_steers_is_told_before_a_run_and_marked_after_it_however_deep_it_lies(
    place: Path,
) -> None:
    (place / "tiny.yaml").write_text(STEERED)
    code, out, _ = invoke("run", "tiny.yaml", "--dry-run")
    told = " ".join(out.split())
    assert code == 0
    assert "strategies.beam: a verifier that knows the answers steers it" in told
    assert "strategies.over: a verifier that knows" in told
    assert "strategies.coverage: " not in told and "strategies.majority: " not in told
    code, out, err = invoke("run", "tiny.yaml")
    assert code == 0 and "note: strategies.beam: a verifier that knows" in " ".join(err.split())
    marked = {row["strategy"]: row["oracle"] for row in results(place / "runs/tiny")}
    assert marked == {"coverage": "true", "beam": "true", "over": "true", "majority": "false"}
    for name in ("beam", "over", "coverage"):
        assert f"{name} (oracle)" in out
    assert "never a method" in " ".join(out.split())


def test_metagens_own_faults_keep_their_traceback(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **how: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("metagen.runs.work.runner.run", broken)
    with pytest.raises(KeyError, match="ours") as caught:
        invoke("run", "sums.yaml")
    assert "Please report it" in caught.value.__notes__[0]


def paths(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ["PYTHONPATH"]])}


def test_version_and_help(place: Path) -> None:
    assert invoke("--version")[1].startswith("metagen ")
    assert "resume" in invoke("--help")[1]


def test_the_help_names_every_command_by_its_use_and_cuts_none(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    commands = invoke("--help")[1].partition("Run:")[2]
    assert "Others:" not in commands and "..." not in commands
    names = [str(one.name) for one in app.registered_commands]
    names += [str(one.name) for one in app.registered_groups]
    assert sorted(re.findall(r"^  (\w+)  +\S", commands, re.MULTILINE)) == sorted(names)


def test_without_a_terminal_progress_is_plain_lines(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metagen.cli.progress.PAUSE", 0.05)
    monkeypatch.setenv("TOY_DELAY", "0.01")
    _, _, err = invoke("run", "sums.yaml")
    lines = err.splitlines()
    assert any("of 64 samples" in line and "samples/s" in line and "left" in line for line in lines)
    assert "\x1b" not in err


def test_an_embedded_model_solves_problems_for_real(place: Path) -> None:
    (place / "tiny.yaml").write_text(
        "name: tiny\n"
        "task: {kind: arithmetic, split: validation, levels: [1, 2], per_level: 2}\n"
        "engines: {cpu: {kind: torch, model: tiny-0.1m}}\n"
        "generators: {tiny: {engine: cpu}}\n"
        "strategies: {single: {kind: sample}, greedy: {kind: greedy}, majority: {kind: majority}}\n"
        "grid: {n: [1, 4]}\n"
    )
    code, out, _ = invoke("run", "tiny.yaml")
    assert code == 0
    assert "budget of FLOPs" in out
    table = {row["configuration"]: row for row in results(place / "runs/tiny")}
    assert {"tiny/single", "tiny/greedy", "tiny/majority@1", "tiny/majority@4"} == set(table)
    assert float(table["tiny/majority@4"]["flops"]) > float(table["tiny/single"]["flops"]) > 1e6
    code, out, _ = invoke("show", "tiny", "arithmetic/validation/1/0")
    assert (code, "Q:" in out) == (0, True)
    assert "tiny-0.1m" in invoke("models")[1]


# ------------------------------------------------------------------------------------------- before a run


def test_a_dry_run_tells_what_it_would_take_and_does_nothing(place: Path) -> None:
    code, out, _ = invoke("run", "sums.yaml", "--dry-run")
    assert code == 0
    assert "8 problems: at most 128 calls" in " ".join(out.split())
    assert (calls(place), (place / "runs").exists()) == ([], False)
    data = json.loads(invoke("run", "sums.yaml", "--dry-run", "--json", "--limit", "3")[1])
    assert (data["problems"], data["total"]["calls"]) == (3, 48)
    for option in (["--json"], ["--probe", "1"], ["--hardware", "h200"]):
        code, _, err = invoke("run", "sums.yaml", *option)
        assert (code, "add --dry-run" in err) == (2, True)
    assert calls(place) == []


def test_a_dry_run_counts_what_a_run_has_recorded_as_free(place: Path, finished: Path) -> None:
    shutil.copytree(finished / "runs", place / "runs")
    code, out, _ = invoke("run", "sums.yaml", "--dry-run", "--out", "runs/sums")
    assert (code, calls(place)) == (0, [])
    assert "nothing is left to do" in " ".join(out.split())


def test_new_writes_what_runs(place: Path) -> None:
    """The whole way of a newcomer, on a real model."""
    code, out, _ = invoke("new", "votes.yaml")
    assert (code, "wrote votes.yaml" in out) == (0, True)
    assert invoke("new", "votes.yaml")[0] == 2  # never overwritten
    code, out, err = invoke("run", "votes.yaml", "--limit", "2", "--set", "grid.n=[1,2]")
    assert code == 0, err
    assert "writer/weighted@2" in (place / "runs/votes/configurations.csv").read_text()


def test_ls_lists_runs(place: Path, finished: Path) -> None:
    code, out, _ = invoke("ls")
    assert (code, "no runs" in out) == (0, True)
    shutil.copytree(finished / "runs", place / "runs")
    code, out, _ = invoke("ls")
    assert (code, "sums" in out, "complete" in out) == (0, True, True)
    (row,) = json.loads(invoke("ls", "runs", "--json")[1])
    assert (row["name"], row["state"], row["problems"], row["samples"]) == ("sums", "complete", 8, 64)
    assert invoke("ls", "nowhere")[0] == 2


def test_doctor_ends_with_0_where_the_main_job_can_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = invoke("doctor", "--json")
    assert (code, json.loads(out)["ready"]) == (0, True)
    monkeypatch.setattr("metagen.cli.doctor._version", lambda name: None)
    code, out, _ = invoke("doctor")
    assert (code, "Not ready" in out) == (1, True)


# -------------------------------------------------------------------------------------------------- logs


@pytest.fixture
def quiet() -> Iterator[None]:
    """Takes away the handler that a command has put in place."""
    yield
    root = logging.getLogger("metagen")
    for handler in [h for h in root.handlers if h.name == "metagen"]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(logging.NOTSET)


def test_logs_are_silent_unless_asked_for(place: Path) -> None:
    assert "run started" not in invoke("run", "sums.yaml", "--limit", "1")[2]


def test_a_log_of_a_run_has_events_with_fields_and_no_contents(place: Path, quiet: None) -> None:
    words = ["--log-level", "debug", "--log-format", "json", "--log-file", "log"]
    failing = ["--set", "generators.toy.fails_on=sum-3", "--set", "generators.toy.name=sk-secret"]
    assert invoke(*words, "run", "sums.yaml", *failing, "--out", "part")[0] == 2
    assert invoke(*words, "resume", "part")[0] == 2
    text = (place / "log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    events = [line["event"] for line in lines]
    assert [e for e in events if e.startswith("run")] == [
        "run started",
        "run finished",
        "run resumed",
        "run finished",
    ]
    (first, second) = [line for line in lines if line["event"] == "run finished"]
    assert (first["run"], first["problems"], first["samples"], first["fresh"], first["failures"]) == (
        "part",
        8,
        56,
        56,
        1,
    )
    assert (second["samples"], second["fresh"], second["status"]) == (56, 0, "complete")
    failed = next(line for line in lines if line["event"] == "problem failed")
    assert (failed["level"], failed["problem"], failed["part"], failed["error"]) == (
        "warning",
        "sum-3",
        "toy",
        "PromptError",
    )
    assert "too long" in failed["reason"]
    reused = [line["reused"] for line in lines if line["event"] == "problem done"]
    assert sorted(reused) == [0] * 7 + [8] * 7
    # A line for each problem at most, and neither contents nor options.
    assert len(lines) <= 2 * (8 + 2)
    for hidden in ("sk-secret", "step ", "A:"):
        assert hidden not in text


def test_the_environment_asks_for_a_log(place: Path, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    monkeypatch.setenv("METAGEN_LOG", "INFO")
    err = invoke("run", "sums.yaml", "--limit", "1")[2]
    assert "info: run started" in err
    assert "status=complete" in err
    monkeypatch.setenv("METAGEN_LOG", "loud")
    assert invoke("models")[0] == 2


def test_an_engine_logs_its_life(place: Path, quiet: None) -> None:
    (place / "tiny.yaml").write_text(
        "name: tiny\ntask: {kind: arithmetic, split: validation, levels: [1], per_level: 1}\n"
        "engines: {cpu: {kind: torch, model: tiny-0.1m}}\ngenerators: {tiny: {engine: cpu, max_tokens: 8}}\n"
        "strategies: {single: {kind: sample}}\n"
    )
    _, _, err = invoke("--log-format", "json", "run", "tiny.yaml")
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    opened, closed = (line for line in lines if line["event"] in ("engine opened", "engine closed"))
    assert opened["fingerprint"] == closed["fingerprint"]
    assert "tiny-0.1m" in opened["engine"]


# -------------------------------------------------------------------------------------------- completion

BINARIES = Path(sys.executable).parent
#: Ask the function that the shell would ask, as the shell would.
BASH = """
eval "$(_METAGEN_COMPLETE=source_bash metagen)"
complete -p metagen >&2
COMP_WORDS=({words}); COMP_CWORD={last}
_metagen_completion metagen "" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ print -u2 "complete $@" }}; _arguments() {{ print -r -- "$*" }}; _files() {{ print files }}
eval "$(_METAGEN_COMPLETE=source_zsh metagen)"
words=({words}); CURRENT={current}
_metagen_completion
"""


def completed(shell: str, place: Path, *words: str) -> str:
    """What a shell offers for the last of the words."""
    script = {"bash": BASH, "zsh": ZSH}[shell]
    quoted = " ".join(f"'{word}'" for word in ("metagen", *words))
    code = script.format(words=quoted, last=len(words), current=len(words) + 1)
    flags = ["--norc", "--noprofile"] if shell == "bash" else ["-f"]
    environment = {**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, *flags, "-c", code], capture_output=True, text=True, cwd=place, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "_metagen_completion" in done.stderr  # it is tied to the command
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shells_complete_commands_runs_and_experiments(shell: str, place: Path) -> None:
    if shutil.which(shell) is None or not (BINARIES / "metagen").exists():
        pytest.skip(f"needs {shell}, and metagen as an installed command")
    for name in ("sums", "votes"):
        (place / "runs" / name).mkdir(parents=True)
        (place / "runs" / name / "experiment.yaml").write_text("")
    (place / "examples").mkdir()
    (place / "examples" / "quickstart.yaml").write_text("")
    assert "doctor" in completed(shell, place, "do")
    offered = completed(shell, place, "resume", "su")
    assert ("sums" in offered, "votes" in offered) == (True, False)
    offered = completed(shell, place, "run", "")
    assert "sums.yaml" in offered
    assert "examples/quickstart.yaml" in offered
    assert "--dry-run" in completed(shell, place, "run", "--dr")


def test_completion_is_shown_for_the_shell_that_asks(place: Path) -> None:
    environment = {**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}"}
    if not (BINARIES / "metagen").exists():
        pytest.skip("needs metagen as an installed command")
    command = ["bash", "--norc", "-c", "metagen --show-completion; true"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "complete_bash" in done.stdout, done.stderr
