"""Refinement: draft, feedback, revision; the best seen; what equal texts, silence and failures do to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.budget import Budget
from metagen.errors import EngineError, InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Score, Sequence, Step
from metagen.strategies.parallel import BestOfN, Sample
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement, refinement
from metagen.strategies.refine.trajectory import copies_of, texts_by_round
from metagen.testing import CountingJournal, StrategyLaws, first_word, numbers, run
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier
from metagen.verifiers.recorded import RecordedVerifier
from tests.strategies.refine.toys import LINE, PROMPT, chain_of, texts, tool, values, writes


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
        with pytest.raises(InputError, match="expected a number in"):
            Refinement(numbers(), verifier=first_word, accept=accept)
    with pytest.raises(InputError, match="neither verifier nor feedback"):
        Refinement(numbers())
    with pytest.raises(
        InputError, match=r"Refinement: accept=0\.7 ends nothing, for nothing scores an answer; give"
    ):
        Refinement(numbers(), feedback=Silence(), accept=0.7)
    with pytest.raises(InputError, match="refinement: silent=True: nothing is said, and feedback="):
        refinement(numbers(), 2, verifier=first_word, feedback=first_word, silent=True)
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
