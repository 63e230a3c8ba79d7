"""Slots: which segments go there, and who shares them."""

from __future__ import annotations

import torch

from metagen.generators.torch.kv.segments import KVLayout, KVSegment
from metagen.generators.torch.kv.slots import Slots

LAYOUT = KVLayout(1, 2, 2, 4, torch.float32, torch.device("cpu"))


def segment(tokens: int) -> KVSegment:
    return KVSegment(torch.randn(1, 2, 2, tokens, 4))


def test_short_segments_fill_slots_from_the_beginning_and_long_ones_stay() -> None:
    slots = Slots(LAYOUT, 4, 10)
    chain = [segment(n) for n in (3, 40, 6, 9, 10, 1, 1)]
    long, groups = slots.pack(chain)
    assert long == [chain[1], chain[4]]
    assert groups == [[chain[0], chain[2]], [chain[3], chain[5]], [chain[6]]]
    assert slots.pack(chain[:4])[1][0] == groups[0], "chains that begin alike share their first slots"
    assert slots.pack([]) == ([], [])


def test_a_slot_is_copied_once_and_free_when_nobody_uses_it() -> None:
    slots = Slots(LAYOUT, 2, 10)
    a, b, c = segment(4), segment(3), segment(10 - 1)
    first = slots.take([a, b], 3)
    assert first is not None
    assert torch.equal(slots.segment(first).kv, torch.cat([a.kv, b.kv], dim=3))
    a.split(2)
    assert slots.take([a, b], 2) == first, "the same segments, whatever became of them since"
    other = slots.take([c], 1)
    assert other not in (None, first)
    assert slots.take([b], 1) is None, "all slots are in use"
    assert slots.users.tolist() == [5, 1]
    for _ in range(5):
        slots.release(first)
    assert slots.take([b], 1) == first
    assert torch.equal(slots.segment(first).kv, b.kv)
