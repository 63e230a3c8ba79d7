"""Experiment files: every fault, all at once, each with its place, field, value, expectation and nearest name."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen.budget import Budget
from metagen.errors import ConfigError
from metagen.generators import tiny
from metagen.generators.engine import SamplingParams
from metagen.runs.declare import registry
from metagen.runs.declare import study_schema as studies
from metagen.runs.declare.schema import Experiment, dump, load
from metagen.runs.declare.specs import BudgetSpec, EngineGeneratorSpec

MODEL = tiny.names()[0]
GOOD = f"""\
name: quick
seed: 7
task: {{kind: arithmetic, split: validation, levels: [1, 2], per_level: 3}}
engines:
  mid: {{kind: torch, model: {MODEL}}}
generators:
  mid: {{engine: mid, temperature: 1, max_tokens: 300, stop: ["Q:"]}}
  hot: {{engine: mid, temperature: 1.5}}
verifiers:
  oracle: {{kind: oracle}}
strategies:
  single: {{kind: sample}}
  greedy: {{kind: greedy}}
  majority: {{kind: majority}}
  best-of-n: {{kind: best_of_n, verifier: oracle}}
  weighted: {{kind: weighted, verifier: oracle}}
grid:
  generators: [mid]
  n: [1, 4]
budget: {{generated: 4000, flops: 1e12}}
executor: {{concurrency: 8}}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "quick.yaml"
    path.write_text(GOOD)
    return path


def changed(path: Path, old: str, new: str) -> Path:
    """The file with one thing in it changed, and a line number that can be foretold."""
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))
    return path


def faults(path: Path, *sets: str, limit: int | None = None) -> list[str]:
    """The faults of a file, without its directory, after the line that counts them."""
    with pytest.raises(ConfigError) as error:
        load(path, sets=sets, limit=limit)
    head, *lines = str(error.value).replace(f"{path.parent}/", "").splitlines()
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    assert head == f"{path.name} is not a valid experiment, {count}:"
    return lines


def test_a_good_file(good: Path) -> None:
    experiment = load(good)
    assert experiment.seed == 7
    assert experiment.grid.generators == ("mid",)
    assert experiment.grid.strategies == ("single", "greedy", "majority", "best-of-n", "weighted")
    assert experiment.grid.n == (1, 4)
    assert experiment.executor.concurrency == 8
    assert isinstance(experiment.budget, Budget)
    assert (experiment.budget.generated, experiment.budget.flops) == (4000, 1e12)
    mid = experiment.generators["mid"]
    assert isinstance(mid, EngineGeneratorSpec)
    assert mid.params == SamplingParams(temperature=1.0, max_tokens=300, stop=("Q:",))


def test_checking_needs_no_torch(good: Path) -> None:
    code = "import sys; from metagen.runs.declare.schema import load; load(sys.argv[1]); print('torch' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code, str(good)], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "False"


def test_what_is_dumped_loads_back_equal_from_anywhere(good: Path, tmp_path: Path) -> None:
    experiment = load(good, sets=["budget.seconds=1.5"], limit=2)
    (tmp_path / "run").mkdir()
    copy = tmp_path / "run" / "experiment.yaml"
    copy.write_text(dump(experiment))
    assert load(copy) == experiment
    assert dump(load(copy)) == dump(experiment)


def test_a_null_in_place_of_another_default_is_kept(good: Path, tmp_path: Path) -> None:
    first = load(good, sets=["strategies.polished={kind: self_refine, stop: null}"])
    (tmp_path / "again.yaml").write_text(dump(first))
    again = load(tmp_path / "again.yaml")
    assert again == first and again.strategies["polished"].options()["stop"] is None
    data = tmp_path / "code.jsonl"
    data.write_text("{}\n")
    task = f"task={{kind: livecodebench, path: {data}, seconds: null}}"
    assert load(good, sets=[task]).task.options()["seconds"] is None
    assert "seconds: null" in dump(load(good, sets=[task]))


def test_the_home_of_nobody_is_the_users_to_mend(good: Path) -> None:
    for field in ("task={kind: jsonl, path: ~nobody-of-this-name/x.jsonl}", "cache=~nobody-of-this-name/x"):
        with pytest.raises(ConfigError, match="write ~/… for your own home directory"):
            load(good, sets=[field])


