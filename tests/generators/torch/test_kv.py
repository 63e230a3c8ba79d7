"""Chains of segments under running rows: read in place or in slots, never copied a second time, all counted."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from metagen.generators.torch.kv.segments import KVSegment
from metagen.generators.torch.kv.slots import IN_PLACE
from metagen.generators.torch.kv.store import store_tokens
from metagen.generators.torch.models.llama import LlamaModel

pytestmark = pytest.mark.usefixtures("steps")

TEXT = np.random.default_rng(0).integers(5, 300, 900)


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def load(model_dir: Any, **options: Any) -> LlamaModel:
    options = {
        "dtype": torch.float32, "device": torch.device("cpu"), "batch": 8, "kv_bytes": 1 << 25, **options,
    }  # fmt: skip
    return LlamaModel(model_dir("llama"), **options)


def run(model: LlamaModel, row: int, tokens: np.ndarray) -> torch.Tensor:
    """The logits after each of the tokens, which the row takes in as many goes as it must."""
    found = []
    for at in range(0, len(tokens), model.chunk):
        part = tokens[at : at + model.chunk]
        found.append(model.extend(ids(row), part, ids(len(part)), np.arange(len(part))))
    return torch.cat(found)


@pytest.fixture(scope="module")
def right(model_dir: Any) -> torch.Tensor:
    """The logits after each token of TEXT, in a row of its own."""
    with torch.inference_mode():
        model = load(model_dir)
        model.open(ids(0), [])
        return run(model, 0, TEXT)


def cut(model: LlamaModel, *lengths: int) -> list[KVSegment]:
    """The first tokens of TEXT as segments of these lengths, computed in the last row."""
    row = model.rows - 1
    model.open(ids(row), [])
    run(model, row, TEXT[: sum(lengths)])
    ends = np.cumsum([0, *lengths]).tolist()
    chain = [model.save(row, a, b) for a, b in pairwise(ends)]
    model.close(ids(row))
    return chain


def goes_on(model: LlamaModel, rows: list[int], at: int, right: torch.Tensor, n: int = 2) -> None:
    """Rows that hold the first `at` tokens of TEXT take `n` more, one by one, with the right logits."""
    for i in range(at, at + n):
        found = model.extend(ids(*rows), np.full(len(rows), TEXT[i]))
        torch.testing.assert_close(found, right[i].expand(len(rows), -1), atol=1e-4, rtol=1e-4)


CHAINS = {
    "long behind short": (5, 300),
    "long in the middle": (5, 300, 20),
    "long ones and short ones by turns": (5, 200, 20, IN_PLACE, 60, 150, 3),
    "short ones of several slots": (30,) * 14,
    "several slots around a long one": (100, 60, 200, 70, 90),
    "one token each": (1,) * 40,
    "as long as a slot": (IN_PLACE, IN_PLACE - 1, 1),
}


@pytest.mark.parametrize("lengths", CHAINS.values(), ids=CHAINS)
@torch.inference_mode()
def test_rows_over_any_chain(lengths: tuple[int, ...], model_dir: Any, right: torch.Tensor) -> None:
    model = load(model_dir)
    chain = cut(model, *lengths)
    total = sum(lengths)
    model.open(ids(0, 1), chain)
    model.open(ids(2), chain)
    model.open(ids(3), [])
    model.extend(ids(3), TEXT[:3], ids(3))
    store = model._kv
    for row in (0, 1, 2):
        assert list(store._chains.in_place[row]) == [s for s in chain if len(s) >= IN_PLACE], (
            "the very segments"
        )
    # A row without a chain, and one over its beginning, beside those over the whole.
    model.open(ids(4), chain[:1])
    model.extend(ids(4, 3), ids(TEXT[lengths[0]], TEXT[3]))
    goes_on(model, [0, 1, 2], total, right)
    model.fork(ids(2), ids(5))
    model.move(ids(1), ids(6))
    goes_on(model, [0, 2, 5, 6], total + 2, right)
    shared = store._chains.slots.users[store._chains.slots_of(0)]
    assert (shared >= 4).all(), "rows with one chain share its slots"
    # What is saved has the order of the chain, wherever its segments are.
    whole = torch.cat([s.kv for s in chain], dim=3)
    rng = random.Random(1)
    for a, b in [(0, total), *(sorted(rng.sample(range(total + 1), 2)) for _ in range(5))]:
        assert torch.equal(model.save(0, a, b).kv, whole[:, :, :, a:b])
    assert len(model.save(5, total - 1, total + 3)) == 4
    model.close(ids(0, 2, 3, 4, 5, 6))
    assert not store._chains.slots.users.any()
    assert len(store._chains.slots._free) == model.rows


@torch.inference_mode()
def test_segments_split_under_running_rows(model_dir: Any, right: torch.Tensor, held: Any) -> None:
    model = load(model_dir)
    chain = cut(model, 5, 400, 60)
    model.open(ids(0, 1), chain)
    goes_on(model, [0, 1], 465, right)
    before = held()
    assert before == 465 * model.token_bytes
    for piece, at in ((0, 300), (0, 130), (-1, 3)):
        chain[1].pieces()[piece].split(at)
        assert held() == before, "a split holds nothing twice, also while rows read what was split"
    chain[2].split(7)
    goes_on(model, [0, 1], 467, right)
    # Rows that come later are given the pieces; those before them read on.
    pieces = [piece for segment in chain for piece in segment.pieces()]
    assert [len(p) for p in pieces] == [5, 130, 170, 3, 97, 7, 53]
    model.open(ids(2), pieces)
    goes_on(model, [2], 465, right, 4)
    goes_on(model, [0, 1, 2], 469, right)
    assert torch.equal(model.save(0, 0, 465).kv, model.save(2, 0, 465).kv)
    model.close(ids(0, 1, 2))
    del chain, pieces
    assert held() == 0, "rows that have gone hold nothing"


@torch.inference_mode()
def test_without_a_free_slot_short_segments_stay_in_place(model_dir: Any, right: torch.Tensor) -> None:
    model = load(model_dir, batch=2)
    chain = cut(model, *(100,) * 7)
    assert model.rows == 4
    model.open(ids(0), chain)
    assert len(model._kv._chains.slots_of(0)) == 4
    assert list(model._kv._chains.in_place[0]) == chain[4:]
    model.open(ids(1), chain[:6])
    goes_on(model, [0], 700, right)
    goes_on(model, [1], 600, right)
    model.close(ids(0, 1))
    assert len(model._kv._chains.slots._free) == 4


@torch.inference_mode()
def test_a_truncated_row_keeps_its_segments_in_place(model_dir: Any, right: torch.Tensor, held: Any) -> None:
    model = load(model_dir)
    chain = cut(model, 5, 300, 40, 200)
    before = held()
    model.open(ids(0), chain)
    goes_on(model, [0], 545, right)
    model.truncate(0, 546)
    goes_on(model, [0], 546, right)
    model.truncate(0, 345)
    assert held() == before, "a cut between segments copies nothing"
    goes_on(model, [0], 345, right)
    model.truncate(0, 200)
    assert held() == before + 195 * model.token_bytes
    goes_on(model, [0], 200, right)
    model.truncate(0, 0)
    goes_on(model, [0], 0, right)
    assert held() == before


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_memory_taken_at_the_beginning_is_counted(batch: int, model_dir: Any) -> None:
    model = load(model_dir, batch=batch)
    taken = {
        kv.untyped_storage().data_ptr(): kv.untyped_storage().nbytes()
        for kv in (model._kv._chains.slots.kv, *(region.kv for region in model._kv._regions.all))
    }
    last = model._kv._regions._capacities.tolist()[:-1]
    assert sum(taken.values()) == store_tokens(model.rows, batch, last) * model.token_bytes
    assert sum(taken.values()) + model.segment_tokens * model.token_bytes <= 1 << 25


def taken(model: LlamaModel, row: int) -> list[int]:
    """Lengths of the segments that a row's tail begins with."""
    return [len(segment) for segment in model._kv._taken[row]]


