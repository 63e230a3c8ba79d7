"""Strategies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from metagen.experiments.registry import Section
from metagen.experiments.specs.fields import (
    Amount,
    Count,
    Expects,
    GeneratorName,
    Labels,
    Quantity,
    RunName,
    StrategyName,
    Switch,
    Text,
    VerifierName,
    distinct,
    some,
)
from metagen.experiments.specs.parts import PartSpec, PluginSpec, Spec, naming
from metagen.verifiers.generative.way import WORDING

Positive = Annotated[float, Field(gt=0), Expects("a number > 0")]
Share = Annotated[float, Field(ge=0, le=1), Expects("a number in [0, 1]")]


#: The numbers of candidates that a strategy is run with.
Ladder = Annotated[
    Count | Annotated[tuple[Count, ...], AfterValidator(some), AfterValidator(distinct)],
    Expects("an integer ≥ 1, or a list of them"),
]


class StrategySpec(PartSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid."""

    uses = naming(over="strategies")
    over: StrategyName | None = None


class PlainStrategySpec(StrategySpec):
    """One sample, as it comes or greedy."""

    kind: Literal["sample", "greedy"]


class ParallelSpec(StrategySpec):
    """A strategy over n candidates. n: one number or several, in place of those of the grid."""

    n: Ladder | None = None


class VoteSpec(ParallelSpec):
    """The most frequent answer."""

    kind: Literal["majority"]


class ScoredSpec(ParallelSpec):
    """A strategy over n candidates that needs a verifier."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: VerifierName


class ScoredStrategySpec(ScoredSpec):
    """A strategy that selects by a verifier's scores."""

    kind: Literal["best_of_n", "weighted"]


class SoftBestSpec(ScoredSpec):
    """Candidate i with probability ∝ exp(r_i/β)."""

    kind: Literal["soft_best_of_n"]
    beta: Positive
    raw: Switch = False


class BordaSpec(ScoredSpec):
    """A vote by ranks: (n − r + 1)^p votes for rank r."""

    kind: Literal["borda"]
    power: Quantity = 1.0


class RejectionSpec(ScoredSpec):
    """The first candidate that the verifier accepts."""

    kind: Literal["rejection"]
    threshold: Share = 0.5
    batch: Count = 1


