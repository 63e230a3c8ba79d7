"""What is told of a text on its way is what it will begin with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.generators.continuation import Continuation
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.telling import EVERY, Ear, Telling
from metagen.sequence import Sequence

#: Characters, and characters in parts, as tokens of bytes have them.
PIECES = [
    b"a",
    b"EN",
    b"D",
    b"END",
    b" ",
    *(bytes([byte]) for byte in "é𝄞".encode()),
    "数学".encode(),
    b"\xff",
]
SEVERAL = st.lists(st.integers(0, len(PIECES) - 1), max_size=60)


def decode(ids: list[int]) -> str:
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")


def all_told(
    ids: list[int],
    *,
    stop: tuple[str, ...] = (),
    before: str = "",
    decode: Callable[[list[int]], str] = decode,
) -> tuple[list[str], Continuation]:
    """What is told if every token is a time to tell."""
    prefix = Sequence.of("x").extend(before) if before else Sequence.of("x")
    request = GenerateRequest(prefix, (0,), SamplingParams(stop=stop), 1000)
    continuation, told = Continuation(decode, request, (0, 0)), list[str]()
    telling = Telling(continuation, told.append)
    for count in range(1, len(ids) + 1):
        telling.hear(ids[:count])
    return told, continuation


@given(SEVERAL)
def test_texts_grow_into_that_of_all_tokens(ids: list[int]) -> None:
    told, continuation = all_told(ids)
    whole = continuation.text(ids, final=True)
    for shorter, longer in zip(told, [*told[1:], whole], strict=True) if told else ():
        assert longer.startswith(shorter)
    if told:
        assert told[-1] == whole.rstrip("\ufffd"), "nothing but a part of a character is held back"


@given(SEVERAL, st.sampled_from(["", "E", "aEN"]))
def test_no_more_is_told_than_what_a_stop_string_leaves(ids: list[int], before: str) -> None:
    stops = ("END", "Da", "EDEN")
    _, continuation = all_told(ids, stop=stops, before=before)
    ends = (continuation.sample(ids[:n], [0.0] * n) for n in range(1, len(ids) + 1))
    sample = next((one for one in ends if one is not None), None)
    used = ids if sample is None else ids[: sample.generated]
    told, _ = all_told(used, stop=stops, before=before)
    final = continuation.text(used, final=True) if sample is None else sample.text
    assert all(final.startswith(text) for text in told)


def test_what_began_in_the_prefix_is_held_back() -> None:
    told, _ = all_told([2, 0, 0], stop=("ENDa!",), before="EN")
    assert told == ["", "", "Daa"]


def test_only_the_newest_tokens_are_decoded() -> None:
    longest = 0

    def watched(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    told, _ = all_told([0, 4] * 500, decode=watched)
    assert told[-1] == "a " * 500 and longest < 20


def test_decoders_that_change_the_beginning_of_a_text_are_read_behind_some() -> None:
    """As those of SentencePiece, which drop the first blank."""
    told, _ = all_told([0, 4] * 20, decode=lambda ids: decode(ids).removeprefix(" "))
    assert told[-1] == "a " * 20


def test_times_to_tell() -> None:
    request = GenerateRequest(Sequence.of("x"), (0,), SamplingParams(), 100)
    telling, times = Telling(Continuation(decode, request, (0,)), lambda text: None), []
    for count in (0, 1, 2, 3, 4, 5, 6, 12, 13, 16):
        if telling.due(count):
            times.append(count)
            telling.hear([0] * count)
    assert times == [1, 1 + EVERY, 12, 12 + EVERY]


@pytest.mark.parametrize("closed", [False, True])
def test_an_ear_hears_until_it_is_closed(closed: bool) -> None:
    told: list[tuple[int, str]] = []
    ear = Ear(lambda number, text: told.append((number, text)))
    if closed:
        ear.close()
    ear(0, "a")
    assert told == ([] if closed else [(0, "a")])
