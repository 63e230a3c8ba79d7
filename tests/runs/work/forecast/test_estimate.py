"""Estimates: exact where things are known, honest where they are assumed, and free of any call."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.cost import ModelShape, decode_flops, prefill_flops
from metagen.errors import EngineError, InputError
from metagen.generators.models import sources
from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.executor import ShardsSpec
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.runs.work.forecast import estimate, probe, show
from metagen.runs.work.offline import ClosedEngine, with_stand_ins
from metagen.sequence import Prompt

Write = Callable[..., Path]
Calls = Callable[[], list[str]]
TINY = """\
name: tiny
task: {kind: arithmetic, split: validation, levels: [1, 2], per_level: 2}
engines:
  writer: {kind: torch, model: tiny-0.1m}
  judge: {kind: torch, model: tiny-prm-weak}
generators:
  writer: {engine: writer, max_tokens: 64}
verifiers:
  last: {kind: prm, engine: judge, aggregation: last}
  min: {kind: prm, engine: judge, aggregation: min}
strategies:
  single: {kind: sample}
  greedy: {kind: greedy}
  best-of-n: {kind: best_of_n, verifier: last}
  weighted: {kind: weighted, verifier: min}
grid: {n: [1, 4]}
"""
#: Another reward model.
OTHER = "engines.other={kind: torch, model: tiny-prm}"
#: An engine that no estimate may make: it would be paid for.
SERVED = """\
class Served:
    def __init__(self, *, model: str, key: str, price: dict | None = None) -> None:
        raise AssertionError("an estimate makes no engine")
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that runs/ is its own


def run(file: Path, root: Path, *sets: str) -> None:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))


def parts(found: estimate.Estimate) -> dict[str, estimate.Part]:
    return {part.name: part for part in found.parts}


def shown(found: estimate.Estimate) -> str:
    out = StringIO()
    Console(file=out, width=110).print(show.render(found))
    return " ".join(out.getvalue().split())


def test_without_records_figures_are_bounds(experiment_file: Write, calls: Calls) -> None:
    experiment = schema.load(experiment_file())
    found = estimate.estimate(experiment)
    assert calls() == []
    with build.open_setup(experiment) as setup:
        letters = sum(len(problem.prompt.text or "") for problem in setup.task.problems())
    assert found.bounds
    for name in ("small", "large"):
        part = parts(found)[name]
        assert (part.calls, part.prefilled, part.generated, part.flops) == (6 * 8, letters, 6 * 8 * 24, None)
    assert (parts(found)["judge"].calls, parts(found)["judge"].flops) == (2 * 6 * 8, 0)
    assert "oracle" not in parts(found)  # costs nothing
    assert (found.total.calls, found.total.flops, found.total.money) == (4 * 6 * 8, None, None)
    assert "at most" in shown(found)
    assert "time: --probe 2 measures" in shown(found)
    assert "time:" not in shown(estimate.estimate(experiment, probe=1))


def test_what_is_recorded_is_free(experiment_file: Write, calls: Calls, tmp_path: Path) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root, "grid.n=[1, 4]")
    made = len(calls())
    done = estimate.estimate(schema.load(file, sets=["grid.n=[4]"]), root)
    assert (done.total.calls, done.total.recorded) == (0, 2 * 6 * 4 + parts(done)["judge"].recorded)
    assert (done.total.prefilled, done.total.generated) == (0, 0)
    assert "nothing is left to do" in shown(done)
    more = estimate.estimate(schema.load(file), root)
    assert (parts(more)["small"].calls, parts(more)["small"].recorded) == (6 * 4, 6 * 4)
    assert not more.bounds
    assert 0 < (parts(more)["small"].generated or 0) < 6 * 4 * 24
    assert len(calls()) == made  # an estimate calls nothing
    run(file, root)
    assert len(calls()) == made + more.parts[0].calls + more.parts[1].calls


