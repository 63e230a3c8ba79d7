"""What a class declares is everywhere that a file is written: schema, reference, `metagen new` and `--set`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import metagen
from metagen.generators.base import Generator
from metagen.generators.decoding.adapters import Adapter
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.parameters import OFF, SamplingParams
from metagen.runs.declare import new, registry, schema, words
from metagen.runs.declare.editor import json_schema
from metagen.runs.declare.source import read
from metagen.runs.declare.specs.definition import model_of
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.chain.steps import ChainStep
from metagen.strategies.refine.refinement import Refinement
from metagen.tasks.base import Task
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.text import TextRule
from metagen.verifiers.utility.base import Utility

ROOT = Path(__file__).parents[3]
ALL = [(section, kind) for section, kinds in registry.KINDS.items() for kind in kinds]
#: Parameters that no file says, of all kinds of a section or of one, with the reason.
LEFT_OUT = {
    "verifiers": {
        "name": "the name in the file",
        "sandbox": "one for all that need one",
        "program": "the task's rule for programs",
        "grade": "the task's grader",
        "limits": "those of the sandbox; `public_tests` has two of them as fields",
    },
    "strategies": {
        "generator": "that of the grid",
        "sandbox": "as of verifiers",
    },
    "utilities": {"sandbox": "as of verifiers", "program": "as of verifiers"},
    "task": {
        "source": "the fields path and hub",
        "shots": "`form: few_shot` has the published ones, `prompt` takes any",
        "program": "published tasks have their own",
        "grader": "published tasks have their own",
    },
    "generators.engine": {"params": "its fields are fields", "price": "that of the engine"},
    "aggregators.confident": {"confidence": "`kind: confident` of strategies has its fields"},
}
#: What metagen exports and no file writes, with the reason.
PYTHON_ONLY = {
    "EnumerableEngine": "a table of probabilities, for tests",
    "FunctionGenerator": "a function of Python; a file names its maker as package.module:function",
    "FunctionRule": "two functions of Python; a file names a rule as package.module:attribute",
    "FunctionVerifier": "a function of Python; a file names its maker as package.module:function",
    "RayPool": "`executor: {kind: ray}` puts every engine into one",
    "Tool": "a function of Python; a file names it as package.module:attribute",
}
#: Bases from which others derive.
BASES = {
    Generator, Verifier, AnswerRule, Utility, Aggregator, Task, Adapter, ChainStep, metagen.Strategy,
    metagen.TreeSearch,
}  # fmt: skip


@cache
def entries() -> list[tuple[str, set[str]]]:
    """Kinds in the schema, each with its properties."""
    return list(within(json_schema()))


def within(schema: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        kind = properties.get("kind", {}) if isinstance(properties, dict) else {}
        for one in [kind.get("const"), *kind.get("enum", ())] if isinstance(kind, dict) else ():
            yield one, set(properties)
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from within(one)


def model(section: str, kind: str) -> Any:
    found = model_of(section, kind)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(("section", "kind"), ALL, ids=[".".join(one) for one in ALL])
def test_a_parameter_is_a_field(section: str, kind: str) -> None:
    spec = model(section, kind)
    target = registry.declaration(section, kind)  # type: ignore[arg-type]
    fields = {getattr(spec, "renamed", {}).get(name, name) for name in spec.model_fields}
    unsaid = LEFT_OUT.get(section, {}).keys() | LEFT_OUT.get(f"{section}.{kind}", {}).keys()
    parameters = set(inspect.signature(target).parameters)
    if (section, kind) == ("generators", "engine"):
        parameters |= set(inspect.signature(SamplingParams).parameters)
    assert parameters - fields <= unsaid, "a file cannot say it: teach `spelling`, or say here why"


@pytest.mark.parametrize(("section", "kind"), ALL, ids=[".".join(one) for one in ALL])
def test_a_field_is_in_schema_reference_and_new(section: str, kind: str) -> None:
    fields = [one.name for one in words.fields_of(section, kind)]  # type: ignore[arg-type]
    assert set(fields) == set(model(section, kind).model_fields) - {"kind"}
    assert {"kind", *fields} in [properties for of, properties in entries() if of == kind]
    page = (ROOT / "docs" / "reference" / "kinds" / f"{section}.md").read_text("utf-8")
    text = page.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert rows == fields
    if section == "strategies":
        written = yaml.safe_load(re.sub(r"(?m)^    # ", "    ", new.describe(kind, "judge")))[kind]
        assert list(written) == ["kind", *(one for one in fields if one != "over")]


@pytest.mark.parametrize(("section", "kind"), ALL, ids=[".".join(one) for one in ALL])
def test_a_field_is_set(section: str, kind: str, tmp_path: Path) -> None:
    """`--set` gets as far as the field: nothing else is unknown."""
    file = tmp_path / "file.yaml"
    place = {
        "task": ("task",),
        "steps": ("strategies", "s", "steps", "x"),
        "aggregators": ("strategies", "s", "aggregator"),
        "utilities": ("strategies", "s", "utility"),
        "answers": ("strategies", "s", "answer"),
        "stopping": ("strategies", "s", "rule"),
    }.get(section, (section, "x"))
    around: dict[str, Any] = {
        "steps": {"kind": "chain", "output": "x"}, "aggregators": {"kind": "parallel"}, "utilities": {"kind": "mbr"},
        "answers": {"kind": "majority"}, "stopping": {"kind": "adaptive"},
    }  # fmt: skip
    data: dict[str, Any] = {"name": "set", "task": {"kind": "arithmetic"}}
    if section in around:
        data["strategies"] = {"s": around[section]}
    at = data
    for name in place[:-1]:
        at = at.setdefault(name, {})
    at[place[-1]] = {"kind": kind}
    file.write_text(yaml.safe_dump(data), "utf-8")
    names = [one.name for one in words.fields_of(section, kind)]  # type: ignore[arg-type]
    for name in (*names, "nothing_of_the_kind"):
        source = read(file)
        source.assign(f"{'.'.join(place)}.{name}=1", named=())
        _, faults = schema.parse_with_faults(source, tmp_path)
        path = f"{'.'.join(place)}.{name}"
        unknown = [str(one) for one in faults if path in str(one) and "no such field" in str(one)]
        foreign = name == "nothing_of_the_kind"
        assert bool(unknown) == foreign, (path, [str(one) for one in faults])


#: Fields that do not reach what makes a kind as they are, of all kinds of a section or of one, with the reason.
ELSEWHERE = {
    "engines.vllm": {"args": "each is a parameter"},
    "generators.engine": dict.fromkeys([*OFF, "preset"], "of params, which takes them by the same list"),
    "strategies": {"over": "its generator"},
    "utilities": {"of": "whether it has a rule", "aggregate": "of some", "prune": "what is around it"},
    "task": {"hub": "the source, as path is"},
    **{
        f"task.{kind}": {"percent": "of the rule", "pattern": "of it"}
        for kind in ("jsonl", "table", "recorded")
    },
}


@pytest.mark.parametrize(("section", "kind"), ALL, ids=[".".join(one) for one in ALL])
def test_a_field_reaches_what_makes_the_kind(section: str, kind: str) -> None:
    """Under a name that is a parameter there; what names a part arrives as that part."""
    spec, target = model(section, kind), registry.find(section, kind)  # type: ignore[arg-type]
    takes = {*registry.parameters(section, kind), *inspect.signature(target).parameters}  # type: ignore[arg-type]
    elsewhere = ELSEWHERE.get(section, {}).keys() | ELSEWHERE.get(f"{section}.{kind}", {}).keys()
    given = {name: TextRule() for name in spec.model_fields.keys() - elsewhere - {"kind"}}
    options = spec.model_construct(kind=kind, **given).options()
    arrived = [value for name, value in options.items() if name in takes]
    lost = [name for name, value in given.items() if not any(one is value for one in arrived)]
    assert [name for name in lost if not (name in spec.uses and name in takes)] == []


def written() -> set[Any]:
    """What files write: what makes the kinds, and the classes of what functions make."""
    found: set[Any] = {Grammar, Refinement}  # of generators, and of the kind `refinement`
    for section, kind in ALL:
        target = registry.find(section, kind)
        found.add(target)
        made = getattr(target, "__annotations__", {}).get("return")
        found.add(getattr(sys.modules[target.__module__], made, None) if isinstance(made, str) else made)
    return found


def test_what_is_composed_in_python_is_written_in_files() -> None:
    kinds = (*BASES, metagen.Tool, metagen.RayPool, metagen.EnumerableEngine)
    composed = {
        name: one
        for name in metagen.__all__
        if inspect.isclass(one := getattr(metagen, name)) and issubclass(one, kinds) and one not in BASES
    }
    assert len(composed) > 30
    missing = {name for name, one in composed.items() if one not in written()}
    assert missing == PYTHON_ONLY.keys()


def test_a_limit_of_memory_is_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "contest.yaml"
    file.write_text("name: c\ntask: {kind: apps, memory: 268435456, seconds: 4}\n", "utf-8")
    _, faults = schema.parse_with_faults(read(file), tmp_path)
    assert not [str(one) for one in faults if "task." in str(one)]
