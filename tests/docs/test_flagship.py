"""The flagship's page tells what its kept report says."""

from __future__ import annotations

import gzip
import re
from html import unescape
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
#: The most that a report may have, in bytes.
LARGEST = 5_000_000
INTERVAL = re.compile(r"\[([+−]?[\d.]+), ([+−]?[\d.]+)\]")


@pytest.fixture(scope="module")
def report() -> bytes:
    return gzip.decompress((STUDIES / "frontier-report.html.gz").read_bytes())


def intervals(text: str) -> set[tuple[str, str]]:
    return {(low.strip("+"), high.strip("+")) for low, high in INTERVAL.findall(text)}


def test_every_interval_of_the_page_is_of_the_report(report: bytes) -> None:
    told = intervals((STUDIES / "flagship.md").read_text("utf-8"))
    assert len(told) > 15
    assert told - intervals(unescape(report.decode("utf-8"))) == set()


def test_the_report_is_whole_and_stands_alone(report: bytes) -> None:
    text = report.decode("utf-8")
    assert len(report) < LARGEST and text.rstrip().endswith("</html>")
    assert re.findall(r'(?:src|href)="https?:', text) == []
