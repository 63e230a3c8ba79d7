"""What a run's results take in memory: arrays of a few numbers for each problem, and a block of its tables."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

#: Problems of the toy run, and of the two runs that are made of its rows.
COUNT, SMALL, LARGE = 50, 500, 3_500
#: Bytes that a problem may add to the peak. The arrays of the results have 3 kB of it; its rows in the tables of this
#: run, as objects of Python, would be more than 40 kB.
MOST = 10_000
#: Results and page of a run; its blocks are small, so that both runs are of many.
CHILD = """
import resource, sys
from pathlib import Path
from metagen.runs.curves import collect
from metagen.runs.directory import RunDirectory
from metagen.runs.page import chosen, report
from metagen.runs.table import called, pools

called.BLOCK = pools.BLOCK = 1 << 12
directory = RunDirectory(Path(sys.argv[1]))
if sys.argv[2] == "curves":
    collect.of_run(directory)
elif sys.argv[2] == "page":
    report.publish(directory)
else:
    chosen.choose(directory, chosen.searches(directory.state().lines))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def repeat(source: RunDirectory, root: Path, times: int) -> RunDirectory:
    """A run whose tables have the rows of another one so many times, each time for other problems."""
    root.mkdir()
    for name in ("experiment.yaml", "state.json", "environment.json"):
        (root / name).write_bytes((source.root / name).read_bytes())
    for path in source.root.glob("*.parquet"):
        table = pq.read_table(path)
        at, place = (table.schema.get_field_index(name) for name in ("problem", "place"))
        with pq.ParquetWriter(root / path.name, table.schema) as out:
            for turn in range(times):
                ids = pc.binary_join_element_wise(table["problem"], pa.scalar(str(turn)), "/")
                moved = pc.add(table["place"], pa.scalar(turn * COUNT, pa.int32()))
                rows = table.set_column(at, "problem", ids).set_column(place, "place", moved)
                out.write_table(rows, row_group_size=4096)
    return RunDirectory(root)


@pytest.mark.slow
def test_results_take_a_few_numbers_for_each_problem(
    study_experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    ran = RunDirectory.at(tmp_path / "ran")
    with build.open_setup(schema.load(study_experiment_file(count=COUNT))) as setup:
        assert runner.run(setup, ran, calls=True).status == "complete"
    runs = [repeat(ran, tmp_path / f"{count}", count // COUNT) for count in (SMALL, LARGE)]
    for what in ("curves", "chosen", "page"):
        small, large = (peak(made, what) for made in runs)
        growth = (large - small) / (LARGE - SMALL)
        assert growth < MOST, (
            f"{what}: {small / 1e6:.0f} and {large / 1e6:.0f} MB, {growth:.0f} bytes a problem"
        )


def peak(made: RunDirectory, what: str) -> int:
    child = [sys.executable, "-c", CHILD, str(made.root), what]
    return int(subprocess.run(child, capture_output=True, check=True, text=True).stdout.split()[-1])