def test_an_earlier_run_gives_lengths_and_nothing_else(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=3)
    run(file, tmp_path / "runs" / "sums")
    found = estimate.estimate(schema.load(file))
    assert (found.total.recorded, found.bounds) == (0, False)
    assert any("recorded in runs/sums" in how for how in parts(found)["small"].how)
    table = pq.read_table(tmp_path / "runs/sums/candidates.parquet", filters=[("generator", "=", "small")])
    assert parts(found)["small"].generated == pytest.approx(pc.sum(table["generated"]).as_py())
    # Other parameters make another generator: what is recorded says nothing of it.
    assert estimate.estimate(schema.load(file, sets=["generators.small.skill=0.9"])).bounds


def test_an_embedded_model_is_counted_by_its_own_tokenizer_and_shape(tmp_path: Path) -> None:
    """Bounds first; then, with a run to go by, what a run is really charged."""
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    bound = estimate.estimate(schema.load(file), hardware="laptop-cpu")
    shape = ModelShape.from_config(sources.resolve("tiny-0.1m"))
    with build.open_setup(with_stand_ins(schema.load(file), fingerprints=False)) as setup:
        engine = setup.generators["writer"].engine
        sizes = [len(engine.render(estimate.Sequence.of(p.prompt))) for p in setup.task.problems()]
    writer, greedy, judge = bound.parts
    assert (writer.calls, greedy.calls, judge.calls) == (16, 4, 16)
    assert (writer.prefilled, writer.generated) == (sum(sizes), 16 * 64)
    assert writer.flops == sum(prefill_flops(shape, s) + 4 * decode_flops(shape, 64, s) for s in sizes)
    assert "uses the same scores" in " ".join(judge.how)
    assert all(part.seconds and part.seconds > 0 for part in bound.parts)

    run(file, tmp_path / "runs" / "tiny")
    found = estimate.estimate(schema.load(file))
    table = pq.read_table(tmp_path / "runs/tiny/candidates.parquet")
    spent = {name: pc.sum(table[name]).as_py() for name in ("prefilled", "generated", "flops")}
    writer, _, judge = found.parts
    assert not found.bounds
    assert (writer.prefilled, writer.generated) == (spent["prefilled"], pytest.approx(spent["generated"]))
    assert writer.flops == pytest.approx(spent["flops"], rel=0.03)
    scored = pq.read_table(
        tmp_path / "runs/tiny/costs.parquet", filters=[("part", "=", "last"), ("n", "=", 4)]
    )
    assert judge.prefilled == pytest.approx(pc.sum(scored["prefilled"]).as_py())
    assert judge.flops == pytest.approx(pc.sum(scored["flops"]).as_py())
    # Without scores to go by, texts are counted: candidates that begin alike, or are alike, cost less than that.
    more = estimate.estimate(
        schema.load(file, sets=["verifiers.last.engine=other", OTHER, "grid.strategies=[best-of-n]"])
    )
    assert judge.prefilled < more.parts[1].prefilled < 16 * (64 * 2 + max(sizes))
    again = estimate.estimate(schema.load(file), tmp_path / "runs" / "tiny")
    assert (again.total.calls, again.parts[0].recorded) == (0, 16)


def test_a_search_decodes_all_its_rows_for_one_sample(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY, "utf-8")
    sets = ["generators.writer.search={kind: beam, width: 6}", "generators.writer.max_tokens=12"]
    sets += ["grid.strategies=[single]"]
    bound = estimate.estimate(schema.load(file, sets=sets))
    shape = ModelShape.from_config(sources.resolve("tiny-0.1m"))
    with build.open_setup(with_stand_ins(schema.load(file, sets=sets), fingerprints=False)) as setup:
        engine = setup.generators["writer"].engine
        sizes = [len(engine.render(estimate.Sequence.of(p.prompt))) for p in setup.task.problems()]
    writer = bound.parts[0]
    assert (writer.calls, writer.generated) == (4, 4 * 6 * 12)
    assert writer.flops == sum(prefill_flops(shape, s) + 6 * decode_flops(shape, 12, s) for s in sizes)
    assert "in each of 6 rows of a beam search" in " ".join(writer.how)

    run(file, tmp_path / "run", *sets)
    spent = pq.read_table(tmp_path / "run/outcomes.parquet")
    assert 0 < pc.sum(spent["generated"]).as_py() <= writer.generated
    assert pc.sum(spent["flops"]).as_py() <= writer.flops


