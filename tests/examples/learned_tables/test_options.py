"""What a finished run tells of its configurations as options, against its own tables."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from options import ORDERS, Options

from metagen.errors import InputError
from metagen.runs.curves.measured import Pool
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from tests.runs.conftest import TOY, YAML


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished run; nobody may change it."""
    root = tmp_path_factory.mktemp("known")
    text = YAML.format(count=40, n="[4, 16]")
    (root / "known.yaml").write_text(text.replace("  single:", "  esc: {kind: esc, window: 3}\n  single:"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        with build.open_setup(schema.load(root / "known.yaml")) as setup:
            runner.run(setup, RunDirectory.at(root / "known"))
    return RunDirectory(root / "known")


def test_options_are_what_the_run_measured(known: RunDirectory) -> None:
    lines = [
        line for line in known.final_state().lines if line.generator == "large" or line.strategy == "esc"
    ]
    pool = Pool.of(known, "small")
    costs = pq.read_table(known.table("costs")).to_pylist()
    outcomes = pq.read_table(known.table("outcomes")).to_pylist()

    def spent(generator: str, n: int, *parts: str) -> list[float]:
        found = np.zeros(40)
        for row in costs:
            if (row["generator"], row["n"]) == (generator, n) and row["part"] in ("generation", *parts):
                found[row["place"]] += row["generated"]
        return found.tolist()

    for verifier, kind in ((None, "majority"), ("judge", "weighted")):
        options = Options.of(known, "small", lines, first=4, limit="generated", verifier=verifier)
        assert options.values.shape == (ORDERS, 40) and set(np.unique(options.values)) <= {
            0,
            0.25,
            0.5,
            0.75,
            1,
        }
        assert (
            set(options.ways)
            == set(options.measured)
            == {"4 samples", "16 samples", *(x.name for x in lines)}
        )
        sixteen, four = options.measured["16 samples"], options.measured["4 samples"]
        # The pool has sixteen: their vote is the same in every order.
        accuracy = np.asarray(sixteen.accuracy)
        assert accuracy == pytest.approx(np.tile(pool.accuracy(kind, 16, verifier)[0], (ORDERS, 1)))
        assert np.asarray(four.accuracy).mean() == pytest.approx(
            pool.accuracy(kind, 4, verifier)[0].mean(), abs=0.04
        )
        assert np.asarray(four.cost).tolist() == pytest.approx(spent("small", 4, verifier or ""))
        assert np.asarray(sixteen.cost).tolist() == pytest.approx(spent("small", 16, verifier or ""))
        direct = [row for row in outcomes if row["configuration"] == "small/esc@16"]
        esc = options.measured["small/esc@16"]
        by_place = {row["place"]: row for row in direct}
        assert np.asarray(esc.accuracy).tolist() == [by_place[p]["correct"] for p in range(40)]
        whole = np.asarray(four.cost) + [by_place[p]["generated"] for p in range(40)]
        assert np.asarray(esc.cost).tolist() == pytest.approx(whole.tolist())
        large = options.measured["large/weighted@16"]
        assert np.asarray(large.cost) - np.asarray(four.cost) == pytest.approx(spent("large", 16, "judge"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"first": 3}, r"measured at n = 3 \(at \[1, 4, 16\]\)"),
        ({"first": 4, "verifier": "new"}, "no scores of the verifier 'new' for 'small'"),
        ({"first": 4, "limit": "flops"}, r"what small \(generation\) cost in flops is not known there"),
    ],
)
def test_what_the_run_lacks_is_named(known: RunDirectory, options: dict[str, object], words: str) -> None:
    lines = known.final_state().lines
    with pytest.raises(InputError, match=words):
        Options.of(known, "small", lines, **{"limit": "generated", **options})  # type: ignore[arg-type]  # of several types
