"""Token healing: what is dropped, what is forced, and the distribution that follows, by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from metagen.generators.decoding.constraint import Constraints, Held
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
from metagen.generators.models.sources import resolve
from metagen.generators.tokenizer import Tokenizer

TEXTS = (b"a", b"b", b"ab", b"abc", b"c", b"bc", b"ca", b"")
END = 7


@pytest.fixture(scope="module")
def held() -> Constraints:
    return Constraints.of_tokens(
        [*TEXTS[:END], b"<end>"], special=[END], eos=[END], encode=lambda text: ["abc".index(x) for x in text]
    )


def spelled(ids: tuple[int, ...]) -> bytes:
    return b"".join(TEXTS[i] for i in ids)


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ((0, 0), 1),  # "a" may be the beginning of "ab"
        ((0, 0, 1), 1),  # "ab", of "abc"
        ((0, 0, 3), 2),  # "c", of "ca"; the "ab" before it stays in the token that is dropped
        ((0, 3, 6), 2),  # the "a" of "ca"
        ((0,), 1),  # one token is left to the model
        ((0, END, 0), 2),
        ((0, 0, END), 3),  # nothing goes on across what stands for no text
    ],
)
def test_the_fewest_tokens_are_dropped_that_let_every_token_cross_the_end(
    ids: tuple[int, ...], kept: int
) -> None:
    boundaries = Boundaries(TEXTS)
    left, dropped = boundaries.heal(ids)
    assert left + dropped == ids and len(left) == kept


def test_every_writing_of_the_bytes_is_allowed_and_no_other() -> None:
    """Against all token sequences: those whose text begins with the bytes, cut where these are written."""
    boundaries = Boundaries(TEXTS)
    for text in (b"a", b"ab", b"abc", b"abcab", b"cabb"):
        wanted = set()
        for n in range(1, len(text) + 1):
            for ids in itertools.product(range(END), repeat=n):
                if spelled(ids).startswith(text) and len(spelled(ids[:-1])) < len(text):
                    wanted.add(ids)
        assert writings(ForcedBytes(boundaries, text)) == wanted


def writings(start: Held) -> set[tuple[int, ...]]:
    found, stack = set(), [((), start)]
    while stack:
        ids, here = stack.pop()
        if here.free:
            found.add(ids)
            continue
        for token in np.flatnonzero(here.allowed_tokens()).tolist():
            behind = here.copy()
            assert behind.consume([token])
            stack.append(((*ids, token), behind))
    return found


def test_bytes_that_no_token_leads_over_are_never_left_behind() -> None:
    """No token begins with d: "ab" must be written by the one token that writes all three."""
    boundaries = Boundaries((b"a", b"b", b"ab", b"abde"))
    assert writings(ForcedBytes(boundaries, b"abd")) == {(3,)}
    assert boundaries.spell(b"de") is None


def test_forced_bytes_lead_into_a_grammar(held: Constraints) -> None:
    """The grammar begins behind the bytes, within a token where that lies across their end."""
    boundaries = Boundaries(held.texts)
    start = ForcedBytes(boundaries, b"a", held.matcher(Grammar.regex("bc?", canonical=False)))
    texts = set()
    stack: list[tuple[tuple[int, ...], Held]] = [((), start)]
    while stack:
        ids, here = stack.pop()
        for token in np.flatnonzero(here.allowed_tokens()).tolist():
            if token == END:
                texts.add(ids)
                continue
            behind = here.copy()
            assert behind.consume([token])
            stack.append(((*ids, token), behind))
    assert texts == {(0, 1), (2,), (0, 1, 4), (2, 4), (3,), (0, 5)}
    assert not start.free and not start.copy().consume([1])
    ending = ForcedBytes(boundaries, b"c", held.matcher(Grammar.regex("aa")))
    assert ending.forced_tokens() == [] and ending.consume([6]) and ending.forced_tokens() == [0], (
        "never the end"
    )
    assert start.accepts([2, 4, END]) == 3 and start.accepts([2, 0]) == 1


def test_one_way_to_write_the_bytes_is_forced() -> None:
    boundaries = Boundaries((b"x", b"y", b"xyz", b"z"))
    start = ForcedBytes(boundaries, b"yz")
    assert start.forced_tokens() == [1, 3] and start.allowed_tokens().sum() == 1, "asking changes nothing"
    assert ForcedBytes(boundaries, b"x").forced_tokens() == []


def test_the_embedded_byte_pairs_heal_and_characters_have_nothing_to_heal() -> None:
    pairs = Tokenizer(resolve("tiny-bpe"), 404)
    boundaries = Boundaries(pairs.constraints().texts)
    ids = pairs.encode("Q:a=12+7;b=a*3;b?\nS:\n")
    kept, dropped = boundaries.heal(ids)
    assert kept + dropped == ids and pairs.decode(list(dropped)) == ":\n"
    across = [pairs.decode([i]) for i in np.flatnonzero(ForcedBytes(boundaries, b":\n").allowed_tokens())]
    assert set(across) == {":", ":\n", ":\nh"}
    letters = Tokenizer(resolve("tiny-0.1m"), 104)
    ids = letters.encode("Q:a=12+7;b?\nS:\n")
    assert Boundaries(letters.constraints().texts).heal(ids) == (ids, ())


P = {0: 0.25, 1: 0.2, 2: 0.1, 3: 0.05, 4: 0.1, 5: 0.05, 6: 0.05, END: 0.2}


def local(start: Held) -> dict[tuple[int, ...], tuple[float, float]]:
    """Of each writing, its probability by local masks, and the mass that these leave: Π_t Σ_{x allowed} p(x)."""
    found, stack = {}, [((), 1.0, 1.0, start)]
    while stack:
        ids, p, mass, here = stack.pop()
        if here.free:
            found[ids] = p, mass
            continue
        allowed = np.flatnonzero(here.allowed_tokens()).tolist()
        total = sum(P[i] for i in allowed)
        for token in allowed:
            behind = here.copy()
            behind.consume([token])
            stack.append(((*ids, token), p * P[token] / total, mass * total, behind))
    return found


def test_local_masks_are_not_the_model_given_the_bytes_and_the_masses_weigh_them_back() -> None:
    """p(· | the text begins with "ab") of a model whose tokens are independent draws."""
    found = local(ForcedBytes(Boundaries(TEXTS), b"ab"))
    given = {ids: math.prod(P[i] for i in ids) for ids in found}
    total = sum(given.values())
    assert total == pytest.approx(0.1 + 0.05 + 0.25 * (0.2 + 0.05))
    locally = {ids: p for ids, (p, _) in found.items()}
    # By a, of .25 + .1 + .05, comes 5/8 of what is drawn; given the bytes it is .0625 of .2125.
    assert locally[(0, 1)] + locally[(0, 5)] == pytest.approx(0.625)
    assert (given[(0, 1)] + given[(0, 5)]) / total == pytest.approx(5 / 17)
    weighed = {ids: p * mass for ids, (p, mass) in found.items()}
    assert sum(weighed.values()) == pytest.approx(total), "the mean mass is the probability of the bytes"
    assert weighed == pytest.approx(given)