@torch.inference_mode()
def test_a_row_alone_takes_its_chain_into_its_tail(model_dir: Any, right: torch.Tensor, held: Any) -> None:
    model = load(model_dir)
    chain = cut(model, 30, 20)
    model.open(ids(0), chain)
    model.open(ids(1), cut(model, 200))
    model.open(ids(2), (both := cut(model, 40)))
    model.open(ids(3), both)
    goes_on(model, [0], 50, right, 1)
    for row, at in ((1, 200), (2, 40), (3, 40)):
        model.extend(ids(row), TEXT[at : at + 1], ids(1))
    assert [taken(model, row) for row in range(4)] == [[30, 20], [], [], []], (
        "not long chains, nor shared ones"
    )
    assert not model._kv._chains.length[0] and not len(model._kv._chains.slots_of(0))
    assert torch.equal(model.save(0, 0, 50).kv, torch.cat([s.kv for s in chain], dim=3))
    model.fork(ids(0), ids(4))
    model.move(ids(0), ids(5))
    goes_on(model, [4, 5], 51, right, 3)
    assert taken(model, 4) == taken(model, 5) == [30, 20] and not taken(model, 0)
    before = held()
    model.close(ids(5))
    model.open(ids(5), [])
    goes_on(model, [5], 0, right, 3)
    assert not taken(model, 5) and held() == before, "segments stay whose they were"


