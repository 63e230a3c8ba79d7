"""Recorded pools in studies: halves that share nothing, published figures, what critiques cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from metagen.analysis.estimators import pass_at_k
from metagen.cli import app
from metagen.errors import ConfigError, DataError, InputError
from metagen.generators.pool import read_pool
from metagen.generators.replay import ReplayGenerator
from metagen.runs import study as run
from metagen.runs.curves import collect
from metagen.runs.curves.measured import Pool
from metagen.runs.curves.recorded import add_critique_costs, halves
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import schema
from metagen.runs.declare import study_schema as studies
from metagen.runs.directory import RunDirectory
from metagen.runs.questions.recommend import recommend
from metagen.runs.questions.splitting import splits
from metagen.runs.table.tables import floats, read
from metagen.runs.work import build, runner
from tests.runs.made import made

DATA = Path(__file__).parents[2] / "data" / "pools"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "pools"
EXAMPLE = Path(__file__).parents[3] / "examples" / "recorded_study.yaml"
PUBLISHED = (0.437378, 0.554786, 0.647166, 0.716224, 0.764144, 0.791863, 0.820310, 0.875)


def ran(file: Path, root: Path, *sets: str) -> RunDirectory:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))
    return RunDirectory(root)


def experiment(root: Path, *sets: str) -> RunDirectory:
    """The example without its section `study:`, run."""
    text = EXAMPLE.read_text("utf-8").partition("\nstudy:")[0].replace("../tests/data/pools", str(DATA))
    (root / "gpqa.yaml").write_text(text, encoding="utf-8")
    return ran(root / "gpqa.yaml", root / "run", *sets)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    every = (f"strategies.weighted-{k}={{kind: weighted, verifier: v{k}}}" for k in (1, 4))
    return experiment(tmp_path_factory.mktemp("gpqa"), *every)


# ------------------------------------------------------------------------------------------------ halves


def ragged(sizes: list[int], seed: int = 0) -> Pool:
    """Samples whose score is their number, so that each can be told apart."""
    rng, width = np.random.default_rng(seed), max(sizes)
    there = np.arange(width) < np.array(sizes)[:, None]
    number = np.arange(len(sizes) * width, dtype=float).reshape(-1, width)
    classes = np.where(there, rng.integers(0, 3, there.shape), -1)
    return Pool(
        classes, there, there & (classes == 0), {"id": np.where(there, number, np.nan)},
        np.full(len(sizes), -1), np.array(sizes),
    )  # fmt: skip


def test_halves_share_no_sample_and_lose_none() -> None:
    pool = ragged([8, 5, 2, 1, 8])
    first, second = halves(pool, seed=3)
    assert first.sizes.tolist() == [4, 2, 1, 0, 4] and second.sizes.tolist() == [4, 3, 1, 1, 4]
    for row in range(5):
        one, two = (set(half.scores["id"][row, : half.sizes[row]]) for half in (first, second))
        assert not one & two and one | two == set(pool.scores["id"][row, : pool.sizes[row]])
    for half in (first, second):
        behind = np.arange(half.classes.shape[1]) >= half.sizes[:, None]
        assert np.isnan(half.scores["id"][behind]).all() and not half.correct[behind].any()
        there = ~behind
        at = np.searchsorted(np.arange(40.0), half.scores["id"][there])
        assert (half.classes[there] == pool.classes.ravel()[at]).all(), "samples keep their answers"


def test_halves_are_random_under_a_seed() -> None:
    pool = ragged([64])
    assert (halves(pool, 0)[0].scores["id"] == halves(pool, 0)[0].scores["id"]).all()
    firsts = np.array([np.isin(np.arange(64), halves(pool, seed)[0].scores["id"]) for seed in range(200)])
    # Each sample is in the first half with probability 1/2: ± 5 standard errors.
    assert np.abs(firsts.mean(axis=0) - 0.5).max() < 5 * 0.5 / 200**0.5


def test_halves_of_single_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"no problem has 2 samples to divide \(the most are 1\)"):
        halves(ragged([1, 1]))


def test_a_half_is_measured_like_any_pool(verified: RunDirectory) -> None:
    pool = Pool.of(verified, "llama-70b")
    first, second = halves(pool)
    whole, _ = pool.curve("best_of_n", [1, 8], "oracle")
    for half in (first, second):
        assert half.sizes.tolist() == [32] * 64
        part, _ = half.curve("best_of_n", [1, 8, 64], "oracle")
        assert np.isnan(part[2]).all() and abs(part[:2].mean(axis=1) - whole.mean(axis=1)).max() < 0.02
    votes = [half.curve("majority", [32])[0].mean() for half in (first, second)]
    assert votes == pytest.approx([pool.curve("majority", [32])[0].mean()] * 2, abs=0.05)


# ------------------------------------------------------------------------------------------------ published


def test_published_coverage_and_majority_come_out_of_a_study_of_the_pool(tmp_path: Path) -> None:
    full = DATA / "gpqa64_llama3.3_70b.jsonl"
    sets = [
        f"task.path={full}",
        f"generators.llama-70b={{kind: replay, path: {full}, fields: {{texts: answers}}}}",
        "grid.strategies=[single, majority, pass]",
        "grid.n=[1, 2, 4, 8, 16, 32, 64, 128]",
    ]
    result = collect.of_run(experiment(tmp_path, *sets))
    coverage = result.curve("llama-70b", "pass")
    assert coverage.ns.tolist() == [1 << i for i in range(8)] and coverage.oracle
    assert coverage.accuracy.mean(axis=1) == pytest.approx(PUBLISHED, abs=1e-6)
    majority = result.curve("llama-70b", "majority")
    assert majority.accuracy[-1].mean() == pytest.approx(0.46875, abs=1e-9)
    assert (majority.error[-1] == 0).all(), "all 128: one subset"


def test_more_verifications_tell_more(verified: RunDirectory) -> None:
    """The mean of eight verdicts separates right from wrong answers better than one of them."""
    from metagen.analysis.selection import within_problem_auc

    pool = Pool.of(verified, "llama-70b")
    aucs = [within_problem_auc(pool.scores[f"v{k}"], pool.correct) for k in (1, 4, 8)]
    assert aucs[0] < aucs[1] < aucs[2]
    assert all(np.isfinite(pool.scores[name]).mean() > 0.98 for name in ("v4", "v8"))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "single", "best"), [("standard", 0.0734, 0.33), ("cot", 0.0403, 0.49)])
def test_the_published_figures_of_the_game_of_24(
    form: str, single: float, best: float, tmp_path: Path
) -> None:
    result = graded(f"game24_gpt4_tot_naive_{form}_sample_100.jsonl", tmp_path, "--correct", "correct")
    assert result.curve("recorded", "single").accuracy.mean() == pytest.approx(single, abs=1e-9)
    assert result.curve("recorded", "pass").accuracy[-1].mean() == pytest.approx(best, abs=1e-9)


@pytest.mark.slow
def test_the_published_vote_of_svamp_lies_within_what_its_ties_allow(tmp_path: Path) -> None:
    """The published 88.19% breaks ties in its own way; shared ties give what lies between all ways."""
    result = graded("svamp_codex_pot_n30.jsonl", tmp_path, "--samples", "answers")
    vote = result.curve("recorded", "majority").accuracy[-1].mean()
    assert 0.8769 <= vote <= 0.8839 and vote == pytest.approx(0.8804, abs=5e-4)


def graded(name: str, root: Path, *options: str) -> StudyResult:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not here; it is looked for in {SHARED}")
    command = ["grade", str(SHARED / name), *options, "--out", str(root / "run")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    return collect.of_run(RunDirectory(root / "run"))


@pytest.mark.slow
def test_the_whole_pool_has_scores_for_half_of_its_samples(tmp_path: Path) -> None:
    name = "gpqa64_llama3.3-70b_genrm.jsonl"
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not here; it is looked for in {SHARED}")
    fields = {"texts": "answers", **{f"scores.v{k}": f"verifications[0:{k}]" for k in (1, 32)}}
    pool = read_pool(SHARED / name, fields)
    assert all(len(samples) == 128 for samples in pool.values())
    assert all(sample.scores["v32"] is None for samples in pool.values() for sample in samples[64:])
    scores = np.array([[s.scores["v32"] for s in samples[:64]] for samples in pool.values()], dtype=float)
    assert np.isfinite(scores).mean() > 0.999, "a verdict is missing now and then, and hardly ever all 32"
    # The shipped excerpt is the beginning of it.
    part = read_pool(
        DATA / "gpqa64_llama3.3_70b_verified.jsonl", {"texts": "answers", "scores.v1": fields["scores.v1"]}
    )
    for problem, samples in part.items():
        assert [(s.text, s.scores["v1"]) for s in samples] == [
            (s.text, s.scores["v1"]) for s in pool[problem][:64]
        ]


# ------------------------------------------------------------------------------------------------ costs


def test_critiques_cost_what_the_study_states() -> None:
    result = made()
    free = tuple(replace(c, verification=np.zeros_like(c.verification)) for c in result.curves)
    facts = {"splitting": {"critiques": {"4": "prm"}, "aggregate": "weighted"}, "critique_cost": 0.5}
    stated = add_critique_costs(replace(result, curves=free, facts=facts))
    for before, after in zip(free, stated.curves, strict=True):
        factor = 3.0 if before.verifier == "prm" and before.source == "pool" else 1.0
        for cost in ("flops_2n", "tokens", "generated"):
            assert after.costs[cost] == pytest.approx(before.costs[cost] * factor)
        assert (after.costs["flops"] == before.costs["flops"]).all()
        assert (after.verification == before.verification).all(), "of the exact FLOPs, which are known"
    assert [n.text for n in stated.notes if n.about == "prm"] == [
        "a score prm counts as 4 critiques of 0.5 samples each: stated, not measured"
    ]
    assert add_critique_costs(stated) is stated, "counted once"


def test_critiques_without_a_stated_cost_are_said_to_be_free() -> None:
    result = made()
    free = tuple(replace(c, verification=np.zeros_like(c.verification)) for c in result.curves)
    found = add_critique_costs(replace(result, curves=free))
    assert all(
        (a.costs["flops_2n"] == b.costs["flops_2n"]).all() for a, b in zip(found.curves, free, strict=True)
    )
    (note,) = (n for n in found.notes if n.about == "prm")
    assert "prm count as free" in note.text and "cost_of_critique" in note.text
    # A verifier whose compute was counted is left alone.
    assert not any(n.about == "prm" for n in add_critique_costs(result).notes)
    with pytest.raises(InputError, match=r"cost_of_critique = -1: expected a number ≥ 0"):
        add_critique_costs(replace(result, facts={"critique_cost": -1}))


def test_a_recorded_pool_gives_advice_that_runs(verified: RunDirectory, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    command = ["recommend", str(verified.root), "--budget", "samples=16", "--json", "--out", str(best)]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    again = collect.of_run(ran(best, tmp_path / "again"))
    (curve,) = again.curves
    assert curve.name == f"llama-70b/{data['strategy']}" and curve.ns.tolist() == [data["n"]]
    # Of that many samples a problem, others than those of the whole pool's average.
    assert abs(curve.accuracy.mean() - data["naive"]) < 0.15
    unknown = CliRunner().invoke(app, ["recommend", str(verified.root), "--budget", "flops_2n=1e15"])
    assert unknown.exit_code == 2 and "study.sizes for a recorded pool" in unknown.output


def test_sizes_stand_in_for_counts_of_tokens(verified: RunDirectory) -> None:
    from metagen.runs.declare.study import SizeSpec

    sizes = {"llama-70b": SizeSpec(parameters=70e9, tokens=900.0)}
    result = add_critique_costs(collect.of_run(verified, sizes=sizes))
    majority = result.curve("llama-70b", "majority")
    assert majority.cost("flops_2n") == pytest.approx(2 * 70e9 * 900 * majority.ns)
    assert np.isnan(majority.costs["seconds"]).all(), "what was measured is the time of looking samples up"
    assert any("study.sizes" in note.text for note in result.notes)
    found = recommend(result, {"flops_2n": 1e15})
    assert found.costs["flops_2n"] <= 1e15 and found.n <= 7


COUNTED = [
    {"id": f"p{i}", "outs": ["def f(): return 1", "pass", None, "x"], "ok": [1, 0, 1, None if i == 0 else 0],
     "len": [100, 200, None if i == 1 else 300, 400], "took": [1.0, 2.0, 3.0, 4.0]}
    for i in range(3)
]  # fmt: skip


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Programs with verdicts, one unknown, counts of tokens, one unknown, and seconds."""
    root = tmp_path_factory.mktemp("counted")
    (root / "pool.jsonl").write_text("\n".join(map(json.dumps, COUNTED)), encoding="utf-8")
    (root / "it.yaml").write_text(
        """
name: counted
task: {kind: recorded, path: pool.jsonl}
generators:
  theirs:
    kind: replay
    path: pool.jsonl
    fields: {texts: outs, correct: ok, generated: len, seconds: took}
    price: {prompt: 0, generated: 10}
verifiers: {oracle: {kind: oracle}}
strategies: {single: {kind: sample}, majority: {kind: majority}, pass: {kind: best_of_n, verifier: oracle}}
grid: {n: [1, 2, 4]}
""",
        encoding="utf-8",
    )
    return ran(root / "it.yaml", root / "run")


