"""The laws of the contracts, run on everything that needs no model."""

from __future__ import annotations

from metagen.generators.base import Generator
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.sequence import Score, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample, WeightedVote
from metagen.testing import GeneratorLaws, StrategyLaws, VerifierLaws, first_word, last_word, numbers
from metagen.verifiers.base import Verifier
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier


class TestFunctionGenerator(GeneratorLaws):
    def make(self) -> Generator:
        return FunctionGenerator(lambda prefix, seed, index: f"{seed}", name="seed")


class TestFunctionOfLines(GeneratorLaws):
    """It goes on from the lines that are there."""

    def make(self) -> Generator:
        def write(prefix: Sequence, seed: int, index: int) -> str:
            lines = [f"line {i} of {index}\n" for i in range(4)]
            return "".join(lines[prefix.text.count("\n") :])

        return FunctionGenerator(write, name="lines", count=lambda text: len(text.split()), max_tokens=16)


class TestReplayGenerator(GeneratorLaws):
    def make(self) -> Generator:
        return ReplayGenerator({"law": [f"text {i}" for i in range(20)]})


class TestFunctionVerifier(VerifierLaws):
    def make(self) -> Verifier:
        return FunctionVerifier(lambda s: len(s.text) / 10)


class TestVerifierWithVerdicts(VerifierLaws):
    def make(self) -> Verifier:
        return FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text == "two" else 0.5)


class TestOracle(VerifierLaws):
    def make(self) -> Verifier:
        async def grade(sequence: object) -> float:
            return 1.0

        return OracleVerifier(grade)


class TestSample(StrategyLaws):
    def make(self) -> Strategy:
        return Sample(numbers(), answer=last_word)


class TestMajorityVote(StrategyLaws):
    def make(self) -> Strategy:
        return MajorityVote(numbers(), 6, answer=last_word)


class TestBestOfN(StrategyLaws):
    def make(self) -> Strategy:
        return BestOfN(numbers(), 6, verifier=first_word, answer=last_word)


class TestWeightedVote(StrategyLaws):
    def make(self) -> Strategy:
        return WeightedVote(numbers(), 6, verifier=first_word, answer=last_word)


class TestNested(StrategyLaws):
    def make(self) -> Strategy:
        return BestOfN(MajorityVote(numbers(), 3, answer=last_word), 3, verifier=first_word, answer=last_word)
