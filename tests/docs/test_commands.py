"""Commands that no test runs as they are printed: in prose, in READMEs, in the heads of scripts and experiments.

The CLI parses each `metagen …`. A `python SCRIPT …` is parsed by the arguments that the source of the script adds, so
that none is imported. Files of the repository that a command names are there.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from markdown_it import MarkdownIt

from tests.docs.test_blocks import PAGES, ROOT, Block, assignments, commands, parse, shown

HEADS = sorted(path for kind in ("*.md", "*.py", "*.yaml") for path in (ROOT / "examples").rglob(kind))
#: Options of `add_argument` that are kept: how many words an argument takes, and whether it is needed.
SHAPE = {"action", "dest", "nargs", "required"}
#: Scripts of which a page speaks without running them.
NOT_OURS = {"program.py"}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AssertionError(f"{self.prog}: {message}")


def head(path: Path) -> str:
    """A page; of a script its docstring, of an experiment the comment above it, as Markdown."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    if path.suffix == ".yaml":
        comment = re.match(r"(?:#.*\n)*", text)
        return re.sub(r"^#", "  ", comment[0] if comment else "", flags=re.MULTILINE)
    return text


def told(path: Path) -> Iterator[tuple[str, bool]]:
    """Its commands, a line each, and whether it is in prose, which may leave out what has to follow."""
    for token in MarkdownIt().parse(head(path)):
        if token.type == "code_block" or token.info.split(" ")[0] in ("bash", "console"):
            # Behind two spaces stands what a command is for.
            for line in re.sub(r" *\\\n *", " ", token.content).splitlines():
                yield re.split(r" {2,}", line.strip().removeprefix("$ "))[0], False
        for inline in token.children or ():
            if inline.type == "code_inline" and "…" not in inline.content:
                yield inline.content, True


@cache
def parser(script: Path) -> Parser | None:
    """The arguments that a script adds, itself or by functions of modules beside it; None if it takes none by name."""
    body = ast.parse(script.read_text("utf-8"))
    sources: list[ast.AST] = [body]
    if "ArgumentParser(" not in ast.unparse(body):
        imports = [node for node in ast.walk(body) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {getattr(node, "module", None) or node.names[0].name for node in imports}
        for path in (folder / f"{name}.py" for name in names for folder in script.parents[:2]):
            functions = ast.parse(path.read_text("utf-8")).body if path.exists() else []
            # Those that make a parser of their own are of another script.
            shared = [f for f in functions if isinstance(f, ast.FunctionDef)]
            sources += [f for f in shared if f.name != "main" or "ArgumentParser(" not in ast.unparse(f)]
    found = Parser(prog=shown(script), conflict_handler="resolve")
    for node in (node for source in sources for node in ast.walk(source) if isinstance(node, ast.Call)):
        called, first = ast.unparse(node.func), node.args and node.args[0]
        if called.endswith("add_argument") and isinstance(first, ast.Constant):
            shape: dict[str, Any] = {
                word.arg: word.value.value
                for word in node.keywords
                if word.arg in SHAPE and isinstance(word.value, ast.Constant)
            }
            found.add_argument(str(first.value), **shape)
        elif called == "parse":  # options by their names, each with a dictionary
            for word in node.keywords:
                found.add_argument(f"--{word.arg}", required="'default'" not in ast.unparse(word.value))
    return found if len(found._actions) > 1 else None  # --help is there anyhow


def follow(line: str, prose: bool, place: Path) -> bool:
    """Whether it is a command of ours, which is checked. AssertionError, or click's, says what is wrong in it."""
    if not re.match(r"(?:[A-Z_]+=\S+ )*(?:python|metagen) ", line):
        return False
    for command in commands(Block(place, 1, "bash", "", line)):
        words = command[assignments(command) :]
        if words[0] == "metagen":
            try:
                if "--install-completion" not in words:  # which is done while it is parsed
                    parse(words[1:])
            except Exception as error:
                if not prose or type(error).__name__ != "MissingParameter":
                    raise
        elif words[1:] and words[1].endswith(".py") and words[1] not in NOT_OURS:
            assert (ROOT / words[1]).exists(), f"there is no {words[1]}"
            rest = [word.strip("[]") for word in words[2:] if "…" not in word]
            if known := parser(ROOT / words[1]):
                known.parse_args(rest)
            else:
                assert not [word for word in rest if word.startswith("-")], f"{words[1]} has no options"
        for word in words:
            assert not word.startswith("examples/") or (ROOT / word).exists(), f"there is no {word}"
    return True


@pytest.mark.parametrize("path", [*PAGES, *HEADS], ids=shown)
def test_what_is_told_to_run_can_be_run(path: Path) -> None:
    for line, prose in told(path):
        try:
            follow(line, prose, path)
        except BaseException as error:
            error.add_note(f"in {shown(path)}: {line}")
            raise


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python examples/nothing.py", "there is no examples/nothing.py"),
        ("python examples/family_report.py", "required: run"),
        ("python examples/solved_within.py RUN --flops 1", "unrecognized arguments: --flops"),
        ("python examples/train/family.py --into RUN --sede 3", "unrecognized arguments: --sede 3"),
        ("python examples/train/words/solver.py --data data/", "required: --into"),
        ("python examples/tree.py --folder runs", "has no options"),
        ("metagen run examples/words.yaml --rehears", "No such option"),
        ("metagen run examples/word.yaml", "there is no examples/word.yaml"),
        ("metagen run", "Missing parameter"),
    ],
)
def test_what_cannot_be_run_is_found(line: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        follow(line, False, ROOT / "README.md")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("examples/words_study.yaml", "metagen study examples/words_study.yaml"),
        ("examples/tree.py", "python examples/tree.py [FOLDER]"),
        ("examples/train/README.md", "python examples/train/family.py --plan"),
        ("docs/guide/family.md", "python examples/family_report.py runs/family"),
    ],
)
def test_commands_are_found_where_they_stand(file: str, line: str) -> None:
    assert line in [found for found, _ in told(ROOT / file)]