def test_counts_seconds_and_money_are_those_that_were_recorded(counted: RunDirectory) -> None:
    from metagen.runs.declare.study import SizeSpec

    sizes = {"theirs": SizeSpec(parameters=1e9, tokens=7.0)}
    result = collect.of_run(counted, sizes=sizes)
    curve = result.curve("theirs", "majority")
    # Of p0 the sample without a verdict is left out; of p1 the third counts as the mean of the others.
    mean = np.array([200.0, (100 + 200 + 400 + 233) / 4, 250.0])
    ns = np.array([[1.0] * 3, [2.0] * 3, [np.nan, 4.0, 4.0]])
    for cost in ("generated", "tokens"):
        assert curve.costs[cost] == pytest.approx(ns * mean, nan_ok=True)
    assert curve.costs["flops_2n"] == pytest.approx(2e9 * ns * mean, nan_ok=True)
    assert curve.costs["seconds"] == pytest.approx(ns * np.array([2.0, 2.5, 2.5]), nan_ok=True)
    assert curve.costs["money"] == pytest.approx(ns * mean * 1e-5, nan_ok=True)
    text = " | ".join(note.text for note in result.notes)
    for said in (
        "1 without a verdict (null) among 12 samples: left out (unknown: exclude)",
        "3 of 11 samples are null: they abstain",
        "1 of 11 samples have no generated (null): each counts as the mean of the others",
        "the tokens of its prompts are unknown",
        "recorded with its samples, one call after the other",
    ):
        assert said in text
    assert "study.sizes` says" not in text
    found = recommend(result, {"tokens": 1000.0})
    assert found.costs["tokens"] <= 1000.0


