"""Foreign code that a file asks for is imported only if its user has said so."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen import trust
from metagen.cli import app
from metagen.errors import ConfigError
from metagen.runs.declare import registry
from metagen.runs.declare.specs.engines import VLLMSpec
from metagen.verifiers.rules import answer_rule

ROOT = Path(__file__).parents[1]
EXPERIMENT = """
name: mail
task: {{kind: arithmetic, split: validation, per_level: 1, limit: 2}}
generators:
  own: {{kind: "{kind}", command: touch {mark}}}
strategies: {{one: {{kind: sample}}}}
grid: {{n: [1]}}
"""
#: A module that leaves a mark when it is imported, and when it is called.
MODULE = """
import os
from pathlib import Path

Path({imported!r}).touch()
from metagen.generators.function import FunctionGenerator


def generator(command=""):
    Path({called!r}).touch()
    return FunctionGenerator(lambda prefix, seed, index: "A: 1", name="own", count=len, max_tokens=9)
"""


class Place:
    """A directory in which somebody works, and one in which mail arrives."""

    def __init__(self, root: Path) -> None:
        self.home, self.mail = root / "home", root / "mail"
        self.imported, self.called, self.shell = (root / name for name in ("imported", "called", "shell"))
        for folder in (self.home, self.mail):
            folder.mkdir()

    def module(self, folder: Path, name: str = "own") -> None:
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(MODULE.format(imported=str(self.imported), called=str(self.called)))

    def file(self, folder: Path, kind: str) -> Path:
        path = folder / "experiment.yaml"
        path.write_text(EXPERIMENT.format(kind=kind, mark=self.shell))
        return path

    def process(self, *args: str, path: str = "") -> subprocess.CompletedProcess[str]:
        """The command as people start it, with `path` on Python's."""
        known = {name: value for name, value in os.environ.items() if name != trust.VARIABLE}
        return subprocess.run(
            [sys.executable, "-m", "metagen.cli", *args], cwd=self.home, capture_output=True, text=True,
            env={**known, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}"}, timeout=300, check=False,
        )  # fmt: skip

    def metagen(self, *args: str, path: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """As `process`, but here, in a hundredth of the time; what it imports is forgotten afterwards."""
        before = set(sys.modules)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            for folder in (path, "") if path else ("",):
                patch.syspath_prepend(folder)
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                done = CliRunner().invoke(app, list(args))
            finally:
                for name in set(sys.modules) - before:
                    file = getattr(sys.modules[name], "__file__", None) or ""
                    if Path(file).is_relative_to(self.home.parent):
                        del sys.modules[name]
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)

    @property
    def ran(self) -> bool:
        return self.imported.exists() or self.called.exists() or self.shell.exists()


pytestmark = pytest.mark.usefixtures("bare_reports")


@pytest.fixture(autouse=True)
def careful(monkeypatch: pytest.MonkeyPatch) -> None:
    """As people run it."""
    monkeypatch.delenv(trust.VARIABLE)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("subprocess:getoutput", "code of others"),
        ("builtins:exec", "code of others"),
        ("posix:system", "code of others"),
        ("yaml:unsafe_load", "code of others"),
        ("metagen.generators.loop:os.system", "no part of"),
        ("metagen.trust:load", "no part of"),
        ("metagen.trust:everything", "no part of"),
        ("no_such_module_at_all:f", "not found"),
    ],
)
def test_a_file_cannot_name_what_is_installed(tmp_path: Path, kind: str, said: str) -> None:
    with trust.guard(tmp_path), pytest.raises(ConfigError, match=said):
        registry.find("generators", kind)


@pytest.mark.parametrize("command", [["run"], ["run", "--dry-run"], ["study"], ["study", "--dry-run"]])
def test_no_command_runs_what_a_file_asks_for(place: Place, command: list[str]) -> None:
    file = place.file(place.home, "os:system")
    if "study" in command:
        file.write_text(file.read_text() + "study: {}\n")
    done = place.metagen(*command, str(file))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "code of others" in done.stderr.replace("\n", " "), done.stderr
    assert "--trust" in done.stderr
    assert not place.ran


