"""Pages of docs/reference that show modules, and the tables of them, which are made from the code.

A page names its modules by lines `::: metagen.module`. `python -m tests.docs.reference` writes the index of each layer:
its pages, with their modules, the first sentence of each, and its classes.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.examples import DOCS, ROOT, Definition, definitions, tree

PLACE = DOCS / "reference"
REFRESH = "python -m tests.docs.reference"
HEAD = f"<!-- Written by {REFRESH}: change the code, and write it anew. -->\n"
#: Layers from the ground up: each is a folder of pages, and all but the first a package.
LAYERS = {
    "ground": "Ground floor",
    "generators": "Generators",
    "verifiers": "Verifiers",
    "strategies": "Strategies",
    "tasks": "Tasks",
    "analysis": "Analysis",
    "runs": "Runs",
    "integrations": "Integrations",
    "testing": "Testing",
}
GROUND = "The base of all other layers. It knows nothing above itself, and needs neither torch nor Ray."
#: Below this line the index of the reference is written.
MARK = f"<!-- Below, written by {REFRESH}. -->"
#: Modules that no page shows, with what is below them: the inside of metagen, and programs that are started.
LEFT_OUT = (
    "metagen.apart",
    "metagen.attempts",
    "metagen.batch",
    "metagen.border",
    "metagen.cli",
    "metagen.listening",
    "metagen.matching",
    "metagen.serve",
    "metagen.threads",
    "metagen.view",
)


@cache
def shown() -> dict[str, list[str]]:
    """The modules of each page, by its path below docs/."""
    pages = {
        path: re.findall(r"^::: (\S+)", path.read_text("utf-8"), re.MULTILINE) for path in PLACE.rglob("*.md")
    }
    return {path.relative_to(DOCS).as_posix(): modules for path, modules in sorted(pages.items()) if modules}


def page_of(dotted: str) -> str | None:
    """The page that shows a module, a class or a function, by its path below docs/."""
    homes = {module: page for page, modules in shown().items() for module in modules}
    parts = dotted.split(".")
    return next(
        (homes[name] for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in homes), None
    )


def nav_pages(layer: str) -> list[str]:
    """The pages of a layer, in the order of the site."""
    found = re.findall(rf"reference/{layer}/\w+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    return [page for page in found if not page.endswith("/index.md")]


def opening(page: str) -> tuple[str, str]:
    """The title of a page, and its first paragraph."""
    text = (DOCS / page).read_text("utf-8")
    title, says = text.removeprefix("# ").split("\n\n")[:2]
    return title.strip(), " ".join(says.split())


def summary(module: str) -> str:
    """The first paragraph of a module's docstring."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    said = ast.get_docstring(tree(file)) or ""
    return " ".join(said.split("\n\n")[0].split()).replace("|", "\\|")


def row(page: str, module: str) -> str:
    """A module in a table: its classes, or its functions if it has none."""
    inside: dict[str, Definition] = definitions()[module]
    classes = [name for name, node in inside.items() if isinstance(node, ast.ClassDef)]
    file = page.rpartition("/")[2]
    links = ", ".join(f"[`{name}`]({file}#{module}.{name})" for name in classes or inside)
    own = module.removeprefix("metagen.").removeprefix(f"{page.split('/')[1]}.")
    return f"| [`{own}`]({file}#{module}) | {summary(module)} | {links} |"


def index(layer: str) -> str:
    """The page that lists a layer."""
    says = GROUND if layer == "ground" else summary(f"metagen.{layer}")
    text = f"{HEAD}# {LAYERS[layer]}\n\n{says}\n"
    for page in nav_pages(layer):
        title, said = opening(page)
        rows = "\n".join(row(page, module) for module in shown()[page])
        text += f"\n## [{title}]({page.rpartition('/')[2]})\n\n{said}\n\n"
        text += f"| module | | classes, or functions |\n|---|---|---|\n{rows}\n"
    return text


def layers() -> str:
    """The table of the index of the reference."""
    rows = []
    for layer, title in LAYERS.items():
        says = GROUND if layer == "ground" else summary(f"metagen.{layer}")
        pages = ", ".join(
            f"[{opening(page)[0]}]({page.removeprefix('reference/')})" for page in nav_pages(layer)
        )
        rows.append(f"| [{title}]({layer}/index.md) | {says} | {pages} |")
    return "| layer | | pages |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def files() -> dict[Path, str]:
    """What is written, by its path."""
    front = PLACE / "index.md"
    head, mark, _ = front.read_text("utf-8").partition(MARK)
    assert mark, f"docs/reference/index.md lacks its line {MARK!r}"
    return {front: f"{head}{MARK}\n\n{layers()}"} | {
        PLACE / layer / "index.md": index(layer) for layer in LAYERS
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
