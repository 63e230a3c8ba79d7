"""Prompts of a strategy's own making: follow-ups, listings, forms of one's own."""

from __future__ import annotations

import pytest

from metagen.errors import InputError
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Message, Prompt, Score, Sequence
from metagen.strategies.prompts import FollowUp, Listing, ask_by, pose
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.tasks.programs.problems import Case
from metagen.tasks.programs.repair import WRONG, end_last_line, failure_of, repair_prompt
from metagen.tasks.programs.task import ProgramTask, public_cases
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.refine.toys import PROMPT


def test_chats_go_on_with_turns_and_a_begun_turn_is_completed() -> None:
    follow = FollowUp("Mend: {feedback}")
    user = Message("user", "Why?")
    task = Prompt("c", messages=(Message("system", "Be brief."), user), public={"tests": ["t"]})
    told = follow(task, "So.", "{feedback} is wrong")
    assert told.messages[:2] == task.messages and told.public == task.public
    assert told.messages[2:] == (Message("assistant", "So."), Message("user", "Mend: {feedback} is wrong"))
    begun = Prompt("c", messages=(user, Message("assistant", "It is ")))
    assert follow(begun, "so.", None).messages == (
        user, Message("assistant", "It is so."), Message("user", "Mend:"),
    )  # fmt: skip


def test_words_with_a_place_that_there_is_not_are_refused() -> None:
    for make, words in (
        (lambda: FollowUp("Mend: {feed_back}"), r"words='Mend: \{feed_back\}'.*expected \{feedback\}"),
        (lambda: FollowUp("Mend it."), r"words='Mend it\.'.*expected \{feedback\}"),
        (lambda: FollowUp("{feedback}", "{feedback}"), "unsaid=.*expected none"),
        (
            lambda: Listing("{task}"),
            r"words='\{task\}'.*expected \{task\}, \{responses\} and perhaps \{count\}",
        ),
        (
            lambda: Listing("{task} {responses} {feedback}"),
            r"expected \{task\}, \{responses\} and perhaps \{count\}",
        ),
    ):
        with pytest.raises(InputError, match=words):
            make()
    braces = FollowUp('As {"a": {}} and {{feedback}}: {feedback}')(PROMPT, "x", "{feedback}!")
    assert braces.text == 'Count:x\n\nAs {"a": {}} and {feedback}: {feedback}!\n\n'


def test_a_listing_shows_task_and_candidates_in_the_form_of_the_task_or_as_it_is_told() -> None:
    words = "{count} for: {task}\n{responses}\nWhich?"
    text = Prompt("t", text="2 + 2?", public={"hint": 1})
    chat = Prompt(
        "t", messages=(Message("system", "be brief"), Message("user", "2 + 2?")), public={"hint": 1}
    )
    shown = "2 for: 2 + 2?\nResponse 1:\n4\n\nResponse 2:\n{task}\nWhich?"
    for task, told, messages in (
        (text, None, False), (text, True, True), (chat, None, True), (chat, False, False),
    ):  # fmt: skip
        found = Listing(words, told)(task, ["4", "{task}"])
        assert (found.problem_id, found.public) == ("t", {"hint": 1})
        if messages:
            assert found.messages == (Message("user", shown),), "places in a candidate are none"
        else:
            assert found.text == shown + "\n\n"


def test_what_was_said_by_turns_is_a_chat_or_lines() -> None:
    assert pose(PROMPT, "a", "b", "c").text == "a\nb\nc"
    turns = [(m.role, m.content) for m in pose(PROMPT, "a", "b", "c", chat=True).messages]
    assert turns == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_what_is_no_prompt_names_the_form() -> None:
    def numbered(task: Prompt, number: int) -> Prompt:
        return Prompt(task.problem_id, text=f"{number}")

    assert ask_by(numbered, PROMPT, 3).text == "3"
    with pytest.raises(InputError, match=r"test_prompts.*returned 'x' for problem 'p'; expected a Prompt"):
        ask_by(lambda task: "x", PROMPT)  # type: ignore[arg-type, return-value]  # that is what is tested


def test_a_form_of_ones_own_as_a_trained_corrector_wants_it() -> None:
    """The task of programs: the interpreter localises the error, and the corrector reads it in its own form."""
    task = ProgramTask("validation", per_level=1, levels=[1])
    problem = next(task.problems())
    wrong, right = "def f(x):\n return x\n", "def f(x):\n return 0\n"

    def examine(sequence: Sequence) -> Score:
        cases: list[Case] = public_cases(sequence.prompt)
        failed = failure_of(sequence.text, cases)
        return Score(float(failed is None), feedback=None if failed is None else str(failed))

    def repair(prompt: Prompt, candidate: str, feedback: str | None) -> Prompt:
        return Prompt(prompt.problem_id, text=f"{prompt.text}{end_last_line(candidate)}{feedback or WRONG}")

    prompts: list[str | None] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt.text)
        return right

    for feedback in (None, Silence()):
        strategy = Refinement(
            FunctionGenerator(lambda p, s, i: wrong), FunctionGenerator(mend, name="mend"), ask=repair,
            verifier=FunctionVerifier(examine), feedback=feedback, rounds=1,
        )  # fmt: skip
        strategy.solve(problem.prompt)
    text, cases = problem.prompt.text, public_cases(problem.prompt)
    assert text is not None
    assert prompts == [repair_prompt(text, wrong, failure_of(wrong, cases)), repair_prompt(text, wrong, None)]
