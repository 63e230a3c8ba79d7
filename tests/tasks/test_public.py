"""Loaders of public data sets: on excerpts, and on all problems where the data lie beside the checkout."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.aime import AIMETask
from metagen.tasks.base import Problem, Task
from metagen.tasks.bbh.task import BBHTask
from metagen.tasks.cruxeval import PATTERN, CRUXEvalTask, sandbox_grader
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.humaneval import HumanEvalTask
from metagen.tasks.lighteval import LightevalTask
from metagen.tasks.math_dataset import MathTask, last_box
from metagen.tasks.mbpp import MBPPTask
from metagen.tasks.reasoning_gym import ReasoningGymTask
from metagen.tasks.records import Hub
from metagen.template import escape
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule
from metagen.verifiers.literal import LiteralRule
from metagen.verifiers.numbers import NumberRule

EXCERPTS = Path(__file__).parent / "public"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "problems"
Loader = Callable[..., Task]
FILES: list[tuple[Loader, str, int]] = [
    (GSM8KTask, "gsm8k_test.jsonl", 1319),
    (MathTask, "math500.jsonl", 500),
    (HumanEvalTask, "humaneval.jsonl", 164),
    (MBPPTask, "mbpp.jsonl", 974),
    (CRUXEvalTask, "cruxeval.jsonl", 800),
]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def solution(task: Task, row: dict[str, Any], few_shot: bool = False) -> str:
    """The data set's own solution, as a model of either kind would write it."""
    match task:
        case HumanEvalTask():
            whole = row["prompt"] + row["canonical_solution"]
            return f"{row['canonical_solution']}\nprint('done')\n" if few_shot else f"```python\n{whole}\n```"
        case MBPPTask():
            return (
                f"{row['code']}\n```\n\nTask: another" if few_shot else f"So:\n```python\n{row['code']}\n```"
            )
        case CRUXEvalTask():
            said = row["output"] if task.mode == "output" else f"f({row['input']})"
            return f"Step by step.\nAnswer: {said}" + ("\n\n```python\nx\n```\nAnswer: 0" if few_shot else "")
    return row["solution"] + ("\n\nQuestion: more?\nAnswer: 7\n\nProblem:\n\\boxed{7}" if few_shot else "")


def graded(task: Task, problem: Problem, *texts: str) -> list[float]:
    return asyncio.run(task.grade(problem, [Sequence(problem.prompt, t, finish="eos") for t in texts]))


# -- all loaders ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize("form", ["chat", "few_shot"])
@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_the_data_sets_own_solutions_are_right_and_those_of_others_are_not(
    loader: Loader, file: str, count: int, form: str
) -> None:
    task, records = loader(EXCERPTS / file, form=form), rows(EXCERPTS / file)
    problems = list(task.problems())
    assert len(problems) == len(records)
    for problem, row, other in zip(problems, records, records[1:] + records[:1], strict=True):
        right, wrong = (solution(task, r, form == "few_shot") for r in (row, other))
        assert graded(task, problem, right, wrong, "I do not know.", "") == [1, 0, 0, 0], problem.id


@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_all_problems_can_be_read(loader: Loader, file: str, count: int) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"there are no data at {SHARED}")
    problems = list(loader(SHARED / file).problems())
    assert len({problem.id for problem in problems}) == count
    assert list(loader(SHARED / file, limit=3).problems()) == problems[:3]


@pytest.mark.parametrize(("loader", "file"), [(GSM8KTask, "gsm8k_test.jsonl"), (MathTask, "math500.jsonl"),
                                              (CRUXEvalTask, "cruxeval.jsonl")])  # fmt: skip
def test_all_solutions_are_right(loader: Loader, file: str) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"there are no data at {SHARED}")
    task = loader(SHARED / file)

    async def wrong() -> list[str]:
        pairs = zip(task.problems(), rows(SHARED / file), strict=True)
        return [
            problem.id
            for problem, row in pairs
            if await task.grade(problem, [Sequence(problem.prompt, solution(task, row), finish="eos")]) != [1]
        ]

    assert asyncio.run(wrong()) == []


