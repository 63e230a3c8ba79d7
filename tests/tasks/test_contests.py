"""Records of LiveCodeBench, APPS and CodeContests, in the shapes that are published; their tests run for real."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.tasks.apps import APPSTask
from metagen.tasks.base import Problem, Task
from metagen.tasks.code_contests import CodeContestsTask
from metagen.tasks.cruxeval import CRUXEvalTask
from metagen.tasks.livecodebench import LiveCodeBenchTask, unpack
from metagen.verifiers.code.codet import DualAgreement
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.outputs import ProgramOutputs
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.code.tested import read_tests


@pytest.fixture(scope="module", autouse=True)
def _sandbox() -> None:
    try:
        Sandbox()
    except IsolationError as error:
        pytest.skip(str(error))


def written(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def graded(task: Task, problem: Problem, *programs: str) -> list[float]:
    answers = [Sequence.of(problem.prompt).extend(f"```python\n{p}\n```", finish="eos") for p in programs]
    return asyncio.run(task.grade(problem, answers))


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def case(given: str, expected: str, kind: str = "stdin") -> dict[str, str]:
    return {"input": given, "output": expected, "testtype": kind}


SUM = {
    "question_title": "Sum", "question_content": "Print the sum of the numbers.", "platform": "atcoder",
    "question_id": "abc_a", "contest_id": "abc", "contest_date": "2024-08-01T00:00:00", "starter_code": "",
    "difficulty": "easy", "metadata": "{}",
    "public_test_cases": json.dumps([case("1 2\n", "3\n")]),
    "private_test_cases": packed(json.dumps([case("5 6\n", "11\n"), case("0.5 0.25", "0.75")])),
}  # fmt: skip
TWO = SUM | {
    "question_id": "two-sum", "contest_date": "2024-09-01", "difficulty": "medium",
    "starter_code": "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        ",
    "metadata": json.dumps({"func_name": "twoSum"}),
    "public_test_cases": json.dumps([case("[2, 7, 11]\n9", "[0, 1]", "functional")]),
    "private_test_cases": json.dumps([case("[3, 3]\n6", "[0, 1]", "functional")]),
}  # fmt: skip
READER = "import sys\nprint(sum(map(float, sys.stdin.read().split())))"
SOLUTION = """class Solution:
    def twoSum(self, nums: List[int], target: int) -> List[int]:
        for i, j in combinations(range(len(nums)), 2):
            if nums[i] + nums[j] == target:
                return (i, j)
