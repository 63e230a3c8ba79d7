"""The laws that every Generator, Verifier and Strategy obeys, as tests that a plug-in author can run.

    class TestMine(StrategyLaws):
        def make(self):
            return MyStrategy(numbers())

Needs pytest.
"""

from metagen.testing.generators import CountingJournal, GeneratorLaws, run
from metagen.testing.strategies import StrategyLaws, first_word, last_word, numbers
from metagen.testing.verifiers import VerifierLaws

__all__ = [
    "CountingJournal",
    "GeneratorLaws",
    "StrategyLaws",
    "VerifierLaws",
    "first_word",
    "last_word",
    "numbers",
    "run",
]
