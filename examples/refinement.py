"""Refinement in a toy: spell a word when all that one knows is which characters are wrong.

    python examples/refinement.py runs/refinement

The generator draws characters at random, and the corrector draws anew what it is told is wrong. Three tellers: a
checker that names the wrong characters (extrinsic), the model's own eye, which errs for one character in ten
(intrinsic), and nobody, so that all is drawn anew. Similarity by round is plotted beside what theory expects.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase as ALPHABET

import numpy as np
from figures.refinement import Rounds, refinement_trajectory

from metagen import (
    BestOfN,
    FunctionGenerator,
    FunctionVerifier,
    Prompt,
    RecordedVerifier,
    Scope,
    Score,
    Sequence,
)
from metagen.analysis.figures import save
from metagen.strategies.refine.feedback import Critique, Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import Trajectory, by_round

WORD = "TAYLORSWIFT"
ROUNDS, CHAINS, ERRS = 60, 40, 0.1


def wrong(text: str) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(text, WORD, strict=True)) if a != b]


def mend(prompt: Prompt, candidate: str, feedback: str | None) -> Prompt:
    """What a corrector is asked: the task, the candidate, and the places to draw anew ("?": all of them)."""
    return replace(prompt, text=f"{prompt.text}{candidate}\n{'?' if feedback is None else feedback}\n")


def write(prefix: Sequence, seed: int, index: int) -> str:
    """Generator and corrector: the characters asked for, each with probability 1/26."""
    rng = random.Random(seed)
    lines = (prefix.prompt.text or "").splitlines()
    if len(lines) == 1:
        return "".join(rng.choice(ALPHABET) for _ in WORD)
    _, candidate, told = lines
    places = range(len(WORD)) if told == "?" else [int(place) for place in told.split()]
    return "".join(rng.choice(ALPHABET) if i in places else c for i, c in enumerate(candidate))


def look(prefix: Sequence, seed: int, index: int) -> str:
    """The model's own eye: names the wrong characters, and errs for each with probability `ERRS`."""
    rng = random.Random(seed)
    found = set(wrong((prefix.prompt.text or "").splitlines()[1]))
    return " ".join(str(i) for i in range(len(WORD)) if (i in found) != (rng.random() < ERRS))


def check(sequence: Sequence) -> Score:
    places = wrong(sequence.text)
    return Score(1 - len(places) / len(WORD), feedback=" ".join(map(str, places)))


model = FunctionGenerator(write, name="speller", count=len, max_tokens=len(WORD))
eye = FunctionGenerator(look, name="eye", count=len, max_tokens=3 * len(WORD))
checker = FunctionVerifier(check, name="similarity")
tellers = {
    "told what is wrong": None,
    "sees it, errs for 10%": Critique(eye, ask=mend, stop=None),
    "not told": Silence(),
}


def refining(teller: str, rounds: int) -> Refinement:
    return Refinement(model, verifier=checker, feedback=tellers[teller], ask=mend, rounds=rounds)


async def chains(strategy: Refinement, n: int) -> list[Trajectory]:
    scope = Scope.root("toy")
    prefix = Sequence.of(PROMPT)
    return await scope.gather(*(strategy.trajectory(prefix, scope.child(str(i))) for i in range(n)))


def expected(missed: float, false: float) -> np.ndarray:
    """P(a character is right) by round: wrong ones are named but for `missed`, right ones are named with `false`."""
    right = [1 / 26]
    for _ in range(ROUNDS):
        p = right[-1]
        right.append(p * (1 - false) + (p * false + (1 - p) * (1 - missed)) / 26)
    return np.array(right)


PROMPT = Prompt("toy", text=f"Spell {WORD}.\n")
THEORY = dict(zip(tellers, (expected(0, 0), expected(ERRS, ERRS), expected(0, 1)), strict=True))


def main(stem: str = "runs/refinement") -> None:
    drawn = {
        name: Rounds.of(*by_round(asyncio.run(chains(refining(name, ROUNDS), CHAINS)), ROUNDS))
        for name in tellers
    }
    print(f"similarity to {WORD}, mean of {CHAINS} chains, and what theory expects of the last one written")
    for name, rounds in drawn.items():
        for k in (0, ROUNDS // 6, ROUNDS // 2, ROUNDS):
            best, last = rounds.best()[:, k].mean(), rounds.last()[:, k].mean()
            print(
                f"  {name:22} round {k:2}: best {best:.2f}, last {last:.2f}, expected {THEORY[name][k]:.2f}"
            )

    print("at equal compute, 60 or 61 texts and as many scores: chains side by side, each of the same depth")
    for n, depth in ((61, 1), (4, 15), (2, 30), (1, 61)):
        # The chains have paid for their scores, which choose among them.
        strategy = BestOfN(
            refining("told what is wrong", depth - 1), n, verifier=RecordedVerifier(checker.name)
        )
        found = [strategy.solve(PROMPT, budget={"calls": 2 * 61}, seed=seed) for seed in range(5)]
        mean = np.mean([check(one.sequence).value for one in found])
        print(f"  {n:2} chains of {depth:2}: {mean:.2f}")

    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    figure = refinement_trajectory(drawn, expected=THEORY, title=f"Spelling {WORD}", measure="similarity")
    print(*save(figure, stem))


if __name__ == "__main__":
    main(*sys.argv[1:])
