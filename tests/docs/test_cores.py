"""The cores on the pages of docs/strategies are the library's own code.

    <!-- source: module:name, module:name -->
    ```python

stands directly above a block that is the text of these objects, moved to the left margin, in this order.

python tests/docs/test_cores.py      # writes them anew, from the code as it is

Where ruff would format them otherwise than in their place, `<!-- fmt: off -->` stands above and `<!-- fmt: on -->`
below.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "strategies"
#: Pages that are about no strategy of their own.
OTHERS = {"index", "countdown", "equal_compute", "programs"}
BLOCK = re.compile(
    r"^<!-- source: (?P<names>[^>]+?) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"<!--\s*source\b")
#: Lines of one block: a screen.
MOST = 40
REFRESH = "python tests/docs/test_cores.py"


def text(page: str) -> str:
    return (PAGES / f"{page}.md").read_text("utf-8")


def source(names: str) -> str:
    """The code of objects, one below the other."""
    found = (pkgutil.resolve_name(name.strip()) for name in names.split(","))
    return "\n\n".join(textwrap.dedent(inspect.getsource(each)) for each in found)


def renewed(page: str) -> str:
    """A page whose blocks are what the code is now."""
    return BLOCK.sub(lambda m: f"<!-- source: {m['names']} -->\n```python\n{source(m['names'])}```", page)


def core(page: str) -> str:
    """What stands under the heading, up to the next of its kind."""
    found = re.search(r"^## The core\b.*?(?=^## |\Z)", text(page), re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
BLOCKS = [(page, match["names"], match["code"]) for page in NAMES for match in BLOCK.finditer(text(page))]


@pytest.mark.parametrize(("page", "names", "code"), BLOCKS, ids=[f"{p}: {n}" for p, n, _ in BLOCKS])
def test_a_core_is_the_code_of_the_library(page: str, names: str, code: str) -> None:
    assert code == source(names), f"docs/strategies/{page}.md shows {names} as it was; renew it: {REFRESH}"


@pytest.mark.parametrize(("page", "names", "code"), BLOCKS, ids=[f"{p}: {n}" for p, n, _ in BLOCKS])
def test_a_core_fits_on_a_screen(page: str, names: str, code: str) -> None:
    assert len(code.splitlines()) <= MOST


@pytest.mark.parametrize("page", [name for name in NAMES if name not in OTHERS])
def test_each_strategy_shows_its_core(page: str) -> None:
    assert BLOCK.search(core(page)), (
        f"docs/strategies/{page}.md has no block with its source under '## The core'"
    )


def test_no_comment_is_overlooked() -> None:
    assert {p: len(COMMENT.findall(text(p))) for p in NAMES} == {
        p: sum(page == p for page, _, _ in BLOCKS) for p in NAMES
    }


def test_what_has_changed_is_renewed() -> None:
    mine = "<!-- source: textwrap:indent -->\n```python\nold\n```\n"
    assert renewed(mine).count("def indent(") == 1
    assert "old" not in renewed(mine)
    assert renewed(renewed(mine)) == renewed(mine)


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        before = path.read_text("utf-8")
        if (after := renewed(before)) != before:
            path.write_text(after, encoding="utf-8")
            print(path)
