"""Where speculation pays."""

import numpy as np
import pytest

from metagen.analysis.speculation import best_gamma, speedup, tokens_per_pass
from metagen.cost import Hardware, ModelShape
from metagen.errors import InputError

LARGE = ModelShape(layers=32, width=4096, heads=32, kv_heads=8, head_dim=128, ff=14336, vocab=128256)
SMALL = ModelShape(layers=16, width=2048, heads=32, kv_heads=8, head_dim=64, ff=8192, vocab=128256, tied=True)
H100 = Hardware.find("h100-sxm")


def test_tokens_of_a_pass() -> None:
    assert float(tokens_per_pass(0.0, 5)) == 1
    assert float(tokens_per_pass(1.0, 5)) == 6
    assert float(tokens_per_pass(0.8, 3)) == pytest.approx((1 - 0.8**4) / 0.2)
    assert tokens_per_pass([0.5, 0.5], [0, 1]).tolist() == [1.0, 1.5]
    with pytest.raises(InputError, match=r"alpha in \[0, 1\]"):
        tokens_per_pass(1.2, 3)


def test_blocks_kept_one_by_one_have_that_many() -> None:
    """Against blocks whose tokens are accepted independently."""
    rng = np.random.default_rng(0)
    kept = (rng.random((200_000, 4)) < 0.7).cumprod(1).sum(1) + 1
    assert kept.mean() == pytest.approx(float(tokens_per_pass(0.7, 4)), abs=0.01)


def test_it_pays_at_small_batches_and_harms_at_large_ones() -> None:
    at = {
        b: speedup(LARGE, SMALL, H100, alpha=0.8, gamma=4, context=100, batch=b) for b in (1, 32, 256, 1024)
    }
    assert at[1] > 1.7 and at[1] > at[256] > at[1024]
    assert at[1024] < 1
    # A pass over γ + 1 tokens reads the weights once: with a free draft nearly all tokens of a pass are gained.
    free = speedup(LARGE, None, H100, alpha=0.8, gamma=4, context=1000)
    assert free == pytest.approx(float(tokens_per_pass(0.8, 4)), rel=0.01)


def test_long_contexts_make_it_pay_at_large_batches() -> None:
    """There it is keys and values that are read, and a pass reads them once as well."""
    short, long = (
        speedup(LARGE, None, H100, alpha=0.8, gamma=4, context=c, batch=256) for c in (100, 32_000)
    )
    assert long > short


def test_the_best_length_grows_with_agreement() -> None:
    best = [best_gamma(LARGE, SMALL, H100, alpha=a, context=1000)[0] for a in (0.1, 0.5, 0.8, 0.95)]
    assert best == sorted(best) and best[0] == 0 and best[-1] > 4
    assert best_gamma(LARGE, SMALL, H100, alpha=0.1, context=1000)[1] == 1
    assert best_gamma(LARGE, SMALL, H100, alpha=0.8, context=1000, batch=2048)[0] < best[2]
