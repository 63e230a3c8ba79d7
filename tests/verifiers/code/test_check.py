"""Tests run outside: what the proxies carry, what the verdicts say, and what a candidate's objects cannot do."""

import asyncio
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError
from metagen.verifiers.code import plain
from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.execution import Execution
from metagen.verifiers.code.language import Python
from metagen.verifiers.code.limits import MIB
from metagen.verifiers.code.report import Report
from metagen.verifiers.code.sandbox import Sandbox

IDENTITY = "def f(x): return x\n"


def judged(
    sandbox: Sandbox,
    program: str,
    *tests: str,
    wall: float = 10,
    answer: int | None = None,
    stop: bool = False,
    **suite: object,
) -> Report:
    limits = replace(sandbox.limits, wall=wall, answer=answer or sandbox.limits.answer)
    return asyncio.run(check(sandbox, program, Suite(tests, **suite), limits=limits, stop=stop))  # type: ignore[arg-type]


VALUES = (
    "None",
    "True",
    "0",
    "-1",
    "10**40",
    "-(2**64)",
    "0.1",
    "-0.0",
    "1e308",
    "float('inf')",
    "'é\\n\\ud800\\x00'",
    "''",
    "b'\\x00\\xff'",
    "bytearray(b'ab')",
    "1 + 2j",
    "complex(-0.0, float('inf'))",
    "[]",
    "[1, [2, [3]]]",
    "()",
    "(1,)",
    "((1, 2), 'a')",
    "{}",
    "{1: 'a', (2, 3): None}",
    "set()",
    "{1, 2}",
    "frozenset({1})",
    "{frozenset({1}): [1]}",
    "range(3)",
    "range(10, 0, -3)",
    "int",
    "[int, str]",
    "...",
)


def test_plain_values_arrive_as_they_are(sandbox: Sandbox) -> None:
    tests = [
        f"v = {value}\nassert f(v) == v and type(f(v)) is type(v) and repr(f(v)) == repr(v)"
        for value in VALUES[:-1]
    ]
    report = judged(sandbox, IDENTITY, *tests)
    assert [case for case in report.cases if case.verdict != "passed"] == []


@pytest.mark.parametrize(
    ("answer", "test"),
    [
        ("float('nan')", "x = f(0)\nassert x != x"),
        ("[1].__iter__()", "assert f(0) != [1]\nassert list(f(0)) == [1]"),
        ("map(str, [1, 2])", "assert list(f(0)) == ['1', '2']"),
        ("(i for i in range(3))", "assert next(f(0)) == 0\nassert tuple(f(0)) == (0, 1, 2)"),
        ("{1: 2}.keys()", "assert f(0) == {1}"),
        ("{1: 2}.items()", "assert sorted(f(0)) == [(1, 2)]"),
        ("{1: 2}.values()", "assert list(f(0)) == [2]"),
        ("__import__('collections').Counter('aab')", "assert f(0) == {'a': 2, 'b': 1}"),
        ("__import__('collections').OrderedDict(a=1)", "assert f(0) == {'a': 1}"),
        ("__import__('collections').namedtuple('P', 'x y')(1, 2)", "assert f(0) == (1, 2)"),
        ("__import__('enum').IntEnum('E', 'a b').b", "assert f(0) == 2"),
        (
            "__import__('fractions').Fraction(1, 3)",
            "from fractions import Fraction\nassert f(0) == Fraction(1, 3)",
        ),
        ("__import__('decimal').Decimal('0.10')", "from decimal import Decimal\nassert str(f(0)) == '0.10'"),
        ("__import__('collections').deque([1])", "assert list(f(0)) == [1] and len(f(0)) == 1"),
        ("__import__('re').match('a', 'ab')", "assert f(0)\nassert f(0).group() == 'a'"),
        ("lambda y: y + 1", "assert f(0)(2) == 3"),
    ],
)
def test_what_else_can_be_answered(sandbox: Sandbox, answer: str, test: str) -> None:
    report = judged(sandbox, f"def f(x): return {answer}\n", test, objects="match" in answer)
    assert report.verdict == "passed", report


def test_arguments_are_changed_in_place(sandbox: Sandbox) -> None:
    program = "def f(a, b, c, d):\n    a.sort(); b['k'] = [1]; c.add(3); d.append(0)\n"
    test = "a, b, c, d = [2, 1], {}, {1}, bytearray(b'x')\nassert f(a, b, c, d) is None\n"
    assert (
        judged(
            sandbox, program, test + "assert (a, b, c, d) == ([1, 2], {'k': [1]}, {1, 3}, bytearray(b'x\\0'))"
        ).verdict
        == "passed"
    )


def test_state_lasts_from_test_to_test(sandbox: Sandbox) -> None:
    assert (
        judged(
            sandbox,
            "n = []\ndef f():\n    n.append(1)\n    return len(n)",
            "assert f() == 1",
            "assert f() == 2",
        ).verdict
        == "passed"
    )


def test_keywords_names_and_setup(sandbox: Sandbox) -> None:
    program = "LIMIT = 7\ndef f(a, *, b=2): return a * b\n"
    tests = (
        "assert f(3, b=k) == 15",
        "assert LIMIT == 7",
        "assert f(**{'a': 1}) == 2",
        "assert [f(i) for i in (1, 2)] == [2, 4]",
    )
    assert judged(sandbox, program, *tests, setup="k = 5").verdict == "passed"


