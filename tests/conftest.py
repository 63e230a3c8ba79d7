"""What all tests share: hypothesis profiles, one thread of torch for each process, and its memory."""

import ctypes
import gc
import importlib.util
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Experiment files of tests name modules that tests write, in directories of their own; see `test_trust.py`.
os.environ["METAGEN_TRUST"] = "1"
# Steps are compiled before the tests, and in no other cache.
os.environ.setdefault("METAGEN_COMPILED", "ready")
# Kernels of a GPU are run on the CPU. Triton reads this when it is imported, as torch imports it.
os.environ.setdefault("TRITON_INTERPRET", "1")
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

#: Bytes that a process may grow by before its memory is tidied. The C library keeps what was freed until told; and
#: collections by Python itself count objects, where a closed engine is few, with keys and values of 100 MB. They are
#: the last resort, since they walk through two million objects of all tests.
GROWTH = 256 << 20
_resident = 0
_C = ctypes.CDLL(None)
#: Beginnings of the names of files that one process runs: a cluster of Ray, and models that are trained in a session.
TOGETHER = ("tests/generators/ray/", "tests/examples/test_train")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the steps of the torch engine once, before the processes begin that share them; there may be no torch."""
    wanted = os.environ["METAGEN_COMPILED"] == "ready" and importlib.util.find_spec("torch") is not None
    if wanted and not hasattr(config, "workerinput"):
        from metagen.generators.compiled.build import build

        if reason := build():
            print(f"Steps are not compiled, and their tests are skipped: {reason}", file=sys.stderr)


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


@pytest.fixture(autouse=True, scope="module")
def environment_is_left() -> Iterator[None]:
    """A file of tests leaves what starts other processes as it was: they would connect, import or cache elsewhere."""
    watched = ("HOME", "METAGEN_", "OPENAI_", "PATH", "PYTHONPATH", "RAY_ADDRESS", "XDG_")

    def look() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith(watched)}

    before = look()
    yield
    assert look() == before


@pytest.fixture(scope="module")
def lean_figures() -> Iterator[list[str]]:
    """Suffixes of figure files that are left empty: drawing them for a report takes longer than most runs of tests.

    What stands in a page is drawn all the same; files are tested in `tests/analysis` and with `whole_figures`.
    """
    from matplotlib.figure import Figure

    from metagen.analysis import figures

    left, savefig, as_svg = [".pdf", ".png", ".svg"], Figure.savefig, figures.as_svg

    def leave_file(figure: Figure, file: Any, **how: Any) -> None:
        if isinstance(file, Path) and file.suffix in left:
            file.write_bytes(b"")
        else:
            savefig(figure, file, **how)

    def leave_svg(figure: Figure) -> str:
        return "" if ".svg" in left else as_svg(figure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", leave_file)
        patch.setattr(figures, "as_svg", leave_svg)
        yield left


@pytest.fixture
def bare_reports() -> Iterator[pytest.MonkeyPatch]:
    """Reports of runs have no figures, which take most of the time of a small run; all else of them is written.

    It is for tests of what runs; figures of runs are tested in `tests/runs/page`. A test that looks at some undoes it.
    """
    from metagen.runs.page import bought, figure, report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "draw", lambda state, results, directory: [])
        patch.setattr(figure, "plots", lambda results: [])
        patch.setattr(bought, "draw_budgets", lambda groups, x, what: ({}, ""))
        yield patch


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is run by one process: dealt out test by test, every process would make the fixtures of every file."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((one for one in TOGETHER if nodeid.startswith(one)), super()._split_scope(nodeid))

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage in what all tests stand on: two million objects, a third of the time to make them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Give back the memory of the test, when its fixtures have ended."""
    global _resident
    if _bytes() <= _resident + GROWTH:
        return
    if trim := getattr(_C, "malloc_trim", None):  # of glibc alone
        trim(0)
    if _bytes() > _resident + GROWTH:
        gc.collect()
        if trim:
            trim(0)
        _resident = _bytes()


def _bytes() -> int:
    """Of memory that this process alone holds; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    # Files that are mapped come and go as others need memory.
    _, resident, shared, *_ = map(int, statm.read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
