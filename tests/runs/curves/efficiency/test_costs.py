"""Modelled costs of a run of embedded models: what subsets of a pool are expected to take, and what runs have taken."""

import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from metagen.cost import Hardware
from metagen.errors import InputError
from metagen.runs.curves import curve_costs as costs
from metagen.runs.curves import measured as results
from metagen.runs.curves.curve_costs import Accelerator, direct, pool_costs
from metagen.runs.curves.efficiency.called import Called
from metagen.runs.curves.efficiency.critical import longest
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read
from metagen.runs.work import build, runner
from metagen.runs.work.calls import GENERATION

#: The laptop binds by FLOPs here and there; on the other, weights cost most of the time.
ACCELERATORS = {
    "cpu": Accelerator("cpu", Hardware.find("laptop-cpu"), 8),
    "h200": Accelerator("h200", Hardware.find("h200"), 256),
}
NS = [1, 2, 4]


def test_shapes_are_known_by_the_names_of_makers(small: RunDirectory) -> None:
    shapes = costs.shapes(small)
    makers = set(read(small.table("calls"), ["maker"])["maker"].to_pylist())
    assert makers <= shapes.keys()
    assert all(shapes[name] is not None for name in makers)
    assert shapes["mid"] != shapes["last"] != shapes["critic"]
    for shape in shapes.values():
        assert shape is None or costs.shape_from_plain(costs.plain(shape)) == shape


@pytest.mark.parametrize("verifier", [None, "last", "critic"])
def test_accounted_costs_are_those_of_the_report(small: RunDirectory, verifier: str | None) -> None:
    found, judged = pool_costs(small, "mid", verifier, NS, {}, {})
    kind, name = ("majority", "majority") if verifier is None else ("weighted", "weighted")
    name = "judged" if verifier == "critic" else name
    measured = {m.cell.name: m for m in results.derive(small, small.state().lines).configurations}
    for i, n in enumerate(NS):
        known = measured[f"mid/{name}@{n}"]
        for cost in ("flops", "flops_2n", "seconds", "tokens"):
            assert found[cost][i].mean() == pytest.approx(getattr(known, cost)), (kind, cost)
        assert judged[i].mean() == pytest.approx(known.verifier_flops or 0.0)


@pytest.mark.parametrize("verifier", [None, "last"])
def test_modelled_costs_are_means_over_all_subsets(small: RunDirectory, verifier: str | None) -> None:
    shapes, (name, accelerator) = costs.shapes(small), next(iter(ACCELERATORS.items()))
    found, _ = pool_costs(small, "mid", verifier, NS, {name: accelerator}, shapes)
    (called,) = Called.blocks(small, "mid", [GENERATION, verifier or GENERATION]) or ()
    heads = called.heads(accelerator, shapes)
    at = 0
    for column, rows in called.problems():
        here = slice(at, at := at + len(rows))
        work, wait = rows.batch_seconds(accelerator, shapes) - heads[here], rows.alone(accelerator, shapes)
        for i, n in enumerate(NS):
            spent, waited = [], []
            for chosen in combinations(range(4), n):
                needed = [bool(samples & set(chosen)) for samples in rows.samples]
                spent.append(heads[here].sum() + work[needed].sum())
                each = [
                    wait[rows.part == GENERATION][s]
                    + max((wait[k] for k in range(len(rows)) if rows.part[k] != GENERATION and s in rows.samples[k]),
                          default=0.0)
                    for s in chosen
                ]  # fmt: skip
                waited.append(max(each))
            assert found[f"roofline:{name}"][i, column] == pytest.approx(np.mean(spent), rel=1e-9)
            assert found[f"latency:{name}"][i, column] == pytest.approx(np.mean(waited), rel=1e-9)


@pytest.mark.parametrize("verifier", [None, "last", "critic"])
@pytest.mark.parametrize("name", ACCELERATORS)
def test_more_samples_cost_more_and_are_waited_for_longer(
    small: RunDirectory, verifier: str | None, name: str
) -> None:
    found, _ = pool_costs(small, "mid", verifier, NS, ACCELERATORS, costs.shapes(small))
    work, wait = found[f"roofline:{name}"], found[f"latency:{name}"]
    assert (np.diff(work, axis=0) > 0).all()
    assert (np.diff(wait, axis=0) >= -1e-18).all()
    if verifier is not None:
        plain, _ = pool_costs(small, "mid", None, NS, ACCELERATORS, costs.shapes(small))
        assert (work > plain[f"roofline:{name}"]).all()
        assert (wait > plain[f"latency:{name}"]).all()


