"""What is public has a place in the reference, and what a user makes has an example there."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_origin

import pytest
import yaml

import metagen
from metagen import values
from metagen.runs.declare import registry
from tests.docs import llms, reference
from tests.docs.examples import DOCS, ROOT, definitions, examples, kinds, slug

PACKAGES = sorted(p.parent.name for p in Path(metagen.__file__).parent.glob("*/__init__.py"))
#: What a user does not make, and what makes it.
MADE = {
    "metagen.generators.engine.Engine": "a protocol, of which TorchEngine and others are instances",
    "metagen.generators.torch.adapted.AdaptedEngine": "the kind `adapter` of an experiment file",
    "metagen.journal.Journal": "a protocol, of which MemoryJournal and SQLiteJournal are instances",
    "metagen.runs.declare.fitted.FittedTournament": "the kind `tournament` of an experiment file",
    "metagen.strategies.base.Result": "strategy.solve(…)",
}
#: Their library is no extra of metagen: it is installed beside it.
ELSEWHERE = {
    "metagen.tasks.lighteval.LightevalTask": "lighteval",
    "metagen.tasks.reasoning_gym.ReasoningGymTask": "reasoning-gym",
    "metagen.tasks.tasksets.VerifiersTask": "verifiers",
}


# -- the pages ----------------------------------------------------------------------------------------


def test_what_is_written_is_what_the_code_declares() -> None:
    for path, text in reference.files().items():
        assert path.read_text("utf-8") == text, f"{path.relative_to(ROOT)} is stale; run {reference.REFRESH}"


def test_each_module_is_on_one_page() -> None:
    shown = Counter(module for modules in reference.shown().values() for module in modules)
    assert [module for module, count in shown.items() if count > 1] == []
    wanted = {
        module
        for module, inside in definitions().items()
        if inside and not any(module == one or module.startswith(f"{one}.") for one in reference.LEFT_OUT)
    }
    assert wanted - shown.keys() == set(), "give it a line `::: …` on a page of docs/reference"
    assert shown.keys() - wanted == set(), "it has nothing public with a docstring"


def test_each_page_is_in_the_navigation_under_its_title() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), llms._Loader)["nav"]
    titles = {path: title for _, title, path in llms.pages(nav)}
    assert len(reference.shown()) > 50
    for page in reference.shown():
        assert titles[page] == reference.opening(page)[0]


# -- what they show -----------------------------------------------------------------------------------


def public() -> Iterator[tuple[str, str, str]]:
    """Module that offers a name, the name, and the module that defines it."""
    for package in ("metagen", *(f"metagen.{name}" for name in PACKAGES)):
        for name in getattr(import_module(package), "__all__", ()):
            if not name.startswith("_"):
                value = getattr(import_module(package), name)
                home = metagen._HOMES.get(name) if package == "metagen" else None
                yield package, name, home or getattr(value, "__module__", package)


PUBLIC = sorted(set(public()))


@pytest.mark.parametrize(("package", "name", "home"), PUBLIC, ids=[f"{p}.{n}" for p, n, _ in PUBLIC])
def test_public_names_are_in_the_reference(package: str, name: str, home: str) -> None:
    assert reference.page_of(home), (
        f"{package}.{name} is defined in {home}, and no page of docs/reference shows that"
    )
    # An instance, such as a ready-made rule, is a line of its module.
    if callable(getattr(import_module(package), name)):
        assert name in definitions()[home], (
            f"{home}.{name} has no docstring, and so no entry in the reference"
        )


def test_there_are_names_to_check() -> None:
    packages = {package for package, _, _ in PUBLIC}
    assert {"metagen", "metagen.testing"} <= packages
    assert len(PUBLIC) > 50


# -- examples -----------------------------------------------------------------------------------------


def parts() -> Iterator[tuple[str, type]]:
    """The classes with `@part`, and those that make kinds or that metagen itself offers."""
    homes = {f"{home}.{name}" for _, name, home in PUBLIC}
    for module, inside in definitions().items():
        for name, node in inside.items():
            place = f"{module}.{name}"
            marked = isinstance(node, ast.ClassDef) and "part" in map(ast.unparse, node.decorator_list)
            if reference.page_of(module) and (marked or place in homes or place in kinds()):
                value = getattr(import_module(module), name)
                if isinstance(value, type) and not issubclass(value, Exception):
                    yield place, value


PARTS = dict(parts())


def test_what_a_user_makes_has_an_example() -> None:
    tested = {place for place, cls in PARTS.items() if "\nExamples:\n" in (inspect.getdoc(cls) or "")}
    abstract = {place for place, cls in PARTS.items() if inspect.isabstract(cls)}
    known = tested | examples().keys()
    assert PARTS.keys() - abstract - known == MADE.keys() | ELSEWHERE.keys()
    assert len(PARTS.keys() & known) > 150


def test_links_to_examples_lead_to_headings() -> None:
    for one in (one for found in examples().values() for one in found if one.is_page):
        headings = [slug(line.lstrip("# ")) for line in (ROOT / one.file).read_text("utf-8").splitlines()]
        assert one.anchor.partition("_")[0] in headings or one.anchor in headings, one


def test_an_example_is_a_piece_of_its_file() -> None:
    shown = [one for found in examples().values() for one in found if one.code]
    assert len(shown) > 500
    for one in shown:
        text = "".join((ROOT / one.file).read_text("utf-8").split())
        assert "".join(one.code.split()) in text, one


# -- as griffe reads it -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read() -> Any:
    """What griffe, by which the site is built, reads of metagen with the extension of tests/docs."""
    griffe = pytest.importorskip("griffe", reason="comes with the extra docs")
    files = [str(ROOT / "tests" / "docs" / name) for name in ("griffe_parts.py", "extension.py")]
    extension = griffe.load_extensions(*files)
    return griffe.load("metagen", search_paths=[ROOT], extensions=extension, allow_inspection=False)


def test_an_example_is_shown_below_the_contract(read: Any) -> None:
    text = read["strategies.tree.rebase.Rebase"].docstring.value
    assert (
        "**Example**: [" in text
        and "Rebase(" in text.partition("```python\n")[2]
        and "(../kinds/strategies.md#rebase)" in text
    )
    text = read["strategies.aggregators.Best"].docstring.value
    assert "```pycon\n>>> import metagen" in text and "Examples:" not in text


def test_fields_are_listed_in_the_words_of_the_docstring(read: Any) -> None:
    text = read["strategies.tree.rebase.Rebase"].docstring.value
    assert "\n- **temperature**: T of the softmax of scores.\n- **rounding**: " in text
    assert "\n- **prefilled, cached, generated**: " in read["cost.Usage"].docstring.value
    for place, cls in PARTS.items():
        shown = read[place.removeprefix("metagen.")].docstring.value.partition("**Example**")[0]
        shown = shown.partition("**In a file**")[0].replace("\n- **", "\n").replace("**:", ":")
        said = (inspect.getdoc(cls) or "").partition("\n\nExamples:\n")[0]
        plain = " ".join(said.split()).removeprefix("- ")
        assert " ".join(shown.split()).removeprefix("- **").replace(" - ", " ") == plain.replace(
            " - ", " "
        ), place


# -- pages for authors ---------------------------------------------------------------------------------


def test_authors_are_told_the_types_of_fields() -> None:
    text = (DOCS / "how-to" / "own-package.md").read_text("utf-8")
    section = text[text.index("## Fields\n") : text.index("## Fields that must")]
    told = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    found = {
        name: values.describe(hint.__metadata__)
        for name, hint in vars(values).items()
        if get_origin(hint) is Annotated
    }
    assert told.keys() == found.keys()
    for name, words in told.items():
        assert words.removesuffix(f", at most {values.MOST:,}") == found[name]


def test_authors_are_told_the_groups_of_entry_points() -> None:
    for page in ("how-to/own-package.md", "guide/experiments.md"):
        told = set(re.findall(r"`metagen\.(\w+)`", (DOCS / page).read_text("utf-8")))
        groups = {"tasks" if section == "task" else section for section in registry.KINDS}
        assert groups - told == set(), page