def test_a_module_beside_a_file_from_elsewhere_is_not_imported(place: Place) -> None:
    place.module(place.mail)
    done = place.process(
        "run", str(place.file(place.mail, "own:generator")), "--dry-run", path=str(place.mail)
    )
    assert done.returncode == 2
    assert "outside of the current directory" in done.stderr.replace("\n", " ")
    assert not place.ran


def test_a_file_of_ones_own_does_not_reach_a_module_elsewhere(place: Place) -> None:
    place.module(place.mail)
    done = place.metagen("run", str(place.file(place.home, "own:generator")), path=str(place.mail))
    assert done.returncode == 2
    assert "code of others" in done.stderr
    assert not place.ran


def test_packages_above_a_module_are_not_imported_to_find_it(place: Place) -> None:
    place.module(place.mail, "pack.own")
    (place.mail / "pack" / "__init__.py").write_text(f"open({str(place.imported)!r}, 'w').close()")
    done = place.metagen("run", str(place.file(place.home, "pack.own:generator")), path=str(place.mail))
    assert done.returncode == 2
    assert not place.ran


def test_what_an_own_module_has_imported_is_not_its_own(place: Place) -> None:
    place.module(place.home)
    done = place.metagen("run", str(place.file(place.home, "own:os.system")), path=".")
    assert done.returncode == 2
    assert "posix" in done.stderr
    assert not place.shell.exists()


def test_inner_parts_and_what_a_run_directory_brings_are_not_ones_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = place.home / "runs" / "mail"
    place.module(received, "metagen_received")
    (received / "state.json").write_text("{}")
    # A package elsewhere whose modules lie in the project: its own file runs as well.
    package = place.mail / "metagen_leading"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").symlink_to(place.home / "metagen_mine.py")
    (place.home / "metagen_mine.py").write_text(
        "from metagen.verifiers.math import MathRule\nrule = MathRule()\n"
    )
    for folder in (received, place.mail, place.home):
        monkeypatch.syspath_prepend(str(folder))
    with trust.guard(place.home):
        for target, said in (
            ("metagen_received:generator", "code of others"),
            ("metagen_leading.inner:rule", "code of others"),
            ("metagen_mine:rule.__class__.__init__", "inner part"),
            ("metagen_mine:MathRule", "of 'metagen"),
        ):
            with pytest.raises(ConfigError, match=said):
                registry.find("generators", target)
        assert answer_rule(
            "metagen_mine:rule", "task.answer"
        ).fingerprint  # made by it, of a class of metagen's
    assert not place.ran


def test_an_environment_of_packages_below_the_directory_is_of_others(place: Place) -> None:
    packages = place.home / ".venv" / "lib" / "site-packages"
    place.module(packages)
    done = place.metagen("run", str(place.file(place.home, "own:generator")), path=str(packages))
    assert done.returncode == 2
    assert not place.ran


def test_ones_own_module_runs_and_resumes(place: Place) -> None:
    place.module(place.home)
    file = place.file(place.home, "own:generator")
    done = place.metagen("run", str(file), "--out", "out", path=".")
    assert done.returncode == 0, done.stderr
    assert place.called.exists()
    assert place.metagen("resume", "out", path=".").returncode == 0
    place.called.unlink()
    place.imported.unlink()
    # The run directory is of this place; the module is not any more.
    (place.home / "own.py").rename(place.mail / "own.py")
    done = place.metagen("resume", "out", path=str(place.mail))
    assert done.returncode == 2
    assert not place.ran
    assert place.metagen("resume", "out", "--trust", path=str(place.mail)).returncode == 0
    assert place.called.exists()


@pytest.mark.parametrize("how", ["option", "variable"])
def test_what_is_trusted_runs(place: Place, how: str) -> None:
    place.module(place.mail)
    file = place.file(place.mail, "own:generator")
    option = ["--trust"] if how == "option" else []
    env = {} if how == "option" else {trust.VARIABLE: "1"}
    done = place.metagen("run", str(file), "--out", "out", *option, path=str(place.mail), **env)
    assert done.returncode == 0, done.stderr
    assert place.called.exists()


