"""Examples of classes and functions: the blocks of pages, and the scripts of examples/, that make or extend them.

Tests run these blocks (`test_blocks.py`) and scripts (`tests/examples`). Here they are read, so that the site can show
them beside what they make.
"""

from __future__ import annotations

import ast
import re
import textwrap
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Scripts that tests run, with those of its folder of templates.
SCRIPTS = ROOT / "examples"
#: Of an example that is shown; a longer one is linked.
MOST_LINES = 14
FENCE = re.compile(
    r"(?P<above>^<!-- source:[^\n]*\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```|^#{1,4} (?P<heading>[^\n]+)",
    re.MULTILINE | re.DOTALL,
)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Example:
    """A statement that makes something, or a class that extends it. file: from the root of the repository."""

    file: str
    title: str
    heading: str
    anchor: str
    code: str
    #: What is needed to run it, if not every machine has that: a GPU, vLLM.
    needs: str = ""

    @property
    def is_page(self) -> bool:
        return self.file.startswith("docs/")


@cache
def definitions() -> dict[str, dict[str, Definition]]:
    """The public classes and functions of each module that have a docstring, in their order."""
    found: dict[str, dict[str, Definition]] = {}
    for path in sorted((ROOT / "metagen").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        body = tree(path).body
        found[name] = {
            node.name: node
            for node in body
            if isinstance(node, Definition) and not node.name.startswith("_") and ast.get_docstring(node)
        }
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def homes() -> dict[str, str]:
    """The names that metagen itself offers, each with its module."""
    stub = ast.parse((ROOT / "metagen" / "__init__.pyi").read_text("utf-8"))
    named = (node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module)
    return {alias.name: str(node.module) for node in named for alias in node.names}


@cache
def owner(dotted: str) -> str | None:
    """Of `package.Class.method`, or of a name that a package hands on, the class or function as it is defined."""
    parts = dotted.split(".")
    if parts[0] != "metagen" or len(parts) < 2:
        return None
    if parts[1] in homes():
        return f"{homes()[parts[1]]}.{parts[1]}"
    for end in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:end]), parts[end]
        if module in definitions():
            if name in definitions()[module]:
                return f"{module}.{name}"
            below = [m for m in definitions() if m.startswith(f"{module}.") and name in definitions()[m]]
            return f"{below[0]}.{name}" if len(below) == 1 else None
    return None


@cache
def kinds() -> dict[str, list[tuple[str, str]]]:
    """By the full name of a class or function, the sections and kinds of experiment files that are made by it."""
    from metagen.runs.declare.registry import KINDS

    found: dict[str, list[tuple[str, str]]] = {}
    for section, made_by in KINDS.items():
        for kind, target in made_by.items():
            if name := owner(target.replace(":", ".")):
                found.setdefault(name, []).append((section, kind))
    return found


@cache
def examples() -> dict[str, list[Example]]:
    """By the full name of a class or function, the examples of it, the most telling first."""
    found: dict[str, list[Example]] = {}
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if not {"reference", "decisions"} & set(path.relative_to(DOCS.parent).parts[:-1]):
            for name, example in of_page(path):
                found.setdefault(name, []).append(example)
    for path in [*sorted(SCRIPTS.glob("*.py")), *sorted((SCRIPTS / "templates").glob("*.py"))]:
        title = path.relative_to(ROOT).as_posix()
        for name, (code, _) in made(path.read_text("utf-8"), {}).items():
            found.setdefault(name, []).append(Example(title, title, "", "", code))
    return {name: sorted(all_, key=lambda one: _rank(name, one, all_)) for name, all_ in found.items()}


def _rank(name: str, example: Example, others: list[Example]) -> tuple[bool, bool, bool, int, int]:
    """What is named after the thing comes first; then pages, those that can be shown, and those with the most."""
    *_, module, own = name.split(".")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", own).lower()
    stem = Path(example.file).stem
    named = stem in (module, snake, f"own-{snake}") or stem.replace("_", "") == own.lower()
    same = sum(one.file == example.file for one in others)
    return bool(example.needs), not (named and example.is_page), not example.is_page, not example.code, -same


def of_page(path: Path) -> Iterator[tuple[str, Example]]:
    text = path.read_text("utf-8")
    file, names = path.relative_to(ROOT).as_posix(), {}
    title = heading = anchor = ""
    seen: dict[str, int] = {}
    for match in FENCE.finditer(text):
        if match["heading"]:
            heading = plain(match["heading"])
            title, anchor = title or heading, slug(heading)
            seen[anchor] = seen.get(anchor, -1) + 1
            anchor += f"_{seen[anchor]}" if seen[anchor] else ""
        elif match["language"] == "python" and not match["above"]:
            needs = re.match(r"\s*# needs (.+)", match["code"])
            for name, (code, _) in made(match["code"], names).items():
                yield name, Example(file, title, heading, anchor, code, needs[1] if needs else "")


def plain(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip()


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def made(code: str, names: dict[str, str]) -> dict[str, tuple[str, int]]:
    """What a block makes, decorates with or extends, with the code that does so. names: imports so far; it grows."""
    found: dict[str, tuple[str, int]] = {}
    body = ast.parse(code)
    for node in ast.walk(body):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    for statement in statements(body):
        for used in uses(statement):
            if (dotted := spell(used, names)) and (name := owner(dotted)) and name not in found:
                found[name] = cut(code, statement, used), statement.lineno
    return found


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The innermost statements; a class or a function counts as one, too, for its bases and decorators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        yield from statements(child)


def uses(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement calls, outside of statements within it; the bases and decorators of a definition."""
    if isinstance(statement, ast.ClassDef):
        yield from statement.bases
    if isinstance(statement, Definition):
        yield from statement.decorator_list
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop(0)
        queue += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
        if isinstance(node, ast.Call):
            yield node.func


def spell(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted name of an expression that begins with an imported name."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = spell(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None


def cut(code: str, statement: ast.stmt, used: ast.expr) -> str:
    """The statement, or the call alone, if one of them is short enough to be shown."""
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    lines = code.splitlines()
    whole = textwrap.dedent("\n".join(lines[first - 1 : statement.end_lineno]))
    if whole.count("\n") < MOST_LINES:
        return whole
    call = next(
        (node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.func is used), None
    )
    if call is None:
        return ""
    part = ast.get_source_segment(code, call) or ""
    part = textwrap.dedent(" " * call.col_offset + part)
    return part if part.count("\n") < MOST_LINES else ""