LIVE = """
name: live
task: {{kind: jsonl, path: live.jsonl, fields: {{id: id, question: question, answer: gold}}, answer: math}}
engines: {{reward: {{kind: torch, model: tiny-prm}}, writer: {{kind: torch, model: tiny-critic}}}}
generators: {{theirs: {{kind: replay, path: live.jsonl, fields: {{texts: outs{fields}}}}}}}
verifiers: {{prm: {{kind: prm, engine: reward}}, judge: {{kind: judge, engine: writer, critiques: 2}}}}
strategies:
  majority: {{kind: majority}}
  best: {{kind: best_of_n, verifier: prm}}
  judged: {{kind: weighted, verifier: judge}}
  soft: {{kind: soft_best_of_n, verifier: prm, beta: 0.2, n: 2}}
  adaptive: {{kind: adaptive_consistency, n: 2}}
grid: {{n: [1, 2]}}
"""


@pytest.mark.parametrize("counts", [True, False])
def test_the_size_of_a_model_prices_its_samples_and_not_who_judges_them(counts: bool, tmp_path: Path) -> None:
    from metagen.runs.declare.study import SizeSpec

    lines = [{"id": f"p{i}", "question": f"{i}+1=?", "gold": str(i + 1), "outs": [str(i + 1), "7"], "len": [5, 9]}
             for i in range(2)]  # fmt: skip
    (tmp_path / "live.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "live.yaml").write_text(
        LIVE.format(fields=", generated: len" if counts else ""), encoding="utf-8"
    )
    directory, size = ran(tmp_path / "live.yaml", tmp_path / "run"), SizeSpec(parameters=1e9, tokens=10.0)
    result = add_critique_costs(collect.of_run(directory, sizes={"theirs": size}))
    plain = result.curve("theirs", "majority")
    written = (7.0 if counts else 10.0) * plain.ns
    assert plain.cost("generated") == pytest.approx(written)
    assert plain.cost("flops_2n") == pytest.approx(2e9 * written)
    for strategy in ("best", "judged"):
        curve, judged = result.curve("theirs", strategy), {}
        for cost in ("flops_2n", "generated", "tokens"):
            names = ("prefilled", "generated") if cost == "tokens" else (cost,)
            rows = read(directory.table("costs"), ["part", "n", *names]).filter(
                pc.field("part") == curve.verifier
            )
            judged[cost] = np.array([
                sum(floats(rows.filter(pc.field("n") == n)[name]).mean() for name in names) for n in (1, 2)
            ])  # fmt: skip
            assert curve.cost(cost) == pytest.approx(plain.cost(cost) + judged[cost])
        assert (judged["flops_2n"] > 0).all() and (judged["generated"] > 0).all() == (strategy == "judged")
    # Of what ran by itself only the sum was kept.
    assert result.curve("theirs", "adaptive").cost("flops_2n") == pytest.approx(written[1] * 2e9)
    assert np.isnan(result.curve("theirs", "soft").costs["flops_2n"]).all()
    said = [note.text for note in result.notes if note.about == "theirs/soft"]
    assert said == ["verifiers spent a part of its costs: `study.sizes` cannot tell what is unknown of them"]
    assert not any("count as free" in note.text for note in result.notes)