def test_without_the_table_of_calls_a_pool_without_verifier_is_modelled_all_the_same(
    small: RunDirectory, tmp_path: Path
) -> None:
    shutil.copytree(small.root, tmp_path / "copy")
    bare, shapes = RunDirectory(tmp_path / "copy"), costs.shapes(small)
    bare.table("calls").unlink()
    with_calls, _ = pool_costs(small, "mid", None, NS, ACCELERATORS, shapes)
    without, _ = pool_costs(bare, "mid", None, NS, ACCELERATORS, shapes)
    for name, values in with_calls.items():
        np.testing.assert_allclose(without[name], values, rtol=1e-12)
    judged, _ = pool_costs(bare, "mid", "last", NS, ACCELERATORS, shapes)
    assert np.isnan(judged["latency:cpu"]).all()
    assert np.isfinite(judged["flops"]).all()
    ran, _ = direct(bare, "mid/rebase@4", ACCELERATORS, shapes)
    assert np.isnan(ran["roofline:cpu"]).all()
    assert "physical" not in ran


def test_more_than_the_pool_holds_and_shapes_that_are_unknown_are_unknown(small: RunDirectory) -> None:
    found, judged = pool_costs(small, "mid", "last", [4, 8], ACCELERATORS, costs.shapes(small))
    for values in (*found.values(), judged):
        assert np.isfinite(values[0]).all()
        assert np.isnan(values[1]).all()
    blind, _ = pool_costs(small, "mid", "last", NS, ACCELERATORS, {})
    assert np.isnan(blind["roofline:cpu"]).all()
    assert np.isfinite(blind["tokens"]).all()


@pytest.mark.parametrize("name", ["adaptive@4", "rebase@4", "blockwise@2", "mcts@3"])
def test_a_run_costs_what_its_calls_cost(small: RunDirectory, name: str) -> None:
    shapes = costs.shapes(small)
    found, judged = direct(small, f"mid/{name}", ACCELERATORS, shapes)
    outcomes = read(small.table("outcomes"), configuration=f"mid/{name}").sort_by("place")
    np.testing.assert_allclose(found["flops"], outcomes["flops"].to_numpy())
    np.testing.assert_allclose(judged, outcomes["verifier_flops"].to_numpy())
    (called,) = Called.blocks(small, f"mid/{name}") or ()
    for column, rows in called.problems():
        assert rows.prefilled.sum() + rows.generated.sum() == found["tokens"][column]
        assert found["physical"][column] > 0
        for key, accelerator in ACCELERATORS.items():
            path = longest(rows.graph, rows.alone(accelerator, shapes))
            assert found[f"latency:{key}"][column] == path.seconds <= path.work
            work = rows.batch_seconds(accelerator, shapes).sum()
            assert found[f"roofline:{key}"][column] == pytest.approx(work)


def test_a_search_waits_longer_than_samples_of_the_same_number(small: RunDirectory) -> None:
    """Steps of a search wait for scores; batches for one another."""
    shapes = costs.shapes(small)
    samples, _ = pool_costs(small, "mid", None, [2, 4], ACCELERATORS, shapes)
    rebase, _ = direct(small, "mid/rebase@4", ACCELERATORS, shapes)
    adaptive, _ = direct(small, "mid/adaptive@4", ACCELERATORS, shapes)
    assert (rebase["latency:h200"] > samples["latency:h200"][1]).all()
    waves = adaptive["generated"] > samples["generated"][0] * 1.5
    assert (adaptive["latency:h200"] > samples["latency:h200"][0])[waves].all()


def test_what_did_not_run_by_itself_and_batches_of_none_are_refused(small: RunDirectory) -> None:
    with pytest.raises(
        InputError, match="'mid/majority@2' did not run by itself; those that did: mid/adaptive"
    ):
        direct(small, "mid/majority@2", {}, {})
    with pytest.raises(InputError, match="batch=0; expected at least 1"):
        Accelerator("none", Hardware.find("h200"), 0)


def test_it_does_not_matter_what_the_journal_answers(small: RunDirectory, tmp_path: Path) -> None:
    """Calls that are not made again take the time that they would take."""
    shutil.copytree(small.root, tmp_path / "again")
    again, shapes = RunDirectory(tmp_path / "again"), costs.shapes(small)
    with build.open_setup(schema.load(again.experiment)) as setup:
        assert runner.run(setup, again, calls=True).recorded == 0
    for name in ("mid/adaptive@4", "mid/rebase@4", "mid/blockwise@2", "mid/mcts@3"):
        (first, _), (second, _) = (direct(d, name, ACCELERATORS, shapes) for d in (small, again))
        for cost, values in first.items():
            np.testing.assert_allclose(second[cost], values, rtol=1e-12, err_msg=f"{name}: {cost}")
    for verifier in (None, "last", "critic"):
        (first, _), (second, _) = (
            pool_costs(d, "mid", verifier, NS, ACCELERATORS, shapes) for d in (small, again)
        )
        for cost, values in first.items():
            np.testing.assert_allclose(second[cost], values, rtol=1e-12, err_msg=f"{verifier}: {cost}")
