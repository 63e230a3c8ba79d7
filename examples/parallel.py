"""One pool of samples, every way to choose among them: who is right, and what each choice costs beside the samples.

    python examples/parallel.py [PROBLEMS OF EACH LEVEL [SAMPLES]]

All strategies share one journal: what one has drawn or scored, no other pays for again. So `samples` and `scores` say
what was new, and the order of the rows who paid. With few problems the intervals are wide; for figures that mean
something take 100 of each level, some minutes.
"""

from __future__ import annotations

import sys
from collections import Counter

import metagen as mg
from metagen.analysis.intervals import SHARES, interval
from metagen.strategies.parallel import BordaVote, PessimisticBestOfN, SoftBestOfN
from metagen.strategies.rejection import RejectionSampling
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.exact import ExactAnswer

LEVELS = (2, 3, 4)


def ways(
    generator: mg.Generator, steps: mg.Verifier, whole: mg.Verifier, rule: mg.AnswerRule, n: int
) -> dict[str, mg.Strategy]:
    """Strategies that draw up to n samples of the same generator; those that draw fewer come first."""
    best = {"answer": rule, "verifier": steps}
    return {
        "one sample": mg.Sample(generator, answer=rule),
        "rejection": RejectionSampling(generator, n, threshold=0.9, **best),
        "majority": mg.MajorityVote(generator, n, answer=rule),
        "weighted vote": mg.WeightedVote(generator, n, **best),
        "Borda vote": BordaVote(generator, n, power=2.0, **best),
        "best-of-n": mg.BestOfN(generator, n, **best),
        "soft best-of-n": SoftBestOfN(generator, n, beta=0.1, **best),
        "pessimistic best-of-n": PessimisticBestOfN(generator, n, verifiers=[steps, whole], answer=rule),
        "MBR, same answer": mg.MBR(generator, n, utility=ExactAnswer(rule), answer=rule),
        "MBR, edit similarity": mg.MBR(generator, n, utility=EditSimilarity(), answer=rule),
    }


def main(per_level: str = "4", samples: str = "16") -> None:
    task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=int(per_level), seed=41)
    problems, journal = list(task.problems()), mg.MemoryJournal()

    def recorded() -> Counter[str]:
        return Counter(row.kind for p in problems for row in journal.of_problem(p.prompt.problem_id))

    print(f"{len(problems)} problems, up to {samples} samples of each; {'new samples':>27}{'new scores':>12}")
    with mg.TorchEngine("tiny-0.5m") as model, mg.TorchEngine("tiny-prm") as judge:
        steps, whole = mg.ProcessRewardModel(judge), mg.OutcomeRewardModel(judge)
        generator = model.generator(max_tokens=200)
        for name, strategy in ways(generator, steps, whole, task.answer, int(samples)).items():
            before = recorded()
            answers = [strategy.solve(p.prompt, journal=journal).answer for p in problems]
            new = recorded() - before
            right = [
                float(a is not None and a.key == p.reference) for a, p in zip(answers, problems, strict=True)
            ]
            accuracy = interval(right, support=SHARES)
            low, high = 100 * accuracy.low, 100 * accuracy.high
            print(
                f"{name:22} {100 * accuracy.estimate:3.0f} % right [{low:3.0f}, {high:3.0f}]"
                f"{new['generate']:21}{new['score']:12}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
