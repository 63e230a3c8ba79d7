"""Optimal brain compression against what can be enumerated, and the laws that hold of it on any inputs."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from metagen.errors import InputError
from metagen.generators.torch.models.optimal_brain import Grid, error, hessian, magnitude, prune, quantise

GROUP = 4


@pytest.fixture(params=range(4))
def case(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Weights [5, 8], and H of correlated inputs."""
    generator = torch.Generator().manual_seed(request.param)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x = draw(8, 8) @ draw(8, 60)
    return draw(5, 8), hessian(x @ x.T)


def best_without(row: Tensor, h: Tensor, gone: list[int]) -> tuple[float, Tensor]:
    """The least error of a row whose weights `gone` are 0, and the row: ordinary least squares over the others."""
    left = [i for i in range(len(row)) if i not in gone]
    found = torch.zeros_like(row)
    found[left] = row[left] + torch.linalg.solve(h[left][:, left], h[left][:, gone] @ row[gone])
    return float(error(row[None], found[None], h)), found


def test_error_is_that_of_the_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 40, generator=generator, dtype=torch.float64)
    w, v = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(error(w, v, 2 * x @ x.T), ((w @ x - v @ x) ** 2).sum(1))


def test_the_first_weight_is_the_one_that_brute_force_removes(case: tuple[Tensor, Tensor]) -> None:
    w, h = case
    (found,) = prune(w, h, [1 / 8])
    for row, pruned in zip(w, found, strict=True):
        _, best = min((best_without(row, h, [p]) for p in range(8)), key=lambda one: one[0])
        torch.testing.assert_close(pruned, best)


def test_what_is_left_is_the_least_squares_fit_and_zeros_are_exact(case: tuple[Tensor, Tensor]) -> None:
    w, h = case
    for sparsity, found in zip((0.25, 0.5, 0.75), prune(w, h, (0.25, 0.5, 0.75)), strict=True):
        assert ((found == 0).sum(1) == round(8 * sparsity)).all()
        for row, pruned in zip(w, found, strict=True):
            gone = (pruned == 0).nonzero()[:, 0].tolist()
            torch.testing.assert_close(pruned, best_without(row, h, gone)[1])


def test_a_step_is_the_best_given_the_steps_before(case: tuple[Tensor, Tensor]) -> None:
    w, h = case
    one, two, three = prune(w, h, (1 / 8, 2 / 8, 3 / 8))
    for row, *pruned in zip(w, one, two, three, strict=True):
        gone = [(state == 0).nonzero()[:, 0].tolist() for state in pruned]
        for before, after in pairwise(gone):
            assert set(before) < set(after)
            errors = {p: best_without(row, h, [*before, p])[0] for p in range(8) if p not in before}
            assert set(after) - set(before) == {min(errors, key=errors.__getitem__)}


def test_with_uncorrelated_inputs_it_is_pruning_by_size_and_rounding(case: tuple[Tensor, Tensor]) -> None:
    w, h = case[0], 3 * torch.eye(8, dtype=torch.float64)
    for sparsity in (0.25, 0.5):
        torch.testing.assert_close(prune(w, h, [sparsity])[0], magnitude(w, sparsity))
    grid = Grid.of(w, 3, GROUP)
    torch.testing.assert_close(quantise(w, h, grid), grid.nearest(w))


def test_nothing_asked_nothing_changed(case: tuple[Tensor, Tensor]) -> None:
    w, h = case
    assert torch.equal(prune(w, h, [0.0])[0], w) and torch.equal(magnitude(w, 0.0), w)
    grid = Grid.of(w, 4, GROUP)
    on_grid = grid.nearest(w)
    assert torch.equal(quantise(on_grid, h, grid), on_grid)
    assert (prune(w, h, [1.0])[0] == 0).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_quantised_rows_are_on_the_grid_and_never_worse_than_rounded(
    case: tuple[Tensor, Tensor], bits: int
) -> None:
    w, h = case
    grid = Grid.of(w, bits, GROUP)
    found, nearest = quantise(w, h, grid), grid.nearest(w)
    torch.testing.assert_close(grid.nearest(found), found)
    assert (error(w, found, h) <= error(w, nearest, h)).all()
    assert ((w - nearest).abs() <= grid.step / 2 + 1e-12).all()
    for values in zip(*(part.view(5, -1, GROUP) for part in (found, grid.low)), strict=True):
        assert all(len(group.unique()) <= 2**bits for group in values[0])


def test_quantised_weights_keep_outputs_better_than_rounded_ones() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 32, generator=generator) @ torch.randn(32, 400, generator=generator)
    w, h = torch.randn(40, 32, generator=generator), hessian(x @ x.T)
    grid = Grid.of(w, 4, 16)
    assert error(w, quantise(w, h, grid), h).sum() < 0.7 * error(w, grid.nearest(w), h).sum()


def test_rows_of_zeros_stay() -> None:
    w = torch.zeros(2, 8)
    assert (Grid.of(w, 4, GROUP).nearest(w) == 0).all()


def test_parts_of_the_rows_are_the_rows(monkeypatch: pytest.MonkeyPatch, case: tuple[Tensor, Tensor]) -> None:
    w, h = case
    whole = prune(w, h, [0.5])[0], quantise(w, h, Grid.of(w, 2, GROUP))
    monkeypatch.setattr("metagen.generators.torch.models.optimal_brain.HELD", 2 * 64)
    torch.testing.assert_close(prune(w, h, [0.5])[0], whole[0])
    torch.testing.assert_close(quantise(w, h, Grid.of(w, 2, GROUP)), whole[1])


def test_bad_input_is_named() -> None:
    w, h = torch.ones(2, 8), torch.eye(8)
    with pytest.raises(InputError, match=r"sparsity=1\.5.*from 0 to 1"):
        magnitude(w, 1.5)
    with pytest.raises(InputError, match=r"sparsities=\[0\.5, 0\.25\].*ascending"):
        prune(w, h, [0.5, 0.25])
    with pytest.raises(InputError, match="bits=0"):
        Grid.of(w, 0, 4)
    with pytest.raises(InputError, match="group=3 for rows of 8"):
        Grid.of(w, 4, 3)
    with pytest.raises(InputError, match="damping=0"):
        hessian(h, 0.0)
    with pytest.raises(InputError, match="calibrate on texts"):
        hessian(torch.zeros(8, 8))
