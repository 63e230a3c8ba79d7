"""From an experiment to live objects, with real engines on the smallest embedded model."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen.errors import DataError, InputError, UnsupportedError
from metagen.generators.models import sources
from metagen.generators.primitive import EngineGenerator
from metagen.runs.declare import registry
from metagen.runs.declare.cells import configurations
from metagen.runs.declare.schema import load
from metagen.runs.directory import Cell
from metagen.runs.work.build import cautions, open_setup
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample, WeightedVote
from metagen.verifiers.reward import OutcomeRewardModel, ProcessRewardModel

MODEL = "tiny-0.1m"
FILE = """\
name: build
task: {kind: arithmetic, levels: [1, 2], per_level: 2}
engines:
  mid: {kind: 'logged:Engine', model: MODEL, log: LOG}
  spare: {kind: 'logged:Engine', model: MODEL, log: LOG}
  reward: {kind: torch, model: reward}
generators:
  mid: {engine: mid, max_tokens: 40}
  spare: {engine: spare}
verifiers:
  prm: {kind: prm, engine: reward, aggregation: mean}
  orm: {kind: orm, engine: reward}
  truth: {kind: oracle}
strategies:
  single: {kind: sample}
  greedy: {kind: greedy}
  majority: {kind: majority}
  best: {kind: best_of_n, verifier: prm}
  outcome: {kind: weighted, verifier: orm}
  bound: {kind: best_of_n, verifier: truth}
grid: {generators: [mid], n: [1, 2]}
"""
LOGGED = """\
from metagen.generators.torch import TorchEngine

