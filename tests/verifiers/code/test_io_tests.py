"""Tests by standard input and output: what counts as the same output, and that no program passes but by its output."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from metagen.errors import DataError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.code.codet import DualAgreement
from metagen.verifiers.code.hidden import HiddenTests
from metagen.verifiers.code.io_tests import IOTests, check_io, close
from metagen.verifiers.code.outputs import ProgramOutputs
from metagen.verifiers.code.public import PublicTests
from metagen.verifiers.code.report import Report
from metagen.verifiers.code.sandbox import Sandbox
from tests.verifiers.code.test_hazards import remains

SUMS = IOTests(("1 2\n", "3 4\n"), ("3\n", "7\n"))
RIGHT = "print(sum(map(int, input().split())))"


def judged(
    sandbox: Sandbox, program: str, tests: IOTests = SUMS, *, stop: bool = False, **limits: Any
) -> Report:
    return asyncio.run(check_io(sandbox, program, tests, limits=replace(sandbox.limits, **limits), stop=stop))


def test_outputs_are_compared(sandbox: Sandbox) -> None:
    assert judged(sandbox, RIGHT).verdict == "passed"
    report = judged(sandbox, "print(3)")
    assert [case.verdict for case in report.cases] == ["passed", "failed"] and report.share == 0.5
    case = report.cases[1]
    assert (case.got, case.expected, case.test) == ("3", "7", "with the input\n3 4\n")
    assert [c.verdict for c in judged(sandbox, "print(8)", stop=True).cases] == ["failed", "unreached"]


@pytest.mark.parametrize(
    ("output", "expected", "options", "same"),
    [
        ("3\n", "3", {}, True),
        ("3 \r\n\n", "3\n", {}, True),
        (" 3", "3", {}, False),
        (" 3", "3", {"compare": "lines"}, True),
        ("3\n\n4", "3\n4", {}, False),
        ("3\n\n4", "3\n4", {"compare": "lines"}, False),
        ("\n \n3\n 4\n", "3\n4", {"compare": "lines"}, True),
        ("\n3", "3", {}, False),
        ("\n", "", {"compare": "lines"}, True),
        ("3\n\n 4", "3\n4", {"compare": "tokens"}, True),
        ("34", "3 4", {"compare": "tokens"}, False),
        ("", "", {}, True),
        ("", "0", {"compare": "tokens"}, False),
        ("YES", "yes", {}, False),
        ("YES", "yes", {"fold_case": True}, True),
        ("0.3333", "0.333300001", {}, False),
        ("0.3333", "0.333300001", {"tolerance": 1e-6}, True),
        ("a 1.0 b", "a 1.0000001 b", {"tolerance": 1e-6}, True),
        ("1e3", "1000.0", {"tolerance": 0}, True),
        ("1.0", "1", {"tolerance": 0}, True),
        ("1.0", "1", {}, False),
        ("1000001", "1000000", {"tolerance": 1e-3}, False),
        ("50000000000000001", "50000000000000000", {"tolerance": 0}, False),
        ("nan", "1.0", {"tolerance": 1.0}, False),
        ("inf", "1.0", {"tolerance": 1.0}, False),
        ("1_0", "10.0", {"tolerance": 1.0}, False),
        ("1e999999999", "1.0", {"tolerance": 1.0}, False),
        ("1.0 2.0", "1.0\n2.0", {"tolerance": 0}, False),
        ("\x0c3", "3", {}, False),
    ],
)
def test_what_counts_as_the_same(output: str, expected: str, options: Any, same: bool) -> None:
    assert IOTests(("",), ("",), **options).matches(output, expected) is same


def test_a_tolerance_is_absolute_or_relative() -> None:
    assert close("1000000.5", "1000001.0", 1e-6) and not close("1000003.5", "1000001.0", 1e-6)
    assert close("0.0000001", "0.0", 1e-6) and not close("0.00001", "0.0", 1e-6)
    assert close("+07", "7", 0.0) and not close("-7", "7", 0.5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"inputs": (), "outputs": ()}, "0 inputs"),
        ({"inputs": ("1",), "outputs": ()}, "1 inputs and 0 outputs"),
        ({"inputs": (1,), "outputs": ("1",)}, "an input is 1"),
        ({"inputs": ("1",), "outputs": ("1",), "compare": "fuzzy"}, "compare='fuzzy'; expected one of exact"),
        ({"inputs": ("1",), "outputs": ("1",), "tolerance": -1}, "tolerance=-1"),
        ({"inputs": ("1",), "outputs": ("1",), "tolerance": False}, "tolerance=False"),
        ({"inputs": ("1",), "outputs": ("1",), "seconds": 0}, "seconds=0"),
        ({"inputs": ("1",), "outputs": ("1",), "memory": 1.5}, r"memory=1\.5"),
    ],
)
def test_faulty_tests_are_errors(fields: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        IOTests(**fields)


def test_plain_data_there_and_back() -> None:
    tests = IOTests(("a", "b"), ("c", "d"), compare="tokens", tolerance=0.0, seconds=2, memory=1 << 28)
    assert IOTests.of(tests.data) == tests and IOTests.of({"tests": ["assert 1"]}) is None
    assert tests.digest != IOTests(("a", "b"), ("c", "d")).digest
    for faulty in (
        {"inputs": ["1"]},
        {"inputs": ["1"], "outputs": ["1"], "other": 1},
        7,
        {"inputs": 3, "outputs": 4},
    ):
        with pytest.raises(DataError, match="expected inputs and outputs"):
            IOTests.of({"io": faulty})


# -- hostile programs ------------------------------------------------------------------------------

#: Wrong programs, and the verdicts that they may get: never `passed`.
HOSTILE = {
    "prints that it has passed": ("print('passed')\nprint('OK')", ("failed",)),
    "ends well and says nothing": ("exit(0)", ("failed",)),
    "ends well by the kernel": ("import os\nos._exit(0)", ("failed",)),
    "looks for expected outputs in files": (
        "import os\nfor root, _, names in os.walk('/'):\n    for name in names:\n"
        "        if 'stdin' in name or 'output' in name or 'expected' in name or root.startswith('/tmp'):\n"
        "            try: print(open(os.path.join(root, name)).read())\n            except Exception: pass",
        ("failed", "timeout", "raised", "output"),
    ),
    "reads what its parent has": (
        "import os\nfor p in ('/proc/1/cmdline', '/proc/1/environ', '/proc/self/fd/3', '/dev/fd/3'):\n"
        "    try: print(open(p).read())\n    except OSError: pass",
        ("failed",),
    ),
    "writes to every descriptor": (
        "import os\nfor fd in range(2, 256):\n    try: os.write(fd, b'3\\n')\n    except OSError: pass",
        ("failed",),
    ),
    "writes the answer to standard error": ("import sys\nprint(3, file=sys.stderr)", ("failed",)),
    "answers, and fails": (RIGHT + "\nexit(1)", ("raised",)),
    "answers, and is killed": (RIGHT + "\nimport os\nos.kill(os.getpid(), 9)", ("failed", "crashed")),
    "answers, and goes on": (
        "print(sum(map(int, input().split())), flush=True)\nwhile True: pass", ("timeout",)
    ),
    "answers twice": (RIGHT + "\nprint(3)", ("failed",)),
    "all answers at once": ("print(3)\nprint(7)", ("failed",)),
    "a flood on standard output": ("while True: print('x' * 10000)", ("output",)),
    "a flood on standard error": (
        "import sys\nwhile True: print('x' * 10000, file=sys.stderr)", ("output",)
    ),
    "a flood of white space after the answer": (
        RIGHT + "\nwhile True: print(' ' * 10000)", ("output",)
    ),
    "an imitation of the beginning": (
        "import os, sys\nos.write(2, b'0' * 32 + b'\\n')\nos.write(1, b'4\\n')", ("failed",)
    ),
    "a package that is missing, in words": (
        "import sys\nprint(\"ModuleNotFoundError: No module named 'os'\", file=sys.stderr)\nexit(1)",
        ("raised",),
    ),
    "processes that live on and answer late": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(0.5)\n    print(3)\n    time.sleep(1000)",
        ("failed",),
    ),
    "processes without end": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timeout", "memory", "crashed")
    ),
    "memory without end": ("x = []\nwhile True: x.append(bytes(1 << 20))", ("memory", "raised", "crashed")),
    "input never read, no answer": ("import time\ntime.sleep(1000)", ("timeout",)),
    "stops its group": ("import os, signal\nos.kill(0, signal.SIGSTOP)", ("timeout", "failed", "crashed")),
    "kills all it can": (
        "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\ntry: os.kill(1, 9)\nexcept OSError: pass",
        ("failed", "crashed"),
    ),
    "closes its streams": ("import os\nos.closerange(0, 256)", ("failed", "raised")),
    "its program as another one": (
        "import os\ntry: open(__file__, 'w').write('print(3)')\nexcept OSError: print('read-only')", ("failed",)
    ),
    "its input as another one": (
        "import os\ntry:\n    os.ftruncate(0, 0)\nexcept OSError:\n    print('read-only')", ("failed",)
    ),
    "a module that hides another": (
        "open('/tmp/re.py', 'w').write('import os; os._exit(0)')\nimport os\nprint(os.getcwd())", ("failed",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", HOSTILE)
def test_no_program_passes_but_by_its_output(sandbox: Sandbox, attack: str) -> None:
    program, verdicts = HOSTILE[attack]
    # Only where the time is to end may it be short: a busy machine takes its time.
    report = judged(sandbox, program, stop=True, wall=0.6 if "timeout" in verdicts else 60.0)
    assert report.cases[0].verdict in verdicts and report.verdict != "passed", report
    assert remains() == []


def test_a_long_input_that_nobody_reads(sandbox: Sandbox) -> None:
    tests = IOTests(("x" * 3_000_000,), ("ok",))
    assert judged(sandbox, "print('ok')", tests).verdict == "passed"


def test_what_is_expected_may_be_written_whatever_the_limit(sandbox: Sandbox) -> None:
    expected = "1234567\n" * 40_000
    tests = IOTests(("40000",), (expected,))
    assert len(expected) > sandbox.limits.output
    assert judged(sandbox, "for _ in range(int(input())): print(1234567)", tests).verdict == "passed"
    assert judged(sandbox, "for _ in range(10**9): print(1234567)", tests).verdict == "output"


def test_limits_of_a_problem_bind(sandbox: Sandbox) -> None:
    slow = replace(SUMS, seconds=0.15)
    assert judged(sandbox, "while True: pass", slow, wall=600).verdict == "timeout"
    large = replace(SUMS, memory=1 << 29)
    hungry = "x = bytearray(300 << 20)\n" + RIGHT
    assert judged(sandbox, hungry, large).verdict == "passed"
    assert judged(sandbox, hungry, replace(SUMS, memory=1 << 28)).verdict == "memory"


def test_all_tests_are_not_waited_for(sandbox: Sandbox) -> None:
    tests = IOTests(("",) * 7, ("1",) * 7, seconds=0.05)
    verdicts = [case.verdict for case in judged(sandbox, "import time\ntime.sleep(100)", tests).cases]
    assert verdicts == ["timeout"] * 4 + ["unreached"] * 3


# -- as verifiers ----------------------------------------------------------------------------------


def answered(program: str, **public: Any) -> Sequence:
    prompt = Prompt("sum", text="Add two numbers.", public=public)
    return Sequence.of(prompt).extend(f"```python\n{program}\n```\n", finish="eos")


def test_public_and_hidden_tests_of_this_kind(sandbox: Sandbox) -> None:
    wrong = answered("print(3)", **SUMS.data)
    (score,) = asyncio.run(PublicTests(sandbox).score([wrong], scope=Scope.root("sum")))
    assert (score.value, score.verdict) == (0.5, "failed")
    assert score.feedback == ("1 of 2 tests pass.\n\nFailing test: with the input\n3 4\nExpected: 7\nGot: 3")
    hidden = HiddenTests(sandbox, {"sum": SUMS})
    values = [s.value for s in asyncio.run(hidden.grade([wrong, answered(RIGHT)]))]
    assert values == [0.0, 1.0]
    (score,) = asyncio.run(PublicTests(sandbox).score([answered("x", io=[1])], scope=Scope.root("sum")))
    assert (score.value, score.verdict) == (None, "untested")


@pytest.mark.parametrize(
    "program", ["import numpy as np\nprint(np.sum([1, 2]))", "def f():\n import sympy.core\nf()"]
)
def test_a_package_that_is_missing_is_no_fault(sandbox: Sandbox, program: str) -> None:
    report = judged(sandbox, program)
    assert report.verdict == "unavailable" and report.ungraded and report.share is None
    (score,) = asyncio.run(HiddenTests(sandbox, {"sum": SUMS}).grade([answered(program)]))
    assert (score.value, score.verdict) == (None, "ungraded")


def test_a_module_that_nobody_has_is_a_fault(sandbox: Sandbox) -> None:
    assert judged(sandbox, "import of_its_own_invention").verdict == "raised"


def test_programs_that_write_the_same_agree(sandbox: Sandbox) -> None:
    """MBR-exec over standard input; CodeT's tests call functions, and are refused."""
    programs = [RIGHT, "a, b = map(int, input().split())\nprint(a + b, '')", "print(3)", "print(3 / 0)"]
    answers = [answered(program, **SUMS.data) for program in programs]

    async def outputs() -> list[tuple[str | None, ...] | None]:
        return await ProgramOutputs(sandbox)(answers, Scope.root("sum"))

    first, second, third, fourth = asyncio.run(outputs())
    assert first == second != third and fourth == (None, None)
    assert first is not None and third is not None and first[0] == third[0] is not None
    writer = FunctionGenerator(lambda prefix, seed, index: "assert f(1) == 1", name="tests")
    with pytest.raises(DataError, match="read standard input"):
        asyncio.run(DualAgreement(sandbox, writer).score(answers, scope=Scope.root("sum")))
