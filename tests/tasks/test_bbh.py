"""BIG-Bench Hard: all 27 sub-tasks as published, worked examples, and readings of answers as models write them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, get_args

import pytest

from metagen.errors import DataError, InputError
from metagen.sequence import Sequence
from metagen.tasks.base import Problem
from metagen.tasks.bbh.task import FORMS, OPTIONS, OTHERS, BBHTask, Subtask, read_examples
from metagen.tasks.records import Hub

DATA = Path(__file__).parents[1] / "data" / "bbh"
#: What code-davinci-002 wrote, and whether the text behind `the answer is` is the target, as the paper counts.
ANSWERS = [json.loads(line) for line in (DATA / "answers.jsonl").read_text("utf-8").splitlines()]
SUBTASKS: tuple[Any, ...] = get_args(Subtask)
SHOTS = [{"question": "1 + 1 =", "solution": "So the answer is 2."}]


def graded(task: BBHTask, problem: Problem, *texts: str, finish: Any = "eos") -> list[float]:
    return asyncio.run(task.grade(problem, [Sequence(problem.prompt, text, finish=finish) for text in texts]))


def read(task: BBHTask, problem: Problem, text: str) -> str | None:
    (answer,) = asyncio.run(task.answer.read([Sequence(problem.prompt, text, finish="eos")]))
    return answer.key


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[BBHTask, Problem]]:
    """The task of one problem, and the problem."""

    def make(subtask: Any, asked: str, target: str, **options: Any) -> tuple[BBHTask, Problem]:
        path = tmp_path / "data.jsonl"
        path.write_text(json.dumps({"input": asked, "target": target}) + "\n", "utf-8")
        task = BBHTask(path, subtask=subtask, **options)
        return task, next(task.problems())

    return make


# -- the data set --------------------------------------------------------------------------------------------


def test_every_sub_task_has_its_file() -> None:
    assert len(SUBTASKS) == 27 == len(list(DATA.glob("*.json")))
    assert set(OTHERS) < set(SUBTASKS)


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_a_sub_task_as_it_is_published(subtask: Any) -> None:
    """The name of the file, or else the form of most targets, says how answers are read."""
    path = DATA / f"{subtask}.json"
    examples = json.loads(path.read_text("utf-8"))["examples"]
    task = BBHTask(path)
    problems = list(task.problems())
    assert task.subtask == subtask
    assert [problem.id for problem in problems] == [f"bbh/{subtask}/{i}" for i in range(len(examples))]
    for problem, example in zip(problems, examples, strict=True):
        (turn,) = problem.prompt.messages
        assert example["input"] in turn.content and turn.role == "user"
        assert problem.reference == example["target"]
        said = f"Let's see.\nSo the answer is {example['target']}."
        others = [e["target"] for e in examples if e["target"].casefold() != example["target"].casefold()]
        wrong = [f"So the answer is {target}." for target in others]
        assert graded(task, problem, said, example["target"], *wrong, "", "I cannot tell.") == [
            1, 1, *[0] * len(wrong), 0, 0
        ]  # fmt: skip


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_answers_of_a_model_are_read_as_the_paper_reads_them(subtask: str) -> None:
    task = BBHTask(DATA / f"{subtask}.json", form="few_shot", shots=SHOTS)
    problems, answers = list(task.problems()), [one for one in ANSWERS if one["subtask"] == subtask]
    assert len(problems) == len(answers)
    for one in answers:
        text = f"\n{one['text']}\n\nQ: And now?\nA: So the answer is (Z)."
        assert graded(task, problems[one["number"]], text) == [one["right"]], one["text"][-80:]


def test_the_form_of_the_targets_tells_the_rule(tmp_path: Path) -> None:
    for subtask in SUBTASKS:
        # The first two: a few problems behind them are out of form.
        examples = json.loads((DATA / f"{subtask}.json").read_text("utf-8"))["examples"][:2]
        path = tmp_path / "mine.json"
        path.write_text(json.dumps({"examples": examples}))
        task = BBHTask(path)
        assert task.subtask is None and next(task.problems()).id == "bbh/mine/0"
        rule = OTHERS.get(subtask, OPTIONS).rule()
        assert task.answer.fingerprint == rule.fingerprint, subtask
    assert len(FORMS) == 7


def test_rows_as_the_hub_has_them(tmp_path: Path) -> None:
    """One configuration a sub-task; the rows are those of the files."""
    path = tmp_path / "web_of_lies.jsonl"
    path.write_text(json.dumps({"input": "Question: Ann lies. Does Ann tell the truth?", "target": "No"}))
    task = BBHTask(path)
    assert graded(task, next(task.problems()), "**No**", "Yes") == [1, 0]
    seen: list[Hub] = []

    class Hubbed(BBHTask):
        def _records(self) -> Any:
            assert isinstance(self.source, Hub)
            seen.append(self.source)
            yield 1, {"input": "not True is", "target": "False"}

    for source, subtask in (
        (None, "boolean_expressions"),
        (Hub("maveriq/bigbenchhard", split="train"), "boolean_expressions"),
        (Hub("lukaemon/bbh", "boolean_expressions"), None),
    ):
        made = Hubbed(source, subtask=subtask)  # type: ignore[arg-type]  # a name of the list
        assert made.subtask == "boolean_expressions"
    assert [(one.name, one.config, one.split) for one in seen] == [
        ("lukaemon/bbh", "boolean_expressions", "test"),
        ("maveriq/bigbenchhard", "boolean_expressions", "train"),
        ("lukaemon/bbh", "boolean_expressions", "test"),
    ]


# -- prompts -------------------------------------------------------------------------------------------------


def test_zero_shot_says_how_to_end(made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    task, problem = made("boolean_expressions", "not ( True ) is", "False")
    assert problem.prompt.messages[0].content == (
        "What is the value of this Boolean expression?\n\nnot ( True ) is\n\n"
        'Think step by step, and end with "So the answer is True." or "So the answer is False."'
    )
    assert task.mark == "So the answer is", "a search asks for no step after it"
    own, asked = made("boolean_expressions", "not ( True ) is", "False", prompt="Say: {question}")
    assert (asked.prompt.messages[0].content, own.mark) == ("Say: not ( True ) is", None)


def test_worked_examples_from_the_published_file() -> None:
    path, examples = DATA / "sports_understanding.json", DATA / "cot-prompts" / "sports_understanding.txt"
    head, shots = read_examples(examples)
    assert head.startswith("Determine whether an artificially constructed sentence") and len(shots) == 3
    text = BBHTask(path, form="few_shot", examples=examples)
    said = next(text.problems()).prompt.text
    # As the paper's prompt: the file, and the problem below it.
    published = examples.read_text("utf-8").partition("-----\n")[2]
    asked = json.loads(path.read_text("utf-8"))["examples"][0]["input"]
    assert said == f"{published.strip()}\n\nQ: {asked}\nA: Let's think step by step."
    assert text.stop == ("\n\nQ:",) and "canary" not in said
    chat = next(BBHTask(path, form="few_shot_chat", examples=examples).problems()).prompt.messages
    assert [turn.role for turn in chat] == ["user", "assistant"] * 3 + ["user"]
    assert chat[0].content == f"{head}\n\n{shots[0]['question']}" and chat[-1].content == f"{head}\n\n{asked}"
    assert chat[1].content.startswith("Bam Adebayo") and chat[1].content.endswith("So the answer is yes.")


def test_braces_in_questions_and_examples_stand_as_they_are() -> None:
    path, examples = DATA / "dyck_languages.json", DATA / "cot-prompts" / "dyck_languages.txt"
    for form in ("few_shot", "few_shot_chat"):
        prompt = next(BBHTask(path, form=form, examples=examples).problems()).prompt
        said = prompt.text or "\n".join(turn.content for turn in prompt.messages)
        assert said.count("{") == (examples.read_text("utf-8") + prompt.public["begun"]).count("{")


# -- readings ------------------------------------------------------------------------------------------------

DATE = "What is the date?\nOptions:\n(A) 12/11/1937\n(B) 12/25/1937\n(C) 01/04/1938"
MOVIE = "Find a movie similar to Aladdin:\nOptions:\n(A) Monsters\n(B) Inc\n(C) Up\n(D) The Dark Night"


@pytest.mark.parametrize(
    "text",
    ["So the answer is (B).", "The answer is B", "**(B)**", "(B) 12/25/1937", "B. 12/25/1937",
     "The correct option is (B).",
     "So the answer is 12/25/1937.", "**12/25/1937**", r"\boxed{B}", "So the answer is (B) 12/25/1937.",
     "It is tomorrow.\n\n12/25/1937", "It must be (B).",
     "Tomorrow is the day of option (B).", "So it is (B) 12/25/1937.",
     "Today is 12/24/1937.\nThus, tomorrow is 12/25/1937.", "The answer is (E) 12/25/1937.",
     "So the answer is the letter (B).",
     "So the answer is 12/25/1937, because it is Christmas.", "Answer: (B)",
     "12/25/1937 is the right answer. One day is left, so the answer is a holiday."],
)  # fmt: skip
def test_an_option_by_its_letter_or_its_text(text: str, made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    assert graded(*made("date_understanding", DATE, "(B)"), text) == [1]


@pytest.mark.parametrize(
    "text",
    ["12/25/1937 is not the right answer. So the answer is a day.", "12/25/1937 is a day. The answer is a day.",
     "If we look at (B), it says that it is tomorrow", "It is not (B).", "It is (A) or (B).", "It isn't 12/25/1937.",
     "The answer is (E). It may be (B).", "So the answer is none. It may be (B)."],
)  # fmt: skip
def test_an_option_in_passing_is_no_answer(text: str, made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    assert read(*made("date_understanding", DATE, "(B)"), text) is None


def test_options_that_a_comma_cut(made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    task, problem = made("movie_recommendation", MOVIE, "Monsters, Inc")
    right = ["So the answer is Monsters, Inc.", "**Monsters, Inc**", "Monsters, Inc."]
    assert graded(task, problem, *right, "So the answer is (A).", "So the answer is Up.") == [1, 1, 1, 0, 0]
    other = made("movie_recommendation", MOVIE, "(D)")
    assert graded(*other, "The answer is The Dark Night.", "the answer is (D)", "The answer is (E).") == [
        1,
        1,
        0,
    ]
    assert read(*other, "The answer is a film like the others.") is None


@pytest.mark.parametrize("text", ["So the answer is (B", "So the answer is 12/25/1937", "B"])
def test_an_answer_that_was_cut_is_none(text: str, made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    assert graded(*made("date_understanding", DATE, "(B)"), text, finish="length") == [0]


@pytest.mark.parametrize(
    ("subtask", "asked", "target", "right", "wrong"),
    [
        ("boolean_expressions", "not True is", "False",
         ["So the answer is False.", "**False**", "the answer is false", "not True = False",
          "False\n\nnot True is False."],
         ["the answer is True", "True", "not True"]),
        ("navigate", "Do you return?\nOptions:\n- Yes\n- No", "Yes",
         ["**Yes**", "Yes, you do.", "So the answer is Yes.", "- Yes", "We are back.\nTherefore, yes."],
         ["No.", "- No"]),
        ("sports_understanding", "Is the following sentence plausible? x", "no",
         ["So the answer is no.", "No, it is not plausible.", "Answer: No"], ["yes", "It could be."]),
        ("formal_fallacies", "Is it valid or invalid?\nOptions:\n- valid \n- invalid", "invalid",
         ["So the answer is invalid.", "The argument is not valid.", "**Invalid**", "- invalid",
          "The answer is that the argument is deductively invalid."],
         ["The argument is deductively valid.", "valid"]),
        ("multistep_arithmetic_two", "((2 - 30) - 7) =", "-35",
         ["So the answer is -35.", "= -28 - 7 = -35", r"\boxed{-35}", "**Answer: -35**", "-35"],
         ["35", "the answer is -28."]),
        ("object_counting", "I have two cows. How many animals?", "2",
         ["So the answer is 2.", "You have 2 animals.", "**2**"], ["3", "one"]),
        ("word_sorting", "Sort the following words alphabetically: List: syndrome it&t therefrom",
         "it&t syndrome therefrom",
         ["So the answer is it&t syndrome therefrom.", "it&t, syndrome, therefrom", "**it&t syndrome therefrom**",
          "So the answer is: it&t, syndrome, and therefrom.", "Sorted:\n1. it&t\n2. syndrome\n3. therefrom",
          "The sorted list is:\n\n- It&t\n- Syndrome\n- Therefrom\n",
          'The answer is "it&t" < "syndrome" < "therefrom".',
          "The sorted words are: it&t syndrome therefrom", "Sorted: it&t syndrome therefrom\nThere are three.",
          "Sorted:\n\n1. it&t\n2. syndrome\n3. therefrom\n\nI hope that this helps.",
          "So the answer is:\nit&t\nsyndrome\ntherefrom",
          "So the answer is: it&t syndrome therefrom So the answer is so the answer is",
          "So the answer is:\n\nSorted words:\nit&t, syndrome, therefrom"],
         ["So the answer is syndrome it&t therefrom.", "it&t therefrom", "I sorted the words."]),
        ("dyck_languages", "Complete the rest. Input: < [ { }", "] >",
         ["So the answer is ] >.", "] >", "`] >`", "So the answer is `]` `>`.", "So the answer is ]>.", "**] >**",
          "The answer is \"] >\".", "So the answer is < [ { } ] >.",
          "So we need: ] >", "So the answer is ], >.",
          "So the answer is ] > (two are left).", "The missing brackets are ] >.", "We need ] and >.",
          "```\n] >\n```"],
         ["So the answer is ].", "> ]", "The stack is [ <", "So the answer is < [ { } ]."]),
    ],
)  # fmt: skip
def test_answers_in_the_ways_in_which_models_write_them(
    subtask: str, asked: str, target: str, right: list[str], wrong: list[str],
    made: Callable[..., tuple[BBHTask, Problem]],
) -> None:  # fmt: skip
    grades = graded(*made(subtask, asked, target), *right, *wrong)
    assert dict(zip([*right, *wrong], grades, strict=True)) == {
        **dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)
    }  # fmt: skip


@pytest.mark.parametrize("subtask", ["snarks", "word_sorting", "dyck_languages"])
def test_a_text_full_of_what_is_looked_for_takes_no_longer(subtask: str) -> None:
    task = BBHTask(DATA / f"{subtask}.json")
    problem = next(task.problems())
    for piece in ("the answer is ", "because ", "] and ", "1. x\n", "(A) ", "a"):
        began = process_time()
        read(task, problem, piece * (20_000 // len(piece)))
        assert process_time() - began < 2, piece


# -- faults --------------------------------------------------------------------------------------------------


def test_what_does_not_go_together(tmp_path: Path) -> None:
    path, examples = DATA / "navigate.json", DATA / "cot-prompts" / "boolean_expressions.txt"
    with pytest.raises(
        InputError, match=r"shows worked examples; give examples: .*cot-prompts/navigate\.txt"
    ):
        BBHTask(path, form="few_shot_chat")
    with pytest.raises(InputError, match="and form='chat'; leave one"):
        BBHTask(path, examples=examples)
    with pytest.raises(InputError, match="with shots; leave one"):
        BBHTask(path, form="few_shot", examples=examples, shots=SHOTS)
    with pytest.raises(InputError, match="subtask='navigation': expected one of boolean_expressions"):
        BBHTask(path, subtask="navigation")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="subtask=None: expected one of"):
        BBHTask()
    mixed = tmp_path / "mixed.json"
    mixed.write_text(json.dumps({"examples": [{"input": "?", "target": t} for t in ("(A)", "Yes", "7")]}))
    with pytest.raises(InputError, match="named like no sub-task, and its targets have no form in common"):
        BBHTask(mixed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected JSON with a list `examples`"),
        ("[]", "has no list 'examples'"),
        ('{"examples": [3]}', ":1: 3 is no object with input and target"),
        ('{"examples": [{"input": "Yes?"}]}', ":1: there is no field 'target'"),
        (
            '{"examples": [{"input": "Yes?", "target": "perhaps"}]}',
            ":1: the reference 'perhaps' cannot be read",
        ),
        ('{"examples": []}', "holds no problems"),
    ],
)
def test_a_faulty_file_is_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "navigate.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        BBHTask(path)


def test_a_target_that_is_no_option(made: Callable[..., tuple[BBHTask, Problem]]) -> None:
    with pytest.raises(DataError, match=r"the target '\(D\)' is none of the options; the question has 3"):
        made("date_understanding", DATE, "(D)")


def test_a_file_without_examples_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with pytest.raises(DataError, match="cannot read"):
        read_examples(path)
    path.write_text("Sort words.\n")
    with pytest.raises(DataError, match="holds no examples"):
        read_examples(path)
    path.write_text("Sort words.\n\nQ: b a\n")
    with pytest.raises(DataError, match="has no 'A: ' below it"):
        read_examples(path)
