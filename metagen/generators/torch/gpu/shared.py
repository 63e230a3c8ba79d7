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
    _, example, same = np.unique(pieces[:, [0, 5]], axis=0, return_index=True, return_inverse=True)
    same = same.reshape(-1)
    readers = np.bincount(same, size[owner], minlength=len(example)).astype(np.int64)
    less = readers - -(-readers // tile)
    chosen = np.flatnonzero(less * pieces[example, 5] * bytes_of_token >= WORTH)
    shared = np.isin(same, chosen)
    before = np.concatenate([[0], np.cumsum(~shared)])
    first, last = np.empty((2, len(order)), np.int64)
    for way, column in ((first, 2), (last, 3)):
        way[order] = np.repeat(before[groups[:, column]], groups[:, 1] - groups[:, 0])

    def tokens(group: int) -> Ints:
        rows = order[groups[group, 0] : groups[group, 1]]
        of = counts[rows]
        within: Ints = np.repeat(starts[rows] - (of.cumsum() - of), of) + np.arange(of.sum())
        return within

    own = pieces[~shared]
    length = pieces[example[chosen], 5]
    tiles = -(-readers[chosen] // tile)
    part = block * max(1, -(-int((tiles * length).sum()) // (programs * block)))
    jobs, members, of, listed = [np.empty((0, JOB), np.int64)], *([np.empty(0, np.int64)] for _ in range(3))
    rows = begun = 0
    for i, one in enumerate(chosen.tolist()):
        read = np.concatenate([tokens(int(owner[at])) for at in np.flatnonzero(same == one)])
        parts = -(-int(length[i]) // part)
        t, c = (grid.reshape(-1) for grid in np.mgrid[: tiles[i], :parts])
        count = np.minimum(tile, len(read) - t * tile)
        found = rows + t * tile * parts + c * count
        job = np.empty((len(t), JOB), np.int64)
        job[:, 0], job[:, 1], job[:, 2] = begun + t * tile, count, len(own) + i
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
        np.concatenate([own, pieces[example[chosen]]]), first, last, np.concatenate(jobs), np.concatenate(members),
        np.concatenate(listed)[np.argsort(whose, kind="stable")], bounds[:-1], bounds[1:], rows,
    )  # fmt: skip
