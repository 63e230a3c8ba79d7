"""Fingerprints of verifiers, answer rules and utilities are keys of journals: here are those of recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest

from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.runs.declare.fitted import bradley_terry_strengths
from metagen.sequence import Sequence
from metagen.tasks.programs.verifier import PublicExamples
from metagen.verifiers.base import PrimitiveVerifier
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.choice import ChoiceRule
from metagen.verifiers.code.codet import DualAgreement
from metagen.verifiers.code.hidden import HiddenTests
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import CompletedProgram, FencedProgram
from metagen.verifiers.code.public import PublicTests
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.pairwise import PairwiseJudge, PreferenceUtility, Tournament
from metagen.verifiers.generative.question import PREFERENCE
from metagen.verifiers.generative.respondent import WritingRespondent
from metagen.verifiers.implicit import ImplicitProcessRewardModel
from metagen.verifiers.layouts import SeparatorSteps, TaggedSteps, WholeSolution
from metagen.verifiers.literal import LiteralRule
from metagen.verifiers.mass import ConstraintMass, GrammarMass
from metagen.verifiers.math.rule import MathRule
from metagen.verifiers.numbers import NumberRule
from metagen.verifiers.oracle import OracleVerifier
from metagen.verifiers.recorded import RecordedVerifier
from metagen.verifiers.recorded_answers import RecordedRule
from metagen.verifiers.reward import OutcomeRewardModel, ProcessRewardModel, Tags
from metagen.verifiers.same_program import SameProgram
from metagen.verifiers.text import TextRule
from metagen.verifiers.utility.bleu import BLEU
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.embedding import EmbeddingCosine, FunctionEmbedder
from metagen.verifiers.utility.exact import ExactAnswer
from metagen.verifiers.utility.execution import ExecutionAgreement
from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
from metagen.verifiers.utility.pairs import FunctionUtility
from metagen.verifiers.utility.pruning import ConfidencePruning
from metagen.verifiers.utility.rouge import RougeL
from metagen.verifiers.utility.token_f1 import TokenF1
from metagen.verifiers.verdict_classes import VerdictRule
from metagen.verifiers.votes_only import VotesOnly
from metagen.verifiers.with_thought import WithThought
from metagen.verifiers.word import WordRule

TOKENS = ("<step>", "<+>", "<->", "+", "-", "\n", " Yes", " No", " A", " B", *" 12345abcdefg?:()/", "<end>")


class Named(EnumerableEngine):
    """An engine of a fixed fingerprint."""

    def __init__(self, name: str) -> None:
        super().__init__(TOKENS, lambda prompt, done: np.full(len(TOKENS), 1 / len(TOKENS)), name="fixed")
        self.fingerprint = name


class Box(Sandbox):
    """A sandbox of a fixed fingerprint, which runs nothing."""

    fingerprint = "box"
    limits = Limits()

    def __init__(self) -> None: ...


class Even:
    """A calibration."""

    def __call__(self, values: Any) -> Any:
        return values

    def __repr__(self) -> str:
        return "Even()"


def half(sequence: Sequence) -> float:
    return 0.5


async def grade(sequence: Sequence) -> float:
    return 1.0


ENGINE, OTHER, BOX = Named("engine"), Named("other"), Box()
GENERATOR = EngineGenerator(ENGINE, SamplingParams(max_tokens=8))
A, B = FunctionVerifier(half, name="a"), FunctionVerifier(half, name="b")
RULE = NumberRule()
WORDED: dict[str, Any] = {
    "template": "{task} {candidate}",
    "labels": {" Yes": 1, " No": 0},
    "cue": "?",
    "chat": False,
}
COMPARED = WORDED | {"template": "{task} {first} {second}", "labels": {" A": 1, " B": 0}}
MAKERS: dict[str, Callable[[], Any]] = {
    "prm": lambda: ProcessRewardModel(ENGINE, Tags()),
    "prm by min": lambda: ProcessRewardModel(ENGINE, Tags(), aggregation="min", delimiter="a"),
    "prm of a layout": lambda: ProcessRewardModel(ENGINE, layout=SeparatorSteps()),
    "tournament by strengths": lambda: Tournament(ENGINE, strengths=bradley_terry_strengths, **COMPARED),
    "prm inline": lambda: ProcessRewardModel(ENGINE, TaggedSteps("a", "+", "-", inline=True)),
    "orm": lambda: OutcomeRewardModel(ENGINE, layout=WholeSolution()),
    "orm of tags": lambda: OutcomeRewardModel(ENGINE, Tags("a", "+", "-")),
    "implicit": lambda: ImplicitProcessRewardModel(ENGINE, OTHER, beta=0.001),
    "implicit, cumulative": lambda: ImplicitProcessRewardModel(
        ENGINE, OTHER, beta=1, delimiter="\n\n", cumulative=True, aggregation="mean"
    ),
    "ensemble": lambda: Ensemble([A, B]),
    "ensemble, weighted": lambda: Ensemble([A, B], "lower-bound", penalty=2, weights=[1, 3]),
    "calibrated": lambda: Calibrated(A, Even()),
    "calibrated steps": lambda: Calibrated(A, Even(), steps=True, name="c"),
    "with thought": lambda: WithThought(A),
    "oracle": lambda: OracleVerifier(grade),
    "recorded": lambda: RecordedVerifier("v"),
    "constraint mass": ConstraintMass,
    "grammar mass": lambda: GrammarMass(GENERATOR.replace(grammar=Grammar.regex("a|b"))),
    "function": lambda: A,
    "public examples": PublicExamples,
    "public tests": lambda: PublicTests(BOX),
    "public tests, limited": lambda: PublicTests(BOX, program=CompletedProgram(), limits=Limits(wall=1.5)),
    "hidden tests": lambda: HiddenTests(BOX, {}),
    "dual agreement": lambda: DualAgreement(BOX, GENERATOR),
    "dual agreement by roots": lambda: DualAgreement(BOX, GENERATOR, ask=copy, n=2, most=3, rule="sqrt"),
    "judge by labels": lambda: Judge(ENGINE, **WORDED),
    "judge by samples": lambda: Judge(ENGINE, by="samples", samples=2, temperature=0.5, max_tokens=9, **WORDED),
    "judge behind critiques": lambda: Judge(ENGINE, critiques=2, normalise=False, **WORDED),
    "judge of a generator": lambda: Judge(generator=GENERATOR),
    "judge by rubric": lambda: Judge(generator=GENERATOR, ask="rubric", samples=1),
    "tournament": lambda: Tournament(ENGINE, **COMPARED),
    "tournament, ranked": lambda: Tournament(
        generator=GENERATOR, meetings=2, merge="log-odds", strengths=copy, samples=3
    ),
    "pairwise": lambda: PairwiseJudge(WritingRespondent(GENERATOR, PREFERENCE)),
    "number": NumberRule,
    "number in prose": lambda: NumberRule(r"is (.*)", prose=True),
    "math": MathRule,
    "math, dropped": lambda: MathRule(r"is (.*)", sources=["pattern", "boxed"], percent="dropped"),
    "text": TextRule,
    "text, folded": lambda: TextRule(r"is (.*)", fold_case=True, fold_blanks=True),
    "choice": ChoiceRule,
    "choice of letters": lambda: ChoiceRule(r"is (.*)", letters="abc"),
    "word": WordRule,
    "word of three": lambda: WordRule(r"is (.*)", words=["yes", "no", "perhaps"]),
    "literal": LiteralRule,
    "literal arguments": lambda: LiteralRule(r"is (.*)", arguments=True),
    "recorded rule": lambda: RecordedRule(RULE),
    "verdict rule": VerdictRule,
    "verdict rule of one": lambda: VerdictRule(score="s", wrong="one"),
    "votes only": lambda: VotesOnly(RULE),
    "same program": lambda: SameProgram(FencedProgram()),
    "function rule": lambda: FunctionRule(str.strip, name="f"),
    "fenced": lambda: FencedProgram("js"),
    "completed": lambda: CompletedProgram(functions=False),
    "exact": lambda: ExactAnswer(RULE),
    "token f1": lambda: TokenF1(answer=RULE),
    "rouge": lambda: RougeL(token="a+"),
    "bleu": lambda: BLEU(aggregate=True, tokenize="char", max_order=2, effective_order=False, lowercase=True),
    "chrf": ChrF,
    "chrf with options": lambda: ChrF(
        aggregate=True, char_order=4, word_order=2, beta=1, lowercase=True, whitespace=True, answer=RULE
    ),
    "edit": EditSimilarity,
    "embedding": lambda: EmbeddingCosine(FunctionEmbedder(len, name="e"), answer=RULE),
    "execution": lambda: ExecutionAgreement({}, agreement="all", name="x"),
    "function utility": lambda: FunctionUtility(max, name="u", symmetric=True),
    "judge utility": lambda: JudgeUtility(WritingRespondent(GENERATOR, AGAINST_REFERENCE)),
    "preference": lambda: PreferenceUtility(PairwiseJudge(WritingRespondent(GENERATOR, PREFERENCE))),
    "pruning": lambda: ConfidencePruning(TokenF1(), alpha=0.9, first=4, resamples=100),
    "layout of chats": lambda: ProcessRewardModel(ENGINE, layout=SeparatorSteps("a", "\n", start="b", gap="c")),
}  # fmt: skip
#: What stands in the records: of a verifier that does something to recorded scores, two names.
RECORDED: dict[str, str] = {
    "prm": "8d86397d6ba96c8530de12be716b607c a69d037fc6317e7bae64d1b439aad6b5",
    "prm by min": "cddb6bcf11367a79f5394ec696caedad f384a6bc3cab16082bb5f98023fa2a6d",
    "prm of a layout": "7e41e99ade5159c9d9b3b8ba47341ff4 dcd3940cbf92018dc6cc34037a92fdae",
    "tournament by strengths": "6da834b7d45dc18108c4e9048eaf7ebf",
    "prm inline": "7b33c875c8648668f2787a9bfb322c42 5807a6d3578e041b054687dcf5c395d1",
    "orm": "ed474b5a2ea3ff4ddba2cb4e46361c0c ed474b5a2ea3ff4ddba2cb4e46361c0c",
    "orm of tags": "94bfe8d5312ef30435032132b3c2d268 94bfe8d5312ef30435032132b3c2d268",
    "implicit": "b4aedfca57dd7e6041399caaef1d9290 c104369d079200ec0ef8e9e0ad0caa28",
    "implicit, cumulative": "c363ecf13cf6b27a0f83e34e5b29551a fe328c180f5bd749794d69926bf96f62",
    "ensemble": "1897ce4aa8a2e6c48812df035bb0ec5b",
    "ensemble, weighted": "50110209dff52c1c6c431e580f32d622",
    "calibrated": "067580bdcdb439c5c112ced3e2a34226",
    "calibrated steps": "0b1db1c381f0987a4d634d31d1588fad",
    "with thought": "0cba509d86eede858a300eb93ce014fa",
    "oracle": "183de4ce05ac0bc9d87bdd6183676a62",
    "recorded": "3e964335bf3592a5b34035f1aee8dd2c",
    "constraint mass": "9ff1a6e17a4fd8657cc979912eb826f6",
    "grammar mass": "044892463346b48be88971ce1dc3acbe 044892463346b48be88971ce1dc3acbe",
    "function": "4e6346aeb600838cf71bd3d96eaa05cf 4e6346aeb600838cf71bd3d96eaa05cf",
    "public examples": "fc88653e93e175187387d41d2297f26c fc88653e93e175187387d41d2297f26c",
    "public tests": "f04e3e4b5f1ec37c3173d4dbbff6f5fe f04e3e4b5f1ec37c3173d4dbbff6f5fe",
    "public tests, limited": "31ac4ffeebd6291451ffda122822e075 31ac4ffeebd6291451ffda122822e075",
    "hidden tests": "bf64f2d60828a10c35d3dfd8d777371d bf64f2d60828a10c35d3dfd8d777371d",
    "dual agreement": "ffa571b9404a93690ddd7af8216a99dd",
    "dual agreement by roots": "a784e0597311d17e31db08723e2884f4",
    "judge by labels": "e47074c7c17238ab81e708dc46097a4f",
    "judge by samples": "32f42ab58ef0187e8bd03aaebc21057e",
    "judge behind critiques": "f470ad62114dca2a9d11669fdffa3469",
    "judge of a generator": "2f6d0bde566a2e190bba7cd1f7d56935",
    "judge by rubric": "ea6fff964cd9122713359c0f544e6f25",
    "tournament": "ed77c9987f2519185660f448641ecccb",
    "tournament, ranked": "e3bd4ae550880fc7490d71ac60e03d40",
    "pairwise": "120b7d83f4133e3fee9342a1495dbc30",
    "number": "91c128ac148cf7b9951010481c738b4a",
    "number in prose": "210dac0f0812e879d019fee99f04235e",
    "math": "066ff517056fd2bc711912f64dea8718",
    "math, dropped": "54faa293395f9c92d4f6ac6ea96bf447",
    "text": "c3870846914a5b850cd5c034bdf2bb25",
    "text, folded": "7affbbb5bbaba22f3300d223b9562a93",
    "choice": "03937dbed7e6f3b16756f93de2e05b08",
    "choice of letters": "be3fee40a0ace4b38b4b9c671dd085b4",
    "word": "ad01149cc26ef48fee9780e782a8a2f1",
    "word of three": "47f87b228427d133df0909d8820d492e",
    "literal": "de62e6acbe1cba70533d1c9dfe18fdd3",
    "literal arguments": "c7e7d76771b1628c8ad3daf59c38d079",
    "recorded rule": "4b40a8f7ccb7a0754b876f4b9fcccfee",
    "verdict rule": "9f512b57df756a9e68b3339003070b43",
    "verdict rule of one": "d6b2c69e1affa6291eac493983e46020",
    "votes only": "83f094aba18c2a3d9a4f688c1531cb88",
    "same program": "873e487a5f3eb24442eb58d815a95512",
    "function rule": "33a449472bd37236cffe00fb5bf8a4ed",
    "fenced": "1899446010eb0a7120d2f6e28e06eb6f",
    "completed": "a562b9c72081737fe9554b94787ab6a9",
    "exact": "3da3b726e5339e126d2c0a9c502b8c57",
    "token f1": "15461c21cde1003d7f37ddca40737a96",
    "rouge": "7e3f1adcce352b95ca74d6e44e52e912",
    "bleu": "c2accdf93a87977cfd43213289f4062d",
    "chrf": "4a5936299b4d122ab5ce6762f990da8d",
    "chrf with options": "eefc86add54661b4b7941985544b0bd3",
    "edit": "949a763287ccd3c3bd4af2c6635198d7",
    "embedding": "410caf69f92f4eb0ed9c21c8da4bf66f",
    "execution": "3219096d81c2cd3f3973d382f3c7cfac",
    "function utility": "d57f84238869f089e9a05b008a0d6218",
    "judge utility": "ce2ca99d1394ef9ffc1fa2086d062840",
    "preference": "404103db217bbe16c73021691d9c45c9",
    "pruning": "b5e8dc42d492b6083d3eb7597e4b9575",
    "layout of chats": "7d7584ef77302a07266a90916cb29c39 c1c20e10b8c08eb40b7799579657e3d2",
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_a_journal_knows_a_part_by_stays_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metagen.verifiers.math.rule._mpmath", lambda: "1.3.0")
    part = MAKERS[name]()
    found = part.fingerprint + (f" {part.records}" if isinstance(part, PrimitiveVerifier) else "")
    assert found == RECORDED[name]


@pytest.mark.parametrize(
    "make",
    [
        FunctionVerifier,
        FunctionRule,
        lambda function, **named: FunctionRule(str.strip, function, **named),
        FunctionEmbedder,
        FunctionUtility,
    ],
)
def test_what_is_made_of_a_function_without_a_name_is_named_by_the_function(
    make: Callable[..., Any],
) -> None:
    several = [lambda *_: 1, lambda *_: 2, half, grade]
    assert len({make(one).fingerprint for one in several}) == len(several)
    assert make(half).fingerprint == make(half).fingerprint
    assert len({make(one, name="mine").fingerprint for one in several}) == 1
