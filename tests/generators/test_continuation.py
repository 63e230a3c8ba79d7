"""Where text ends a sample, in tokens that span and split characters."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metagen.generators.continuation import Continuation
from metagen.generators.engine import GenerateRequest, Sample, SamplingParams
from metagen.sequence import Prompt, Sequence, Step, TokenIds, Tokens

#: Token i is these bytes; some are pieces of characters.
PIECES = [b"a", b"b", b"c", b"ab", b"bc", b"\n", b"c\nab", "é".encode()[:1], "é".encode()[1:], b"\n\n", b"x"]


def decode(ids: list[int]) -> str:
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")


def of_bytes(ids: list[int]) -> str:
    """Every token is one byte."""
    return bytes(ids).decode("utf-8", "replace")


def run(
    tokens: list[int], *, prefix: Sequence | None = None, ids: tuple[int, ...] = (10,), **options: Any
) -> Sample:
    """Feed tokens one by one until the sample ends."""
    until, most = options.pop("until", None), options.pop("max_tokens", 100)
    request = GenerateRequest(
        prefix or Sequence(Prompt("p", "x")), (0,), SamplingParams(logprobs=True, **options), most, until
    )
    continuation = Continuation(decode, request, ids)
    for n in range(1, len(tokens) + 1):
        sample = continuation.sample(tokens[:n], [-1.0] * n)
        if sample is not None:
            assert sample.generated == n
            assert sample.logprob == -n
            assert sample.token_logprobs == (-1.0,) * n
            return sample
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("tokens", "stop", "text", "kept"),
    [
        ([0, 1, 2], ("bc",), "a", 1),
        ([0, 3, 2, 0], ("bc",), "aa", 1),
        ([3, 4], ("b",), "a", 0),
        ([0, 4, 6], ("\nab", "cc"), "ab", 1),
        ([5, 0, 5, 5], ("\n\n",), "\na", 2),
        ([0, 7, 8], ("é",), "a", 1),
        ([0, 9], ("\n", "\n\n"), "a", 1),
    ],
)
def test_stop_strings_cut_the_text_before_them(
    tokens: list[int], stop: tuple[str, ...], text: str, kept: int
) -> None:
    sample = run(tokens, stop=stop)
    assert (sample.text, sample.ids, sample.finish) == (text, tuple(tokens[:kept]), "stop")


def test_a_stop_string_that_begins_in_the_prefix_cuts_nothing_of_it() -> None:
    prefix = Sequence(Prompt("p", "x"), text="a\n")
    sample = run([5, 0], prefix=prefix, ids=(10, 0, 5), stop=("\n\n",))
    assert (sample.text, sample.ids, sample.finish) == ("", (), "stop")
    longer = run([2, 0], prefix=Sequence(Prompt("p", "x"), text="ab"), ids=(10, 3), stop=("abc",))
    assert (longer.text, longer.ids, longer.finish) == ("", (), "stop")


def test_a_stop_string_that_lies_in_the_prefix_ends_nothing() -> None:
    prefix = Sequence(Prompt("p", "x"), text="a\n\nb")
    sample = run([0], prefix=prefix, ids=(10, 0, 9, 1), stop=("\n\n",), max_tokens=1)
    assert (sample.text, sample.finish) == ("a", "length")


def test_a_step_keeps_what_hangs_over() -> None:
    sample = run([0, 6, 0], until=Step("\n"))
    assert (sample.text, sample.step_end, sample.finish, sample.cut) == ("ac\nab", 3, None, False)
    assert sample.ids == (0, 6)


def test_the_delimiter_of_the_step_before_is_not_found_again() -> None:
    prefix = Sequence(Prompt("p", "x"), text="a\n", steps=(2,))
    sample = run([5, 5], prefix=prefix, ids=(10, 0, 5), until=Step("\n\n"))
    assert (sample.text, sample.step_end) == ("\n\n", 2)
    # But one that a cut step began is completed.
    begun = Sequence(Prompt("p", "x"), text="a\n", cut=True)
    sample = run([5, 5], prefix=begun, ids=(10, 0, 5), until=Step("\n\n"))
    assert (sample.text, sample.step_end) == ("\n", 1)


def test_stop_string_and_delimiter_the_first_to_end_wins() -> None:
    assert run([0, 9], until=Step("\n"), stop=("\n\n",)).step_end == 2
    assert run([0, 5], until=Step("\n"), stop=("\n",)).finish == "stop"


def test_limits() -> None:
    cut = run([0, 0, 0], until=Step("\n", max_tokens=2))
    assert (cut.finish, cut.cut, cut.step_end, cut.generated) == (None, True, None, 2)
    block = run([0, 0, 0], until=Tokens(2))
    assert (block.finish, block.cut, block.generated) == (None, False, 2)
    for until in (None, Tokens(2), Step("\n", max_tokens=2)):
        assert run([0, 0], until=until, max_tokens=2).finish == "length"
    last = run([0, 5], until=Step("\n"), max_tokens=2)
    assert (last.finish, last.step_end) == ("length", 2)


def test_incomplete_characters_are_held_back_while_they_can_be_completed() -> None:
    held = run([0, 7], until=Tokens(2))
    assert (held.text, held.ids) == ("a", (0, 7))
    prefix = Sequence(Prompt("p", "x"), text="a")
    assert run([8, 1], prefix=prefix, ids=(10, 0, 7), until=Tokens(2)).text == "éb"
    assert run([0, 7], max_tokens=2).text == "a\ufffd" == decode([0, 7])


def blocks(prompt: list[int], sizes: list[int], ids: list[int]) -> str:
    """The text of `ids` where they are drawn block by block."""
    prefix = Sequence(Prompt("p", of_bytes(prompt)))
    for size in sizes:
        begun = list(prefix.tokens.ids) if prefix.tokens is not None else []
        new = ids[len(begun) : len(begun) + size]
        request = GenerateRequest(prefix, (0,), SamplingParams(), len(ids) - len(begun), Tokens(size))
        sample = Continuation(of_bytes, request, (*prompt, *begun)).sample(new, [-1.0] * size)
        assert sample is not None
        prefix = prefix.extend(sample.text, tokens=TokenIds(tuple(new), "bytes"), finish=sample.finish)
    assert prefix.finish == "length"
    return prefix.text


@given(
    st.sampled_from(["x", "é\ufffd", "\ufffd" * 9]),
    st.lists(
        st.lists(st.sampled_from(b"ab\n\x80\xff\xe2\x82\xac\xf0\x9f\x98"), min_size=1, max_size=9), min_size=1
    ),
)
@example("x", [[0xFF] * 7, [97]])
@example("x", [[97, *[0xFF] * 9], [0xFF] * 9, [97]])
@example("\ufffd", [[0xFF, 0xE2, 0x82], [0xAC]])
def test_blocks_read_as_one_whatever_their_bytes(prompt: str, parts: list[list[int]]) -> None:
    """Also where invalid bytes run on for longer than the tokens behind which a block is decoded."""
    ids, head = [i for part in parts for i in part], list(prompt.encode())
    whole = of_bytes([*head, *ids])[len(prompt) :]
    assert blocks(head, [len(part) for part in parts], ids) == whole


def test_end_tokens_come_before_texts() -> None:
    request = GenerateRequest(Sequence(Prompt("p", "x")), (0,), SamplingParams(stop=("b",)), 2)
    sample = Continuation(decode, request, (10,)).sample([0, 1], [-1.0, -2.0], eos=True)
    assert sample == Sample("a", (0,), 2, -3.0, None, "eos")


def test_a_look_for_a_stop_string_takes_the_newest_tokens_alone() -> None:
    """However long a completion is, each token costs the same; and what is found is found as before."""
    read: list[int] = []

    def counted(ids: list[int]) -> str:
        read.append(len(ids))
        return decode(ids)

    request = GenerateRequest(Sequence(Prompt("p", "x")), (0,), SamplingParams(stop=("\n\n",)), 10_000)
    continuation = Continuation(counted, request, (10,))
    tokens = [0, 1, 5, 2, 7, 8] * 500
    for n in range(1, len(tokens) + 1):
        assert continuation.sample(tokens[:n], [-1.0] * n) is None
    assert sum(read) < 25 * len(tokens)
    sample = continuation.sample([*tokens, 5, 5], [-1.0] * (len(tokens) + 2))
    assert sample is not None and (sample.text, sample.finish) == (decode(tokens), "stop")


@pytest.mark.parametrize(
    "tokens", [[0] * 30 + [9], [0] * 30 + [5, 0, 5, 5], [7, 8] * 20 + [3, 5, 9], [0] * 30 + [8, 9]]
)
def test_the_tail_finds_what_the_whole_finds(tokens: list[int]) -> None:
    sample = run(tokens, stop=("\n\n",))
    whole = decode(tokens).split("\n\n")[0]
    assert sample.text == whole and sample.generated == len(tokens)