def test_objects_stay_with_the_candidate(sandbox: Sandbox) -> None:
    program = """
class Node:
    def __init__(self, value): self.value, self.left = value, None
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]
def depth(node): return 0 if node is None else 1 + depth(node.left)
"""
    setup = "root = Node(1)\nroot.left = Node(2)"
    tests = (
        "assert depth(root) == 2 and root.left.value == 2",
        "s = Stack()\ns.push(4)\nassert len(s) == 1 and s[0] == 4 and 4 in s.items and s.items == [4] and s",
        "assert root == root and not root != root",
        "assert isinstance(root, Node) is True",
    )
    report = judged(sandbox, program, *tests, setup=setup, objects=True)
    assert [case.verdict for case in report.cases] == ["passed"] * 4


def test_exceptions_are_of_their_kind(sandbox: Sandbox) -> None:
    program = "class Own(KeyError): pass\ndef f(x): raise {1: ValueError('one'), 2: Own('two')}[x]"
    test = "try:\n    f({})\nexcept {}:\n    caught = True\nassert caught"
    assert (
        judged(sandbox, program, test.format(1, "ValueError"), test.format(2, "KeyError")).verdict == "passed"
    )
    case = judged(sandbox, program, test.format(1, "KeyError")).cases[0]
    assert case.verdict == "raised" and case.detail is not None and "ValueError: one" in case.detail


def test_a_failed_assertion_says_both_sides(sandbox: Sandbox) -> None:
    tests = (
        "assert f([1, 2]) == [1]",
        "assert [1] == f([1, 2])",
        "assert f(3) > 5, 'too small'",
        "x = 2\nassert f(x) in (1,)",
        "assert not f(1)",
    )
    assert judged(sandbox, IDENTITY, "x: int = 1\nassert f(x) == 1").verdict == "passed", (
        "an annotation asks nobody"
    )
    cases = judged(sandbox, IDENTITY, *tests).cases
    assert [case.verdict for case in cases] == ["failed"] * 5
    assert [(case.got, case.expected, case.call) for case in cases[:4]] == [
        ("[1, 2]", "[1]", "f([1, 2])"),
        ("[1, 2]", "[1]", "f([1, 2])"),
        ("3", "> 5", "f(3)"),
        ("2", "in (1,)", "f(2)"),
    ]
    assert (
        cases[2].detail == "'too small'" and cases[3].case == "assert f(x) in (1,)" and cases[4].got is None
    )


@pytest.mark.parametrize(
    "test",
    [
        "if f(1):\n    {}",
        "if f(0):\n    pass\nelif f(1):\n    {}",
        "if f(0):\n    pass\nelse:\n    {}",
        "for i in f([1]):\n    {}",
        "for i in f([]):\n    pass\nelse:\n    {}",
        "while True:\n    {}",
        "try:\n    {}\nfinally:\n    x = 1",
        "try:\n    x = 1\nfinally:\n    {}",
        "try:\n    x\nexcept NameError:\n    {}",
        "with open('/dev/null'):\n    {}",
        "match 1:\n    case 1:\n        {}",
        "class A:\n    def test(self):\n        {}\nA().test()",
    ],
)
def test_an_assertion_says_both_sides_wherever_it_stands(sandbox: Sandbox, test: str) -> None:
    (case,) = judged(sandbox, IDENTITY, test.format("assert f(3) == 4")).cases
    assert (case.verdict, case.case, case.got, case.expected) == ("failed", "assert f(3) == 4", "3", "4")


def test_the_entry_point_is_the_candidates(sandbox: Sandbox) -> None:
    """HumanEval's form: the prompt defines helpers and a stub; `check` takes the candidate, or names it."""
    prompt = "def helper(x):\n    return x + 1\n\ndef f(x):\n    '''Twice.'''\n"
    test = "def check(candidate):\n    assert candidate(2) == 4\n    assert helper(f(1)) == 3\ncheck(f)"
    program = prompt + "    return 2 * x\ndef helper(x): return 0\n"
    assert judged(sandbox, program, test, setup=prompt, entry_points=("f",)).verdict == "passed"
    assert judged(sandbox, prompt, test, setup=prompt, entry_points=("f",)).verdict == "failed"
    assert judged(sandbox, "g = 1", test, setup=prompt, entry_points=("f",)).verdict == "raised"


def test_a_builtin_is_the_candidates_only_by_name(sandbox: Sandbox) -> None:
    program = "def sum(a, b): return a + b\ndef len(x): return 3\ndef f(x): return x\n"
    assert judged(sandbox, program, "assert sum(1, 2) == 3", entry_points=("sum",)).verdict == "passed"
    assert judged(sandbox, program, "assert len(f([1])) == 3").verdict == "failed"


@pytest.mark.parametrize(
    "test",
    [
        "assert f(object()) == 1",
        "import sys\nassert f(sys) == 1",
        "import sys\nassert f(sys._getframe()) == 1",
        "assert f(f) == 1",
        "assert f('x' * 2**25) == 1",
    ],
)
def test_what_cannot_be_asked_is_a_verdict(sandbox: Sandbox, test: str) -> None:
    assert judged(sandbox, IDENTITY, test).verdict == "unrepresentable"


def test_after_a_fatal_test_the_rest_run_in_a_fresh_pair(sandbox: Sandbox) -> None:
    program = """
import os, time
n = []
def f(x):
    n.append(x)
    if x == 2: os._exit(0)
    while x == 4: time.sleep(60)
    return len(n)
"""
    tests = (
        "assert f(1) == 1",
        "assert f(2) == 2",
        "assert f(3) == 1",
        "assert f(4) == 2",
        "assert f(5) == 1",
    )
    report = judged(sandbox, program, *tests, wall=4)
    assert [case.verdict for case in report.cases] == ["passed", "crashed", "passed", "timeout", "passed"]
    assert report.share == 0.6 and report.verdict == "crashed"
    stopped = judged(sandbox, program, *tests, stop=True)
    assert [case.verdict for case in stopped.cases] == [
        "passed",
        "crashed",
        "unreached",
        "unreached",
        "unreached",
    ]