def test_relative_paths_begin_at_the_file_and_survive_a_dump(good: Path, tmp_path: Path) -> None:
    model = tmp_path / "models" / "own"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (tmp_path / "data.jsonl").write_text("")
    changed(good, f"model: {MODEL}", "model: models/own")
    changed(
        good,
        "{kind: arithmetic, split: validation, levels: [1, 2], per_level: 3}",
        "{kind: jsonl, path: data.jsonl}",
    )
    experiment = load(good)
    assert experiment.engines["mid"].model_dump()["model"] == str(model)
    assert experiment.task.model_dump()["path"] == str(tmp_path / "data.jsonl")
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "copy.yaml"
    copy.write_text(dump(experiment))
    assert load(copy) == experiment


@pytest.mark.parametrize(
    "search",
    [
        "{kind: diverse_beam, groups: 2}",
        "{kind: constrained_beam, phrases: [ab, [1, 2]]}",
        "{kind: contrastive, k: 3}",
    ],
)
def test_searches_are_dumped_with_the_fields_of_their_kind(good: Path, tmp_path: Path, search: str) -> None:
    experiment = load(good, sets=[f"generators.mid.search={search}", "grid.strategies=[single]"])
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump(experiment))
    assert load(copy) == experiment
    made = experiment.generators["mid"]
    assert isinstance(made, EngineGeneratorSpec)
    assert made.params.search is not None
    assert made.params.search.kind in search


def test_what_draws_jointly_is_no_pool(good: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"strategies.majority.kind.*generator 'mid' .engine. draws jointly"
    ):
        load(good, sets=["generators.mid.search={kind: beam}"])


def test_sets_and_limit(good: Path) -> None:
    sets = [
        "grid.n=[2, 8]",
        "generators.mid.temperature=0.7",
        "grid.generators=all",
        "executor.concurrency=1",
    ]
    experiment = load(good, sets=sets, limit=5)
    assert experiment.grid.n == (2, 8)
    assert experiment.grid.generators == ("mid", "hot")
    assert experiment.generators["mid"].model_dump()["temperature"] == 0.7
    assert experiment.task.model_dump()["limit"] == 5