@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_prompts_show_no_reference(loader: Loader, file: str, count: int) -> None:
    for form in ("chat", "few_shot"):
        task = loader(EXCERPTS / file, form=form)
        for problem, row in zip(task.problems(), rows(EXCERPTS / file), strict=True):
            assert (problem.prompt.text is None) == (form == "chat")
            shown = problem.prompt.text or problem.prompt.messages[0].content
            stops = getattr(task, "stop", ())
            assert all(stop in shown for stop in stops)
            assert bool(stops) == (form == "few_shot" and loader is not HumanEvalTask)
            asked = str(row.get("question") or row.get("prompt") or row.get("text") or row.get("code"))
            assert asked.strip() in shown
            hidden = row.get("solution") or row.get("canonical_solution") or row.get("code", "")
            assert loader is CRUXEvalTask or hidden.strip() not in shown + json.dumps(problem.prompt.public)
            json.dumps(problem.prompt.public)


@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_options_are_checked(loader: Loader, file: str, count: int) -> None:
    with pytest.raises(InputError, match=r"form=.texts.: expected one of chat, text, auto, few_shot"):
        loader(EXCERPTS / file, form="texts")
    with pytest.raises(InputError, match=r"limit=0"):
        loader(EXCERPTS / file, limit=0)
    if loader is not HumanEvalTask:
        with pytest.raises(InputError, match=r"shots: an example has no '"):
            loader(EXCERPTS / file, form="few_shot", shots=[{"solution": "x"}])
        with pytest.raises(
            InputError,
            match=r"shots are the examples of form='few_shot' and 'few_shot_chat', and form='chat'",
        ):
            loader(EXCERPTS / file, shots=[{"solution": "x"}])
    with pytest.raises(InputError, match=r"form='few_shot' has a wording of its own"):
        loader(EXCERPTS / file, form="few_shot", prompt="{question}")
    with pytest.raises(InputError, match=r"expected a text with \{question\}.* did you mean 'question'"):
        loader(EXCERPTS / file, prompt="{qestion}")
    with pytest.raises(InputError, match=r"nothing fills \{hint\}; expected .* write \{\{hint\}\}"):
        loader(EXCERPTS / file, prompt={"system": "{hint}", "user": "{question}"})


@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_a_prompt_of_ones_own_holds_the_question_in_turns(loader: Loader, file: str, count: int) -> None:
    """Every task: what was asked stands in the user's turn, and neither the id nor the reference changes."""
    turns = {
        "system": "Be brief.",
        "shots": [{"user": "1 + 1?", "assistant": "{2}"}],
        "user": "{question}\nNow.",
        "assistant": "Well,",
    }
    usual = list(loader(EXCERPTS / file).problems())
    for form in ("chat", "auto", "text"):
        for problem, plain in zip(
            loader(EXCERPTS / file, prompt=turns, form=form).problems(), usual, strict=True
        ):
            system, user, assistant, asked, begun = problem.prompt.messages
            assert (system.content, user.content, assistant.content) == ("Be brief.", "1 + 1?", "{2}")
            assert (begun.role, begun.content) == ("assistant", "Well,")
            question = asked.content.removesuffix("\nNow.")
            assert question in plain.prompt.messages[0].content and len(question) > 20
            assert problem.prompt.form == (None if form == "chat" else form)
            assert (problem.id, problem.reference) == (plain.id, plain.reference)
            assert problem.prompt.public == plain.prompt.public
    (text, *_) = loader(EXCERPTS / file, form="text").problems()
    assert (text.prompt.text, text.prompt.form) == (usual[0].prompt.messages[0].content, "text")


@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize(("loader", "file", "count"), FILES)
def test_a_begun_turn_is_a_part_of_the_answer(loader: Loader, file: str, count: int) -> None:
    """The model writes the rest of the turn; the answer is read as if it had written all of it."""
    record, *_ = rows(EXCERPTS / file)
    for form in ("chat", "text"):
        whole = solution(loader(EXCERPTS / file), record)
        turns = {"user": "{question}", "assistant": escape(whole[:-4])}
        task = loader(EXCERPTS / file, prompt=turns, form=form)
        problem = next(iter(task.problems()))
        assert graded(task, problem, whole[-4:]) == [1]
        usual = loader(EXCERPTS / file)
        # Of the number that ends a solution of GSM8K those four characters hold all.
        assert graded(usual, next(iter(usual.problems())), whole[-4:]) == [float(loader is GSM8KTask)]


# -- mathematics ------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*records: dict[str, Any]) -> Path:
        path = tmp_path / "data.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return path

    return write


def test_gsm8k_as_published(written: Callable[..., Path]) -> None:
    record = {"question": "How many?", "answer": "2 + 2 = <<2+2=4>>4 thousand\n#### 4,000"}
    task = GSM8KTask(written(record, {**record, "question": "And now?"}))
    first, second = task.problems()
    assert (first.id, first.reference, second.id) == ("gsm8k/0", "4,000", "gsm8k/1")
    right = ["so \\boxed{4000}", "The answer is $4,000.", "it makes 4000", "#### 4000.00"]
    assert graded(task, first, *right, "The answer is 4.", "4,000 … no, \\boxed{400}") == [1] * 4 + [0, 0]


