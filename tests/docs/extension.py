"""An extension of griffe, which reads the code for the reference: fields as lists, and examples.

Sentences on fields become a list. The docstring of a class or a function ends with its doctest, or else with the
example of `examples.py`, and links to others. zensical reads this file by its path, after `griffe_parts.py`.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.append(str(Path(__file__).parents[2]))

from tests.docs import reference
from tests.docs.examples import Example, examples, kinds

DOCTEST = re.compile(r"^Examples:\n((?:(?: {4}.*)?\n?)+)\Z", re.MULTILINE)
#: Links to examples of one thing.
MOST = 3


class Reference(griffe.Extension):
    """Adds to what griffe has read of metagen, before it is shown."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if pkg.name == "metagen":
            self.add(pkg)

    def add(self, owner: griffe.Module | griffe.Class) -> None:
        for one in [member for member in owner.members.values() if not member.is_alias]:
            if isinstance(one, griffe.Class | griffe.Function) and one.docstring:
                text = with_fields(one.docstring.value, names(one))
                one.docstring.value = with_example(one.path, text)
            if isinstance(one, griffe.Module | griffe.Class):
                self.add(one)


def names(one: griffe.Class | griffe.Function) -> list[str]:
    """The parameters; of a class its fields, too, of which griffe makes a dataclass's parameters later."""
    fields = [each.name for each in one.members.values() if each.is_attribute]
    return [*(each.name for each in one.parameters if each.name != "self"), *fields]


def with_fields(text: str, names: list[str]) -> str:
    """A docstring whose sentences on parameters, `name: text.`, are items of a list. Its words stay as they are."""
    head, mark, example = text.partition("\n\nExamples:\n")
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    begin = re.compile(rf"(?:^|(?<=[.;] ))((?:{one})(?:, (?:{one}))*): ")
    return "\n\n".join(_listed(block, begin) for block in head.split("\n\n")) + mark + example


def _listed(block: str, begin: re.Pattern[str]) -> str:
    plain = " ".join(block.split())
    found = list(begin.finditer(plain))
    if not found or re.search(r"^(?:- | {4}|```)", block, re.MULTILINE):
        return block
    ends = [*(match.start() for match in found[1:]), len(plain)]
    items = [(match[1], plain[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)]
    last, mark, raises = items[-1][1].partition(" Raises ")
    items[-1] = (items[-1][0], last)
    said = "\n".join(f"- **{name}**: {what}" for name, what in items)
    parts = [plain[: found[0].start()].strip(), said, f"Raises {raises}" if mark else ""]
    return "\n\n".join(part for part in parts if part)


def with_example(path: str, text: str) -> str:
    """A docstring with its doctest as a block, or else with the example of a page; and with its kind."""
    here, known = reference.page_of(path), examples().get(path, [])
    if here is None:
        return text
    if found := DOCTEST.search(text):
        code = re.sub(r"^ {4}", "", found[1], flags=re.MULTILINE).strip()
        said = [text[: found.start()].rstrip(), "**Example**", f"```pycon\n{code}\n```"]
    elif known:
        said = [text.rstrip(), *from_pages(known, here)]
    else:
        said = [text.rstrip()]
    if linked := kind_of(path, here):
        said.append(f"**In a file**, of the kind {linked}.")
    return "\n\n".join(said)


def from_pages(known: list[Example], here: str) -> list[str]:
    """The first example as a block, and links to others in other places."""
    places = {(one.file, one.anchor): one for one in reversed(known)}
    links = [link(one, here) for one in list(reversed(places.values()))[:MOST]]
    needs = f" (needs {known[0].needs})" if known[0].needs else ""
    said = [f"**Example**{needs}: {links[0]}"]
    if known[0].code:
        said.append(f"```python\n{known[0].code}\n```")
    return [*said, f"More: {', '.join(links[1:])}"] if links[1:] else said


def link(example: Example, here: str) -> str:
    """To a place on the site, from another page of it; a file that the site does not have is named."""
    if not example.is_page:
        return f"`{example.file}`"
    target = posixpath.relpath(example.file.removeprefix("docs/"), posixpath.dirname(here))
    said = example.title if example.heading == example.title else f"{example.title}, {example.heading}"
    return f"[{said}]({target}#{example.anchor})"


def kind_of(path: str, here: str) -> str:
    """The kinds of experiment files that make a class or are a function, with links to their fields."""
    place = posixpath.relpath("reference/kinds", posixpath.dirname(here))
    return ", ".join(f"[`{kind}`]({place}/{section}.md#{kind})" for section, kind in kinds().get(path, []))
