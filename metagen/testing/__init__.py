"""The laws that every Generator, Engine, Verifier and Strategy obeys, as tests that a plug-in author can run.

    class TestMine(StrategyLaws):
        def make(self):
            return MyStrategy(numbers())

Needs pytest.
"""

from metagen.testing.engines import EngineLaws
from metagen.testing.generators import CountingJournal, GeneratorLaws, UnsteadyJournal, run
from metagen.testing.strategies import StrategyLaws
from metagen.testing.verifiers import VerifierLaws
from metagen.testing.words import first_word, last_word, numbers

__all__ = [
    "CountingJournal",
    "EngineLaws",
    "GeneratorLaws",
    "StrategyLaws",
    "UnsteadyJournal",
    "VerifierLaws",
    "first_word",
    "last_word",
    "numbers",
    "run",
]