def test_verdicts_decide_in_a_study(counted: RunDirectory) -> None:
    """Two of three or four samples are right, and no rule reads one of them."""
    result = collect.of_run(counted)
    expected = [[2 / 3, 1 / 2, 1 / 2], [1.0, 5 / 6, 5 / 6], [np.nan, 1.0, 1.0]]
    assert result.curve("theirs", "pass").accuracy == pytest.approx(np.array(expected), nan_ok=True)
    assert result.curve("theirs", "single").accuracy[0] == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    (votes,) = result.votes
    assert votes.eligible.sum() == 11 and votes.sizes.tolist() == [3, 4, 4]


def test_counts_of_right_samples_are_enough_for_the_coverage_of_a_study(tmp_path: Path) -> None:
    counts = [{"id": f"p{i}", "n": 8, "successes": i} for i in range(3)]
    (tmp_path / "counts.jsonl").write_text("\n".join(map(json.dumps, counts)), encoding="utf-8")
    (tmp_path / "it.yaml").write_text(
        """
name: counts
task: {kind: recorded, path: counts.jsonl}
generators: {theirs: {kind: replay, path: counts.jsonl, fields: {successes: successes}}}
verifiers: {oracle: {kind: oracle}}
strategies: {single: {kind: sample}, pass: {kind: best_of_n, verifier: oracle}}
grid: {n: [1, 4, 8]}
""",
        encoding="utf-8",
    )
    result = collect.of_run(ran(tmp_path / "it.yaml", tmp_path / "run"))
    exact = [pass_at_k(8, np.arange(3), k) for k in (1, 4, 8)]
    assert result.curve("theirs", "pass").accuracy == pytest.approx(np.array(exact))
    assert any("no sample has a text" in note.text for note in result.notes)


