"""Where the names in an experiment file meet classes.

A kind is a name below, the name of an entry point in the group `metagen.engines`, `metagen.generators`,
`metagen.adapters`, `metagen.verifiers`, `metagen.strategies`, `metagen.steps`, `metagen.aggregators`,
`metagen.utilities`, `metagen.answers`, `metagen.stopping` or `metagen.tasks`, or `package.module:Class`. Nothing is
imported before it is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

from metagen import trust
from metagen.border import blamed, ours, place
from metagen.errors import ConfigError, PluginError
from metagen.values import fits, show, spell
from metagen.verifiers.rules import RULES

Section = Literal[
    "engines",
    "generators",
    "adapters",
    "verifiers",
    "strategies",
    "steps",
    "aggregators",
    "utilities",
    "answers",
    "stopping",
    "task",
]

KINDS: Final[Mapping[Section, Mapping[str, str]]] = {
    "engines": {
        "torch": "metagen.generators.torch:TorchEngine",
        "adapter": "metagen.generators.torch.adapted:AdaptedEngine",
        "vllm": "metagen.generators.vllm:VLLMEngine",
        "openai": "metagen.generators.openai:OpenAIEngine",
    },
    "generators": {
        "engine": "metagen.generators.primitive:EngineGenerator",
        "replay": "metagen.generators.replay:ReplayGenerator.from_jsonl",
    },
    "adapters": {},
    "verifiers": {
        "prm": "metagen.verifiers.reward:ProcessRewardModel",
        "implicit": "metagen.verifiers.implicit:ImplicitProcessRewardModel",
        "orm": "metagen.verifiers.reward:OutcomeRewardModel",
        "oracle": "metagen.verifiers.oracle:OracleVerifier",
        "equations": "metagen.verifiers.equations:EquationVerifier",
        "recorded": "metagen.verifiers.recorded:recorded",
        "constraint_mass": "metagen.verifiers.mass:ConstraintMass",
        "examples": "metagen.tasks.programs.verifier:PublicExamples",
        "dual_agreement": "metagen.verifiers.code.codet:DualAgreement",
        "public_tests": "metagen.verifiers.code.public:public_tests",
        "judge": "metagen.verifiers.generative.judge:Judge",
        "tournament": "metagen.runs.declare.fitted:FittedTournament",
        "with_thought": "metagen.verifiers.with_thought:WithThought",
        "ensemble": "metagen.verifiers.ensemble:Ensemble",
        "calibrated": "metagen.runs.declare.fitted:calibrated",
    },
    "strategies": {
        "sample": "metagen.strategies.parallel:Sample",
        "greedy": "metagen.strategies.parallel:greedy",
        "majority": "metagen.strategies.parallel:MajorityVote",
        "best_of_n": "metagen.strategies.parallel:BestOfN",
        "weighted": "metagen.strategies.parallel:WeightedVote",
        "soft_best_of_n": "metagen.strategies.parallel:SoftBestOfN",
        "borda": "metagen.strategies.parallel:BordaVote",
        "rejection": "metagen.strategies.rejection:RejectionSampling",
        "mbr": "metagen.runs.declare.utilities:mbr",
        "universal": "metagen.strategies.universal:universal",
        "knockout": "metagen.strategies.knockout:knockout",
        "mixture": "metagen.strategies.mixture:mixture",
        "refinement": "metagen.strategies.refine.refinement:refinement",
        "self_refine": "metagen.strategies.refine.self_refine:SelfRefine",
        "direct": "metagen.strategies.chain.patterns:direct",
        "chain_of_thought": "metagen.strategies.chain.patterns:chain_of_thought",
        "least_to_most": "metagen.strategies.chain.least_to_most:LeastToMost",
        "system_two_attention": "metagen.strategies.chain.patterns:system_two_attention",
        "budget_forcing": "metagen.strategies.sequential.budget_forcing:budget_forcing",
        "length_control": "metagen.strategies.sequential.length_control:LengthControl",
        "rebase": "metagen.strategies.tree.rebase:Rebase",
        "async_rebase": "metagen.strategies.tree.rebase:AsyncRebase",
        "beam": "metagen.strategies.tree.beam:BeamSearch",
        "dvts": "metagen.strategies.tree.dvts:DVTS",
        "best_first": "metagen.strategies.tree.best_first:BestFirst",
        "depth_first": "metagen.strategies.tree.depth_first:DepthFirst",
        "mcts": "metagen.strategies.tree.mcts:MCTS",
        "particles": "metagen.strategies.tree.particles:ParticleFilter",
        "gibbs": "metagen.strategies.tree.gibbs:ParticleGibbs",
        "blockwise": "metagen.strategies.tree.blockwise:Blockwise",
        "lookahead": "metagen.strategies.tree.lookahead:Lookahead",
        "treefinement": "metagen.strategies.tree.treefinement:Treefinement",
        "adaptive_consistency": "metagen.strategies.adaptive.consistency:AdaptiveConsistency",
        "esc": "metagen.strategies.adaptive.window:EarlyStopping",
        "until_sure": "metagen.strategies.adaptive.sure:WeightedUntilSure",
        "confident": "metagen.strategies.adaptive.filtered:ConfidentVote",
        "deepconf": "metagen.strategies.adaptive.online:OnlineConfidence",
        "adaptive": "metagen.strategies.adaptive.adaptive:Adaptive",
        "by_difficulty": "metagen.strategies.adaptive.by_difficulty:by_difficulty",
        "reflexion": "metagen.strategies.refine.reflexion:Reflexion",
        "ranked": "metagen.strategies.parallel:RankedVote",
        "pessimistic_best_of_n": "metagen.strategies.parallel:PessimisticBestOfN",
        "self_ask": "metagen.strategies.chain.interleaved:self_ask",
        "search_predict": "metagen.strategies.chain.patterns:search_predict",
        "draft_sketch_fill": "metagen.strategies.chain.draft_sketch_fill:DraftSketchFill",
        "program_of_thought": "metagen.strategies.chain.patterns:program_of_thought",
        "tool_use": "metagen.strategies.chain.tool_use:ToolUse",
        "interleaved": "metagen.strategies.chain.interleaved:Interleaved",
        "typed": "metagen.strategies.chain.typed:Typed",
        "chain": "metagen.strategies.chain.chain:Chain",
        "parallel": "metagen.strategies.parallel:Parallel",
    },
    "steps": {
        "ask": "metagen.strategies.chain.steps:Ask",
        "continue": "metagen.strategies.chain.steps:Continue",
        "use": "metagen.strategies.chain.steps:use",
        "verify": "metagen.strategies.chain.steps:Verify",
    },
    "aggregators": {
        "majority": "metagen.strategies.aggregators:Majority",
        "best": "metagen.strategies.aggregators:Best",
        "weighted": "metagen.strategies.aggregators:Weighted",
        "soft_best": "metagen.strategies.aggregators:SoftBest",
        "borda": "metagen.strategies.aggregators:Borda",
        "ranked": "metagen.strategies.aggregators:Ranked",
        "mbr": "metagen.strategies.aggregators:MinimumBayesRisk",
        "confident": "metagen.strategies.adaptive.filtered:Confident",
    },
    "utilities": {
        "exact": "metagen.verifiers.utility.exact:ExactAnswer",
        "token_f1": "metagen.verifiers.utility.token_f1:TokenF1",
        "rouge_l": "metagen.verifiers.utility.rouge:RougeL",
        "bleu": "metagen.verifiers.utility.bleu:BLEU",
        "chrf": "metagen.verifiers.utility.chrf:ChrF",
        "edit": "metagen.verifiers.utility.edit:EditSimilarity",
        "judge": "metagen.runs.declare.utilities:rating",
        "preference": "metagen.runs.declare.utilities:preference",
        "embedding": "metagen.runs.declare.utilities:embedding",
        "execution": "metagen.runs.declare.utilities:execution",
        "function": "metagen.verifiers.utility.pairs:FunctionUtility",
    },
    "answers": RULES,
    "stopping": {
        "beta": "metagen.strategies.adaptive.consistency:Beta",
        "dirichlet": "metagen.strategies.adaptive.consistency:Dirichlet",
        "unanimous": "metagen.strategies.adaptive.window:Unanimous",
        "sure": "metagen.strategies.adaptive.sure:Sure",
        "share": "metagen.strategies.adaptive.sure:Share",
        "decided": "metagen.strategies.adaptive.stopping:Decided",
        "predictive": "metagen.strategies.adaptive.stopping:Predictive",
        "any_of": "metagen.strategies.adaptive.stopping:AnyOf",
        "all_of": "metagen.strategies.adaptive.stopping:AllOf",
    },
    "task": {
        "arithmetic": "metagen.tasks.arithmetic.task:ArithmeticTask",
        "reasoning_gym": "metagen.tasks.reasoning_gym:ReasoningGymTask",
        "lm_eval": "metagen.tasks.lm_eval:LMEvalTask",
        "lighteval": "metagen.tasks.lighteval:LightevalTask",
        "verifiers": "metagen.tasks.tasksets:VerifiersTask",
        "programs": "metagen.tasks.programs.task:ProgramTask",
        "countdown": "metagen.tasks.countdown.task:CountdownTask",
        "game24": "metagen.tasks.countdown.task:Game24Task",
        "jsonl": "metagen.tasks.jsonl:JsonlTask",
        "table": "metagen.tasks.tables:TableTask",
        "gsm8k": "metagen.tasks.gsm8k:GSM8KTask",
        "svamp": "metagen.tasks.word_problems:SVAMPTask",
        "asdiv": "metagen.tasks.word_problems:ASDivTask",
        "mawps": "metagen.tasks.word_problems:MAWPSTask",
        "bbh": "metagen.tasks.bbh.task:BBHTask",
        "math": "metagen.tasks.math_dataset:MathTask",
        "aime": "metagen.tasks.aime:AIMETask",
        "humaneval": "metagen.tasks.humaneval:HumanEvalTask",
        "mbpp": "metagen.tasks.mbpp:MBPPTask",
        "cruxeval": "metagen.tasks.cruxeval:CRUXEvalTask",
        "recorded": "metagen.tasks.recorded:RecordedTask",
        "livecodebench": "metagen.tasks.livecodebench:LiveCodeBenchTask",
        "apps": "metagen.tasks.apps:APPSTask",
        "code_contests": "metagen.tasks.code_contests:CodeContestsTask",
    },
}

#: The parts that stand in for engines and verifiers in a dry run. Metagen asks for them, and no file does.
STAND_INS: Final = ("metagen.runs.work.offline:ClosedEngine", "metagen.runs.work.offline:Unknown")
#: Kinds that files of older versions name by where they were.
MOVED: Final[Mapping[str, str]] = {
    "metagen.experiments.pooled:PooledTask": "metagen.runs.declare.pooled:PooledTask",
}

#: What says the parameters of a kind that does not say them itself, or whose own module needs torch, which a look at an
#: experiment does without.
DECLARED: Final[Mapping[tuple[Section, str], str]] = {
    ("engines", "torch"): "metagen.generators.torch_options:TorchOptions",
    ("engines", "adapter"): "metagen.generators.torch_options:AdaptedOptions",
    ("task", "table"): "metagen.tasks.jsonl:JsonlTask",
}

#: What a kind of another package makes.
PARTS: Final[Mapping[Section, str]] = {
    "engines": "metagen.generators.engine:Engine",
    "generators": "metagen.generators.base:Generator",
    "adapters": "metagen.generators.decoding.adapters:Adapter",
    "verifiers": "metagen.verifiers.base:Verifier",
    "strategies": "metagen.strategies.base:Strategy",
    "steps": "metagen.strategies.chain.steps:ChainStep",
    "aggregators": "metagen.strategies.aggregators:Aggregator",
    "utilities": "metagen.verifiers.utility.base:Utility",
    "answers": "metagen.verifiers.base:AnswerRule",
    "stopping": "metagen.strategies.adaptive.stopping:StoppingRule",
    "task": "metagen.tasks.base:Task",
}

#: Parameters that are filled in, where a class has them; everything else is an option of the file.
PROVIDED: Final[Mapping[Section, frozenset[str]]] = {
    "engines": frozenset(),
    "generators": frozenset({"engine"}),
    "adapters": frozenset(),
    "verifiers": frozenset({"engine", "generator", "verifier", "name", "grade", "sandbox", "program"}),
    "strategies": frozenset({"generator", "n", "answer", "verifier", "delimiter", "mark", "sandbox"}),
    "steps": frozenset({"generator"}),
    "aggregators": frozenset({"answer"}),
    "utilities": frozenset({"answer", "sandbox", "program"}),
    "answers": frozenset(),
    "stopping": frozenset({"n"}),
    "task": frozenset(),
}


@cache
def plugins(section: Section) -> Mapping[str, EntryPoint]:
    """Kinds that installed packages bring."""
    group = "metagen.tasks" if section == "task" else f"metagen.{section}"
    return {point.name: point for point in entry_points(group=group)}


def kinds(section: Section) -> list[str]:
    """The kinds that have names."""
    return [*KINDS[section], *(name for name in plugins(section) if name not in KINDS[section])]


def external(section: Section, kind: str) -> bool:
    """Whether a kind names something outside of metagen."""
    return kind not in KINDS[section] and (":" in kind or kind in plugins(section))


def find(section: Section, kind: str) -> Any:
    """The class (or the function that makes one). ConfigError if it cannot be imported."""
    if kind in KINDS[section]:
        target = KINDS[section][kind]
    else:
        target = plugins(section)[kind].value if kind in plugins(section) else MOVED.get(kind, kind)
    known = kind in KINDS[section] or kind in plugins(section) or kind in STAND_INS
    found = trust.load(target, typed=known, wanted="package.module:Class")
    if not callable(found):
        raise ConfigError(f"{target!r} is {found!r}; expected a class, or a function that makes one")
    return found


def declaration(section: Section, kind: str) -> Any:
    """What says which parameters a kind takes: what makes it, or a base of that. ConfigError as for `find`."""
    target = DECLARED.get((section, kind))
    return find(section, kind) if target is None else trust.load(target, typed=True)


@cache
def says(kind: str, trait: str) -> bool:
    """Whether what makes a kind of strategies says this of itself (see `Strategy`); a base class that does is not
    enough. False for a kind that cannot be imported here, as of somebody else's run.
    """
    try:
        return bool(vars(find("strategies", kind)).get(trait, False))
    except ConfigError:
        return False


def saying(trait: str) -> tuple[str, ...]:
    """Metagen's kinds of strategies that say this of themselves."""
    return tuple(kind for kind in KINDS["strategies"] if says(kind, trait))


def parameters(section: Section, kind: str) -> Mapping[str, inspect.Parameter]:
    """What the class takes, by name."""
    return inspect.signature(declaration(section, kind)).parameters


def make(section: Section, kind: str, options: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    """An instance from its options and those of the `available` parts that it has parameters for.

    Parts that decode or score with an engine that bills pay that engine's price. Raises PluginError where a class of
    another package makes something else.
    """
    takes = parameters(section, kind)
    parts = {name: part for name, part in available.items() if name in takes}
    if "price" in takes and getattr(available.get("engine"), "bills", False):
        parts["price"] = available["engine"].price
    found = find(section, kind)
    if ours(found):
        return found(**{**parts, **options})
    with blamed(kind, found):
        made = found(**{**parts, **options})
    module, _, name = PARTS[section].partition(":")
    wanted = getattr(import_module(module), name)
    if not fits(made, wanted, strict=True):
        raise PluginError(f"{kind} ({place(found)}) made {show(made)}; expected {spell(wanted)}")
    return made