class Engine(TorchEngine):
    def __init__(self, model, *, log, threads=None):
        self.log = log
        super().__init__(model, threads=threads)

    def note(self, what):
        with open(self.log, "a") as file:
            file.write(what + "\\n")

    def __enter__(self):
        self.note("open")
        return super().__enter__()

    def __exit__(self, *error):
        self.note("close")
        return super().__exit__(*error)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An experiment with engines that note when they open and close, and a reward model of random opinion."""
    model = tmp_path / "reward"
    shutil.copytree(sources.resolve(MODEL), model)
    config = json.loads((model / "config.json").read_text())
    config["metagen"] = {"tag": "<step>", "positive": "<+>", "negative": "<->"}
    (model / "config.json").write_text(json.dumps(config))
    (tmp_path / "logged.py").write_text(LOGGED)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "build.yaml"
    path.write_text(FILE.replace("MODEL", str(sources.resolve(MODEL))).replace("LOG", str(tmp_path / "log")))
    yield path
    sys.modules.pop("logged", None)


def log(file: Path) -> list[str]:
    noted = file.parent / "log"
    return noted.read_text().split() if noted.exists() else []


def test_the_grid_names_its_cells(file: Path) -> None:
    cells = configurations(load(file, sets=["grid.strategies=[single, best]", "grid.generators=all"]))
    assert cells == (
        Cell("mid/single", "mid", "single", "sample"),
        Cell("mid/best@1", "mid", "best", "best_of_n", 1, "prm"),
        Cell("mid/best@2", "mid", "best", "best_of_n", 2, "prm"),
        Cell("spare/single", "spare", "single", "sample"),
        Cell("spare/best@1", "spare", "best", "best_of_n", 1, "prm"),
        Cell("spare/best@2", "spare", "best", "best_of_n", 2, "prm"),
    )
    assert log(file) == []


def test_everything_that_the_grid_needs_is_made_and_works(file: Path) -> None:
    with open_setup(load(file)) as setup:
        assert log(file) == ["open"]
        assert list(setup.generators) == ["mid"]
        assert list(setup.verifiers) == ["prm", "orm", "truth"]
        prm, orm = setup.verifiers["prm"], setup.verifiers["orm"]
        assert isinstance(prm, ProcessRewardModel) and prm.aggregation == "mean" and prm.name == "prm"
        assert isinstance(orm, OutcomeRewardModel) and orm.name == "orm"
        strategies = {cell.name: setup.strategy(cell) for cell in setup.configurations}
        assert list(strategies) == [
            "mid/single", "mid/greedy", "mid/majority@1", "mid/majority@2", "mid/best@1", "mid/best@2",
            "mid/outcome@1", "mid/outcome@2", "mid/bound@1", "mid/bound@2",
        ]  # fmt: skip
        kinds = [Sample, Sample, MajorityVote, MajorityVote, BestOfN, BestOfN, WeightedVote, WeightedVote]
        assert [type(s) for s in strategies.values()] == [*kinds, BestOfN, BestOfN]
        assert [name for name, s in strategies.items() if s.oracle] == ["mid/bound@1", "mid/bound@2"]
        greedy = strategies["mid/greedy"]
        assert isinstance(greedy, Sample) and isinstance(greedy.generator, EngineGenerator)
        assert greedy.generator.params.temperature == 0.0 and greedy.generator.params.max_tokens == 40
        for problem in setup.task.problems():
            for strategy in strategies.values():
                check(strategy, problem.prompt)
    assert log(file) == ["open", "close"]


def test_votes_among_equal_samples_are_told_before_and_with_the_results(file: Path) -> None:
    cold = load(file, sets=["generators.mid.temperature=0"])
    with open_setup(cold) as setup:
        said = (
            "at temperature 0 all samples are equal, so majority, best, outcome, bound cannot gain from more"
        )
        assert [text for text in cautions(setup) if said in text] and said in dict(setup.notes)["mid"]
    with open_setup(load(file)) as setup:
        assert not setup.notes and not any("temperature" in text for text in cautions(setup))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["grid.strategies=[single]"], ["grid.n = [1, 2]: nothing runs with it: single has no n"]),
        (
            ["grid.strategies=[single, majority]", "strategies.majority.n=4"],
            ["grid.n = [1, 2]: nothing runs with it: single has no n, majority has its own"],
        ),
        (["grid.strategies=[single, majority]"], []),
    ],
)
def test_an_n_of_the_grid_that_nothing_runs_with_is_told_before(
    file: Path, sets: list[str], said: list[str]
) -> None:
    with open_setup(load(file, sets=sets)) as setup:
        assert [text for text in cautions(setup) if "grid.n" in text] == said


@pytest.mark.parametrize(
    ("kind", "n", "said"),
    [
        (
            "deepconf, warmup: 4",
            "[2, 4]",
            "strategies.greedy: all n ≤ warmup=4, so every sample is drawn whole",
        ),
        ("deepconf, warmup: 4", "[4, 5]", ""),
        ("esc, window: 5", "[2, 5]", "strategies.greedy: all n ≤ 5, the samples drawn between two looks, so"),
        ("adaptive_consistency, batch: 4", "[2, 4]", "strategies.greedy: all n ≤ 4, the samples drawn"),
        ("until_sure, verifier: orm, batch: 4", "[2, 8]", ""),
        ("majority", "[2]", ""),
    ],
)
def test_a_strategy_that_never_stops_early_is_told_of(file: Path, kind: str, n: str, said: str) -> None:
    changes = ["generators.mid.logprobs=true", f"strategies.greedy={{kind: {kind}, n: {n}}}"]
    with open_setup(load(file, sets=changes)) as setup:
        found = [text for text in cautions(setup) if "all n ≤" in text]
    assert len(found) == bool(said) and all(text.startswith(said) for text in found)


def check(strategy: Strategy, prompt: object) -> None:
    result = strategy.solve(prompt, seed=1)  # type: ignore[arg-type]
    assert result.candidates
    assert result.answer is not None


def test_the_oracle_finds_the_right_sample(file: Path) -> None:
    sets = ["grid.strategies=[single, bound]", "grid.n=[16]"]
    with open_setup(load(file, sets=sets, limit=1)) as setup:
        (problem,) = setup.task.problems()
        bound = setup.strategy(setup.configurations[1]).solve(problem.prompt)
        grades = {offer.key == str(problem.reference) for offer in bound.candidates}
        assert bound.answer is not None
        assert (bound.answer.key == problem.reference) == (True in grades)


def test_engines_close_after_an_error(file: Path) -> None:
    experiment = load(file, sets=["grid.generators=all"])
    with pytest.raises(ZeroDivisionError), open_setup(experiment):
        raise ZeroDivisionError
    assert log(file) == ["open", "open", "close", "close"]


def test_engines_close_when_a_later_one_does_not_open(file: Path) -> None:
    experiment = load(file)
    (file.parent / "reward" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"model\.safetensors"), open_setup(experiment):
        pytest.fail("opened")
    assert log(file) == ["open", "close"]


def test_engines_share_the_cores(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # which is for pools alone
    make = registry.make

    def noted(section: registry.Section, kind: str, options: object, parts: dict[str, object]) -> object:
        if section == "engines":
            given.append(parts["threads"])
        return make(section, kind, options, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "make", noted)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(9), raising=False)
    with open_setup(load(file)):
        assert given == [4, 4]


@pytest.mark.parametrize(("address", "threads"), [("10.0.0.1:6379", None), ("", 4)])
def test_replicas_on_other_machines_do_not_share_the_cores_of_this_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, address: str, threads: int | None
) -> None:
    given = []

    def refuse(executor: object, name: str, spec: object, parts: dict[str, int], more: object) -> None:
        given.append(parts.get("threads"))
        raise ZeroDivisionError

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("metagen.runs.work.build._pool", refuse)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(9), raising=False)
    with pytest.raises(ZeroDivisionError), open_setup(load(file, sets=["executor=ray"])):
        pytest.fail("opened")
    assert given == [threads]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    rows = [
        {"id": f"p{i}", "question": "?", "answer": str(i), "texts": [f"A:{i}"] * (3 - i)} for i in range(2)
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "pool.yaml"
    path.write_text(
        "name: pool\ntask: {kind: jsonl, path: pool.jsonl}\ngenerators: {pool: {kind: replay, path: pool.jsonl}}\n"
        "strategies: {majority: {kind: majority}}\ngrid: {n: [1, 2]}\n"
    )
    return path


def test_a_recorded_pool_runs_without_an_engine(pool: Path) -> None:
    with open_setup(load(pool)) as setup:
        for problem in setup.task.problems():
            result = setup.strategy(setup.configurations[-1]).solve(problem.prompt)
            assert result.answer is not None and result.answer.key == problem.reference


def test_a_pool_too_small_is_refused_before_anything_runs(pool: Path) -> None:
    """n = 3 is measured on the problem that has as many; what no problem has, or runs by itself, is refused."""
    with open_setup(load(pool, sets=["grid.n=[3]"])) as setup:
        assert [cell.n for cell in setup.configurations] == [3]
    alone = "strategies={esc: {kind: esc, window: 1}}"
    for sets, n, size, problem in ((["grid.n=[4]"], 4, 3, "p0"), (["grid.n=[3]", alone], 3, 2, "p1")):
        message = f"generator 'pool' holds {size} samples of problem {problem!r}, the grid asks for {n}; "
        with pytest.raises(DataError, match=message):
            open_setup(load(pool, sets=sets)).__enter__()


@pytest.mark.parametrize("dimension", ["generated", "prefilled", "flops"])
def test_a_budget_that_cannot_be_kept_is_refused_before_anything_runs(pool: Path, dimension: str) -> None:
    experiment = load(pool, sets=[f"budget.{dimension}=5"])
    words = (
        rf"budget\.{dimension} = 5 cannot be kept: generators\.pool does not know .*'p0'.*; give it a count"
    )
    with pytest.raises(UnsupportedError, match=words):
        open_setup(experiment).__enter__()


def test_a_budget_that_can_be_kept_is_not(pool: Path, file: Path) -> None:
    with open_setup(load(pool, sets=["budget={calls: 5, seconds: 9}"])):
        pass
    with open_setup(load(file, sets=["budget={generated: 50, prefilled: 50, flops: 1e9, money: 1}"])):
        pass


def test_a_faulty_data_set_is_refused_before_an_engine_opens(file: Path) -> None:
    (file.parent / "data.jsonl").write_text("")
    experiment = load(file, sets=["task={kind: jsonl, path: data.jsonl}"])
    with pytest.raises(DataError, match="holds no problems"), open_setup(experiment):
        pytest.fail("opened")
    assert log(file) == []


def test_every_kind_meets_a_class() -> None:
    for section, kinds in registry.KINDS.items():
        for kind in kinds:
            assert callable(registry.find(section, kind))