@torch.inference_mode()
def test_a_tail_too_long_for_both_gives_the_chain_back(model_dir: Any, right: torch.Tensor) -> None:
    """What is frozen is never the chain, which others hold: memory is reserved for the row's own tokens alone."""
    model = load(model_dir)
    capacity, spilled = model._kv._regions.capacity, model.spill(1)
    chain = cut(model, 60, 40)
    chain[1].split(7)
    model.open(ids(0), chain)
    goes_on(model, [0], 100, right, capacity - 100)
    assert taken(model, 0) == [60, 7, 33] and model._kv._regions.length[0] == capacity
    goes_on(model, [0], capacity, right, 1)
    assert not taken(model, 0) and model._kv._regions.length[0] == capacity - 99 and not spilled
    assert [len(s) for s in model._kv._chains._chain[0]] == [60, 7, 33], "nothing is frozen yet"
    goes_on(model, [0], capacity + 1, right, 120)
    assert [len(s) for s in model._kv._chains._chain[0]] == [60, 7, 33, capacity]
    # Also where more tokens come at once than the chain leaves room for.
    model.open(ids(1), chain)
    model.extend(ids(1), TEXT[100:capacity], ids(capacity - 100))
    more = min(150, model.chunk)
    found = model.extend(ids(1), TEXT[capacity : capacity + more], ids(more), np.arange(more))
    torch.testing.assert_close(found, right[capacity : capacity + more], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [1, 60, 127])
@pytest.mark.parametrize("ahead", [0, 20])
@torch.inference_mode()
def test_a_chain_is_taken_only_where_what_comes_has_room_behind_it(
    length: int, ahead: int, model_dir: Any, right: torch.Tensor
) -> None:
    model = load(model_dir)
    room = model._kv._regions.capacity - length
    chain = cut(model, length)

    def comes(row: int, count: int) -> None:
        at = length
        if ahead:  # a cut that leaves the tail empty again
            model.extend(ids(row), TEXT[at : at + ahead], ids(ahead))
            model.truncate(row, at)
        found = model.extend(ids(row), TEXT[at : at + count], ids(count), np.arange(count))
        torch.testing.assert_close(found, right[at : at + count], atol=1e-4, rtol=1e-4)

    for row, count, takes in ((0, room, True), (1, room + 1, False), (2, model.chunk, False)):
        model.open(ids(row), chain)
        comes(row, count)
        assert taken(model, row) == [length] * takes
        goes_on(model, [row], length + count, right)
        model.close(ids(row))


@pytest.mark.parametrize("length", [104, 100, 81, 60, 30])
@torch.inference_mode()
def test_a_row_that_took_its_chain_is_cut(length: int, model_dir: Any, right: torch.Tensor) -> None:
    model = load(model_dir)
    chain = cut(model, 60, 40)
    model.open(ids(0), chain)
    goes_on(model, [0], 100, right, 6)
    model.truncate(0, length)
    assert taken(model, 0) == ([60, 40] if length >= 100 else [])
    goes_on(model, [0], length, right, 4)
    assert torch.allclose(model.save(0, 0, 30).kv, chain[0].kv[:, :, :, :30])


@torch.inference_mode()
def test_steps_that_go_on_as_before(model_dir: Any, right: torch.Tensor) -> None:
    """Each builds on the one before it, until a row comes, goes, is cut or grows out of its place."""
    model = load(model_dir)
    model.open(ids(0), cut(model, 20))
    model.open(ids(1), [])
    model.extend(ids(1), TEXT[:20], ids(20))
    goes_on(model, [0, 1], 20, right, 90)
    model.truncate(0, 105)
    model.truncate(1, 105)
    goes_on(model, [0, 1], 105, right, 3)
    # One of them alone, and several tokens at once, in between.
    model.extend(ids(1), TEXT[108:111], ids(3))
    model.truncate(1, 108)
    goes_on(model, [0, 1], 108, right, 2)
    model.close(ids(1))
    model.open(ids(1), cut(model, 110))
    goes_on(model, [0, 1], 110, right, 3)


@pytest.mark.parametrize("lengths", [(3, 17, 30), (60, 60, 60), (40, 47, 49, 95), (130, 200, 255)])
def test_tails_are_read_in_bfloat16_whatever_lies_behind_them(
    lengths: tuple[int, ...], model_dir: Any, right: torch.Tensor
) -> None:
    """A tail that fills half of its room is read with the room behind it, where other rows' tokens were."""
    with torch.inference_mode():
        model = load(model_dir, dtype=torch.bfloat16)
        rows = ids(*range(len(lengths)))
        for length in (30, 90, 255):  # what was there before
            for row in rows.tolist():
                model.open(ids(row), [])
                run(model, row, TEXT[300 : 300 + length])
            model.close(rows)
        for row, length in enumerate(lengths):
            model.open(ids(row), [])
            run(model, row, TEXT[: length - 1])
        found = model.extend(rows, np.array([TEXT[length - 1] for length in lengths]))
        exact = right[np.array(lengths) - 1]
        assert (found - exact).abs().max() < 0.05 * exact.abs().max()