def test_fresh_pairs_are_bounded(sandbox: Sandbox) -> None:
    suite = Suite(tuple(f"assert f({i})" for i in range(5)))
    report = asyncio.run(check(sandbox, "import os\ndef f(x): os._exit(0)", suite, stop=False, pairs=2))
    assert [case.verdict for case in report.cases] == ["crashed", "crashed", *["unreached"] * 3]


@pytest.mark.parametrize(
    ("program", "limits"),
    [
        ("def f(x): return 'a' * 40_000", {"answer": 65536}),
        ("def f(x): x.extend('a' * 10_000)", {"answer": 65536}),
        ("def f(x): print('a' * 40_000)", {"output": 65536}),
        ("kept = []\ndef f(x): kept.append(bytes(100 * 2**20))", {"memory": 256 * MIB}),
        ("import time\ndef f(x): time.sleep(1)", {"wall": 2.5}),
    ],
    ids=["returned", "changed in place", "printed", "kept", "slept"],
)
def test_limits_are_of_each_test(sandbox: Sandbox, program: str, limits: Any) -> None:
    """A right program does not come to a limit by all tests together."""
    suite, limits = Suite(("x = []\nf(x)",) * 3), replace(sandbox.limits, **limits)
    assert asyncio.run(check(sandbox, program, suite, limits=limits)).verdict == "passed"


@pytest.mark.parametrize(("gone", "pairs"), [(0.0, 1), (1.0, 2)])
def test_what_had_nearly_all_the_time_has_no_second_try(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, gone: float, pairs: int
) -> None:
    made, pair = list[Any](), Sandbox.pair

    async def counted(self: Sandbox, *given: Any) -> Any:
        made.append(await pair(self, *given))
        return made[-1]

    monkeypatch.setattr(Sandbox, "pair", counted)
    monkeypatch.setattr(Execution, "elapsed", gone)
    report = judged(
        sandbox, "def f(x):\n    while x: pass", "f(0)", "f(1)", "f(0)", "f(1)", wall=2, stop=True
    )
    assert [case.verdict for case in report.cases] == ["passed", "timeout", "unreached", "unreached"]
    assert len(made) == pairs


def test_a_suite_has_limits_of_its_own(sandbox: Sandbox) -> None:
    loop = judged(sandbox, "def f(x):\n    while True: pass", "f(1)", seconds=0.2)
    assert (loop.verdict, loop.cases[0].detail) == ("timeout", "the program was not done after 0.8 seconds")
    large = "def f(x): return len(bytes(100 * 2**20))"
    assert judged(sandbox, large, "f(1)").verdict == "passed"
    assert judged(sandbox, large, "f(1)", memory=64 * MIB).verdict == "memory"
    limits = {"seconds": 2, "memory": 64 * MIB}
    assert Suite.of({"tests": ["f(1)"], **limits}) == Suite(("f(1)",), seconds=2, memory=64 * MIB)
    assert Suite(("f(1)",), seconds=2).digest != Suite(("f(1)",)).digest
    for name, value in {"seconds": 0, "memory": 1.5}.items():
        with pytest.raises(DataError, match=f"{name}={value}; expected a positive number"):
            Suite.of({"tests": ["f(1)"], name: value})


@pytest.mark.parametrize(
    ("test", "verdict", "words"),
    [
        ("while True: f(1)", "timeout", None),
        ("import os\nos._exit(0)", "crashed", "the code of the tests"),
        ("import sys\nf(1)\nsys.exit(0)", "failed", "SystemExit"),
        ("f(1)\nraise ValueError('own')", "failed", "own"),
        ("f(1)\nx = bytearray(10**12)", "failed", "MemoryError"),
        ("f(1)\nopen('/etc/passwd')", "failed", "FileNotFoundError"),
        ('import __main__\n__main__.channel.send(\'"verdict":"passed"\')', "forged", "of its own making"),
        ("import __main__\n__main__.channel.send('\"ask\":5')", "forged", "of its own making"),
        (
            'import __main__\n__main__.channel.send(\'"ask":{"op":"load","source":""}\')',
            "forged",
            "of its own making",
        ),
        (
            "import os\nfor n in range(3, 99):\n    try: os.write(n, b'x\\n')\n    except OSError: pass",
            "forged",
            None,
        ),
    ],
)
def test_tests_are_contained_as_well(sandbox: Sandbox, test: str, verdict: str, words: str | None) -> None:
    """Generated tests are a model's output, too; at worst they fail the candidate."""
    case = judged(sandbox, IDENTITY, test, wall=0.8 if verdict == "timeout" else 60).cases[0]
    assert case.verdict == verdict
    assert words is None or (case.detail is not None and words in case.detail)