def test_programs_decide_for_themselves_and_the_guard_is_taken_down(tmp_path: Path) -> None:
    assert registry.find("generators", "os:getcwd") is os.getcwd
    with trust.guard(tmp_path):
        with pytest.raises(ConfigError, match="code of others"):
            registry.find("generators", "os:getcwd")
        with pytest.raises(ConfigError, match="code of others"):
            answer_rule("os:getcwd", "task.answer")
        assert registry.find("strategies", "majority")
        assert registry.find("verifiers", "metagen.tasks.countdown.verifier:Played")
        assert answer_rule("math", "task.answer")
        trust.everything(True)
        assert registry.find("generators", "os:getcwd") is os.getcwd
    assert trust.VARIABLE not in os.environ
    assert registry.find("generators", "os:getcwd") is os.getcwd


def test_a_project_that_is_installed_as_editable_is_ones_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finders of editable installations are none of a path's."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            known = folder / f"{name}.py"
            return importlib.util.spec_from_file_location(name, known) if known.exists() else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    for folder, name in ((place.mail, "metagen_mailed"), (place.home, "metagen_editable")):
        place.module(folder, name)
        with trust.guard(place.home):
            if folder == place.mail:
                with pytest.raises(ConfigError, match="code of others"):
                    registry.find("generators", f"{name}:generator")
                assert not place.ran
            else:
                assert registry.find("generators", f"{name}:generator").__name__ == "generator"
    monkeypatch.delitem(sys.modules, "metagen_editable")


@pytest.mark.parametrize(
    "args",
    [
        {"trust_remote_code": True},
        {"hf_overrides": {"trust_remote_code": True}},
        {"tool_parser_plugin": "parser"},
        {"worker_cls": "evil.Worker"},
        {"logits_processors": ["evil:Processor"]},
        {"middleware": ["evil.py"]},
    ],
)
def test_arguments_of_vllm_that_name_code_need_trust_too(tmp_path: Path, args: dict[str, object]) -> None:
    given = {"kind": "vllm", "model": "tiny-0.1m", "args": args}
    assert VLLMSpec.model_validate(given).args == args
    with trust.guard(tmp_path), pytest.raises(ValueError, match="--trust"):
        VLLMSpec.model_validate(given)


def test_a_directory_that_holds_whatever_comes_is_nobodys_project() -> None:
    for home in (Path.home(), Path("/")):
        with trust.guard(home), pytest.raises(ConfigError, match="no project of yours"):
            registry.find("generators", "tests.test_trust:Place")


def calls(*names: str) -> list[tuple[str, str, ast.Call]]:
    """All calls of methods in the package, the examples and the benchmarks: place, name and call."""
    found = []
    for folder in ("metagen", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if not any(name in text for name in names):
                continue  # parsing takes long
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in names
                ):
                    found.append((f"{path}:{node.lineno}", node.func.attr, node))
    return found


def says(call: ast.Call, name: str, value: object) -> bool:
    return any(
        k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is value for k in call.keywords
    )


def test_no_model_and_no_checkpoint_brings_code() -> None:
    found = calls("from_pretrained", "load")
    loads = [
        (at, call) for at, name, call in found if name == "from_pretrained" and "Auto" in ast.unparse(call)
    ]
    assert len(loads) > 5
    assert not [at for at, call in loads if not says(call, "trust_remote_code", False)]
    torch = [(at, call) for at, _, call in found if ast.unparse(call.func) == "torch.load"]
    assert torch
    assert not [at for at, call in torch if not says(call, "weights_only", True)]
    numpy = [(at, call) for at, _, call in found if ast.unparse(call.func) == "np.load"]
    assert not [at for at, call in numpy if says(call, "allow_pickle", True)]


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_a_user_who_trusts_nothing_can_look_at_every_example(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("METAGEN_TRUST", raising=False)
    monkeypatch.chdir(ROOT)
    command = "study" if "\nstudy:" in file.read_text("utf-8") else "run"
    # Whose code it is does not depend on how many problems there are.
    done = CliRunner().invoke(app, [command, str(file), "--dry-run", "--limit", "8"])
    assert done.exit_code == 0, done.output
