"""The laws of generators, engines, verifiers, strategies, aggregators and tasks, as tests that an author can run.

    class TestMine(StrategyLaws):
        def make(self):
            return MyStrategy(numbers())

`numbers()` is a generator to try strategies on. `last_word` reads its answers, and `first_word` scores its texts.
Needs pytest.
"""

from metagen.testing.aggregators import AggregatorLaws
from metagen.testing.engines import EngineLaws
from metagen.testing.generators import CountingJournal, GeneratorLaws, UnsteadyJournal, run
from metagen.testing.strategies import StrategyLaws
from metagen.testing.tasks import TaskLaws
from metagen.testing.verifiers import VerifierLaws
from metagen.testing.words import first_word, last_word, numbers

__all__ = [
    "AggregatorLaws",
    "CountingJournal",
    "EngineLaws",
    "GeneratorLaws",
    "StrategyLaws",
    "TaskLaws",
    "UnsteadyJournal",
    "VerifierLaws",
    "first_word",
    "last_word",
    "numbers",
    "run",
]
