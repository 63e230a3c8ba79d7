"""What all tests share: hypothesis profiles, and one thread of torch for each process."""

import os
import sys

import pytest
from hypothesis import settings

# Experiment files of tests name modules that tests write, in directories of their own; see `test_trust.py`.
os.environ["METAGEN_TRUST"] = "1"
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def isolation() -> None:
    """What runs programs is skipped where they cannot be isolated."""
    from metagen.verifiers.code.isolation import IsolationError
    from metagen.verifiers.code.sandbox import Sandbox

    try:
        Sandbox()
    except IsolationError as error:
        pytest.skip(f"programs cannot be isolated here: {error}")


@pytest.fixture(autouse=True)
def one_thread_of_torch() -> None:
    """Tests run side by side: a process that has imported torch keeps it to one thread."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
