"""`llms.txt` and `llms-full.txt` of the site (https://llmstxt.org): its pages for language models, which read no HTML.

`python -m tests.docs.llms` writes both into `site/`, which `make docs` does last.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
#: Pages that are left out of the full text: they are made from the code, or of use to developers of metagen alone.
LEFT_OUT = ("reference/", "decisions/")


class _Loader(yaml.SafeLoader):
    """Reads the site's file, whose tags name functions of Python."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages(nav: list[Any], section: str = "", group: str = "Overview") -> Iterator[tuple[str, str, str]]:
    """Section, title and path of each page, in order. The first page of a section or of a group may have no title."""
    for entry in nav:
        if isinstance(entry, str):
            yield section, group, entry
            continue
        ((title, inside),) = entry.items()
        if isinstance(inside, str):
            yield section or "Start", title, inside
        else:
            yield from pages(inside, section or title, title if section else "Overview")


def first_sentence(text: str) -> str:
    """Of the first paragraph that is one: no heading, picture, table or block."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for block in re.split(r"\n\s*\n", text):
        line = " ".join(block.split())
        if line and line[0] not in "#!|-*<:>`":
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
            return re.split(r"(?<=[.!?])\s", plain)[0].rstrip(":")
    return ""


def write(site: Path) -> None:
    """Both files. Links lead to the sources of the pages, which the site has beside them."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)
    short = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    full = list(short)
    last = ""
    for section, title, path in pages(config["nav"]):
        text = (ROOT / "docs" / path).read_text("utf-8")
        if section != last:
            short += ["", f"## {section}", ""]
            last = section
        said = first_sentence(text)
        short.append(f"- [{title}]({path})" + (f": {said}" if said else ""))
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        if not path.startswith(LEFT_OUT):
            full += [f"<!-- {path} -->", "", text.strip(), ""]
    (site / "llms.txt").write_text("\n".join(short) + "\n", "utf-8")
    (site / "llms-full.txt").write_text("\n".join(full) + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "site")
