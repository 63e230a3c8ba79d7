"""Pictures: each strategy has one, pages and files agree, and all are small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.figures.dark import darken

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Bytes of an SVG.
LARGEST = 150_000
PAGES = sorted(DOCS.rglob("*.md"))
STRATEGIES = sorted(path for path in (DOCS / "strategies").glob("*.md") if path.stem != "index")


def pictures(page: Path) -> set[Path]:
    """What a page shows from the folder of images."""
    found = re.findall(r"!\[[^\]]+\]\(([^)\s]+)\)", page.read_text("utf-8"))
    return {(page.parent / place).resolve() for place in found}


@pytest.mark.parametrize("page", STRATEGIES, ids=lambda page: page.stem)
def test_a_page_of_strategies_has_a_picture(page: Path) -> None:
    assert pictures(page)


def readme() -> dict[str, Path]:
    """The first picture of the README, by where it is shown: `light` and `dark`."""
    found = re.search(
        r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
        r'<img alt="[^"]{40,}" src="([^"]+)">\s*</picture>',
        (ROOT / "README.md").read_text("utf-8"),
    )
    assert found is not None
    return {"dark": ROOT / found[1], "light": ROOT / found[2]}


def test_pages_show_what_there_is_and_all_of_it() -> None:
    shown = {picture for page in PAGES for picture in pictures(page)} | set(readme().values())
    drawn = {path.resolve() for path in (DOCS / "images").rglob("*.svg")}
    assert {path for path in shown if path.suffix == ".svg"} == drawn
    assert [path for path in shown if not path.exists()] == []


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images").rglob("*.svg")}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}


def test_pictures_follow_the_dark() -> None:
    """Each has dark colours of its own, or the site turns its lightness round, for which its ground must be white."""
    rules = (DOCS / "assets" / "site.css").read_text("utf-8")
    turned = re.search(r'slate"\] \.md-typeset img\[src\*="images/"\](\S*) \{\n  filter: invert\(1\)', rules)
    assert turned is not None
    left_out = set(re.findall(r'\[src\$="([^"]+)"\]', turned[1]))
    for path in (DOCS / "images").rglob("*.svg"):
        if path == readme()["dark"]:
            continue
        text = path.read_text("utf-8")
        own = "prefers-color-scheme: dark" in text or "prefers-color-scheme:dark" in text
        assert own == (path.name in left_out), path
        ground = re.search(r'<g id="patch_1">\s*<path [^>]*style="fill: (#\w+)"', text)
        assert own or (ground is not None and ground[1] == "#ffffff"), path


def test_the_readme_shows_the_same_picture_in_the_dark() -> None:
    """Where the light one changes: `write_dark` of examples/figures/dark.py writes the dark one anew."""
    found = readme()
    assert found["dark"].read_text("utf-8") == darken(found["light"].read_text("utf-8"))
    assert not any("![" in line for line in (ROOT / "README.md").read_text("utf-8").splitlines())