@pytest.mark.parametrize(
    ("test", "suite", "words"),
    [
        ("assert f(1) == 1", {"setup": "import nowhere"}, "No module named 'nowhere'"),
        ("assert f(1) == 1", {"setup": "x = 1 / 0"}, "ZeroDivisionError"),
        ("import nowhere\nassert f(1) == 1", {}, "No module named 'nowhere'"),
        ("assert f(1) == np.int64(1)", {"entry_points": ("f",)}, "name 'np' is not defined"),
        ("def check(g):\n    assert np.allclose(g(1), 1)\ncheck(f)", {"entry_points": ("f",)}, "'np'"),
        ("assert 1 == 2", {}, ""),
    ],
)
def test_broken_tests_are_not_held_against_the_program(
    sandbox: Sandbox, test: str, suite: dict[str, object], words: str
) -> None:
    report = judged(sandbox, IDENTITY, test, **suite)
    assert report.verdict == "broken" and report.broken == report.cases[0]
    assert words in str(report.cases[0].detail)


@pytest.mark.parametrize(
    ("program", "test", "suite", "verdict"),
    [
        ("class E(ImportError): pass\ndef f(x): raise E", "f(1)", {}, "raised"),
        ("def f(x): raise NameError(name='np')", "f(1)", {"entry_points": ("f",)}, "raised"),
        ("def f(x): return 'np'", "eval(f(1), {})", {"entry_points": ("f",)}, "failed"),
        ("def f(x): return '('", "eval(f(1), {})", {"entry_points": ("f",)}, "failed"),
        (
            "def f(x): return x",
            "assert f(LIMIT) == 1",
            {"entry_points": ("f",), "names": ("LIMIT",)},
            "failed",
        ),
        ("def f(x): return x", "assert g(1) == 1", {}, "failed"),
        ("g = 1", "assert f(1) == 1", {"entry_points": ("f",)}, "raised"),
        ("def f(x): return None", "x = 1", {"setup": "k = f(1).real", "entry_points": ("f",)}, "failed"),
    ],
)
def test_no_program_can_break_a_test(
    sandbox: Sandbox, program: str, test: str, suite: dict[str, object], verdict: str
) -> None:
    assert judged(sandbox, program, test, **suite).verdict == verdict


