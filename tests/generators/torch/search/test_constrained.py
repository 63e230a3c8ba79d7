"""Constrained beams: the phrases are there, and among texts that hold them the best are found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError
from metagen.generators.decoding.phrases import Phrases
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.engine import Sample
from metagen.generators.torch.search.beam import Candidate
from metagen.generators.torch.search.constrained import Constrained, Held, share
from tests.generators.torch.search.driver import Ids, every, ids, run, table

PHRASE = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)


def holds(text: Ids, phrase: Ids) -> bool:
    return any(text[i : i + len(phrase)] == phrase for i in range(len(text)))


def search(phrases: list[Ids], limit: int, width: int, before: Ids = ()) -> Constrained:
    spec = ConstrainedBeamSearch(width, 1.0, "bound", phrases=tuple(phrases))
    return Constrained(spec, limit, phrases, before)


@pytest.mark.parametrize("phrases", [[(1,)], [(2, 2)], [(0, 1), (1, 2)], [(0, 1, 0), (2,), (1, 0, 1)]])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_every_text_holds_all_phrases(phrases: list[Ids], width: int) -> None:
    for seed in range(5):
        found = run(search(phrases, 9, width), table(5, seed), 9, eos=4)
        assert found
        assert all(holds(text, phrase) for text in ids(found) for phrase in phrases)


@pytest.mark.parametrize("phrases", [[(1,)], [(0, 1), (1, 2)], [(0, 0)]])
def test_enough_beams_find_the_best_texts_that_hold_them(phrases: list[Ids]) -> None:
    model, limit, eos = table(4, 5), 4, 3
    right = {
        text: total / (len(text[0]) + text[1])
        for text, total in every(model, limit, eos, 4).items()
        if all(holds(text[0], phrase) for phrase in phrases)
    }
    # Banks have places of their own, so that every one must have enough.
    found = run(search(phrases, limit, 5 * 4**limit), model, limit, eos=eos)
    wanted = sorted(right.items(), key=lambda item: -item[1])
    assert [((s.ids or ()), s.finish == "eos") for s, _ in found] == [text for text, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted])


def test_phrases_that_just_fit_are_written() -> None:
    found = ids(run(search([(1, 2), (0, 0)], 4, 2), table(4, 0), 4, eos=3))
    assert set(found) <= {(1, 2, 0, 0), (0, 0, 1, 2)} and found


def test_what_the_completion_holds_already_need_not_come_again() -> None:
    assert ids(run(search([(1, 2)], 1, 1, before=(0, 1)), table(4, 0), 1)) == [(2,)]
    assert len(run(search([(1, 2)], 1, 4, before=(1, 2, 0)), table(4, 0), 1)) == 4


def test_phrases_may_overlap_to_fit() -> None:
    assert set(ids(run(search([(0, 1), (1, 2), (1,)], 3, 4), table(4, 0), 3, eos=3))) == {(0, 1, 2)}


def test_phrases_that_cannot_fit_are_an_error() -> None:
    with pytest.raises(InputError, match=r"need 5 tokens, and 4 are left of max_tokens; raise it by 1"):
        search([(1, 2, 3), (0, 0)], 4, 2)


def test_phrases_that_a_grammar_forbids_leave_no_result() -> None:
    assert not run(search([(2,)], 3, 2), table(4, 0), 3, allowed=lambda prefix: (0, 1))


@settings(max_examples=200, deadline=None)
@given(st.lists(PHRASE, min_size=1, max_size=3, unique=True), st.lists(st.integers(0, 2), max_size=12))
def test_progress_is_what_a_search_in_the_text_finds(phrases: list[Ids], text: list[int]) -> None:
    tracker = Phrases(phrases)
    progress = tracker.start(text)
    for phrase, at in zip(phrases, progress, strict=True):
        if holds(tuple(text), phrase):
            assert at == len(phrase)
        else:
            ends = [n for n in range(len(phrase)) if tuple(text[len(text) - n :]) == phrase[:n]]
            assert at == max(ends)
    # Some token that leads on always needs one fewer, and no token two fewer: so it is the fewest.
    while needed := tracker.fewest_tokens(progress):
        after = {token: tracker.after(progress, token) for token in range(3)}
        assert min(map(tracker.fewest_tokens, after.values())) == needed - 1
        progress = min((after[token] for token in tracker.following(progress)), key=tracker.fewest_tokens)
        assert tracker.fewest_tokens(progress) == needed - 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 10))
def test_beams_are_shared_by_banks(banks: list[int], width: int) -> None:
    found = [Held(Candidate(-float(i), i, 0), (bank,), None) for i, bank in enumerate(banks)]
    taken = share(found, width, 3)
    assert len(taken) == min(width, len(found)), "no place is left empty"
    assert taken == [one for one in found if one in taken], "the best first"
    for bank in range(4):
        mine = [one for one in taken if one.bank == bank]
        assert mine == [one for one in found if one.bank == bank][: len(mine)], "the best of its bank"
        quota = width // 4 if bank < 3 else width - 3 * (width // 4)
        assert len(mine) >= min(quota, banks.count(bank)), "a bank has what is its own"


def test_a_text_that_ends_too_early_is_no_candidate() -> None:
    """The end token is by far the best, and may not come before the phrase."""
    model = table(4, 0)

    def eager(rows: list[Ids]):  # type: ignore[no-untyped-def]
        logits = model(rows)
        logits[:, 3] = 20.0
        return logits

    ((sample, _),) = run(search([(1, 2)], 6, 1), eager, 6, eos=3)  # type: ignore[arg-type]
    assert isinstance(sample, Sample)
    assert sample.ids == (1, 2) and sample.finish == "eos"
