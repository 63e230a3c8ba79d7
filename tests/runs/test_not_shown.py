"""Sentences never claim more than was shown: all templates of studies, experiments and analysis, and the pages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What says that two are equal where nothing was shown, or is surer than its resamples.
CLAIMS = {
    "not shown is no equality": r"no difference (is shown|between|of any size)|never trails|\(all are alike\)"
    r"|beyond chance|may be chance|nothing to tell apart|equally good|the same, to|make no difference|^all alike",
    "a limit is a question": r"(is|are|was|stays|lies) at the limit(?! of theory\?)",
    "resamples are finite": r"of resamples( of the problems)? or more|100\.0% of resamples",
}


def templates(path: Path) -> Iterator[str]:
    """The literal strings of a file, docstrings aside; pieces of one sentence are joined by the parser."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
            yield node.value


def texts() -> Iterator[tuple[str, str]]:
    for part in ("runs", "analysis"):
        for path in sorted((ROOT / "metagen" / part).rglob("*.py")):
            yield from ((str(path.relative_to(ROOT)), text) for text in templates(path))
    for path in sorted((ROOT / "docs" / "studies").glob("*.md")):
        if path.name != "flagship.md":
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", CLAIMS)
def test_no_sentence_claims_what_was_not_shown(what: str) -> None:
    found = [
        (where, match.group())
        for where, text in texts()
        for match in re.finditer(CLAIMS[what], text, flags=re.IGNORECASE)
    ]
    assert found == []


def test_the_scan_sees_sentences() -> None:
    assert any("not shown to differ" in text for _, text in texts())
    assert re.search(CLAIMS["resamples are finite"], "(in 100.0% of resamples or more)")
