"""The engine's laws on the device, in float32 and in bfloat16."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, found

LAWS = Path(__file__).parents[1] / "laws.py"
#: In a rehearsal, the laws that are tried.
FEW = "greedy or seed or stop or neighbours or batch or log_prob"


class Count:
    """What became of each test."""

    def __init__(self) -> None:
        self.passed, self.skipped = 0, 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.when == "call":
            self.passed += report.passed
        self.skipped += report.skipped


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    for dtype in ("float32", "bfloat16"):
        yield dtype, partial(laws, place, dtype)


def laws(place: Place, dtype: str) -> Iterable[Found]:
    """In a process of their own, since the class reads the number format when it is imported."""
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as other:
        passed, skipped, failed, code = other.apply(run, (f"{place.device}:{dtype}", place.rehearsal))
    settings = f"tiny-0.1m in {dtype} on {place.device}; {passed} laws hold, {skipped} skipped"
    if not passed and not failed:
        yield Found(
            f"laws of engines broken, {dtype}", None, "", settings, note=f"pytest ran none (exit code {code})"
        )
        return
    yield found(
        f"laws of engines broken, {dtype}",
        len(failed),
        "laws",
        settings,
        "≤ 0",
        ", ".join(sorted(set(failed))) or None,
    )


def run(where: str, few: bool) -> tuple[int, int, list[str], int]:
    os.environ["METAGEN_GPU_LAWS"] = where
    count = Count()
    args = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", str(LAWS)]
    code = pytest.main([*args, *(["-k", FEW] if few else [])], plugins=[count])
    return count.passed, count.skipped, count.failed, int(code)
