import numpy as np
from scipy import stats

from metagen.generators.randomness import Purpose, seed_array, uniform


def flat(values: np.ndarray) -> bool:
    """Uniform on [0, 1) by a chi-square over 64 cells, at a false-alarm rate of 1e-6; inputs are fixed."""
    seen = np.histogram(values, 64, (0.0, 1.0))[0]
    return bool(stats.chisquare(seen).pvalue > 1e-6)


def test_uniform_along_each_argument() -> None:
    n = 50_000
    one = seed_array([7])
    for values in (
        uniform(seed_array(range(n)), 0),
        uniform(one, np.arange(n)),
        uniform(one, 5, drafts=np.arange(n)),
        uniform(seed_array(range(0, n << 40, 1 << 40)), 0),
    ):
        assert values.shape == (n,)
        assert values.dtype == np.float64
        assert values.min() >= 0.0 and values.max() < 1.0
        assert flat(values)


def test_neighbours_share_nothing() -> None:
    n = 50_000
    seeds = seed_array(range(n))
    base = uniform(seeds, 4)
    others = (
        uniform(seeds, 5),
        uniform(seed_array(range(1, n + 1)), 4),
        uniform(seeds, 4, purpose=Purpose.ACCEPT),
        uniform(seeds, 4, drafts=1),
    )
    for other in others:
        assert not (base == other).any()
        # 5 standard deviations of a correlation of independent columns.
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / np.sqrt(n)
        assert flat((base - other) % 1.0)


def test_a_number_depends_on_its_arguments_only() -> None:
    seeds, positions = seed_array([1, -1, 1 << 70, 9]), np.array([0, 3, 3, 1000])
    together = uniform(seeds, positions)
    alone = [uniform(seeds[i : i + 1], int(positions[i]))[0] for i in range(4)]
    assert together.tolist() == alone
    assert uniform(seed_array([-1]), 3) == uniform(seed_array([(1 << 64) - 1]), 3)
    # The numbers are part of every recorded result: they must never change.
    assert uniform(seed_array([0, 1]), [0, 1]).tolist() == PINNED


PINNED = [0.5277580838124728, 0.14910615163851193]