def test_engines_that_are_not_here_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_toy.py").write_text(SERVED)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "served.yaml"
    file.write_text(
        TINY.replace("{kind: torch, model: tiny-0.1m}", '{kind: "served_toy:Served", model: far-70b, key: sk-1}')
        .replace("engine: judge, aggregation", "engine: writer, tags: {tag: a, positive: b, negative: c}, aggregation")
    )  # fmt: skip
    found = estimate.estimate(schema.load(file))
    assert [part.name for part in found.parts] == ["writer", "writer, greedy"]
    assert (found.parts[0].flops, found.total.money) == (None, None)
    assert found.parts[0].prefilled > 0
    assert any("bytes" in how for how in found.parts[0].how)
    assert any(what.startswith("last: ") for what in found.missing)
    price = "engines.writer.price={prompt: 1.0, generated: 4.0}"
    priced = estimate.estimate(schema.load(file, sets=[price]))
    part = priced.parts[0]
    # Each of four samples reads the prompt, and no price of cached tokens is told.
    assert part.money == pytest.approx((4 * part.prefilled + 4 * part.generated) / 1e6)
    with pytest.raises(InputError, match=r"engines\.writer\.price"):
        estimate.estimate(schema.load(file, sets=["engines.writer.price={per_token: 1.0}"]))


def test_closed_engines_refuse_every_request() -> None:
    engine = ClosedEngine(
        "writer",
        str(sources.resolve("tiny-0.1m")),
        needed=True,
        fingerprints=False,
        options={},
        of="torch",
        given={},
    )
    generator = build.registry.make("generators", "engine", {}, {"engine": engine})
    with engine, pytest.raises(EngineError, match="not opened"):
        asyncio.run(generator.generate(estimate.Sequence.of(Prompt.of("Q:1+1")), scope=estimate.Scope.root()))
    with pytest.raises(EngineError, match="not opened"):
        asyncio.run(engine.evaluate([]))


def test_budgets_cut_the_estimate(experiment_file: Write) -> None:
    file = experiment_file(more="budget: {generated: 48}\n")
    found = estimate.estimate(schema.load(file))
    assert parts(found)["small"].generated == pytest.approx(6 * 48)
    assert parts(found)["small"].calls == 6 * 2
    assert any("budget" in note for note in found.notes)


