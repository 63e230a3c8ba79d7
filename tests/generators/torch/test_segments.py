"""Frozen keys and values: what a split leaves in memory, and what attention finds in a segment."""

from __future__ import annotations

import weakref

import pytest
import torch

from metagen.generators.torch.kv import segments
from metagen.generators.torch.kv.segments import KVSegment, merge, read


def random_kv(tokens: int, *, layers: int = 2, heads: int = 2, dim: int = 4) -> torch.Tensor:
    return torch.randn(layers, 2, heads, tokens, dim, generator=torch.Generator().manual_seed(tokens))


def test_a_split_segment_stands_for_its_halves() -> None:
    kv = random_kv(20)
    segment = KVSegment(kv.clone())
    held = weakref.ref(segment.kv)
    _, tail = segment.split(13)
    middle, last = tail.split(4)
    first = segment.pieces()[0]
    first.split(6)
    assert held() is None, "what was split is held by its halves alone"
    assert [len(p) for p in segment.pieces()] == [6, 7, 4, 3]
    assert segment.pieces()[2:] == [middle, last]
    assert len(segment) == 20
    assert not segment.whole
    assert all(piece.whole and piece.pieces() == [piece] for piece in segment.pieces())
    assert torch.equal(torch.cat([p.kv for p in segment.pieces()], dim=3), kv)
    sizes = [p.kv.untyped_storage().nbytes() for p in segment.pieces()]
    assert sum(sizes) == kv.untyped_storage().nbytes(), "each piece has memory of its own, and no more"


def test_a_segment_split_token_by_token() -> None:
    kv = random_kv(3000, layers=1, heads=1, dim=2)
    segment = KVSegment(kv.clone())
    rest = segment
    while len(rest) > 1:
        _, rest = rest.split(1)
    assert len(segment.pieces()) == 3000
    assert torch.equal(torch.cat([p.kv for p in segment.pieces()], dim=3), kv)


@pytest.mark.parametrize("most", [segments.SCORES, 64])
@pytest.mark.parametrize("heads", [2, 6])
def test_parts_join_to_the_attention_over_all(heads: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch's own attention, for parts in any order, also when queries are taken a few at a time."""
    monkeypatch.setattr(segments, "SCORES", most)
    kv = random_kv(30)[0]
    q = torch.randn(7, heads, 4, generator=torch.Generator().manual_seed(1))
    keys, values = (x.repeat_interleave(heads // 2, 0) for x in kv)
    want = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1), keys, values).transpose(0, 1)
    some = torch.tensor([1, 4, 6])
    for a, b, c in (((0, 3), (3, 20), (20, 30)), ((20, 30), (0, 3), (3, 20))):
        (out, weight), second, third = (read(kv[:, :, i:j], q) for i, j in (a, b, c))
        out, weight = merge(out, weight, *second, None)
        before = out.clone()
        out, weight = merge(out, weight, third[0][some], third[1][some], some)
        torch.testing.assert_close(out[some], want[some])
        assert torch.equal(out[0], before[0]), "the others read nothing there"
