"""Examples in docstrings are run: each docstring by itself, in a directory of its own."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import pytest

from tests.docs.examples import definitions

PROMPT = ">>> "
EXAMPLES = {
    f"{module}.{name}": text
    for module, inside in definitions().items()
    for name, node in inside.items()
    if "\nExamples:\n" in (text := ast.get_docstring(node) or "")
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_comes_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
    said: list[str] = []
    done = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert done.attempted > 1 and not done.failed, "".join(said)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_ends_its_docstring(name: str) -> None:
    """There the site finds it, and makes a block of it."""
    head, mark, code = EXAMPLES[name].partition("\n\nExamples:\n")
    assert mark and PROMPT not in head
    assert all(line.startswith("    ") for line in code.splitlines() if line)


def test_every_example_is_found() -> None:
    root = Path(__file__).parents[2] / "metagen"
    texts = {path: path.read_text("utf-8") for path in root.rglob("*.py")}
    assert sum(text.count(f"\n        {PROMPT}") for text in texts.values()) == sum(
        text.count(PROMPT) for text in EXAMPLES.values()
    )
    assert len(EXAMPLES) > 50