@pytest.mark.parametrize(
    ("field", "words"), [("setup", "the setup 'f(' is no Python"), ("tests", "the test 'f('")]
)
def test_code_that_is_no_python_is_an_error(field: str, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        Suite(**{"tests": ("assert f(1)",), field: "f(" if field == "setup" else ("assert f(1)", "f(")})  # type: ignore[arg-type]  # one of two fields


OBJECT = """
class Everything:
    def __contains__(self, x): return True
    def __bool__(self): return True
    def __eq__(self, other): return True
    def __iter__(self): return iter([0])
    def startswith(self, x): return True
    def is_right(self): return True
def f(x): return Everything()
class np:
    allclose = staticmethod(lambda *a: True)
def compare(a, b): return True
"""


@pytest.mark.parametrize(
    ("test", "suite", "verdict"),
    [
        ("assert 4 in f(2)", {}, "failed"),
        ("assert f(2).startswith('a')", {}, "unrepresentable"),
        ("assert f(2).is_right()", {}, "unrepresentable"),
        ("assert f(2)", {}, "unrepresentable"),
        ("assert not f(2) is None and f(2)", {}, "unrepresentable"),
        ("assert np.allclose(f(2), 4)", {"entry_points": ("f",)}, "broken"),
        ("assert np.allclose(f(2), 4)", {"names": ("np", "f")}, "unrepresentable"),
        ("assert compare(f(2), 4)", {"entry_points": ("f",)}, "broken"),
        ("assert f(2).is_right() and f(2)", {"objects": True}, "passed"),
    ],
)
def test_an_object_decides_no_test(
    sandbox: Sandbox, test: str, suite: dict[str, object], verdict: str
) -> None:
    assert judged(sandbox, OBJECT, test, **suite).verdict == verdict


@pytest.mark.parametrize("value", ["...", "NotImplemented"])
def test_a_single_object_that_cannot_leave_shows_nothing(sandbox: Sandbox, value: str) -> None:
    assert (
        judged(sandbox, f"def f(x): return {value}", f"assert f(1) is {value}").verdict == "unrepresentable"
    )
    assert judged(sandbox, "def f(x): return 3", f"assert f(1) is {value}").verdict in (
        "failed",
        "unrepresentable",
    )
    assert judged(sandbox, f"def f(x): return {value}", "assert f(1) is None").verdict == "failed"


def test_names_are_asked_for_where_they_are_given(sandbox: Sandbox) -> None:
    program = (
        "import math\nclass Pair:\n    def __init__(self, a): self.a = a\nLIMIT = 7\ndef f(p): return p.a"
    )
    tests = ("assert f(Pair(3)) == 3", "assert f(Pair(LIMIT)) == 7")
    suite = {"entry_points": ("f",), "names": ("Pair", "LIMIT")}
    assert judged(sandbox, program, *tests, **suite).verdict == "passed"
    own = judged(sandbox, "def sum(x): return 3", "assert sum([1]) == 3", names=("sum",))
    none = judged(sandbox, "", "assert sum([1]) == 1", names=("sum",))
    assert (own.verdict, none.verdict) == ("passed", "failed")
    assert Suite(tests, **suite).digest != Suite(tests, entry_points=("f",)).digest  # type: ignore[arg-type]  # as above
    public = {"tests": list(tests), "entry_points": ["f"], "names": ["Pair", "LIMIT"], "objects": True}
    assert Suite.of(public) == Suite(tests, "", ("f",), ("Pair", "LIMIT"), True)


def test_tests_have_packages_of_their_own(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("three = 3")
    tmp_path.chmod(0o755)
    wide = Sandbox(limits=sandbox.limits, judge=Python(packages=(tmp_path,)))
    test = "import theirs\nassert f(theirs.three) == 3"
    assert judged(wide, IDENTITY, test).verdict == "passed"
    assert judged(wide, "import theirs\n" + IDENTITY, test).verdict == "raised"
    assert wide.fingerprint != sandbox.fingerprint == sandbox.language.fingerprint


def test_what_holds_us_up_is_not_held_against_the_program(sandbox: Sandbox) -> None:
    """The loop stands still for longer than the deadline, while an honest program works."""

    async def main() -> str:
        asyncio.get_running_loop().call_later(0.5, time.sleep, 3.5)
        suite = Suite(("import time\ntime.sleep(0.3)\nassert f(1) == 1",) * 3)
        report = await check(sandbox, IDENTITY, suite, limits=replace(sandbox.limits, wall=3.0))
        return report.verdict

    assert asyncio.run(main()) == "passed"


def test_long_answers_are_read_in_threads(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that answers at length must not hold up its neighbours."""
    threads: dict[str, list[bool]] = {"key": [], "json": []}
    here, key, loads = threading.current_thread(), plain.key, json.loads

    def noted(kind: str, function: Any) -> Any:
        def run(*args: Any) -> Any:
            threads[kind].append(threading.current_thread() is here)
            return function(*args)

        return run

    monkeypatch.setattr(plain, "key", noted("key", key))
    monkeypatch.setattr("metagen.verifiers.code.session.json.loads", noted("json", loads))
    outcome = asyncio.run(sandbox.evaluate("", ["1", "[[]] * 50_000"]))
    assert threads == {"key": [True, False], "json": [True, True, True, False]}
    assert len(str(outcome.answers[1].key)) < 100, "and their keys are short"


def test_a_program_that_does_not_load_fails_all_at_once(sandbox: Sandbox) -> None:
    report = judged(sandbox, "import nowhere", *["assert f(1) == 1"] * 50)
    assert {case.verdict for case in report.cases} == {"raised"}
    assert "No module named 'nowhere'" in str(report.cases[49].detail)


def test_many_calls_in_one_test(sandbox: Sandbox) -> None:
    many = "assert all(f(i) == i for i in range(2000))"
    assert judged(sandbox, IDENTITY, many, wall=60).verdict == "passed"


def test_no_tests_are_an_error() -> None:
    with pytest.raises(DataError, match="no tests"):
        Suite(())


def test_the_outputs_of_a_real_model(sandbox: Sandbox) -> None:
    """CodeGen-16B's, one of each kind that was observed: data/README.md has their origin."""
    words = {
        "timeout": "timeout",
        "AssertionError": "failed",
        "ok": "passed",
        "ModuleNotFoundError": "unavailable",
    }
    lines = (Path(__file__).parent / "data" / "codegen16b.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 14
    for row in map(json.loads, lines):
        name = row["entry_point"]
        test = f"{row['test']}\ncheck({name})"
        verdict = words.get(row["outcome"], "raised")
        wall = 1.5 if verdict == "timeout" else 60
        report = judged(sandbox, row["program"], test, wall=wall, setup=row["prompt"], entry_points=(name,))
        # What runs on for ever, gathering things, comes to its limit of memory first on a fast machine.
        either = {verdict, "memory"} if verdict == "timeout" else {verdict}
        assert report.verdict in either, (row["outcome"], report)
        # EOFError, NameError, …: what the program raised, as the earlier run saw it (boto3 is not there at all).
        if report.verdict == "raised" and row["outcome"] not in ("NoRegionError", "SystemExit"):
            assert row["outcome"] in str(report.cases[0].detail)


# -- values that are more than plain, and what is never called wrong ------------------------------

LIBRARY = """
import array, collections, dataclasses, datetime, decimal, enum, fractions, itertools, pathlib, types, typing, uuid
class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2
class Plain(enum.Enum):
    RED = 1
Point = collections.namedtuple("Point", "x y")
class Named(typing.NamedTuple):
    a: int
    b: str = "z"
    def both(self): return f"{self.a}{self.b}"
@dataclasses.dataclass
class Data:
    a: int
    b: list = dataclasses.field(default_factory=list)
class Text(str):
    def shout(self): return self.upper() + "!"
def counted():
    n = 0
    while True:
        n += 1
        yield n
def growing():
    text = "x"
    while True:
        yield text
        text *= 2
def failing():
    yield 1
    yield 2
    raise KeyError("three")
"""


@pytest.mark.parametrize(
    ("value", "test"),
    [
        ("collections.deque([1, 2], 5)", "assert v == deque([1, 2]) and v.maxlen == 5 and v.pop() == 2"),
        ("[collections.deque([1])]", "assert v == [deque([1])] and v != [[1]]"),
        ("datetime.date(2026, 2, 28)", "assert v == date(2026, 2, 28) and v.isoformat() == '2026-02-28'"),
        ("datetime.datetime(2026, 1, 2, 3, 4, 5, 6)", "assert v == datetime(2026, 1, 2, 3, 4, 5, 6)"),
        (
            "datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))",
            "assert v == datetime(2026, 1, 1, 22, tzinfo=timezone.utc)",
        ),
        ("datetime.time(3, 4)", "assert v == time(3, 4)"),
        ("datetime.date(2026, 1, 3) - datetime.date(2026, 1, 1)", "assert v == timedelta(2) and v.days == 2"),
        ("Point(1, 2)", "assert v == (1, 2) and v.x == 1 and v._asdict() == {'x': 1, 'y': 2}"),
        ("Point(1, 2)", "assert repr(v) == 'Point(x=1, y=2)' and isinstance(v, tuple)"),
        ("Named(1)", "assert v == (1, 'z') and v.b == 'z'"),
        ("Colour.BLUE", "assert v == 2 and v.name == 'BLUE' and v + 1 == 3"),
        ("Plain.RED", "assert v.name == 'RED' and v.value == 1"),
        ("Data(3, [4])", "assert v.a == 3 and v.b == [4]"),
        ("Text('ab')", "assert v == 'ab' and v.upper() == 'AB'"),
        ("collections.Counter('aab')", "assert v.most_common(1) == [('a', 2)] and v['z'] == 0"),
        ("collections.defaultdict(list, a=[1])", "assert v == {'a': [1]} and v['z'] == []"),
        ("collections.OrderedDict(b=1, a=2)", "assert v == OrderedDict(b=1, a=2) != OrderedDict(a=2, b=1)"),
        ("decimal.Decimal('0.10')", "assert v == Decimal('0.1')"),
        ("fractions.Fraction(1, 3)", "assert v == Fraction(1, 3)"),
        ("uuid.UUID(int=5)", "assert v.int == 5"),
        ("pathlib.Path('/a/b')", "assert v.name == 'b'"),
        ("array.array('i', [1, 2])", "assert list(v) == [1, 2]"),
        ("counted()", "assert [next(v) for _ in range(3)] == [1, 2, 3]"),
        ("counted()", "assert list(islice(v, 5000))[-1] == 5000 and next(v) == 5001"),
        ("itertools.count(5)", "assert next(v) == 5 and next(v) == 6"),
        ("growing()", "assert [len(next(v)) for _ in range(15)][-1] == 2**14"),
        ("(i for i in range(3))", "import types\nassert isinstance(v, types.GeneratorType) and sum(v) == 3"),
        ("iter([1, 2])", "assert list(v) == [1, 2] and list(v) == []"),
        ("zip('ab', (1, 2))", "assert dict(v) == {'a': 1, 'b': 2}"),
        (
            "failing()",
            "got = []\ntry:\n    for x in v: got.append(x)\nexcept KeyError: got.append(3)\nassert got == [1, 2, 3]",
        ),
        ("iter(())", "assert next(v, None) is None"),
        ("sum", "assert v([1, 2]) == 3"),
        ("str.upper", "assert v('a') == 'A'"),
        ("lambda x: -x", "assert sorted([1, 2], key=v) == [2, 1]"),
        ("[Colour.RED, Text('a'), Point(1, 2)]", "assert g(v) == v and h(v)"),
    ],
)  # fmt: skip
def test_values_of_the_library_are_judged(sandbox: Sandbox, value: str, test: str) -> None:
    setup = (
        "from collections import *\nfrom datetime import *\nfrom decimal import Decimal\n"
        "from fractions import Fraction\nfrom itertools import islice"
    )
    program = (
        f"{LIBRARY}\ndef f(): return {value}\ndef g(x): return x\n"
        "def h(x): return isinstance(x[0], Colour) and isinstance(x[1], Text) and isinstance(x[2], Point)\n"
    )
    points = {"entry_points": ("f", "g", "h")}
    report = judged(sandbox, program, f"v = f()\n{test}", setup=setup, **points)
    assert report.verdict == "passed", report
    wrong = judged(sandbox, program, "assert f() == 'something else'", setup=setup, **points)
    assert wrong.verdict in ("failed", "unrepresentable"), wrong


@pytest.mark.parametrize(
    "value", ["deque([1, 2], 3)", "date(2026, 1, 2)", "defaultdict(int, a=1)", "OrderedDict(a=1)", "Counter('ab')",
              "namedtuple('P', 'x y')(1, 2)", "timedelta(1)"],
)  # fmt: skip
def test_arguments_of_the_library_arrive(sandbox: Sandbox, value: str) -> None:
    setup = "from collections import *\nfrom datetime import *"
    test = f"v = {value}\nassert f(v) == ({value}, type(v).__name__)"
    program = "def f(x): return x, type(x).__name__"
    assert judged(sandbox, program, test, setup=setup, entry_points=("f",)).verdict == "passed"


def test_arguments_are_changed_wherever_they_stand(sandbox: Sandbox) -> None:
    program = (
        "def f(a, *, k=None):\n    a[0].append(1); a[1].appendleft(2)\n    if k is not None: k.append(3)\n"
    )
    test = "x, q, k = [], deque(), []\nf((x, q), k=k)\nassert (x, list(q), k) == ([1], [2], [3])"
    test = f"from collections import deque\n{test}"
    assert judged(sandbox, program, test).verdict == "passed"


@pytest.mark.parametrize(
    ("value", "test"),
    [
        ("Data(3)", "assert f() == g(f())"),
        ("Data(3)", "assert isinstance(f(), dict)"),
        ("Data(3)", "import dataclasses\nassert dataclasses.astuple(f()) == (3, [])"),
        ("Data(3)", "assert f() in {1, 2}"),
        ("Data(3)", "assert f() + 1 == 4"),
        ("Data(3)", "assert {f(): 1}"),
        ("Text('ab')", "assert v.shout() == 'AB!'"),
        ("Named(1)", "assert v.both() == '1z'"),
        ("collections.defaultdict(lambda: 7)", "assert v['z'] == 7"),
        ("[1]", "x = [1]\nassert g(x) is x"),
        ("[1]", "x = [1]\nassert g(x) is not x"),
        ("types.SimpleNamespace(a=1)", "with f() as x: pass"),
        ("Data(3)", "try:\n    raise ValueError\nexcept f(): pass"),
    ],
)
def test_what_cannot_be_told_is_never_wrong(sandbox: Sandbox, value: str, test: str) -> None:
    program = f"{LIBRARY}\ndef f(): return {value}\ndef g(x): return x\n"
    report = judged(sandbox, program, f"v = f()\n{test}", entry_points=("f", "g"))
    assert report.verdict == "unrepresentable" and report.ungraded and report.share is None, report


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(): return None", "assert len(f()) == 1"),
        ("def f(): return 3", "assert f().x == 1"),
        ("def f(): return [1]", "assert f() + 1 == 2"),
        ("class D: x = 1\ndef f(): return D()", "assert f().x == 2"),
        ("import collections\ndef f(): return collections.deque([1])", "assert f() == [1]"),
        ("def f(): yield 1", "assert list(f()) == [2]"),
    ],
)
def test_what_can_be_told_is_wrong(sandbox: Sandbox, program: str, test: str) -> None:
    assert judged(sandbox, program, test).verdict == "failed"


def test_a_test_that_fails_is_looked_for_behind_one_that_tells_nothing(sandbox: Sandbox) -> None:
    program = "class D: pass\ndef f(x): return D() if x == 1 else x"
    report = judged(sandbox, program, "assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 4", stop=True)
    assert [case.verdict for case in report.cases] == ["unrepresentable", "passed", "failed"]
    assert report.verdict == "failed" and not report.ungraded and report.share == 0.5


def test_many_values_of_a_kind_cross(sandbox: Sandbox) -> None:
    """Each opens more brackets than plain ones do, and counts for more: none is taken for a flood of brackets."""
    program = (
        f"{LIBRARY}\ndef f(n): return [Colour.RED] * n, [datetime.timedelta(1)] * n, [Point(1, 2)] * n\n"
    )
    assert (
        judged(sandbox, program, "assert [len(x) for x in f(5000)] == [5000] * 3", wall=60).verdict
        == "passed"
    )
    assert judged(sandbox, program, "assert f(200_000)", wall=60).verdict == "output"


def test_functions_may_start_processes(sandbox: Sandbox) -> None:
    program = (
        "import multiprocessing as mp\ndef g(x): return x * x\n"
        "def f(n):\n    with mp.Pool(2) as p: return p.map(g, range(n))"
    )
    assert judged(sandbox, program, "assert f(4) == [0, 1, 4, 9]").verdict == "passed"


def test_values_of_numpy_are_judged_where_both_have_it(sandbox: Sandbox) -> None:
    numpy = pytest.importorskip("numpy")
    site = Path(numpy.__file__).parents[1]
    python = Python(packages=(site,))
    both = Sandbox(python, replace(sandbox.limits, memory=1 << 30, processes=64))
    program = (
        "import numpy as np\ndef f(x): return np.int64(x)\ndef g(x): return np.arange(x)\n"
        "def h(a): return a.sum()"
    )
    tests = (
        "assert f(4) == 4 and f(4) + 1 == 5",
        "import numpy as np\nassert isinstance(f(4), np.int64)",
        "import numpy as np\nassert (g(3) == np.array([0, 1, 2])).all() and g(3).dtype == np.arange(3).dtype",
        "import numpy as np\nassert h(np.ones((2, 2))) == 4.0",
    )
    report = judged(both, program, *tests, entry_points=("f", "g", "h"))
    assert report.verdict == "passed", report
    alone = Sandbox(python, both.limits, judge=Python())
    report = judged(
        alone, program, "assert f(4) == 4", "assert list(g(3)) == [0, 1, 2]", entry_points=("f", "g")
    )
    assert [case.verdict for case in report.cases] == ["passed", "unrepresentable"], report


# -- functions and objects of the tests' own -------------------------------------------------------

TAKES = """
import functools, operator
def call(f, *args, **kwargs): return f(*args, **kwargs)
def each(f, values): return [f(v) for v in values]
def order(values, key): return sorted(values, key=key)
def lazily(f, values): return map(f, values)
def fold(f, values): return functools.reduce(f, values)
def same(x): return x
def depth(node): return 0 if node is None else 1 + max(depth(node.left), depth(node.right))
def total(node): return 0 if node is None else node.value + total(node.left) + total(node.right)
def mirror(node):
    if node is not None:
        node.left, node.right = mirror(node.right), mirror(node.left)
    return node
def largest(values): return max(values)
def count(values):
    seen = {}
    for v in values: seen[v] = seen.get(v, 0) + 1
    return sorted(seen.values())
def safe(f):
    try: return f()
    except ValueError as e: return f"no: {e}"
def even(n, odd): return True if n == 0 else odd(n - 1)
def endless(f): return f(lambda: endless(f))
def make(kind, x): return kind(x)
def threads(f, values):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool: return list(pool.map(f, values))
"""
OWN = """
class Node:
    def __init__(self, value, left=None, right=None): self.value, self.left, self.right = value, left, right
    def leaf(self): return self.left is None and self.right is None
class Coin:
    def __init__(self, x): self.x = x
    def __eq__(self, o): return self.x == o.x
    def __lt__(self, o): return self.x < o.x
    def __hash__(self): return hash(self.x)
    def __add__(self, o): return Coin(self.x + o.x)
    def __len__(self): return self.x
    def __iter__(self): return iter(range(self.x))
tree = Node(1, Node(2, Node(3)), Node(4))
"""
POINTS = tuple(line[4 : line.index("(")] for line in TAKES.splitlines() if line.startswith("def "))


@pytest.mark.parametrize(
    "test",
    [
        "assert call(lambda x: x + 1, 3) == 4 and call(lambda *, k: k, k=[1]) == [1]",
        "got = []\ndef add(x): got.append(x)\neach(add, [1, 2])\nassert got == [1, 2]",
        "assert order(['bb', 'a'], len) == ['a', 'bb'] and order(['B', 'a'], str.lower) == ['a', 'B']",
        "assert order([3, 1], lambda v: -v) == [3, 1]",
        "assert list(lazily(lambda v: v * 2, [1, 2])) == [2, 4]",
        "import operator\nassert fold(operator.add, [1, 2, 3]) == 6 and fold(lambda a, b: a * b, [2, 3]) == 6",
        "import functools\nassert call(functools.partial(lambda a, b: a - b, 5), 2) == 3",
        "import math\nassert each(math.sqrt, [4.0]) == [2.0]",
        "f = lambda: 1\nassert same(f) is f and same([tree])[0] is tree",
        "assert depth(tree) == 3 and total(tree) == 10",
        "assert mirror(tree).left.value == 4 and tree.right.right.value == 3",
        "assert call(tree.leaf) is False and call(Node(1).leaf)",
        "assert largest([Coin(1), Coin(3)]) == Coin(3) and largest([Coin(1), Coin(3)]).x == 3",
        "assert count([Coin(1), Coin(2), Coin(1)]) == [1, 2]",
        "assert call(sum, [1, 2]) == 3 and each(len, [Coin(2)]) == [2] and each(list, [Coin(2)]) == [[0, 1]]",
        "assert fold(lambda a, b: a + b, [Coin(1), Coin(2)]).x == 3",
        "def bad(): raise ValueError('x')\nassert safe(bad) == 'no: x'",
        "def odd(n): return False if n == 0 else even(n - 1, odd)\nassert even(10, odd) and not even(7, odd)",
        "assert make(Node, 5).value == 5 and isinstance(make(Node, 5), Node)",
        "assert threads(lambda v: v * v, range(20)) == [v * v for v in range(20)]",
    ],
)
def test_programs_take_functions_and_objects_of_the_tests(sandbox: Sandbox, test: str) -> None:
    report = judged(sandbox, TAKES, test, setup=OWN, entry_points=POINTS)
    assert report.verdict == "passed", report


@pytest.mark.parametrize(
    ("test", "verdicts"),
    [
        ("assert call(lambda x: x + 1, 3) == 5", ("failed",)),
        ("assert depth(tree) == 7", ("failed",)),
        ("def bad(): raise KeyError('x')\nassert safe(bad)", ("raised",)),
        ("assert endless(lambda f: f()) == 1", ("raised", "timeout")),
    ],
)
def test_programs_with_these_may_be_wrong(sandbox: Sandbox, test: str, verdicts: tuple[str, ...]) -> None:
    assert judged(sandbox, TAKES, test, setup=OWN, entry_points=POINTS).verdict in verdicts


@pytest.mark.parametrize("limits", [{"wall": 1.5}, {"wall": 60, "answer": 4096}], ids=["time", "bytes"])
def test_a_callback_used_without_end_is_no_evidence(
    sandbox: Sandbox, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows how long it would have taken, or what it would have returned, in one process."""
    monkeypatch.setattr(
        "metagen.verifiers.code.check.MANY", 3
    )  # so many uses fit into the time of a busy machine
    program = "def f(g):\n    while True: g(1)"
    report = judged(sandbox, program, "f(lambda x: x)", **limits, entry_points=("f",))
    assert [case.verdict for case in report.cases] == ["unrepresentable"], report


def test_a_callback_used_once_excuses_no_endless_loop(sandbox: Sandbox) -> None:
    report = judged(
        sandbox, "def h(g):\n    g(1)\n    while True: pass", "h(lambda x: x)", wall=1, entry_points=("h",)
    )
    assert [case.verdict for case in report.cases] == ["timeout"], report


#: What a program tries with a function and an object of the tests' that it was given: f(g, o).
REACH = {
    "the globals of a function": "g.__globals__['expected'] = 0",
    "its code": "g.__code__",
    "the class of an object": "main.candidate.back('getattr', (o, '__class__'))",
    "its dictionary": "main.candidate.back('getattr', (o, '__dict__'))",
    "a method's function": "main.candidate.back('getattr', (o.right, '__func__'))",
    "attributes of a function": "main.candidate.back('getattr', (g, 'x'))",
    "a function in place of a method": "o.right = lambda: True",
    "what is not named": "main.candidate.back('eval', (o, '1'))",
    "uses of plain values": "main.candidate.back('getattr', ('', 'join'))",
    "numbers of nobody": "main.candidate.kept_as(-99, 'x')()",
}


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("attempt", REACH)
def test_nothing_else_of_the_tests_is_reached(sandbox: Sandbox, attempt: str, caught: bool) -> None:
    lines = REACH[attempt].splitlines()
    body = "".join(f"        {line.strip()}\n" for line in lines)
    kind = "BaseException" if caught else "ZeroDivisionError"
    program = (
        "import sys\nmain = sys.modules['__main__']\n"
        f"def f(g, o):\n    try:\n{body}    except {kind}: pass\n    return 4\n"
    )
    setup = "expected = 4\nclass O:\n    def right(self): return False\ndef g(): return expected"
    test = "o = O()\nassert f(g, o) == 5 or o.right()"
    report = judged(sandbox, program, test, setup=setup, entry_points=("f",))
    assert report.verdict in ("unrepresentable", "raised", "failed"), report
