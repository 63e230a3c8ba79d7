"""The pages of docs/reference/kinds are what the classes of all kinds declare.

python -m tests.docs.test_kinds      # writes them anew, from the code as it is
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from metagen.cost import HARDWARE, Hardware
from metagen.generators.decoding.search import SEARCHES, BeamSearch
from metagen.runs.declare import registry, words
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.definition import model_of
from metagen.runs.declare.specs.parts import PartSpec
from metagen.runs.declare.specs.searches import SearchFields
from metagen.runs.declare.study import StudySpec
from tests.docs.reference import page_of

DOCS = Path(__file__).parents[2] / "docs"
PLACE = DOCS / "reference" / "kinds"
REFRESH = "python -m tests.docs.test_kinds"
#: Sections with the page of each, and what a definition there is.
TITLES = {
    "task": ("Tasks", "Problems, their prompts, and the rule for right answers."),
    "engines": ("Engines", "An engine runs a model."),
    "generators": ("Generators", "What writes. Without `kind`, it is an engine under sampling parameters."),
    "verifiers": ("Verifiers", "What scores. A verifier may stand in place of its name."),
    "strategies": ("Strategies", "How samples become an answer."),
    "steps": ("Steps of chains", "The steps of a `chain`."),
    "aggregators": (
        "Aggregators",
        "An aggregator chooses for `parallel` and, with `aggregator`, among the leaves of a search.",
    ),
    "utilities": ("Utilities", "What `mbr` compares candidates by."),
    "stopping": (
        "Stopping rules",
        "When an adaptive strategy has enough samples: the `rule` of `adaptive` and `deepconf`.",
    ),
    "answers": (
        "Answer rules",
        "How an answer is read out of a completion, and which answers are the same.",
    ),
}
HEAD = "<!-- Written by {}: change the code, and write it anew. -->\n# {}\n\n{}\n"
FENCE = re.compile(r"^```yaml.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def link(thing: Any) -> str:
    """A class or a function, with its place in the reference."""
    place = f"{thing.__module__}.{thing.__qualname__}"
    page = page_of(place)
    assert page is not None, f"no page of docs/reference shows {place}"
    return f"[`{thing.__qualname__}`](../{page.removeprefix('reference/')}#{place})"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def anchor(model: type) -> str:
    return title(model).lower()


def place(model: type) -> str:
    """Where a mapping has its table."""
    if model is SearchFields:
        return f"values.md#{anchor(BeamSearch)}"
    return f"{'values' if model in values() else 'experiment'}.md#{anchor(model)}"


def title(model: type) -> str:
    return model.__name__.removesuffix("Spec")


def table(fields: list[words.Field]) -> str:
    if not fields:
        return "It has no fields.\n"
    lines = ["| field | expected | default | |", "|---|---|---|---|"]
    for one in fields:
        default = "*needed*" if one.needed else f"`{cell(one.default)}`" if one.default else ""
        what = cell(one.what)
        for model in dict.fromkeys(model for model in one.inside if model is not PartSpec):
            what = what.replace(words.fields_in(model), f"[{words.fields_in(model)}]({place(model)})")
        lines.append(f"| `{one.name}` | {what} | {default} | {cell(one.says)} |")
    return "\n".join(lines) + "\n"


@cache
def examples() -> dict[tuple[str, str], list[str]]:
    """By section and kind, the pages whose YAML defines one, those with the most first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for page in sorted(DOCS.rglob("*.md")):
        if PLACE in page.parents or (DOCS / "decisions") in page.parents:
            continue
        name = page.relative_to(DOCS).as_posix()
        for block in FENCE.findall(page.read_text("utf-8")):
            try:
                data = yaml.safe_load(block)
            except yaml.YAMLError:
                continue
            for section, kind in defined(data if isinstance(data, dict) else {}):
                pages = found.setdefault((section, kind), {})
                pages[name] = pages.get(name, 0) + 1
    return {key: sorted(pages, key=lambda one: (-pages[one], one)) for key, pages in found.items()}


def defined(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for section in TITLES:
        held = data.get(section)
        if not isinstance(held, dict):
            continue
        for one in [held] if section == "task" else held.values():
            if isinstance(one, dict) and isinstance(one.get("kind"), str):
                yield section, one["kind"]


def kind_text(section: registry.Section, kind: str) -> str:
    maker = words.maker(section, kind)
    says = words.summary(maker) or words.summary(model_of(section, kind))
    notes = [link(maker), *words.works(section, kind)]
    shown = [f"[{heading(page)}](../../{page})" for page in examples().get((section, kind), [])[:3]]
    if shown:
        notes.append(f"examples: {', '.join(shown)}")
    return f"\n## {kind}\n\n{says}\n\n{' · '.join(notes)}\n\n{table(words.fields_of(section, kind))}"


def heading(page: str) -> str:
    found = re.search(r"^# (.+)$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


@cache
def values() -> list[type]:
    """What stands in fields of kinds as a mapping of its own."""
    models = [
        m for section, kinds in registry.KINDS.items() for kind in kinds if (m := model_of(section, kind))
    ]
    found = [one for one in words.values_of(*models) if one not in (PartSpec, SearchFields)]
    return sorted([*found, *SEARCHES.values()], key=title)


@cache
def sections() -> list[type]:
    """The sections of an experiment and of a study."""
    roots = (Experiment, StudySpec)
    return [one for one in (*roots, *words.values_of(*roots)) if one not in (*values(), PartSpec)]


def model_text(model: type, level: str = "##") -> str:
    return f"\n{level} {title(model)}\n\n{words.summary(model)}\n\n{table(words.describe_fields(model))}"


@cache
def pages() -> dict[str, str]:
    """The pages by their names."""
    found = {}
    for section, (name, says) in TITLES.items():
        kinds = registry.KINDS[section]  # type: ignore[index]  # the sections are those of the registry
        text = "".join(kind_text(section, kind) for kind in kinds)  # type: ignore[arg-type]
        found[section] = HEAD.format(REFRESH, name, says) + text
    about = "Values of several fields, which stand as a mapping in the field of a kind."
    found["values"] = HEAD.format(REFRESH, "Values", about) + "".join(map(model_text, values()))
    about = "The sections of an experiment file, and of the section `study` of a study's file."
    found["experiment"] = HEAD.format(REFRESH, "Sections", about) + "".join(map(model_text, sections()))
    about = f"Accelerators that a study models costs for, by name. {inspect.getdoc(Hardware)}"
    rows = "\n".join(f"| `{one.name}` | {one.peak:g} | {one.bandwidth:g} |" for one in HARDWARE.values())
    head = "\n| name | peak, FLOP/s | bandwidth, bytes/s |\n|---|---|---|\n"
    found["hardware"] = HEAD.format(REFRESH, "Hardware", about) + f"{head}{rows}\n"
    return found


NAMES = [*TITLES, "values", "experiment", "hardware"]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_code_declares(name: str) -> None:
    there = (PLACE / f"{name}.md").read_text("utf-8")
    assert there == pages()[name], f"docs/reference/kinds/{name}.md is stale; run {REFRESH}"


def test_each_field_has_a_sentence() -> None:
    told = {
        f"{section}.{kind}.{one.name}": one.says
        for section, kinds in registry.KINDS.items()
        for kind in kinds
        for one in words.fields_of(section, kind)
    }
    models = [*values(), *sections()]
    told |= {f"{title(m)}.{one.name}": one.says for m in models for one in words.describe_fields(m)}
    assert len(told) > 600 and [name for name, says in told.items() if not says] == []


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PLACE / f"{name}.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