def test_gsm8k_keeps_an_id_that_is_zero(written: Callable[..., Path]) -> None:
    rows = [{"id": 0, "question": "?", "answer": "4"}, {"question": "?", "answer": "4"}]
    assert [p.id for p in GSM8KTask(written(*rows)).problems()] == ["0", "gsm8k/1"]


def test_an_answer_rule_and_examples_of_ones_own(written: Callable[..., Path]) -> None:
    path = written({"question": "How many?", "answer": "4"})
    rule: AnswerRule = NumberRule(r"= (\S+)")
    shots = [{"question": "1 + 1?", "solution": " = 2"}]
    task = GSM8KTask(path, form="few_shot", answer=rule, shots=shots)
    (problem,) = task.problems()
    assert problem.prompt.text == "Question: 1 + 1?\nAnswer: = 2\n\nQuestion: How many?\nAnswer:"
    assert graded(task, problem, " = 4", " = 5", " = 4\n\nQuestion: and?\nAnswer: = 5") == [1, 0, 1]
    assert task.answer.fingerprint not in (
        rule.fingerprint,
        GSM8KTask(path, form="few_shot").answer.fingerprint,
    )


def test_math_as_published(written: Callable[..., Path]) -> None:
    old = {"problem": "Half?", "level": "Level 3", "type": "Algebra", "solution": r"So \boxed{\frac{1}{2}}."}
    new = {"problem": "Two?", "level": 5, "unique_id": "test/a.json", "answer": "2", "solution": "?"}
    unknown = {"problem": "Three?", "level": "Level ?", "solution": r"$\boxed 3$"}
    task = MathTask(written(old, new, unknown))
    problems = list(task.problems())
    assert [(p.id, p.reference, p.level) for p in problems] == [
        ("math/0", r"\frac{1}{2}", 3), ("test/a.json", "2", 5), ("math/2", "3", None),
    ]  # fmt: skip
    assert graded(task, problems[0], r"\boxed{0.5}", r"\boxed{2}") == [1, 0]


SUBJECTS = ["Algebra", "Counting & Probability", "Geometry", "Algebra", None]
LEVELS = ["Level 1", 2, "3", 5, "Level ?"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, [0, 1, 2, 3, 4]), ({"levels": [1, 2]}, [0, 1]), ({"levels": (5, 1)}, [0, 3]),
     ({"subjects": ["algebra"]}, [0, 3]), ({"subjects": ["counting_and_probability", "geometry"]}, [1, 2]),
     ({"levels": [1, 2, 3], "subjects": ["algebra", "geometry"]}, [0, 2]),
     ({"levels": [1, 2, 3, 4, 5], "limit": 2}, [0, 1]), ({"levels": [2, 3], "limit": 1}, [1])],
)  # fmt: skip
def test_math_by_level_and_subject(
    options: dict[str, Any], kept: list[int], written: Callable[..., Path]
) -> None:
    """Ids and the order stay; the limit counts what is left."""
    pairs = list(zip(LEVELS, SUBJECTS, strict=True))
    # Both names of the field: that of MATH-500, and that of the whole data set.
    rows = [
        {"problem": f"{i}?", "answer": "2", "level": level, "type" if i % 2 else "subject": subject}
        for i, (level, subject) in enumerate(pairs)
    ]
    task = MathTask(written(*rows), **options)
    assert [problem.id for problem in task.problems()] == [f"math/{i}" for i in kept]


def test_levels_and_subjects_are_checked(written: Callable[..., Path]) -> None:
    path = written(*({"problem": f"{i}?", "answer": "2", "level": i, "type": "Algebra"} for i in (4, 5)))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"levels": [0]}, r"levels=\[0\]: 0 is none of 1, 2, 3, 4, 5"),
        ({"levels": [1, 1]}, r"levels=\[1, 1\]: 1 is given more than once"),
        ({"levels": []}, r"levels=\[\]: expected at least one"),
        ({"levels": [True]}, r"levels=\[True\]: True is none of"),
        ({"subjects": ["algbra"]}, r"'algbra' is none of prealgebra, algebra, intermediate_algebra"),
    ]
    for options, message in wrong:
        with pytest.raises(InputError, match=message):
            MathTask(path, **options)
    with pytest.raises(
        DataError, match=r"no problem of these levels .* has levels 4, 5 and subjects algebra"
    ):
        MathTask(path, levels=[1, 2])
    with pytest.raises(InputError, match="AIMETask: got an unexpected keyword argument 'levels'"):
        AIMETask(path, levels=[1])  # type: ignore[call-arg]  # no problem of AIME has a level
    path.write_text('{"problem": ')
    with pytest.raises(DataError, match="not JSON"):
        MathTask(path, levels=[1, 2])


