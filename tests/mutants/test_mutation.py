"""The mutation run: its mutants are single faults, its tables are of this code, and a run tells who is killed."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import EQUIVALENT, drawn
from tests.mutants.mutate import mutants
from tests.mutants.named import NAMED, Named
from tests.mutants.slices import ROOT, SLICES
from tests.mutants.trial import Lines

ANSWER = "import os\n\ndef answer():\n    {}\n"
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
    assert paths and SLICES[name].tests_of(paths[0])
    for one in SLICES[name].tests:
        assert list((ROOT / "tests").glob(one)), f"no test file is {one}"


def functions(file: Path) -> set[str]:
    return {n.name for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef)}


def test_tests_that_claim_such_a_law_have_a_named_mutant() -> None:
    claim = re.compile(r"test_\w*(changes?_nothing|nothing_changes|_cap_|deadline)")
    claims = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in functions(file) if claim.match(name)
    }
    assert not claims - {one.test.split("::")[-1].partition("[")[0] for one in NAMED}


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.law)
def test_named_mutants_are_of_this_code(one: Named) -> None:
    source = (ROOT / one.path).read_text()
    assert source.count(one.before) == 1
    mutated = source.replace(one.before, one.after)
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    file, *names = one.test.split("::")
    assert names[-1].partition("[")[0] in functions(ROOT / file)


def test_what_is_listed_as_equivalent_is_a_mutant_of_this_code_and_has_a_reason() -> None:
    for one in json.loads(EQUIVALENT.read_text()):
        found = {m.name for m in mutants(one["path"], (ROOT / one["path"]).read_text())}
        assert one["mutant"] in found, f"{one['path']} has no {one['mutant']} any more: take it off the list"
        assert one["why"]


def test_a_name_is_that_of_one_mutant() -> None:
    names = [m.name for m in mutants("f.py", "def f(x):\n    return x + 1\n\ndef g(x):\n    return x + 1\n")]
    assert len({*names}) == len(names) == 6


def test_a_draw_is_a_seeds_alone_and_more_begins_with_fewer() -> None:
    few, more, others = drawn("budget", 10, 0), drawn("budget", 20, 0), drawn("budget", 20, 1)
    assert few == drawn("budget", 10, 0) and len({m.name for m in few}) == 10
    assert {m.name for m in few} < {m.name for m in more} != {m.name for m in others}
    assert drawn("budget", None, 0) == drawn("budget", None, 1)


def test_lines_are_those_that_have_run(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def f(x):\n    if x:\n        return 1\n    return (\n        2)\n\nf(0)\n")
    lines = Lines({str(module): "module.py"})
    with lines:
        runpy.run_path(str(module))
    assert lines.ran() == {"module.py": [1, 2, 4, 5, 7]}
    by_change = {(m.before, m.after): m.lines for m in mutants("module.py", module.read_text())}
    assert by_change["1", "2"] == {3} and by_change["return 2", "return None"] == {4, 5}


#: Prints what becomes of mutants in a copy: what stands in `answer.py`, and the lines that matter.
RUNS = """
import json
import sys
from pathlib import Path
from tests.mutants.mutate import Mutant
from tests.mutants.trial import Copy

copy, tests = Copy(Path(sys.argv[1])), ["test_answer.py", "test_nothing.py"]
copy.check(tests, ["answer.py"])
for source, lines in json.loads(sys.argv[2]):
    print(copy.fate(Mutant("answer.py", 1, "", "", "", source, frozenset(lines)), tests, more=3))
copy.check(["test_missing.py"], [])
"""


def test_a_run_in_a_copy_says_killed_survived_stillborn_and_out_of_time(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow: slow']\n")
    (tmp_path / "answer.py").write_text(ANSWER.format("return 42"))
    (tmp_path / "test_answer.py").write_text(
        "from answer import answer\n\ndef test():\n    assert answer() > 41\n"
    )
    (tmp_path / "test_nothing.py").write_text("import answer\n\ndef test():\n    pass\n")
    fates = {
        "return 43": "survived",
        "return 41": "killed",
        "os._exit(0)": "killed",
        "os.abort()": "killed",
        "raise SystemExit(0)": "killed",
        "while True: pass": "timeout",
        "return 1\nraise ValueError": "stillborn",
    }
    tried = [(ANSWER.format(one), [4]) for one in fates]
    tried += [(ANSWER.format("return 41"), lines) for lines in ([], [3], [5])]
    done = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path), json.dumps(tried)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [*fates.values(), "killed", "killed", "survived"], done.stderr
    assert done.returncode == 1 and "without a mutant test_missing.py fails" in done.stderr
    assert (tmp_path / "answer.py").read_text() == ANSWER.format("return 42")


def test_what_a_mutant_has_started_ends_with_its_run(tmp_path: Path) -> None:
    """A program that held the pipe for good would keep this test waiting, whose time is limited by pytest."""
    reading, writing = os.pipe()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow: slow']\n")
    (tmp_path / "test_answer.py").write_text(
        f"import subprocess\n\ndef test():\n    subprocess.Popen(['sleep', '10000'], pass_fds=[{writing}])\n"
    )
    run = "import sys\nfrom pathlib import Path\nfrom tests.mutants.trial import Copy\n"
    run += "Copy(Path(sys.argv[1])).check(['test_answer.py'], [])"
    subprocess.run([sys.executable, "-c", run, str(tmp_path)], cwd=ROOT, pass_fds=[writing], check=True)
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
