"""Two runs, compared: what is paired, what is found, and what is refused."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.errors import InputError
from metagen.runs.curves.measured import derive
from metagen.runs.declare import schema
from metagen.runs.directory import Cell, RunDirectory, State
from metagen.runs.questions import compare
from metagen.runs.words import DETECTABLE
from metagen.runs.work import build, runner


def text_of(a: RunDirectory, b: RunDirectory, **options: dict[str, str]) -> str:
    console = Console(file=StringIO(), width=110, color_system=None)
    console.print(compare.publish(a, b, **options))  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def toy(file: Path, root: Path, *sets: str) -> RunDirectory:
    directory = RunDirectory.at(root)
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, directory)
    return directory


def direct(root: Path, correct: dict[str, bool], *, name: str = "g/own", prompt: str = "") -> RunDirectory:
    """A run of one configuration by itself, that solved these problems."""
    directory = RunDirectory.at(root)
    line = Cell(name, name.partition("/")[0], name.partition("/")[2], "own")
    directory.save(State("own", "complete", len(correct), lines=(line,)))
    ids = list(correct)
    problems = {"problem": ids, "place": range(len(ids)), "salt": [prompt + i for i in ids], "reference": ids}
    tables = {
        "problems": problems,
        "outcomes": {"problem": ids, "configuration": [name] * len(ids), "correct": list(correct.values())},
        "candidates": {"problem": pa.array([], pa.string())},
    }
    for table, columns in tables.items():
        pq.write_table(
            pa.table({k: v if isinstance(v, pa.Array) else list(v) for k, v in columns.items()}),
            directory.table(table),
        )
    return directory


def test_gains_and_losses_are_counted_problem_by_problem(tmp_path: Path) -> None:
    a = direct(tmp_path / "a", {f"p{i:02}": i < 10 for i in range(40)})
    b = direct(tmp_path / "b", {f"p{i:02}": 1 <= i < 25 for i in range(44)})
    (found,), sizes = compare.compare(a, b)
    assert sizes == (40, 40, 44)
    assert (found.a, found.b) == (10 / 40, 24 / 40)
    assert found.difference.estimate == pytest.approx(14 / 40)
    assert found.gained == tuple(f"p{i}" for i in range(10, 25)) and found.lost == ("p00",)
    # McNemar, exact: 2 · P(at most 1 of 16) = 0.0005.
    assert found.p_value == pytest.approx(0.0005, abs=0.0005)
    assert found.shown and found.difference.low > 0
    text = text_of(a, b)
    for words in (
        "40 problems in both (of 40 in A and 44 in B)",
        "+35.0",
        "gained by g/own: p10, p11",
        "and 10 more",
        "Holm",
    ):
        assert words in text


def test_what_cannot_be_told_apart_says_what_could_be(tmp_path: Path) -> None:
    a = direct(tmp_path / "a", {f"p{i}": i % 2 == 0 for i in range(30)})
    b = direct(tmp_path / "b", {f"p{i}": i % 3 == 0 for i in range(30)})
    (found,), _ = compare.compare(a, b)
    assert not found.shown and found.difference.detectable > 0
    assert DETECTABLE in " ".join(text_of(a, b).split())
    assert f"{100 * found.difference.detectable:.1f}" in text_of(a, b)


def test_few_problems_have_no_interval_and_no_test(tmp_path: Path) -> None:
    a = direct(tmp_path / "a", {f"p{i}": i < 1 for i in range(6)})
    b = direct(tmp_path / "b", {f"p{i}": i < 5 for i in range(6)})
    (found,), sizes = compare.compare(a, b)
    d = found.difference
    assert d.estimate == pytest.approx(4 / 6) and not found.shown
    assert d.low != d.low and d.p_value != d.p_value and d.detectable != d.detectable
    text = " ".join(text_of(a, b).split())
    assert "Of fewer than 8 problems, as here in 1, there is no interval and no test." in text
    json.dumps(compare.data([found], sizes, a, b), allow_nan=False)


def test_what_no_difference_could_show_says_so(tmp_path: Path) -> None:
    names = [f"g/own{i}" for i in range(30)]
    one = direct(tmp_path / "a", {f"p{i}": False for i in range(10)})
    two = direct(tmp_path / "b", {f"p{i}": i < 9 for i in range(10)})
    for run in (one, two):
        rows = pq.read_table(run.table("outcomes")).to_pylist()
        run.save(State("own", "complete", 10, lines=tuple(Cell(n, "g", n[2:], "own") for n in names)))
        every = [{**row, "configuration": name} for name in names for row in rows]
        pq.write_table(pa.Table.from_pylist(every), run.table("outcomes"))
    compared, sizes = compare.compare(one, two)
    assert len(compared) == 30 and not compared[0].shown
    assert compared[0].difference.detectable == float("inf")
    assert "none: they could show none of any size" in " ".join(text_of(one, two).split())
    json.dumps(compare.data(compared, sizes, one, two), allow_nan=False)


def test_what_rounds_to_nothing_has_no_minus() -> None:
    assert [compare.signed_points(share) for share in (-0.0004, -0.0, 0.0004)] == ["+0.0"] * 3
    assert [compare.signed_points(share) for share in (-0.0006, 0.0006)] == ["−0.1", "+0.1"]


def test_pools_are_compared_by_their_expected_accuracy(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    file = experiment_file(n="[1, 4]")
    a, b = toy(file, tmp_path / "a"), toy(file, tmp_path / "b", "generators.small.skill=0.95")
    compared, _ = compare.compare(a, b)
    for run, which in ((a, "a"), (b, "b")):
        known = {m.cell.name: m.accuracy for m in derive(run, run.state().lines).configurations}
        names = {name: getattr(c, which) for c in compared for name in (c.name, *c.also)}
        assert names == pytest.approx(known)
    by_name = {c.name: c for c in compared}
    assert by_name["small/majority@4"].difference.estimate > 0
    assert by_name["large/majority@4"].difference.estimate == 0.0  # the same samples, from the same seed
    assert by_name["small/pass@4"].oracle


def test_what_picks_one_of_one_is_one_test(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    file = experiment_file(n="[1, 4]", count=9)
    a, b = toy(file, tmp_path / "a"), toy(file, tmp_path / "b", "generators.small.skill=0.95")
    compared, _ = compare.compare(a, b)
    by_name = {c.name: c for c in compared}
    assert set(by_name) == {
        f"{g}/{s}"
        for g in ("small", "large")
        for s in ("single", "majority@4", "best-of-n@4", "weighted@4", "pass@4")
    }
    assert by_name["small/single"].also == tuple(
        f"small/{s}@1" for s in ("majority", "best-of-n", "weighted", "pass")
    )
    assert not by_name["small/single"].oracle
    text = " ".join(text_of(a, b).split())
    assert "corrected by Holm for 10 comparisons" in text
    assert "small/single * " in text and "* and whatever else picks one of one candidate" in text
    # Under a budget each of them runs by itself, and spends what it spends.
    tight = "budget.generated=60"
    apart, _ = compare.compare(toy(file, tmp_path / "c", tight), toy(file, tmp_path / "d", tight))
    assert len(apart) == 2 * 9 and not any(c.also for c in apart)


def test_json_has_every_problem(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    a, b = direct(tmp_path / "a", {"p": True, "q": False}), direct(tmp_path / "b", {"p": True, "q": True})
    compared, sizes = compare.compare(a, b)
    data = json.loads(json.dumps(compare.data(compared, sizes, a, b), allow_nan=False))
    (one,) = data["configurations"]
    assert one["problems"] == {"p": {"a": 1.0, "b": 1.0}, "q": {"a": 0.0, "b": 1.0}}
    assert (one["a"], one["b"], one["difference"]["estimate"]) == (0.5, 1.0, 0.5)
    assert data["problems"] == {"both": 2, "a": 2, "b": 2}
    alone = direct(tmp_path / "c", {"p": True})
    (one,) = compare.data(*compare.compare(alone, alone), alone, alone)["configurations"]
    assert (one["p_holm"], one["difference"]["low"]) == (None, None)


def test_configurations_of_other_names_are_paired_on_request(tmp_path: Path) -> None:
    a = direct(tmp_path / "a", {"p": True, "q": False})
    b = direct(tmp_path / "b", {"p": True, "q": True}, name="h/own")
    with pytest.raises(InputError, match=r"no configuration: .*'g/own'; .*'h/own'.*such as g/own=h/own"):
        compare.publish(a, b)
    assert "g/own → h/own" in text_of(a, b, pairs=[("g/own", "h/own")])
    with pytest.raises(InputError, match=r"no configuration 'h/won'; did you mean 'h/own'"):
        compare.publish(a, b, [("g/own", "h/won")])


def test_runs_over_other_problems_are_refused(tmp_path: Path) -> None:
    a = direct(tmp_path / "a", {"p": True})
    with pytest.raises(InputError, match=r"share no problem: .*'p'; .*'q'"):
        compare.publish(a, direct(tmp_path / "b", {"q": True}))
    with pytest.raises(InputError, match=r"problem 'p' is asked otherwise .* another prompt"):
        compare.publish(a, direct(tmp_path / "c", {"p": True}, prompt="other"))
