"""Strategies of all kinds from a file: they are made of what they name, stand over each other, and run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError, InputError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.replay import ReplayGenerator
from metagen.runs.declare import schema
from metagen.runs.work import build
from metagen.sequence import Step, Tokens
from metagen.strategies.adaptive.by_difficulty import ByDifficulty
from metagen.strategies.adaptive.consistency import AdaptiveConsistency
from metagen.strategies.adaptive.filtered import ConfidentVote
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.adaptive.sure import WeightedUntilSure
from metagen.strategies.adaptive.window import EarlyStopping
from metagen.strategies.aggregators import Majority, Weighted
from metagen.strategies.base import Strategy
from metagen.strategies.mixture import MixtureOfAgents
from metagen.strategies.parallel import MBR, BestOfN, BordaVote, MajorityVote, SoftBestOfN
from metagen.strategies.prompts import FollowUp, Listing
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.reflexion import Reflexion
from metagen.strategies.refine.self_refine import SelfRefine
from metagen.strategies.rejection import RejectionSampling
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.blockwise import Blockwise
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.gibbs import ParticleGibbs
from metagen.strategies.tree.lookahead import Lookahead
from metagen.strategies.tree.mcts import MCTS
from metagen.strategies.tree.particles import ParticleFilter
from metagen.strategies.tree.rebase import AsyncRebase, Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.strategies.tree.treefinement import Treefinement
from metagen.strategies.universal import Consistent, UniversalSelfConsistency
from metagen.tasks.programs.verifier import corrector_prompt
from metagen.verifiers.recorded import RecordedVerifier
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.pruning import ConfidencePruning

pytestmark = pytest.mark.usefixtures("bare_reports")

FILE = """\
name: kinds
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines:
  small: {kind: torch, model: tiny-0.1m}
  prm: {kind: torch, model: tiny-prm}
generators:
  small: {engine: small, max_tokens: 48}
  judge: {engine: small, max_tokens: 8, temperature: 0}
verifiers:
  prm: {kind: prm, engine: prm}
strategies:
  soft: {kind: soft_best_of_n, verifier: prm, beta: 0.1}
  borda: {kind: borda, verifier: prm, power: 2}
  first: {kind: rejection, verifier: prm, threshold: 0.9, batch: 2}
  exact: {kind: mbr, utility: {kind: exact}, verifier: prm}
  chrf: {kind: mbr, utility: {kind: chrf, prune: 0.99}}
  named: {kind: universal, judge: judge}
  mixed: {kind: mixture, agents: [small, judge], layers: 2}
  vote: {kind: majority, n: 3}
  best: {kind: best_of_n, verifier: prm, over: vote}