@pytest.mark.slow
def test_the_example_is_studied_and_gives_advice(tmp_path: Path) -> None:
    root = tmp_path / "gpqa"
    fewer = ["--set", "grid.n=[1, 4, 16]", "--set", "study.splitting.n=[1, 4]"]
    found = CliRunner().invoke(app, ["study", str(EXAMPLE), "--limit", "10", *fewer, "--out", str(root)])
    assert found.exit_code == 0, found.output
    assert (root / "report.html").exists()
    result = StudyResult.load(root)
    curve = result.curve("llama-70b", "majority")
    assert curve.ns.tolist() == [1, 4], "half of what is taken"
    assert {v.role: v.sizes.tolist() for v in result.votes} == {"test": [8] * 10, "limit": [8] * 10}
    found = CliRunner().invoke(app, ["recommend", str(root), "--budget", "flops_2n=1e15", "--json"])
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["costs"]["flops_2n"] <= 1e15 and "name: gpqa-recommended" in data["yaml"]
    # Eight critiques of half a sample each: five times the cost of a vote over as many.
    weighted = result.curve("llama-70b", "weighted")
    assert weighted.cost("flops_2n") == pytest.approx(5 * curve.cost("flops_2n"))
    # The same in the split of compute, counted once.
    (split,) = splits(result, {"splitting": StudyResult.load(root / "splitting")})
    plain, eight = (split.curves[name].cost("flops_2n") for name in ("plain vote", "k = 8"))
    assert split.cost == "flops_2n" and eight == pytest.approx(5 * plain)