#: A text of the good file, what takes its place, and the one fault that follows.
TASKS = ", ".join(registry.kinds("task"))
STRATEGIES = ", ".join(registry.kinds("strategies"))
FAULTS = [
    ("seed: 7", "sede: 7", "2: sede = 7: no such field; expected one of name, seed, task, engines, generators, "
     "verifiers, strategies, grid, budget, allocation, executor, cache, serve; did you mean 'seed'?"),
    ("seed: 7", "seed: 7.5", "2: seed = 7.5: expected an integer"),
    ("seed: 7", "seed: '7'", "2: seed = '7': expected an integer"),
    ("name: quick\n", "", "1: name: missing; expected a name of letters, digits and . _ + -"),
    ("name: quick", "name: a/b", "1: name = 'a/b': expected a name of letters, digits and . _ + -"),
    ("arithmetic", "arithmetics", "3: task.kind = 'arithmetics': "
     f"expected one of {TASKS}; "
     "did you mean 'arithmetic'?"),
    ("kind: arithmetic, ", "", "3: task.kind: missing; "
     f"expected one of {TASKS}"),
    ("validation", "valid", "3: task.split = 'valid': expected one of train, validation, test; "
     "did you mean 'validation'?"),
    ("levels: [1, 2]", "levels: [1, 9]", "3: task.levels.1 = 9: expected a level from 1 to 8"),
    ("levels: [1, 2]", "levels: [1, 1]", "3: task.levels = [1, 1]: 1 is given more than once; name each once"),
    ("levels: [1, 2]", "levels: []", "3: task.levels = []: expected at least one"),
    ("levels: [1, 2]", "levels: 1", "3: task.levels = 1: expected a list"),
    ("per_level: 3", "per_level: 0", "3: task.per_level = 0: expected an integer ≥ 1"),
    ("per_level", "perlevel", "3: task.perlevel = 3: no such field; expected one of kind, split, levels, "
     "per_level, seed, limit, form; did you mean 'per_level'?"),
    ("kind: torch", "kind: torhc", "5: engines.mid.kind = 'torhc': expected one of torch, adapter, vllm, openai; did "
     "you mean 'torch'?"),
    ("engine: mid, temperature: 1,", "engine: mdi, temperature: 1,", "7: generators.mid.engine = 'mdi': "
     "expected one of the engines mid; did you mean 'mid'?"),
    ("temperature: 1,", "temperature: -0.5,", "7: generators.mid.temperature = -0.5: "
     "expected a number ≥ 0 (0 is greedy)"),
    ("temperature: 1,", "temperature: .inf,", "7: generators.mid.temperature = inf: "
     "expected a number ≥ 0 (0 is greedy)"),
    ("temperature: 1,", "temperature: warm,", "7: generators.mid.temperature = 'warm': "
     "expected a number ≥ 0 (0 is greedy)"),
    ("temperature: 1,", "temprature: 1,", "7: generators.mid.temprature = 1: no such field; expected one of "
     f"{', '.join(EngineGeneratorSpec.model_fields)}; did you mean 'temperature'?"),
    ("temperature: 1,", "logit_bias: {5: 1.0},", "7: generators.mid.logit_bias = {'5': 1.0}: expected a list of pairs "
     "[id ≥ 0 or text, number]"),
    ("temperature: 1,", "forced: '',", "7: generators.mid.forced = '': expected a text that is not empty, or a list of "
     "ids ≥ 0"),
    ("temperature: 1,", "banned: [''],", "7: generators.mid.banned = ['']: expected a list of texts, or of lists of "
     "ids ≥ 0, none of them empty"),
    ("temperature: 1,", "top_logprobs: 1,", "7: generators.mid.top_logprobs = 1: expected an integer ≥ 2, or 0 (off)"),
    ("temperature: 1,", "search: {kind: beem},", "7: generators.mid.search.kind = 'beem': expected one of beam, "
     "diverse_beam, constrained_beam, stochastic_beam, contrastive"),
    ("temperature: 1,", "search: {kind: beam, width: 0},", "7: generators.mid.search.width = 0: "
     "expected an integer ≥ 1"),
    ("temperature: 1,", "search: {kind: beam, groups: 2},", "7: generators.mid.search = {'groups': 2, 'kind': 'beam'}: "
     "a beam search has no groups; it has width, alpha, early_stopping, score"),
    ("temperature: 1,", "search: {kind: diverse_beam, groups: 3},", "7: generators.mid.search = {'groups': 3, 'kind': "
     "'diverse_beam'}: diverse_beam search: groups=3 do not divide width=4; expected one of 1, 2, 4, or another width"),
    ("max_tokens: 300", "max_tokens: 0", "7: generators.mid.max_tokens = 0: expected an integer ≥ 1"),
    ('["Q:"]', '[""]', "7: generators.mid.stop.0 = '': expected a text that is not empty"),
    ('["Q:"]', '"Q:"', "7: generators.mid.stop = 'Q:': expected a list"),
    ("single: {kind: sample}", "single: 3", "12: strategies.single = 3: expected a mapping with kind: one of "
     f"{STRATEGIES}"),
    ("best_of_n, ", "best_of_m, ", "15: strategies.best-of-n.kind = 'best_of_m': expected one of "
     f"{STRATEGIES}; did you mean 'best_of_n'?"),
    ("{kind: best_of_n, verifier: oracle}", "{kind: best_of_n}", "15: strategies.best-of-n.verifier: missing; "
     "expected the name of a verifier, or its definition"),
    ("{kind: best_of_n, verifier: oracle}", "{kind: best_of_n, verifier: oracel}", "15: "
     "strategies.best-of-n.verifier = 'oracel': expected one of the verifiers oracle; did you mean 'oracle'?"),
    ("{kind: majority}", "{kind: majority, verifier: oracle}", "14: strategies.majority.verifier = 'oracle': "
     "no such field; expected one of kind, over, n, answer"),
    ("generators: [mid]", "generators: [mdi]", "18: grid.generators.0 = 'mdi': expected one of the generators "
     "mid, hot; did you mean 'mid'?"),
    ("generators: [mid]", "pairs: [[mid, singel]]", "18: grid.pairs.0.1 = 'singel': expected one of the strategies "
     "single, greedy, majority, best-of-n, weighted; did you mean 'single'?"),
    ("generators: [mid]", "pairs: [[mid]]", "18: grid.pairs = [['mid']]: expected a list of [generator, strategy]"),
    ("single: {kind: sample}", "single: {kind: parallel, aggregator: majority}", "12: strategies.single.aggregator = "
     "'majority': expected a mapping with kind: one of majority, best, weighted, soft_best, borda, ranked, mbr, "
     "confident; did you mean {kind: majority}?"),
    ("single: {kind: sample}", "single: {kind: parallel}", "12: strategies.single.aggregator: missing; expected a "
     "mapping with kind: one of majority, best, weighted, soft_best, borda, ranked, mbr, confident"),
    ("single: {kind: sample}", "single: {kind: typed}", "12: strategies.single.model: missing; expected a class, as "
     "package.module:Class"),
    ("single: {kind: sample}", "single: {kind: tool_use}", "12: strategies.single.tools: missing; expected a list, "
     "each a function, as package.module:function"),
    ("single: {kind: sample}", "single: {kind: by_difficulty, edges: [0.5], then: [1, {generatr: mid}]}", "12: "
     "strategies.single.then.1.generatr = 'mid': no such field; expected one of generator, strategy, n; did you mean "
     "'generator'?"),
    ("single: {kind: sample}", "single: {kind: by_difficulty, edges: [0.5], then: [1, 0]}", "12: "
     "strategies.single.then.1 = 0: expected an integer ≥ 1, or {generator: …, strategy: …, n: …}"),
    ("single: {kind: sample}", "single: {kind: mixture, agents: []}", "12: strategies.single.agents = []: expected at "
     "least one"),
    ("generators: [mid]", "generators: []", "18: grid.generators = []: expected at least one"),
    ("generators: [mid]", "strategies: [singel]", "18: grid.strategies.0 = 'singel': expected one of the "
     "strategies single, greedy, majority, best-of-n, weighted; did you mean 'single'?"),
    ("n: [1, 4]", "m: [1, 4]\n  n: [1]", "19: grid.m = [1, 4]: no such field; expected one of generators, "
     "strategies, n, pairs"),
    ("n: [1, 4]", "n: [1, 100000000000000000000]", "19: grid.n.1 = 100000000000000000000: expected at most 1,000,000"),
    ("n: [1, 4]", "n: [1, 1e20]", "19: grid.n.1 = 1e+20: expected an integer ≥ 1"),
    ("max_tokens: 300", "max_tokens: 100000000", "7: generators.mid.max_tokens = 100000000: expected at most "
     "1,000,000"),
    ("per_level: 3", "per_level: 1000000000000", "3: task.per_level = 1000000000000: expected at most 1,000,000"),
    ("n: [1, 4]", "n: [1, 0]", "19: grid.n.1 = 0: expected an integer ≥ 1"),
    ("n: [1, 4]", "n: [4, 4]", "19: grid.n = [4, 4]: 4 is given more than once; name each once"),
    ("n: [1, 4]", "n: [true]", "19: grid.n.0 = True: expected an integer ≥ 1"),
    ("n: [1, 4]", "n: 4", "19: grid.n = 4: expected a list"),
    ("  n: [1, 4]\n", "", "17: grid.n: missing; majority, best-of-n, weighted need a list of integers ≥ 1, "
     "such as n: [1, 4, 16]"),
    ("generated: 4000", "generated: -1", "20: budget.generated = -1: expected an integer ≥ 0"),
    ("generated: 4000", "tokens: 4000", "20: budget.tokens = 4000: no such field; expected one of generated, "
     "prefilled, calls, flops, money, seconds"),
    ("flops: 1e12", "flops: .nan", "20: budget.flops = nan: expected a number ≥ 0"),
    ("concurrency: 8", "concurency: 8", "21: executor.concurency = 8: no such field; expected one of replicas, "
     "scaling, num_cpus, num_gpus, resources, bundles, kind, concurrency, address, pools, shards, deadline, "
     "replacements; did you mean 'concurrency'?"),
    ("concurrency: 8", "concurrency: 0", "21: executor.concurrency = 0: expected an integer ≥ 1"),
    ("{concurrency: 8}", "{kind: ray, num_gpus: 1, pools: {mid: {num_gpus: 1}}}", "21: executor.num_gpus = 1: every "
     "engine has a pool of its own, which takes nothing from here; repeat it there"),
    ("{concurrency: 8}", "{concurrency: 8}\nallocation: {total: {calls: 9}, first: 8}", "22: allocation = "
     "{'first': 8, 'total': {'calls': 9}}: first = 8 is for shares by difficulty; give strategies and held_out, or "
     "leave first out"),
    ("seed: 7", "seed: 7\nseed: 8", "3: seed: given twice, first on line 2; remove one"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "fault"), FAULTS)