grid: {generators: [small], n: [1, 4]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.yaml"
    path.write_text(FILE, "utf-8")
    return path


def made(file: Path, *sets: str) -> dict[str, Strategy]:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        return {cell.name: setup.strategy(cell) for cell in setup.configurations}


def test_strategies_are_made_of_what_they_name(file: Path) -> None:
    found = made(file)
    soft, borda, first = found["small/soft@4"], found["small/borda@4"], found["small/first@4"]
    assert isinstance(soft, SoftBestOfN) and isinstance(borda, BordaVote)
    assert isinstance(first, RejectionSampling) and (first.threshold, first.batch) == (0.9, 2)
    chrf, exact = found["small/chrf@4"], found["small/exact@1"]
    assert isinstance(chrf, MBR) and isinstance(exact, MBR) and exact.verifier is not None
    pruned = vars(chrf.chooser)["utility"]
    assert isinstance(pruned, ConfidencePruning) and isinstance(pruned.utility, ChrF) and pruned.alpha == 0.99
    assert isinstance(found["small/named@4"], UniversalSelfConsistency)
    mixed = found["small/mixed"]
    assert isinstance(mixed, MixtureOfAgents) and [len(layer) for layer in mixed.layers] == [2, 2]


def test_a_strategy_stands_over_another_with_an_n_of_its_own(file: Path) -> None:
    found = made(file)
    assert "small/vote@3" in found and "small/vote@4" not in found
    best = found["small/best@4"]
    assert isinstance(best, BestOfN) and best.n == 4
    assert isinstance(best.generator, MajorityVote) and best.generator.n == 3


def test_a_table_says_how_to_go_on(file: Path, tmp_path: Path) -> None:
    table = "{kind: by_difficulty, first: 2, edges: [0.6], then: [%s, 2]}"
    ways = {
        "{generator: judge}": lambda option: option.params.max_tokens == 8,
        "{strategy: vote}": lambda option: isinstance(option, MajorityVote) and option.n == 3,
        "{strategy: vote, generator: judge}": lambda option: option.generator.params.max_tokens == 8,
        "5": lambda option: option == 5,
    }
    for way, fits in ways.items():
        (found,) = made(file, f"strategies.best={table % way}", "grid.strategies=[best]").values()
        assert isinstance(found, ByDifficulty) and (found.first, found.edges) == (2, (0.6,))
        assert fits(found.options[0]) and found.options[1] == 2
        assert isinstance(found.aggregator, Majority)
    pool = "".join(f'{{"id": "arithmetic/validation/1/{i}", "texts": ["x"]}}\n' for i in range(2))
    (tmp_path / "pool.jsonl").write_text(pool, "utf-8")
    recorded = ("generators.recorded={kind: replay, path: pool.jsonl}", "grid.generators=[small]")
    way = table % "{generator: recorded}"
    (found,) = made(file, *recorded, f"strategies.best={way}", "grid.strategies=[best]").values()
    assert isinstance(found, ByDifficulty) and isinstance(found.options[0], ReplayGenerator)
    scored = "{kind: by_difficulty, first: 2, edges: [], then: [3], verifier: prm, predictor: mean_score}"
    (found,) = made(file, f"strategies.best={scored}", "grid.strategies=[best]").values()
    assert isinstance(found, ByDifficulty) and isinstance(found.aggregator, Weighted)
    asked = ["run", str(file), "--out", str(tmp_path / "run"), "--set", "grid.strategies=[best]"]
    asked += [
        "--set",
        f"strategies.best={table % '{strategy: soft, generator: judge}'}",
        "--set",
        "strategies.soft.n=2",
    ]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    rows = pq.read_table(tmp_path / "run" / "outcomes.parquet").to_pylist()
    assert [row["configuration"] for row in rows] == ["small/best"] * 2


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("{kind: by_difficulty, edges: [0.5], then: [{}, 4]}", "expected a generator, a strategy, or both"),
        ("{kind: by_difficulty, edges: [0.5], then: [{strategy: voet}, 4]}", "did you mean 'vote'?"),
        ("{kind: by_difficulty, edges: [0.5], then: [{strategy: best}, 4]}", "'best' is made of itself"),
        (
            "{kind: by_difficulty, edges: [0.5], then: [{strategy: soft}, 4]}",
            "strategies.soft.n: missing; 'best' goes on with it",
        ),
        (
            "{kind: by_difficulty, edges: [0.5], then: [{generator: judge, n: 8}, 4]}",
            "n = 8 is of a strategy, and only a generator is named",
        ),
        (
            "{kind: by_difficulty, edges: [0.5], then: [4, {strategy: mixed, n: 8}]}",
            "strategies.best.then.1.n = 8: 'mixed' (mixture) draws no n samples; leave n out",
        ),
        (
            "{kind: depth_first, verifier: prm, step: {tokens: 8, max_tokens: 64}}",
            "max_tokens = 64 bounds a step",
        ),
        ("{kind: by_difficulty, edges: [0.5], then: [16]}", "1 options for edges=(0.5,)"),
        ("{kind: by_difficulty, edges: [0.5], then: [2, 16]}", "an option of 2 samples, after first=4"),
        ("{kind: by_difficulty, edges: [0.5]}", "strategies.best.then: missing"),
        ("{kind: by_difficulty, held_out: known, mean: {flops: 1.0e+9}}", "learned_tables/write_table.py"),
        (
            "{kind: by_difficulty, over: soft, first: 2, edges: [0.9], then: [{strategy: soft, n: 4}, 2]}",
            "strategies.soft.n: missing; 'best' stands over it",
        ),
    ],
)
def test_tables_that_do_not_fit_are_named(file: Path, spec: str, fault: str) -> None:
    with pytest.raises(InputError) as error:
        made(file, f"strategies.best={spec}", "grid.strategies=[best]")
    assert fault in str(error.value)


def test_a_table_may_give_an_option_its_n_and_reads_what_earlier_versions_wrote_beside_it(file: Path) -> None:
    given = "{kind: by_difficulty, edges: [], groups: 5, then: [{generator: judge, strategy: soft, n: 5}]}"
    (found,) = made(file, f"strategies.best={given}", "grid.strategies=[best]").values()
    assert isinstance(found, ByDifficulty) and found.options[0].n == 5  # type: ignore[union-attr]  # no count
    args = [
        "run",
        str(file),
        "--dry-run",
        "--set",
        f"strategies.best={given}",
        "--set",
        "grid.strategies=[best]",
    ]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert "not counted: small/best" in " ".join(result.output.split())