@pytest.mark.parametrize("known", [True, False])
def test_a_price_of_critiques_is_paid_whichever_cost_is_known(known: bool) -> None:
    """Recorded samples with token counts alone: four critiques of half a sample each make a sample three of its own."""
    base, curves = made(40, 8), []
    for curve in base.curves:
        if curve.model == "small" and curve.kind in ("majority", "weighted"):
            tokens, unknown = curve.costs["generated"], np.full_like(curve.costs["generated"], np.nan)
            flops = 2e5 * tokens if known else unknown
            costs = {"generated": tokens, "tokens": tokens, "flops": unknown, "flops_2n": flops}
            curves.append(replace(curve, costs=costs, verification=np.zeros_like(tokens)))
    facts = {"splitting": {"critiques": {"4": "prm"}, "aggregate": "weighted"}, "critique_cost": 0.5}
    result = add_critique_costs(replace(base, curves=tuple(curves), facts=facts, budgets={}))
    (split,) = splits(result, {})
    assert (split.cost, split.assumed) == (("flops_2n", None) if known else ("tokens", 0.5))
    plain, verified = (split.curves[name].cost(split.cost) for name in ("plain vote", "k = 4"))
    assert verified == pytest.approx(3.0 * plain)
    free = [note.text for note in result.notes if "count as free" in note.text]
    assert free == (
        [] if known else ["scores prm of small count as free: 2N·T is unknown; give study.sizes.small"]
    )


# ------------------------------------------------------------------------------------------------ verified in part


