"""The mutation run: its mutants are single faults, its tables are of this code, and a run tells who is killed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.mutants.__main__ import EQUIVALENT, Copy
from tests.mutants.mutate import mutants
from tests.mutants.named import NAMED, Named
from tests.mutants.slices import ROOT, SLICES

SOURCE = '''
import os

def f(x, y, items: "list[1]", strict=False):
    """Text of 1 and 2."""
    if not x < y <= 3:
        raise ValueError(f"{x + 1} is wrong" + str(x - 1))
    assert x > 1
    total = -x * 2.5
    total += max(x, y)
    items.append(total)
    pairs = [x] + [y]
    for a, b in zip(items, pairs, strict=True):
        total = a if a and b is None else g(a, b) ** 2
    return total
'''


def test_a_mutant_changes_one_thing_and_leaves_texts_checks_and_types_alone() -> None:
    found = [(m.before, m.after) for m in mutants("f.py", SOURCE)]
    assert found == [
        ("False", "True"),
        ("3", "4"),
        ("not x < y <= 3", "x < y <= 3"),
        ("x < y <= 3", "x < y < 3"),
        ("x < y <= 3", "x <= y <= 3"),
        ("-x", "x"),
        ("-x * 2.5", "-x / 2.5"),
        ("2.5", "3.0"),
        ("max(x, y)", "min(x, y)"),
        ("total += max(x, y)", "total -= max(x, y)"),
        ("items.append(total)", "pass"),
        ("[x] + [y]", "[y] + [x]"),
        ("2", "3"),
        ("a and b is None", "a or b is None"),
        ("a if a and b is None else g(a, b) ** 2", "g(a, b) ** 2 if a and b is None else a"),
        ("b is None", "b is not None"),
        ("g(a, b)", "g(b, a)"),
        ("g(a, b) ** 2", "g(a, b) * 2"),
        ("return total", "return None"),
    ]


def test_the_rest_of_the_source_is_as_it_was() -> None:
    for mutant in mutants("f.py", SOURCE):
        before, after = SOURCE.splitlines(), mutant.source.splitlines()
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
        assert changed == [mutant.line] and before[mutant.line - 1].strip() == mutant.context


@pytest.mark.parametrize("name", SLICES)
def test_every_slice_has_modules_and_tests(name: str) -> None:
    paths = SLICES[name].paths()
    assert paths and all(SLICES[name].of(path) for path in paths)
    for one in SLICES[name].tests:
        assert list((ROOT / "tests").glob(one)), f"no test file is {one}"


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.law)
def test_named_mutants_are_of_this_code(one: Named) -> None:
    source = (ROOT / one.path).read_text()
    assert source.count(one.before) == 1
    mutated = source.replace(one.before, one.after)
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    file, *names = one.test.split("::")
    functions = {
        n.name for n in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(n, ast.FunctionDef)
    }
    assert names[-1] in functions


def test_what_is_listed_as_equivalent_is_a_mutant_of_this_code_and_has_a_reason() -> None:
    for one in json.loads(EQUIVALENT.read_text()):
        found = {m.name for m in mutants(one["path"], (ROOT / one["path"]).read_text())}
        assert one["mutant"] in found, f"{one['path']} has no {one['mutant']} any more: take it off the list"
        assert one["why"]


def test_a_run_in_a_copy_says_killed_survived_and_out_of_time(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow: slow']\n")
    (tmp_path / "answer.py").write_text("def answer():\n    return 42\n")
    (tmp_path / "test_answer.py").write_text(
        "from answer import answer\n\ndef test():\n    assert answer() > 41\n"
    )
    copy, tests = Copy(tmp_path), ["test_answer.py"]
    assert copy.tests(tests, 300) == "survived"
    for value, fate in (("43", "survived"), ("41", "killed")):
        with copy.mutated("answer.py", f"def answer():\n    return {value}\n"):
            assert copy.tests(tests, 300) == fate
    assert copy.tests(tests, 300) == "survived"
    with copy.mutated("answer.py", "def answer():\n    while True:\n        pass\n"):
        assert copy.tests(tests, 5) == "timeout"
    with pytest.raises(SystemExit, match="no test of"):
        copy.tests(["test_nothing.py"], 300)