def test_refinement_is_made_of_what_it_names(file: Path) -> None:
    told = "{kind: refinement, verifier: prm, corrector: judge, rounds: 2, memory: 1, ask: {words: 'no: {feedback}'}}"
    strategy = made(file, f"strategies.best={told}", "grid.strategies=[best]")["small/best@4"]
    assert isinstance(strategy, BestOfN) and isinstance(strategy.verifier, RecordedVerifier)
    chain = strategy.generator
    assert isinstance(chain, Refinement) and (chain.rounds, chain.memory) == (2, 1)
    assert chain.corrector is not chain.generator and chain.ask == FollowUp("no: {feedback}")
    assert chain.verifier is not None and chain.verifier.name == strategy.verifier.name == "prm"
    form = "metagen.tasks.programs.verifier:corrector_prompt"
    blind = f"{{kind: refinement, verifier: prm, silent: true, n: 1, ask: {{form: '{form}'}}}}"
    one = made(file, f"strategies.best={blind}", "grid.strategies=[best]")["small/best@1"]
    assert isinstance(one, BestOfN) and isinstance(one.generator, Refinement)
    assert isinstance(one.generator.feedback, Silence) and one.generator.ask is corrector_prompt
    for spec, kind in (
        ("{kind: self_refine, critic: judge}", SelfRefine),
        ("{kind: reflexion, verifier: prm}", Reflexion),
    ):
        (found,) = made(file, f"strategies.best={spec}", "grid.strategies=[best]").values()
        assert isinstance(found, kind)


def ran(file: Path, root: Path, specs: tuple[tuple[str, type], ...], *sets: str) -> dict[str, Strategy]:
    """One run of all of them, named by their places; the strategies that it was made of."""
    names = [f"s{i}" for i in range(len(specs))]
    every = [f"strategies.{name}={spec}" for name, (spec, _) in zip(names, specs, strict=True)]
    every += [f"grid.strategies=[{', '.join(names)}]", *sets]
    asked = [word for one in every for word in ("--set", one)]
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(root), *asked])
    assert result.exit_code == 0, result.output
    return made(file, *every)


ADAPTIVE: tuple[tuple[str, type], ...] = (
    ("{kind: adaptive_consistency, posterior: dirichlet, batch: 2}", AdaptiveConsistency),
    ("{kind: esc, window: 3}", EarlyStopping),
    ("{kind: until_sure, verifier: prm, share: 0.8}", WeightedUntilSure),
    ("{kind: confident, keep: 0.5, measure: tail}", ConfidentVote),
    ("{kind: deepconf, warmup: 4, confidence: 0.9}", OnlineConfidence),
    ("{kind: confident, keep: 0.5, of: top}", ConfidentVote),
    ("{kind: deepconf, warmup: 4, of: top, confidence: 0.9}", OnlineConfidence),
)
SEARCHES: tuple[tuple[str, type], ...] = (
    ("{kind: rebase, verifier: prm, temperature: 0.5}", Rebase),
    ("{kind: async_rebase, verifier: prm}", AsyncRebase),
    ("{kind: beam, verifier: prm, m: 4}", BeamSearch),
    ("{kind: dvts, verifier: prm, m: 2, step: {max_tokens: 20}}", DVTS),
    ("{kind: best_first, verifier: prm, m: 2, in_flight: 2, expansions: 8}", BestFirst),
    ("{kind: depth_first, verifier: prm, m: 2, step: {tokens: 12}}", DepthFirst),
    ("{kind: mcts, verifier: prm, width: 2, rollouts: 1}", MCTS),
    ("{kind: particles, verifier: prm, target: final}", ParticleFilter),
    ("{kind: gibbs, verifier: prm, iterations: 2}", ParticleGibbs),
    ("{kind: lookahead, verifier: prm, m: 2, greedy: true}", Lookahead),
)


def test_adaptive_strategies_stop_and_are_reported(file: Path, tmp_path: Path) -> None:
    more = ("grid.n=[6]", "generators.small.logprobs=true", "generators.small.top_logprobs=5")
    found = ran(file, tmp_path / "run", ADAPTIVE, *more)
    assert [type(strategy) for strategy in found.values()] == [kind for _, kind in ADAPTIVE]


