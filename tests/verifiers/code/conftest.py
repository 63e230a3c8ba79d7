"""A sandbox for the tests; where nothing can be isolated they skip, and say why."""

import os

import pytest

from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.limits import MIB, Limits
from metagen.verifiers.code.sandbox import Sandbox

LIMITS = Limits(
    wall=10.0, memory=256 * MIB, processes=16, output=64 * 1024, answer=MIB, file=4 * MIB, disk=16 * MIB
)


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return Sandbox(limits=LIMITS)
    except IsolationError as error:
        # `make test` installs bubblewrap where it is root, as continuous integration is.
        if os.environ.get("CI") and os.geteuid() == 0:
            raise
        pytest.skip(f"untrusted programs cannot be isolated on this machine: {error}")
