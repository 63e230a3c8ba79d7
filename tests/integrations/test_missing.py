"""A package that is missing is named, with the way to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metagen.errors import lacks


@pytest.mark.parametrize(
    ("module", "package", "said"),
    [
        ("dspy", "dspy", "pip install 'dspy>=3.4' beside metagen"),
        ("inspect", "inspect_ai", "pip install inspect-ai beside metagen"),
        ("lm_eval", "lm_eval", "pip install lm-eval beside metagen"),
        ("telemetry", "opentelemetry", "pip install -e '.[telemetry]'"),
    ],
)
def test_an_integration_without_its_package_says_how_to_get_it(module: str, package: str, said: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import metagen.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ") and said in last


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("from metagen.tasks.lm_eval import LMEvalTask as T; T('gsm8k')", "pip install 'lm-eval>=0.4.13'"),
        (
            "from metagen.tasks.lighteval import LightevalTask as T; T('gsm8k')",
            "pip install lighteval beside",
        ),
        ("from metagen.tasks.tasksets import VerifiersTask as T; T('a:B')", "pip install 'verifiers>=0.4'"),
    ],
)
def test_a_task_without_its_package_says_how_to_get_it(program: str, said: str) -> None:
    head = "import sys; sys.modules |= dict.fromkeys(('lighteval', 'lm_eval', 'verifiers')); "
    done = subprocess.run([sys.executable, "-c", head + program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("metagen.errors.InputError") and said in last


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'box'", name="box"), "box, which is not installed"),
        (
            ImportError("cannot import name 'Lid' from 'box'", name="box"),
            "cannot import name 'Lid' from 'box'",
        ),
        (ModuleNotFoundError("Could not import module 'Lid'"), "Could not import module 'Lid'"),
    ],
)
def test_a_package_that_is_there_is_not_said_to_be_missing(error: ImportError, said: str) -> None:
    found = lacks(error)
    assert said in found and "None" not in found
    assert ("not installed" in found) == (error.name == "box" and isinstance(error, ModuleNotFoundError))


def test_what_another_import_lacks_is_named() -> None:
    error = ModuleNotFoundError("traces need a part of them", name="traces")
    error.__cause__ = RuntimeError("while it was made")
    error.__cause__.__cause__ = ModuleNotFoundError("No module named 'box'", name="box")
    assert lacks(error) == "box, which is not installed"
    error.__cause__ = ImportError("libbox.so: no such file")
    assert lacks(error) == "traces, which is not installed"
    outer = ImportError("spans need a package that cannot be imported")
    outer.__cause__ = ImportError("libbox.so: no such file")
    assert lacks(outer) == "a package that cannot be imported (libbox.so: no such file)"


@pytest.mark.parametrize(
    ("command", "package", "said"),
    [
        (
            "'run', 'quickstart.yaml', '--telemetry'",
            "opentelemetry",
            "--telemetry needs opentelemetry, which is not installed: ",
        ),
        ("'view'", "starlette", "the viewer needs starlette"),
    ],
)
def test_a_command_names_what_it_lacks_once(command: str, package: str, said: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / "examples" / "quickstart.yaml", tmp_path)
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = [{command}]; "
        "from metagen.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("pip install") == 1, done.stderr


def test_a_broken_package_tells_what_its_import_said(tmp_path: Path) -> None:
    """Of another version, say: it is there, and lacks a name."""
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise ImportError('built for another Python')")
    program = "from metagen.tasks.reasoning_gym import ReasoningGymTask as T; T('chain_sum')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert "InputError" in last and "built for another Python" in last and "None" not in last