def test_each_fault_names_place_field_value_and_what_was_expected(
    good: Path, old: str, new: str, fault: str
) -> None:
    assert faults(changed(good, old, new)) == [f"quick.yaml:{fault}"]


def test_all_faults_come_at_once(good: Path) -> None:
    wanted, lines = [], set[str]()
    for old, new, fault in FAULTS:
        line = fault.split(":")[0]
        if line not in lines and new and "\n" not in new and "missing" not in fault:
            lines.add(line)
            changed(good, old, new)
            wanted.append(f"quick.yaml:{fault}")
    found = faults(good)
    assert len(wanted) >= 10
    assert set(found) >= set(wanted)
    numbers = [int(line.split(":")[1]) for line in found]
    assert numbers == sorted(numbers)


def test_an_unknown_model_is_named_with_the_nearest(good: Path) -> None:
    (fault,) = faults(changed(good, f"model: {MODEL}", f"model: {MODEL}x"))
    assert fault.startswith(
        f"quick.yaml:5: engines.mid.model = '{MODEL}x': there is no such file or directory; expected"
    )
    assert fault.endswith(f"did you mean '{MODEL}'?")


def test_a_directory_without_a_model_is_no_model(good: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (fault,) = faults(changed(good, f"model: {MODEL}", "model: empty"))
    assert fault.startswith(
        "quick.yaml:5: engines.mid.model = 'empty': the directory has no config.json; expected"
    )


def test_a_name_that_cannot_stand_in_a_path(good: Path) -> None:
    (fault,) = faults(changed(good, "  hot: {", "  h/t: {"))
    assert fault.startswith("quick.yaml:8: generators.h/t = 'h/t': expected a name of letters, digits")


def test_what_two_options_say_is_refused_and_of_one_the_last_counts(good: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--limit task.limit=2: task.limit: --set task.limit=3 says it, too"
    ):
        load(good, sets=["task.limit=3"], limit=2)
    assert load(good, sets=["grid.n=[1]", "grid.n=[2]"]).grid.n == (2,)


def test_faults_of_sets_are_placed_at_the_option(good: Path) -> None:
    found = faults(
        good, "grid.m=[1]", "generators.mdi.top_p=1", "generators.mid.top_p=2", "bugdet.calls=1", limit=0
    )
    assert found == [
        "--limit task.limit=0: task.limit = 0: expected an integer ≥ 1",
        "--set bugdet.calls=1: bugdet = {'calls': 1}: no such field; expected one of name, seed, task, engines, "
        "generators, verifiers, strategies, grid, budget, allocation, executor, cache, serve; did you mean 'budget'?",
        "--set generators.mdi.top_p=1: generators.mdi: there is no 'mdi' in 'generators' to set this in "
        "(there is mid, hot); did you mean 'mid'?",
        "--set generators.mid.top_p=2: generators.mid.top_p = 2: expected a number in (0, 1] (1 is off)",
        "--set grid.m=[1]: grid.m = [1]: no such field; expected one of generators, strategies, n, pairs",
    ]


def test_a_section_whose_only_definition_is_faulty_is_not_called_empty(good: Path) -> None:
    text = re.sub(r"  hot: .*\n", "", GOOD)
    good.write_text(text.replace("temperature: 1,", "temperature: -1,"))
    assert faults(good) == [
        "quick.yaml:7: generators.mid.temperature = -1: expected a number ≥ 0 (0 is greedy)"
    ]
    good.write_text(re.sub(r"(?s)generators:\n.*?verifiers", "generators: {}\nverifiers", GOOD))
    assert "quick.yaml:6: generators = {}: expected at least one" in faults(good)


def test_a_verifier_that_no_strategy_names_is_fine(good: Path) -> None:
    changed(good, "{kind: best_of_n, verifier: oracle}", "{kind: majority}")
    changed(good, "{kind: weighted, verifier: oracle}", "{kind: majority}")
    assert "oracle" in load(good).verifiers


class TestRewardModels:
    def test_a_model_without_tags_is_no_reward_model(self, good: Path) -> None:
        changed(good, "oracle: {kind: oracle}", "oracle: {kind: prm, engine: mid}")
        (fault,) = faults(good)
        assert fault.startswith(
            f"quick.yaml:10: verifiers.oracle.engine = 'mid': '{MODEL}' is no reward model: "
        )
        assert "names no step tag" in fault

    @pytest.mark.parametrize(("kind", "other"), [("prm", "orm"), ("orm", "prm")])
    def test_a_model_of_the_other_kind(self, good: Path, tmp_path: Path, kind: str, other: str) -> None:
        entry = {"kind": kind, "tag": "<s>", "positive": "+", "negative": "-"}
        self.judge(good, tmp_path, json.dumps({"metagen": entry}), other)
        (fault,) = faults(good)
        assert fault.startswith(
            "quick.yaml:10: verifiers.oracle.engine = 'mid': 'judge' is no reward model: "
        )
        assert f"is of kind '{kind}', and is used as '{other}'" in fault

    @pytest.mark.parametrize("config", ['{"metagen": ', "[]", '{"metagen": "x"}', b"\xff\xfe"])
    def test_a_torn_or_foreign_config(self, good: Path, tmp_path: Path, config: str | bytes) -> None:
        self.judge(good, tmp_path, config, "prm")
        (fault,) = faults(good)
        assert fault.startswith(
            "quick.yaml:10: verifiers.oracle.engine = 'mid': 'judge' is no reward model: "
        )

    def judge(self, good: Path, tmp_path: Path, config: str | bytes, kind: str) -> None:
        """The verifier is a reward model with this config.json."""
        (tmp_path / "judge").mkdir()
        data = config.encode() if isinstance(config, str) else config
        (tmp_path / "judge" / "config.json").write_bytes(data)
        changed(good, f"model: {MODEL}", "model: judge")
        changed(good, "oracle: {kind: oracle}", f"oracle: {{kind: {kind}, engine: mid}}")

    def test_tags_may_be_given(self, good: Path) -> None:
        tags = "{tag: <s>, positive: '+', negative: '-'}"
        changed(good, "oracle: {kind: oracle}", f"oracle: {{kind: prm, engine: mid, tags: {tags}}}")
        load(good)
        (fault,) = faults(changed(good, "positive: ", "postive: "), "verifiers.oracle.tags.negative='-'")[:1]
        assert "verifiers.oracle.tags.postive" in fault and "did you mean 'positive'?" in fault

    def test_an_aggregation_is_one_of_four(self, good: Path) -> None:
        changed(good, "oracle: {kind: oracle}", "oracle: {kind: prm, engine: mid, aggregation: maen}")
        (fault,) = faults(good)
        assert fault == (
            "quick.yaml:10: verifiers.oracle.aggregation = 'maen': expected one of last, min, mean, product; "
            "did you mean 'mean'?"
        )


class TestRecordedPools:
    @pytest.fixture
    def pool(self, good: Path, tmp_path: Path) -> Path:
        (tmp_path / "pool.jsonl").write_text(json.dumps({"id": "a", "texts": ["1"], "s": [0.5]}) + "\n")
        (tmp_path / "data.jsonl").write_text(json.dumps({"id": "a", "question": "?", "answer": "1"}) + "\n")
        text = GOOD.replace(
            "hot: {engine: mid, temperature: 1.5}",
            "hot: {kind: replay, path: pool.jsonl, fields: {scores.s: s}}",
        )
        text = text.replace("oracle: {kind: oracle}", "oracle: {kind: recorded, score: s}")
        text = text.replace("  greedy: {kind: greedy}\n", "").replace(
            "generators: [mid]", "generators: [hot]"
        )
        text = re.sub(r"task: .*", "task: {kind: jsonl, path: data.jsonl}", text)
        good.write_text(text)
        return good

    def test_a_pool_needs_no_engine(self, pool: Path) -> None:
        assert load(pool).generators["hot"].kind == "replay"

    def test_a_pool_is_not_decoded_greedily(self, pool: Path) -> None:
        assert faults(changed(pool, "single: {kind: sample}", "single: {kind: greedy}")) == [
            "quick.yaml:12: strategies.single.kind = 'greedy': generator 'hot' replays samples and cannot decode "
            "greedily; leave it out of the grid"
        ]

    def test_a_recorded_score_is_mapped(self, pool: Path) -> None:
        found = faults(changed(pool, "score: s}", "score: t}"))
        assert [line.split(": ")[1] for line in found] == [
            "strategies.best-of-n.verifier = 'oracle'", "strategies.weighted.verifier = 'oracle'",
        ]  # fmt: skip
        assert "needs the recorded score 't', which generator 'hot' has not; map it there" in found[0]

    def test_a_recorded_score_comes_from_a_pool(self, pool: Path) -> None:
        found = faults(changed(pool, "generators: [hot]", "generators: [mid]"))
        assert "which generator 'mid' has not" in found[0]

    def test_fields_are_checked(self, pool: Path) -> None:
        (fault,) = faults(changed(pool, "{scores.s: s}", "{txts: x, scores.s: s}"))
        assert fault.startswith(
            "quick.yaml:8: generators.hot.fields.txts = 'txts': expected one of id, texts, "
        )
        assert fault.endswith("did you mean 'texts'?")

    def test_a_file_that_is_not_there(self, pool: Path) -> None:
        found = faults(changed(pool, "pool.jsonl", "pol.jsonl"))
        assert found[0].startswith(
            "quick.yaml:8: generators.hot.path = 'pol.jsonl': there is no file 'pol.jsonl'; "
        )


class TestPlugins:
    @pytest.fixture(autouse=True)
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        (tmp_path / "beam_plugin.py").write_text(
            "class Beams:\n"
            "    independent = False\n"
            "    def __init__(self, engine, *, width, length=1.0): ...\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        yield
        sys.modules.pop("beam_plugin", None)

    def beams(self, good: Path, options: str) -> Path:
        new = f"hot: {{kind: 'beam_plugin:Beams', {options}}}"
        return changed(good, "hot: {engine: mid, temperature: 1.5}", new)

    def test_options_are_parameters(self, good: Path) -> None:
        experiment = load(self.beams(good, "engine: mid, width: 4"))
        assert experiment.generators["hot"].options() == {"width": 4, "length": 1.0}
        good.write_text(dump(experiment))
        assert load(good) == experiment

    def test_options_are_checked(self, good: Path) -> None:
        assert faults(self.beams(good, "engine: mid, widht: 4")) == [
            "quick.yaml:8: generators.hot.width: missing; expected a value",
            "quick.yaml:8: generators.hot.widht = 4: no such field; expected one of kind, engine, width, length; "
            "did you mean 'width'?",
        ]

    def test_joint_draws_are_not_pooled(self, good: Path) -> None:
        changed(self.beams(good, "engine: mid, width: 4"), "generators: [mid]", "generators: [hot]")
        found = faults(good)
        assert len(found) == 3
        assert found[0] == (
            "quick.yaml:14: strategies.majority.kind = 'majority': pools independent draws, and generator 'hot' "
            "(beam_plugin:Beams) draws jointly; leave one out of the grid"
        )

    def test_what_cannot_be_imported(self, good: Path) -> None:
        path = self.beams(good, "engine: mid, width: 4")
        (fault,) = faults(changed(path, "beam_plugin:Beams", "beam_plugin:Beam"))
        assert "generators.hot.kind = 'beam_plugin:Beam': cannot import 'beam_plugin:Beam'" in fault


def test_generators_have_the_fields_of_sampling_params() -> None:
    spec = EngineGeneratorSpec(engine="mid")
    assert spec.params == SamplingParams()
    names = {f.name for f in dataclasses.fields(SamplingParams)}
    assert set(EngineGeneratorSpec.model_fields) - {"kind", "engine", "preset"} == names


def test_budgets_have_the_fields_of_budget() -> None:
    assert [f.name for f in dataclasses.fields(BudgetSpec)] == [f.name for f in dataclasses.fields(Budget)]


def test_an_experiment_has_a_schema_for_editors() -> None:
    assert "strategies" in Experiment.model_json_schema()["properties"]


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["README.md", "docs/guide/experiments.md"])
def test_the_experiments_in_the_docs_load(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "study.yaml").write_text(block, encoding="utf-8")
        load(tmp_path / "study.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_load(path: Path) -> None:
    # Without a section `study:`, a study is an experiment.
    studies.load(path)


def test_a_misspelt_kind_is_named(good: Path) -> None:
    changed(good, "grid:", "  odd: {knd: sample}\ngrid:")
    (fault,) = faults(good)
    assert "strategies.odd.kind: missing; expected one of" in fault
    assert fault.endswith("; is 'knd' meant for it?")
