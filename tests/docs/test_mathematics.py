"""Mathematics stands in plain letters: nothing in the site sets TeX, so readers would see it as it is written."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


#: A formula between dollars, and the names that formulas have.
TEX = re.compile(r"\$\\?[A-Za-z(][^$\n\"]*[_^\\][^$\n\"]*\$|\$\$|\\(?:lambda|frac|sum|le|cdot)\b")


def test_no_page_and_no_docstring_has_tex_in_its_text() -> None:
    texts = {path: path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    for path in (ROOT / "metagen").rglob("*.py"):
        texts[path] = "\n".join(re.findall(r'"""(.*?)"""', path.read_text("utf-8"), re.S))
    found = {
        str(path.relative_to(ROOT)): TEX.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S))
        for path, text in texts.items()
        if "verifiers/math" not in str(path)  # which reads TeX, and speaks of it
    }
    assert {path: some for path, some in found.items() if some} == {}
