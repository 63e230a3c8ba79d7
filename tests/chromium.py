"""Chromium for tests of pages: started in one place, and tabs that fail where anything is amiss."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
    *["--disable-background-networking", "--disable-component-update", "--disable-sync"],
)


@contextmanager
def start() -> Iterator[Any]:
    """A browser; without one the test is skipped.

    Its driver keeps an event loop in this thread. Make runs before, since they need a loop of their own.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if FOUND is None:
        pytest.skip("no Chromium on this machine; on Debian and Ubuntu: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=FOUND, args=list(FLAGS))
        yield started
        started.close()


@contextmanager
def opened(
    chromium: Any,
    width: int = 1400,
    scheme: str = "light",
    reaches: tuple[str, ...] = ("file:", "data:"),
    missing: bool = False,
) -> Iterator[Any]:
    """A tab; whatever comes to the console, or goes to another place than `reaches`, fails the test.

    missing: something may be not found.
    """
    noise: list[str] = []
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    tab.on("console", lambda message: noise.append(message.text))
    tab.on("pageerror", lambda error: noise.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(reaches) else noise.append(r.url))
    yield tab
    context.close()
    heard = [line for line in noise if not (missing and "404" in line)]
    assert not heard, heard
