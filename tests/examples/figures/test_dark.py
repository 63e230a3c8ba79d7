"""A figure for a dark page: each colour is that of the reports in the dark, and can be read on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.figures.dark import dark_colours, darken, write_dark
from metagen.analysis.figures import STYLES, Line, curves, save_svg
from metagen.errors import InputError

#: Grounds of dark pages: GitHub's two, and that of the reports.
GROUNDS = ("#0d1117", "#22272e", "#17191c")


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_lines_and_letters_stand_out_on_dark_pages() -> None:
    colours = dark_colours()
    for colour in [*(colour for colour, _, _ in STYLES), "#333333", "#555555"]:
        for ground in GROUNDS:
            contrast = (luminance(colours[colour]) + 0.05) / (luminance(ground) + 0.05)
            assert contrast >= 4.5, (colour, colours[colour], ground, contrast)


def test_shapes_stay_and_every_colour_turns(tmp_path: Path) -> None:
    lines = [Line(str(i), [1.0, 2.0], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3]) for i in range(len(STYLES))]
    light = save_svg(curves({"": lines}, title="A title"), tmp_path / "figure")
    dark = write_dark(light)
    assert dark == tmp_path / "figure-dark.svg"
    before, after = light.read_text("utf-8"), dark.read_text("utf-8")
    colours = {colour.lower(): other for colour, other in dark_colours().items()}
    found = re.findall(r"#[0-9a-f]{6}\b", before)
    assert {colour.lower() for colour, _, _ in STYLES} <= set(found)
    _, *turned = re.findall(r"#[0-9a-f]{6}\b", after)  # the first is the ink of the whole
    assert turned == [colours[colour] for colour in found if colours[colour] != "none"]
    assert "#ffffff" in before and re.findall(r' d="[^"]*"', before) == re.findall(r' d="[^"]*"', after)


def test_letters_without_a_colour_are_light(tmp_path: Path) -> None:
    light = save_svg(curves({"": [Line("a", [1.0], [0.1])]}), tmp_path / "figure").read_text("utf-8")
    assert re.search(r'<g transform="[^"]*scale', light), (
        "letters that have no colour, and are black by themselves"
    )
    assert re.search(r'<svg fill="#ececea"', darken(light))


def test_a_colour_without_a_dark_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"\['#123456'\]: expected those of .*VARIABLES"):
        darken('<svg style="fill: #123456; stroke: #E4E4E4">')
