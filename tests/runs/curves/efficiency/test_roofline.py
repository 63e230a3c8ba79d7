"""The vectorised roofline is `cost.roofline_seconds`, call by call."""

from dataclasses import replace

import numpy as np
import pytest

from metagen.cost import Beside, Hardware, ModelShape, roofline_seconds
from metagen.errors import InputError
from metagen.runs.curves.efficiency.roofline import seconds, step

DENSE = ModelShape(layers=2, width=8, heads=4, kv_heads=2, head_dim=3, ff=10, vocab=7)
MIXTURE = replace(DENSE, experts=5, active_experts=2)
SHAPES = {
    "dense": DENSE,
    "a mixture": MIXTURE,
    "with a windowed model beside it": replace(DENSE, beside=(Beside(DENSE, window=3),)),
    "with a scorer beside it": replace(DENSE, beside=(Beside(DENSE, tries=2),)),
    "with small weights": replace(DENSE, weight_bytes=0.5),
}
#: One that FLOPs bind, one that bandwidth binds, and one where that turns with the context.
HARDWARE = [Hardware("slow", 1e6, 1e12), Hardware("narrow", 1e15, 1e6), Hardware("between", 2e9, 4e8)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("hardware", HARDWARE, ids=lambda h: h.name)
def test_it_is_the_scalar_one(name: str, hardware: Hardware) -> None:
    rng = np.random.default_rng(0)
    context = rng.integers(0, 3000, 60)
    prefilled = rng.integers(0, context + 1)
    prefilled[:20] = 0
    generated = rng.integers(0, 40, 60)
    for batch in (1, 7):
        found = seconds(SHAPES[name], hardware, prefilled, generated, context, batch)
        each = [
            roofline_seconds(SHAPES[name], hardware, int(p), int(g), int(c), batch)
            for p, g, c in zip(prefilled, generated, context, strict=True)
        ]
        np.testing.assert_allclose(found, each, rtol=1e-12)


def test_arrays_broadcast_and_unknown_counts_make_unknown_seconds() -> None:
    found = seconds(DENSE, HARDWARE[0], [[5.0], [np.nan]], [3, 0], 9)
    assert found.shape == (2, 2)
    assert found[0].tolist() == [
        roofline_seconds(DENSE, HARDWARE[0], 5, 3, 9), roofline_seconds(DENSE, HARDWARE[0], 5, 0, 9)
    ]  # fmt: skip
    assert np.isnan(found[1]).all()
    assert seconds(DENSE, HARDWARE[0], [], [], []).shape == (0,)


@pytest.mark.parametrize(
    ("prefilled", "generated", "context", "batch"), [(4, 0, 3, 1), (-1, 0, 3, 1), (1, -1, 3, 1), (1, 1, 3, 0)]
)
def test_counts_that_cannot_be_are_refused(prefilled: int, generated: int, context: int, batch: int) -> None:
    with pytest.raises(InputError, match="expected 0 ≤ prefilled ≤ context"):
        seconds(DENSE, HARDWARE[0], [prefilled], [generated], [context], batch)


def test_a_step_between_two_contexts_lies_between_them() -> None:
    low, high = step(DENSE, HARDWARE[0], 3, 10), step(DENSE, HARDWARE[0], 3, 11)
    assert low == roofline_seconds(DENSE, HARDWARE[0], 0, 2, 9, 3)
    assert step(DENSE, HARDWARE[0], 3, 10.5) == pytest.approx((low + high) / 2)
    assert low < high