def test_searches_take_the_steps_of_the_task(file: Path, tmp_path: Path) -> None:
    found = ran(file, tmp_path / "run", SEARCHES, "grid.n=[2, 4]")
    for i, (spec, kind) in enumerate(SEARCHES):
        search = found[f"small/s{i}@4"]
        assert isinstance(search, kind) and isinstance(search, TreeSearch)
        step = Step("\n", 20 if "max_tokens" in spec else 256, "A:")
        assert search.until == (Tokens(12) if "tokens: 12" in spec else step)


def test_blocks_and_programs_are_searched_too(file: Path) -> None:
    block = made(
        file, "strategies.best={kind: blockwise, verifier: prm, step: {tokens: 8}}", "grid.strategies=[best]"
    )
    (first, _) = block.values()
    assert isinstance(first, Blockwise)
    spec = (
        "{kind: treefinement, verifier: prm, corrector: judge, silent: true, select: best-first, n: 4, m: 2}"
    )
    (found,) = made(file, f"strategies.best={spec}", "grid.strategies=[best]").values()
    assert isinstance(found, Treefinement)
    with pytest.raises(ConfigError, match="nothing values a sequence"):
        schema.load(file, sets=["strategies.best={kind: mcts}"])


def test_completions_are_held_to_a_grammar(file: Path, tmp_path: Path) -> None:
    sets = ["grid.strategies=[vote]", "generators.small.grammar={choice: ['A:1', 'A:12']}"]
    asked = [word for one in sets for word in ("--set", one)]
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run"), *asked])
    assert result.exit_code == 0, result.output
    texts = pq.read_table(tmp_path / "run" / "candidates.parquet")["text"].to_pylist()
    assert len(texts) == 6 and set(texts) <= {"A:1", "A:12"}
    dry = CliRunner().invoke(app, ["run", str(file), "--dry-run", *asked])
    assert dry.exit_code == 0, dry.output
    with pytest.raises(ConfigError, match="expected one of regex, choice, json_schema, lark; there are"):
        schema.load(file, sets=["generators.small.grammar={regex: a, lark: b}"])
    compact = "generators.small.grammar={json_schema: {type: array}, compact: true, close: true}"
    held = schema.load(file, sets=[compact]).generators["small"].grammar
    assert held.value == Grammar.json({"type": "array"}, compact=True, close=True)
    with pytest.raises(ConfigError, match="compact is of json_schema, and there is regex"):
        schema.load(file, sets=["generators.small.grammar={regex: a, compact: true}"])


def test_what_masks_leave_weighs_particles_and_votes(file: Path, tmp_path: Path) -> None:
    """Without a model that judges: the generator keeps it, and its samples are weighed by it."""
    sets = [
        "generators.small.grammar={regex: 'A:[0-9]{1,2}'}",
        "generators.small.log_mass=true",
        "verifiers.mass={kind: constraint_mass}",
        "strategies.weighed={kind: weighted, verifier: mass}",
        "strategies.filtered={kind: particles, step: {tokens: 1}}",
        "strategies.again={kind: gibbs, step: {tokens: 1}}",
        "grid.strategies=[weighed, filtered, again]",
        "grid.n=[3]",
    ]
    found = made(file, *sets)["small/filtered@3"]
    assert isinstance(found, ParticleFilter) and found.verifier is None
    asked = [word for one in sets for word in ("--set", one)]
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run"), *asked])
    assert result.exit_code == 0, result.output
    dry = CliRunner().invoke(app, ["run", str(file), "--dry-run", *asked])
    assert dry.exit_code == 0, dry.output
    unkept = [*sets, "generators.small.log_mass=false"]
    with pytest.raises(
        ConfigError, match=r"weighs by what masks left, .* does not keep; set log_mass: true there"
    ):
        made(file, *unkept)
    with pytest.raises(InputError, match="nothing weighs the particles"):
        made(file, *unkept, "grid.strategies=[filtered]")


def test_only_what_is_needed_is_opened(file: Path) -> None:
    with build.open_setup(schema.load(file, sets=["grid.strategies=[vote, named]"])) as setup:
        assert list(setup.engines) == ["small"] and list(setup.generators) == ["small", "judge"]
        assert not setup.verifiers


def test_models_without_a_chat_template_are_asked_by_text(file: Path, tmp_path: Path) -> None:
    named = "{kind: universal, words: '{task} {responses} Which of {count}? Response', chat: false}"
    sets = [f"strategies.named={named}", "grid.strategies=[named, mixed]", "grid.n=[3]"]
    strategy = made(file, *sets)["small/named@3"]
    assert isinstance(strategy, UniversalSelfConsistency) and isinstance(strategy.chooser, Consistent)
    assert strategy.chooser.ask == Listing("{task} {responses} Which of {count}? Response", chat=False)
    asked = [word for one in sets for word in ("--set", one)]
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run"), *asked])
    assert result.exit_code == 0, result.output
    with pytest.raises(InputError, match=r"expected \{task\}, \{responses\} and perhaps \{count\}"):
        made(file, "strategies.mixed.words='{task}'", "grid.strategies=[mixed]")


