"""Tables of several runs are one data set to DuckDB, and its own sums over them are the figures of metagen."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.page import report
from metagen.runs.work import build, runner


def test_sums_of_another_reader_over_many_runs_are_the_figures_of_each(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    file, runs = experiment_file(), tmp_path / "runs"
    for seed in (3, 4):
        directory = RunDirectory.at(runs / f"s{seed}")
        with build.open_setup(schema.load(file, sets=[f"seed={seed}"])) as setup:
            runner.run(setup, directory)
        report.publish(directory)
    single = duckdb.sql(f"""
        SELECT parse_path(filename)[-2] AS run, generator, avg(share) FROM (
            SELECT filename, generator, problem, avg(correct::DOUBLE) AS share
            FROM read_parquet('{runs}/*/candidates.parquet', filename = true) GROUP BY ALL
        ) GROUP BY ALL
    """).fetchall()
    # Two of n samples, c of them right, are both wrong with probability (n − c)(n − c − 1) / n(n − 1).
    coverage = duckdb.sql(f"""
        SELECT parse_path(filename)[-2] AS run, generator, avg(1 - (n - c) * (n - c - 1) / (n * (n - 1))) FROM (
            SELECT filename, generator, problem, count(*) AS n, sum(correct::INT) AS c
            FROM read_parquet('{runs}/*/candidates.parquet', filename = true) GROUP BY ALL
        ) GROUP BY ALL
    """).fetchall()
    assert len(single) == len(coverage) == 4
    for found, suffix in ((single, "single"), (coverage, "pass@2")):
        for run, generator, value in found:
            with (runs / run / "configurations.csv").open() as table:
                row = next(r for r in csv.DictReader(table) if r["configuration"] == f"{generator}/{suffix}")
            assert float(row["accuracy"]) == pytest.approx(value, abs=1e-12), (run, row["configuration"])
