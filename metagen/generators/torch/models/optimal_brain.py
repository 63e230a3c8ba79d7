"""Optimal brain compression: weights removed or rounded one at a time, each so that the output changes the least.

Frantar & Alistarh 2022 (arXiv:2208.11580), Algorithms 1 and 3, by rows. With a row w of a linear map, inputs X [K, n]
and H = 2XXᵀ, the squared error of the output is ½(ŵ−w)ᵀH(ŵ−w). A step takes the weight with the least
(w_p − ŵ_p)² / [H⁻¹]_pp, where ŵ_p is 0 or the nearest value of a grid, and moves those that are left:

    w ← w − H⁻¹_{:,p} (w_p − ŵ_p) / [H⁻¹]_pp        H⁻¹ ← H⁻¹ − H⁻¹_{:,p} H⁻¹_{p,:} / [H⁻¹]_pp

Rows are independent of each other, and are worked on side by side, in the number format of H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metagen.errors import InputError

#: Numbers of inverses that are held at once.
HELD = 1 << 22

#: Where weights [rows, K] are to go, if they are taken now.
Goal = Callable[[Tensor], Tensor]


def hessian(gram: Tensor, damping: float = 0.01) -> Tensor:
    """H = 2XXᵀ [K, K] from XXᵀ, with `damping` of the mean of its diagonal added there, which makes it invertible.

    Raises InputError for damping that is not positive, and for inputs that are all 0.
    """
    level = 2 * float(gram.diagonal().mean())
    if not damping > 0 or not level > 0:
        raise InputError(
            f"damping={damping!r} of inputs whose mean square is {level / 2!r}: expected both > 0; calibrate on texts "
            "that reach the layer"
        )
    return 2 * gram + damping * level * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)


def error(weight: Tensor, changed: Tensor, h: Tensor) -> Tensor:
    """½(ŵ−w)ᵀH(ŵ−w) of each row, [N]."""
    moved = (changed - weight).to(h.dtype)
    return ((moved @ h) * moved).sum(1) / 2


def magnitude(weight: Tensor, sparsity: float) -> Tensor:
    """The weights [N, K] with the round(sparsity · K) smallest of each row set to 0."""
    count = _count(weight, sparsity)
    smallest = weight.abs().argsort(dim=1, stable=True)[:, :count]
    return weight.scatter(1, smallest, 0.0)


def prune(weight: Tensor, h: Tensor, sparsities: Sequence[float]) -> list[Tensor]:
    """For each of the sparsities, in ascending order, the weights [N, K] with round(sparsity · K) zeros in each row.

    Raises InputError for sparsities that do not ascend.
    """
    counts = [_count(weight, sparsity) for sparsity in sparsities]
    if counts != sorted(counts):
        raise InputError(f"sparsities={list(sparsities)!r}: expected them in ascending order")
    found = [weight.clone() for _ in counts]
    for rows, inverses in _parts(weight, h):
        steps = _steps(weight[rows].to(h.dtype), inverses, torch.zeros_like)
        for taken, state in zip(range(max(counts, default=0) + 1), steps, strict=False):
            for count, one in zip(counts, found, strict=True):
                if count == taken > 0:
                    one[rows] = state.to(weight.dtype)
    return found


@dataclass(frozen=True, slots=True)
class Grid:
    """2^bits values for each group of a row: low, low + step, …; 0 is between the ends.

    low, step: [N, K], of each weight's group.
    """

    bits: int
    low: Tensor
    step: Tensor

    @classmethod
    def of(cls, weight: Tensor, bits: int, group: int) -> Grid:
        """Of weights [N, K]: from the least and the greatest of each `group` consecutive weights of a row, and 0.

        Raises InputError for bits below 1, and for rows that are no multiple of the group.
        """
        rows, columns = weight.shape
        if bits < 1 or group < 1 or columns % group:
            raise InputError(
                f"bits={bits!r}, group={group!r} for rows of {columns}: expected bits ≥ 1, whole groups"
            )
        groups = weight.view(rows, -1, group)
        low, high = groups.amin(2).clamp(max=0.0), groups.amax(2).clamp(min=0.0)
        step = (high - low) / (2**bits - 1)
        step = torch.where(step > 0, step, 1.0)
        return cls(bits, low.repeat_interleave(group, 1), step.repeat_interleave(group, 1))

    def nearest(self, weight: Tensor) -> Tensor:
        """[N, K]: the value of the grid that is nearest to each weight."""
        place = ((weight - self.low) / self.step).round().clamp(0, 2**self.bits - 1)
        return self.low + place * self.step

    def rows(self, chosen: slice, dtype: torch.dtype) -> Grid:
        """Of some of the rows."""
        return Grid(self.bits, self.low[chosen].to(dtype), self.step[chosen].to(dtype))


def quantise(weight: Tensor, h: Tensor, grid: Grid) -> Tensor:
    """The weights [N, K] on the grid. A row that comes out worse than rounded to the nearest is rounded.

    (Steps are greedy, and weights that have moved beyond the ends of their grid are cut off: it can happen.)
    """
    found = grid.nearest(weight)
    for rows, inverses in _parts(weight, h):
        *_, state = _steps(weight[rows].to(h.dtype), inverses, grid.rows(rows, h.dtype).nearest)
        state = state.to(weight.dtype)
        better = error(weight[rows], state, h) < error(weight[rows], found[rows], h)
        found[rows] = torch.where(better[:, None], state, found[rows])
    return found


def _count(weight: Tensor, sparsity: float) -> int:
    if not 0 <= sparsity <= 1:
        raise InputError(f"sparsity={sparsity!r}: expected a share from 0 to 1")
    return round(sparsity * weight.shape[1])


def _parts(weight: Tensor, h: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """As many rows at once as memory is given for, each with an inverse of its own."""
    inverse = torch.linalg.inv(h)
    size = max(1, HELD // h.numel())
    for start in range(0, len(weight), size):
        rows = slice(start, min(start + size, len(weight)))
        yield rows, inverse.expand(rows.stop - rows.start, -1, -1).clone()


def _steps(w: Tensor, inverse: Tensor, goal: Goal) -> Iterator[Tensor]:
    """The rows [R, K] before the first step and after each of the K; they stay the caller's until the next one.

    inverse: [R, K, K], written to.
    """
    w = w.clone()
    left = torch.ones_like(w, dtype=torch.bool)
    every = torch.arange(len(w), device=w.device)
    yield w
    for _ in range(w.shape[1]):
        aim = goal(w)
        diagonal = inverse.diagonal(dim1=1, dim2=2)
        loss = torch.where(left, (w - aim) ** 2 / diagonal, torch.inf)
        p = loss.argmin(1)
        column = inverse[every, :, p].masked_fill(~left, 0.0)
        pivot = column[every, p][:, None]
        w -= column * ((w - aim)[every, p][:, None] / pivot)
        w[every, p] = aim[every, p]
        left[every, p] = False
        inverse.baddbmm_(column[:, :, None], (column / pivot)[:, None, :], alpha=-1.0)
        yield w
