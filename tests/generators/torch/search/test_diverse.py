"""Diverse beam search against the plainest program of it, and at the ends of its penalty."""

from collections import Counter

import pytest
import torch

from metagen.generators.decoding.search import BeamSearch, DiverseBeamSearch
from metagen.generators.torch.search.beam import Beam
from metagen.generators.torch.search.diverse import Diverse
from tests.generators.torch.search.driver import Ids, Model, ids, run, table


def plain(model: Model, limit: int, width: int, groups: int, penalty: float) -> list[tuple[Ids, float]]:
    """Texts that end by their length alone, and their log-probabilities; a list of all candidates at each step."""
    beams: list[list[tuple[Ids, float, float]]] = [[((), 0.0, 0.0)] for _ in range(groups)]
    for _ in range(limit):
        taken: Counter[int] = Counter()
        for g in range(groups):
            candidates = []
            for prefix, rank, total in beams[g]:
                logprobs = torch.log_softmax(model([prefix]), -1)[0].double().tolist()
                candidates += [
                    ((*prefix, v), rank + p - penalty * taken[v], total + p) for v, p in enumerate(logprobs)
                ]
            candidates.sort(key=lambda c: -c[1])
            beams[g] = candidates[: width // groups]
            taken.update(prefix[-1] for prefix, _, _ in beams[g])
    return [(prefix, total) for group in beams for prefix, _, total in group]


@pytest.mark.parametrize(("width", "groups"), [(4, 2), (4, 4), (6, 3), (6, 2)])
@pytest.mark.parametrize("penalty", [0.3, 2.0])
def test_groups_choose_as_the_formula_says(width: int, groups: int, penalty: float) -> None:
    for seed in range(4):
        model, limit = table(8, seed), 5
        spec = DiverseBeamSearch(width, 0.0, "bound", groups=groups, diversity=penalty)
        found = run(Diverse(spec, limit), model, limit)
        wanted = dict(plain(model, limit, width, groups, penalty))
        assert set(ids(found)) == set(wanted)
        for sample, score in found:
            assert score == pytest.approx(wanted[sample.ids or ()])


def test_one_group_is_beam_search() -> None:
    for seed in range(5):
        model = table(6, seed)
        spec = DiverseBeamSearch(4, 1.0, groups=1, diversity=3.0)
        assert run(Diverse(spec, 7), model, 7, eos=5) == run(Beam(BeamSearch(4), 7), model, 7, eos=5)


def test_a_strong_penalty_keeps_groups_apart_at_every_place() -> None:
    found = ids(run(Diverse(DiverseBeamSearch(5, diversity=1000.0), 6), table(9, 2), 6))
    for place in range(6):
        assert len({text[place] for text in found}) == 5


def test_without_a_penalty_groups_are_alike_share_rows_and_come_last() -> None:
    model, widths = table(6, 4), []  # type: ignore[var-annotated]
    spec = DiverseBeamSearch(4, 1.0, groups=2, diversity=0.0)
    found = ids(run(Diverse(spec, 6), model, 6, widths=widths))
    assert set(widths) == {2}, "beams that are alike are run once"
    assert found[:2] == found[2:] == ids(run(Beam(BeamSearch(2), 6), model, 6))