def test_what_is_recorded_has_used_its_part_of_a_budget(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(n="[8]", more="budget: {calls: 4}\n")
    run(file, tmp_path / "calls")
    done = estimate.estimate(schema.load(file), tmp_path / "calls")
    assert parts(done)["small"].calls == parts(done)["large"].calls == 0
    assert parts(done)["judge"].calls <= 6, "equal texts have one score"
    # What votes have drawn is not what best-of-n could pay for beside its scores.
    file = experiment_file(n="[8]", more="budget: {calls: 8}\n")
    run(file, tmp_path / "votes", "grid.strategies=[majority]")
    more = parts(estimate.estimate(schema.load(file), tmp_path / "votes"))
    assert more["small"].calls == 0 and 0 < more["judge"].calls <= 2 * 6 * 4, "one score for equal texts"
    file = experiment_file(n="[8]", more="budget: {generated: 48}\n")
    run(file, tmp_path / "tokens")
    done = estimate.estimate(schema.load(file), tmp_path / "tokens")
    assert (done.total.generated or 0) < 2 * 6 * 24, "less than one more sample would need"


def test_each_configuration_has_the_budget_for_itself(experiment_file: Write) -> None:
    """A vote draws all that its calls allow; best-of-n shares them with its scores."""
    found = parts(estimate.estimate(schema.load(experiment_file(n="[8]", more="budget: {calls: 8}\n"))))
    assert found["small"].calls == 6 * 8 and found["judge"].calls == 2 * 6 * 4


def test_a_probe_has_the_share_of_a_problem_of_the_whole_task(
    experiment_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "allocation: {total: {generated: 6000}}\n"
    experiment = schema.load(experiment_file(n="[8]", more=more))
    with build.open_setup(experiment) as setup:
        own = probe._with_share(setup)
        few = probe.restrict(own, list(own.task.problems())[:2])
        assert few.experiment.budget is not None and few.experiment.budget.generated == 1000
    cluster = experiment.model_copy(
        update={"executor": type(experiment.executor)(kind="ray", shards=ShardsSpec(count=2))}
    )
    asked: list[bool] = []

    def refuse(given: Experiment) -> Any:
        asked.append(given.executor.shards is None)
        raise InputError("seen")

    monkeypatch.setattr(build, "open_setup", refuse)
    with pytest.raises(InputError, match="seen"), probe.run_probe(cluster, 1):
        pass
    assert asked == [True]


def test_a_recorded_pool_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "pool.jsonl").write_text('{"id": "a", "texts": ["A:1", "A:2"], "generated": [3, 3]}\n')
    (tmp_path / "data.jsonl").write_text('{"id": "a", "question": "1", "answer": "1"}\n')
    (tmp_path / "pool.yaml").write_text(
        "name: pool\ntask: {kind: jsonl, path: data.jsonl}\n"
        "generators: {pool: {kind: replay, path: pool.jsonl, fields: {generated: generated}}}\n"
        "strategies: {majority: {kind: majority}}\ngrid: {n: [2]}\n"
    )
    (part,) = estimate.estimate(schema.load(tmp_path / "pool.yaml")).parts
    assert (part.calls, part.generated, part.flops) == (2, 0, 0)


def test_a_probe_measures_and_leaves_nothing(experiment_file: Write, calls: Calls, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    file = experiment_file()
    found = estimate.estimate(schema.load(file), probe=2)
    assert len(calls()) == 2 * 2 * 8
    assert (found.bounds, found.total.recorded) == (False, 0)
    assert found.seconds is not None and found.seconds > 0
    assert "at the pace of the probe" in shown(found) and "Only the probe was run" in shown(found)
    assert any("in the probe" in how for how in parts(found)["small"].how)
    assert any("pace of a probe of 2 problems" in note for note in found.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "sums.yaml", "calls.log"])


def test_a_text_of_two_generators_is_scored_and_counted_once(experiment_file: Write, tmp_path: Path) -> None:
    file, root = experiment_file(), tmp_path / "run"
    # Of the same seeds and skill, under another name.
    alike = ("generators.large.skill=0.5",)
    run(file, root, *alike)
    with SQLiteJournal(root / "journal.sqlite", read_only=True) as journal:
        rows = [row for problem in journal.problems() for row in journal.of_problem(problem)]
    found = estimate.estimate(schema.load(file, sets=alike), root)
    assert parts(found)["judge"].recorded == sum(row.kind == "score" for row in rows)


def test_an_earlier_run_gives_the_pace(experiment_file: Write, tmp_path: Path) -> None:
    file, root = experiment_file(), tmp_path / "runs" / "sums"
    run(file, root, "grid.n=[2]")
    directory = RunDirectory(root)
    directory.save(replace(directory.state(), seconds=48.0))
    found = estimate.estimate(schema.load(file))
    assert found.seconds == pytest.approx(48.0 / (2 * 6 * 2) * (2 * 6 * 8))
    assert "about 3 min 12 s at the pace of an earlier run" in shown(found)
    assert "Nothing was run" in shown(found)
    assert any("24 samples in 48.0 s" in note for note in found.notes)
    assert found.to_dict()["expected_seconds"] == found.seconds
    # Of another generator, and of a call that made nothing, it says nothing.
    assert estimate.estimate(schema.load(file, sets=["generators.small.skill=0.9"])).seconds is None
    assert estimate.estimate(schema.load(file, sets=["grid.n=[2]"]), root).seconds is None
    run(file, root, "grid.n=[2]")
    assert estimate.estimate(schema.load(file)).seconds is None
    # Under a budget a run counts solutions.
    run(experiment_file(more="budget: {generated: 200}\n"), tmp_path / "runs" / "sums-2")
    assert estimate.estimate(schema.load(file)).seconds is None


def test_a_least_time_is_no_bound(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    found = estimate.estimate(schema.load(file), hardware="laptop-cpu")
    assert re.search(r"at most 36 calls, [^;]* FLOPs; at least 0\.\d+ s on laptop-cpu", shown(found))
    assert found.bounds and found.seconds is None


def test_what_would_keep_the_run_from_beginning_is_told(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=1, n="[1]")
    with pytest.raises(InputError, match="unknown hardware 'h2000'"):
        estimate.estimate(schema.load(file), hardware="h2000")
    run(file, tmp_path / "run")
    with pytest.raises(InputError, match="written with seed 3, this experiment has 4"):
        estimate.estimate(schema.load(file, sets=["seed=4"]), tmp_path / "run")


def test_json_has_every_figure(experiment_file: Write) -> None:
    found = estimate.estimate(schema.load(experiment_file()))
    data = found.to_dict()
    assert data["total"]["calls"] == found.total.calls
    assert [part["name"] for part in data["parts"]] == [part.name for part in found.parts]
    assert all(part["how"] for part in data["parts"] if part["role"] == "generation")


def test_strategies_that_choose_among_n_are_counted_as_far_as_they_are_known(tmp_path: Path) -> None:
    """Samples and scores of all that draw n; what is asked in order to choose, and what stands over others, is told."""
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY, "utf-8")
    plain = estimate.estimate(schema.load(file, sets=["grid.strategies=[best-of-n]"]))
    for spec, told in (
        ("{kind: soft_best_of_n, verifier: last, beta: 0.1}", None),
        ("{kind: borda, verifier: last}", None),
        ("{kind: mbr, utility: {kind: edit}, verifier: last}", None),
        (
            "{kind: rejection, verifier: last}",
            "at most n samples are counted; it ends with the first accepted",
        ),
    ):
        found = estimate.estimate(
            schema.load(file, sets=[f"strategies.best-of-n={spec}", "grid.strategies=[best-of-n]"])
        )
        assert [(p.name, p.calls) for p in found.parts] == [(p.name, p.calls) for p in plain.parts], spec
        assert any(told in note for note in found.notes) if told else not found.notes, spec
        assert not found.missing and found.total.calls == plain.total.calls
    sets = ["strategies.best-of-n={kind: universal}", "grid.strategies=[best-of-n]"]
    (missing, _) = estimate.estimate(schema.load(file, sets=sets)).missing
    assert "what a model is asked in order to choose" in missing
    sets = [
        "strategies.best-of-n={kind: best_of_n, verifier: last, over: single}",
        "grid.strategies=[best-of-n]",
    ]
    over = estimate.estimate(schema.load(file, sets=sets))
    assert not over.parts and "stands over another" in over.missing[0]
    for kind, told in (
        ("{kind: majority}", ()),
        (
            "{kind: weighted, verifier: last}",
            ("writer/best-of-n@1: its n samples are counted, the scores that its aggregator reads are not",),
        ),
    ):
        sets = [
            f"strategies.best-of-n={{kind: parallel, aggregator: {kind}}}",
            "grid.strategies=[best-of-n]",
            "grid.n=[1]",
        ]
        found = estimate.estimate(schema.load(file, sets=sets))
        assert [(part.name, part.calls) for part in found.parts] == [("writer", 4)]
        assert found.missing == told