def test_they_run_and_are_reported(file: Path, tmp_path: Path) -> None:
    """All but those that speak to the model in words, which the smallest does not know."""
    asked = ["run", str(file), "--out", str(tmp_path / "run")]
    asked += ["--set", "grid.strategies=[soft, borda, first, exact, chrf, vote, best]"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "run" / "configurations.parquet").to_pydict()
    assert len(table["configuration"]) == 2 * 6 + 1
    assert all(0 <= value <= 1 for value in table["accuracy"])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "vote: {kind: majority, n: 3}",
            "vote: {kind: majority}",
            "strategies.vote.n: missing; 'best' stands over it, so it needs an n of its own, such as n: 4",
        ),
        ("over: vote}", "over: best}", "'best' is made of itself"),
        ("over: vote}", "over: voet}", "expected one of the strategies"),
        ("beta: 0.1", "beta: 0", "strategies.soft.beta = 0: expected a number > 0"),
        ("threshold: 0.9", "threshold: 2", "strategies.first.threshold = 2: expected a number in [0, 1]"),
        ("utility: {kind: exact}", "utility: {kind: exakt}", "did you mean 'exact'?"),
        ("agents: [small, judge]", "agents: [small, jugde]", "did you mean 'judge'?"),
        ("agents: [small, judge]", "agents: []", "strategies.mixed.agents = []"),
        ("{kind: majority, n: 3}", "{kind: refinement, n: 3}", "strategies.vote.verifier: missing"),
        (
            "{kind: majority, n: 3}",
            "{kind: refinement, verifier: prm, n: 3, ask: {words: a, form: b}}",
            "there are words and a form; give one of them",
        ),
        *(
            ("{kind: majority, n: 3}", f"{{kind: {given}, n: 3}}", fault)
            for given, fault in (
                ("refinement, verifier: prm, silent: true, feedback: prm", "silent=True: nothing is said"),
                ("treefinement, verifier: prm, silent: true, feedback: prm", "silent=True: nothing is said"),
                ("treefinement, verifier: prm, m: 2", "m=2 is of select='best-first'"),
                ("mcts, verifier: prm, mix: 0.9", "mix=0.9 weighs rollouts"),
                ("particles, temperature: 5", "temperature=5.0 divides scores"),
                ("confident, measure: tail, share: 0.5", "share=0.5 is of measure='bottom'"),
                ("deepconf, batch: 4", "batch=4 is of samples between two questions"),
            )
        ),
        (
            "vote: {kind: majority, n: 3}",
            "thought: {kind: chain_of_thought, cue: 'A:', thinker: judge, thought: 64}",
            "thought=64 is of the generator's own thoughts",
        ),
        (
            "vote: {kind: majority, n: 3}",
            "self: {kind: self_refine, accept: 0.7}",
            "accept=0.7 ends nothing",
        ),
        ("vote: {kind: majority, n: 3}", "self: {kind: self_refine, stop: ''}", "strategies.self.stop = "),
    ],
)
def test_faults_are_named(file: Path, old: str, new: str, fault: str) -> None:
    text = FILE.replace(old, new)
    assert text != FILE
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        schema.load(file)
    assert fault in str(error.value)


def test_parts_that_do_not_fit_are_told_when_it_is_built(file: Path) -> None:
    with pytest.raises(InputError, match="needs judge:"):
        made(file, "strategies.exact.utility={kind: preference}")
    with pytest.raises(ConfigError, match=r"ask: cannot import 'no.such:thing'"):
        made(file, "strategies.exact={kind: refinement, verifier: prm, ask: {form: 'no.such:thing'}}")
    rule = "{kind: any_of, rules: [{kind: sure, threshold: 0.9}, {kind: beta}]}"
    with pytest.raises(InputError, match=r"strategies\.exact: Adaptive: rule=Sure.* has no verifier"):
        made(file, f"strategies.exact={{kind: adaptive, aggregator: {{kind: majority}}, rule: {rule}}}")
    with pytest.raises(InputError, match="'prm' does not compare pairs"):
        made(file, "strategies.exact={kind: mbr, utility: {kind: preference}, judge: prm}")
