"""Problems from JSONL files, and every way in which such a file can be wrong."""

import asyncio
import json
from pathlib import Path

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.jsonl import JsonlTask
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule

ROWS: list[dict[str, object]] = [
    {"id": "a", "question": "Two and two?", "answer": "4", "level": 1},
    {"id": "b", "question": "Half of three?", "answer": 1.5, "level": 2},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sums.jsonl"


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_problems_in_the_order_of_the_file(path: Path) -> None:
    task = JsonlTask(written(path, ROWS[0], "", ROWS[1]), prompt="Q: {question}\nA:")
    first, second = task.problems()
    assert (first.id, first.prompt.text, first.reference, first.level) == ("a", "Q: Two and two?\nA:", "4", 1)
    assert (second.id, second.reference, second.level) == ("b", "1.5", 2)
    assert task.name == "sums"
    assert list(JsonlTask(path, limit=1).problems()) == list(JsonlTask(path).problems())[:1]


def test_grading_is_by_value(path: Path) -> None:
    task = JsonlTask(written(path, *ROWS))
    _, half = task.problems()
    texts = ["A:3/2", "A: $1.50.", "A:150%", "A:2", "it is 1.5", "A:one"]
    sequences = [Sequence(half.prompt, text, finish="eos") for text in texts]
    assert asyncio.run(task.grade(half, sequences)) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_fields_and_references_of_other_data_sets(path: Path) -> None:
    row = {"name": 7, "problem": "How many?", "solution": "2 + 2 = 4 eggs\n#### 1,004", "grade": 3}
    fields = {"id": "name", "question": "problem", "answer": "solution", "level": "grade"}
    task = JsonlTask(written(path, row), fields=fields, reference=r"^#### (.*)$", pattern=r"answer is (\S+)")
    (problem,) = task.problems()
    assert (problem.id, problem.reference, problem.level) == ("7", "1,004", 3)
    right = Sequence(problem.prompt, "So the answer is 1004.", finish="eos")
    assert asyncio.run(task.grade(problem, [right])) == [1.0]


def test_a_reference_that_its_pattern_does_not_fit_is_an_error(path: Path) -> None:
    row = {"id": "a", "question": "How many?", "answer": "2 + 2 = 4 eggs, so 4"}
    with pytest.raises(DataError, match=r"does not match the answer '2 \+ 2 = 4 eggs, so 4'"):
        list(JsonlTask(written(path, row), reference=r"^#### (.*)$").problems())


def test_another_answer_rule(path: Path) -> None:
    rule: AnswerRule = FunctionRule(lambda text: text[-1:], lambda answer: answer.upper() if answer else None)
    task = JsonlTask(written(path, {"id": "a", "question": "?", "answer": "c"}), answer=rule)
    (problem,) = task.problems()
    assert asyncio.run(task.grade(problem, [Sequence(problem.prompt, "it is C", finish="eos")])) == [1.0]


def test_a_task_can_be_made_inside_an_event_loop(path: Path) -> None:
    written(path, *ROWS)

    async def make() -> int:
        return len(list(JsonlTask(path).problems()))

    assert asyncio.run(make()) == 2


A = ROWS[0]
FAULTS = [
    ({**A, "id": "b"} | {"answer": "four"}, "2: the reference 'four' cannot be read; mend it, or say where "
     "in the field it stands"),
    (A, "2: id 'a' is that of 1 too; ids must be unique"),
    ({"id": "b", "qestion": "?", "answer": "1"}, "2: there is no field 'question', did you mean 'qestion'?; "
     "map it with fields={'question': …}"),
    ({"id": "b", "question": "?", "gold": "1"}, "2: there is no field 'answer', it has id, question, gold; "
     "map it with fields={'answer': …}"),
    ({"id": "b", "question": " ", "answer": "1"}, "2: the question is empty; give it a text or remove"),
    ({"id": "b", "question": "?", "answer": ["1"]}, "2: the answer is ['1']; expected a text or a number"),
    ({"id": None, "question": "?", "answer": "1"}, "2: the id is None; expected a text or a number"),
    ("[1]", "2: holds a list; expected one object a line"),
    ("{", "2: not JSON ("),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), FAULTS)
def test_a_faulty_line_is_named(path: Path, row: object, message: str) -> None:
    with pytest.raises(DataError) as error:
        JsonlTask(written(path, A, row))
    head, line = str(error.value).splitlines()
    assert head == f"{str(path)!r} has faulty problems:"
    assert line.startswith(f"{path}:{message}")


def test_all_faulty_lines_come_at_once(path: Path) -> None:
    with pytest.raises(DataError) as error:
        JsonlTask(written(path, A, *(row for row, _ in FAULTS)))
    lines = str(error.value).splitlines()[1:]
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in lines] == [str(n) for n in range(2, 11)]


def test_a_long_list_of_faults_is_cut_short(path: Path) -> None:
    with pytest.raises(DataError) as error:
        JsonlTask(written(path, *["{"] * 14))
    assert len(str(error.value).splitlines()) == 12
    assert str(error.value).endswith("… and 4 more")


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_data_set(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"sums.jsonl' holds no problems; expected one JSON object a line"):
        JsonlTask(path)


def test_a_file_that_cannot_be_read(path: Path) -> None:
    with pytest.raises(
        DataError, match=r"cannot read '.*sums.jsonl': No such file or directory; give the path"
    ):
        JsonlTask(path)
    path.write_bytes(b'{"id": "caf\xe9"}\n')
    with pytest.raises(DataError, match=r"sums.jsonl' is not UTF-8"):
        JsonlTask(path)


def test_a_level_that_is_mapped_must_be_a_number(path: Path) -> None:
    row = {**A, "level": "Level 5"}
    (problem,) = JsonlTask(written(path, row)).problems()
    assert problem.level is None
    with pytest.raises(
        DataError, match=r":1: level is 'Level 5'; expected an integer from 0 to 2,147,483,647"
    ):
        JsonlTask(path, fields={"level": "level"})


@pytest.mark.parametrize(
    ("level", "read"),
    [
        (3, 3), (3.0, 3), (" 3 ", 3), (None, None), (float("nan"), None), (2.5, "fault"), (True, "fault"),
        (-1, "fault"), (2**31, "fault"), (1e300, "fault"),
    ],
)  # fmt: skip
def test_a_level_as_tables_write_it(path: Path, level: object, read: object) -> None:
    written(path, {**A, "level": level})
    if read == "fault":
        with pytest.raises(DataError, match=r"expected an integer from 0 to .* as level, or null"):
            JsonlTask(path, fields={"level": "level"})
    else:
        (problem,) = JsonlTask(path, fields={"level": "level"}).problems()
        assert problem.level == read
        (problem,) = JsonlTask(path).problems()
        assert problem.level == read


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": {"answr": "gold"}}, "'answr' is none of id, question, answer, level"),
        ({"prompt": "question"}, "prompt='question': expected a text with {question} in it"),
        ({"pattern": "A:("}, r"pattern='A:\(' is not a regular expression"),
        ({"pattern": "A:.*"}, r"pattern='A:\.\*' has 0 groups; expected one, around the answer"),
        ({"reference": "("}, r"reference='\(' is not a regular expression"),
        ({"limit": 0}, "limit=0: expected a number of problems"),
    ],
)
def test_arguments_are_checked(path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        JsonlTask(written(path, *ROWS), **arguments)  # type: ignore[arg-type]