def in_part(root: Path) -> Path:
    """A study of 10 problems with 16 samples each, the first 8 verified twice; of the last problem none."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(10):
        answers = [str(a) for a in rng.integers(1, 4, size=16)]
        verdicts = [[int(a == "1"), int(a == "1")] for a in answers[:8]]
        if i == 0:
            verdicts[0][0] = None
        line = {"id": f"p{i}", "question": f"q{i}", "gold": "1", "answers": answers}
        lines.append(json.dumps({**line, "verifications": verdicts if i < 9 else []}))
    (root / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    file = root / "part.yaml"
    file.write_text(
        "name: part\n"
        "task: {kind: jsonl, path: pool.jsonl, fields: {id: id, question: question, answer: gold}, answer: math}\n"
        "generators:\n  t: {kind: replay, path: pool.jsonl, fields: {texts: answers, "
        'scores.v1: "verifications[0:1]", scores.v2: "verifications[0:2]"}}\n'
        "verifiers: {v1: {kind: recorded, score: v1}, v2: {kind: recorded, score: v2}}\n"
        "strategies: {majority: {kind: majority}}\ngrid: {n: [1, 16]}\n"
        "study:\n  sizes: {t: {parameters: 70.0e+9, tokens: 900}}\n"
        "  splitting:\n    {models: [t], aggregate: best_of_n, critiques: {1: v1, 2: v2}, n: [1, 8], "
        "cost_of_critique: 0.5}\n",
        encoding="utf-8",
    )
    return file


def test_the_split_of_compute_takes_the_verified_samples_only(tmp_path: Path) -> None:
    file = in_part(tmp_path)
    study = studies.load(file)
    result = run.run(study, tmp_path / "study")
    split = StudyResult.load(tmp_path / "study" / "splitting")
    (votes,) = split.votes
    assert votes.sizes.tolist() == [8] * 9 + [0], "what nobody verified is not judged as if it had failed"
    assert np.isfinite(votes.scores["v2"][:9]).all()
    two, lines = split.curve("t", "split-2"), (tmp_path / "pool.jsonl").read_text("utf-8").splitlines()
    able = [float("1" in json.loads(line)["answers"][:8]) for line in lines]
    np.testing.assert_allclose(two.accuracy[1, :9], able[:9])
    taken = "72 of 160 samples are taken, those that v2 has scored, of 1 of 10 problems none"
    lacking = (
        "1 of 72 samples have no score of v1: they come last"  # a critique without a verdict was paid for
    )
    notes = [(note.about, note.text) for note in result.notes]
    assert ("splitting, t", taken) in notes and ("splitting, t/split-1", lacking) in notes
    assert StudyResult.load(tmp_path / "study").notes == result.notes
    assert run.run(study, tmp_path / "study").notes == result.notes


def test_a_pool_may_be_cut_to_the_samples_with_a_score(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(in_part(tmp_path).read_text("utf-8").partition("study:")[0], encoding="utf-8")
    bad = ["generators.t.scored=v3"]
    with pytest.raises(ConfigError, match=r"fields maps no scores\.v3"):
        schema.load(file, sets=bad)
    alone = ["generators.t.scored=v2", "strategies.adaptive={kind: adaptive_consistency, n: 2}"]
    # What runs by itself needs samples of every problem.
    with (
        pytest.raises(DataError, match="holds 0 samples of problem 'p9'"),
        build.open_setup(schema.load(file, sets=alone)),
    ):
        pass
    pool = ReplayGenerator.from_jsonl(
        tmp_path / "pool.jsonl", {"texts": "answers", "scores.v": "verifications[0:1]"}, "v"
    )
    assert [pool.size(f"p{i}") for i in range(10)] == [7, *[8] * 8, 0]
    with pytest.raises(DataError, match=r"no sample of the pool .* has a score 'w'"):
        ReplayGenerator.from_jsonl(tmp_path / "pool.jsonl", {"texts": "answers"}, "w")
