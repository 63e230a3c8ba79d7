"""Values: prompts, sequences, scores, and the names of their contents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError, PromptError
from metagen.sequence import (
    Finish,
    Message,
    Prompt,
    Score,
    Sequence,
    Step,
    Thought,
    TokenIds,
    Tokens,
    digest,
    digest_of_many,
)
from metagen.strategies.prompts import begin
from metagen.strategies.reopen import reopen

parts = st.lists(st.text(max_size=3) | st.binary(max_size=3), max_size=4)


@settings(max_examples=60)
@given(parts, parts)
def test_digests_name_lists_of_parts(a: list[str | bytes], b: list[str | bytes]) -> None:
    def encoded(xs: list[str | bytes]) -> list[bytes]:
        return [x.encode() if isinstance(x, str) else x for x in xs]

    assert (digest(*a) == digest(*b)) == (encoded(a) == encoded(b))
    assert len(digest(*a)) == 16
    assert digest_of_many(iter(a)) == digest(*a)


def test_digests_bear_lone_surrogates() -> None:
    assert digest("\ud800") != digest("\ud801")


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (None, ()),
        ("", ()),
        ("x", (Message("user", "y"),)),
        (None, (Message("user", ""), Message("assistant", ""))),
    ],
)
def test_a_prompt_is_a_text_or_messages_and_not_empty(
    text: str | None, messages: tuple[Message, ...]
) -> None:
    with pytest.raises(PromptError, match=r"prompt 'p'.*give"):
        Prompt("p", text=text, messages=messages)


def test_prompts_are_made_of_what_people_type() -> None:
    assert Prompt.of("2 + 2") == Prompt.of("2 + 2") != Prompt.of("2 + 3")
    chat = Prompt.of([{"role": "user", "content": "2 + 2"}, Message("assistant", "The sum")])
    assert chat.messages == (Message("user", "2 + 2"), Message("assistant", "The sum"))
    assert Prompt.of(chat) is chat
    with pytest.raises(PromptError, match="is empty"):
        Prompt.of("")


def test_a_prompts_digest_names_content_and_public_data_and_not_the_id() -> None:
    base = Prompt("p", text="x", public={"a": [1, 2], "b": 0})
    assert base.digest == Prompt("q", text="x", public={"b": 0, "a": [1, 2]}).digest
    others = [
        Prompt("p", text="y", public=base.public), Prompt("p", text="x"), Prompt("p", text="x", public={"a": [1, 2]}),
        Prompt("p", messages=(Message("user", "x"),)), Prompt("p", messages=(Message("assistant", "x"),)),
        Prompt("p", messages=(Message("user", "x"), Message("assistant", ""))),
    ]  # fmt: skip
    assert len({base.digest, *(p.digest for p in others)}) == 7


def test_values_can_be_members_of_sets() -> None:
    prompt = Prompt("p", text="x", public={"a": [1]})
    sequence = Sequence(prompt, "y").with_score("v", Score(0.5))
    assert {prompt, Prompt("p", text="x", public={"a": [1]})} == {prompt}
    assert len({sequence, Sequence(prompt, "y").with_score("v", Score(0.5)), Sequence(prompt, "z")}) == 2


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_scores_value_lies_between_0_and_1(value: float) -> None:
    with pytest.raises(InputError, match=r"lies in \[0, 1\].*raw="):
        Score(value)


def test_a_score_says_something() -> None:
    with pytest.raises(InputError, match="value or a verdict"):
        Score(None)
    assert Score(None, verdict="timeout").value is None


def test_a_step_by_step_extension_is_the_whole() -> None:
    start = Sequence.of("x")
    assert Sequence.of(start) is start
    one = start.extend(
        "a\n", tokens=TokenIds((1, 2), "t"), logprob=-1.0, token_logprobs=(-0.5, -0.5), step_end=2
    )
    two = one.extend(
        "b", tokens=TokenIds((3,), "t"), logprob=-2.0, token_logprobs=(-2.0,), finish="eos", step_end=1
    )
    assert two.tokens == TokenIds((1, 2, 3), "t") and two.token_logprobs == (-0.5, -0.5, -2.0)
    assert (two.text, two.logprob, two.finish, two.steps) == ("a\nb", -3.0, "eos", (2, 3))
    assert two.extends(one) and one.extends(start) and not one.extends(two)
    assert not two.extends(Sequence(Prompt("other", text="x")))
    assert len({start.digest, one.digest, two.digest}) == 3
    with pytest.raises(InputError, match="finish='eos'"):
        two.extend("c")


def test_what_is_unknown_of_a_part_is_unknown_of_the_whole() -> None:
    known = Sequence.of("x").extend("a", tokens=TokenIds((1,), "t"), logprob=-1.0, token_logprobs=(-1.0,))
    assert known.extend("b", tokens=TokenIds((2,), "another tokenizer"), logprob=-1.0).tokens is None
    bare = known.extend("b")
    assert (bare.tokens, bare.logprob, bare.token_logprobs) == (None, None, None)
    after = bare.extend("c", tokens=TokenIds((3,), "t"), logprob=-1.0, token_logprobs=(-1.0,))
    assert (after.tokens, after.logprob, after.token_logprobs) == (None, None, None)


def test_what_masks_left_adds_up_and_is_unknown_where_a_part_is() -> None:
    start = Sequence.of("x")
    assert start.log_mass is None
    one = start.extend("", tokens=TokenIds((1,), "t"), log_mass=-0.5)
    assert one.extend("ab", log_mass=-1.0).log_mass == -1.5
    assert one.extend("ab").log_mass is None
    assert start.extend("a").extend("b", log_mass=-1.0).log_mass is None
    hidden = start.extend("", tokens=TokenIds((1,), "t"))
    assert hidden.extend("b", log_mass=-1.0).log_mass is None, "a token without text counts, too"
    ended = one.extend("ab", log_mass=-1.0, finish="eos")
    assert reopen(ended).log_mass is None, "the end has a part of it"
    assert reopen(replace(ended, finish="length")).log_mass == -1.5
    assert (
        begin(ended, Prompt("q", text="y")).log_mass is None
        and ended.reroot(Sequence.of("y")).log_mass is None
    )


def test_confidences_of_tokens_are_kept_as_their_log_probabilities_are() -> None:
    start = Sequence.of("x")
    one = start.extend("a", token_confidences=(3.0,))
    two = one.extend("bc", token_confidences=(2.0, 1.5))
    assert two.token_confidences == (3.0, 2.0, 1.5) and two.token_logprobs is None
    assert one.extend("b").token_confidences is None
    assert one.extend("b").extend("c", token_confidences=(1.0,)).token_confidences is None
    assert one != start.extend("a") and one.digest == start.extend("a").digest
    assert one.reroot(Sequence.of("y")).token_confidences is None


def test_ids_without_text_yet_are_kept() -> None:
    """The first token holds only a part of the first character."""
    first = Sequence.of("x").extend("", tokens=TokenIds((240,), "t"), logprob=-1.0, token_logprobs=(-1.0,))
    whole = first.extend("é", tokens=TokenIds((159,), "t"), logprob=-1.0, token_logprobs=(-1.0,))
    assert whole.tokens == TokenIds((240, 159), "t") and whole.token_logprobs == (-1.0, -1.0)
    assert first.extend("é", tokens=TokenIds((7,), "u")).tokens == TokenIds((7,), "u")


def test_scores_belong_to_the_text_that_was_scored() -> None:
    scored = Sequence.of("x").extend("a").with_score("v", Score(0.1)).with_score("w", Score(0.2))
    assert set(scored.scores) == {"v", "w"}
    assert scored.extend("b").scores == {}


@pytest.mark.parametrize(
    "wrong", [lambda: Step(""), lambda: Step("\n", 0), lambda: Tokens(0), lambda: Tokens(-1)]
)
def test_a_step_and_a_block_have_a_size(wrong: Any) -> None:
    with pytest.raises(InputError):
        wrong()


def test_what_was_written_under_another_prompt_becomes_a_completion_of_the_prefix() -> None:
    asked = Sequence.of("x").extend("so ", step_end=3)
    written = Sequence.of("revise x").extend("a\nb", logprob=-1.0, finish="eos", step_end=2)
    rooted = written.reroot(asked)
    assert rooted.extends(asked) and (rooted.text, rooted.finish) == ("so a\nb", "eos")
    assert rooted.steps == (3, 5) and rooted.logprob is None
    assert rooted.reroot(asked) is rooted


# -- thoughts ------------------------------------------------------------------------------------------------


def test_a_thought_names_a_sequence_and_is_no_part_of_its_text() -> None:
    prompt = Prompt("p", text="x")
    plain, thinking = Sequence(prompt, "4"), Sequence(prompt, "4", thought=Thought("hm", 3))
    assert plain.digest != thinking.digest == Sequence(prompt, "4", thought=Thought("hm")).digest
    assert thinking.answered.digest == plain.digest and thinking.answered == plain
    assert thinking.whole.text == "hm\n\n4" and thinking.whole.thought is None
    assert Sequence(prompt, "4", thought=Thought(None, 9)).whole.text == "4"
    assert Sequence(prompt, "a\nb\n", steps=(2, 4), thought=Thought("hm")).whole.steps == (6, 8)


def test_what_goes_on_from_a_thought_extends_it() -> None:
    begin = Sequence(Prompt("p", text="x"), thought=Thought("a", 1, "<a", ended=False))
    more = begin.extend("4", thought=Thought("b", 2, "b>"), finish="eos")
    assert more.thought == Thought("ab", 3, "<ab>") and more.extends(begin) and more.written == "<ab>4"
    assert not replace(more, thought=Thought("b")).extends(begin)
    assert begin.extend("4").thought == begin.thought
    ids = TokenIds((1,), "t")
    assert replace(begin, tokens=None).extend("4", tokens=ids).tokens is None, (
        "they would not write the thought"
    )


def test_a_thought_goes_where_its_sequence_is_rooted() -> None:
    other = Sequence(Prompt("q", text="y"))
    thinking = Sequence(Prompt("p", text="x"), "4", thought=Thought("hm", 3))
    assert thinking.reroot(other).thought == Thought("hm", 3)


@pytest.mark.parametrize(
    ("finish", "ended", "cut"), [("length", False, True), ("length", True, False), ("eos", False, False)]
)
def test_a_cut_thought_says_so(finish: Finish, ended: bool, cut: bool) -> None:
    sequence = Sequence(Prompt("p", text="x"), finish=finish, thought=Thought("hm", ended=ended))
    assert sequence.cut_in_thought is cut


def test_a_thought_without_its_marks_cannot_be_written_down() -> None:
    with pytest.raises(PromptError, match="marks around it are not known"):
        _ = Sequence(Prompt("p", text="x"), "4", thought=Thought("hm")).written
