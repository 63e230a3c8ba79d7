"""Which pieces are read once for several tokens, and by which programs (`kernels._share`).

A row of a batch reads a shared prefix for itself unless that would read much (`WORTH`). Then the tokens that read a
piece, of whichever rows, are cut into tiles and the piece into parts: a *job* is a part for the tokens of a tile. It
finds a row for each of its tokens; a token joins the rows that are listed for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metagen.generators.torch.kv.store import Located
from metagen.generators.torch.models.language_model import Ints

#: Bytes of keys and values of a layer, read less, from which on a piece is shared: about 5 µs, which the two kernels
#: take to start and to join what they find.
WORTH: float = 1 << 24
#: Columns of a job.
JOB = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """pieces: [P, 6], those that rows read for themselves before those that are shared. first, last: [R] of each row,
    from and to in the former.

    jobs: [J, JOB] the first of its tokens among the `members` [M], and how many; its piece, and from and to in it, in
    tokens; the first of the rows that it finds. listed: [L] rows of tokens side by side, from `begin` [N] to `end` [N].
    rows: of all jobs.
    """

    pieces: Ints
    first: Ints
    last: Ints
    jobs: Ints
    members: Ints
    listed: Ints
    begin: Ints
    end: Ints
    rows: int


def plan(at: Located, tile: int, block: int, programs: int, bytes_of_token: int) -> Plan:
    """tile: tokens of a job, at most. block: its parts are multiples of it, in tokens. programs: that should be busy.

    bytes_of_token: keys and values of a token, in a layer.
    """
    table, order, groups, pieces = (one.numpy() for one in (at.table, at.order, at.groups, at.pieces))
    starts, counts = table[:, 0], table[:, 1]
    n, owner = int(counts.sum()), np.repeat(np.arange(len(groups)), groups[:, 3] - groups[:, 2])
    size = np.add.reduceat(counts[order], groups[:, 0])
    example, same = _alike(pieces[:, 0], pieces[:, 5])
    readers = np.bincount(same, size[owner], minlength=len(example)).astype(np.int64)
    less = readers - -(-readers // tile)
    chosen = np.flatnonzero(less * pieces[example, 5] * bytes_of_token >= WORTH)
    own = np.ones(len(example), bool)
    own[chosen] = False
    before = np.concatenate([[0], own[same].cumsum()])
    # Rows of the same chain are side by side in `order`.
    group = np.repeat(np.arange(len(groups)), groups[:, 1] - groups[:, 0])
    first, last = np.empty((2, len(order)), np.int64)
    first[order], last[order] = before[groups[group, 2]], before[groups[group, 3]]
    if not len(chosen):
        none, nothing = np.zeros(n, np.int64), np.zeros(0, np.int64)
        return Plan(pieces, first, last, nothing.reshape(0, JOB), nothing, nothing, none, none, 0)

    alone = pieces[own[same]]
    length = pieces[example[chosen], 5]
    tiles = -(-readers[chosen] // tile)
    part = block * max(1, -(-int((tiles * length).sum()) // (programs * block)))
    jobs, members, of, listed = list[Ints](), list[Ints](), list[Ints](), list[Ints]()
    rows = begun = 0
    for i, one in enumerate(chosen.tolist()):
        reads = np.zeros(len(groups), bool)
        reads[owner[same == one]] = True
        row = order[reads[group]]
        per = counts[row]
        read = np.repeat(starts[row] - (per.cumsum() - per), per) + np.arange(per.sum())
        parts = -(-int(length[i]) // part)
        t, c = (grid.reshape(-1) for grid in np.mgrid[: tiles[i], :parts])
        count = np.minimum(tile, len(read) - t * tile)
        found = rows + t * tile * parts + c * count
        job = np.empty((len(t), JOB), np.int64)
        job[:, 0], job[:, 1], job[:, 2] = begun + t * tile, count, len(alone) + i
        job[:, 3], job[:, 4], job[:, 5] = c * part, np.minimum((c + 1) * part, length[i]), found
        jobs.append(job)
        members.append(read)
        # What is found of each of its tokens, in the order of the jobs.
        slot = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
        of.append(read[np.repeat(t * tile, count) + slot])
        listed.append(np.repeat(found, count) + slot)
        begun, rows = begun + len(read), rows + len(read) * parts
    whose = np.concatenate(of)
    bounds = np.concatenate([[0], np.bincount(whose, minlength=n).cumsum()])
    return Plan(
        np.concatenate([alone, pieces[example[chosen]]]), first, last, np.concatenate(jobs), np.concatenate(members),
        np.concatenate(listed)[np.argsort(whose, kind="stable")], bounds[:-1], bounds[1:], rows,
    )  # fmt: skip


def _alike(address: Ints, length: Ints) -> tuple[Ints, Ints]:
    """One of each distinct piece, and which of them each piece [P] is."""
    order = np.lexsort((length, address))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(address[order]) != 0) | (np.diff(length[order]) != 0)
    same = np.empty(len(order), np.int64)
    same[order] = new.cumsum() - 1
    return order[new], same
