"""Refinement: draft, feedback, revision; the best seen; what equal texts, silence, failures and budgets do to it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.budget import Budget
from metagen.errors import EngineError, InputError, PromptError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.sequence import Message, Prompt, Score, Sequence, Step
from metagen.strategies.base import Result
from metagen.strategies.parallel import BestOfN, Sample
from metagen.strategies.refine.ask import FollowUp
from metagen.strategies.refine.critique import Critique
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.tool import ToolFeedback
from metagen.strategies.refine.trajectory import Trajectory, by_round, copies_of, texts_by_round
from metagen.strategies.tools import Tool
from metagen.tasks.programs.problems import Case
from metagen.tasks.programs.repair import WRONG, ended, failure_of, repair_prompt
from metagen.tasks.programs.task import ProgramTask, public_cases
from metagen.testing import CountingJournal, StrategyLaws, first_word, numbers, run
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.public import PublicTests
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier
from metagen.verifiers.recorded import RecordedVerifier
from metagen.verifiers.reward import ProcessRewardModel

PROMPT = Prompt("p", text="Count:")
#: What a corrector of these tests is asked: all that it has to know, on one line.
LINE = FollowUp("|{feedback}", "|?")


def writes(*texts: str | Drawn, name: str = "draft") -> FunctionGenerator:
    """Writes one text after the other, whatever it is asked."""
    at = iter(texts)
    return FunctionGenerator(lambda p, s, i: next(at), name=name, count=len, max_tokens=8)


def values(scores: dict[str, float | Score]) -> FunctionVerifier:
    return FunctionVerifier(lambda s: scores[s.text])


def chain_of(strategy: Refinement, prefix: Sequence | None = None, **options: Any) -> Trajectory:
    chain, _ = run(lambda s: strategy.trajectory(prefix or Sequence.of(PROMPT), s), **options)
    return chain


def tool(
    function: Callable[..., Any], *, name: str = "t", ends: bool = False, **options: Any
) -> ToolFeedback:
    return ToolFeedback(Tool(function, name=name, **options), ends=ends)


def texts(chain: Trajectory) -> list[str]:
    return [one.candidate.sequence.text for one in chain.rounds]


class TestRefinement(StrategyLaws):
    def make(self) -> Refinement:
        return Refinement(numbers(), verifier=first_word, accept=0.9, rounds=3)


class TestWithoutVerifier(StrategyLaws):
    def make(self) -> Refinement:
        unless_nine = tool(
            lambda candidate: None if candidate.startswith("0.9") else candidate[:3], ends=True
        )
        return Refinement(numbers(), feedback=unless_nine, rounds=2, memory=1)


class TestNested(StrategyLaws):
    """Chains side by side, whose scores are not paid again."""

    def make(self) -> BestOfN:
        inner = Refinement(numbers(), verifier=first_word, accept=0.9, rounds=2)
        return BestOfN(inner, 2, verifier=RecordedVerifier(first_word.name))


# -- the loop ----------------------------------------------------------------------------------------


def test_the_corrector_is_told_and_the_best_is_kept_the_first_of_equals() -> None:
    asked: list[str] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        asked.append(prefix.prompt.text or "")
        return ["b", "c", "d"][len(asked) - 1]

    scores: dict[str, float | Score] = {
        "a": Score(0.2, feedback="say b"),
        "b": Score(0.6, feedback="say c"),
        "c": Score(0.6, verdict="odd"),
        "d": 0.1,
    }
    strategy = Refinement(writes("a"), FunctionGenerator(mend), verifier=values(scores), rounds=3, ask=LINE)
    result = strategy.solve(PROMPT)

    assert (result.text, result.sequence.scores["function"].value) == ("b", 0.6)
    assert [(o.sequence.text, o.value) for o in result.candidates] == [
        ("a", 0.2), ("b", 0.6), ("c", 0.6), ("d", 0.1),
    ]  # fmt: skip
    assert asked == ["Count:a\n\n|say b\n\n", "Count:b\n\n|say c\n\n", "Count:c\n\n|Verdict: odd.\n\n"]
    assert {r.path for r in result.trace.rows} == {
        "0/sample", "0/score", "0/revise/1", "0/revise/2", "0/revise/3",
    }  # fmt: skip
    assert result.sequence.prompt == PROMPT and result.sequence.finish == "eos" and not result.exhausted


def test_an_accepted_draft_costs_one_sample_and_one_score() -> None:
    result = Refinement(writes("a"), verifier=values({"a": 0.7}), accept=0.7).solve(PROMPT)
    assert (result.text, result.usage.calls, len(result.candidates)) == ("a", 2, 1)


def test_no_rounds_are_the_generator_and_share_its_record() -> None:
    journal = CountingJournal()
    single = Sample(numbers()).solve(PROMPT, journal=journal)
    same = Refinement(numbers(), rounds=0).solve(PROMPT, journal=journal)
    assert same.text == single.text and journal.recorded == 1
    scored = Refinement(numbers(), verifier=first_word, rounds=0).solve(PROMPT, journal=journal)
    assert scored.text == single.text and journal.recorded == 2
    BestOfN(numbers(), 1, verifier=first_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 2, "best-of-1 has paid for the same sample and score"


def test_never_worse_than_the_draft_by_the_verifiers_own_measure() -> None:
    for seed in range(40):
        strategy = Refinement(numbers(), verifier=first_word, rounds=4)
        chain, _ = run(lambda s, strategy=strategy: strategy.trajectory(Sequence.of(PROMPT), s), seed=seed)  # type: ignore[misc]
        found = [one.candidate.value or 0.0 for one in chain.rounds]
        assert len(found) == 5 and found[chain.best] == max(found)


def test_a_revision_equal_to_what_it_mends_counts_and_is_not_scored_again() -> None:
    looked: list[str] = []

    def look(sequence: Sequence) -> Score:
        looked.append(sequence.text)
        return Score(0.3, feedback=sequence.text)

    corrector = writes("a", "b", "a", "a", name="copier")
    strategy = Refinement(writes("a"), corrector, verifier=FunctionVerifier(look), rounds=4)
    chain = chain_of(strategy)
    assert [one.made for one in chain.rounds] == ["draft", "copy", "revision", "revision", "copy"]
    assert looked == ["a", "b"] and chain.copies == 2 and chain.ended == "rounds"

    strategy = Refinement(writes("a"), writes("a", "b", "a", "a"), verifier=FunctionVerifier(look), rounds=4)
    result = strategy.solve(PROMPT)
    assert [o.sequence.text for o in result.candidates] == ["a", "a", "b", "a", "a"], "copies are offered"
    assert result.usage.calls == 5 + 2
    assert texts_by_round(result.trace) == {"0": ["a", "a", "b", "a", "a"]}
    assert copies_of(["a", "a", "b", "a", "a"]) == 2


def test_a_corrector_that_writes_nothing_leaves_the_candidate_and_is_asked_again() -> None:
    corrector = writes("", "  \n", "b", name="silent")
    strategy = Refinement(writes("a"), corrector, verifier=values({"a": 0.5, "b": 0.9}), rounds=3)
    chain = chain_of(strategy)
    assert [(one.made, one.candidate.sequence.text) for one in chain.rounds] == [
        ("draft", "a"), ("nothing", "a"), ("nothing", "a"), ("revision", "b"),
    ]  # fmt: skip
    silent = Refinement(writes("a"), writes("", ""), verifier=values({"a": 0.5}), rounds=2).solve(PROMPT)
    assert (silent.text, len(silent.candidates), silent.exhausted) == ("a", 1, False)


def test_an_empty_draft_is_judged_and_revised() -> None:
    strategy = Refinement(writes(""), writes("b"), verifier=values({"": 0.0, "b": 1.0}))
    assert chain_of(strategy).ended == "accepted"
    assert Refinement(writes(""), writes("b"), verifier=values({"": 0.0, "b": 1.0})).solve(PROMPT).text == "b"


def test_a_verdict_without_value_is_revised_and_loses_to_any_value() -> None:
    late = Score(None, verdict="timeout")
    strategy = Refinement(
        writes("a"), writes("b", "c"), verifier=values({"a": late, "b": 0.0, "c": late}), rounds=2
    )
    chain = chain_of(strategy)
    assert [one.remark and one.remark.text for one in chain.rounds] == ["Verdict: timeout.", None, None]
    assert chain.best == 1
    never = Refinement(writes("a"), writes("b"), verifier=values({"a": late, "b": late}), rounds=1)
    assert never.solve(PROMPT).text == "a"


def test_what_is_cut_is_never_accepted_and_loses_to_what_has_ended() -> None:
    cut = Drawn("aa", None, 2, finish="length")
    strategy = Refinement(writes(cut), writes("b"), verifier=values({"aa": 1.0, "b": 0.1}), rounds=1)
    assert strategy.solve(PROMPT).text == "b"
    answer = FunctionRule(lambda text: text if text.isdigit() else None)
    strategy = Refinement(
        writes("x"), writes("7"), verifier=values({"x": 1.0, "7": 0.1}), rounds=1, answer=answer
    )
    result = strategy.solve(PROMPT)
    assert result.text == "7" and result.answer is not None and result.answer.key == "7"


def test_a_verifier_that_breaks_in_the_middle_is_not_hidden_and_nothing_is_paid_for_twice() -> None:
    broken = [True]
    drafts: list[str] = []

    def look(sequence: Sequence) -> float:
        if sequence.text == "c" and broken[0]:
            raise EngineError("the sandbox is gone")
        return 0.5

    def draft(prefix: Sequence, seed: int, index: int) -> str:
        drafts.append("a")
        return "a"

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        drafts.append(prefix.prompt.text or "")
        return {"Count:a": "b", "Count:b": "c", "Count:c": "d"}[(prefix.prompt.text or "").split("\n")[0]]

    strategy = Refinement(
        FunctionGenerator(draft, name="d"), FunctionGenerator(mend, name="m"),
        verifier=FunctionVerifier(look), rounds=3,
    )  # fmt: skip
    journal = MemoryJournal()
    with pytest.raises(EngineError, match="sandbox"):
        strategy.solve(PROMPT, journal=journal)
    assert len(drafts) == 3
    broken[0] = False
    result = strategy.solve(PROMPT, journal=journal)
    assert len(drafts) == 4 and result.usage.calls == 8
    assert result.candidates == strategy.solve(PROMPT).candidates and result.text == "a"


WORDS = st.sampled_from(["", " ", "a", "b", "c", "d"])


@given(
    draft=WORDS,
    revisions=st.lists(WORDS, min_size=6, max_size=6),
    rounds=st.integers(0, 6),
    memory=st.integers(0, 3),
    worth=st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6),
    calls=st.none() | st.integers(0, 12),
)
def test_whatever_is_written_and_however_it_is_judged(
    draft: str, revisions: list[str], rounds: int, memory: int, worth: list[float | None], calls: int | None
) -> None:
    table = dict(zip(["", " ", "a", "b", "c", "d"], worth, strict=True))
    scored: list[str] = []

    def look(sequence: Sequence) -> Score:
        scored.append(sequence.text)
        value = table[sequence.text]
        return Score(value, verdict="odd" if value is None else None, feedback="mend")

    strategy = Refinement(
        writes(draft), writes(*revisions), verifier=FunctionVerifier(look), rounds=rounds, memory=memory
    )
    chain = chain_of(strategy, budget=None if calls is None else Budget(calls=calls))

    written = [draft, *revisions[:rounds]]
    current = [draft]
    for text in written[1:]:
        current.append(text if text.strip() else current[-1])
    done = [k for k, text in enumerate(current) if table[text] == 1.0]
    whole = current[: done[0] + 1] if done else current
    assert texts(chain) == whole[: len(chain.rounds)]
    if chain.ended == "budget":
        assert calls is not None
    else:
        assert len(chain.rounds) == len(whole) and chain.ended == ("accepted" if done else "rounds")
        judged_texts = [text for k, text in enumerate(written[: len(whole)]) if text.strip() or not k]
        assert scored == list(dict.fromkeys(judged_texts)), "each distinct text once"
        assert chain.copies == sum(
            bool(written[k].strip()) and written[k] == current[k - 1] for k in range(1, len(whole))
        )
    if chain.rounds:
        found = [one.candidate.value for one in chain.rounds]
        known = [value for value in found if value is not None]
        assert chain.best == (found.index(max(known)) if known else 0)


# -- who speaks --------------------------------------------------------------------------------------


def test_words_come_from_the_source_that_is_given() -> None:
    told = values({"a": Score(0.5, feedback="measured"), "b": Score(0.5)})
    other = FunctionVerifier(lambda s: Score(0.0, feedback=f"other on {s.text}"), name="other")

    async def examine(candidate: str, task: str, public: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        assert (task, public) == ("Count:", {})
        return f"tool on {candidate}"

    sources: dict[str, Any] = {
        "measured": None, "other on a": other, "tool on a": tool(examine), "?": Silence(),
    }  # fmt: skip
    for expected, feedback in sources.items():
        asked: list[str] = []

        def mend(prefix: Sequence, seed: int, index: int, asked: list[str] = asked) -> str:
            asked.append(prefix.prompt.text or "")
            return "b"

        strategy = Refinement(
            writes("a"), FunctionGenerator(mend), verifier=told, feedback=feedback, rounds=1, ask=LINE
        )
        strategy.solve(PROMPT)
        assert asked == [f"Count:a\n\n|{expected}\n\n"]


def test_a_tools_words_are_recorded_charged_and_said_once_of_equal_texts() -> None:
    heard: list[str] = []

    def listen(candidate: str) -> str:
        heard.append(candidate)
        return "wrong"

    def make() -> Refinement:
        return Refinement(writes("a"), writes("a", "b", "a"), feedback=tool(listen), rounds=3)

    journal = MemoryJournal()
    result = make().solve(PROMPT, journal=journal)
    assert heard == ["a", "b"] and result.usage.calls == 4 + 2
    assert [r.kind for r in result.trace.rows].count("tool") == 2
    assert make().solve(PROMPT, journal=journal).usage.calls == 6 and heard == ["a", "b"]
    assert result.text == "a", "without a verifier the last is returned"


def test_a_slow_tool_is_cut_off_and_the_remark_says_so() -> None:
    async def slow(candidate: str) -> str:
        await asyncio.sleep(10)
        return "never"

    feedback = tool(slow, name="slow", timeout=0.01, attempts=1)
    remark = chain_of(Refinement(writes("a"), writes("b"), feedback=feedback, rounds=1)).rounds[0].remark
    assert remark is not None and remark.text is not None
    assert remark.text.startswith("the tool 'slow' took longer than 0.01 seconds")


def test_a_tool_with_nothing_to_say_may_end_it_and_a_broken_one_is_not_hidden() -> None:
    def complains(candidate: str) -> str | None:
        return None if candidate == "b" else f"{candidate} is not b"

    for ends, written, how in ((True, ["a", "b"], "content"), (False, ["a", "b", "c"], "rounds")):
        strategy = Refinement(writes("a"), writes("b", "c"), feedback=tool(complains, ends=ends), rounds=2)
        chain = chain_of(strategy)
        assert (texts(chain), chain.ended, chain.best) == (written, how, len(written) - 1)

    def broken(candidate: str) -> str:
        raise EngineError("no such tool")

    with pytest.raises(EngineError, match="no such tool"):
        Refinement(writes("a"), feedback=tool(broken)).solve(PROMPT)
    with pytest.raises(InputError, match="said 3; expected a text"):
        Refinement(writes("a"), feedback=tool(lambda candidate: 3)).solve(PROMPT)
    with pytest.raises(InputError, match="needs 'code'; as feedback it gets candidate"):
        tool(lambda code: None)


def test_memory_carries_earlier_attempts_with_what_was_said_and_is_bounded() -> None:
    def prompts(memory: int, corrector: tuple[str, ...] = ("b", "c", "d")) -> list[str]:
        asked: list[str] = []
        given = iter(corrector)

        def mend(prefix: Sequence, seed: int, index: int) -> str:
            asked.append((prefix.prompt.text or "").removeprefix("Count:").replace("\n\n", ""))
            return next(given)

        verifier = FunctionVerifier(lambda s: Score(0.1, feedback=s.text.upper()))
        strategy = Refinement(
            writes("a"), FunctionGenerator(mend), verifier=verifier, rounds=3, ask=LINE, memory=memory
        )
        chain_of(strategy)
        return asked

    assert prompts(0) == ["a|A", "b|B", "c|C"]
    assert prompts(1) == ["a|A", "a|Ab|B", "b|Bc|C"]
    assert prompts(9) == ["a|A", "a|Ab|B", "a|Ab|Bc|C"]
    assert prompts(9, ("b", "a", "d")) == ["a|A", "a|Ab|B", "b|Ba|A"], "an attempt is told once"


def test_what_does_not_fit_the_context_is_forgotten_the_earliest_first() -> None:
    """A model with room for 40 characters; every attempt with its feedback takes 9 of them."""
    asked: list[str] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        if len(text) > 40:
            raise PromptError(f"{len(text)} characters exceed the context of 40")
        asked.append(text)
        return "bcdefgh"[len(asked) - 1]

    def make(feedback: str, memory: int) -> Refinement:
        verifier = FunctionVerifier(lambda s: Score(0.1, feedback=feedback))
        corrector = FunctionGenerator(mend)
        return Refinement(writes("a"), corrector, verifier=verifier, rounds=6, ask=LINE, memory=memory)

    chain = chain_of(make("123", 9))
    assert len(chain.rounds) == 7 and [one.count("|") for one in asked] == [1, 2, 3, 3, 3, 3]
    assert asked[-1].replace("\n", "") == "Count:d|123e|123f|123"
    asked.clear()
    corrector = BestOfN(FunctionGenerator(mend), 1, verifier=FunctionVerifier(lambda s: 0.0, name="zero"))
    told = FunctionVerifier(lambda s: Score(0.1, feedback="123"), name="told")
    nested = Refinement(writes("a"), corrector, verifier=told, rounds=5, ask=LINE, memory=9)
    result = nested.solve(PROMPT)
    assert [one.count("|") for one in asked] == [1, 2, 3, 3, 3], (
        "a strategy is asked again in a place of its own"
    )
    places = {row.path for row in result.trace.rows if row.kind == "generate"}
    assert "0/revise/5/memory/2/0/sample" in places
    asked.clear()
    plain = Refinement(writes("a"), FunctionGenerator(mend), verifier=told, rounds=5, ask=LINE, memory=9)
    assert texts_by_round(plain.solve(PROMPT).trace) == {"0": ["a", "b", "c", "d", "e", "f"]}
    asked.clear()
    chain = chain_of(make("1" * 40, 9))
    assert (chain.ended, len(chain.rounds), asked) == ("room", 1, [])
    assert make("1" * 40, 0).solve(PROMPT).text == "a"

    def too_long(prefix: Sequence, seed: int, index: int) -> str:
        raise PromptError("exceeds the context")

    blind = Refinement(writes("a"), writes("b"), feedback=Critique(FunctionGenerator(too_long)), rounds=1)
    assert blind.solve(PROMPT).text == "b"
    empty = Refinement(writes("a"), verifier=values({"a": 0.0}), ask=lambda p, c, f: Prompt("p", text=""))
    with pytest.raises(PromptError, match="is empty"):
        empty.solve(PROMPT)


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
    ):
        with pytest.raises(InputError, match=words):
            make()
    braces = FollowUp('As {"a": {}} and {{feedback}}: {feedback}')(PROMPT, "x", "{feedback}!")
    assert braces.text == 'Count:x\n\nAs {"a": {}} and {feedback}: {feedback}!\n\n'


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
        return Prompt(prompt.problem_id, text=f"{prompt.text}{ended(candidate)}{feedback or WRONG}")

    asked: list[str | None] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        asked.append(prefix.prompt.text)
        return right

    for feedback in (None, Silence()):
        strategy = Refinement(
            FunctionGenerator(lambda p, s, i: wrong), FunctionGenerator(mend, name="mend"), ask=repair,
            verifier=FunctionVerifier(examine), feedback=feedback, rounds=1,
        )  # fmt: skip
        strategy.solve(problem.prompt)
    text, cases = problem.prompt.text, public_cases(problem.prompt)
    assert text is not None
    assert asked == [repair_prompt(text, wrong, failure_of(wrong, cases)), repair_prompt(text, wrong, None)]


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        return Sandbox()
    except IsolationError as error:
        if os.environ.get("CI") and os.geteuid() == 0:
            raise
        pytest.skip(f"untrusted programs cannot be isolated on this machine: {error}")


def test_public_tests_localise_the_error(sandbox: Sandbox) -> None:
    tests = {"tests": ["assert f(2) == 4", "assert f(-3) == 9"], "entry_points": ["f"]}
    square = Prompt("square", text="Write f(x), the square of x.\n", public=tests)

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        assert prefix.prompt.public == tests, "a strategy that corrects may run the tests as well"
        return (
            "def f(x): return x * x" if "Call: f(-3)\nExpected: 9\nGot: -6" in said else "def f(x): return x"
        )

    double = FunctionGenerator(lambda p, s, i: "def f(x): return 2 * x", name="double")
    result = Refinement(double, FunctionGenerator(mend), verifier=PublicTests(sandbox)).solve(square)
    assert [(o.sequence.text[17:], o.value) for o in result.candidates] == [("2 * x", 0.5), ("x * x", 1.0)]


# -- prefixes, nesting, budgets ----------------------------------------------------------------------


def test_a_revision_begins_with_the_prefix_and_extends_it() -> None:
    seen: list[tuple[str | None, str]] = []

    def mend(prefix: Sequence, seed: int, index: int) -> str:
        seen.append((prefix.prompt.text, prefix.text))
        return " three"

    prefix = Sequence.of(PROMPT).extend("one two", step_end=7)
    scores = values({"one two 4": Score(0.0, feedback="wrong"), "one two three": 1.0})
    strategy = Refinement(writes(" 4"), FunctionGenerator(mend), verifier=scores, ask=LINE)
    chain = chain_of(strategy, prefix)
    assert seen == [("Count:one two 4\n\n|wrong\n\n", "one two")]
    revision = chain.rounds[1].candidate.sequence
    assert revision.text == "one two three" and revision.extends(prefix) and revision.steps == (7,)
    assert revision.logprob is None and revision.finish == "eos"

    silent = chain_of(
        Refinement(writes(" 4"), writes(" "), verifier=values({"one two 4": 0.0}), rounds=1), prefix
    )
    assert silent.rounds[1].made == "nothing"


def test_what_it_supports_is_declared() -> None:
    whole = numbers()
    whole.accepts_prefix = False
    prefix = Sequence.of(PROMPT).extend("begun")
    for strategy in (
        Refinement(numbers(), whole, verifier=first_word),
        Refinement(whole, numbers(), verifier=first_word),
    ):
        assert not strategy.accepts_prefix
        with pytest.raises(UnsupportedError, match="from a prompt only"):
            run(lambda s, strategy=strategy: strategy.generate(prefix, scope=s))  # type: ignore[misc]
    assert Refinement(numbers(), verifier=first_word).accepts_prefix
    with pytest.raises(UnsupportedError, match="to the end only"):
        run(lambda s: Refinement(numbers(), rounds=0).generate(Sequence.of(PROMPT), until=Step(), scope=s))


@pytest.mark.parametrize("calls", range(9))
def test_wherever_calls_run_out_the_best_so_far_stands(calls: int) -> None:
    """Draft, score, tool, revision, score, tool, revision, score: the budget ends before, between and after each."""
    drafts = {"a": 0.2, "b": 0.6, "c": 0.4}
    strategy = Refinement(
        writes("a"),
        writes("b", "c"),
        verifier=values(dict(drafts)),
        feedback=tool(lambda: "no"),
        rounds=2,
    )
    journal = MemoryJournal()
    result = strategy.solve(PROMPT, budget={"calls": calls}, journal=journal)
    assert result.text == ["", "a", "a", "a", "a", "b", "b", "b", "b"][calls]
    assert result.usage.calls == calls and result.exhausted == (calls < 8)
    again = strategy.solve(
        PROMPT, budget={"calls": calls}, journal=journal
    )  # writes() has nothing more to give
    assert (again.text, again.candidates) == (result.text, result.candidates)
    score = result.sequence.scores["function"]
    assert (
        (score.value, score.verdict) == (drafts.get(result.text), None) if calls > 1 else score.value is None
    )


def test_a_draft_or_a_revision_that_the_budget_cuts_is_not_scored() -> None:
    def word(prefix: Sequence, seed: int, index: int) -> str:
        return "four"

    generator = FunctionGenerator(word, count=len, max_tokens=4)
    strategy = Refinement(generator, verifier=FunctionVerifier(lambda s: 0.5), rounds=3)
    result = strategy.solve(PROMPT, budget={"generated": 3})
    assert result.exhausted and result.text == "" and result.usage.generated == 0


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.08, 0.13])
def test_a_deadline_anywhere_leaves_the_best_and_a_replay_ends_alike(seconds: float) -> None:
    calls: list[str] = []

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        calls.append("write")
        await asyncio.sleep(0.02)
        return str(seed % 1000)

    async def remark(candidate: str) -> str:
        calls.append("remark")
        await asyncio.sleep(0.02)
        return "greater"

    measure = FunctionVerifier(lambda s: int(s.text) / 1000)
    strategy = Refinement(FunctionGenerator(write), verifier=measure, feedback=tool(remark), rounds=50)
    journal = MemoryJournal()
    first = strategy.solve(PROMPT, budget={"seconds": seconds}, journal=journal)
    calls.clear()
    again = strategy.solve(PROMPT, budget={"seconds": seconds}, journal=journal)
    assert first.exhausted and (again.text, again.candidates) == (first.text, first.candidates) and not calls
    found = [o.value for o in first.candidates if o.value is not None]
    assert not found or first.sequence.scores["function"].value == max(found)


def test_journal_cut_short_anywhere_resumes_to_the_same_end() -> None:
    strategy = Refinement(
        numbers(), verifier=first_word, feedback=tool(lambda candidate: candidate[:4]), rounds=3, memory=2
    )
    whole = CountingJournal()
    first = strategy.solve(PROMPT, journal=whole)
    rows = list(first.trace.rows)
    assert len(rows) == 4 + 4 + 3
    for kept in range(len(rows) + 1):

        async def resumed(kept: int = kept) -> tuple[Result, int]:
            journal = CountingJournal()
            await journal.record(rows[:kept])
            journal.recorded = 0
            return await strategy.asolve(PROMPT, journal=journal), journal.recorded

        again, paid = asyncio.run(resumed())
        assert again.text == first.text and again.candidates == first.candidates
        assert paid == len(rows) - kept


def test_cancelled_in_a_revision_it_ends_and_keeps_what_was_paid_for() -> None:
    async def main() -> int:
        waiting = asyncio.Event()

        async def mend(prefix: Sequence, seed: int, index: int) -> str:
            waiting.set()
            await asyncio.sleep(60)
            return "never"

        journal = CountingJournal()
        strategy = Refinement(writes("a"), FunctionGenerator(mend), verifier=values({"a": 0.1}))
        task = asyncio.create_task(strategy.asolve(PROMPT, journal=journal))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return journal.recorded

    assert asyncio.run(main()) == 2


def test_chains_side_by_side_at_equal_budget_and_what_they_cost() -> None:
    """n chains of depth d by nesting: the scores that the chains have paid for choose among them."""
    inner = Refinement(numbers(), verifier=first_word, rounds=2)
    chains = BestOfN(inner, 3, verifier=RecordedVerifier(first_word.name))
    samples = BestOfN(numbers(), 9, verifier=first_word)
    deep, wide = chains.solve(PROMPT), samples.solve(PROMPT)
    assert deep.usage.calls == wide.usage.calls == 18 and deep.usage.generated == wide.usage.generated
    rows = [r for r in deep.trace.rows if r.kind == "generate" and r.payload]
    best = max((r.payload["text"] for r in rows if r.payload), key=lambda text: float(text.split()[0]))
    assert deep.text == best
    assert {place: len(found) for place, found in texts_by_round(deep.trace).items()} == {
        f"0/sample/{i}": 3 for i in range(3)
    }
    for calls in range(19):
        result = chains.solve(PROMPT, budget={"calls": calls})
        assert result.usage.calls <= calls and result.exhausted == (calls < 18)


def test_strategies_are_drafts_and_correctors_too() -> None:
    draft = BestOfN(numbers(), 2, verifier=first_word)
    corrector = BestOfN(numbers(), 3, verifier=first_word)
    result = Refinement(draft, corrector, verifier=first_word, rounds=1).solve(PROMPT)
    paths = {r.path for r in result.trace.rows if r.kind == "generate"}
    assert paths == {"0/sample/0/sample", "0/revise/1/0/sample"} and len(result.candidates) == 2


def test_an_oracle_is_seen_in_any_part() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    oracle = OracleVerifier(grade)
    assert Refinement(numbers(), verifier=oracle).oracle and Refinement(numbers(), feedback=oracle).oracle
    assert not Refinement(numbers(), verifier=first_word).oracle
    assert Refinement(numbers(), verifier=oracle).solve(PROMPT).oracle


def test_bad_options_are_refused_when_it_is_built() -> None:
    with pytest.raises(InputError, match="rounds=-1"):
        Refinement(numbers(), verifier=first_word, rounds=-1)
    with pytest.raises(InputError, match="memory=-2"):
        Refinement(numbers(), verifier=first_word, memory=-2)
    for accept in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="expected a score in"):
            Refinement(numbers(), verifier=first_word, accept=accept)
    with pytest.raises(InputError, match="neither verifier nor feedback"):
        Refinement(numbers())
    wrong = Refinement(numbers(), verifier=first_word, ask=lambda p, c, f: c)  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="expected a Prompt"):
        wrong.solve(PROMPT)


def test_fingerprints_tell_configurations_apart() -> None:
    g, v = numbers(), first_word
    other = FunctionVerifier(lambda s: 0.0, name="other")
    made = [
        Refinement(g, verifier=v), Refinement(g, verifier=v, rounds=4), Refinement(g, verifier=v, accept=0.5),
        Refinement(g, verifier=other), Refinement(g, writes(name="c"), verifier=v), Refinement(g, verifier=v, ask=LINE),
        Refinement(g, verifier=v, memory=1), Refinement(g, verifier=v, feedback=Silence()),
        Refinement(g, verifier=v, feedback=other), Refinement(g, verifier=v, feedback=tool(lambda: None)),
        Refinement(g, verifier=v, feedback=tool(lambda: None, name="u")),
        Refinement(g, verifier=v, feedback=tool(lambda: None, ends=True)),
    ]  # fmt: skip
    assert len({one.fingerprint for one in made}) == len(made)
    assert Refinement(g, verifier=v).fingerprint == made[0].fingerprint


# -- studies -----------------------------------------------------------------------------------------


def test_values_and_copies_by_round_as_arrays() -> None:
    chains = [
        chain_of(Refinement(writes("a"), writes("a", "b"), verifier=values({"a": 0.5, "b": 1.0}), rounds=3)),
        chain_of(
            Refinement(
                writes("a"),
                writes("", "c"),
                verifier=values({"a": 0.5, "c": Score(None, verdict="odd")}),
                rounds=2,
            )
        ),
    ]
    found, copies = by_round(chains, 3)
    nan = np.nan
    np.testing.assert_array_equal(found, [[0.5, 0.5, 1.0, nan], [0.5, 0.5, nan, nan]])
    np.testing.assert_array_equal(copies, [[nan, 1, 0, nan], [nan, 0, 0, nan]])


def test_named_wrong_characters_come_right_at_the_rate_of_chance() -> None:
    """Each wrong character is drawn again, right with 1/4: after k rounds it is right with 1 − (3/4)^(k+1)."""
    target, rounds = "ABCDABCDABCDABCD", 4

    def draw(prefix: Sequence, seed: int, index: int) -> str:
        rng = random.Random(seed)
        draft, _, said = (prefix.prompt.text or "").removeprefix("Count:").partition("|")
        old = draft.strip() or "?" * len(target)
        named = {int(i) for i in said.split()} if said.strip() else set(range(len(target)))
        return "".join(rng.choice("ABCD") if i in named else c for i, c in enumerate(old))

    def spelt(sequence: Sequence) -> Score:
        wrong = [i for i, (a, b) in enumerate(zip(sequence.text, target, strict=True)) if a != b]
        return Score(1 - len(wrong) / len(target), feedback=" ".join(map(str, wrong)))

    strategy = Refinement(
        FunctionGenerator(draw), verifier=FunctionVerifier(spelt), rounds=rounds, ask=FollowUp("|{feedback}")
    )
    n = 100
    prefix = Sequence.of(PROMPT)
    chains, _ = run(lambda s: s.gather(*(strategy.trajectory(prefix, s.child(str(i))) for i in range(n))))
    found, _ = by_round(chains, rounds)
    # An accepted chain stays right. 1,600 characters: five standard errors are false once in 350,000 runs of five.
    filled = np.where(np.isnan(found), 1.0, found).mean(axis=0)
    expected = 1 - 0.75 ** np.arange(1, rounds + 2)
    assert np.all(np.abs(filled - expected) < 5 * np.sqrt(expected * (1 - expected) / (n * len(target))))


# -- on an embedded model ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[TorchEngine, TorchEngine]]:
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        yield model, judge


def test_on_an_embedded_model_drafts_are_redrawn_until_the_reward_model_is_sure(
    engines: tuple[TorchEngine, TorchEngine],
) -> None:
    """The corrector gets the problem itself again, so that revisions keep their ids and log-probabilities."""
    model, judge = engines
    question = Prompt("q", text="Q:a=12+7;b=a*3;c=b-8;c?\nS:\n")
    strategy = Refinement(
        model.generator(max_tokens=120), verifier=ProcessRewardModel(judge), rounds=2,
        ask=lambda prompt, candidate, feedback: prompt,
    )  # fmt: skip
    journal = CountingJournal()
    result = strategy.solve(question, journal=journal)
    paid = journal.recorded
    assert 2 <= paid <= 6 and result.sequence.logprob is not None and result.sequence.tokens is not None
    found = [o.value for o in result.candidates if o.value is not None]
    assert result.sequence.scores["prm"].value == max(found)
    assert strategy.solve(question, journal=journal) == result and journal.recorded == paid
    for tokens in (20, 50):
        short = strategy.solve(question, budget={"generated": tokens})
        assert short.exhausted and short.usage.generated is not None and 0 < short.usage.generated <= tokens
        kinds = [row.kind for row in short.trace.rows if row.status != "refused"]
        assert kinds == (["generate"] if tokens == 20 else ["generate", "score", "generate"]), (
            "what is cut is not scored"
        )
        assert result.candidates[0].sequence.text.startswith(short.text) and short.text