"""


def test_livecodebench_by_standard_input(tmp_path: Path) -> None:
    task = LiveCodeBenchTask(written(tmp_path, SUM))
    (problem,) = task.problems()
    assert (problem.id, problem.level) == ("abc_a", 1)
    assert "sum of the numbers" in problem.prompt.messages[0].content
    shown, hidden = read_tests(problem.prompt.public), read_tests(task.hidden_tests()["abc_a"])
    assert shown is not None and hidden is not None
    assert (len(shown.inputs), len(hidden.inputs), hidden.seconds) == (1, 3, 6.0)  # type: ignore[union-attr]
    future = "from __future__ import annotations\n" + READER
    assert graded(task, problem, READER, future, "print(3)", "") == [1.0, 1.0, 0.0, 0.0]
    # What contests give without an import, an early end, and a main.
    for program in (
        "print(fsum(map(float, input().split())))\nexit()",
        "def main():\n    print(sum(Decimal(x) for x in input().split()))\nfrom decimal import Decimal\n"
        "if __name__ == '__main__':\n    main()",
    ):
        assert graded(task, problem, program) == [1.0]


def test_livecodebench_by_functions(tmp_path: Path) -> None:
    task = LiveCodeBenchTask(written(tmp_path, TWO), memory=1 << 30)
    (problem,) = task.problems()
    for tests in (read_tests(problem.prompt.public), read_tests(task.hidden_tests()["two-sum"])):
        assert tests is not None and (tests.seconds, tests.memory) == (6.0, 1 << 30)
    assert "class Solution" in problem.prompt.messages[0].content and problem.level == 2
    alone = "def twoSum(nums, target):\n    return [0, 1]"
    wrong = SOLUTION.replace("(i, j)", "[j, i]")
    anything = "class A:\n    def __eq__(self, o): return True\nclass Solution:\n    def twoSum(self, *a): return A()"
    assert graded(task, problem, SOLUTION, alone, wrong) == [1.0, 1.0, 0.0]
    assert math.isnan(graded(task, problem, anything)[0])


def test_a_tuple_within_a_result_is_no_list_to_livecodebench(tmp_path: Path) -> None:
    tests = json.dumps([case("1", "[[1, 2]]", "functional")])
    record = TWO | {"public_test_cases": "[]", "private_test_cases": tests}
    task = LiveCodeBenchTask(written(tmp_path, record))
    (problem,) = task.problems()
    programs = [f"def twoSum(x): return {result}" for result in ("[[1, 2]]", "([1, 2],)", "[(1, 2)]")]
    assert graded(task, problem, *programs) == [1.0, 1.0, 0.0]
    within = CALLED | {"input_output": json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [[[1, 2]]]})}
    apps = APPSTask(written(tmp_path, within))
    (problem,) = apps.problems()
    assert graded(apps, problem, "def f(x): return ((1, 2),)") == [1.0]


@pytest.mark.parametrize(
    "name", ["answer", "lists", "target", "args", "value", "sum", "filter", "list", "type", "isinstance"]
)
def test_functions_may_have_any_name(tmp_path: Path, name: str) -> None:
    tests = json.dumps({"fn_name": name, "inputs": [[[1, 2]]], "outputs": [3]})
    task = APPSTask(written(tmp_path, CALLED | {"input_output": tests}))
    (problem,) = task.problems()
    alone = f"def {name}(x): return x[0] + x[1]"
    within = f"class Solution:\n    def {name}(self, x): return x[0] + x[1]"
    assert graded(task, problem, alone, within, f"def {name}(x): return 4") == [1.0, 1.0, 0.0]


def test_integers_of_many_digits(tmp_path: Path) -> None:
    """Longer than Python reads and writes, unless it is told to."""
    digits = "7" * 9131
    tests = f'{{"fn_name": "count", "inputs": [[{digits}]], "outputs": [-{digits}]}}'
    task = APPSTask(written(tmp_path, CALLED | {"input_output": tests}))
    (problem,) = task.problems()
    assert graded(task, problem, "def count(n): return -n", "def count(n): return 1 - n") == [1.0, 0.0]
    reading = LiveCodeBenchTask(
        written(tmp_path, SUM | {"private_test_cases": json.dumps([case("1", digits)])})
    )
    (problem,) = reading.problems()
    wide = 'n = input()\nprint(3 if " " in n else 7 * (10 ** 9131 - 1) // 9)'
    assert graded(reading, problem, wide, wide.replace("- 1", "- 2")) == [1.0, 0.0]


def test_verifiers_run_functions_as_their_tests_do(tmp_path: Path) -> None:
    """MBR-exec and CodeT find a function alone, and a method of the class Solution."""
    task = LiveCodeBenchTask(written(tmp_path, TWO))
    (problem,) = task.problems()
    alone = "def twoSum(nums, target): return [0, 1]"
    other, wrong = SOLUTION.replace("(i, j)", "[i, j]"), SOLUTION.replace("(i, j)", "[j, i]")
    program = "```python\n{}\n```".format
    answers = [Sequence.of(problem.prompt).extend(program(p), finish="eos") for p in (other, alone, wrong)]
    outputs = ProgramOutputs(Sandbox(), program=task.program)
    same, as_well, unlike = asyncio.run(outputs(answers, Scope.root("two-sum")))
    assert same == as_well != unlike and same is not None and unlike is not None
    assert None not in same + unlike and len(same) == 1

    written_test = "assert Solution().twoSum([2, 7, 11], 9) == [0, 1]"
    writer = FunctionGenerator(lambda prefix, seed, index: written_test, name="tests")
    codet = DualAgreement(Sandbox(), writer, n=1, program=task.program)
    scores = asyncio.run(codet.score([answers[0], answers[2]], scope=Scope.root("two-sum")))
    assert [score.value for score in scores] == [0.5, 0.0]


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    own = {"system": "Be brief.", "user": "{question}\n{starter}"}
    reading, called = LiveCodeBenchTask(written(tmp_path, SUM, TWO), prompt=own, form="auto").problems()
    assert [m.content for m in reading.prompt.messages] == ["Be brief.", "Print the sum of the numbers.\n"]
    assert "def twoSum" in called.prompt.messages[1].content and called.prompt.form == "auto"
    with pytest.raises(InputError, match="few_shot"):
        LiveCodeBenchTask(written(tmp_path, SUM), form="few_shot")
    with pytest.raises(InputError, match=r"nothing fills \{other\}"):
        LiveCodeBenchTask(written(tmp_path, SUM), prompt="{question} {other}")


def test_livecodebench_in_a_window_of_dates(tmp_path: Path) -> None:
    path = written(tmp_path, SUM, TWO)
    assert [p.id for p in LiveCodeBenchTask(path, since="2024-08-02").problems()] == ["two-sum"]
    assert [p.id for p in LiveCodeBenchTask(path, until="2024-08-01").problems()] == ["abc_a"]
    with pytest.raises(InputError, match="since='August': expected a date"):
        LiveCodeBenchTask(path, since="August")
    with pytest.raises(DataError, match="holds no problems"):
        LiveCodeBenchTask(path, since="2030-01-01")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("/tmp/metagen-was-unpickled", "w"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (packed(Bomb()), "a pickle of more than one text, which is not opened; give the tests as JSON"),
        (packed(["[]"]), "more than one text"),
        (packed(b"[]"), "more than one text"),
        ("not base 64!", "neither JSON nor tests as they are published"),
        (base64.b64encode(b"not compressed").decode(), "neither JSON"),
        (base64.b64encode(zlib.compress(b"no pickle")).decode(), "neither JSON"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-6]).decode(), "neither JSON"),
    ],
)
def test_nothing_is_unpickled(tmp_path: Path, value: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        LiveCodeBenchTask(written(tmp_path, SUM | {"private_test_cases": value}))
    assert not Path("/tmp/metagen-was-unpickled").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_texts_of_all_protocols_are_read(protocol: int) -> None:
    for text in ('[{"input": "1"}]', "é" * 300, "x" * 70_000):
        given = base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()
        assert unpack(given, "tests") == text


APPS = {
    "problem_id": 7, "question": "Print the two numbers, larger first.", "solutions": "[]", "starter_code": "",
    "difficulty": "interview", "url": "https://example.org",
    "input_output": json.dumps({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["2 1\n", ["4", "3"]]}),
}  # fmt: skip
CALLED = APPS | {
    "problem_id": 8, "difficulty": "introductory", "starter_code": "def count(words):\n\t",
    "input_output": json.dumps(
        {"fn_name": "count", "inputs": [[{"1": 2}], [["a", "b"]]], "outputs": [[{"1": 2}], [2]]}
    ),
}  # fmt: skip


def test_apps(tmp_path: Path) -> None:
    task = APPSTask(written(tmp_path, APPS, CALLED))
    reading, called = task.problems()
    assert [(p.id, p.level) for p in (reading, called)] == [("apps/7", 2), ("apps/8", 1)]
    right = "import sys\nprint(*sorted(map(int, sys.stdin.read().split()), reverse=True))"
    lines = right.replace("print(*", "print(*").replace("reverse=True)", "reverse=True), sep=chr(10)")
    assert graded(task, reading, right, lines, "print(2, 1)") == [1.0, 1.0, 0.0]
    count = "def count(words):\n    return words if 1 in words else len(words)"
    assert graded(task, called, count, "def count(words): return 2") == [1.0, 0.0]
    assert "def count(words)" in called.prompt.messages[0].content
    assert read_tests(reading.prompt.public) is None


CONTEST = {
    "name": "1_A. Halves", "description": "Print half of the number, then YES.",
    "public_tests": {"input": ["1\n"], "output": ["0.5\nYES\n"]},
    "private_tests": {"input": ["4\n"], "output": ["2.0 yes"]},
    "generated_tests": {"input": ["10\n"], "output": ["5.0 yes"]},
    "time_limit": {"seconds": 2, "nanos": 500000000}, "memory_limit_bytes": 256000000,
    "input_file": "", "output_file": "", "difficulty": 7, "source": 2,
}  # fmt: skip


def test_code_contests(tmp_path: Path) -> None:
    task = CodeContestsTask(written(tmp_path, CONTEST))
    (problem,) = task.problems()
    tests: Any = read_tests(task.hidden_tests()["1_A. Halves"])
    assert (len(tests.inputs), tests.seconds, tests.memory) == (3, 2.5, 256_000_000)
    assert graded(task, problem, "print(int(input()) / 2)\nprint('Yes')", "print(0.5, 'YES')") == [1.0, 0.0]
    few = CodeContestsTask(written(tmp_path, CONTEST), generated=False, seconds=9)
    tests = read_tests(few.hidden_tests()["1_A. Halves"])
    assert (len(tests.inputs), tests.seconds) == (2, 9)


def test_code_contests_as_pairs_and_in_parquet(tmp_path: Path) -> None:
    pairs = CONTEST | {
        "public_tests": [{"input": "1", "output": "0.5 yes"}],
        "generated_tests": None,
        "time_limit": None,
    }
    (problem,) = CodeContestsTask(written(tmp_path, pairs)).problems()
    assert len(json.loads(problem.reference)["io"]["inputs"]) == 2
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist([CONTEST]), tmp_path / "valid.parquet")
    (same,) = CodeContestsTask(tmp_path / "valid.parquet").problems()
    assert len(json.loads(same.reference)["io"]["inputs"]) == 3


@pytest.mark.parametrize(
    ("task", "record", "words"),
    [
        (
            LiveCodeBenchTask,
            SUM | {"private_test_cases": "[]", "public_test_cases": "[]"},
            "there are no tests",
        ),
        (LiveCodeBenchTask, SUM | {"private_test_cases": "[1]"}, "a list of tests with input"),
        (LiveCodeBenchTask, SUM | {"metadata": "{"}, "metadata is no JSON"),
        (LiveCodeBenchTask, TWO | {"metadata": "{}"}, "no func_name"),
        (LiveCodeBenchTask, TWO | {"metadata": '{"func_name": "a b"}'}, "the function to test is 'a b'"),
        (LiveCodeBenchTask, SUM | {"private_test_cases": '[{"input": 1, "output": "2"}]'}, "an input is 1"),
        (APPSTask, APPS | {"input_output": ""}, "input_output is no JSON"),
        (APPSTask, APPS | {"input_output": "{}"}, "expected inputs and outputs"),
        (APPSTask, APPS | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs and 0 outputs"),
        (APPSTask, APPS | {"input_output": '{"inputs": [], "outputs": []}'}, "there are no tests"),
        (CodeContestsTask, CONTEST | {"input_file": "in.txt"}, "read or write files"),
        (CodeContestsTask, CONTEST | {"public_tests": {"input": ["1"]}}, "expected lists input and output"),
        (CodeContestsTask, CONTEST | {"private_tests": 5}, "private_tests is 5"),
    ],
)
def test_faulty_records_are_errors(tmp_path: Path, task: Any, record: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        task(written(tmp_path, record))


def test_an_input_whose_output_cannot_cross_is_ungraded(tmp_path: Path) -> None:
    """CRUXEval runs other arguments than its own: what f returns for them may be an object."""
    record = {
        "id": "s",
        "code": "class A: pass\ndef f(x): return A() if x > 1 else x",
        "input": "1",
        "output": "1",
    }
    task = CRUXEvalTask(written(tmp_path, record), mode="input")
    (problem,) = task.problems()
    answers = [
        Sequence.of(problem.prompt).extend(f"Answer: f({x})", finish="eos") for x in ("1", "True", "0", "2")
    ]
    right, other, wrong, unknown = asyncio.run(task.grade(problem, answers))
    assert (right, other, wrong) == (1.0, 1.0, 0.0) and math.isnan(unknown)


def test_arguments_that_are_no_call_are_wrong_alone(tmp_path: Path) -> None:
    """Parsed by Python, and not compiled; or a call whose comment would hide what is expected of it."""
    record = {"id": "s", "code": "def f(a): return a", "input": "1", "output": "1"}
    task = CRUXEvalTask(written(tmp_path, record), mode="input")
    (problem,) = task.problems()
    texts = ("f(a=1, a=2)", "f(__debug__=1)", "f(2) # as f returns 2", "f(a=1)", "f(1) # as f returns 1")
    answers = [Sequence.of(problem.prompt).extend(f"Answer: {text}", finish="eos") for text in texts]
    assert asyncio.run(task.grade(problem, answers)) == [0.0, 0.0, 0.0, 1.0, 1.0]