def test_all_levels_of_math_500() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"there are no data at {SHARED}")
    counts = [len(list(MathTask(SHARED / "math500.jsonl", levels=[n]).problems())) for n in range(1, 6)]
    assert counts == [43, 90, 105, 128, 134]


@pytest.mark.parametrize(
    ("text", "box"),
    [(r"\boxed{a} then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"), (r"\boxed{a} \boxed{open", "a"), ("none", None),
     (r"\fbox{4}", "4"), (r"\boxed 7", "7"), (r"\boxed", None), (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
     (r"\boxed{\}}", r"\}"), (r"\boxed{1} or \boxed{2}", "2")],
)  # fmt: skip
def test_the_last_box(text: str, box: str | None) -> None:
    assert last_box(text) == box


def test_aime(written: Callable[..., Path]) -> None:
    capitals = {"ID": "2024-I-1", "Problem": "Find it.", "Answer": 25, "Solution": "?"}
    boxed = {"id": 7, "problem": "Find the other.", "solution": r"\boxed{033}"}
    task = AIMETask(written(capitals, boxed, {"question": "And?", "answer": "025"}))
    problems = list(task.problems())
    assert [(p.id, p.reference) for p in problems] == [("2024-I-1", "25"), ("7", "33"), ("aime/2", "25")]
    assert graded(task, problems[0], r"\boxed{025}", r"\boxed{25}", r"\boxed{250}") == [1, 1, 0]
    with pytest.raises(DataError, match=r":1: the answer is '1000'; expected an integer from 0 to 999"):
        AIMETask(written({"problem": "?", "answer": "1000"}))


# -- code ---------------------------------------------------------------------------------------------------------


def test_humaneval_shows_examples_and_hides_tests() -> None:
    first, poly, median = HumanEvalTask(EXCERPTS / "humaneval.jsonl").problems()
    assert first.prompt.public["tests"][0] == "assert has_close_elements([1.0, 2.0, 3.0], 0.5) == False"
    assert first.prompt.public["entry_points"] == ["has_close_elements"]
    assert json.loads(first.reference)["tests"] == ["check(has_close_elements)"]
    # Its helper belongs to every program; its example calls round(), and is left out.
    assert "def poly(xs" in poly.prompt.public["preamble"] and poly.prompt.public["tests"] == []
    assert median.prompt.public["tests"] == [], "of which one example is wrong"


@pytest.mark.usefixtures("isolation")
def test_humaneval_programs_need_not_repeat_the_prompt() -> None:
    task = HumanEvalTask(EXCERPTS / "humaneval.jsonl", limit=1)
    (problem,) = task.problems()
    body = "return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])"
    alone = (
        f"```python\ndef has_close_elements(numbers: List[float], threshold: float) -> bool:\n    {body}\n```"
    )
    assert graded(task, problem, alone, alone.replace("any", "all")) == [1, 0]


def test_mbpp_shows_as_many_tests_as_asked_for() -> None:
    tasks = [MBPPTask(EXCERPTS / "mbpp.jsonl", shown=n, limit=1) for n in (0, 1, 3)]
    shown = [len(next(task.problems()).prompt.public["tests"]) for task in tasks]
    assert shown == [0, 1, 3]
    blind, summing, setup = MBPPTask(EXCERPTS / "mbpp.jsonl", shown=0).problems()
    assert "# of similar_elements" in blind.prompt.messages[0].content and "assert" not in str(blind.prompt)
    assert len(json.loads(blind.reference)["tests"]) == 3
    assert summing.prompt.public["entry_points"] == ["sum"], "which is a builtin as well"
    assert "root = Node(1)" in json.loads(setup.reference)["setup"]
    with pytest.raises(InputError, match=r"shown=-1"):
        MBPPTask(EXCERPTS / "mbpp.jsonl", shown=-1)


def test_mbpp_tests_bring_what_the_solution_imports_and_ask_for_what_it_defines(
    written: Callable[..., Path],
) -> None:
    code = "import sys, re\nimport math\nclass Node: pass\ndef size(x): return sys.getsizeof(x)"
    setup = "root = Node()"
    row = {"task_id": 1, "text": "?", "code": code, "test_setup_code": setup}
    (problem,) = MBPPTask(
        written({**row, "test_list": ["assert size(root) == sys.getsizeof(root)"]})
    ).problems()
    found = json.loads(problem.reference)
    assert found["setup"] == "import sys, re\nroot = Node()"
    assert (found["entry_points"], found["names"]) == (["size"], ["Node"])


def test_a_grader_of_ones_own_and_what_it_is_given() -> None:
    seen: list[str] = []

    async def grader(problem: Problem, sequences: Any) -> list[float]:
        seen.append(problem.id)
        return [0.5] * len(sequences)

    task = MBPPTask(EXCERPTS / "mbpp.jsonl", grader=grader)
    problem = next(task.problems())
    assert graded(task, problem, "x", "y") == [0.5, 0.5] and seen == [problem.id]
    assert task.hidden_tests()[problem.id] == json.loads(problem.reference)
    assert set(task.hidden_tests()[problem.id]) == {"tests", "setup", "entry_points"}


def test_equal_programs_are_run_once() -> None:
    seen: list[list[str]] = []

    async def grader(problem: Problem, sequences: Any) -> list[float]:
        seen.append([s.text for s in sequences])
        return [float("2" in s.text) for s in sequences]

    task = MBPPTask(EXCERPTS / "mbpp.jsonl", grader=grader)
    first, second = list(task.problems())[:2]
    texts = ["```python\nf = 1\n```", "So:\n```python\nf = 1\n```", "```python\nf = 2\n```", "", "no code"]
    assert graded(task, first, *texts[:3]) == [0.0, 0.0, 1.0] and list(map(len, seen)) == [2]
    assert graded(task, first, texts[2], texts[1]) == [1.0, 0.0] and len(seen) == 1
    assert graded(task, second, texts[2]) == [1.0] and len(seen) == 2, "of another problem, it is run again"


def test_programs_that_are_the_same_but_for_layout_vote_together() -> None:
    task = MBPPTask(EXCERPTS / "mbpp.jsonl", limit=1)
    (problem,) = task.problems()
    texts = ["```python\ndef f(x): return x+1 # one\n```", "```\ndef f(x):\n    return x + 1\n```", "```\ndef f(x):\n"
             "    return 1 + x\n```", "no code at all", "```python\n```"]  # fmt: skip
    answers = asyncio.run(task.answer.read([Sequence(problem.prompt, text, finish="eos") for text in texts]))
    assert answers[0].key == answers[1].key != answers[2].key
    assert [a.verdict for a in answers] == [None, None, None, "missing", "missing"]


LINES = (
    "Answer: ['b', 2]", "**Answer: ['b', 2]**", "**Answer:** ['b', 2]", "**Answer**: ['b', 2]", "Answer: **['b', 2]**",
    "Answer: `['b', 2]`",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_the_line_of_a_value_may_be_bold(line: str) -> None:
    said = Sequence.of("?").extend(f"So:\n{line}\n", finish="eos")
    (read,) = asyncio.run(LiteralRule(PATTERN).read([said]))
    assert read.text == "['b', 2]"


@pytest.mark.usefixtures("isolation")
def test_any_arguments_that_give_the_output_are_right() -> None:
    task = CRUXEvalTask(EXCERPTS / "cruxeval.jsonl", mode="input")
    problem = list(task.problems())[1]  # {1: None, 2: None} from dictionaries of the keys of three arguments
    texts = ["f((1, ), (1, ), (1, 2))", "(1,),(1,),(1,2)", "f([2], [1], [])", "f([1], [1], [])", "f([1])",
             "f([1], [2], open('/etc/passwd'))", "f([1],[2],[]) or True"]  # fmt: skip
    assert graded(task, problem, *(f"Answer: {text}" for text in texts)) == [1, 1, 1, 0, 0, 0, 0]
    few = CRUXEvalTask(EXCERPTS / "cruxeval.jsonl", mode="input", form="few_shot")
    assert graded(few, problem, "Answer: f([2], [1], [])\n\n```python\ny\n```\nAnswer: f(0)") == [1]
    with pytest.raises(InputError, match=r"mode='both'"):
        CRUXEvalTask(EXCERPTS / "cruxeval.jsonl", mode="both")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CRUXEvalTask(EXCERPTS / "cruxeval.jsonl", grader=sandbox_grader()), "grader is for mode='input'"),
        (lambda: BBHTask(Hub("bbh", "word_sorting"), subtask="navigate"),
         "subtask='navigate': 'bbh/word_sorting/test' is of word_sorting; leave subtask out"),
        (lambda: LightevalTask("gsm8k", custom_tasks="mine.py", module="m"), "module='m': custom_tasks names the file"),
        (lambda: ReasoningGymTask("gcd", config={"size": 9}), "config.size: is given by size, outside of config"),
        (lambda: ReasoningGymTask("gcd", config={"seed": 9}), "config.seed: is given by seed, outside of config"),
    ],
)  # fmt: skip
def test_fields_that_would_do_nothing_or_undo_another_are_refused(
    make: Callable[[], Task], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        make()


def test_mbpp_has_no_challenge_where_the_data_have_none(written: Callable[..., Path]) -> None:
    record, *_ = rows(EXCERPTS / "mbpp.jsonl")
    assert MBPPTask(written({**record, "challenge_test_list": []}), challenge=True)
    del record["challenge_test_list"]
    with pytest.raises(
        DataError, match="challenge=True: there is no challenge_test_list; leave challenge out"
    ):
        MBPPTask(written(record), challenge=True)


# -- faults ---------------------------------------------------------------------------------------------------------

FAULTS: list[tuple[Loader, dict[str, Any], str]] = [
    (GSM8KTask, {"question": "?"}, "there is no field 'answer'; it has question"),
    (GSM8KTask, {"question": " ", "answer": "4"}, "the question is empty"),
    (GSM8KTask, {"question": "?", "answer": "x #### "}, "the answer is empty; expected a number, or a solution"),
    (GSM8KTask, {"question": "?", "answer": "It is 4 + 5 and so 9"},
     "the answer .* is a text without '####'; expected a number"),
    (GSM8KTask, {"question": ["?"], "answer": "4"}, r"question is \['\?'\]; expected a text or a number"),
    (MathTask, {"problem": "?", "solution": "so 4"}, r"there is no answer, and no \\boxed"),
    (HumanEvalTask, {"task_id": "t", "prompt": "def f(", "entry_point": "f", "test": "x"}, "the prompt is no Python"),
    (HumanEvalTask, {"task_id": "t", "prompt": "def g():\n  'doc'", "entry_point": "f", "test": "x"},
     "the prompt defines no function 'f'"),
    (HumanEvalTask, {"task_id": "t", "prompt": "def f():\n  'doc'", "entry_point": "f", "test": "assert f() is None"},
     "the test .* defines no function 'check'"),
    (MBPPTask, {"text": "?", "task_id": 1, "test_list": []}, "test_list is empty"),
    (MBPPTask, {"text": "?", "task_id": 1, "test_list": "assert f()"}, "test_list is 'assert f.*a list of texts"),
    (CRUXEvalTask, {"id": "a", "code": "def g(x): pass", "input": "1", "output": "None"},
     "the code defines no function f"),
    (CRUXEvalTask, {"id": "a", "code": "def f(x): pass", "input": "1", "output": "f"},
     "the reference 'f' cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("loader", "record", "message"), FAULTS)
def test_a_faulty_record_is_named(
    loader: Loader, record: dict[str, Any], message: str, written: Callable[..., Path]
) -> None:
    path = written(record)
    with pytest.raises(DataError, match=f"has faulty problems:\n.*data.jsonl:1: {message}"):
        loader(path)


def test_all_faults_come_at_once_and_a_long_list_is_cut(written: Callable[..., Path]) -> None:
    good = {"id": "a", "question": "?", "answer": "4"}
    with pytest.raises(DataError) as error:
        GSM8KTask(written(good, good, *[{"id": str(i)} for i in range(12)]))
    lines = str(error.value).splitlines()
    assert "id 'a' is that of 1 too; ids must be unique" in lines[1]
    assert len(lines) == 12 and lines[-1] == "… and 3 more"


def test_a_task_can_be_made_inside_an_event_loop() -> None:
    async def make() -> int:
        return len(list(MathTask(EXCERPTS / "math500.jsonl").problems()))

    assert asyncio.run(make()) == 3


def test_references_are_read_by_the_rule_that_grades(written: Callable[..., Path]) -> None:
    rule = FunctionRule(lambda text: text, lambda answer: None)
    with pytest.raises(DataError, match=r"the reference '4' cannot be read"):
        GSM8KTask(written({"question": "?", "answer": "4"}), answer=rule)
