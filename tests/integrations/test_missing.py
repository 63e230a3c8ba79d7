"""A package that is missing is named, with the way to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest


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
