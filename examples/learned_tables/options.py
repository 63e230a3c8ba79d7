"""What a finished run tells of tables: each of its configurations is an option, measured problem by problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from choose import Measured
from numpy.typing import NDArray

from metagen.analysis.stopping import running_vote
from metagen.errors import InputError
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.pools import Pool, Stored
from metagen.runs.table.tables import read
from metagen.strategies.adaptive.by_difficulty import PREDICTORS, Predictor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Random orders of a pool, whose first samples say how hard its problem is.
ORDERS = 20


@dataclass(frozen=True)
class Options:
    """Ways to go on after the first samples, all measured on the same problems; costs include the first samples.

    values: [orders, problems], of the predictor. measured, ways: by name; a way is a number of samples in all, or a
    configuration of the run.
    """

    values: Floats
    measured: dict[str, Measured]
    ways: dict[str, int | Cell]

    @classmethod
    def of(
        cls,
        run: RunDirectory,
        generator: str,
        lines: Iterable[Cell],
        *,
        first: int,
        limit: str = "flops",
        verifier: str | None = None,
        predictor: str = "agreement",
    ) -> Options:
        """From the tables of a run: more samples of the generator, as many as its pool was measured at, or a line.

        lines: configurations that may be options. limit: the column of usage that counts as cost. verifier: of the
        vote, and of the first samples. Only problems that all of them have finished are counted.
        Raises InputError where the run lacks the first samples, their scores or costs.
        """
        found = {line.name: line for line in lines}
        sizes = sorted(set(read(run.table("costs"), ["n"], generator=generator)["n"].to_pylist()))
        if first not in sizes:
            raise InputError(
                f"it has no pool of {generator!r} measured at n = {first} (at {sizes}), which the first samples are; "
                f"add {first} to its grid.n and run it again: what is recorded is not paid for twice"
            )
        pool, places = Pool.of(run, generator), _places(run, generator)
        if verifier is not None and verifier not in pool.scores:
            raise InputError(
                f"it has no scores of the verifier {verifier!r} for {generator!r}; run a strategy with it there"
            )
        votes = {n: _spent(run, generator, n, verifier, limit) for n in sizes if n >= first}
        achieved = {name: done for name, done in _achieved(run, found.values(), limit).items() if done}
        known = [set(spent) for spent in votes.values()] + [set(done) for done in achieved.values()]
        # As many samples as the arrays are wide: orders are permutations of all.
        whole = set(places[pool.sizes == pool.classes.shape[1]].tolist())
        shared = sorted(whole.intersection(*known))
        if not shared:
            raise InputError(f"it has no problem that all of {', '.join(achieved)} have finished; resume it")
        weights = (
            np.ones(pool.classes.shape)
            if verifier is None
            else np.where(pool.eligible, pool.scores[verifier], np.nan)
        )
        rows = np.searchsorted(places, shared)
        values, curves = _replayed(pool, rows, max(votes), weights, first, PREDICTORS[predictor])
        measured = {
            f"{n} samples": Measured(curves[..., n - 1], np.array([spent[p] for p in shared]))
            for n, spent in votes.items()
        }
        before = np.array([votes[first][p] for p in shared])
        for name, done in achieved.items():
            accuracy, cost = np.array([done[p] for p in shared]).T
            measured[name] = Measured(accuracy, before + cost)
        ways: dict[str, int | Cell] = {f"{n} samples": n for n in votes}
        return cls(values, measured, ways | {name: found[name] for name in achieved})


def _replayed(
    pool: Pool, rows: Ints, most: int, weights: Floats, first: int, predictor: Predictor
) -> tuple[Floats, Floats]:
    """[orders, problems] of the predictor, and [orders, problems, most] of the vote, over random orders of a pool."""
    size = pool.classes.shape[1]
    rng = np.random.default_rng(0)
    order = rng.permuted(np.broadcast_to(np.arange(size), (ORDERS, len(rows), size)), axis=-1)
    at = rows[:, None], order
    classes, correct, heavy = (
        array[at][..., :most].reshape(-1, most) for array in (pool.classes, pool.correct, weights)
    )
    values = predictor(classes[:, :first], heavy[:, :first])
    curves = running_vote(classes, correct, heavy)
    return values.reshape(ORDERS, -1), curves.reshape(ORDERS, len(rows), most)


def _achieved(
    run: RunDirectory, lines: Iterable[Cell], limit: str
) -> dict[str, dict[int, tuple[float, float]]]:
    """By configuration and place of a problem that it has finished: accuracy and cost."""
    lines = list(lines)
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for generator in dict.fromkeys(line.generator for line in lines if line.pooled):
        ours = [line for line in lines if line.pooled and line.generator == generator]
        places = _places(run, generator)
        with Stored(run, generator) as stored:
            measured = stored.results(ours)
        for name, solved in measured.items():
            line = next(line for line in ours if line.name == name)
            spent = _spent(run, generator, line.n or 1, line.verifier, limit)
            rows = zip(places[solved.rows].tolist(), solved.accuracy.tolist(), strict=True)
            found[name] = {place: (accuracy, spent[place]) for place, accuracy in rows}
    for line in lines:
        if not line.pooled:
            returned = read(run.table("outcomes"), ["place", "correct", limit], configuration=line.name)
            found[line.name] = {
                row["place"]: (float(row["correct"]), _known(row[limit], line.name, limit))
                for row in returned.to_pylist()
            }
    return found


def _places(run: RunDirectory, generator: str) -> Ints:
    """Of the problems of a pool, in its order."""
    table = read(run.table("candidates"), ["place", "sample"], generator=generator)
    return np.sort(table["place"].to_numpy()[table["sample"].to_numpy() == 0]).astype(np.int64)


def _spent(run: RunDirectory, generator: str, n: int, verifier: str | None, limit: str) -> dict[int, float]:
    """By place, what n samples of a pool cost, the verifier's scores included."""
    columns = ["place", "part", "n", limit]
    table = read(run.table("costs"), columns, generator=generator)
    found: dict[int, float] = {}
    for place, part, size, cost in zip(*(table[column].to_pylist() for column in columns), strict=True):
        if size == n and part in ("generation", verifier):
            found[place] = found.get(place, 0.0) + _known(cost, f"{generator} ({part})", limit)
    return found


def _known(cost: float | None, name: str, limit: str) -> float:
    if cost is None:
        raise InputError(
            f"what {name} cost in {limit} is not known there; limit something else, such as generated"
        )
    return float(cost)
