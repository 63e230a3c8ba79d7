"""Particle filtering and particle Gibbs: what they approximate, and what they make of the embedded models.

    python examples/particles.py [FOLDER [PROBLEMS]]

First a model that is a small table, whose target can be enumerated: the estimate of the normaliser, and of the answer's
share, against the exact ones. Then problems for the embedded models: who is right, and how many particles there really
are at each step; the picture of that goes to FOLDER (runs/particles by default). 8 problems take a few seconds.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

import metagen as mg
from metagen.analysis.figures import save
from metagen.analysis.particles import effective_sizes
from metagen.strategies.tree.gibbs import ParticleGibbs
from metagen.strategies.tree.particles import EDGE, ParticleFilter

N, LEVELS = 8, (2, 4)


def main(folder: str = "runs/particles", problems: str = "8") -> None:
    against_enumeration()
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    print(f"Picture in {on_the_embedded_models(out / 'effective-sizes', int(problems))}")


def against_enumeration() -> None:
    """The target is p(y) φ(v(y)): a language model of three letters, tilted towards the letter a."""

    def table(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
        return (0.3, 0.5, 0.2) if len(done) < 4 else (0.0, 0.0, 1.0)

    def value(text: str) -> float:
        return (1 + text.count("a")) / (2 + len(text)) if text else EDGE

    verifier = mg.FunctionVerifier(lambda s: value(s.text), name="share of a")
    with mg.EnumerableEngine("ab$", table, name="letters") as engine:
        exact = {
            "".join(y[:-1]): p * value("".join(y[:-1])) / (1 - value("".join(y[:-1])))
            for y, p in engine.sequences("?", max_tokens=5).items()
        }
        total = sum(exact.values())
        print(f"Σ p(y) φ(v(y)) = {total:.3f}, of which 'aaa' and 'aaaa' have {share(exact):.3f}")
        generator, parts = engine.generator(max_tokens=8), {"verifier": verifier, "until": mg.Tokens(1)}
        for n in (4, 16, 64):
            search = ParticleFilter(generator, n, target="final", **parts)
            clouds = [search.cloud("?", seed=seed) for seed in range(40)]
            normalisers = [math.exp(cloud.log_normaliser) for cloud in clouds]
            shares = [share({node.sequence.text: w for node, w in cloud.weights.items()}) for cloud in clouds]
            print(f"  {n:3} particles: normaliser {spread(normalisers)}, share {spread(shares)}")


def share(weights: dict[str, float]) -> float:
    return sum(weights.get(text, 0.0) for text in ("aaa", "aaaa")) / sum(weights.values())


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values) / math.sqrt(len(values)):.3f}"


def on_the_embedded_models(stem: Path, count: int) -> Path:
    task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=count // len(LEVELS))
    sizes: dict[str, list[list[float]]] = {}
    with mg.TorchEngine("tiny-0.5m") as model, mg.TorchEngine("tiny-prm") as judge:
        generator = model.generator(max_tokens=160)
        parts = {"verifier": mg.ProcessRewardModel(judge), "answer": task.answer}
        searches = {
            "multinomial": ParticleFilter(generator, N, **parts),
            "systematic": ParticleFilter(generator, N, resampling="systematic", **parts),
            "T = 4": ParticleFilter(generator, N, temperature=4.0, **parts),
            "Gibbs": ParticleGibbs(generator, N // 2, iterations=2, **parts),
        }
        for name, search in searches.items():
            right = tokens = 0
            for problem in task.problems():
                # The cloud is of the same search: nothing is drawn or scored again.
                journal = mg.MemoryJournal()
                result = search.solve(problem.prompt, journal=journal)
                right += result.answer is not None and result.answer.key == problem.reference
                tokens += result.usage.generated or 0
                levels = search.cloud(problem.prompt, journal=journal).levels
                sizes.setdefault(name, []).append([level.effective for level in levels])
            print(f"{name:12} {right} of {count} right, {tokens / count:.0f} tokens a problem")
    png, _ = save(effective_sizes({f"n = {N}": sizes}, title="Effective particles"), stem)
    return png


if __name__ == "__main__":
    main(*sys.argv[1:])
