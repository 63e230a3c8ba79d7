"""Stochastic beams against sampling without replacement, by enumeration. Chi-square at a false-alarm rate of 1e-6.

The seeds are fixed, so that a pass is a pass for good.
"""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from metagen.generators.decoding.search import StochasticBeamSearch, inclusion
from metagen.generators.engine import Sample
from metagen.generators.torch.search.stochastic import Stochastic
from tests.generators.torch.search.driver import Ids, every, run, table

SIZE, LIMIT, EOS, SEEDS = 3, 2, 2, 3000
MODEL = table(SIZE, 1, sharpness=0.7)
TEXTS = {text: float(np.exp(total)) for text, total in every(MODEL, LIMIT, EOS, SIZE).items()}
Text = tuple[Ids, bool]


def text(sample: Sample) -> Text:
    return sample.ids or (), sample.finish == "eos"


def draw(width: int, seed: int) -> Stochastic:
    search = Stochastic(StochasticBeamSearch(width), seed)
    run(search, MODEL, LIMIT, eos=EOS)
    return search


@pytest.fixture(scope="module")
def drawn() -> list[Stochastic]:
    return [draw(3, seed) for seed in range(SEEDS)]


def matches(seen: Counter[object], expected: dict[object, float]) -> bool:
    assert sum(expected.values()) == pytest.approx(1.0)
    assert set(seen) <= set(expected)
    keys = [key for key, p in expected.items() if p * SEEDS >= 5]
    rest = 1.0 - sum(expected[key] for key in keys)
    counts = [*(seen[key] for key in keys), SEEDS - sum(seen[key] for key in keys)]
    wanted = [*(SEEDS * expected[key] for key in keys), SEEDS * rest]
    if rest * SEEDS < 5:
        counts[-2:], wanted[-2:] = [sum(counts[-2:])], [sum(wanted[-2:])]
    return bool(stats.chisquare(counts, wanted).pvalue > 1e-6)


def test_the_first_text_is_a_sample(drawn: list[Stochastic]) -> None:
    seen = Counter(text(search.results()[0][0]) for search in drawn)
    assert matches(Counter(dict(seen)), dict(TEXTS))


def test_the_first_two_are_drawn_without_replacement(drawn: list[Stochastic]) -> None:
    seen = Counter(tuple(text(s) for s, _ in search.results()[:2]) for search in drawn)
    expected = {(a, b): p * q / (1 - p) for a, p in TEXTS.items() for b, q in TEXTS.items() if a != b}
    assert matches(Counter(dict(seen)), dict(expected))


def test_the_sets_are_those_of_sampling_without_replacement(drawn: list[Stochastic]) -> None:
    seen = Counter(frozenset(text(s) for s, _ in search.results()) for search in drawn)
    expected: dict[object, float] = {}
    for a, p in TEXTS.items():
        for b, q in TEXTS.items():
            for c, r in TEXTS.items():
                if len({a, b, c}) == 3:
                    key = frozenset((a, b, c))
                    mass = p * q / (1 - p) * r / (1 - p - q)
                    expected[key] = expected.get(key, 0.0) + mass
    assert matches(Counter(dict(seen)), expected)


def test_weighted_sums_are_unbiased(drawn: list[Stochastic]) -> None:
    """Σ p/q · f over the texts drawn, against Σ p · f over all: the mass 1, and the mean length, to four errors."""
    masses, lengths = [], []
    for search in drawn:
        weights = [
            TEXTS[text(sample)] / q
            for (sample, _), q in zip(search.results(), search.inclusion(), strict=True)
        ]
        masses.append(sum(weights))
        lengths.append(sum(w * len(s.ids or ()) for w, (s, _) in zip(weights, search.results(), strict=True)))
    mean_length = sum(p * len(ids) for (ids, _), p in TEXTS.items())
    for found, expected in ((masses, 1.0), (lengths, mean_length)):
        error = np.std(found) / np.sqrt(SEEDS)
        assert abs(np.mean(found) - expected) < 4 * error


def test_the_value_of_the_next_text_is_all_that_weights_need() -> None:
    """As a user has it: one text more than are weighed."""
    for seed in range(20):
        *texts, next_one = draw(5, seed).results()
        weighed = draw(4, seed)
        assert [s for s, _ in texts] == [s for s, _ in weighed.results()]
        found = [inclusion(math.log(TEXTS[text(sample)]), next_one[1]) for sample, _ in texts]
        assert found == pytest.approx(weighed.inclusion(), rel=1e-5)


def test_enough_beams_draw_every_text_for_sure() -> None:
    search = draw(len(TEXTS), 5)
    assert {text(s) for s, _ in search.results()} == set(TEXTS)
    assert search.threshold == -np.inf and search.inclusion() == [1.0] * len(TEXTS)


def test_a_wider_search_begins_with_the_texts_of_a_narrower_one() -> None:
    for seed in range(50):
        wide = draw(6, seed)
        for width in (1, 2, 4):
            narrow = draw(width, seed)
            assert narrow.results() == wide.results()[:width]
            assert narrow.threshold == pytest.approx(wide.results()[width][1]), (
                "the value of the one that is next"
            )


def test_perturbed_values_fall_and_logprobs_are_the_models() -> None:
    search = draw(4, 9)
    scores = [score for _, score in search.results()]
    assert scores == sorted(scores, reverse=True)
    for leaf in search.leaves:
        assert leaf.logprob == pytest.approx(np.log(TEXTS[text(leaf.sample)]), abs=1e-6)


def test_masks_bind() -> None:
    search = Stochastic(StochasticBeamSearch(5), 0)
    found = run(search, lambda rows: torch.zeros(len(rows), 4), 2, allowed=lambda p: (1, 3))
    assert {s.ids for s, _ in found} == {(1, 1), (1, 3), (3, 1), (3, 3)}