class UtilitySpec(Spec):
    """How good one text is if another were right.

    kind: a measure of texts, `exact` answers, `judge`, which asks the model of a judge to rate one answer against
    another, or `preference`, which asks the judge of a tournament. of: what is compared, the whole completions or the
    answers that are read in them. aggregate: compare with the mean of all (`bleu`, `chrf`). prune: drop candidates that
    will not win, with this confidence. template, labels, cue, join, chat: what the judge is asked, in other words.
    """

    kind: Literal["exact", "token_f1", "rouge_l", "bleu", "chrf", "edit", "judge", "preference"]
    of: Literal["text", "answer"] = "text"
    aggregate: Switch = False
    prune: Annotated[float, Field(gt=0, le=1), Expects("a confidence in (0, 1]")] | None = None
    template: Text | None = None
    labels: Labels | None = None
    cue: Text | None = None
    join: Text | None = None
    chat: Switch | None = None

    @property
    def wording(self) -> dict[str, Any]:
        """Of the judge's question, what is given."""
        return {name: value for name in WORDING if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if self.kind != "judge" and self.wording:
            raise ValueError(
                f"{next(iter(self.wording))} words what a judge is asked; give it with kind: judge"
            )
        return self


class MBRSpec(ParallelSpec):
    """The candidate of the highest expected utility; weighted by scores, if there is a verifier."""

    uses = naming(over="strategies", verifier="verifiers", judge="verifiers")
    kind: Literal["mbr"]
    utility: UtilitySpec
    verifier: VerifierName | None = None
    judge: VerifierName | None = None


class UniversalSpec(ParallelSpec):
    """A model names the most consistent candidate; by default the generator itself.

    words: what it is asked, with places for {task} and {responses}. chat: as a message; by default as the task is.
    """

    uses = naming(over="strategies", judge="generators")
    kind: Literal["universal"]
    judge: GeneratorName | None = None
    votes: Count = 1
    words: Text | None = None
    chat: Switch | None = None


class KnockOutSpec(ParallelSpec):
    """Candidates meet in pairs; judge: a verifier of kind `tournament`."""

    uses = naming(over="strategies", judge="verifiers")
    kind: Literal["knockout"]
    judge: VerifierName


class MixtureSpec(StrategySpec):
    """Layers of agents that read what the layer before has written; the generator of the grid has the last word.

    words: what they are asked, with places for {task} and {responses}. chat: as a message; by default as the task is.
    """

    uses = naming(over="strategies", agents="generators")
    kind: Literal["mixture"]
    agents: Annotated[tuple[GeneratorName, ...], Field(min_length=1)]
    layers: Count = 1
    words: Text | None = None
    chat: Switch | None = None


class AskSpec(Spec):
    """What a corrector is asked. words: our turn after the candidate, with {feedback} in it; unsaid: without feedback.

    form: a function in place of words, package.module:function, (prompt, candidate, feedback) -> Prompt.
    """

    words: Text | None = None
    unsaid: Text | None = None
    form: Text | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.form is not None and (self.words or self.unsaid) is not None:
            raise ValueError("there are words and a form; give one of them")
        return self


class RefiningSpec(StrategySpec):
    """n chains, of which the best by its own scores is returned. n: in place of those of the grid."""

    n: Ladder | None = None
    rounds: Amount = 3
    accept: Share = 1.0
    ask: AskSpec | None = None


class RefinementSpec(RefiningSpec):
    """feedback: another verifier whose words are told. `silent: true` tells nothing."""

    uses = naming(over="strategies", corrector="generators", verifier="verifiers", feedback="verifiers")
    kind: Literal["refinement"]
    verifier: VerifierName
    corrector: GeneratorName | None = None
    feedback: VerifierName | None = None
    silent: Switch = False
    memory: Amount = 0


class SelfRefineSpec(StrategySpec):
    """The same model says what is wrong, and revises. critic: by default, the generator itself."""

    uses = naming(over="strategies", critic="generators", verifier="verifiers")
    kind: Literal["self_refine"]
    critic: GeneratorName | None = None
    verifier: VerifierName | None = None
    rounds: Amount = 3
    accept: Share = 1.0
    memory: Amount | None = None


class ReflexionSpec(StrategySpec):
    """Attempts that carry what the model said of those before."""

    uses = naming(over="strategies", reflector="generators", verifier="verifiers")
    kind: Literal["reflexion"]
    verifier: VerifierName
    reflector: GeneratorName | None = None
    rounds: Amount = 3
    accept: Share = 1.0
    memory: Count = 3


class DirectSpec(StrategySpec):
    """The answer at once, behind a cue."""

    kind: Literal["direct"]
    cue: Text = ""


class ChainOfThoughtSpec(StrategySpec):
    """A thought, then the answer behind a cue. thought: its most tokens."""

    kind: Literal["chain_of_thought"]
    cue: Text
    thought: Count | None = None


class BudgetForcingSpec(StrategySpec):
    """A thought of at least and at most so many tokens. end: what ends a thought; wait: what sends it on."""

    kind: Literal["budget_forcing"]
    end: Text
    most: Amount | None = None
    least: Amount = 0
    waits: Amount = 1
    wait: Text = "Wait"
    cue: Text = ""


class LengthControlSpec(StrategySpec):
    """Samples again until one has a length within bounds, in tokens."""

    kind: Literal["length_control"]
    most: Amount
    least: Amount = 0
    tries: Count = 8


class LeastToMostSpec(StrategySpec):
    """Parts of a task, solved one after the other."""

    uses = naming(over="strategies", solver="generators")
    kind: Literal["least_to_most"]
    decompose: Text
    solve: Text
    solved: Text
    most: Count = 8
    chat: Switch = False
    solver: GeneratorName | None = None


class SystemTwoAttentionSpec(StrategySpec):
    """The task rewritten without what does not matter, then answered."""

    uses = naming(over="strategies", rewriter="generators")
    kind: Literal["system_two_attention"]
    rewrite: Text
    ask: Text
    chat: Switch = False
    rewriter: GeneratorName | None = None


class AdaptiveConsistencySpec(ParallelSpec):
    """A majority vote that ends when its leader is likely to stay."""

    kind: Literal["adaptive_consistency"]
    confidence: Annotated[float, Field(gt=0.5, lt=1), Expects("a probability in (0.5, 1)")] = 0.95
    posterior: Literal["beta", "dirichlet"] = "beta"
    batch: Count = 1


class EarlyStoppingSpec(ParallelSpec):
    """A majority vote that ends when all answers of a window agree."""

    kind: Literal["esc"]
    window: Count = 5


class UntilSureSpec(ScoredSpec):
    """A weighted vote that ends when one answer has most of the weight."""

    kind: Literal["until_sure"]
    share: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.9
    mass: Positive = 2.0
    batch: Count = 1


class OptionSpec(Spec):
    """Another generator, another strategy over the generator of the grid, or that strategy over that generator.

    n: in place of the strategy's own.
    """

    generator: GeneratorName | None = None
    strategy: StrategyName | None = None
    n: Count | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.generator is None and self.strategy is None:
            raise ValueError("expected a generator, a strategy, or both")
        return self


class MeanSpec(Spec):
    """What a problem may cost on average: one limit."""

    generated: Quantity | None = None
    prefilled: Quantity | None = None
    calls: Quantity | None = None
    flops: Quantity | None = None
    money: Quantity | None = None

    @property
    def limit(self) -> str:
        """The limited one."""
        (name,) = self.model_fields_set
        return name

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1 or len(self.model_fields_set) != 1:
            raise ValueError("expected one limit, such as {flops: 2.0e+9}")
        return self


class ByDifficultySpec(StrategySpec):
    """The agreement of the first samples, or the verifier's mean score, says how to go on.

    then: one more than edges, hardest first; each is a number of samples in all, or something else that answers.
    Without both they are learned from the configurations of a held-out run, for a mean cost and at most so many groups.
    """

    uses = naming(over="strategies", verifier="verifiers", then="strategies")
    by_hand = frozenset({"held_out", "mean", "groups"})
    kind: Literal["by_difficulty"]
    first: Count = 4
    edges: tuple[Annotated[float, Expects("a number")], ...] | None = None
    then: tuple[Count | OptionSpec, ...] | None = None
    held_out: RunName | None = None
    mean: MeanSpec | None = None
    groups: Count = 5
    predictor: Literal["agreement", "mean_score"] = "agreement"
    verifier: VerifierName | None = None

    @model_validator(mode="after")
    def _given_or_learned(self) -> Self:
        there = [value is not None for value in (self.edges, self.then, self.held_out, self.mean)]
        if there not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError(
                "expected a table, edges and then, or what to learn it from, held_out (a run on other problems) and "
                "mean (what a problem may cost on average, such as {flops: 2.0e+9})"
            )
        if self.held_out is not None and self.over is not None:
            raise ValueError(
                f"over: {self.over} beside held_out: a table is learned from samples of the grid's generator; leave "
                "out over, or give edges and then"
            )
        return self

    def named(self, section: Section) -> tuple[str, ...]:
        plain = {"strategies": (self.over,), "verifiers": (self.verifier,)}.get(section, ())
        field = {"strategies": "strategy", "generators": "generator"}.get(section, "")
        ways = (getattr(option, field, None) for option in self.then or ())
        return tuple(name for name in (*plain, *ways) if name is not None)


class ConfidentSpec(ParallelSpec):
    """A vote among the most confident samples, by their log-probabilities. of: what a token's confidence is."""

    kind: Literal["confident"]
    keep: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.1
    measure: Literal["mean", "lowest", "bottom", "tail"] = "bottom"
    window: Count = 16
    share: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.1
    of: Literal["chosen", "top"] = "chosen"


class DeepConfSpec(ParallelSpec):
    """The same while they are written: a sample is given up where it is less confident than those of the warm-up."""

    kind: Literal["deepconf"]
    warmup: Count = 16
    keep: Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")] = 0.1
    window: Count = 16
    block: Count = 16
    of: Literal["chosen", "top"] = "chosen"
    batch: Count | None = None
    confidence: Annotated[float, Field(gt=0.5, lt=1), Expects("a probability in (0.5, 1)")] | None = None


class StepSpec(Spec):
    """What a step is: by default, one of the task. tokens: blocks of so many, in place of a delimiter.

    mark: what the step with the answer has in its text, so that the sequence ends with it; by default, what the task
    says. "" for none: a sequence ends with its end token.
    """

    delimiter: Annotated[str, Field(min_length=1), Expects("the text that ends a step")] | None = None
    mark: Annotated[str, Expects("text of the step with the answer, or ''")] | None = None
    max_tokens: Count = 256
    tokens: Count | None = None

    @model_validator(mode="after")
    def _delimited(self) -> Self:
        if self.tokens is not None and self.mark:
            raise ValueError(
                "there are a mark and tokens, blocks that may end within an answer; leave one of them out"
            )
        return self


class SearchSpec(ScoredSpec):
    """A tree search, led by the scores of steps."""

    step: StepSpec = StepSpec()
    max_depth: Count = 25


class RebaseSpec(SearchSpec):
    """Children in proportion to the softmax of rewards."""

    kind: Literal["rebase", "async_rebase"]
    temperature: Positive = 0.2
    rounding: Literal["ceil", "largest-remainder"] = "ceil"


class BeamSpec(SearchSpec):
    """The best n/m of n candidates go on, of all or in each subtree."""

    kind: Literal["beam", "dvts"]
    m: Count = 4


class BestFirstSpec(SearchSpec):
    """The best open node is extended next."""

    kind: Literal["best_first"]
    m: Count = 4
    in_flight: Count = 4
    expansions: Count | None = None


class DepthFirstSpec(SearchSpec):
    """The best child is extended next; below a threshold, the search goes back."""

    kind: Literal["depth_first"]
    m: Count = 4
    threshold: Share = 0.5
    expansions: Count | None = None


class MCTSSpec(ParallelSpec):
    """Monte Carlo tree search. n: expansions, of `width` draws each. outcome: scores what has finished."""

    uses = naming(over="strategies", verifier="verifiers", outcome="verifiers")
    kind: Literal["mcts"]
    verifier: VerifierName | None = None
    outcome: VerifierName | None = None
    width: Count = 4
    rollouts: Amount = 0
    mix: Share = 0.5
    exploration: Quantity = 1.25
    prior: Literal["uniform", "logprob"] = "uniform"
    in_flight: Count = 4
    step: StepSpec = StepSpec()
    max_depth: Count = 25

    @model_validator(mode="after")
    def _some_value(self) -> Self:
        if self.verifier is None and not (self.rollouts and self.outcome):
            raise ValueError("nothing values a node; give a verifier of steps, or rollouts and an outcome")
        return self


class ParticlesSpec(SearchSpec):
    """A particle filter over steps. verifier: left out where the generator keeps `log_mass`, to weigh by that alone."""

    kind: Literal["particles"]
    verifier: VerifierName | None = None  # type: ignore[assignment]  # it may be left out
    temperature: Positive = 1.0
    target: Literal["steps", "final"] = "steps"
    resampling: Literal["multinomial", "systematic"] = "multinomial"


class GibbsSpec(SearchSpec):
    """Particle filters that keep a reference. n: particles, at least 2."""

    kind: Literal["gibbs"]
    verifier: VerifierName | None = None  # type: ignore[assignment]  # as above
    iterations: Count = 2
    temperature: Positive = 1.0
    target: Literal["steps", "final"] = "steps"


class BlockwiseSpec(ScoredSpec):
    """The best of n blocks, then the best of n that go on from it. A block is a step of the task by default."""

    kind: Literal["blockwise"]
    step: StepSpec = StepSpec()


class LookaheadSpec(SearchSpec):
    """Beams, by what a few steps more are worth. greedy: these steps are decoded greedily."""

    kind: Literal["lookahead"]
    m: Count = 4
    ahead: Amount = 1
    greedy: Switch = False


class TreefinementSpec(RefiningSpec):
    """A tree of whole programs and their revisions."""

    uses = naming(over="strategies", corrector="generators", verifier="verifiers", feedback="verifiers")
    kind: Literal["treefinement"]
    verifier: VerifierName
    corrector: GeneratorName | None = None
    feedback: VerifierName | None = None
    silent: Switch = False
    select: Literal["rebase", "best-first"] = "rebase"
    temperature: Positive = 0.2
    m: Count = 1


class PluginStrategySpec(PluginSpec):
    """A strategy of another package."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: VerifierName | None = None
    over: StrategyName | None = None
    n: Ladder | None = None
